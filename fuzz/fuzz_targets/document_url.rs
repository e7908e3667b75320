//! The path of `/documents/{url}`: whatever is accepted is in normal form, and all ways to write it agree.
#![no_main]

use flare_core::url::{DocumentUrl, URL_BYTES_MAX};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let (path, query) = match text.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (text, None),
    };
    if let Ok(url) = DocumentUrl::from_request(path, query) {
        check(&url);
    }
    match DocumentUrl::parse(text) {
        Ok(url) => check(&url),
        Err(error) => assert!(error.to_string().len() < 1024, "a message is short: {error}"),
    }
});

fn check(url: &DocumentUrl) {
    assert!(url.as_str().len() <= URL_BYTES_MAX);
    assert_eq!(DocumentUrl::parse(url.as_str()).as_ref(), Ok(url), "the normal form is stable");

    let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
    let whole = format!("{}://{}{}{query}", url.scheme(), url.authority(), url.path());
    assert_eq!(whole, url.as_str(), "the parts make the whole");

    let path = &url.as_str()[..url.as_str().len() - query.len()];
    assert_eq!(DocumentUrl::from_request(path, url.query()).as_ref(), Ok(url), "a raw request names it");
    assert_eq!(DocumentUrl::from_request(&merged(path), url.query()).as_ref(), Ok(url), "so does a merged one");
    assert_eq!(DocumentUrl::from_request(&encoded(url), None).as_ref(), Ok(url), "so does an encoded one");
}

fn merged(path: &str) -> String {
    path.replacen("://", ":/", 1)
}

fn encoded(url: &DocumentUrl) -> String {
    let after_scheme = &url.as_str()[url.scheme().len()..];
    let escapes: String = after_scheme.bytes().map(|byte| format!("%{byte:02x}")).collect();
    format!("{}{escapes}", url.scheme())
}
