//! Files: NDJSON, JSON and CSV, plain or compressed with gzip or zstd.
//!
//! A plain file is cut at bytes: the walk looks for the ends of records, and any part can be read at once. A compressed
//! one is read from the beginning. A target is written as part files, one per chunk, which are put together in their
//! order.

mod compression;
mod csv;
mod format;
mod parts;
mod reader;
mod records;
mod whole;
mod writer;

pub use self::reader::FileReader;
pub use self::writer::FileWriter;

use std::path::PathBuf;

use self::compression::Compression;
use self::format::Format;
use crate::error::{Error, Result};
use crate::json::Style;
use crate::location::Location;

/// What the address of a file says.
#[derive(Clone, Debug)]
struct Place {
    path: PathBuf,
    format: Format,
    compression: Compression,
    style: Style,
}

impl Place {
    fn read(location: &Location) -> Result<Self> {
        let mut location = location.clone();
        let path = location.path().to_owned();
        let mut stem = path.as_str();
        let mut compression = Compression::None;
        for (end, kind) in [(".gz", Compression::Gzip), (".zst", Compression::Zstd), (".zstd", Compression::Zstd)] {
            if let Some(rest) = path.strip_suffix(end) {
                (stem, compression) = (rest, kind);
            }
        }
        if let Some(name) = location.take("compression") {
            compression = Compression::from_name(&name)?;
        }
        let extension = stem.rsplit(['.', '/']).next().unwrap_or_default().to_owned();
        let name = location.take("format").unwrap_or(extension);
        let delimiter = location.take("delimiter");
        let header = location.take("header");
        let format = Format::from_name(&name, delimiter.as_deref(), header.as_deref())
            .map_err(|error| error.within(&location))?;
        let style = match location.take("types").as_deref() {
            None | Some("extended") => Style::Extended,
            Some("plain") => Style::Plain,
            Some(other) => {
                return Err(Error::invalid(format!("{location}: types is {other:?}: write extended or plain")));
            }
        };
        location.expect_no_more()?;
        Ok(Self { path: path.into(), format, compression, style })
    }

    /// An error about the file.
    fn error(&self, what: &str, error: std::io::Error) -> Error {
        Error::io(format!("cannot {what} {}", self.path.display()), error)
    }
}
