//! A format on the first line and values on the others: reading never panics, and what is shown is read back.
#![no_main]

use flare_core::revision::{JsonScalar, Revision, RevisionFormat};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let mut lines = text.lines();
    let format = match RevisionFormat::parse(lines.next().unwrap_or_default()) {
        Ok(format) => format,
        Err(error) => return assert!(error.to_string().len() < 4096, "a message is short: {error}"),
    };
    let name = format.as_str().expect("only integers have no format");
    assert_eq!(RevisionFormat::parse(name).as_ref(), Ok(&format));
    for value in lines {
        match format.read(&JsonScalar::Text(value)) {
            Ok(revision) => check(&format, revision),
            Err(error) => assert!(error.to_string().len() < 4096, "a message is short: {error}"),
        }
    }
});

fn check(format: &RevisionFormat, revision: Revision) {
    assert_eq!(Revision::from_bytes(revision.to_bytes()), revision);
    let shown = format.render(revision);
    let time: String = serde_json::from_str(&shown).expect("a time is shown as a JSON string");
    assert_eq!(RevisionFormat::Rfc3339.read(&JsonScalar::Text(&time)), Ok(revision), "{shown} is read back");
}
