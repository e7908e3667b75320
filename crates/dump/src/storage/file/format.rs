//! The formats of files.

use super::csv;
use crate::error::{Error, Result};
use crate::json::{self, Style};
use crate::row::{Names, Row};
use crate::value::Value;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Format {
    /// One document per line.
    NdJson,
    /// One array of documents, or documents one after another.
    Json,
    Csv {
        delimiter: u8,
        header: bool,
    },
}

impl Format {
    pub fn from_name(name: &str, delimiter: Option<&str>, header: Option<&str>) -> Result<Self> {
        let format = match name {
            "ndjson" | "jsonl" | "jsonlines" => Self::NdJson,
            "json" => Self::Json,
            "csv" | "tsv" => {
                let delimiter = match (delimiter, name) {
                    (Some("tab" | "\\t" | "\t"), _) | (None, "tsv") => b'\t',
                    (None, _) => b',',
                    (Some(text), _) => match text.as_bytes() {
                        [byte] if byte.is_ascii() && !b"\"\r\n".contains(byte) => *byte,
                        _ => return Err(Error::invalid(format!("the delimiter {text:?} is not one ASCII character"))),
                    },
                };
                let header = match header {
                    None | Some("true") => true,
                    Some("false") => false,
                    Some(text) => return Err(Error::invalid(format!("header is {text:?}: write true or false"))),
                };
                return Ok(Self::Csv { delimiter, header });
            }
            _ => {
                return Err(Error::invalid(format!(
                    "the format {name:?} is not known: end the name in .ndjson, .json or .csv, or add ?format=…"
                )));
            }
        };
        match delimiter.or(header) {
            None => Ok(format),
            Some(_) => Err(Error::invalid("delimiter and header are options of CSV files")),
        }
    }

    /// The row of a record, which is whole; bad if it is none.
    pub fn row(self, record: &[u8], names: &Names, style: Style) -> Row {
        match self {
            Self::Csv { delimiter, .. } => csv::row(record, delimiter, names.len()),
            Self::NdJson | Self::Json => {
                let read = if style == Style::Plain { json::parse_plain(record) } else { json::parse(record) };
                let reason = match read {
                    Ok(Value::Object(fields)) => return Row::Document(fields),
                    Ok(other) => format!("not a document but {}", other.kind_name()),
                    Err(reason) => reason,
                };
                Row::bad(String::from_utf8_lossy(record), reason)
            }
        }
    }
}
