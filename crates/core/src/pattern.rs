//! The endpoint of a resource: which URLs are its documents.
//!
//! A pattern is a URL whose path segments may be wildcards, `{name}` or `{*}`, each for one segment that is not empty.
//! Scheme, host and port are compared in normal form, literal segments byte by byte; the query of a document's URL is
//! part of its name but not of its path, so it is ignored here. Finding one of many patterns is left to
//! [`crate::pattern_index`].

use std::{fmt, hash, sync::Arc};

use crate::url::{DocumentUrl, Origin, URL_BYTES_MAX, UrlError, check_path_and_query, excerpt};

/// The longest pattern. A URL that matches two patterns need not be longer than both together, so with this limit
/// [`Pattern::overlaps`] is exact: such a URL is always short enough to exist.
pub const PATTERN_BYTES_MAX: usize = URL_BYTES_MAX / 2;

/// The most path segments that a pattern may have.
pub const PATTERN_SEGMENTS_MAX: usize = 64;

/// How an unnamed wildcard is called wherever names are listed.
pub const UNNAMED: &str = "*";

/// A valid endpoint pattern in normal form. Clones share their parts; equality is that of the text.
#[derive(Clone)]
pub struct Pattern(Arc<Parts>);

struct Parts {
    text: Box<str>,
    origin_bytes: usize,
    segments: Box<[Span]>,
    /// The places of the wildcards among the segments.
    wildcards: Box<[u8]>,
}

/// One segment: where it stands in the text, braces included.
struct Span {
    start: u16,
    end: u16,
    is_wildcard: bool,
}

/// A segment as it is matched.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Segment<'p> {
    Literal(&'p str),
    Wildcard,
}

impl Segment<'_> {
    /// Whether some segment of a URL matches both.
    pub(crate) fn overlaps(self, other: Segment<'_>) -> bool {
        match (self, other) {
            (Segment::Literal(one), Segment::Literal(other)) => one == other,
            (Segment::Literal(literal), Segment::Wildcard) | (Segment::Wildcard, Segment::Literal(literal)) => {
                !literal.is_empty()
            }
            (Segment::Wildcard, Segment::Wildcard) => true,
        }
    }
}

impl Pattern {
    /// Reads a pattern such as `http://api.company.com/users/{id}`.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        check_length(text, text.len())?;
        let origin = Origin::parse(text).map_err(|error| wildcard_in_host(text).unwrap_or(error.into()))?;
        if origin.rest.contains('?') {
            return Err(PatternError::Query { pattern: excerpt(text) });
        }
        if origin.rest.contains('#') {
            return Err(UrlError::Fragment { url: excerpt(text) }.into());
        }
        let mut normal = String::with_capacity(text.len() + 1);
        origin.write(&mut normal);
        let origin_bytes = normal.len();
        normal.push_str(if origin.rest.is_empty() { "/" } else { origin.rest });
        check_length(text, normal.len())?;
        let segments = segments_of(&normal, origin_bytes)?;
        let wildcards = wildcards_of(&normal, &segments)?;
        Ok(Self(Arc::new(Parts { text: normal.into(), origin_bytes, segments, wildcards })))
    }

    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// The names of the wildcards from left to right; an unnamed one is `*`.
    pub fn wildcards(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.wildcards.iter().map(|place| self.name_at(*place))
    }

    /// Whether the URL is a document of this pattern; its query does not matter.
    pub fn matches(&self, url: &DocumentUrl) -> bool {
        if self.origin() != url.origin() {
            return false;
        }
        let mut segments = path_segments(url.path());
        for segment in self.segments() {
            let fits = match (segment, segments.next()) {
                (Segment::Literal(literal), Some(actual)) => literal == actual,
                (Segment::Wildcard, Some(actual)) => !actual.is_empty(),
                (_, None) => false,
            };
            if !fits {
                return false;
            }
        }
        segments.next().is_none()
    }

    /// The segments of the URL that stand at the wildcards, if it matches.
    pub fn capture<'u>(&self, url: &'u DocumentUrl) -> Option<Captures<'u>> {
        self.matches(url).then(|| Captures { pattern: self.clone(), path: url.path() })
    }

    /// Whether there is a URL that matches both patterns.
    pub fn overlaps(&self, other: &Pattern) -> bool {
        self.origin() == other.origin()
            && self.0.segments.len() == other.0.segments.len()
            && self.segments().zip(other.segments()).all(|(one, other)| one.overlaps(other))
    }

    /// Scheme and authority.
    pub(crate) fn origin(&self) -> &str {
        &self.0.text[..self.0.origin_bytes]
    }

    pub(crate) fn segments(&self) -> impl Iterator<Item = Segment<'_>> + Clone {
        self.0.segments.iter().map(|span| match span.is_wildcard {
            true => Segment::Wildcard,
            false => Segment::Literal(span.of(&self.0.text)),
        })
    }

    fn name_at(&self, place: u8) -> &str {
        name_of(self.0.segments[usize::from(place)].of(&self.0.text))
    }
}

impl Span {
    fn of<'t>(&self, text: &'t str) -> &'t str {
        &text[usize::from(self.start)..usize::from(self.end)]
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Pattern {}

