//! JSON as values.

use memchr::memchr2;

use super::{DEPTH_MAX, extended};
use crate::value::{Decimal, Value};

/// Reads one document, with extended forms.
pub fn parse(text: &[u8]) -> Result<Value, String> {
    read(text, true)
}

/// Reads one document; what looks like an extended form stays as it is.
pub fn parse_plain(text: &[u8]) -> Result<Value, String> {
    read(text, false)
}

fn read(text: &[u8], extended: bool) -> Result<Value, String> {
    let mut parser = Parser { text, at: 0, depth: 0, extended };
    let value = parser.value()?;
    parser.skip_space();
    if parser.at < text.len() {
        return Err(parser.wrong("something after the end of the document"));
    }
    Ok(value)
}

/// Whether a number is the text that a float of this value is written as: then nothing is lost if it is one.
pub(super) fn is_exact_float(text: &str) -> bool {
    use std::fmt::Write;
    /// Compares what is written instead of keeping it.
    struct Same<'a>(&'a str);
    impl Write for Same<'_> {
        fn write_str(&mut self, part: &str) -> std::fmt::Result {
            self.0 = self.0.strip_prefix(part).ok_or(std::fmt::Error)?;
            Ok(())
        }
    }
    let Ok(number) = text.parse::<f64>() else { return false };
    let mut rest = Same(text);
    number.is_finite() && write!(rest, "{number:?}").is_ok() && rest.0.is_empty()
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
    extended: bool,
}

