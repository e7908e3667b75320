//! What a writer must keep. What was written is looked at with the reader of the same storage.

use std::sync::Arc;

use super::reader::read;
use super::rows::{all_kinds, numbered, numbered_schema};
use crate::error::ErrorKind;
use crate::key::Range;
use crate::location::Location;
use crate::port::{Target, WriteMode, Writer};
use crate::row::{Batch, Row, RowBatch};
use crate::storage::{self, ReadOptions};
use crate::value::{Schema, Value};

/// A storage under test, and what it cannot do.
pub struct Subject {
    /// An address for a target of this name, which does not exist yet.
    pub locate: Box<dyn Fn(&str) -> Location>,
    pub can_append: bool,
    pub can_replace: bool,
    pub can_upsert: bool,
    /// Whether it remembers which chunks are done. One that does not must take the same rows twice as once.
    pub has_ledger: bool,
    /// Whether the storage refuses a text in a column of integers.
    pub rejects: bool,
    /// The columns of [`all_kinds`] that do not come back as the same type.
    pub inexact: &'static [&'static str],
}

/// Runs all cases.
///
/// # Panics
/// When the writer breaks the contract.
pub async fn check_writer(subject: &Subject) {
    rows_are_there_when_all_is_finished(subject).await;
    a_chunk_that_is_given_up_leaves_nothing(subject).await;
    a_chunk_that_is_done_twice_is_there_once(subject).await;
    a_job_that_is_resumed_knows_what_is_done(subject).await;
    a_chunk_settles_if_it_is_there(subject).await;
    an_existing_target_is_not_created(subject).await;
    if subject.can_replace {
        a_target_is_replaced_at_the_end(subject).await;
    }
    values_of_all_kinds_come_back(subject).await;
    if subject.can_append {
        rows_are_appended(subject).await;
    }
    if subject.can_upsert {
        rows_are_upserted(subject).await;
    }
    if subject.rejects {
        a_refused_row_spoils_nothing(subject).await;
    }
}

/// One job on a target.
struct Job {
    location: Location,
    writer: Arc<dyn Writer>,
    target: Target,
}

impl Job {
    async fn begin(subject: &Subject, name: &str, job: &str, mode: WriteMode, schema: Schema) -> Self {
        let location = (subject.locate)(name);
        let target = Target { job: format!("{job:0>16}"), mode, schema, is_resumed: false };
        let writer = storage::writer(&location).expect("the target is opened");
        writer.describe().await.expect("the target is described");
        writer.prepare(&target).await.expect("the target is prepared");
        Self { location, writer, target }
    }

    async fn numbered(subject: &Subject, name: &str, job: &str, mode: WriteMode) -> Self {
        Self::begin(subject, name, job, mode, numbered_schema()).await
    }

    /// As after a crash: another process, the same job.
    async fn resume(self) -> Self {
        let writer = storage::writer(&self.location).expect("the target is opened again");
        let target = Target { is_resumed: true, ..self.target };
        writer.describe().await.expect("the target is described again");
        writer.prepare(&target).await.expect("the target is prepared again");
        Self { writer, target, location: self.location }
    }

    async fn write(&self, chunk: &str, batch: RowBatch) {
        let rows = batch.rows.len() as u64;
        let mut open = self.writer.open(chunk).await.expect("a chunk is opened");
        open.write(Batch::Rows(batch)).await.expect("rows are written");
        assert_eq!(open.commit().await.expect("a chunk is committed").rows, rows);
    }

    async fn finish(&self) {
        self.writer.finish().await.expect("the target is finished");
    }

    /// The ids that can be read from the target.
    async fn rows(&self) -> Vec<String> {
        let reader = storage::reader(&self.location, &ReadOptions::default()).expect("the target is read");
        reader.describe().await.expect("the target is described");
        read(&*reader, &Range::default()).await.expect("the target is read")
    }
}

fn expected(batches: &[RowBatch]) -> Vec<String> {
    let mut texts: Vec<String> = batches.iter().cloned().flat_map(super::reader::texts).collect();
    texts.sort();
    texts
}

