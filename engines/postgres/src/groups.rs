//! Group commit: the writes of many callers become changes in one turn at the head.
//!
//! The newest states of all documents of the group are read with the head locked; what is a change is decided here, in
//! order, because one group may have several writes of one document. Then everything is written by one statement for
//! each table.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use flare_core::{
    DocumentNumber, Error, ErrorKind, Result, Sequence, StreamId,
    document::{Change, DocumentWrite, WriteBody, Written, WrittenChange},
    revision::Revision,
    trace::Trace,
    url::DocumentUrl,
};
use jiff::Timestamp;
use tokio_postgres::Row;

use crate::{
    Inner,
    connection::Call,
    partitions,
    values::{Id, Json, Number, Time, Url, bigint, sequence},
    writer::{Head, Plan},
};

/// How exactly the clock is kept.
const CLOCK_INTERVAL: Duration = Duration::from_secs(60);

const STREAMS: &str = "SELECT id FROM streams WHERE id = ANY($1)";
const STATES: &str = "SELECT w.place, d.number, d.sequence, d.revision, d.deleted \
    FROM unnest($1::uuid[], $2::text[]) WITH ORDINALITY AS w (stream, url, place) CROSS JOIN LATERAL \
    (SELECT * FROM documents d WHERE d.stream = w.stream AND left(d.url, 2000) = left(w.url, 2000) AND d.url = w.url \
     LIMIT 1) d";
const ADD_CHANGES: &str = "INSERT INTO changes \
    (sequence, stream, number, replaces, revision, updated_at, bytes, url, content, trace) \
    SELECT c.sequence, c.stream, c.number, c.replaces, c.revision, c.updated_at, c.bytes, \
    c.url, c.content, c.trace FROM unnest($1::bigint[], $2::uuid[], $3::bigint[], $4::bigint[], $5::numeric[], \
    $6::timestamptz[], $7::integer[], $8::text[], $9::json[], $10::text[]) \
    AS c (sequence, stream, number, replaces, revision, updated_at, bytes, url, content, trace)";
const ADD_DOCUMENTS: &str = "INSERT INTO documents (number, sequence, revision, updated_at, deleted, stream, url) \
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::numeric[], $4::timestamptz[], $5::boolean[], $6::uuid[], \
    $7::text[])";
const CHANGE_DOCUMENTS: &str = "UPDATE documents d SET sequence = n.sequence, revision = n.revision, \
    updated_at = n.updated_at, deleted = n.deleted FROM unnest($1::bigint[], $2::bigint[], $3::numeric[], \
    $4::timestamptz[], $5::boolean[]) AS n (number, sequence, revision, updated_at, deleted) WHERE d.number = n.number";
const COUNT: &str = "UPDATE streams s SET documents = s.documents + n.by \
    FROM unnest($1::uuid[], $2::bigint[]) AS n (id, by) WHERE s.id = n.id";
const MOVE_HEAD: &str = "UPDATE head SET sequence = $1";
const NOTE_CLOCK: &str = "INSERT INTO clock VALUES ($1, $2) ON CONFLICT DO NOTHING";
pub(crate) const NOTIFY: &str = "SELECT pg_notify($1, $2)";

/// The writes of one caller.
pub(crate) type Job = Vec<DocumentWrite>;
type Place = (StreamId, DocumentUrl);

/// What the group commit of this node remembers.
#[derive(Default)]
pub(crate) struct Groups {
    /// When the clock was last noted, in milliseconds.
    clock_at: AtomicI64,
}

/// Commits the jobs of one batch, and answers each.
pub(crate) async fn commit(inner: &Inner, jobs: Vec<Job>) -> Result<Vec<Result<Vec<Written>>>> {
    match commit_group(inner, &jobs).await {
        // One of them has something that the server cannot keep: the others must not suffer.
        Err(error) if error.kind() == ErrorKind::Invalid && jobs.len() > 1 => {
            let mut answers = Vec::with_capacity(jobs.len());
            for job in jobs {
                let answer = commit_group(inner, &[job]).await;
                answers.push(answer.and_then(|mut answers| answers.pop().unwrap_or_else(|| Ok(Vec::new()))));
            }
            Ok(answers)
        }
        outcome => outcome,
    }
}

