//! `flare version`.

use super::{flare, run};

#[test]
fn the_version_is_semantic_and_has_parts() {
    let line = run(&mut flare(&["version"])).succeeded();
    let version = line.strip_prefix("flare ").unwrap().trim_end();
    let json = run(&mut flare(&["version", "--json"])).succeeded();
    let parts: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(parts["version"], version);
    assert!(parts["rustc"].as_str().unwrap().starts_with("rustc "));

    let package = env!("CARGO_PKG_VERSION");
    match parts["sha"].as_str() {
        Some(sha) => {
            let day = parts["date"].as_str().unwrap().replace('-', "");
            assert_eq!(version, format!("{package}+{}.{sha}.{day}", parts["commits"]));
        }
        None => assert_eq!(version, package),
    }
    assert_eq!(run(&mut flare(&["--version"])).succeeded(), line);
}