async fn rows_are_there_when_all_is_finished(subject: &Subject) {
    let job = Job::numbered(subject, "finished", "a", WriteMode::Create).await;
    job.write("0", numbered(0, 10)).await;
    job.write("2", numbered(20, 30)).await;
    job.write("1.03", numbered(10, 20)).await;
    job.write("3", numbered(0, 0)).await;
    job.finish().await;
    assert_eq!(job.rows().await, expected(&[numbered(0, 30)]));
    // A crash between the end and the note of it.
    let job = job.resume().await;
    job.finish().await;
    assert_eq!(job.rows().await, expected(&[numbered(0, 30)]));
}

async fn a_chunk_that_is_given_up_leaves_nothing(subject: &Subject) {
    let job = Job::numbered(subject, "given_up", "b", WriteMode::Create).await;
    let mut open = job.writer.open("0").await.expect("a chunk is opened");
    open.write(Batch::Rows(numbered(0, 10))).await.expect("rows are written");
    drop(open);
    assert_eq!(job.writer.done("0").await.expect("the ledger is read"), None);
    job.write("1", numbered(10, 20)).await;
    job.write("0", numbered(0, 5)).await;
    job.finish().await;
    assert_eq!(job.rows().await, expected(&[numbered(0, 5), numbered(10, 20)]));
}

async fn a_chunk_that_is_done_twice_is_there_once(subject: &Subject) {
    let job = Job::numbered(subject, "twice", "c", WriteMode::Create).await;
    job.write("0", numbered(0, 10)).await;
    let rows = subject.has_ledger.then_some(10);
    assert_eq!(job.writer.done("0").await.expect("the ledger is read").map(|done| done.rows), rows);
    let mut open = job.writer.open("0").await.expect("a chunk is opened again");
    // A ledger may refuse the rows at once, or find out at the end.
    if open.write(Batch::Rows(numbered(0, 10))).await.is_ok() {
        let _ = open.commit().await;
    }
    job.finish().await;
    assert_eq!(job.rows().await, expected(&[numbered(0, 10)]));
}

async fn a_job_that_is_resumed_knows_what_is_done(subject: &Subject) {
    let job = Job::numbered(subject, "resumed", "d", WriteMode::Create).await;
    job.write("0", numbered(0, 10)).await;
    let job = job.resume().await;
    assert_eq!(job.writer.done("0").await.expect("the ledger is read").is_some(), subject.has_ledger);
    assert!(job.writer.done("1").await.expect("the ledger is read").is_none());
    job.write("1", numbered(10, 20)).await;
    job.finish().await;
    assert_eq!(job.rows().await, expected(&[numbered(0, 20)]));
}

async fn a_chunk_settles_if_it_is_there(subject: &Subject) {
    let job = Job::numbered(subject, "settled", "o", WriteMode::Create).await;
    job.write("0", numbered(0, 10)).await;
    job.write("2", numbered(20, 30)).await;
    let chunks = ["0", "1", "2"].map(str::to_owned);
    let found = job.writer.settle(&chunks).await.expect("chunks settle");
    // Who commits durably has nothing to look up.
    let is_lost = job.writer.settles();
    assert_eq!(found, [true, !is_lost, true]);
    job.write("1", numbered(10, 20)).await;
    assert_eq!(job.writer.settle(&chunks).await.expect("chunks settle"), [true, true, true]);
    job.finish().await;
    assert_eq!(job.rows().await, expected(&[numbered(0, 30)]));
}

