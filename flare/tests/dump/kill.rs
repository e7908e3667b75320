//! `kill -9`, many times over one copy: no row is missing, none is doubled, and little is done twice.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};

use super::{Desk, ids, lines};

const KILLS: usize = 200;
const WORKERS: usize = 3;
const CHUNKSIZE: usize = 20;
/// So many chunks that the copy cannot end before the last kill.
const ROWS: usize = (KILLS * 4 + 100) * CHUNKSIZE;
/// PostgreSQL and files make chunks durable in groups, and more of them are done by then than were told.
const ROWS_IN_GROUPS: usize = (KILLS * 32 + 100) * CHUNKSIZE;

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn throw(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// Kills the copy again and again, after a few chunks each time; then lets it end.
fn kill_often(desk: &Desk, arguments: &[&str]) {
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    let mut completed: HashMap<String, usize> = HashMap::new();
    let options = ["--chunksize", "20", "--workers", "3", "--progress", "json"];
    let mut is_begun = false;
    for _ in 0..KILLS {
        let action: &[&str] = if is_begun { &["resume"] } else { &["run"] };
        let mut child = desk.command(&[action, arguments, &options].concat()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let chunks = dice.throw(4) as usize;
        for line in out.lines().take(chunks) {
            let event: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
            assert_eq!(event["event"], "completed", "{event}");
            *completed.entry(event["chunk"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        is_begun |= chunks > 0;
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let ended = desk.succeed(&[&["resume"], arguments, &options].concat());
    assert!(ended.out.lines().any(|line| line.contains("\"event\":\"end\"")), "{}", ended.out);
    // What was told as completed and then done again was in flight when the note of it was lost.
    let again: usize = completed.values().map(|times| times - 1).sum();
    assert!(again <= KILLS * WORKERS, "{again} chunks were done again in {KILLS} runs");
}

#[test]
fn a_file_is_copied_whole_however_often_it_is_killed() {
    let desk = Desk::new();
    desk.write("in.ndjson", &lines(ROWS_IN_GROUPS));
    kill_often(&desk, &["--from", "in.ndjson", "--to", "out.ndjson"]);
    assert_eq!(ids(&desk.path("out.ndjson")), (0..ROWS_IN_GROUPS as u64).collect::<Vec<_>>());
    let left: Vec<_> = std::fs::read_dir(desk.folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "only source, target and history are left: {left:?}");
}

#[test]
fn a_table_is_copied_whole_however_often_it_is_killed() {
    let desk = Desk::new();
    desk.write("in.ndjson", &lines(ROWS));
    desk.succeed(&["-q", "--from", "in.ndjson", "--to", "a.db?table=a"]);
    kill_often(&desk, &["--from", "a.db?table=a", "--to", "b.db?table=b"]);
    desk.succeed(&["-q", "--from", "b.db?table=b", "--to", "out.ndjson"]);
    assert_eq!(ids(&desk.path("out.ndjson")), (0..ROWS as u64).collect::<Vec<_>>());
}

#[test]
fn a_table_of_postgres_is_copied_whole_however_often_it_is_killed() {
    let Ok(url) = std::env::var("FLARE_TEST_POSTGRES_URL") else {
        assert!(std::env::var_os("FLARE_TEST_SERVERS").is_none(), "FLARE_TEST_POSTGRES_URL is not set");
        return eprintln!("skipped: FLARE_TEST_POSTGRES_URL is not set");
    };
    let desk = Desk::new();
    desk.write("in.ndjson", &lines(ROWS_IN_GROUPS));
    let join = if url.contains('?') { '&' } else { '?' };
    let table = format!("{url}{join}table=dump_kill");
    kill_often(&desk, &["--mode", "replace", "--from", "in.ndjson", "--to", &table]);
    desk.succeed(&["-q", "--from", &table, "--to", "out.ndjson"]);
    assert_eq!(ids(&desk.path("out.ndjson")), (0..ROWS_IN_GROUPS as u64).collect::<Vec<_>>());
}
