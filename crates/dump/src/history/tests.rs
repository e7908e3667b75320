use super::*;
use crate::value::Value;

fn started(job: &str) -> Line {
    Line::Started {
        job: job.into(),
        fingerprint: "f".into(),
        from: "a".into(),
        to: "b".into(),
        upper: Some(Key::int(99)),
    }
}

fn planned(ordinal: u64, upto: i64) -> Line {
    let range = Range { after: None, upto: Some(Key::int(upto)) };
    Line::Planned { chunk: ChunkId::new(ordinal), range }
}

fn done(ordinal: u64) -> Line {
    Line::Done { chunk: ChunkId::new(ordinal), done: Done { rows: 10, ..Done::default() } }
}

#[test]
fn the_history_is_the_same_after_a_crash_and_after_compaction() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::of_job(&folder.path().join("users.toml"));
    let journal = Journal::open(place.clone()).unwrap();
    for line in [started("j"), Line::Prepared, planned(0, 10), planned(1, 20), done(1), planned(2, 30)] {
        journal.append(line).unwrap();
    }
    let failed = Line::Failed { chunk: ChunkId::new(2), message: "no".into() };
    journal.append(failed).unwrap();
    let expected = serde_json::to_string(&journal.history()).unwrap();
    let loaded = || serde_json::to_string(&place.load().unwrap().unwrap()).unwrap();
    assert_eq!(loaded(), expected);
    journal.compact().unwrap();
    assert_eq!(loaded(), expected);
    let history = place.load().unwrap().unwrap();
    assert_eq!(history.next, Next { ordinal: 3, after: Some(Key::int(30)) });
    let open: Vec<String> = history.open().map(|(chunk, _)| chunk.to_string()).collect();
    assert_eq!(open, ["0", "2"]);
    assert_eq!(history.totals(), (10, 0, 0));
    drop(journal);
    assert!(!place.journal().exists());
}

#[test]
fn a_line_that_was_cut_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::of_job(&folder.path().join("users.toml"));
    let journal = Journal::open(place.clone()).unwrap();
    journal.append(started("j")).unwrap();
    journal.append(planned(0, 10)).unwrap();
    drop(journal);
    let mut text = std::fs::read(place.journal()).unwrap();
    text.truncate(text.len() - 5);
    std::fs::write(place.journal(), text).unwrap();
    let journal = Journal::open(place.clone()).unwrap();
    assert_eq!(journal.history().chunks.len(), 0);
    journal.append(planned(0, 11)).unwrap();
    assert_eq!(place.load().unwrap().unwrap().chunks.len(), 1);
}

#[test]
fn one_process_at_a_time_works_on_a_copy() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::of_job(&folder.path().join("users.toml"));
    let _journal = Journal::open(place.clone()).unwrap();
    let error = Journal::open(place).unwrap_err();
    assert!(error.to_string().contains("another process"), "{error}");
}

#[test]
fn keys_keep_their_types() {
    let key = Key(vec![Value::ObjectId([7; 12]), Value::text("7"), Value::Float(f64::NAN)]);
    let text = serde_json::to_string(&key).unwrap();
    assert_eq!(text, r#"[{"$oid":"070707070707070707070707"},"7",{"$numberDouble":"NaN"}]"#);
    let back: Key = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string(&back).unwrap(), text);
}

#[test]
fn a_done_chunk_stays_done() {
    let mut history = History::default();
    for line in [started("j"), planned(0, 10), done(0)] {
        history.apply(line);
    }
    history.apply(Line::Failed { chunk: ChunkId::new(0), message: "late".into() });
    history.apply(planned(0, 10));
    assert_eq!(history.open().count(), 0);
}