async fn commit_group(inner: &Inner, jobs: &[Job]) -> Result<Vec<Result<Vec<Written>>>> {
    check_texts(jobs)?;
    let (streams, places) = mentioned(jobs);
    let (ids, urls): (Vec<Id>, Vec<Url>) =
        places.iter().map(|(stream, url)| (Id::from(*stream), Url(url.clone()))).unzip();
    let reads = [Call::new(STREAMS).with(streams), Call::new(STATES).with(ids).with(urls)];
    let mut made_room = false;
    loop {
        let turn = inner.writer.turn(&reads, |head, rows| {
            let known = read_streams(&rows[0])?;
            let states = read_states(&rows[1], &places)?;
            let group = Group::decide(head, &known, states, jobs);
            let clock = inner.groups.clock_is_due(jobs).map(|at| (at, head.sequence));
            let calls = group.calls(&inner.channel, &inner.writer.id, clock);
            Ok(Plan { calls, answer: (group, head) })
        });
        let (group, head) = match turn.await {
            // The sequences have outrun the partitions: make some, and try again.
            Err(error) if !made_room && partitions::are_missing(&error) => {
                partitions::make_room(&inner.pool, jobs.iter().map(Vec::len).sum()).await?;
                made_room = true;
                continue;
            }
            outcome => outcome?,
        };
        if !group.changes.is_empty() {
            inner.groups.clock_was_noted(jobs);
        }
        let swept: Vec<i64> = group
            .changes
            .iter()
            .filter_map(|change| change.replaces)
            .filter(|old| *old <= head.swept_to)
            .map(bigint)
            .collect();
        inner.broom.add(swept);
        inner.follower.committed(head.sequence, group.changes);
        return Ok(group.answers);
    }
}

/// The server keeps text: what is none is said here, not in the middle of a group.
fn check_texts(jobs: &[Job]) -> Result<()> {
    for write in jobs.iter().flatten() {
        if let WriteBody::Put { content, .. } = &write.body
            && (std::str::from_utf8(content).is_err() || content.contains(&0))
        {
            return Err(Error::invalid(format!("the document {} is not text in UTF-8", write.url)));
        }
    }
    Ok(())
}

/// The streams and the documents that the jobs speak of, each once.
fn mentioned(jobs: &[Job]) -> (Vec<Id>, Vec<Place>) {
    let mut streams: Vec<Id> = Vec::new();
    let mut seen = HashSet::new();
    let mut places = Vec::new();
    for write in jobs.iter().flatten() {
        let stream = Id::from(write.stream);
        if !streams.contains(&stream) {
            streams.push(stream);
        }
        if seen.insert((write.stream, write.url.as_str())) {
            places.push((write.stream, write.url.clone()));
        }
    }
    (streams, places)
}

fn read_streams(rows: &[Row]) -> Result<HashSet<StreamId>> {
    rows.iter().map(|row| Ok(StreamId::from_bytes(row.try_get::<_, Id>(0).map_err(unreadable)?.0))).collect()
}

fn read_states(rows: &[Row], places: &[Place]) -> Result<HashMap<Place, State>> {
    let mut states = HashMap::with_capacity(rows.len());
    for row in rows {
        let place = row.try_get::<_, i64>(0).map_err(unreadable)? as usize - 1;
        let state = State {
            number: DocumentNumber(sequence(row.try_get(1).map_err(unreadable)?).0),
            sequence: sequence(row.try_get(2).map_err(unreadable)?),
            revision: row.try_get::<_, Number>(3).map_err(unreadable)?.0,
            deleted: row.try_get(4).map_err(unreadable)?,
            updated_at: Timestamp::UNIX_EPOCH,
            origin: Origin::Stored,
        };
        states.insert(places[place].clone(), state);
    }
    Ok(states)
}

