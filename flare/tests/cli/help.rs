//! Help and usage errors.

use super::{flare, run};

fn help(arguments: &[&str]) -> String {
    run(flare(arguments).arg("--help")).succeeded()
}

#[test]
fn help_is_complete() {
    insta::assert_snapshot!("flare", help(&[]));
    insta::assert_snapshot!("start", help(&["start"]));
    insta::assert_snapshot!("config", help(&["config"]));
    insta::assert_snapshot!("listen", help(&["listen"]));
    insta::assert_snapshot!("status", help(&["status"]));
    insta::assert_snapshot!("put", help(&["put"]));
    insta::assert_snapshot!("version", help(&["version"]));
}

#[test]
fn help_of_the_client_is_complete() {
    insta::assert_snapshot!("resources", help(&["resources"]));
    insta::assert_snapshot!("resources-create", help(&["resources", "create"]));
    insta::assert_snapshot!("subscriptions", help(&["subscriptions"]));
    insta::assert_snapshot!("subscriptions-create", help(&["subscriptions", "create"]));
    insta::assert_snapshot!("token", help(&["token"]));
    insta::assert_snapshot!("token-create", help(&["token", "create"]));
    insta::assert_snapshot!("documents", help(&["documents"]));
    insta::assert_snapshot!("documents-load", help(&["documents", "load"]));
}

#[test]
#[cfg(feature = "dump")]
fn help_of_the_copier_is_complete() {
    insta::assert_snapshot!("dump", help(&["dump"]));
    insta::assert_snapshot!("dump-run", help(&["dump", "run"]));
    insta::assert_snapshot!("dump-retry", help(&["dump", "retry"]));
}

#[test]
fn wrong_usage_exits_with_2() {
    let check = |arguments: &[&str], expected: &str| {
        let err = run(&mut flare(arguments)).failed(2);
        assert!(err.contains(expected), "{err}");
    };
    check(&[], "Usage: flare");
    check(&["sart"], "'start'");
    check(&["status", "--url", "here"], "such as http://127.0.0.1:8080");
    check(&["listen", "9000"], "the port is missing");
    check(&["listen", "--status", "99"], "a status from 200 to 599");
    check(&["listen", "--secret", "x"], "`whsec_` and base64");
    check(&["listen", "--delay", "2"], "the unit after 2 is missing");
    check(&["resources", "create", "http://a/{id}"], "--field");
    check(&["token", "create", "--name", "x", "--scope", "root"], "[possible values: read, write, admin]");
    check(&["documents", "load", "x", "--parallel", "0"], "0 is not in 1..=256");
}
