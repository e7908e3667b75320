//! JSON as text: laid out for people or on one line, with the order of its members and the digits of its numbers
//! untouched.

use serde::de::IgnoredAny;

/// The JSON text on several lines; `None` if it is not JSON.
pub fn pretty(text: &[u8]) -> Option<String> {
    checked(text).map(|text| {
        let mut layout = Layout { lines: true, ..Layout::default() };
        text.chars().for_each(|c| layout.push(c));
        layout.out
    })
}

/// The JSON text on one line, without spaces between its parts; `None` if it is not JSON.
pub fn compact(text: &[u8]) -> Option<String> {
    checked(text).map(|text| {
        let mut layout = Layout::default();
        text.chars().for_each(|c| layout.push(c));
        layout.out
    })
}

/// The layout below relies on the text being JSON.
fn checked(text: &[u8]) -> Option<&str> {
    serde_json::from_slice::<IgnoredAny>(text).ok()?;
    std::str::from_utf8(text).ok()
}

#[derive(Default)]
struct Layout {
    out: String,
    lines: bool,
    depth: usize,
    in_string: bool,
    /// The last character was a backslash within a string.
    escaped: bool,
    /// An array or object has just begun; if it ends at once, it stays on its line.
    opened: bool,
}

impl Layout {
    fn push(&mut self, c: char) {
        if self.in_string {
            self.out.push(c);
            self.in_string = self.escaped || c != '"';
            self.escaped = c == '\\' && !self.escaped;
            return;
        }
        match c {
            ' ' | '\n' | '\r' | '\t' => return,
            '}' | ']' => {
                self.depth -= 1;
                if !self.opened {
                    self.newline();
                }
                self.opened = false;
            }
            _ if self.opened => {
                self.opened = false;
                self.newline();
            }
            _ => (),
        }
        self.out.push(c);
        match c {
            '{' | '[' => {
                self.depth += 1;
                self.opened = true;
            }
            ',' => self.newline(),
            ':' if self.lines => self.out.push(' '),
            '"' => self.in_string = true,
            _ => (),
        }
    }

    fn newline(&mut self) {
        if self.lines {
            self.out.push('\n');
            self.out.push_str(&"  ".repeat(self.depth));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_keeps_order_digits_and_strings() {
        let text = br#" {"b": [1.50, {} , [ ] ,[[2]]],"a" : "x: {\"y\", \\\\" , "n": 12345678901234567890123 } "#;
        let compacted = r#"{"b":[1.50,{},[],[[2]]],"a":"x: {\"y\", \\\\","n":12345678901234567890123}"#;
        assert_eq!(compact(text).unwrap(), compacted);
        insta::assert_snapshot!(pretty(text).unwrap());
        assert_eq!(compact(pretty(text).unwrap().as_bytes()).unwrap(), compacted);
        assert_eq!(pretty(b" 12 ").unwrap(), "12");
        assert_eq!(pretty(b"{ }").unwrap(), "{}");
    }

    #[test]
    fn what_is_not_json_is_left_alone() {
        for text in ["", "{", "{]", "a", "1 2", "[1,]"] {
            assert_eq!(pretty(text.as_bytes()), None, "{text}");
        }
        assert_eq!(compact(b"\"\xff\""), None);
    }
}
