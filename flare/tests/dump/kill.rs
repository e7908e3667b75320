//! `kill -9`, many times over one copy: no row is missing, none is doubled, and little is done twice.
//!
//! The kills of all pairs together are two hundred. Each hits a copy that has told of a chunk in this run and is not
//! at its end; some more hit runs that have only begun, and do not count.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Desk, ids, lines};

const WORKERS: usize = 3;
const CHUNKSIZE: usize = 20;
/// What a kill may cost.
const REWORK_MAX: usize = WORKERS * CHUNKSIZE;

const FILE_TO_FILE: usize = 40;
const SQLITE_TO_SQLITE: usize = 30;
const FILE_TO_POSTGRES: usize = 30;
const POSTGRES_TO_POSTGRES: usize = 40;
const MONGODB_TO_MARIADB: usize = 30;
const MARIADB_TO_MONGODB: usize = 30;
const _: () = assert!(
    FILE_TO_FILE + SQLITE_TO_SQLITE + FILE_TO_POSTGRES + POSTGRES_TO_POSTGRES + MONGODB_TO_MARIADB + MARIADB_TO_MONGODB
        == 200
);

/// So many rows that the copy cannot end before the last kill.
const fn rows(kills: usize) -> usize {
    (kills * 12 + 100) * CHUNKSIZE
}

/// PostgreSQL and files make chunks durable in groups, and more of them are done by then than were told.
const fn rows_in_groups(kills: usize) -> usize {
    (kills * 32 + 100) * CHUNKSIZE
}

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

/// A run of the copy, and what it tells.
struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Running {
    fn start(desk: &Desk, action: &str) -> Self {
        let mut child = desk.command(&[action, "job.toml", "--progress", "json"]).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    /// The next event; none at the end of what it tells. A line that was cut by a kill is none.
    fn event(&mut self) -> Option<Value> {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.ends_with('\n').then(|| serde_json::from_str(&line).unwrap())
    }

    /// A copy that has not ended has more to tell.
    fn completed(&mut self) -> Value {
        let event = self.event();
        let event = event.filter(|event| event["event"] == "completed");
        event.unwrap_or_else(|| {
            let mut told = String::new();
            self.child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
            panic!("the copy ended before it was killed: {told}")
        })
    }

    /// Kills it, and returns what it had told besides.
    fn kill(mut self) -> Vec<Value> {
        self.child.kill().unwrap();
        let mut rest = Vec::new();
        while let Some(event) = self.event() {
            assert_eq!(event["event"], "completed", "the copy ended before it was killed");
            rest.push(event);
        }
        let status = self.child.wait().unwrap();
        assert_eq!(status.signal(), Some(9), "the copy ended before it was killed: {status}");
        rest
    }
}

/// Kills the copy of `job.toml` again and again, a few chunks and a moment after each beginning; then lets it end.
/// Returns how many runs were killed. `in_flight` says how many rows the target has of chunks that are not noted as
/// done, which will be done again.
fn kill_often(desk: &Desk, kills: usize, in_flight: impl Fn() -> usize) -> usize {
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    let mut done: HashSet<String> = HashSet::new();
    let (mut killed, mut killed_early, mut rows_told) = (0, 0, 0);
    while killed < kills {
        let is_early = killed > 0 && dice.throw(8) == 0;
        let mut running = Running::start(desk, if killed > 0 { "resume" } else { "run" });
        let mut told = Vec::new();
        if !is_early {
            told.extend((0..=dice.throw(3)).map(|_| running.completed()));
        }
        linger(Duration::from_micros(dice.throw(if is_early { 100_000 } else { 3_000 })));
        told.extend(running.kill());
        for event in told {
            let chunk = event["chunk"].as_str().unwrap();
            assert!(done.insert(chunk.to_owned()), "chunk {chunk} was told as completed, and done again");
            rows_told += event["rows"].as_u64().unwrap();
        }
        let noted = status(desk)["rows"].as_u64().unwrap();
        // A chunk is noted before it is told; what a kill cuts off is the telling.
        assert!(rows_told <= noted, "{rows_told} rows were told as copied, {noted} are noted");
        rows_told = noted;
        let again = in_flight();
        assert!(again <= REWORK_MAX, "{again} rows are to be done again after one kill");
        *(if is_early { &mut killed_early } else { &mut killed }) += 1;
    }
    let ended = desk.succeed(&["resume", "job.toml", "--progress", "json"]);
    assert!(ended.out.lines().any(|line| line.contains("\"event\":\"end\"")), "{}", ended.out);
    killed + killed_early
}

/// Lets the copy go on for a moment.
fn linger(moment: Duration) {
    let began = Instant::now();
    while began.elapsed() < moment {
        std::hint::spin_loop();
    }
}

/// What the history says.
fn status(desk: &Desk) -> Value {
    serde_json::from_str(&desk.succeed(&["status", "job.toml", "--json"]).out).unwrap()
}

fn job(desk: &Desk, from: &str, to: &str, mode: &str) {
    desk.write(
        "job.toml",
        &format!("from = '{from}'\nto = '{to}'\nmode = '{mode}'\nchunksize = {CHUNKSIZE}\nworkers = {WORKERS}\n"),
    );
}

/// A table of rows `0..rows` with a key, whatever was there.
fn fill(desk: &Desk, rows: usize, address: &str) {
    let origin = rusqlite::Connection::open(desk.path("rows.db")).unwrap();
    origin
        .execute_batch(&format!(
            "CREATE TABLE numbers (id INTEGER PRIMARY KEY, name TEXT);
             WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {rows} - 1)
             INSERT INTO numbers SELECT i, 'row ' || i FROM n;"
        ))
        .unwrap();
    desk.succeed(&["-q", "--from", "rows.db?table=numbers", "--to", address, "--mode", "replace"]);
}

