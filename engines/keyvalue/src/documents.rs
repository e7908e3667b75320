//! Documents and their feed.

use std::{ops::ControlFlow, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use flare_core::{
    DocumentNumber, Error, Result, Sequence, StreamId,
    document::{Change, DocumentWrite, WriteBody, Written, WrittenChange},
    outlet::Revisions,
    port::{ChangeListener, DocumentPage, DocumentQuery, Documents, FeedPage, FeedQuery},
    url::DocumentUrl,
};
use jiff::Timestamp;

use crate::{
    Durability, KeyValue, KeyValueStore, Table, blocking,
    history::History,
    keys,
    rows::{self, Head},
    transaction::{Transaction, read_count},
};

#[async_trait]
impl Documents for KeyValueStore {
    async fn write(&self, writes: Vec<DocumentWrite>) -> Result<Vec<Written>> {
        let history = self.history.clone();
        self.writer
            .transact(Durability::Now, move |transaction| {
                history.note_clock(transaction, &writes);
                let mut known = None;
                let mut written = Vec::with_capacity(writes.len());
                for write in writes {
                    if known != Some(write.stream) {
                        require_stream(transaction, write.stream)?;
                        known = Some(write.stream);
                    }
                    written.push(apply(transaction, write, &history)?);
                }
                Ok(written)
            })
            .await
    }

    async fn get(&self, stream: StreamId, url: &DocumentUrl) -> Result<Option<Change>> {
        // The change that a head names is gone when a newer one was written in between: read again.
        loop {
            let Some(row) = self.map.get(Table::Heads, &keys::head(stream, url))? else { return Ok(None) };
            let Some(change) = read_change(&*self.map, stream, Head::decode(&row)?.sequence)? else { continue };
            if change.sequence > self.head() {
                // It is not on disk yet, and nobody must see what a loss of power could take back. A store in trouble
                // shows what it has.
                let _in_trouble = self.writer.transact(Durability::Now, |_| Ok(())).await;
            }
            return Ok(Some(change));
        }
    }

    async fn change_at(&self, stream: StreamId, sequence: Sequence) -> Result<Option<Change>> {
        read_change(&*self.map, stream, sequence)
    }

    async fn next_change(&self, stream: StreamId, url: &DocumentUrl, after: Sequence) -> Result<Option<Change>> {
        let Some(mut next) = self.get(stream, url).await?.filter(|newest| newest.sequence > after) else {
            return Ok(None);
        };
        // Each change knows the one that it replaced.
        while let Some(older) = next.replaces.filter(|older| *older > after) {
            match read_change(&*self.map, stream, older)? {
                Some(older) => next = older,
                None => break,
            }
        }
        Ok(Some(next))
    }

    async fn page(&self, stream: StreamId, query: &DocumentQuery) -> Result<DocumentPage> {
        let (map, query) = (self.map.clone(), query.clone());
        blocking(move || page(&*map, stream, &query)).await
    }

    async fn feed(&self, stream: StreamId, query: FeedQuery) -> Result<FeedPage> {
        let (map, head) = (self.map.clone(), self.head());
        if query.after >= head || query.limit == 0 {
            return Ok(FeedPage { changes: Vec::new(), until: query.after });
        }
        blocking(move || feed(&*map, stream, &query, head)).await
    }

    async fn sequence_at(&self, time: Timestamp) -> Result<Sequence> {
        self.clock_at(time)
    }

    async fn sweep(&self, older_than: Timestamp) -> Result<u64> {
        self.sweep_changes(older_than).await
    }

    fn head(&self) -> Sequence {
        self.writer.head()
    }

    fn listen(&self, listener: Arc<dyn ChangeListener>) {
        self.writer.listen(listener);
    }
}

fn require_stream(transaction: &mut Transaction<'_>, stream: StreamId) -> Result<()> {
    match transaction.get(Table::Meta, &keys::stream(stream))? {
        Some(_) => Ok(()),
        None => Err(Error::not_found(format!("stream {stream} does not exist"))),
    }
}

fn apply(transaction: &mut Transaction<'_>, write: DocumentWrite, history: &History) -> Result<Written> {
    let head_key = keys::head(write.stream, &write.url);
    let before = transaction.get(Table::Heads, &head_key)?.map(|row| Head::decode(&row)).transpose()?;
    let (revision, content) = match write.body {
        WriteBody::Put { revision, content } => {
            if before.is_some_and(|before| revision <= before.revision) {
                return Ok(Written::Unchanged);
            }
            (revision, Some(content))
        }
        WriteBody::Delete { revision } => match (before, revision) {
            (None, None) => return Ok(Written::Unchanged),
            (None, Some(revision)) => (revision, None),
            (Some(before), revision) => {
                let revision = revision.unwrap_or(before.revision);
                if revision < before.revision || (before.deleted && revision == before.revision) {
                    return Ok(Written::Unchanged);
                }
                (revision, None)
            }
        },
    };
    let sequence = transaction.next_sequence();
    let head = Head {
        number: before.map_or(DocumentNumber(sequence.0), |before| before.number),
        sequence,
        revision,
        updated_at: write.at,
        deleted: content.is_none(),
    };
    let was_there = before.is_some_and(|before| !before.deleted);
    if was_there == head.deleted {
        transaction.change_count(write.stream, if head.deleted { -1 } else { 1 });
    }
    let replaces = before.map(|before| before.sequence);
    if let Some(replaced) = replaces.filter(|replaced| history.is_over(*replaced)) {
        transaction.remove(Table::Changes, keys::change(write.stream, replaced));
    }
    transaction.put(Table::Heads, head_key, head.encode());
    let row = rows::encode_change(&head, replaces, &write.url, content.as_ref(), write.trace.as_deref());
    transaction.put(Table::Changes, keys::change(write.stream, sequence), row);
    let written = WrittenChange { sequence, number: head.number, revision, replaces };
    let change = Change::new(write.stream, &written, write.url, write.at, content).with_trace(write.trace);
    transaction.announce(change);
    Ok(Written::Changed(written))
}

pub(crate) fn read_change(map: &dyn KeyValue, stream: StreamId, sequence: Sequence) -> Result<Option<Change>> {
    map.get(Table::Changes, &keys::change(stream, sequence))?
        .map(|row| rows::decode_change(stream, sequence, row))
        .transpose()
}

fn page(map: &dyn KeyValue, stream: StreamId, query: &DocumentQuery) -> Result<DocumentPage> {
    // Documents that changed in between end a page; one that would be empty by that is read again.
    loop {
        if let Some(page) = try_page(map, stream, query)? {
            return Ok(page);
        }
    }
}

fn try_page(map: &dyn KeyValue, stream: StreamId, query: &DocumentQuery) -> Result<Option<DocumentPage>> {
    let prefix = keys::head_prefix(stream, &query.prefix);
    let after = query.after.as_ref().map(|url| keys::after(&keys::head(stream, url)));
    let is_wanted = |key: &[u8]| after.as_ref().is_none_or(|after| key >= &after[..]);
    let counted = if query.prefix.is_empty() && query.changed_since.is_none() {
        Some(read_count(map.get(Table::Meta, &keys::count(stream))?.as_ref())? as usize)
    } else {
        None
    };
    let (mut wanted, mut seen, mut passed) = (Vec::new(), 0, 0);
    let mut failure = None;
    // Whoever counts sees them all.
    let from = after.as_ref().filter(|after| counted.is_some() && **after > prefix).unwrap_or(&prefix);
    map.scan(Table::Heads, from, &keys::after_prefix(&prefix), &mut |key, row| {
        let head = match Head::decode(&row) {
            Ok(head) => head,
            Err(error) => {
                failure = Some(error);
                return ControlFlow::Break(());
            }
        };
        if !head.deleted && query.changed_since.is_none_or(|since| head.updated_at >= since) {
            seen += 1;
            if is_wanted(&key) {
                if passed >= query.offset && wanted.len() < query.limit {
                    wanted.push(head.sequence);
                }
                passed += 1;
            }
        }
        if counted.is_some() && wanted.len() >= query.limit {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    if let Some(error) = failure {
        return Err(error);
    }
    let is_empty = wanted.is_empty();
    let mut documents = Vec::with_capacity(wanted.len());
    let mut bytes = 0;
    for sequence in wanted {
        if query.bytes_max.is_some_and(|max| bytes >= max) {
            break;
        }
        let Some(change) = read_change(map, stream, sequence)? else { break };
        bytes += change.memory_bytes();
        documents.push(change);
    }
    let is_read = is_empty || !documents.is_empty();
    Ok(is_read.then(|| DocumentPage { documents, total: counted.unwrap_or(seen) }))
}

/// The rows that a look into the feed passes at most, so that one with many replaced changes does not take forever.
const FEED_ROWS_MAX: usize = 8192;

fn feed(map: &dyn KeyValue, stream: StreamId, query: &FeedQuery, head: Sequence) -> Result<FeedPage> {
    let mut page = FeedPage { changes: Vec::new(), until: head };
    let (from, to) = (keys::change(stream, query.after.next()), keys::change(stream, head.next()));
    let (mut bytes, mut looked) = (0, 0);
    let mut failure = None;
    map.scan(Table::Changes, &from, &to, &mut |key, row| {
        looked += 1;
        let length = row.len();
        match is_newest(map, stream, &key, row, head) {
            Ok((change, is_newest)) if is_newest || query.revisions == Revisions::All => {
                bytes += length;
                page.changes.push(change);
            }
            Ok(_) => {}
            Err(error) => failure = Some(error),
        }
        let goes_on = page.changes.len() < query.limit && bytes < query.bytes_max && looked < FEED_ROWS_MAX;
        if failure.is_none() && goes_on {
            return ControlFlow::Continue(());
        }
        page.until = keys::sequence_of_change(&key);
        ControlFlow::Break(())
    })?;
    failure.map_or(Ok(page), Err)
}

/// Reads a change, and whether no newer one has replaced it. One past `durable` may still be lost, and replaces nothing.
pub(crate) fn is_newest(
    map: &dyn KeyValue,
    stream: StreamId,
    key: &[u8],
    row: Bytes,
    durable: Sequence,
) -> Result<(Change, bool)> {
    let change = rows::decode_change(stream, keys::sequence_of_change(key), row)?;
    let head = map.get(Table::Heads, &keys::head(stream, &change.url))?;
    let mut newest = head.map(|row| Head::decode(&row)).transpose()?.map(|head| head.sequence);
    while let Some(lost) = newest.filter(|newest| *newest > durable) {
        newest = read_change(map, stream, lost)?.and_then(|lost| lost.replaces);
    }
    let is_newest = newest == Some(change.sequence);
    Ok((change, is_newest))
}
