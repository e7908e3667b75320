use proptest::prelude::*;

use super::*;

fn check(text: &str, normal: &str) {
    let url = DocumentUrl::parse(text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
    assert_eq!(url.as_str(), normal, "{text:?}");
    assert_eq!(DocumentUrl::parse(url.as_str()).as_ref(), Ok(&url), "{text:?} is not stable");
}

fn check_request(path: &str, query: Option<&str>, normal: &str) {
    let url = DocumentUrl::from_request(path, query).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    assert_eq!(url.as_str(), normal, "{path:?} {query:?}");
}

fn refuse(text: &str, part_of_message: &str) {
    let error = DocumentUrl::parse(text).expect_err(text).to_string();
    assert!(error.contains(part_of_message), "{text:?}: {error}");
}

#[test]
fn equivalent_spellings_have_one_normal_form() {
    check("http://api.company.com/users/1", "http://api.company.com/users/1");
    check("HTTP://API.Company.COM/Users/1", "http://api.company.com/Users/1");
    check("https://api", "https://api/");
    check("https://api?x=1", "https://api/?x=1");
    check("http://api:80/x", "http://api/x");
    check("http://api:443/x", "http://api:443/x");
    check("https://api:443/x", "https://api/x");
    check("https://api:/x", "https://api/x");
    check("https://api:08443/x", "https://api:8443/x");
    check("http://[::1]:80/x", "http://[::1]/x");
    check("http://[0:0:0:0:0:0:0:1]:8080/x", "http://[::1]:8080/x");
    check("http://[2001:DB8::1]/", "http://[2001:db8::1]/");
    check("http://under_score.local./x", "http://under_score.local./x");
}

#[test]
fn path_and_query_stay_as_they_were_written() {
    check("http://api/a%2fB%2Fc", "http://api/a%2fB%2Fc");
    check("http://api//a//", "http://api//a//");
    check("http://api/x?", "http://api/x?");
    check("http://api/x?y=1&z=a/b?c", "http://api/x?y=1&z=a/b?c");
    check("http://api/x?filter[name]=a|b", "http://api/x?filter[name]=a|b");
    check("http://api/x?up=../..", "http://api/x?up=../..");
    check("http://api/a:b@c;d=e/...", "http://api/a:b@c;d=e/...");
}

#[test]
fn the_parts_are_found_again() {
    let url = DocumentUrl::parse("https://api.company.com:8443/users/1?v=2").unwrap();
    assert_eq!(url.scheme(), "https");
    assert_eq!(url.authority(), "api.company.com:8443");
    assert_eq!(url.origin(), "https://api.company.com:8443");
    assert_eq!(url.path(), "/users/1");
    assert_eq!(url.query(), Some("v=2"));
    let url = DocumentUrl::parse("http://[::1]").unwrap();
    assert_eq!((url.scheme(), url.authority(), url.path(), url.query()), ("http", "[::1]", "/", None));
}

#[test]
fn what_cannot_be_a_name_is_refused_with_what_is_allowed() {
    refuse("", "must start with http:// or https://");
    refuse("ftp://api/x", "must start with http:// or https://");
    refuse("http:/api/x", "must start with http:// or https://");
    refuse("/users/1", "must start with http:// or https://");
    refuse("httpss://api/", "must start with");
    refuse("hé", "must start with");
    refuse("http://", "must have a host");
    refuse("http:///x", "must have a host");
    refuse("http://:80/x", "must have a host");
    refuse("http://a..b/x", "must have a host");
    refuse("http://./x", "must have a host");
    refuse("http://a b/x", "must have a host");
    refuse("http://ação/x", "must have a host");
    refuse("http://a\\b/x", "must have a host");
    refuse("http://[::1/x", "must have a host");
    refuse("http://[fe80::1%25eth0]/x", "must have a host");
    refuse("http://[::1]x:80/", "must have a host");
    refuse("http://user:secret@api/x", "\"api\" has user information");
    refuse("http://api:0/x", "port between 1 and 65535");
    refuse("http://api:65536/x", "port between 1 and 65535");
    refuse("http://api:+80/x", "port between 1 and 65535");
    refuse("http://api:80:80/x", "port between 1 and 65535");
    refuse("http://api/x#top", "fragment");
    refuse("http://api#top", "fragment");
    refuse("http://api/a b", "' '");
    refuse("http://api/a\nb", "'\\n'");
    refuse("http://api/ação", "'ç'");
    refuse("http://api/{id}", "'{'");
    refuse("http://api/x?a=\"b\"", "percent-encoded");
    refuse("http://api/%", "two hexadecimal digits");
    refuse("http://api/%4", "two hexadecimal digits");
    refuse("http://api/x?y=%zz", "two hexadecimal digits");
    refuse("http://api/a/../b", "'..'");
    refuse("http://api/.", "'..'");
    refuse("http://api/a/%2E%2e", "'..'");
    refuse("http://api/.%2e?x", "'..'");
}

#[test]
fn the_length_is_bounded_and_messages_are_short() {
    let path = "x".repeat(URL_BYTES_MAX - "http://api/".len());
    check(&format!("http://api/{path}"), &format!("http://api/{path}"));
    let error = DocumentUrl::parse(&format!("http://api/{path}x")).unwrap_err().to_string();
    assert!(error.contains("4097 bytes, at most 4096"), "{error}");
    assert!(error.len() < 200, "{error}");
    let host_only = format!("http://{}", "h".repeat(URL_BYTES_MAX - "http://".len()));
    refuse(&host_only, "4097 bytes");
    let error = DocumentUrl::from_request(&format!("http%3A{}", "%41".repeat(URL_BYTES_MAX)), None).unwrap_err();
    assert!(matches!(error, UrlError::TooLong { .. }), "{error}");
}

#[test]
fn a_request_names_its_document_raw_merged_or_encoded() {
    check_request("http://api/x", None, "http://api/x");
    check_request("http:/api/x", None, "http://api/x");
    check_request("HTTPS:/API/x", Some("y=1"), "https://api/x?y=1");
    check_request("http://api/x", Some("y=1"), "http://api/x?y=1");
    check_request("http://api/x", Some(""), "http://api/x?");
    check_request("http://api", Some("y=1"), "http://api/?y=1");
    check_request("http%3A%2F%2Fapi%2Fx%3Fy%3D1", None, "http://api/x?y=1");
    check_request("http%3a%2f%2fapi%2fx", Some("y=1"), "http://api/x?y=1");
    check_request("http%3A%2F%2Fapi%2Fx%3Fy%3D1", Some("z=2"), "http://api/x?y=1&z=2");
    check_request("http:%2F%2Fapi%2Fx", None, "http://api/x");
    check_request("http%3A//api/x", None, "http://api/x");
    check_request("http%3A/api/x", None, "http://api/x");
    check_request("http%3A%2F%2Fapi%2Fa%2520b", None, "http://api/a%20b");
    check_request("http://api/a%2Fb", None, "http://api/a%2Fb");
}

#[test]
fn a_request_that_names_no_document_is_refused() {
    for path in
        ["", "users/1", "http", "http:", "http:/", "http:///api/x", "http%3A%2F%2Fapi%2", "http%3A%2F%2Fapi%23x"]
    {
        assert!(DocumentUrl::from_request(path, None).is_err(), "{path:?}");
    }
    let error = DocumentUrl::from_request("http%3A%2F%2Fapi%2F%FF", None).unwrap_err();
    assert!(matches!(error, UrlError::Encoding { .. }), "{error}");
}

fn percent_encoded(url: &str) -> String {
    url.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

proptest! {
    #[test]
    fn parsing_never_panics_and_is_stable(text in "(http|HTTPS)?(://|:/|%3A%2F%2F)?\\PC{0,40}") {
        if let Ok(url) = DocumentUrl::parse(&text) {
            prop_assert_eq!(DocumentUrl::parse(url.as_str()), Ok(url.clone()));
            let query = url.query().map_or(String::new(), |query| format!("?{query}"));
            let parts = format!("{}://{}{}{query}", url.scheme(), url.authority(), url.path());
            prop_assert_eq!(parts, url.as_str());
        }
        let _ = DocumentUrl::from_request(&text, Some("a=b"));
    }

    #[test]
    fn raw_and_encoded_requests_agree(
        text in "https?://[a-z]{1,8}(:[0-9]{1,4})?(/[a-zA-Z0-9%._-]{0,6}){0,4}",
        query in proptest::option::of("[a-z=&]{0,10}"),
    ) {
        let whole = match &query {
            Some(query) => format!("{text}?{query}"),
            None => text.clone(),
        };
        let parsed = DocumentUrl::parse(&whole);
        let encoded = format!("http{}", percent_encoded(&whole["http".len()..]));
        prop_assert_eq!(DocumentUrl::from_request(&text, query.as_deref()).ok(), parsed.clone().ok());
        prop_assert_eq!(DocumentUrl::from_request(&encoded, None).ok(), parsed.ok());
    }
}
