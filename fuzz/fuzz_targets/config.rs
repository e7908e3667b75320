//! Any text as a configuration file: it is read or refused with problems that say where, and never panics.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Err(problems) = flare::config::parse(text) {
        assert!(!problems.to_string().trim().is_empty(), "a refusal says why");
    }
});
