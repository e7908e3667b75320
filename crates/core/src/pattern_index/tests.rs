use proptest::prelude::*;

use super::*;
use crate::pattern::tests::{any_pattern, any_url};

fn pattern(text: &str) -> Pattern {
    Pattern::parse(text).unwrap()
}

fn url(text: &str) -> DocumentUrl {
    DocumentUrl::parse(text).unwrap()
}

fn index(patterns: &[&str]) -> PatternIndex<String> {
    let mut index = PatternIndex::new();
    for text in patterns {
        index.insert(&pattern(text), (*text).to_owned()).unwrap_or_else(|error| panic!("{text}: {error}"));
    }
    index
}

#[test]
fn a_url_finds_its_pattern() {
    let index = index(&[
        "http://api/users/{id}",
        "http://api/users/{id}/orders",
        "http://api/orders/{id}",
        "http://api/{*}/x/y/z",
        "https://api/users/{id}",
        "http://api/",
    ]);
    let check = |text, expected: Option<&str>| {
        assert_eq!(index.find(&url(text)).map(String::as_str), expected, "{text}");
    };
    assert_eq!(index.len(), 6);
    check("http://api/users/1?v=1", Some("http://api/users/{id}"));
    check("http://api/users/1/orders", Some("http://api/users/{id}/orders"));
    check("http://api/users/1/other", None);
    check("http://api/users/x/y/z", Some("http://api/{*}/x/y/z"));
    check("https://api/users/1", Some("https://api/users/{id}"));
    check("http://api", Some("http://api/"));
    check("http://other/users/1", None);
    check("http://api/users/", None);
    check(&format!("http://api{}", "/users".repeat(200)), None);
}

#[test]
fn a_literal_that_leads_nowhere_does_not_hide_a_wildcard() {
    let index = index(&["http://api/users/a/b", "http://api/users/{*}/c", "http://api/{*}/a/d"]);
    let check = |text, expected: Option<&str>| {
        assert_eq!(index.find(&url(text)).map(String::as_str), expected, "{text}");
    };
    check("http://api/users/a/c", Some("http://api/users/{*}/c"));
    check("http://api/users/a/d", Some("http://api/{*}/a/d"));
    check("http://api/users/a/e", None);
}

#[test]
fn an_overlap_names_the_pattern_that_is_there() {
    let mut index = index(&["http://api/users/{id}"]);
    let error = index.insert(&pattern("http://api/{*}/me"), String::new()).unwrap_err();
    assert_eq!(error.existing, "http://api/users/{id}");
    assert_eq!(index.len(), 1);
    assert!(index.insert(&pattern("http://api/users/{name}"), String::new()).is_err());
    assert!(index.insert(&pattern("http://api/users/"), String::new()).is_ok());
}

#[test]
fn only_the_very_pattern_is_removed_and_its_place_is_free_again() {
    let mut index = index(&["http://api/users/{id}", "http://api/users/{id}/x"]);
    assert_eq!(index.remove(&pattern("http://api/users/{name}")), None);
    assert_eq!(index.remove(&pattern("http://other/users/{id}")), None);
    assert_eq!(index.remove(&pattern("http://api/users/{id}")).as_deref(), Some("http://api/users/{id}"));
    assert_eq!(index.remove(&pattern("http://api/users/{id}")), None);
    assert_eq!(index.len(), 1);
    assert!(index.find(&url("http://api/users/1")).is_none());
    assert!(index.find(&url("http://api/users/1/x")).is_some());
    index.remove(&pattern("http://api/users/{id}/x"));
    assert!(index.is_empty() && index.origins.is_empty());
}

#[test]
fn a_hundred_thousand_patterns_are_told_apart() {
    let mut index = PatternIndex::new();
    for number in 0..100_000_u32 {
        index.insert(&pattern(&format!("http://api/v1/resource{number}/{{id}}")), number).unwrap();
    }
    for number in 0..100_000_u32 {
        assert_eq!(index.find(&url(&format!("http://api/v1/resource{number}/x"))), Some(&number));
    }
}

proptest! {
    #[test]
    fn the_index_agrees_with_a_scan(
        patterns in prop::collection::vec(any_pattern(), 1..30),
        urls in prop::collection::vec(any_url(), 1..30),
        removed in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
    ) {
        let mut index = PatternIndex::new();
        let mut kept: Vec<Pattern> = Vec::new();
        for pattern in &patterns {
            let overlapping = kept.iter().any(|known| known.overlaps(pattern));
            let inserted = index.insert(pattern, pattern.clone());
            prop_assert_eq!(inserted.is_err(), overlapping, "{}", pattern);
            match inserted {
                Ok(()) => kept.push(pattern.clone()),
                Err(Overlap { existing }) => {
                    let existing = Pattern::parse(&existing).unwrap();
                    prop_assert!(kept.contains(&existing) && existing.overlaps(pattern));
                }
            }
        }
        for which in removed {
            let pattern = which.get(&patterns);
            let position = kept.iter().position(|known| known == pattern);
            prop_assert_eq!(index.remove(pattern), position.map(|at| kept.swap_remove(at)));
        }
        prop_assert_eq!(index.len(), kept.len());
        for url in &urls {
            prop_assert_eq!(index.find(url), kept.iter().find(|pattern| pattern.matches(url)), "{}", url);
        }
        for pattern in &kept {
            prop_assert_eq!(index.remove(pattern), Some(pattern.clone()));
        }
        prop_assert!(index.origins.is_empty());
    }
}