pub(crate) fn unreadable(error: tokio_postgres::Error) -> Error {
    Error::internal("a row of PostgreSQL cannot be read").because(error)
}

/// The newest state of a document.
#[derive(Clone, Copy, Debug)]
struct State {
    number: DocumentNumber,
    sequence: Sequence,
    revision: Revision,
    deleted: bool,
    updated_at: Timestamp,
    origin: Origin,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Origin {
    /// As the table has it.
    Stored,
    /// The table has an older state.
    Changed,
    /// The table does not have the document.
    New,
}

/// What a group comes to.
struct Group {
    answers: Vec<Result<Vec<Written>>>,
    changes: Vec<Arc<Change>>,
    states: HashMap<Place, State>,
    counts: HashMap<StreamId, i64>,
}

impl Group {
    fn decide(head: Head, known: &HashSet<StreamId>, states: HashMap<Place, State>, jobs: &[Job]) -> Self {
        let mut group =
            Self { answers: Vec::with_capacity(jobs.len()), changes: Vec::new(), states, counts: HashMap::new() };
        let mut last = head.sequence;
        for job in jobs {
            let missing = job.iter().find(|write| !known.contains(&write.stream));
            let answer = match missing {
                Some(write) => Err(Error::not_found(format!("stream {} does not exist", write.stream))),
                None => Ok(job.iter().map(|write| group.apply(write, &mut last)).collect()),
            };
            group.answers.push(answer);
        }
        group
    }

    fn apply(&mut self, write: &DocumentWrite, last: &mut Sequence) -> Written {
        let place = (write.stream, write.url.clone());
        let before = self.states.get(&place).copied();
        let Some((revision, content)) = news(before.as_ref(), &write.body) else { return Written::Unchanged };
        *last = last.next();
        let deleted = content.is_none();
        let was_there = before.is_some_and(|before| !before.deleted);
        if was_there == deleted {
            *self.counts.entry(write.stream).or_default() += if deleted { -1 } else { 1 };
        }
        let written = WrittenChange {
            sequence: *last,
            number: before.map_or(DocumentNumber(last.0), |before| before.number),
            revision,
            replaces: before.map(|before| before.sequence),
        };
        let origin = match before.map(|before| before.origin) {
            None | Some(Origin::New) => Origin::New,
            Some(Origin::Stored | Origin::Changed) => Origin::Changed,
        };
        let number = written.number;
        self.states.insert(place, State { number, sequence: *last, revision, deleted, updated_at: write.at, origin });
        let change = Change::new(write.stream, &written, write.url.clone(), write.at, content);
        self.changes.push(Arc::new(change.with_trace(write.trace.clone())));
        Written::Changed(written)
    }

    /// The statements that write it all; none if nothing has changed.
    fn calls(&self, channel: &str, writer: &Id, clock: Option<(Timestamp, Sequence)>) -> Vec<Call> {
        let Some(last) = self.changes.last() else { return Vec::new() };
        let mut calls = vec![add_changes(&self.changes)];
        calls.extend(self.documents(Origin::New));
        calls.extend(self.documents(Origin::Changed));
        if !self.counts.is_empty() {
            let (ids, counts): (Vec<Id>, Vec<i64>) = self.counts.iter().map(|(id, by)| (Id::from(*id), *by)).unzip();
            calls.push(Call::new(COUNT).with(ids).with(counts));
        }
        if let Some((at, sequence)) = clock {
            calls.push(Call::new(NOTE_CLOCK).with(Time(at)).with(bigint(sequence)));
        }
        calls.push(Call::new(MOVE_HEAD).with(bigint(last.sequence)));
        calls.push(Call::new(NOTIFY).with(channel.to_owned()).with(note(writer, last.sequence)));
        calls
    }

