//! A filter on the first line and a document behind it: any text is an expression or is refused with a place, and an
//! evaluation ends, with the same answer each time.
#![no_main]

use flare_core::{
    document::Action,
    filter::{COST_MAX, Filter, FilterError, Subject},
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let Ok(text) = std::str::from_utf8(&bytes[..end]) else { return };
    let filter = match Filter::parse(text) {
        Ok(filter) => filter,
        Err(error) => {
            assert!(error.to_string().len() < 1000, "a message is short: {error}");
            if let FilterError::Wrong { line, column, .. } = error {
                assert!(line >= 1 && column >= 1);
            }
            return;
        }
    };
    let document = bytes.get(end + 1..);
    let subject = Subject::new("http://api.test/1", Action::Update, document, document);
    let answer = filter.evaluate(&subject, COST_MAX);
    if let Err(error) = &answer {
        assert!(error.to_string().len() < 1000, "a message is short: {error}");
    }
    assert_eq!(filter.evaluate(&subject, COST_MAX), answer);
    // An answer that is found with little to spend is the answer.
    if let Ok(cheap) = filter.evaluate(&subject, 100) {
        assert_eq!(answer, Ok(cheap));
    }
});
