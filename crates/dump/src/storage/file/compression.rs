//! Compressed files. Several members or frames one after another are one file, which is how parts are put together.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Result, Write};

use xxhash_rust::xxh3::Xxh3Default;

use crate::error::Error;

const BUFFER_BYTES: usize = 256 << 10;
const ZSTD_LEVEL: i32 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    pub fn from_name(name: &str) -> crate::Result<Self> {
        match name {
            "none" => Ok(Self::None),
            "gzip" | "gz" => Ok(Self::Gzip),
            "zstd" | "zst" => Ok(Self::Zstd),
            _ => Err(Error::invalid(format!("compression is {name:?}: write none, gzip or zstd"))),
        }
    }

    /// The content of the file.
    pub fn reader(self, file: File) -> Result<Box<dyn Read + Send>> {
        Ok(match self {
            Self::None => Box::new(file),
            Self::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(BufReader::with_capacity(BUFFER_BYTES, file))),
            Self::Zstd => Box::new(zstd::Decoder::with_buffer(BufReader::with_capacity(BUFFER_BYTES, file))?),
        })
    }

    pub fn writer(self, file: File) -> Result<Encoder> {
        let file = Summed { file, sum: Xxh3Default::new() };
        Ok(match self {
            Self::None => Encoder::None(file),
            Self::Gzip => {
                let file = BufWriter::with_capacity(BUFFER_BYTES, file);
                Encoder::Gzip(flate2::write::GzEncoder::new(file, flate2::Compression::default()))
            }
            Self::Zstd => Encoder::Zstd(zstd::Encoder::new(BufWriter::with_capacity(BUFFER_BYTES, file), ZSTD_LEVEL)?),
        })
    }
}

/// A file, and the checksum of what was written to it.
pub(super) struct Summed {
    pub file: File,
    sum: Xxh3Default,
}

impl Summed {
    pub fn checksum(&self) -> u64 {
        self.sum.digest()
    }
}

impl Write for Summed {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let count = self.file.write(bytes)?;
        self.sum.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> Result<()> {
        self.file.flush()
    }
}

/// Writes to a file through a compressor.
pub(super) enum Encoder {
    None(Summed),
    Gzip(flate2::write::GzEncoder<BufWriter<Summed>>),
    Zstd(zstd::Encoder<'static, BufWriter<Summed>>),
}

impl Encoder {
    pub fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Self::None(file) => file.write_all(bytes),
            Self::Gzip(encoder) => encoder.write_all(bytes),
            Self::Zstd(encoder) => encoder.write_all(bytes),
        }
    }

    /// Ends the member or frame and gives the file back.
    pub fn finish(self) -> Result<Summed> {
        let flushed = |writer: BufWriter<Summed>| writer.into_inner().map_err(std::io::IntoInnerError::into_error);
        match self {
            Self::None(file) => Ok(file),
            Self::Gzip(encoder) => flushed(encoder.finish()?),
            Self::Zstd(encoder) => flushed(encoder.finish()?),
        }
    }
}
