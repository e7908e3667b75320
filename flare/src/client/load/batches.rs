//! Lines of an NDJSON input, gathered into the bodies of bulk requests.

use std::io::{self, BufRead};

use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// The longest line; longer ones are passed over with an error.
pub const LINE_BYTES_MAX: usize = 64 << 20;

/// What one bulk request carries.
#[derive(Debug, Default)]
pub struct Batch {
    /// The lines, each with its newline.
    body: Vec<u8>,
    /// The number that each line has in the input, from 1.
    pub lines: Vec<u64>,
    /// How much of the input has been read with this batch, lines that were passed over included.
    pub input_bytes: u64,
    /// Lines that cannot be sent.
    pub wrong: Vec<Wrong>,
}

/// A line that cannot be sent.
#[derive(Debug, PartialEq)]
pub struct Wrong {
    /// Its number in the input, from 1.
    pub line: u64,
    /// Why.
    pub reason: String,
}

impl Batch {
    /// Takes the body out of the batch.
    pub fn take_body(&mut self) -> Bytes {
        std::mem::take(&mut self.body).into()
    }

    fn is_empty(&self) -> bool {
        self.input_bytes == 0
    }
}

/// How large a batch becomes.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Lines at most.
    pub lines_max: usize,
    /// Bytes at most, unless a single line is larger.
    pub bytes_max: usize,
}

/// The batches of an input, one after the other.
pub struct Batches<R> {
    input: R,
    size: Size,
    line: u64,
    /// The line that did not fit into the last batch, with its number and the bytes it took in the input.
    left: Option<(Vec<u8>, u64, u64)>,
}

impl<R: BufRead> Batches<R> {
    /// The batches of this input.
    pub fn new(input: R, size: Size) -> Self {
        Self { input, size, line: 0, left: None }
    }

    fn next_batch(&mut self) -> io::Result<Option<Batch>> {
        let mut batch = Batch::default();
        if let Some((text, line, bytes)) = self.left.take() {
            push(&mut batch, &text, line, bytes);
        }
        while batch.lines.len() + batch.wrong.len() < self.size.lines_max {
            let mut text = Vec::new();
            let bytes = read_line(&mut self.input, &mut text)?;
            if bytes == 0 {
                break;
            }
            self.line += 1;
            if !batch.lines.is_empty() && batch.body.len() + text.len() >= self.size.bytes_max {
                self.left = Some((text, self.line, bytes));
                break;
            }
            push(&mut batch, &text, self.line, bytes);
        }
        Ok((!batch.is_empty()).then_some(batch))
    }
}

impl<R: BufRead> Iterator for Batches<R> {
    type Item = io::Result<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().transpose()
    }
}

/// Adds a line to the batch, or to its wrong ones; blank lines count for neither.
fn push(batch: &mut Batch, text: &[u8], line: u64, bytes: u64) {
    batch.input_bytes += bytes;
    let text = text.trim_ascii();
    if text.is_empty() {
        return;
    }
    match check(text) {
        Ok(()) => {
            batch.body.extend_from_slice(text);
            batch.body.push(b'\n');
            batch.lines.push(line);
        }
        Err(reason) => batch.wrong.push(Wrong { line, reason }),
    }
}