impl Parser<'_> {
    fn wrong(&self, what: &str) -> String {
        format!("not JSON: {what} at byte {}", self.at + 1)
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.text.get(self.at) {
            self.at += 1;
        }
    }

    /// Moves past the byte if it is next.
    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.text.get(self.at) == Some(&byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn value(&mut self) -> Result<Value, String> {
        self.skip_space();
        match self.text.get(self.at) {
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::array),
            Some(b'"') => self.string().map(Value::Text),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word(b"true", Value::Bool(true)),
            Some(b'f') => self.word(b"false", Value::Bool(false)),
            Some(b'n') => self.word(b"null", Value::Null),
            Some(_) => Err(self.wrong("an unexpected character")),
            None => Err(self.wrong("the end of the text")),
        }
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<Value, String>) -> Result<Value, String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.wrong("more levels than are read"));
        }
        self.at += 1;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn word(&mut self, word: &[u8], value: Value) -> Result<Value, String> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.wrong("an unknown word"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn array(&mut self) -> Result<Value, String> {
        let mut values = Vec::new();
        self.skip_space();
        if self.take(b']') {
            return Ok(Value::Array(values));
        }
        loop {
            values.push(self.value()?);
            self.skip_space();
            if self.take(b']') {
                return Ok(Value::Array(values));
            }
            if !self.take(b',') {
                return Err(self.wrong("no comma or bracket"));
            }
        }
    }

    fn object(&mut self) -> Result<Value, String> {
        let fields = self.fields(self.extended)?;
        let looks_extended = self.extended && fields.first().is_some_and(|(name, _)| name.starts_with('$'));
        Ok(if looks_extended { extended::value_of(fields) } else { Value::Object(fields) })
    }

    /// An object, whatever it looks like.
    fn literal(&mut self) -> Result<Value, String> {
        self.fields(false).map(Value::Object)
    }

    /// The fields up to the closing brace. Where forms count, a document behind `$verbatim` is what it is.
    fn fields(&mut self, forms: bool) -> Result<Vec<(String, Value)>, String> {
        let mut fields = Vec::new();
        self.skip_space();
        if self.take(b'}') {
            return Ok(fields);
        }
        loop {
            self.skip_space();
            if self.text.get(self.at) != Some(&b'"') {
                return Err(self.wrong("no name of a field"));
            }
            let name = self.string()?;
            self.skip_space();
            if !self.take(b':') {
                return Err(self.wrong("no colon"));
            }
            self.skip_space();
            let is_literal = forms && fields.is_empty() && name == "$verbatim";
            let value = match self.text.get(self.at) {
                Some(b'{') if is_literal => self.nested(Self::literal)?,
                _ => self.value()?,
            };
            fields.push((name, value));
            self.skip_space();
            if self.take(b'}') {
                return Ok(fields);
            }
            if !self.take(b',') {
                return Err(self.wrong("no comma or brace"));
            }
        }
    }

    fn number(&mut self) -> Result<Value, String> {
        let from = self.at;
        let mut is_integer = true;
        while let Some(byte) = self.text.get(self.at) {
            match byte {
                b'0'..=b'9' | b'-' => (),
                b'.' | b'e' | b'E' | b'+' => is_integer = false,
                _ => break,
            }
            self.at += 1;
        }
        let text = std::str::from_utf8(&self.text[from..self.at]).expect("digits are ASCII");
        let Some(decimal) = Decimal::parse(text) else {
            self.at = from;
            return Err(self.wrong("a malformed number"));
        };
        if is_integer && text != "-0" {
            return Ok(text.parse().map_or(Value::Decimal(decimal), Value::Int));
        }
        if is_exact_float(text) {
            return Ok(Value::Float(text.parse().expect("it was read as a float just now")));
        }
        Ok(Value::Decimal(decimal))
    }

    fn string(&mut self) -> Result<String, String> {
        self.at += 1;
        let mut whole: Vec<u8> = Vec::new();
        loop {
            let rest = &self.text[self.at..];
            let Some(length) = memchr2(b'"', b'\\', rest) else { return Err(self.wrong("a string without end")) };
            if let Some(control) = rest[..length].iter().position(|&byte| byte < 0x20) {
                self.at += control;
                return Err(self.wrong("a control character in a string"));
            }
            let part = &rest[..length];
            let is_end = rest[length] == b'"';
            self.at += length + 1;
            if is_end && whole.is_empty() {
                return self.utf8(part.to_vec());
            }
            whole.extend_from_slice(part);
            if is_end {
                return self.utf8(whole);
            }
            self.escape(&mut whole)?;
        }
    }

    fn utf8(&self, bytes: Vec<u8>) -> Result<String, String> {
        String::from_utf8(bytes).map_err(|_| self.wrong("a string that is not UTF-8 ending"))
    }

    fn escape(&mut self, whole: &mut Vec<u8>) -> Result<(), String> {
        let byte = *self.text.get(self.at).ok_or_else(|| self.wrong("a string without end"))?;
        self.at += 1;
        whole.push(match byte {
            b'"' | b'\\' | b'/' => byte,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'b' => 8,
            b'f' => 12,
            b'u' => {
                let symbol = self.symbol()?;
                whole.extend_from_slice(symbol.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            _ => return Err(self.wrong("an unknown escape")),
        });
        Ok(())
    }

    /// The character of `\uXXXX`, or of a pair of them.
    fn symbol(&mut self) -> Result<char, String> {
        let first = self.four_digits()?;
        if !(0xD800..0xDC00).contains(&first) {
            return char::from_u32(first).ok_or_else(|| self.wrong("half of a surrogate pair"));
        }
        if !(self.take(b'\\') && self.take(b'u')) {
            return Err(self.wrong("half of a surrogate pair"));
        }
        let second = self.four_digits()?;
        let low = second.checked_sub(0xDC00).filter(|low| *low < 0x400);
        let symbol = low.and_then(|low| char::from_u32(0x10000 + ((first - 0xD800) << 10) + low));
        symbol.ok_or_else(|| self.wrong("half of a surrogate pair"))
    }

    fn four_digits(&mut self) -> Result<u32, String> {
        let digits = self.text.get(self.at..self.at + 4).and_then(|digits| std::str::from_utf8(digits).ok());
        let number = digits.filter(|digits| !digits.starts_with('+')).and_then(|d| u32::from_str_radix(d, 16).ok());
        self.at += 4;
        number.ok_or_else(|| self.wrong("a malformed escape"))
    }
}
