//! Cuts the bytes of a file into records without reading what is in them.

use std::io::{Error, ErrorKind, Read, Result};

use memchr::{memchr, memchr_iter, memchr2};

use super::format::Format;

/// The first block is small, for those who want few records.
const BLOCK_BYTES_MIN: usize = 32 << 10;
const BLOCK_BYTES_MAX: usize = 96 << 10;

/// A longer record is taken for a file of another format.
pub(super) const RECORD_BYTES_MAX: usize = 64 << 20;

/// The records of a file, one after another.
pub(super) struct Records<R> {
    source: R,
    format: Format,
    buffer: Vec<u8>,
    /// What of the buffer has not been handed out.
    from: usize,
    is_at_end: bool,
    block_bytes: usize,
    /// Where in the file the rest of the buffer begins.
    position: u64,
}

impl<R: Read> Records<R> {
    /// Begins at a byte of the file, which is not within a record.
    pub fn new(source: R, format: Format, position: u64) -> Self {
        Self { source, format, buffer: Vec::new(), from: 0, is_at_end: false, block_bytes: BLOCK_BYTES_MIN, position }
    }

    /// Where in the file the last record ended.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The next record that is not blank, without its line break.
    pub fn next(&mut self) -> Result<Option<&[u8]>> {
        loop {
            let rest = &self.buffer[self.from..];
            let found = match self.format {
                Format::NdJson => memchr(b'\n', rest).map(|end| (0, end, end + 1)),
                Format::Csv { .. } => end_of_csv(rest).map(|end| (0, end, end + 1)),
                Format::Json => end_of_json(rest, self.is_at_end),
            };
            let found = found.or_else(|| self.is_at_end.then_some((0, rest.len(), rest.len())));
            let Some((start, end, next)) = found else {
                self.fill()?;
                continue;
            };
            if next == 0 {
                return Ok(None);
            }
            let span = self.from + start..self.from + end;
            self.from += next;
            self.position += next as u64;
            if !self.buffer[span.clone()].trim_ascii().is_empty() {
                let record = &self.buffer[span];
                return Ok(Some(record.strip_suffix(b"\r").unwrap_or(record)));
            }
        }
    }

    fn fill(&mut self) -> Result<()> {
        self.buffer.drain(..self.from);
        self.from = 0;
        let length = self.buffer.len();
        if length > RECORD_BYTES_MAX {
            let message = format!("the record at byte {} has more than {RECORD_BYTES_MAX} bytes", self.position);
            return Err(Error::new(ErrorKind::InvalidData, message));
        }
        // A long record doubles the block, so that it is not searched again and again.
        let block = self.block_bytes.max(length);
        self.block_bytes = (self.block_bytes * 2).min(BLOCK_BYTES_MAX);
        self.buffer.resize(length + block, 0);
        let mut filled = length;
        while filled < self.buffer.len() {
            match self.source.read(&mut self.buffer[filled..]) {
                Ok(0) => {
                    self.is_at_end = true;
                    break;
                }
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(error) => return Err(error),
            }
        }
        self.buffer.truncate(filled);
        Ok(())
    }
}

/// The line break that is in no quotes.
fn end_of_csv(text: &[u8]) -> Option<usize> {
    let mut quotes = 0;
    let mut from = 0;
    loop {
        let end = from + memchr(b'\n', &text[from..])?;
        quotes += memchr_iter(b'"', &text[from..end]).count();
        if quotes % 2 == 0 {
            return Some(end);
        }
        from = end + 1;
    }
}

/// Start and end of the next document, past the commas and brackets of the array around it.
fn end_of_json(text: &[u8], is_at_end: bool) -> Option<(usize, usize, usize)> {
    let between = |byte: &u8| byte.is_ascii_whitespace() || b",[]".contains(byte);
    let start = text.iter().position(|byte| !between(byte)).unwrap_or(text.len());
    if start == text.len() {
        // Nothing but what is between documents: at the end of the file it is the last of it.
        return (is_at_end && start > 0).then_some((start, start, start));
    }
    if text[start] != b'{' {
        let length = text[start..].iter().position(between);
        return length.map(|length| (start, start + length, start + length));
    }
    let mut depth = 0_usize;
    let mut at = start;
    while at < text.len() {
        match text[at] {
            b'"' => at = end_of_string(text, at + 1)?,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => (),
        }
        at += 1;
        if depth == 0 {
            return Some((start, at, at));
        }
    }
    None
}

/// The closing quote.
fn end_of_string(text: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at += memchr2(b'"', b'\\', text.get(at..)?)?;
        if text[at] == b'"' {
            return Some(at);
        }
        at += 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives one byte at a time, so that every record is cut everywhere.
    struct Dribble<'a>(&'a [u8]);

    impl Read for Dribble<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
            let count = self.0.len().min(1).min(buffer.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn check(format: Format, text: &str, expected: &[&str]) {
        let mut records = Records::new(Dribble(text.as_bytes()), format, 0);
        let mut found = Vec::new();
        while let Some(record) = records.next().unwrap() {
            found.push(String::from_utf8(record.to_vec()).unwrap());
            let after = usize::try_from(records.position()).unwrap();
            // Whoever begins here finds the rest.
            let mut rest = Records::new(&text.as_bytes()[after..], format, after as u64);
            let mut count = 0;
            while rest.next().unwrap().is_some() {
                count += 1;
            }
            assert_eq!(found.len() + count, expected.len(), "{text:?} after {after}");
        }
        assert_eq!(found, expected);
        assert_eq!(records.position(), text.len() as u64);
    }

    #[test]
    fn every_format_is_cut_between_records() {
        const CSV: Format = Format::Csv { delimiter: b',', header: true };
        check(Format::NdJson, "{\"a\":1}\n\n{\"b\":2}\r\n{\"c\":3}", &["{\"a\":1}", "{\"b\":2}", "{\"c\":3}"]);
        check(Format::NdJson, "", &[]);
        check(CSV, "a,b\n\"x\ny\",\"\"\"\n\"\n1,2", &["a,b", "\"x\ny\",\"\"\"\n\"", "1,2"]);
        check(Format::Json, "[{\"a\":\"]}\\\"\"},\n {\"b\":[{}]} , 7]\n", &["{\"a\":\"]}\\\"\"}", "{\"b\":[{}]}", "7"]);
        check(Format::Json, "{\"a\":1}\n{\"a\":2}", &["{\"a\":1}", "{\"a\":2}"]);
        check(Format::Json, "[]", &[]);
    }
}
