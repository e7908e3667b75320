//! Streams and outlets in memory: what the hot path reads. Kept right by the writes, filled from the store at start.

use std::{collections::BTreeMap, sync::Arc};

use flare_core::{
    OutletId, StreamId,
    outlet::Outlet,
    pattern_index::{Overlap, PatternIndex},
    stream::Stream,
    url::DocumentUrl,
};
use parking_lot::RwLock;

use crate::node::Page;

#[derive(Default)]
pub(crate) struct Registry {
    inner: RwLock<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Finds the stream of a URL.
    index: PatternIndex<Arc<Stream>>,
    streams: BTreeMap<StreamId, Entry>,
    outlets: usize,
}

struct Entry {
    stream: Arc<Stream>,
    outlets: BTreeMap<OutletId, Arc<Outlet>>,
}

impl Registry {
    pub fn insert_stream(&self, stream: Arc<Stream>) -> Result<(), Overlap> {
        let mut inner = self.inner.write();
        inner.index.insert(&stream.endpoint, stream.clone())?;
        inner.streams.insert(stream.id, Entry { stream, outlets: BTreeMap::new() });
        Ok(())
    }

    pub fn remove_stream(&self, id: StreamId) {
        let mut inner = self.inner.write();
        if let Some(entry) = inner.streams.remove(&id) {
            inner.index.remove(&entry.stream.endpoint);
        }
    }

    /// The stream that the URL is a document of.
    pub fn stream_of(&self, url: &DocumentUrl) -> Option<Arc<Stream>> {
        self.inner.read().index.find(url).cloned()
    }

    pub fn stream(&self, id: StreamId) -> Option<Arc<Stream>> {
        self.inner.read().streams.get(&id).map(|entry| entry.stream.clone())
    }

    pub fn streams(&self, offset: usize, limit: usize) -> Page<Arc<Stream>> {
        let inner = self.inner.read();
        let entries = inner.streams.values().skip(offset).take(limit);
        Page { items: entries.map(|entry| entry.stream.clone()).collect(), total: inner.streams.len() }
    }

    /// Adds the outlet or puts it in the place of the one with the same id. False if its stream is gone.
    pub fn put_outlet(&self, outlet: Arc<Outlet>) -> bool {
        let mut inner = self.inner.write();
        let Some(entry) = inner.streams.get_mut(&outlet.stream) else { return false };
        if entry.outlets.insert(outlet.id, outlet).is_none() {
            inner.outlets += 1;
        }
        true
    }

    pub fn remove_outlet(&self, stream: StreamId, id: OutletId) -> Option<Arc<Outlet>> {
        let mut inner = self.inner.write();
        let removed = inner.streams.get_mut(&stream)?.outlets.remove(&id)?;
        inner.outlets -= 1;
        Some(removed)
    }

    pub fn outlet(&self, stream: StreamId, id: OutletId) -> Option<Arc<Outlet>> {
        self.inner.read().streams.get(&stream)?.outlets.get(&id).cloned()
    }

    /// None if the stream is not there.
    pub fn outlets(&self, stream: StreamId, offset: usize, limit: usize) -> Option<Page<Arc<Outlet>>> {
        let inner = self.inner.read();
        let entry = inner.streams.get(&stream)?;
        let items = entry.outlets.values().skip(offset).take(limit).cloned().collect();
        Some(Page { items, total: entry.outlets.len() })
    }

    pub fn outlet_ids(&self) -> Vec<(StreamId, OutletId)> {
        let inner = self.inner.read();
        inner.streams.iter().flat_map(|(stream, entry)| entry.outlets.keys().map(|outlet| (*stream, *outlet))).collect()
    }

    pub fn counts(&self) -> (usize, usize) {
        let inner = self.inner.read();
        (inner.streams.len(), inner.outlets)
    }
}
