//! A text with placeholders for the wildcards of a resource's pattern: the endpoint and the data of a subscription.
//!
//! `{id}` takes the segment at the wildcard `{id}`; the nth `{*}` takes the segment at the nth `{*}` of the pattern;
//! `{{` and `}}` are literal braces. All of this is checked when the subscription is created, so that expansion
//! cannot fail. A value goes in as it stands in the document's URL, which suits another URL, or decoded, which suits
//! JSON. What a whole template must look like (a URL, a header) is left to its owner.

use std::{borrow::Cow, fmt};

use crate::{
    pattern::{Captures, Pattern, UNNAMED},
    url::{excerpt, percent_decoded},
};

/// The longest template.
pub const TEMPLATE_BYTES_MAX: usize = 16 * 1024;

/// A valid template of one pattern. Two templates are equal when they were written alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: Box<str>,
    parts: Box<[Part]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(Box<str>),
    /// The place of a wildcard among all wildcards of the pattern.
    Wildcard(usize),
}

impl Template {
    /// Reads a template whose placeholders are wildcards of `pattern`.
    pub fn parse(text: &str, pattern: &Pattern) -> Result<Self, TemplateError> {
        if text.len() > TEMPLATE_BYTES_MAX {
            return Err(TemplateError::TooLong { template: excerpt(text), bytes: text.len() });
        }
        let mut parser = Parser { template: text, pattern, unnamed: 0, literal: String::new(), parts: Vec::new() };
        parser.run()?;
        Ok(Self { text: text.into(), parts: parser.parts.into() })
    }

    /// The template as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it has no placeholder, so that it expands to the same text for every document.
    pub fn is_static(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, Part::Literal(_)))
    }

    /// The text with the captured segments as they stand in the URL, percent-encoded. In a query string what would end
    /// a value there is encoded too, so that a document's name cannot add parameters.
    ///
    /// The captures must be those of the pattern that the template was parsed with; a placeholder that other captures
    /// lack becomes nothing.
    pub fn expand(&self, captures: &Captures<'_>) -> Cow<'_, str> {
        self.expand_with(captures, push_encoded)
    }

    /// The text with the captured segments percent-decoded. Bytes that are not UTF-8 stay escaped.
    ///
    /// The captures are those of [`Template::expand`].
    pub fn expand_decoded(&self, captures: &Captures<'_>) -> Cow<'_, str> {
        self.expand_with(captures, push_decoded)
    }

    fn expand_with(&self, captures: &Captures<'_>, push: impl Fn(&str, &mut String)) -> Cow<'_, str> {
        match &*self.parts {
            [] => return Cow::Borrowed(""),
            [Part::Literal(literal)] => return Cow::Borrowed(literal),
            _ => {}
        }
        let mut out = String::with_capacity(self.text.len() * 2);
        for part in &self.parts {
            match part {
                Part::Literal(literal) => out.push_str(literal),
                Part::Wildcard(index) => push(captures.value(*index).unwrap_or_default(), &mut out),
            }
        }
        Cow::Owned(out)
    }
}

fn push_encoded(value: &str, out: &mut String) {
    if !out.contains('?') {
        return out.push_str(value);
    }
    for character in value.chars() {
        match character {
            '&' => out.push_str("%26"),
            '=' => out.push_str("%3D"),
            '+' => out.push_str("%2B"),
            ';' => out.push_str("%3B"),
            other => out.push(other),
        }
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Why a text is not a template of its pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error("template {template:?} has {bytes} bytes, at most {TEMPLATE_BYTES_MAX} are allowed")]
    TooLong { template: String, bytes: usize },
    #[error("template {template:?} has the placeholder {{{name}}}, but the resource's pattern has {known}")]
    Unknown { template: String, name: String, known: String },
    #[error("template {template:?} has a brace without its partner; a literal brace is written {{{{ or }}}}")]
    Brace { template: String },
}

struct Parser<'t> {
    template: &'t str,
    pattern: &'t Pattern,
    /// How many `{*}` have been seen.
    unnamed: usize,
    /// The literal since the last placeholder.
    literal: String,
    parts: Vec<Part>,
}

impl Parser<'_> {
    fn run(&mut self) -> Result<(), TemplateError> {
        let mut rest = self.template;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, braces) = rest.split_at(at);
            self.literal.push_str(before);
            if let Some(after) = braces.strip_prefix("{{") {
                self.literal.push('{');
                rest = after;
            } else if let Some(after) = braces.strip_prefix("}}") {
                self.literal.push('}');
                rest = after;
            } else {
                let placeholder = braces.strip_prefix('{').and_then(|inside| inside.split_once('}'));
                let (name, after) =
                    placeholder.ok_or_else(|| TemplateError::Brace { template: excerpt(self.template) })?;
                self.placeholder(name)?;
                rest = after;
            }
        }
        self.literal.push_str(rest);
        self.end_literal();
        Ok(())
    }

    fn placeholder(&mut self, name: &str) -> Result<(), TemplateError> {
        let nth = if name == UNNAMED { self.unnamed } else { 0 };
        let mut places = self.pattern.wildcards().enumerate().filter(|(_, known)| *known == name);
        let Some((index, _)) = places.nth(nth) else {
            let known = known_placeholders(self.pattern);
            return Err(TemplateError::Unknown { template: excerpt(self.template), name: excerpt(name), known });
        };
        self.unnamed += usize::from(name == UNNAMED);
        self.end_literal();
        self.parts.push(Part::Wildcard(index));
        Ok(())
    }

    fn end_literal(&mut self) {
        if !self.literal.is_empty() {
            self.parts.push(Part::Literal(std::mem::take(&mut self.literal).into()));
        }
    }
}

