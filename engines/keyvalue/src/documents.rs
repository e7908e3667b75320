//! Documents and their feed.

use std::{ops::ControlFlow, sync::Arc};

use async_trait::async_trait;
use flare_core::{
    DocumentNumber, Error, Result, Sequence, StreamId,
    document::{Change, DocumentWrite, WriteBody, Written, WrittenChange},
    port::{ChangeListener, DocumentPage, DocumentQuery, Documents},
    url::DocumentUrl,
};

use crate::{
    Durability, KeyValue, KeyValueStore, Table, keys,
    rows::{self, Head},
    transaction::{Transaction, read_count},
};

#[async_trait]
impl Documents for KeyValueStore {
    async fn write(&self, writes: Vec<DocumentWrite>) -> Result<Vec<Written>> {
        self.writer
            .transact(Durability::Now, move |transaction| {
                let mut known = None;
                let mut written = Vec::with_capacity(writes.len());
                for write in writes {
                    if known != Some(write.stream) {
                        require_stream(transaction, write.stream)?;
                        known = Some(write.stream);
                    }
                    written.push(apply(transaction, write)?);
                }
                Ok(written)
            })
            .await
    }

    async fn get(&self, stream: StreamId, url: &DocumentUrl) -> Result<Option<Change>> {
        // The change that a head names is gone when a newer one was written in between: read again.
        loop {
            let Some(row) = self.map.get(Table::Heads, &keys::head(stream, url))? else { return Ok(None) };
            if let Some(change) = read_change(&*self.map, stream, Head::decode(&row)?.sequence)? {
                return Ok(Some(change));
            }
        }
    }

    async fn page(&self, stream: StreamId, query: &DocumentQuery) -> Result<DocumentPage> {
        let (map, query) = (self.map.clone(), query.clone());
        blocking(move || page(&*map, stream, &query)).await
    }

    async fn feed(&self, stream: StreamId, after: Sequence, limit: usize, bytes_max: usize) -> Result<Vec<Change>> {
        let (map, head) = (self.map.clone(), self.head());
        if after >= head || limit == 0 {
            return Ok(Vec::new());
        }
        blocking(move || feed(&*map, stream, after, head, limit, bytes_max)).await
    }

    fn head(&self) -> Sequence {
        self.writer.head()
    }

    fn listen(&self, listener: Arc<dyn ChangeListener>) {
        self.writer.listen(listener);
    }
}

/// Runs a read of unknown length off the runtime's threads.
async fn blocking<R: Send + 'static>(read: impl FnOnce() -> Result<R> + Send + 'static) -> Result<R> {
    tokio::task::spawn_blocking(read)
        .await
        .unwrap_or_else(|error| Err(Error::internal("a read of the store did not finish").because(error)))
}

fn require_stream(transaction: &Transaction<'_>, stream: StreamId) -> Result<()> {
    match transaction.get(Table::Meta, &keys::stream(stream))? {
        Some(_) => Ok(()),
        None => Err(Error::not_found(format!("stream {stream} does not exist"))),
    }
}

fn apply(transaction: &mut Transaction<'_>, write: DocumentWrite) -> Result<Written> {
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
    if let Some(replaced) = replaces {
        transaction.remove(Table::Changes, keys::change(write.stream, replaced));
    }
    transaction.put(Table::Heads, head_key, head.encode());
    let row = rows::encode_change(&head, &write.url, content.as_ref());
    transaction.put(Table::Changes, keys::change(write.stream, sequence), row);
    let written = WrittenChange { sequence, number: head.number, revision, replaces };
    transaction.announce(Change::new(write.stream, &written, write.url, write.at, content));
    Ok(Written::Changed(written))
}

fn read_change(map: &dyn KeyValue, stream: StreamId, sequence: Sequence) -> Result<Option<Change>> {
    map.get(Table::Changes, &keys::change(stream, sequence))?
        .map(|row| rows::decode_change(stream, sequence, row))
        .transpose()
}

fn page(map: &dyn KeyValue, stream: StreamId, query: &DocumentQuery) -> Result<DocumentPage> {
    let from = keys::head_prefix(stream, &query.prefix);
    let counted = if query.prefix.is_empty() && query.changed_since.is_none() {
        Some(read_count(map.get(Table::Meta, &keys::count(stream))?.as_ref())? as usize)
    } else {
        None
    };
    let mut wanted = Vec::new();
    let mut seen = 0;
    let mut failure = None;
    map.scan(Table::Heads, &from, &keys::after_prefix(&from), &mut |_, row| {
        let head = match Head::decode(&row) {
            Ok(head) => head,
            Err(error) => {
                failure = Some(error);
                return ControlFlow::Break(());
            }
        };
        if !head.deleted && query.changed_since.is_none_or(|since| head.updated_at >= since) {
            if seen >= query.offset && wanted.len() < query.limit {
                wanted.push(head.sequence);
            }
            seen += 1;
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
    let mut documents = Vec::with_capacity(wanted.len());
    let mut bytes = 0;
    for sequence in wanted {
        if query.bytes_max.is_some_and(|max| bytes >= max) {
            break;
        }
        // A document that changed in between is left out; it will be on the page that is read next.
        let Some(change) = read_change(map, stream, sequence)? else { continue };
        bytes += change.memory_bytes();
        documents.push(change);
    }
    Ok(DocumentPage { documents, total: counted.unwrap_or(seen) })
}

fn feed(
    map: &dyn KeyValue,
    stream: StreamId,
    after: Sequence,
    head: Sequence,
    limit: usize,
    bytes_max: usize,
) -> Result<Vec<Change>> {
    let (from, to) = (keys::change(stream, after.next()), keys::change(stream, head.next()));
    let mut changes = Vec::new();
    let mut bytes = 0;
    let mut failure = None;
    map.scan(Table::Changes, &from, &to, &mut |key, row| {
        bytes += row.len();
        let sequence = keys::tail::<8>(&key).map_or(Sequence::START, |tail| Sequence(u64::from_be_bytes(tail)));
        match rows::decode_change(stream, sequence, row) {
            Ok(change) => changes.push(change),
            Err(error) => failure = Some(error),
        }
        if failure.is_none() && changes.len() < limit && bytes < bytes_max {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })?;
    failure.map_or(Ok(changes), Err)
}