/// Every row is there, once.
#[track_caller]
fn has_all(desk: &Desk, address: &str, rows: usize) {
    desk.succeed(&["-q", "--from", address, "--to", "out.ndjson"]);
    assert_eq!(ids(&desk.path("out.ndjson")), (0..rows as u64).collect::<Vec<_>>());
}

#[test]
fn a_file_is_copied_whole_however_often_it_is_killed() {
    let (desk, rows) = (Desk::new(), rows_in_groups(FILE_TO_FILE));
    desk.write("in.ndjson", &lines(rows));
    job(&desk, "in.ndjson", "out.ndjson", "create");
    let names = |folder: &std::path::Path| -> Vec<_> {
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    let is_folder = |path: &std::path::PathBuf| path.is_dir();
    kill_often(&desk, FILE_TO_FILE, || {
        let parts = names(desk.folder.path()).into_iter().find(is_folder).unwrap();
        let unfinished = names(&parts).into_iter().filter(|path| path.extension().is_some_and(|end| end == "tmp"));
        unfinished.map(|path| std::fs::read_to_string(path).unwrap().lines().count()).sum()
    });
    assert_eq!(ids(&desk.path("out.ndjson")), (0..rows as u64).collect::<Vec<_>>());
    let left = names(desk.folder.path());
    assert_eq!(left.len(), 4, "only source, target, job and history are left: {left:?}");
}

#[test]
fn a_table_is_copied_whole_however_often_it_is_killed() {
    let (desk, rows) = (Desk::new(), rows(SQLITE_TO_SQLITE));
    fill(&desk, rows, "a.db?table=a");
    job(&desk, "a.db?table=a", "b.db?table=b", "create");
    // What is not committed is not there.
    kill_often(&desk, SQLITE_TO_SQLITE, || 0);
    has_all(&desk, "b.db?table=b", rows);
}

/// The address of a server; without it the test is skipped, unless the servers are said to be there.
fn server(variable: &str) -> Option<String> {
    let url = std::env::var(variable).ok();
    if url.is_none() {
        assert!(std::env::var_os("FLARE_TEST_SERVERS").is_none(), "{variable} is not set");
        eprintln!("skipped: {variable} is not set");
    }
    url
}

fn postgres(table: &str) -> Option<String> {
    let url = server("FLARE_TEST_POSTGRES_URL")?;
    Some(format!("{url}{}table={table}", if url.contains('?') { '&' } else { '?' }))
}

fn mongodb(collection: &str) -> Option<String> {
    let url = server("FLARE_TEST_MONGODB_URL")?;
    let (host, options) = url.split_once('?').unwrap_or((&url, ""));
    Some(format!("{}/flare_dump_kill.{collection}?{options}", host.trim_end_matches('/')))
}

fn mariadb(table: &str) -> Option<String> {
    Some(format!("{}?table={table}", server("FLARE_TEST_MARIADB_URL")?))
}

/// How many rows were ever written to a table, those that were undone included. The server tells it a little later.
fn written(desk: &Desk, table: &str, rows: usize) -> usize {
    let statistics = postgres("pg_catalog.pg_stat_user_tables").unwrap();
    let arguments = ["-q", "--from", &statistics, "--to", "statistics.ndjson", "--mode", "replace", "--fresh"];
    for _ in 0..100 {
        desk.succeed(&arguments);
        let statistics = desk.read("statistics.ndjson");
        let lines = statistics.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let written = lines.filter(|line| line["relname"] == table).find_map(|line| line["n_tup_ins"].as_u64());
        match written {
            Some(written) if written as usize >= rows => return written as usize,
            _ => (),
        }
    }
    panic!("the server does not tell that {rows} rows were written to {table}");
}

#[test]
fn a_file_comes_to_postgres_whole_however_often_it_is_killed() {
    let Some(to) = postgres("dump_kill_file") else { return };
    let (desk, rows) = (Desk::new(), rows_in_groups(FILE_TO_POSTGRES));
    desk.write("in.ndjson", &lines(rows));
    job(&desk, "in.ndjson", &to, "replace");
    let killed = kill_often(&desk, FILE_TO_POSTGRES, || 0);
    has_all(&desk, &to, rows);
    let again = written(&desk, "dump_kill_file", rows) - rows;
    assert!(again <= killed * REWORK_MAX, "{again} rows were done again in {killed} runs");
}

#[test]
fn a_table_of_postgres_is_copied_whole_however_often_it_is_killed() {
    let (Some(from), Some(to)) = (postgres("dump_kill_from"), postgres("dump_kill_to")) else { return };
    let (desk, rows) = (Desk::new(), rows_in_groups(POSTGRES_TO_POSTGRES));
    fill(&desk, rows, &from);
    job(&desk, &from, &to, "replace");
    let killed = kill_often(&desk, POSTGRES_TO_POSTGRES, || 0);
    has_all(&desk, &to, rows);
    let again = written(&desk, "dump_kill_to", rows) - rows;
    assert!(again <= killed * REWORK_MAX, "{again} rows were done again in {killed} runs");
}

#[test]
fn a_collection_comes_to_mariadb_whole_however_often_it_is_killed() {
    let (Some(from), Some(to)) = (mongodb("source"), mariadb("dump_kill_to")) else { return };
    let (desk, rows) = (Desk::new(), rows(MONGODB_TO_MARIADB));
    fill(&desk, rows, &from);
    job(&desk, &from, &to, "replace");
    kill_often(&desk, MONGODB_TO_MARIADB, || 0);
    has_all(&desk, &to, rows);
}

#[test]
fn a_table_of_mariadb_comes_to_mongodb_whole_however_often_it_is_killed() {
    let (Some(from), Some(to)) = (mariadb("dump_kill_from"), mongodb("target")) else { return };
    let (desk, rows) = (Desk::new(), rows(MARIADB_TO_MONGODB));
    fill(&desk, rows, &from);
    job(&desk, &from, &to, "replace");
    // There is no transaction around a chunk: the rows of those that were cut off are there.
    kill_often(&desk, MARIADB_TO_MONGODB, || {
        let history = desk.read("job.journal");
        let started = history.lines().find(|line| line.contains("\"started\"")).unwrap();
        let started: Value = serde_json::from_str(started).unwrap();
        let name = format!("flare_dump_{}_new", started["started"]["job"].as_str().unwrap());
        let plan = desk.succeed(&["plan", "--from", &mongodb(&name).unwrap(), "--to", "none.ndjson"]).out;
        let there = plan.lines().find_map(|line| line.strip_prefix("rows      about ")).unwrap();
        let there: usize = there.replace(',', "").parse().unwrap();
        there - status(&desk)["rows"].as_u64().unwrap() as usize
    });
    has_all(&desk, &to, rows);
}
