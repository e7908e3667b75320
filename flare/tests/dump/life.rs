//! The life of a copy, as its user sees it.

use super::{Desk, ids, lines};

#[test]
fn a_file_is_copied_and_the_end_is_a_table() {
    let desk = Desk::new();
    desk.write("in.ndjson", &lines(95));
    let ran = desk.succeed(&["--from", "in.ndjson", "--to", "out.ndjson", "--chunksize", "10", "--workers", "3"]);
    assert_eq!(desk.read("out.ndjson"), lines(95));
    assert!(ran.out.contains("state       complete") && ran.out.contains("rows        95"), "{}", ran.out);
    assert_eq!(ran.err.lines().filter(|line| line.starts_with("completed")).count(), 10, "{}", ran.err);
    let quiet = desk.succeed(&["-q", "--from", "in.ndjson", "--to", "again.ndjson"]);
    assert_eq!((quiet.out.as_str(), quiet.err.as_str()), ("", ""));
}

#[test]
fn notifications_are_lines_of_json() {
    let desk = Desk::new();
    desk.write("in.ndjson", &lines(25));
    let ran = desk.succeed(&["--from", "in.ndjson", "--to", "out.csv", "--chunksize", "10", "--progress", "json"]);
    let events: Vec<serde_json::Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(names, ["completed", "completed", "completed", "end", "summary"]);
    let rows: u64 = events[..3].iter().map(|event| event["rows"].as_u64().unwrap()).sum();
    assert_eq!(rows, 25);
    assert!(events[0]["range"]["upto"].is_array() && events[0]["ms"].is_u64(), "{}", ran.out);
}