fn known_placeholders(pattern: &Pattern) -> String {
    let names: Vec<_> = pattern.wildcards().map(|name| format!("{{{name}}}")).collect();
    if names.is_empty() { "no wildcards".to_owned() } else { format!("only {}", names.join(", ")) }
}

fn push_decoded(value: &str, out: &mut String) {
    let Some(bytes) = percent_decoded(value) else { return out.push_str(value) };
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        for byte in chunk.invalid() {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::url::DocumentUrl;

    fn pattern() -> Pattern {
        Pattern::parse("http://api/{*}/users/{id}/{*}").unwrap()
    }

    fn expand(text: &str, url: &str, expand: impl Fn(&Template, &Captures<'_>) -> String) -> String {
        let url = DocumentUrl::parse(url).unwrap();
        let template = Template::parse(text, &pattern()).unwrap_or_else(|error| panic!("{text:?}: {error}"));
        assert_eq!(template.as_str(), text);
        expand(&template, &pattern().capture(&url).unwrap())
    }

    #[test]
    fn a_segment_in_a_query_string_cannot_add_parameters() {
        let pattern = Pattern::parse("http://api/users/{id}").unwrap();
        let template = Template::parse("http://client/{id}?user={id}&x=1", &pattern).unwrap();
        let url = crate::url::DocumentUrl::parse("http://api/users/a&b=c+d;e").unwrap();
        let expanded = template.expand(&pattern.capture(&url).unwrap()).into_owned();
        assert_eq!(expanded, "http://client/a&b=c+d;e?user=a%26b%3Dc%2Bd%3Be&x=1");
    }

    #[test]
    fn placeholders_take_the_segments_as_they_stand_in_the_url() {
        let check = |text, expected| {
            let actual =
                expand(text, "http://api/a/users/4%202/c", |template, captures| template.expand(captures).into());
            assert_eq!(actual, expected, "{text}");
        };
        check("https://other/wishlist/{id}", "https://other/wishlist/4%202");
        check("{*}-{*}", "a-c");
        check("{*}-{id}-{*}-{id}", "a-4%202-c-4%202");
        check("{{id}}", "{id}");
        check("{{{id}}}", "{4%202}");
        check("}}{{", "}{");
        check("plain", "plain");
        check("", "");
    }

    #[test]
    fn decoded_values_keep_escapes_that_are_not_text() {
        let check = |id, expected| {
            let url = format!("http://api/a/users/{id}/c");
            let actual = expand("<{id}>", &url, |template, captures| template.expand_decoded(captures).into());
            assert_eq!(actual, expected, "{id}");
        };
        check("plain", "<plain>");
        check("4%202", "<4 2>");
        check("a%C3%A7%C3%A3o", "<ação>");
        check("a%ffb%C3", "<a%FFb%C3>");
        check("%25", "<%>");
    }

    #[test]
    fn a_template_without_placeholders_is_static() {
        let check = |text, expected| assert_eq!(Template::parse(text, &pattern()).unwrap().is_static(), expected);
        check("https://other/x", true);
        check("{{id}}", true);
        check("", true);
        check("{id}", false);
    }

    #[test]
    fn a_wrong_template_is_refused_with_the_known_placeholders() {
        let refuse = |text, part_of_message: &str| {
            let error = Template::parse(text, &pattern()).unwrap_err().to_string();
            assert!(error.contains(part_of_message), "{text:?}: {error}");
        };
        refuse("x/{name}", "has the placeholder {name}, but the resource's pattern has only {*}, {id}, {*}");
        refuse("{*}{*}{*}", "has the placeholder {*}");
        refuse("{}", "has the placeholder {}");
        refuse("a{id", "a literal brace is written {{ or }}");
        refuse("a}b", "brace without its partner");
        refuse(&"x".repeat(TEMPLATE_BYTES_MAX + 1), "at most 16384");
        let fixed = Pattern::parse("http://api/x").unwrap();
        let error = Template::parse("{id}", &fixed).unwrap_err().to_string();
        assert!(error.contains("has no wildcards"), "{error}");
    }

    proptest! {
        #[test]
        fn parsing_and_expanding_never_panic(text in "([{}*]|id|\\PC){0,20}", id in "([a-z]|%[0-9A-F]{2}){1,8}") {
            let url = DocumentUrl::parse(&format!("http://api/a/users/x{id}/c")).unwrap();
            if let Ok(template) = Template::parse(&text, &pattern()) {
                let captures = pattern().capture(&url).unwrap();
                let expanded = template.expand(&captures);
                prop_assert!(!template.is_static() || expanded == template.expand_decoded(&captures));
            }
        }

        #[test]
        fn escaped_text_expands_to_itself(text in "\\PC{0,40}") {
            let escaped = text.replace('{', "{{").replace('}', "}}");
            let url = DocumentUrl::parse("http://api/a/users/1/c").unwrap();
            let template = Template::parse(&escaped, &pattern()).unwrap();
            prop_assert_eq!(template.expand(&pattern().capture(&url).unwrap()), text);
        }
    }
}
