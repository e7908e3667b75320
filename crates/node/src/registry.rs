//! Streams and outlets in memory: what the hot path reads. Kept right by the writes, filled from the store at start,
//! and again when other nodes have written.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use flare_core::{
    OutletId, StreamId,
    outlet::Outlet,
    pattern_index::{Overlap, PatternIndex},
    stream::Stream,
    url::DocumentUrl,
};
use parking_lot::RwLock;

use crate::node::{Difference, Page};

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
        self.inner.write().insert_stream(stream)
    }

    pub fn remove_stream(&self, id: StreamId) {
        self.inner.write().remove_stream(id);
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
        self.inner.write().put_outlet(outlet)
    }

    pub fn remove_outlet(&self, stream: StreamId, id: OutletId) -> Option<Arc<Outlet>> {
        self.inner.write().remove_outlet(stream, id)
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

    /// All outlets, in id order.
    pub fn all_outlets(&self) -> Vec<Arc<Outlet>> {
        let inner = self.inner.read();
        let mut all: Vec<_> = inner.streams.values().flat_map(|entry| entry.outlets.values().cloned()).collect();
        all.sort_unstable_by_key(|outlet| outlet.id);
        all
    }

    /// Takes these for all that there are, and says what became different.
    pub fn replace(&self, streams: &[Arc<Stream>], outlets: &[Arc<Outlet>]) -> Difference {
        let present: HashSet<StreamId> = streams.iter().map(|stream| stream.id).collect();
        let present_outlets: HashSet<OutletId> = outlets.iter().map(|outlet| outlet.id).collect();
        let mut inner = self.inner.write();
        let mut difference = Difference::default();
        for (stream, entry) in &inner.streams {
            let is_gone = |id: &&OutletId| !present_outlets.contains(*id) || !present.contains(stream);
            difference.removed.extend(entry.outlets.keys().filter(is_gone).map(|id| (*stream, *id)));
        }
        difference.removed_streams = inner.streams.keys().filter(|id| !present.contains(*id)).copied().collect();
        for (stream, outlet) in &difference.removed {
            inner.remove_outlet(*stream, *outlet);
        }
        difference.removed_streams.iter().for_each(|stream| inner.remove_stream(*stream));
        inner.add(streams, outlets, &mut difference);
        difference
    }

    /// Takes up what is new, and says what became different.
    pub fn add(&self, streams: &[Arc<Stream>], outlets: &[Arc<Outlet>]) -> Difference {
        let mut difference = Difference::default();
        self.inner.write().add(streams, outlets, &mut difference);
        difference
    }

    pub fn counts(&self) -> (usize, usize) {
        let inner = self.inner.read();
        (inner.streams.len(), inner.outlets)
    }
}

impl Inner {
    fn insert_stream(&mut self, stream: Arc<Stream>) -> Result<(), Overlap> {
        self.index.insert(&stream.endpoint, stream.clone())?;
        self.streams.insert(stream.id, Entry { stream, outlets: BTreeMap::new() });
        Ok(())
    }

    fn remove_stream(&mut self, id: StreamId) {
        if let Some(entry) = self.streams.remove(&id) {
            self.index.remove(&entry.stream.endpoint);
            self.outlets -= entry.outlets.len();
        }
    }

    fn put_outlet(&mut self, outlet: Arc<Outlet>) -> bool {
        let Some(entry) = self.streams.get_mut(&outlet.stream) else { return false };
        if entry.outlets.insert(outlet.id, outlet).is_none() {
            self.outlets += 1;
        }
        true
    }

    fn remove_outlet(&mut self, stream: StreamId, id: OutletId) -> Option<Arc<Outlet>> {
        let removed = self.streams.get_mut(&stream)?.outlets.remove(&id)?;
        self.outlets -= 1;
        Some(removed)
    }

    fn add(&mut self, streams: &[Arc<Stream>], outlets: &[Arc<Outlet>], difference: &mut Difference) {
        for stream in streams.iter().filter(|stream| !self.streams.contains_key(&stream.id)).collect::<Vec<_>>() {
            if let Err(overlap) = self.insert_stream(stream.clone()) {
                // Nodes of this version do not let it come to that.
                tracing::error!(resource = %stream.id, %overlap, "a resource is set aside: another has the same URLs");
            }
        }
        for outlet in outlets {
            let before = self.streams.get(&outlet.stream).and_then(|entry| entry.outlets.get(&outlet.id));
            let changes = match before {
                Some(before) if is_same(before, outlet) => continue,
                Some(_) => &mut difference.changed,
                None => &mut difference.added,
            };
            if self.put_outlet(outlet.clone()) {
                changes.push(outlet.clone());
            }
        }
    }
}

/// Every update of an outlet has a time of its own; its status changes without one.
fn is_same(one: &Outlet, other: &Outlet) -> bool {
    one.updated_at == other.updated_at && one.status == other.status
}