#[test]
fn a_job_file_is_guessed_planned_previewed_and_run() {
    let desk = Desk::new();
    desk.write("in.csv", "id,name,price\n1,Ann,1.50\n2,,20.00\n");
    let guess = desk.succeed(&["guess", "--from", "in.csv", "--to", "out.ndjson"]).out;
    assert!(guess.contains("name = \"price\"\nas = \"decimal\""), "{guess}");
    desk.write("job.toml", &guess.replace("name = \"price\"", "name = \"cost\"\nfrom = \"price\""));
    let plan = desk.succeed(&["plan", "job.toml"]).out;
    assert!(plan.contains("about 2") && plan.contains("cost") && plan.contains("position (byte)"), "{plan}");
    let preview = desk.succeed(&["preview", "job.toml", "--rows", "1"]).out;
    assert_eq!(preview.trim(), r#"{"id":1,"name":"Ann","cost":1.50}"#);
    desk.succeed(&["run", "job.toml"]);
    let expected = "{\"id\":1,\"name\":\"Ann\",\"cost\":1.50}\n{\"id\":2,\"name\":null,\"cost\":20.00}\n";
    assert_eq!(desk.read("out.ndjson"), expected);
    let status = desk.succeed(&["status", "job.toml"]).out;
    assert!(status.contains("complete") && status.contains("1 done, 0 not"), "{status}");
}

#[test]
fn a_copy_that_stops_says_how_to_go_on() {
    let desk = Desk::new();
    desk.write("in.ndjson", &format!("{}nonsense\n{}", lines(10), lines(5)));
    let arguments = ["--from", "in.ndjson", "--to", "out.ndjson", "--chunksize", "4"];
    let ran = desk.run(&arguments);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.err.contains("chunk 2") && ran.err.contains("row 3 was refused: not JSON"), "{}", ran.err);
    let command = ran.err.lines().find_map(|line| line.strip_prefix("to go on: flare dump ")).unwrap();
    assert_eq!(command, "resume --from in.ndjson --to out.ndjson --chunksize 4");
    let again = desk.run(&arguments);
    assert!(again.code == Some(1) && again.err.contains("use resume"), "{again:?}");
    let mut resume: Vec<&str> = command.split(' ').collect();
    resume.extend(["--max-rejects", "1"]);
    desk.succeed(&resume);
    assert_eq!(ids(&desk.path("out.ndjson")).len(), 15);
    let rejects = std::fs::read_dir(desk.folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let rejects = rejects.into_iter().find(|path| path.to_str().unwrap().ends_with(".rejects.ndjson")).unwrap();
    assert!(std::fs::read_to_string(rejects).unwrap().contains("\"text\":\"nonsense\""));
}

/// A line that only passes through is not trusted either.
#[test]
fn a_line_with_bytes_that_are_no_text_is_refused() {
    let desk = Desk::new();
    let mut content = lines(3).into_bytes();
    content.extend(b"{\"id\":3,\"name\":\"\xff\xfe\"}\n");
    std::fs::write(desk.path("in.ndjson"), content).unwrap();
    let ran = desk.run(&["--from", "in.ndjson", "--to", "out.ndjson"]);
    assert!(ran.code == Some(3) && ran.err.contains("row 4 was refused") && ran.err.contains("UTF-8"), "{ran:?}");
}

#[test]
fn mistakes_are_told_before_anything_is_done() {
    let desk = Desk::new();
    desk.write("in.ndjson", &lines(1));
    desk.write("job.toml", "from = 'in.ndjson'\nto = 'out.ndjson'\nwokers = 3\n");
    let check = |arguments: &[&str], code: i32, expected: &str| {
        let ran = desk.run(arguments);
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(ran.err.contains(expected), "{}", ran.err);
    };
    check(&["run", "job.toml"], 1, "wokers");
    check(&["run"], 1, "name a job file, or both --from and --to");
    check(&["run", "none.toml"], 1, "cannot read the job none.toml");
    check(&["--from", "none.ndjson", "--to", "out.ndjson"], 1, "there is no file none.ndjson");
    check(&["--from", "in.ndjson", "--to", "in.ndjson"], 1, "both the source and the target");
    check(&["--from", "redis://x", "--to", "out.ndjson"], 1, "\"redis\" is no storage");
    check(&["--from", "in.ndjson", "--to", "out.xml"], 1, "format \"xml\" is not known");
    check(&["--from", "in.ndjson", "--to", "out.ndjson", "--workers", "0"], 2, "0 is not in 1..=256");
    check(&["resume", "--from", "in.ndjson", "--to", "out.ndjson"], 1, "no copy to resume");
    check(&["--from", "postgres://me:secret@127.0.0.1:1/db", "--to", "out.ndjson"], 1, "name the table");
    check(&["status", "none.toml"], 1, "neither none.history.json nor none.journal is here; `flare dump run` begins");
    check(&["--from", "in.ndjson", "--to", "postgres:/me:secret@h/db"], 1, "postgres is followed by ://");
    for (address, expected) in [
        ("postgres://me:secret@127.0.0.1:1/db?table=t", "postgres://127.0.0.1:1/db?table=t: cannot connect"),
        ("postgres://me:secret@127.0.0.1:1/db?table=t&x=y", "postgres://127.0.0.1:1/db?table=t: the address"),
        (
            "mysql://me:secret@127.0.0.1:1/db?table=t",
            "mysql://127.0.0.1:1/db?table=t: cannot connect: Connection refused",
        ),
        ("mysql://me:secret@127.0.0.1:1/db?table=t&x=y", "Unknown connection URL parameter `x'"),
        (
            "mongodb://me:secret@127.0.0.1:1/db.t?serverSelectionTimeoutMS=100",
            "mongodb://127.0.0.1:1/db.t: the collections cannot be listed: no server answers: I/O error: Connection",
        ),
        ("mongodb://me:secret@127.0.0.1:1/db.t?x=y", "x is an invalid option"),
        ("flare+http://secret@127.0.0.1:1/resources/1", "the server cannot be reached: Connection refused"),
        ("postgres://me:sec/ret@127.0.0.1:1/db?table=t", "write %40 for @"),
    ] {
        let ran = desk.run(&["--from", address, "--to", "out.ndjson"]);
        assert!(ran.code == Some(1) && ran.err.contains(expected), "{ran:?}");
        assert!(!ran.err.contains("secret") && !ran.err.contains("ret@"), "{ran:?}");
    }
    assert!(!desk.path("out.ndjson").exists());
}

#[test]
fn a_copy_that_is_complete_stays_so_when_another_cannot_begin() {
    let desk = Desk::new();
    desk.write("in.csv", "id,code\n1,x\n2,007\n");
    let arguments = ["--from", "in.csv", "--to", "out.ndjson"];
    desk.succeed(&arguments);
    assert_eq!(desk.read("out.ndjson"), "{\"id\":1,\"code\":\"x\"}\n{\"id\":2,\"code\":\"007\"}\n");
    let again = desk.run(&arguments);
    assert!(again.code == Some(1) && again.err.contains("out.ndjson exists: choose the mode"), "{again:?}");
    let status = desk.succeed(&[&["status"], &arguments[..]].concat()).out;
    assert!(status.contains("state     complete"), "{status}");
    let resumed = desk.run(&[&["resume"], &arguments[..]].concat());
    assert!(resumed.code == Some(1) && resumed.err.contains("this copy is complete"), "{resumed:?}");
}

#[test]
fn a_copy_has_one_process_at_a_time() {
    let desk = Desk::new();
    desk.write("in.ndjson", &lines(20_000));
    let arguments = ["--from", "in.ndjson", "--to", "out.ndjson", "--chunksize", "20", "--progress", "json"];
    let mut child = desk.command(&arguments).spawn().unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut String::new()).unwrap();
    let other = desk.run(&[&["resume"], &arguments[..]].concat());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(other.code == Some(1) && other.err.contains("another process works on this copy"), "{other:?}");
}

#[test]
fn an_interrupted_copy_ends_with_130_and_is_resumed() {
    let desk = Desk::new();
    desk.write("in.ndjson", &lines(20_000));
    let arguments = ["--from", "in.ndjson", "--to", "out.ndjson", "--chunksize", "20", "--progress", "json"];
    let mut child = desk.command(&arguments).spawn().unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut String::new()).unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    std::io::copy(&mut out, &mut std::io::sink()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!desk.path("out.ndjson").exists());
    desk.succeed(&[&["resume"], &arguments[..]].concat());
    assert_eq!(desk.read("out.ndjson"), lines(20_000));
}
