//! Streams, outlets and tokens that other nodes have written.
//!
//! Every node has all of them in memory. A number in the store rises with every write; a node that finds it higher than
//! it knows reads what is new at the end of the tables, which is enough if that accounts for all of the difference, and
//! otherwise everything. What differs is put into the registry, and handed to the worker if it is on this node.

use std::sync::{Arc, atomic::Ordering};

use flare_core::{
    Error, OutletId, Result, StreamId, TokenId,
    outlet::Outlet,
    port::{Store, StreamLookup},
    stream::Stream,
    token::Token,
};
use tokio::sync::MutexGuard;
use tokio_util::sync::CancellationToken;

use super::Node;

/// Rows read at once.
pub(super) const LOAD_PAGE: usize = 1000;
/// How often everything is read anew because somebody has written meanwhile.
const READ_ATTEMPTS: usize = 5;

/// How far this node knows the entities of the store. Held by whoever changes them.
#[derive(Default)]
pub(super) struct Known {
    revision: u64,
    /// The last of each that was seen: ids rise with time.
    stream: Option<StreamId>,
    outlet: Option<OutletId>,
    token: Option<TokenId>,
}

impl Known {
    pub fn revision(&self) -> u64 {
        self.revision
    }

    fn note(&mut self, entities: &Entities) {
        self.stream = self.stream.max(entities.streams.iter().map(|stream| stream.id).max());
        self.outlet = self.outlet.max(entities.outlets.iter().map(|outlet| outlet.id).max());
        self.token = self.token.max(entities.tokens.iter().map(|token| token.id).max());
    }
}

/// A new entity.
#[derive(Clone, Copy)]
pub(super) enum Made {
    Stream(StreamId),
    Outlet(OutletId),
    Token(TokenId),
}

/// Entities as they are in the store.
#[derive(Default)]
pub(super) struct Entities {
    pub streams: Vec<Arc<Stream>>,
    pub outlets: Vec<Arc<Outlet>>,
    pub tokens: Vec<Arc<Token>>,
}

/// What became different in the registry.
#[derive(Default)]
pub(crate) struct Difference {
    pub added: Vec<Arc<Outlet>>,
    pub changed: Vec<Arc<Outlet>>,
    pub removed: Vec<(StreamId, OutletId)>,
    pub removed_streams: Vec<StreamId>,
}

impl Node {
    /// Reads everything, when the node starts.
    pub(super) async fn load(&self) -> Result<()> {
        let mut known = self.administration.lock().await;
        self.read_everything(&mut known).await
    }

