use proptest::prelude::*;

use super::*;

fn pattern(text: &str) -> Pattern {
    Pattern::parse(text).unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

fn url(text: &str) -> DocumentUrl {
    DocumentUrl::parse(text).unwrap()
}

fn refuse(text: &str, part_of_message: &str) {
    let error = Pattern::parse(text).expect_err(text).to_string();
    assert!(error.contains(part_of_message), "{text:?}: {error}");
}

#[test]
fn a_pattern_is_kept_in_normal_form() {
    let check = |text, normal| assert_eq!(pattern(text).as_str(), normal);
    check("http://api.company.com/users/{id}", "http://api.company.com/users/{id}");
    check("HTTPS://API:443/Users/{Id}/", "https://api/Users/{Id}/");
    check("http://api", "http://api/");
    check("http://[::1]:8080/{*}/{*}", "http://[::1]:8080/{*}/{*}");
}

#[test]
fn a_wildcard_takes_exactly_one_segment_that_is_not_empty() {
    let check = |text, document, expected| {
        assert_eq!(pattern(text).matches(&url(document)), expected, "{text} {document}");
    };
    check("http://api/users/{id}", "http://api/users/1", true);
    check("http://api/users/{id}", "http://api/users/1?v=2", true);
    check("http://api/users/{id}", "http://API:80/users/a%2Fb", true);
    check("http://api/users/{id}", "http://api/users/", false);
    check("http://api/users/{id}", "http://api/users", false);
    check("http://api/users/{id}", "http://api/users/1/", false);
    check("http://api/users/{id}", "http://api/users/1/orders", false);
    check("http://api/users/{id}", "https://api/users/1", false);
    check("http://api/users/{id}", "http://api:8080/users/1", false);
    check("http://api/users/{id}", "http://api/Users/1", false);
    check("http://api/{*}/x/{*}", "http://api/a/x/b", true);
    check("http://api", "http://api/", true);
    check("http://api/a//b", "http://api/a//b", true);
    check("http://api/a/{*}/b", "http://api/a//b", false);
}

#[test]
fn captures_are_found_by_name_and_by_place() {
    let pattern = pattern("http://api/{*}/users/{id}/{*}/{Other-1}");
    assert_eq!(pattern.wildcards().collect::<Vec<_>>(), ["*", "id", "*", "Other-1"]);
    let url = url("http://api/a/users/4%202/b/c?id=9");
    let captures = pattern.capture(&url).unwrap();
    assert_eq!(captures.get("id"), Some("4%202"));
    assert_eq!(captures.get("Other-1"), Some("c"));
    assert_eq!(captures.unnamed(0), Some("a"));
    assert_eq!(captures.unnamed(1), Some("b"));
    assert_eq!(captures.unnamed(2), None);
    assert_eq!(captures.get("*"), None);
    assert_eq!(captures.get("unknown"), None);
    assert!(pattern.capture(&super::DocumentUrl::parse("http://api/a").unwrap()).is_none());
}

#[test]
fn patterns_overlap_when_one_url_fits_both() {
    let check = |one, other, expected| {
        assert_eq!(pattern(one).overlaps(&pattern(other)), expected, "{one} {other}");
        assert_eq!(pattern(other).overlaps(&pattern(one)), expected, "{other} {one}");
    };
    check("http://api/users/{id}", "http://api/users/{name}", true);
    check("http://api/users/{id}", "http://api/users/me", true);
    check("http://api/users/{id}", "http://api/{*}/me", true);
    check("http://api/users/{id}", "http://api/orders/{id}", false);
    check("http://api/users/{id}", "http://api/users/{id}/x", false);
    check("http://api/users/{id}", "http://api/users/", false);
    check("http://api/users/{id}", "https://api/users/{id}", false);
    check("http://api/a/{x}/c/{y}", "http://api/{x}/b/{y}/d", true);
    check("http://api/a/{x}/c", "http://api/{x}/b/d", false);
}

#[test]
fn what_is_not_a_pattern_is_refused_with_what_is_allowed() {
    refuse("api/users/{id}", "must start with http:// or https://");
    refuse("http://{tenant}.api/users", "only whole path segments");
    refuse("http://api:{port}/users", "only whole path segments");
    refuse("http://*/users", "only whole path segments");
    refuse("http://api/users/{id}.json", "must be all wildcard");
    refuse("http://api/users/id}", "must be all wildcard");
    refuse("http://api/users/{a}{b}", "must be all wildcard");
    refuse("http://api/users/{{a}}", "must be all wildcard");
    refuse("http://api/users/{}", "wildcard name \"\"");
    refuse("http://api/users/{1st}", "must be a letter or '_'");
    refuse("http://api/users/{a b}", "wildcard name \"a b\"");
    refuse("http://api/{**}", "wildcard name");
    refuse("http://api/{id}/{id}", "occurs twice");
    refuse("http://api/users?id={id}", "has a query");
    refuse("http://api/users#x", "fragment");
    refuse("http://api#/{id}", "fragment");
    refuse("http://api/a b/{id}", "' '");
    refuse("http://api/../{id}", "'..'");
    refuse(&format!("http://api/{}", "x".repeat(PATTERN_BYTES_MAX)), "at most 2048");
    refuse(&format!("http://api{}", "/x".repeat(PATTERN_SEGMENTS_MAX + 1)), "65 path segments, at most 64");
    pattern(&format!("http://api{}", "/{*}".repeat(PATTERN_SEGMENTS_MAX)));
}

/// Patterns over so few literals that many of them meet.
pub(crate) fn any_pattern() -> impl Strategy<Value = Pattern> {
    let segment = prop_oneof![3 => "[ab]", 1 => Just(String::new()), 3 => Just("{*}".to_owned())];
    (prop_oneof!["http://a", "https://a", "http://a:8080"], prop::collection::vec(segment, 1..5))
        .prop_map(|(origin, segments)| pattern(&format!("{origin}/{}", segments.join("/"))))
}

/// URLs that such patterns match often.
pub(crate) fn any_url() -> impl Strategy<Value = DocumentUrl> {
    (prop_oneof!["http://a", "https://a", "http://a:8080"], prop::collection::vec("[abc]?", 1..5), "(\\?x=1)?")
        .prop_map(|(origin, segments, query)| url(&format!("{origin}/{}{query}", segments.join("/"))))
}

/// A URL that matches both, made from the literals of either.
fn common_url(one: &Pattern, other: &Pattern) -> Option<DocumentUrl> {
    let mut text = one.origin().to_owned();
    for (one, other) in one.segments().zip(other.segments()) {
        text.push('/');
        text.push_str(match (one, other) {
            (Segment::Literal(literal), _) | (_, Segment::Literal(literal)) => literal,
            (Segment::Wildcard, Segment::Wildcard) => "any",
        });
    }
    let url = url(&text);
    (one.matches(&url) && other.matches(&url)).then_some(url)
}

proptest! {
    #[test]
    fn overlap_is_the_existence_of_a_common_url(one in any_pattern(), other in any_pattern()) {
        prop_assert_eq!(one.overlaps(&other), common_url(&one, &other).is_some());
    }

    #[test]
    fn what_matches_two_patterns_makes_them_overlap(one in any_pattern(), other in any_pattern(), url in any_url()) {
        prop_assert!(!(one.matches(&url) && other.matches(&url)) || one.overlaps(&other));
    }

    #[test]
    fn a_pattern_reads_its_own_text_again(
        text in "https?://[a-zA-Z.]{1,9}(:[0-9]{1,4})?(/(\\{[a-z*]{0,2}\\}|[a-z.%{}]{0,3})){0,5}",
    ) {
        if let Ok(pattern) = Pattern::parse(&text) {
            let again = Pattern::parse(pattern.as_str());
            prop_assert_eq!(again.as_ref(), Ok(&pattern));
            prop_assert!(pattern.overlaps(&pattern));
        }
    }

    #[test]
    fn parsing_never_panics(text in "(http://)?\\PC{0,40}") {
        let _ = Pattern::parse(&text);
    }
}