impl hash::Hash for Pattern {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pattern({:?})", self.as_str())
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What the wildcards of a pattern stand for in one URL, percent-encoded as in the URL.
#[derive(Clone, Debug)]
pub struct Captures<'u> {
    pattern: Pattern,
    path: &'u str,
}

impl<'u> Captures<'u> {
    /// The segment at the wildcard of this name.
    pub fn get(&self, name: &str) -> Option<&'u str> {
        if name == UNNAMED {
            return None;
        }
        let index = self.pattern.wildcards().position(|known| known == name)?;
        self.value(index)
    }

    /// The segment at the nth unnamed wildcard, counted from zero.
    pub fn unnamed(&self, nth: usize) -> Option<&'u str> {
        let mut unnamed = self.pattern.wildcards().enumerate().filter(|(_, name)| *name == UNNAMED);
        let (index, _) = unnamed.nth(nth)?;
        self.value(index)
    }

    /// The segment at a wildcard, named or not, counted from zero.
    pub(crate) fn value(&self, index: usize) -> Option<&'u str> {
        let place = *self.pattern.0.wildcards.get(index)?;
        path_segments(self.path).nth(usize::from(place))
    }
}

/// Why a text is not an endpoint pattern. Each message repeats the start of the text and says what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error("pattern {pattern:?} has {bytes} bytes, at most {PATTERN_BYTES_MAX} are allowed")]
    TooLong { pattern: String, bytes: usize },
    #[error("pattern {pattern:?} has {segments} path segments, at most {PATTERN_SEGMENTS_MAX} are allowed")]
    TooManySegments { pattern: String, segments: usize },
    #[error("pattern {pattern:?} has a query, which is ignored when documents are matched: leave it out")]
    Query { pattern: String },
    #[error("pattern {pattern:?} has a wildcard in its host: only whole path segments may be {{name}} or {{*}}")]
    WildcardInHost { pattern: String },
    #[error("segment {segment:?} of a pattern must be all wildcard, {{name}} or {{*}}, or have no braces")]
    PartialWildcard { segment: String },
    #[error("wildcard name {name:?} must be a letter or '_', followed by letters, digits, '_' and '-'")]
    Name { name: String },
    #[error("wildcard name {name:?} occurs twice in pattern {pattern:?}: names must differ, only {{*}} may repeat")]
    RepeatedName { name: String, pattern: String },
}

/// The segments of a path that starts with a slash: those between its slashes, the last one possibly empty.
pub(crate) fn path_segments(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').skip(1)
}

fn check_length(text: &str, bytes: usize) -> Result<(), PatternError> {
    if bytes > PATTERN_BYTES_MAX {
        return Err(PatternError::TooLong { pattern: excerpt(text), bytes });
    }
    Ok(())
}

/// The clearer error for a pattern whose host could not be read because it has a wildcard.
fn wildcard_in_host(text: &str) -> Option<PatternError> {
    let (_, rest) = text.split_once("://")?;
    let authority = rest.split('/').next()?;
    authority.contains(['{', '}', '*']).then(|| PatternError::WildcardInHost { pattern: excerpt(text) })
}

fn segments_of(text: &str, origin_bytes: usize) -> Result<Box<[Span]>, PatternError> {
    let path = &text[origin_bytes..];
    let count = path_segments(path).count();
    if count > PATTERN_SEGMENTS_MAX {
        return Err(PatternError::TooManySegments { pattern: excerpt(text), segments: count });
    }
    let mut spans = Vec::with_capacity(count);
    let mut start = origin_bytes + 1;
    for segment in path_segments(path) {
        let is_wildcard = check_segment(text, segment)?;
        let end = start + segment.len();
        spans.push(Span { start: offset(start), end: offset(end), is_wildcard });
        start = end + 1;
    }
    Ok(spans.into())
}

/// Whether the segment is a wildcard; an error if it is neither that nor a valid literal.
fn check_segment(text: &str, segment: &str) -> Result<bool, PatternError> {
    if !segment.contains(['{', '}']) {
        check_path_and_query(text, segment)?;
        return Ok(false);
    }
    let name = segment
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'))
        .filter(|name| !name.contains(['{', '}']))
        .ok_or_else(|| PatternError::PartialWildcard { segment: excerpt(segment) })?;
    if name != UNNAMED && !is_name(name) {
        return Err(PatternError::Name { name: excerpt(name) });
    }
    Ok(true)
}

fn wildcards_of(text: &str, segments: &[Span]) -> Result<Box<[u8]>, PatternError> {
    let mut places: Vec<u8> = Vec::new();
    for (place, span) in segments.iter().enumerate().filter(|(_, span)| span.is_wildcard) {
        let name = name_of(span.of(text));
        let is_repeated = places.iter().any(|known| name_of(segments[usize::from(*known)].of(text)) == name);
        if is_repeated && name != UNNAMED {
            return Err(PatternError::RepeatedName { name: excerpt(name), pattern: excerpt(text) });
        }
        places.push(u8::try_from(place).expect("a pattern has at most 64 segments"));
    }
    Ok(places.into())
}

/// The name inside the braces of a wildcard segment.
fn name_of(segment: &str) -> &str {
    segment.trim_start_matches('{').trim_end_matches('}')
}

fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

fn offset(bytes: usize) -> u16 {
    u16::try_from(bytes).expect("a pattern is shorter than 64 KiB")
}

#[cfg(test)]
pub(crate) mod tests;
