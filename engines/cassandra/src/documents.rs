//! Documents: the port.

use std::sync::Arc;

use async_trait::async_trait;
use flare_core::{
    Result, Sequence, StreamId,
    document::{Change, DocumentWrite, WriteBody, Written, WrittenChange},
    port::{ChangeListener, DocumentPage, DocumentQuery, Documents, FeedPage, FeedQuery},
    url::DocumentUrl,
};
use jiff::Timestamp;

use crate::{
    CassandraStore, Core, feed,
    group::{self, Content},
    heads::{self, Head},
    list,
};

#[async_trait]
impl Documents for CassandraStore {
    async fn write(&self, writes: Vec<DocumentWrite>) -> Result<Vec<Written>> {
        if writes.is_empty() {
            return Ok(Vec::new());
        }
        let weight = writes.iter().map(weight).sum();
        self.writes.run(writes, weight).await
    }

    async fn get(&self, stream: StreamId, url: &DocumentUrl) -> Result<Option<Change>> {
        // What a head names is gone when it was replaced and swept in between: read again.
        loop {
            let Some(head) = self.core.head_of(stream, url).await? else { return Ok(None) };
            if let Some(change) = self.core.change_of_head(stream, url.clone(), &head).await? {
                return Ok(Some(change));
            }
            if self.core.head_of(stream, url).await? == Some(head) {
                return Ok(None);
            }
        }
    }

    async fn change_at(&self, stream: StreamId, sequence: Sequence) -> Result<Option<Change>> {
        match feed::read_one(&self.core.connection, stream, sequence.0).await? {
            Some(item) => feed::change(&self.core.connection, stream, item).await,
            None => Ok(None),
        }
    }

    async fn next_change(&self, stream: StreamId, url: &DocumentUrl, after: Sequence) -> Result<Option<Change>> {
        let Some(head) = self.core.head_of(stream, url).await?.filter(|head| head.sequence > after.0) else {
            return Ok(None);
        };
        // Each change knows the one that it replaced.
        let mut next = None;
        let mut replaces = head.replaces;
        while let Some(older) = replaces.filter(|older| *older > after.0) {
            let Some(item) = feed::read_one(&self.core.connection, stream, older).await? else { break };
            replaces = item.head.replaces;
            next = Some(item);
        }
        if let Some(item) = next
            && let Some(change) = feed::change(&self.core.connection, stream, item).await?
        {
            return Ok(Some(change));
        }
        self.core.change_of_head(stream, url.clone(), &head).await
    }

    async fn page(&self, stream: StreamId, query: &DocumentQuery) -> Result<DocumentPage> {
        list::page(&self.core, stream, query).await
    }

    async fn feed(&self, stream: StreamId, query: FeedQuery) -> Result<FeedPage> {
        feed::page(&self.core, stream, &query).await
    }

    async fn sequence_at(&self, time: Timestamp) -> Result<Sequence> {
        self.core.clock_at(time).await
    }

    async fn sweep(&self, older_than: Timestamp) -> Result<u64> {
        self.core.sweep(older_than).await
    }

    fn head(&self) -> Sequence {
        self.core.follower.head()
    }

    fn listen(&self, listener: Arc<dyn ChangeListener>) {
        self.core.follower.listen(listener);
    }
}

/// What a write adds to a group.
fn weight(write: &DocumentWrite) -> usize {
    const ROW_BYTES: usize = 200;
    let content = match &write.body {
        WriteBody::Put { content, .. } => content.len(),
        WriteBody::Delete { .. } => 0,
    };
    ROW_BYTES + write.url.as_str().len() + content
}

impl Core {
    async fn head_of(&self, stream: StreamId, url: &DocumentUrl) -> Result<Option<Head>> {
        let Some(common) = self.common_chars(stream).await? else { return Ok(None) };
        let found = heads::read(&self.connection, stream, common, std::iter::once(url)).await?;
        Ok(found.into_iter().next().map(|(_, head)| head))
    }

    /// The change that a head names; none if it is gone.
    pub(crate) async fn change_of_head(
        &self,
        stream: StreamId,
        url: DocumentUrl,
        head: &Head,
    ) -> Result<Option<Change>> {
        let content = if head.bytes == 0 && head.deleted {
            Some(Content::default())
        } else {
            group::read_content(&self.connection, head.group, head.position).await?
        };
        Ok(content.map(|content| change(stream, url, head, content)))
    }
}

pub(crate) fn change(stream: StreamId, url: DocumentUrl, head: &Head, content: Content) -> Change {
    let written = WrittenChange {
        sequence: Sequence(head.sequence),
        number: flare_core::DocumentNumber(head.number),
        revision: head.revision,
        replaces: head.replaces.map(Sequence),
    };
    // An empty content is no content for Cassandra.
    let content_of = (!head.deleted).then(|| content.content.unwrap_or_default());
    Change::new(stream, &written, url, head.updated_at, content_of).with_trace(content.trace)
}
