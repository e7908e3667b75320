//! `flare config` and the configuration of `flare start`.

use super::{file, flare, run, without_folder};

#[test]
fn the_sample_passes_its_own_check() {
    let sample = run(&mut flare(&["config"])).succeeded();
    let (_folder, path) = file("flare.toml", &sample);
    let checked = run(&mut flare(&["config", "--check", &path])).succeeded();
    assert_eq!(without_folder(&checked, &path), "flare.toml: ok\n");
}

#[test]
fn a_wrong_file_is_told_with_lines_and_columns() {
    let (_folder, path) = file("my.toml", "[http]\nadr = \":8080\"\n  timeout = \"1 s\"\n[repositry]\nengine = 1\n");
    let err = run(&mut flare(&["config", "--check", &path])).failed(1);
    insta::assert_snapshot!(without_folder(&err, &path), @r#"
    error: the configuration is wrong in 3 places
      my.toml:2:1: unknown key `http.adr`; did you mean `addr`?
      my.toml:3:13: `http.timeout` has a wrong value: "1 s" is not a duration (the unit after 1 is missing); write whole numbers with a unit (ms, s, m, h, d), such as "500ms", "1s" or "72h"
      my.toml:4:2: unknown section `repositry`; did you mean [repository]?
    "#);
}

#[test]
fn a_missing_file_is_told() {
    let err = run(&mut flare(&["config", "--check", "/no/such.toml"])).failed(1);
    assert!(
        err.starts_with("error: cannot read the configuration file /no/such.toml\n  because: No such file"),
        "{err}"
    );
}

#[test]
fn a_surprising_file_is_warned_about() {
    let (_folder, path) = file("my.toml", "[http]\naddr = \":8080\"\n");
    let ran = run(&mut flare(&["config", "--check", &path]));
    assert_eq!(ran.code, Some(0));
    assert!(ran.err.contains("warning: ") && ran.err.contains("security.tokens is empty"), "{}", ran.err);
}

#[test]
fn start_refuses_what_is_wrong_wherever_it_was_set() {
    let (folder, path) = file("flare.toml", "[http]\nadr = 1\n");
    let err = run(flare(&["start", "--addr", "x"]).current_dir(folder.path()).env("FLARE_HTTP_TIMEOT", "1s")).failed(1);
    assert!(err.contains("flare.toml:2:1: unknown key `http.adr`"), "{err}");
    assert!(err.contains("FLARE_HTTP_TIMEOT: unknown variable; did you mean FLARE_HTTP_TIMEOUT?"), "{err}");
    assert!(err.contains("--addr: `http.addr` has a wrong value"), "{err}");

    let err = run(flare(&["start"]).env("FLARE_CONFIG", &path)).failed(1);
    assert!(err.contains("flare.toml:2:1"), "{err}");
    let err = run(flare(&["start", "--config", "other.toml"]).env("FLARE_CONFIG", &path)).failed(1);
    assert!(err.contains("cannot read the configuration file other.toml"), "{err}");
}
