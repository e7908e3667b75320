//! Lines that are patterns, URLs or templates: the index agrees with a scan, and captures expand.
#![no_main]

use flare_core::{
    pattern::Pattern,
    pattern_index::{Overlap, PatternIndex},
    template::Template,
    url::DocumentUrl,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let mut index = PatternIndex::new();
    let mut kept: Vec<Pattern> = Vec::new();
    for pattern in text.lines().filter_map(|line| Pattern::parse(line).ok()) {
        let again = Pattern::parse(pattern.as_str());
        assert_eq!(again.as_ref(), Ok(&pattern), "the normal form is stable");
        assert!(pattern.overlaps(&pattern));
        let overlapping = kept.iter().any(|known| known.overlaps(&pattern));
        match index.insert(&pattern, pattern.clone()) {
            Ok(()) => {
                assert!(!overlapping);
                kept.push(pattern);
            }
            Err(Overlap { existing }) => {
                assert!(kept.iter().any(|known| known.as_str() == existing && known.overlaps(&pattern)));
            }
        }
    }
    assert_eq!(index.len(), kept.len());
    for url in text.lines().filter_map(|line| DocumentUrl::parse(line).ok()) {
        let matching = kept.iter().find(|pattern| pattern.matches(&url));
        assert_eq!(index.find(&url), matching);
        if let Some(pattern) = matching {
            check_captures(pattern, &url, text);
        }
    }
    for pattern in &kept {
        assert_eq!(index.remove(pattern).as_ref(), Some(pattern));
    }
    assert!(index.is_empty());
});

/// The pattern itself is a template of the URL's path, and every other template expands.
fn check_captures(pattern: &Pattern, url: &DocumentUrl, text: &str) {
    let captures = pattern.capture(url).expect("a pattern that matches captures");
    for name in pattern.wildcards().filter(|name| *name != "*") {
        assert!(captures.get(name).is_some_and(|value| !value.is_empty() && !value.contains('/')));
    }
    let template = Template::parse(pattern.as_str(), pattern).expect("a pattern is a template of itself");
    let whole = template.expand(&captures);
    assert_eq!(Some(&*whole), url.as_str().split('?').next());
    for template in text.lines().filter_map(|line| Template::parse(line, pattern).ok()) {
        let expanded = template.expand(&captures);
        assert!(!template.is_static() || expanded == template.expand_decoded(&captures));
    }
}