async fn an_existing_target_is_not_created(subject: &Subject) {
    let job = Job::numbered(subject, "existing", "e", WriteMode::Create).await;
    job.write("0", numbered(0, 1)).await;
    job.finish().await;
    let writer = storage::writer(&job.location).expect("the target is opened");
    writer.describe().await.expect("the target is described");
    let target = Target { job: "f".repeat(16), is_resumed: false, ..job.target.clone() };
    let error = writer.prepare(&target).await.expect_err("a target with rows is not created");
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

async fn a_target_is_replaced_at_the_end(subject: &Subject) {
    let old = Job::numbered(subject, "replaced", "g", WriteMode::Create).await;
    old.write("0", numbered(0, 10)).await;
    old.finish().await;
    let new = Job::numbered(subject, "replaced", "h", WriteMode::Replace).await;
    new.write("0", numbered(5, 20)).await;
    assert_eq!(new.rows().await, expected(&[numbered(0, 10)]), "the old rows are there until the end");
    let new = new.resume().await;
    new.finish().await;
    assert_eq!(new.rows().await, expected(&[numbered(5, 20)]));
    let new = new.resume().await;
    new.finish().await;
    assert_eq!(new.rows().await, expected(&[numbered(5, 20)]));
}

async fn rows_are_appended(subject: &Subject) {
    let old = Job::numbered(subject, "appended", "i", WriteMode::Create).await;
    old.write("0", numbered(0, 10)).await;
    old.finish().await;
    let new = Job::numbered(subject, "appended", "j", WriteMode::Append).await;
    new.write("0", numbered(10, 20)).await;
    let new = new.resume().await;
    new.finish().await;
    assert_eq!(new.rows().await, expected(&[numbered(0, 20)]));
}

async fn rows_are_upserted(subject: &Subject) {
    let old = Job::numbered(subject, "upserted", "k", WriteMode::Create).await;
    old.write("0", numbered(0, 10)).await;
    old.finish().await;
    let new = Job::numbered(subject, "upserted", "l", WriteMode::Upsert).await;
    let mut changed = numbered(5, 15);
    for row in &mut changed.rows {
        let Row::Cells(cells) = row else { panic!("rows of the suite are cells") };
        cells[1] = Value::text("changed");
    }
    new.write("0", changed.clone()).await;
    new.finish().await;
    assert_eq!(new.rows().await, expected(&[numbered(0, 5), changed]));
}

async fn values_of_all_kinds_come_back(subject: &Subject) {
    let (schema, rows) = all_kinds();
    let job = Job::begin(subject, "kinds", "m", WriteMode::Create, schema).await;
    job.write("0", rows.clone()).await;
    job.finish().await;
    let reader = storage::reader(&job.location, &ReadOptions::default()).expect("the target is read");
    reader.describe().await.expect("the target is described");
    let found = reader.sample(10).await.expect("the target is read");
    assert_eq!(found.rows.len(), rows.rows.len());
    for row in &rows.rows {
        let id = crate::json::to_string(row.get(&rows.names, "id"));
        let same = |other: &&Row| crate::json::to_string(other.get(&found.names, "id")).trim_matches('"') == id;
        let other = found.rows.iter().find(same).unwrap_or_else(|| panic!("the row {id} is not there"));
        for name in rows.names.iter().filter(|name| !subject.inexact.contains(&&***name)) {
            let (wanted, got) = (row.get(&rows.names, name), other.get(&found.names, name));
            assert_eq!(crate::json::to_string(got), crate::json::to_string(wanted), "{name} of the row {id}");
        }
    }
}

async fn a_refused_row_spoils_nothing(subject: &Subject) {
    let job = Job::numbered(subject, "refused", "n", WriteMode::Create).await;
    let mut open = job.writer.open("0").await.expect("a chunk is opened");
    open.attempt(numbered(0, 5)).await.expect("good rows are written");
    let mut bad = numbered(5, 10);
    bad.rows[2] = Row::Cells(vec![Value::text("no number"), Value::text("bad")]);
    let error = open.attempt(bad).await.expect_err("a text is no integer");
    assert_eq!(error.kind(), ErrorKind::Rejected, "{error:?}");
    open.attempt(numbered(10, 15)).await.expect("good rows are written after bad ones");
    assert_eq!(open.commit().await.expect("the chunk is committed").rows, 10);
    job.finish().await;
    assert_eq!(job.rows().await, expected(&[numbered(0, 5), numbered(10, 15)]));
}
