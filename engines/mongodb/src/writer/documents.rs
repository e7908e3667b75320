//! What becomes of writes of documents.

use std::{collections::HashMap, sync::Arc, time::Duration};

use flare_core::{
    DocumentNumber, Error, Result, StreamId,
    document::{Change, DocumentWrite, WriteBody, Written, WrittenChange},
};
use futures_util::TryStreamExt;
use jiff::Timestamp;
use mongodb::bson::{Bson, doc, rawdoc};

use super::{Done, Plan, Writer};
use crate::{
    cache::{Cache, DocumentKey},
    log::Position,
    rows::{self, DocumentHead, change_row, date, int},
    table::Table,
};

/// A document in MongoDB has 16 MiB at most, and ours is more than its content.
const CONTENT_BYTES_MAX: usize = 15 << 20;
/// What a change costs besides its content.
const CHANGE_BYTES: usize = 512;
/// Documents looked up in one call.
const LOOKUP_MAX: usize = 1000;
/// How exactly the clock is kept.
const CLOCK_INTERVAL: Duration = Duration::from_secs(60);

pub(super) fn weight(write: &DocumentWrite) -> usize {
    let content = match &write.body {
        WriteBody::Put { content, .. } => content.len(),
        WriteBody::Delete { .. } => 0,
    };
    CHANGE_BYTES + write.url.as_str().len() + content
}

/// What a plan makes of documents and streams, known once it is committed.
#[derive(Default)]
pub(super) struct Learnt {
    documents: HashMap<DocumentKey, DocumentHead>,
    totals: HashMap<StreamId, u64>,
    clock: Option<Timestamp>,
    pub forgotten: Option<StreamId>,
}

impl Learnt {
    pub fn teach(self, cache: &mut Cache) {
        for (key, head) in self.documents {
            cache.learn_document(key, Some(head));
        }
        for (stream, total) in self.totals {
            cache.learn_total(stream, Some(total));
        }
        if self.clock.is_some() {
            cache.clock = self.clock;
        }
        if let Some(stream) = self.forgotten {
            cache.forget_stream(stream);
        }
    }
}

impl Writer {
    pub(super) async fn plan_documents(
        &self,
        cache: &mut Cache,
        position: Position,
        jobs: &[Vec<DocumentWrite>],
    ) -> Result<Plan> {
        self.look_up(cache, jobs).await?;
        let mut plan = Plan::new(position);
        for job in jobs {
            let answer = match refusal(cache, job) {
                Some(error) => Err(error),
                None => {
                    plan.note_clock(cache, job);
                    Ok(Done::Written(job.iter().map(|write| plan.decide(cache, write)).collect()))
                }
            };
            plan.answers.push(answer);
        }
        plan.put_documents();
        Ok(plan)
    }

    /// Reads what the cache does not know.
    async fn look_up(&self, cache: &mut Cache, jobs: &[Vec<DocumentWrite>]) -> Result<()> {
        let mut streams: Vec<StreamId> = jobs.iter().flatten().map(|write| write.stream).collect();
        streams.sort_unstable();
        streams.dedup();
        for stream in streams.into_iter().filter(|stream| cache.total(*stream).is_none()).collect::<Vec<_>>() {
            let total = self.read_total(stream).await?;
            cache.learn_total(stream, total);
        }
        let mut unknown: Vec<DocumentKey> = jobs
            .iter()
            .flatten()
            .map(|write| (write.stream, write.url.clone()))
            .filter(|key| cache.document(key).is_none())
            .collect();
        unknown.sort_unstable();
        unknown.dedup();
        for part in unknown.chunks(LOOKUP_MAX) {
            let keys: Vec<Bson> = part
                .iter()
                .map(|(stream, url)| doc! { "stream": stream.to_string(), "url": url.as_str() }.into())
                .collect();
            let rows = self.connection.rows(Table::Documents);
            let find = rows.find(doc! { "_id": { "$in": keys } });
            let read = async { find.await?.try_collect::<Vec<_>>().await };
            let found = self.connection.call("look up documents", read).await?;
            part.iter().for_each(|key| cache.learn_document(key.clone(), None));
            for row in found {
                cache.learn_document(rows::read_document_key(&row)?, Some(DocumentHead::read(&row)?));
            }
        }
        Ok(())
    }