    fn documents(&self, origin: Origin) -> Option<Call> {
        let mut states: Vec<_> = self.states.iter().filter(|(_, state)| state.origin == origin).collect();
        if states.is_empty() {
            return None;
        }
        // Neighbours in the table are written one after another.
        states.sort_unstable_by_key(|(_, state)| state.number);
        let sql = if origin == Origin::New { ADD_DOCUMENTS } else { CHANGE_DOCUMENTS };
        let all = || states.iter().map(|(_, state)| state);
        let call = Call::new(sql)
            .with(all().map(|state| bigint(Sequence(state.number.0))).collect::<Vec<_>>())
            .with(all().map(|state| bigint(state.sequence)).collect::<Vec<_>>())
            .with(all().map(|state| Number(state.revision)).collect::<Vec<_>>())
            .with(all().map(|state| Time(state.updated_at)).collect::<Vec<_>>())
            .with(all().map(|state| state.deleted).collect::<Vec<_>>());
        if origin == Origin::Changed {
            return Some(call);
        }
        let ids = states.iter().map(|((stream, _), _)| Id::from(*stream)).collect::<Vec<_>>();
        let urls = states.iter().map(|((_, url), _)| Url(url.clone())).collect::<Vec<_>>();
        Some(call.with(ids).with(urls))
    }
}

/// What a notification says: who has written, and up to where.
pub(crate) fn note(writer: &Id, head: Sequence) -> String {
    format!("{:032x} {head}", u128::from_be_bytes(writer.0))
}

/// What the write makes of the document, if it is news.
fn news(before: Option<&State>, body: &WriteBody) -> Option<(Revision, Option<Bytes>)> {
    match (body, before) {
        (WriteBody::Put { revision, .. }, Some(before)) if *revision <= before.revision => None,
        (WriteBody::Put { revision, content }, _) => Some((*revision, Some(content.clone()))),
        (WriteBody::Delete { revision }, None) => revision.map(|revision| (revision, None)),
        (WriteBody::Delete { revision }, Some(before)) => {
            let revision = revision.unwrap_or(before.revision);
            let is_old = revision < before.revision || (before.deleted && revision == before.revision);
            (!is_old).then_some((revision, None))
        }
    }
}

fn add_changes(changes: &[Arc<Change>]) -> Call {
    let all = || changes.iter();
    Call::new(ADD_CHANGES)
        .with(all().map(|change| bigint(change.sequence)).collect::<Vec<_>>())
        .with(all().map(|change| Id::from(change.stream)).collect::<Vec<_>>())
        .with(all().map(|change| bigint(Sequence(change.number.0))).collect::<Vec<_>>())
        .with(all().map(|change| change.replaces.map(bigint)).collect::<Vec<_>>())
        .with(all().map(|change| Number(change.revision)).collect::<Vec<_>>())
        .with(all().map(|change| Time(change.updated_at)).collect::<Vec<_>>())
        .with(all().map(|change| content_bytes(change)).collect::<Vec<_>>())
        .with(all().map(|change| Url(change.url.clone())).collect::<Vec<_>>())
        .with(all().map(|change| change.content.clone().map(Json)).collect::<Vec<_>>())
        .with(all().map(|change| change.trace.as_deref().map(trace_text)).collect::<Vec<_>>())
}

fn content_bytes(change: &Change) -> i32 {
    change.content.as_ref().map_or(0, |content| i32::try_from(content.len()).unwrap_or(i32::MAX))
}

/// A space separates the two parts: it cannot stand in the first.
fn trace_text(trace: &Trace) -> String {
    match trace.state() {
        Some(state) => format!("{} {state}", trace.parent()),
        None => trace.parent().to_owned(),
    }
}

impl Groups {
    fn clock_is_due(&self, jobs: &[Job]) -> Option<Timestamp> {
        let at = jobs.iter().flatten().last()?.at;
        let since = at.as_millisecond().saturating_sub(self.clock_at.load(Ordering::Relaxed));
        (since >= CLOCK_INTERVAL.as_millis() as i64).then_some(at)
    }

    fn clock_was_noted(&self, jobs: &[Job]) {
        if let Some(at) = self.clock_is_due(jobs) {
            self.clock_at.store(at.as_millisecond(), Ordering::Relaxed);
        }
    }
}