/// Whether the line can be sent: a wrong one would make it hard for the server to tell the lines apart. What is in it
/// is left for the server to judge.
fn check(text: &[u8]) -> Result<(), String> {
    #[derive(Deserialize)]
    struct Line {
        #[serde(rename = "id")]
        _id: String,
        #[serde(flatten)]
        _rest: IgnoredAny,
    }
    if text.len() > LINE_BYTES_MAX {
        return Err(format!("the line is longer than {} MiB", LINE_BYTES_MAX >> 20));
    }
    serde_json::from_slice::<Line>(text).map(drop).map_err(|error| {
        // The position is one within this line.
        let reason = error.to_string().replace("at line 1 column", "at column");
        format!(r#"{reason}; a line is {{"id": URL, "document": {{…}}}} or {{"id": URL, "delete": true}}"#)
    })
}

/// Reads a line, without its newline, and returns how many bytes of the input it took: 0 at the end. Of a line that is
/// too long only the beginning is kept, one byte more than is allowed.
fn read_line(input: &mut impl BufRead, text: &mut Vec<u8>) -> io::Result<u64> {
    let mut taken = 0;
    loop {
        let available = match input.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            result => result?,
        };
        let newline = available.iter().position(|byte| *byte == b'\n');
        let end = newline.unwrap_or(available.len());
        let room = (LINE_BYTES_MAX + 1).saturating_sub(text.len());
        text.extend_from_slice(&available[..end.min(room)]);
        let used = newline.map_or(end, |newline| newline + 1);
        let at_end = available.is_empty();
        input.consume(used);
        taken += used as u64;
        if newline.is_some() || at_end {
            return Ok(taken);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batches(input: &str, lines_max: usize, bytes_max: usize) -> Vec<Batch> {
        let size = Size { lines_max, bytes_max };
        let batches: Vec<Batch> =
            Batches::new(io::BufReader::with_capacity(7, input.as_bytes()), size).map(Result::unwrap).collect();
        let read: u64 = batches.iter().map(|batch| batch.input_bytes).sum();
        assert_eq!(read, input.len() as u64);
        batches
    }

    #[test]
    fn lines_keep_their_numbers_over_batches_and_blanks() {
        let input = "{\"id\":\"1\"}\n\n  {\"id\":\"2\"} \r\n{\"id\":\"3\"}\n{\"id\":\"4\"}";
        let check = |lines_max, bytes_max, expected: &[&[u64]]| {
            let batches = batches(input, lines_max, bytes_max);
            let lines: Vec<_> = batches.iter().map(|batch| batch.lines.as_slice()).collect();
            assert_eq!(lines, expected);
        };
        check(100, 1000, &[&[1, 3, 4, 5]]);
        check(2, 1000, &[&[1, 3], &[4, 5]]);
        check(100, 1, &[&[1], &[3], &[4], &[5]]);
        check(100, 26, &[&[1, 3], &[4, 5]]);
        let mut first = batches(input, 3, 1000).swap_remove(0);
        assert_eq!(first.take_body(), "{\"id\":\"1\"}\n{\"id\":\"2\"}\n{\"id\":\"3\"}\n");
    }

    #[test]
    fn wrong_lines_are_told_and_not_sent() {
        let batch = batches("x\n{\"id\":\"1\"}\n[]\n{\"id\":1}\n{\"id\":\"1\"} 2\n{}\n", 100, 1000).swap_remove(0);
        assert_eq!(batch.lines, [2]);
        let wrong: Vec<_> = batch.wrong.iter().map(|wrong| wrong.line).collect();
        assert_eq!(wrong, [1, 3, 4, 5, 6]);
        assert!(
            batch.wrong[0].reason.contains("expected value at column 1; a line is {\"id\": URL, \"document\": {…}} or")
        );
    }

    #[test]
    fn an_empty_input_has_no_batch() {
        assert!(batches("", 10, 10).is_empty());
        assert_eq!(batches("\n\n", 10, 10)[0].lines.len(), 0);
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let input = io::repeat(b'x').take_bytes(LINE_BYTES_MAX + 100);
        let size = Size { lines_max: 10, bytes_max: 10 };
        let batch = Batches::new(io::BufReader::new(input), size).next().unwrap().unwrap();
        assert_eq!(batch.wrong[0].reason, "the line is longer than 64 MiB");
        assert_eq!(batch.input_bytes, LINE_BYTES_MAX as u64 + 100);
    }

    /// So many bytes of an endless reader.
    trait TakeBytes: io::Read + Sized {
        fn take_bytes(self, count: usize) -> io::Take<Self> {
            io::Read::take(self, count as u64)
        }
    }

    impl TakeBytes for io::Repeat {}
}