    /// The right to change entities, one after another, on what the store has now.
    pub(super) async fn administrate(&self) -> Result<MutexGuard<'_, Known>> {
        let mut known = self.administration.lock().await;
        self.catch_up(&mut known).await?;
        Ok(known)
    }

    /// This node has changed or removed an entity.
    pub(super) fn wrote(&self, known: &mut Known) {
        if self.is_shared() {
            self.set_revision(known, known.revision + 1);
        }
    }

    /// This node has made an entity.
    pub(super) fn made(&self, known: &mut Known, new: Made) {
        self.wrote(known);
        match new {
            Made::Stream(id) => known.stream = known.stream.max(Some(id)),
            Made::Outlet(id) => known.outlet = known.outlet.max(Some(id)),
            Made::Token(id) => known.token = known.token.max(Some(id)),
        }
    }

    /// Several nodes may work on the same data.
    pub fn is_shared(&self) -> bool {
        self.store.engine.limits().is_shared
    }

    /// The revision of the entities that this node knows at least.
    pub fn entities_revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// Looks whether other nodes have made what this one does not know. Whoever asks while somebody looks already gets
    /// what the next look brings, with all others.
    pub async fn look_again(&self) -> Result<()> {
        if !self.is_shared() {
            return Ok(());
        }
        let begun = self.looks.load(Ordering::Acquire);
        let mut known = self.administration.lock().await;
        if self.looks.load(Ordering::Acquire) > begun {
            return Ok(());
        }
        self.catch_up(&mut known).await
    }

    /// Looks at an interval, until it is told to stop.
    pub(super) async fn follow(self: Arc<Self>, stop: CancellationToken) {
        let interval = self.settings.follow_interval;
        while stop.run_until_cancelled(tokio::time::sleep(interval)).await.is_some() {
            if let Err(error) = self.look_again().await {
                // The store says itself that it is in trouble.
                tracing::debug!(reason = error.chain(), "could not look for what other nodes have made");
            }
        }
    }

    pub(super) async fn catch_up(&self, known: &mut Known) -> Result<()> {
        if !self.is_shared() {
            return Ok(());
        }
        self.looks.fetch_add(1, Ordering::AcqRel);
        let revision = self.store.engine.entities_revision().await?;
        if revision == known.revision {
            return Ok(());
        }
        match self.read_news(known, revision).await? {
            Some(news) => {
                self.add(&news);
                known.note(&news);
                self.set_revision(known, revision);
                Ok(())
            }
            None => self.read_everything(known).await,
        }
    }

    /// What stands at the end of the tables; none if that does not account for all that was written up to `revision`.
    async fn read_news(&self, known: &Known, revision: u64) -> Result<Option<Entities>> {
        let streams: Vec<_> =
            self.store.streams.page(known.stream, LOAD_PAGE).await?.into_iter().map(Arc::new).collect();
        let lookup = self.lookup(&streams);
        let Ok(outlets) = self.store.outlets.page(known.outlet, LOAD_PAGE, &*lookup).await else { return Ok(None) };
        let tokens = self.store.tokens.page(known.token, LOAD_PAGE).await?;
        let is_whole = streams.len() + outlets.len() + tokens.len() == revision.saturating_sub(known.revision) as usize;
        if !is_whole || self.store.engine.entities_revision().await? != revision {
            return Ok(None);
        }
        let (outlets, tokens) = (outlets.into_iter().map(Arc::new), tokens.into_iter().map(Arc::new));
        Ok(Some(Entities { streams, outlets: outlets.collect(), tokens: tokens.collect() }))
    }

    /// Finds the streams of outlets among these and those that are known.
    fn lookup(&self, streams: &[Arc<Stream>]) -> Box<StreamLookup> {
        let new: std::collections::HashMap<_, _> = streams.iter().map(|stream| (stream.id, stream.clone())).collect();
        let registry = self.registry.clone();
        Box::new(move |id| new.get(&id).cloned().or_else(|| registry.stream(id)))
    }

    async fn read_everything(&self, known: &mut Known) -> Result<()> {
        let (revision, entities) = read_all(&self.store).await?;
        known.note(&entities);
        self.tokens.replace(entities.tokens);
        let difference = self.registry.replace(&entities.streams, &entities.outlets);
        if let Some(worker) = self.worker_now() {
            worker.follow(&difference);
        }
        self.set_revision(known, revision);
        Ok(())
    }

    fn add(&self, news: &Entities) {
        let difference = self.registry.add(&news.streams, &news.outlets);
        self.tokens.add(&news.tokens);
        if let Some(worker) = self.worker_now() {
            worker.follow(&difference);
        }
    }

    fn set_revision(&self, known: &mut Known, revision: u64) {
        known.revision = revision;
        self.revision.store(revision, Ordering::Release);
    }
}

/// All entities, as they were at one moment, and the revision of then.
async fn read_all(store: &Store) -> Result<(u64, Entities)> {
    let mut problem = Error::unavailable("other nodes change resources and subscriptions all the time; try again");
    for _ in 0..READ_ATTEMPTS {
        let revision = store.engine.entities_revision().await?;
        let read = read_once(store).await;
        let is_one_moment = store.engine.entities_revision().await? == revision;
        match read {
            Ok(entities) if is_one_moment => return Ok((revision, entities)),
            Err(error) if is_one_moment => return Err(error),
            Ok(_) => {}
            // What belongs together was written between two reads.
            Err(error) => problem = error,
        }
    }
    Err(problem)
}

async fn read_once(store: &Store) -> Result<Entities> {
    let mut entities = Entities::default();
    let mut after = None;
    loop {
        let page = store.streams.page(after, LOAD_PAGE).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.id);
        entities.streams.extend(page.into_iter().map(Arc::new));
    }
    let streams: std::collections::HashMap<_, _> =
        entities.streams.iter().map(|stream| (stream.id, stream.clone())).collect();
    let lookup = move |id| streams.get(&id).cloned();
    let mut after = None;
    loop {
        let page = store.outlets.page(after, LOAD_PAGE, &lookup).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.id);
        entities.outlets.extend(page.into_iter().map(Arc::new));
    }
    let mut after = None;
    loop {
        let page = store.tokens.page(after, LOAD_PAGE).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.id);
        entities.tokens.extend(page.into_iter().map(Arc::new));
    }
    Ok(entities)
}

#[cfg(test)]
mod tests;
