//! What is left to read of a written time.

use super::Reason;

/// Digits of a fraction that a nanosecond has.
const FRACTION_DIGITS_MAX: usize = 9;

#[derive(Clone, Copy)]
pub(super) struct Cursor<'v> {
    rest: &'v [u8],
}

impl<'v> Cursor<'v> {
    pub(super) fn new(text: &'v str) -> Self {
        Self { rest: text.as_bytes() }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// The byte `ahead` of the next one.
    pub(super) fn peek(&self, ahead: usize) -> Option<u8> {
        self.rest.get(ahead).copied()
    }

    pub(super) fn is_digit(&self, ahead: usize) -> bool {
        self.peek(ahead).is_some_and(|byte| byte.is_ascii_digit())
    }

    pub(super) fn starts_with(&self, text: &str) -> bool {
        self.rest.starts_with(text.as_bytes())
    }

    /// Takes `count` bytes, or nothing if there are fewer.
    pub(super) fn take(&mut self, count: usize) -> Option<&'v [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    /// Takes the next byte if it is one of these.
    pub(super) fn eat(&mut self, any: &[u8]) -> Option<u8> {
        let byte = self.peek(0).filter(|byte| any.contains(byte))?;
        self.rest = &self.rest[1..];
        Some(byte)
    }

    /// Takes one of the words, in any case of its ASCII letters, and says which.
    pub(super) fn eat_word(&mut self, words: &[&str]) -> Option<usize> {
        let starts_with =
            |word: &&str| self.rest.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()));
        let which = words.iter().position(starts_with)?;
        self.rest = &self.rest[words[which].len()..];
        Some(which)
    }

    /// Takes a number of at least `min` and at most `max` digits; `max` is at most nine.
    pub(super) fn number(&mut self, min: usize, max: usize) -> Option<u32> {
        let count = self.digits().min(max);
        if count < min {
            return None;
        }
        let digits = self.take(count)?;
        Some(digits.iter().fold(0, |number, digit| number * 10 + u32::from(digit - b'0')))
    }

    /// Takes `count` digits as the fraction of a second, in nanoseconds. A finer fraction would be lost, and with it
    /// the order of revisions, so it is refused.
    pub(super) fn fraction(&mut self, count: usize) -> Result<u32, Reason> {
        let digits = self.take(count).unwrap_or_default();
        if digits.len() != count || !digits.iter().all(u8::is_ascii_digit) {
            return Err("the fraction of the second has too few digits".into());
        }
        if digits.iter().skip(FRACTION_DIGITS_MAX).any(|digit| *digit != b'0') {
            return Err("it is finer than a nanosecond".into());
        }
        let padded = digits.iter().copied().chain(std::iter::repeat(b'0')).take(FRACTION_DIGITS_MAX);
        Ok(padded.fold(0, |number, digit| number * 10 + u32::from(digit - b'0')))
    }

    /// How many digits come next.
    pub(super) fn digits(&self) -> usize {
        self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
    }

    pub(super) fn skip_spaces(&mut self) {
        while self.eat(b" ").is_some() {}
    }
}
