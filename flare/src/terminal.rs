//! Writing to standard output and error. A closed pipe is an ordinary end here, never a panic, so nothing in this crate
//! uses `println!` or `eprintln!`.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, IsTerminal, Write};

use anyhow::Context;

/// Nobody reads standard output any more, as in `flare resources list | head -1`.
#[derive(Debug)]
pub struct Closed;

impl std::error::Error for Closed {}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("standard output is closed")
    }
}

/// Writes the text and a newline to standard output in one piece. The error is [`Closed`] when nobody reads it.
pub fn print(text: impl AsRef<str>) -> anyhow::Result<()> {
    print_bytes(text.as_ref().as_bytes())
}

/// As [`print()`], for text that is passed on as it came.
pub fn print_bytes(text: &[u8]) -> anyhow::Result<()> {
    let mut line = Vec::with_capacity(text.len() + 1);
    line.extend_from_slice(text);
    line.push(b'\n');
    let mut stdout = io::stdout().lock();
    match stdout.write_all(&line).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Closed.into()),
        result => result.context("cannot write to standard output"),
    }
}

/// Writes the text and a newline to standard error; if that is closed there is nobody to tell.
pub fn note(text: impl AsRef<str>) {
    let _ = io::stderr().lock().write_all(format!("{}\n", text.as_ref()).as_bytes());
}

/// The columns of the terminal that standard output is; `None` where it is something else.
pub fn width() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    terminal_size::terminal_size().map(|(width, _)| usize::from(width.0))
}

/// The text with control characters made visible, so that what others sent cannot command the terminal. Newlines and
/// tabs stay.
pub fn harmless(text: &str) -> Cow<'_, str> {
    let harmful = |c: char| c.is_control() && c != '\n' && c != '\t';
    if !text.contains(harmful) {
        return Cow::Borrowed(text);
    }
    let shown = |c: char| if harmful(c) { c.escape_default().to_string() } else { c.to_string() };
    Cow::Owned(text.chars().map(shown).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_made_visible() {
        let check = |text: &str, expected: &str| assert_eq!(harmless(text), expected);
        check("a\nb\tc é", "a\nb\tc é");
        check("\u{1b}[31mred", "\\u{1b}[31mred");
        check("a\rb\u{9b}", "a\\rb\\u{9b}");
    }
}
