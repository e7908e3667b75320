//! `flare documents load`.

use super::server::Server;
use super::{Ran, file, flare, run, run_with_input, without_folder};

/// Loads this input over one connection at a time; returns what came of it and the bodies that were sent.
fn load(answers: &[(&str, &str)], arguments: &[&str], input: &str) -> (Ran, Vec<String>) {
    let server = Server::answering(answers);
    let mut command = flare(&["documents", "load", "-", "--parallel", "1", "--url", &server.url]);
    let ran = run_with_input(command.args(arguments), input);
    let requests = server.requests();
    for request in &requests {
        assert_eq!(request.line, "POST /documents");
        assert_eq!(request.header("content-type"), Some("application/x-ndjson"));
    }
    (ran, requests.into_iter().map(|request| request.body).collect())
}

const INPUT: &str =
    "{\"id\":\"a\",\"document\":{}}\n\n{\"id\":\"b\",\"delete\":true}\nnonsense\n{\"id\":\"c\",\"document\":{}}\n";

#[test]
fn lines_are_sent_in_batches() {
    let answers = [
        ("202 Accepted", r#"{"accepted":1,"unchanged":1,"failed":0,"errors":[]}"#),
        ("202 Accepted", r#"{"accepted":1,"unchanged":0,"failed":0,"errors":[]}"#),
    ];
    let input = INPUT.replace("nonsense\n", "");
    let (ran, bodies) = load(&answers, &["--batch", "2"], &input);
    assert_eq!(ran.succeeded(), "2 accepted, 1 unchanged, 0 failed\n");
    assert_eq!(bodies[0], "{\"id\":\"a\",\"document\":{}}\n{\"id\":\"b\",\"delete\":true}\n");
    assert_eq!(bodies[1], "{\"id\":\"c\",\"document\":{}}\n");
}

#[test]
fn lines_that_fail_are_told_with_their_numbers() {
    let answer = r#"{"accepted":1,"unchanged":0,"failed":2,"errors":[
        {"line":2,"id":"b","error":{"code":"x","title":"bad","detail":"very"}},
        {"line":3,"id":"c","error":{"code":"y","title":"worse","detail":""}}]}"#;
    let (ran, _) = load(&[("202 Accepted", answer)], &[], INPUT);
    assert_eq!(ran.code, Some(1));
    assert_eq!(ran.out, "1 accepted, 0 unchanged, 3 failed\n");
    let expected = "standard input:4: expected ident at column 2; a line is {\"id\": URL, \"document\": {…}} or {\"id\": URL, \"delete\": true}
standard input:3: b: bad: very
standard input:5: c: worse
error: 3 of the lines of standard input failed\n";
    assert_eq!(ran.err, expected);

    let (ran, _) = load(&[("202 Accepted", answer)], &["--json"], INPUT);
    let lines: Vec<serde_json::Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["line"], &lines[0]["error"]["code"]), (&4.into(), &"line.invalid".into()));
    assert_eq!((&lines[1]["line"], &lines[1]["error"]["code"]), (&3.into(), &"x".into()));
    assert_eq!(lines[3], serde_json::json!({"accepted": 1, "unchanged": 0, "failed": 3}));
}

#[test]
fn a_batch_of_which_nothing_was_taken_is_told_line_by_line() {
    let refusal = r#"{"error":{"code":"bulk.none-accepted","title":"none","detail":""},"accepted":0,"unchanged":0,"failed":3,
        "errors":[{"line":1,"id":null,"error":{"code":"x","title":"bad","detail":"very"}}]}"#;
    let accepted = r#"{"accepted":1,"unchanged":0,"failed":0,"errors":[]}"#;
    let input = "{\"id\":\"a\"}\n".repeat(4);
    let (ran, bodies) =
        load(&[("422 Unprocessable Entity", refusal), ("202 Accepted", accepted)], &["--batch", "3"], &input);
    assert_eq!((ran.code, ran.out.as_str(), bodies.len()), (Some(1), "1 accepted, 0 unchanged, 3 failed\n", 2));
    insta::assert_snapshot!(ran.err, @r"
    standard input:1: bad: very
    standard input: 2 more of the lines 1 to 3 failed; --batch 100 tells each of them
    error: 3 of the lines of standard input failed
    ");
}

#[test]
fn a_busy_server_is_asked_again() {
    let answers = [
        ("503 Service Unavailable\r\nretry-after: 0", ""),
        ("429 Too Many Requests\r\nretry-after: 0", ""),
        ("202 Accepted", r#"{"accepted":1,"unchanged":0,"failed":0,"errors":[]}"#),
    ];
    let (ran, bodies) = load(&answers, &[], "{\"id\":\"a\",\"document\":{}}");
    assert_eq!(ran.succeeded(), "1 accepted, 0 unchanged, 0 failed\n");
    assert_eq!(bodies.len(), 3);
}

#[test]
fn a_refused_request_ends_the_run() {
    let body = r#"{"error":{"code":"auth","title":"no token","detail":"send one"}}"#;
    let (ran, bodies) = load(&[("401 Unauthorized", body)], &["--batch", "1"], &INPUT.replace("nonsense\n", ""));
    assert_eq!((ran.code, bodies.len()), (Some(1), 1));
    insta::assert_snapshot!(ran.err, @r"
    error: stopped at standard input:1; run it again when this is solved: what is already there is counted as unchanged
      because: no token: send one (auth, HTTP 401)
    ");
}

#[test]
fn a_server_that_was_never_there_is_not_waited_for() {
    let (_folder, path) = file("in.ndjson", INPUT);
    let mut command = flare(&["documents", "load", &path, "--url", "http://127.0.0.1:1"]);
    let ran = run(&mut command);
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), "0 accepted, 0 unchanged, 4 failed\n"));
    let err = without_folder(&ran.err, &path);
    assert!(err.contains("error: stopped at in.ndjson:1;") && err.contains("nothing listens at"), "{err}");

    let err = run(&mut flare(&["documents", "load", "/no/such.ndjson"])).failed(1);
    assert!(err.starts_with("error: cannot read /no/such.ndjson\n  because: No such file"), "{err}");
}