    /// How many documents the stream has; none if it is not there.
    async fn read_total(&self, stream: StreamId) -> Result<Option<u64>> {
        let filter = doc! { "_id": stream.to_string(), "removedAt": { "$exists": false } };
        let rows = self.connection.rows(Table::Streams);
        let find = rows.find_one(filter).projection(doc! { "_id": 1 });
        if self.connection.call("look up a stream", find).await?.is_none() {
            return Ok(None);
        }
        crate::documents::total(&self.connection, stream).await.map(Some)
    }
}

/// Why nothing of the job can be done.
fn refusal(cache: &Cache, job: &[DocumentWrite]) -> Option<Error> {
    job.iter().find_map(|write| {
        if cache.total(write.stream).flatten().is_none() {
            return Some(Error::not_found(format!("stream {} does not exist", write.stream)));
        }
        let bytes = weight(write);
        (bytes > CONTENT_BYTES_MAX).then(|| {
            let url = write.url.as_str();
            Error::invalid(format!("MongoDB holds no document as large as {url} with {bytes} bytes"))
        })
    })
}

impl Plan {
    fn decide(&mut self, cache: &Cache, write: &DocumentWrite) -> Written {
        let key = (write.stream, write.url.clone());
        let before = self.learnt.documents.get(&key).copied().or_else(|| cache.document(&key).flatten());
        let (revision, content) = match &write.body {
            WriteBody::Put { revision, content } => {
                if before.is_some_and(|before| *revision <= before.revision) {
                    return Written::Unchanged;
                }
                (*revision, Some(content.clone()))
            }
            WriteBody::Delete { revision } => match (before, revision) {
                (None, None) => return Written::Unchanged,
                (None, Some(revision)) => (*revision, None),
                (Some(before), revision) => {
                    let revision = revision.unwrap_or(before.revision);
                    if revision < before.revision || (before.deleted && revision == before.revision) {
                        return Written::Unchanged;
                    }
                    (revision, None)
                }
            },
        };
        let sequence = self.next_sequence();
        let written = WrittenChange {
            sequence,
            number: before.map_or(DocumentNumber(sequence.0), |before| before.number),
            revision,
            replaces: before.map(|before| before.sequence),
        };
        let deleted = content.is_none();
        let was_there = before.is_some_and(|before| !before.deleted);
        let total = self.count(cache, write.stream, was_there, !deleted);
        let head = DocumentHead { number: written.number, sequence, revision, updated_at: write.at, deleted };
        self.learnt.documents.insert(key, head);
        let change = Change::new(write.stream, &written, write.url.clone(), write.at, content);
        let change = change.with_trace(write.trace.clone());
        self.group.rows.put(Table::Changes, change_row(&change, total));
        self.changes.push(Arc::new(change));
        Written::Changed(written)
    }

    /// How many documents the stream has after this change.
    fn count(&mut self, cache: &Cache, stream: StreamId, was_there: bool, is_there: bool) -> u64 {
        let total = self.learnt.totals.entry(stream).or_insert_with(|| cache.total(stream).flatten().unwrap_or(0));
        match (was_there, is_there) {
            (false, true) => *total += 1,
            (true, false) => *total = total.saturating_sub(1),
            _ => {}
        }
        *total
    }

    /// Notes how far the sequences are, from time to time.
    fn note_clock(&mut self, cache: &Cache, job: &[DocumentWrite]) {
        let Some(at) = job.last().map(|write| write.at) else { return };
        let last = self.learnt.clock.or(cache.clock);
        if last.is_none_or(|last| at.duration_since(last).as_secs() >= CLOCK_INTERVAL.as_secs() as i64) {
            self.learnt.clock = Some(at);
            // What comes from here on is later; what was before is not.
            self.clock_row = Some(rawdoc! { "_id": date(at), "sequence": int(self.group.sequence.0) });
        }
    }

    /// One row per document, however often it was written.
    fn put_documents(&mut self) {
        if self.changes.is_empty() {
            return;
        }
        for ((stream, url), head) in &self.learnt.documents {
            self.group.rows.put(Table::Documents, head.row(*stream, url));
        }
        if let Some(row) = self.clock_row.take() {
            self.group.rows.put(Table::Clock, row);
        }
    }
}
