//! The node as its API sees it.

mod lag;
mod life;
mod passive;
mod replay;
mod secret;

pub use lag::{Lag, Resync};
pub use passive::DEMAND_MAX;
pub use replay::ReplayFrom;
use replay::Replays;

use std::sync::Arc;

use flare_core::{
    Error, OutletId, Result, Sequence, StreamId,
    change::ChangeRule,
    document::{Change, Standing, Written},
    filter::Filter,
    outlet::{
        Content, DataValue, DeliveryPolicy, Endpoint, Mode, Outlet, Revisions, Scheme, Secret, Status as OutletStatus,
    },
    pattern::Pattern,
    pattern_index::Overlap,
    port::{DocumentPage, DocumentQuery, Idempotency, Inserted, Store},
    stream::Stream,
    trace::Trace,
    url::DocumentUrl,
};
use jiff::Timestamp;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::{
    clock,
    delivery::{Delivery, FilterProblem},
    intake::{DocumentNews, Intake, IntakeError},
    registry::Registry,
    settings::Settings,
    supervisor::{Failure, Supervisor},
    sweeper::Sweeper,
    tokens::Tokens,
};

pub use secret::Rotation;

/// Rows read at once while a node starts.
const LOAD_PAGE: usize = 1000;

/// A running node: alone, it owns all slots.
pub struct Node {
    store: Store,
    registry: Arc<Registry>,
    intake: Intake,
    delivery: Delivery,
    replays: Replays,
    settings: Settings,
    supervisor: Supervisor,
    stop: CancellationToken,
    tokens: Tokens,
    /// Changes to streams and outlets happen one after another, so that memory and store agree.
    administration: Mutex<()>,
    started_at: Timestamp,
}

/// A part of a list, and how long the list is.
#[derive(Clone, Debug)]
pub struct Page<T> {
    pub items: Vec<T>,
    pub total: usize,
}

/// What a creation gave: something new, or what the same request made before.
#[derive(Clone, Debug)]
pub enum Created<T> {
    New(T),
    Before(T),
}

/// A stream to be made.
#[derive(Clone, Debug)]
pub struct NewStream {
    pub endpoint: Pattern,
    pub change: ChangeRule,
}

/// An outlet to be made, or what one is to become.
#[derive(Clone, Debug)]
pub struct NewOutlet {
    pub name: String,
    pub mode: Mode,
    pub endpoint: Endpoint,
    pub delivery: Arc<DeliveryPolicy>,
    pub content: Content,
    pub data: Vec<(String, DataValue)>,
    pub filter: Option<Filter>,
    pub revisions: Revisions,
    /// Only for one that is new.
    pub snapshot: bool,
    /// A secret of the client's own; otherwise one is made, or the present one stays.
    pub secret: Option<Secret>,
    /// For one that is there, only the scheme that it has.
    pub signature: Option<Scheme>,
}

/// How the node is.
#[derive(Clone, Debug)]
pub struct Status {
    pub started_at: Timestamp,
    pub engine: &'static str,
    /// Why writes fail at present.
    pub trouble: Option<String>,
    /// The queue that outlets get their changes through, if there is one.
    pub queue: Option<QueueStatus>,
    pub streams: usize,
    pub outlets: usize,
    pub sequence: Sequence,
    pub deliveries: DeliveryCounts,
}

/// How a queue is.
#[derive(Clone, Debug)]
pub struct QueueStatus {
    pub engine: &'static str,
    /// Why nothing goes through it at present.
    pub trouble: Option<String>,
}

/// Counted since the node started, but for `in_flight` and `retries_waiting`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct DeliveryCounts {
    pub in_flight: u64,
    pub retries_waiting: u64,
    pub delivered: u64,
    pub failed_attempts: u64,
    pub discarded: u64,
    pub given_up: u64,
}

impl Node {
    /// Reads streams and outlets from the store, and goes on with what is due.
    pub async fn start(store: Store, settings: &Settings, supervisor: &Supervisor) -> Result<Arc<Self>> {
        let registry = Arc::new(Registry::default());
        load_streams(&store, &registry).await?;
        let delivery = Delivery::start(&store, registry.clone(), settings, supervisor)?;
        load_outlets(&store, &registry, &delivery).await?;
        let tokens = Tokens::load(store.tokens.clone()).await?;
        let sweeper = Sweeper {
            store: store.clone(),
            retention: settings.retention,
            attempts_retention: settings.attempts_retention,
            dead_letters_retention: settings.dead_letters_retention,
            interval: settings.sweep_interval,
        };
        let stop = CancellationToken::new();
        supervisor.spawn("sweeper", Failure::StopsNode, sweeper.run(stop.clone()));
        let intake = Intake::new(registry.clone(), store.documents.clone(), settings.json_depth_max);
        let node = Arc::new(Self {
            store,
            registry,
            intake,
            delivery,
            replays: Replays::default(),
            settings: settings.clone(),
            supervisor: supervisor.clone(),
            stop: stop.clone(),
            tokens,
            administration: Mutex::new(()),
            started_at: clock::now(),
        });
        supervisor.spawn("outlet-keeper", Failure::StopsNode, node.clone().keep_outlets(stop.clone()));
        supervisor.spawn("resync", Failure::StopsNode, node.clone().resync_all(stop));
        node.resume_replays().await?;
        Ok(node)
    }

    /// Finishes what is in flight and records it. Intake must have stopped.
    pub async fn finish(&self) {
        self.stop.cancel();
        self.delivery.stop().await;
    }

    /// Closes the queue and the store. The node must have finished.
    pub async fn close(&self) -> Result<()> {
        if let Some(queue) = self.delivery.queue() {
            queue.close().await?;
        }
        self.store.engine.close().await
    }

    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    pub fn status(&self) -> Status {
        let (streams, outlets) = self.registry.counts();
        Status {
            started_at: self.started_at,
            engine: self.store.engine.name(),
            trouble: self.store.engine.trouble(),
            queue: self.delivery.queue().map(|queue| QueueStatus { engine: queue.name(), trouble: queue.trouble() }),
            streams,
            outlets,
            sequence: self.store.documents.head(),
            deliveries: self.delivery.counts(),
        }
    }

    /// `Conflict` if another stream could match the same URL.
    pub async fn create_stream(&self, new: NewStream, once: Option<Idempotency>) -> Result<Created<Arc<Stream>>> {
        let _one_at_a_time = self.administration.lock().await;
        let stream = Arc::new(Stream {
            id: StreamId::generate(),
            endpoint: new.endpoint,
            change: new.change,
            created_at: clock::now(),
        });
        // Memory first: it knows whether the endpoint is free. A repeated request finds it taken by what it made.
        let claimed = self.registry.insert_stream(stream.clone());
        let inserted = match &claimed {
            Ok(()) => self.store.streams.insert(&stream, once).await,
            Err(overlap) => self.find_repeated_stream(&stream, overlap, once).await,
        };
        match inserted {
            Ok(Inserted::New) => Ok(Created::New(stream)),
            Ok(Inserted::Before(id)) => {
                if claimed.is_ok() {
                    self.registry.remove_stream(stream.id);
                }
                let before = self.registry.stream(id);
                before.map(Created::Before).ok_or_else(|| gone("resource", &id.to_string()))
            }
            Err(error) => {
                if claimed.is_ok() {
                    self.registry.remove_stream(stream.id);
                }
                Err(error)
            }
        }
    }

    /// The endpoint is taken: right only if the same request took it before.
    async fn find_repeated_stream(
        &self,
        stream: &Stream,
        overlap: &Overlap,
        once: Option<Idempotency>,
    ) -> Result<Inserted<StreamId>> {
        let made = match &once {
            Some(once) => self.store.streams.made_by(once).await?,
            None => None,
        };
        made.map(Inserted::Before).ok_or_else(|| taken(stream, &overlap.existing))
    }

    pub fn stream(&self, id: StreamId) -> Option<Arc<Stream>> {
        self.registry.stream(id)
    }

    pub fn streams(&self, offset: usize, limit: usize) -> Page<Arc<Stream>> {
        self.registry.streams(offset, limit)
    }

    /// `NotFound` if it is not there, `Conflict` while it has outlets.
    pub async fn delete_stream(&self, id: StreamId) -> Result<()> {
        let _one_at_a_time = self.administration.lock().await;
        self.store.streams.delete(id).await?;
        self.registry.remove_stream(id);
        self.delivery.forget_stream(id);
        Ok(())
    }

    /// `NotFound` if the stream is not there.
    pub async fn create_outlet(
        &self,
        stream: StreamId,
        new: NewOutlet,
        once: Option<Idempotency>,
    ) -> Result<Created<Arc<Outlet>>> {
        let _one_at_a_time = self.administration.lock().await;
        let now = clock::now();
        let signing = secret::first(new.secret, new.signature)?;
        let outlet = Arc::new(Outlet {
            id: OutletId::generate(),
            stream,
            name: new.name,
            status: OutletStatus::Active,
            mode: new.mode,
            endpoint: new.endpoint,
            delivery: new.delivery,
            content: new.content,
            data: new.data,
            filter: new.filter,
            revisions: new.revisions,
            snapshot: new.snapshot,
            signing,
            since: self.store.documents.head(),
            created_at: now,
            updated_at: now,
        });
        match self.store.outlets.insert(&outlet, once).await? {
            Inserted::New => {
                self.registry.put_outlet(outlet.clone());
                self.delivery.add(outlet.clone(), standing_of(&outlet));
                Ok(Created::New(outlet))
            }
            Inserted::Before(id) => {
                let before = self.registry.outlet(stream, id);
                before.map(Created::Before).ok_or_else(|| gone("subscription", &id.to_string()))
            }
        }
    }

    /// Takes effect at the next delivery. `NotFound` if it is not there.
    pub async fn update_outlet(&self, stream: StreamId, id: OutletId, new: NewOutlet) -> Result<Arc<Outlet>> {
        let _one_at_a_time = self.administration.lock().await;
        let present = self.registry.outlet(stream, id).ok_or_else(|| missing(id))?;
        let outlet = Arc::new(Outlet {
            name: new.name,
            mode: new.mode,
            endpoint: new.endpoint,
            delivery: new.delivery,
            content: new.content,
            data: new.data,
            filter: new.filter,
            revisions: new.revisions,
            signing: secret::replaced(&present.signing, new.secret, new.signature)?,
            updated_at: clock::now(),
            ..(*present).clone()
        });
        self.store.outlets.update(&outlet).await?;
        self.registry.put_outlet(outlet.clone());
        self.delivery.update(outlet.clone());
        Ok(outlet)
    }

    pub fn outlet(&self, stream: StreamId, id: OutletId) -> Option<Arc<Outlet>> {
        self.registry.outlet(stream, id)
    }

    /// Whether the queue of the outlet is still to be set up.
    pub fn is_preparing(&self, id: OutletId) -> bool {
        self.delivery.is_preparing(id)
    }

    /// The last change for which the filter of the outlet had no answer, since the node took the outlet up.
    pub fn filter_problem(&self, id: OutletId) -> Option<FilterProblem> {
        self.delivery.filter_problem(id)
    }

    /// None if the stream is not there.
    pub fn outlets(&self, stream: StreamId, offset: usize, limit: usize) -> Option<Page<Arc<Outlet>>> {
        self.registry.outlets(stream, offset, limit)
    }

    /// `NotFound` if it is not there.
    pub async fn delete_outlet(&self, stream: StreamId, id: OutletId) -> Result<()> {
        let _one_at_a_time = self.administration.lock().await;
        if self.registry.outlet(stream, id).is_none() {
            return Err(missing(id));
        }
        self.cancel_replay(id).await?;
        self.store.outlets.delete(id).await?;
        self.registry.remove_outlet(stream, id);
        self.delivery.remove(stream, id);
        Ok(())
    }

    /// Resolves when the news is durable.
    pub async fn take(&self, news: DocumentNews, trace: Option<Arc<Trace>>) -> Result<Written, IntakeError> {
        self.intake.take(news, trace).await
    }

    /// Takes in what can be, in one durable step, and says of each what became of it.
    pub async fn take_all(
        &self,
        news: Vec<DocumentNews>,
        trace: Option<Arc<Trace>>,
    ) -> Result<Vec<Result<Written, IntakeError>>> {
        self.intake.take_all(news, trace).await
    }

    /// The stream that a URL belongs to.
    pub fn stream_of(&self, url: &DocumentUrl) -> Option<Arc<Stream>> {
        self.registry.stream_of(url)
    }

    /// None if there is no such document, or it was deleted.
    pub async fn document(&self, stream: StreamId, url: &DocumentUrl) -> Result<Option<Change>> {
        let change = self.store.documents.get(stream, url).await?;
        Ok(change.filter(|change| !change.is_delete()))
    }

    pub async fn documents(&self, stream: StreamId, query: &DocumentQuery) -> Result<DocumentPage> {
        self.store.documents.page(stream, query).await
    }
}

fn taken(stream: &Stream, by: &str) -> Error {
    Error::conflict(format!("the endpoint {} could match the same URLs as {by}, which is there", stream.endpoint))
}

fn gone(what: &str, id: &str) -> Error {
    Error::conflict(format!("the idempotency key made {what} {id}, which was deleted since; use a new key"))
}

fn missing(id: OutletId) -> Error {
    Error::not_found(format!("subscription {id} does not exist"))
}

/// Where an outlet stands that was told of nothing yet.
fn standing_of(outlet: &Outlet) -> Standing {
    Standing { outlet: outlet.id, cursor: outlet.start(), retries: Vec::new(), demand: 0, failing_since: None }
}

async fn load_streams(store: &Store, registry: &Registry) -> Result<()> {
    let mut after = None;
    loop {
        let page = store.streams.page(after, LOAD_PAGE).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = Some(last.id);
        for stream in page {
            let stream = Arc::new(stream);
            if let Err(overlap) = registry.insert_stream(stream.clone()) {
                return Err(Error::internal(format!("the store holds two resources for the same URLs: {overlap}")));
            }
        }
    }
}

async fn load_outlets(store: &Store, registry: &Arc<Registry>, delivery: &Delivery) -> Result<()> {
    let streams = {
        let registry = registry.clone();
        move |id| registry.stream(id)
    };
    let mut after = None;
    loop {
        let page = store.outlets.page(after, LOAD_PAGE, &streams).await?;
        let Some(last) = page.last() else { return Ok(()) };
        let mut standings = store.deliveries.standings(after, page.len()).await?.into_iter().peekable();
        after = Some(last.id);
        for outlet in page {
            let outlet = Arc::new(outlet);
            // Cursors of deleted outlets may stand in between until they are purged.
            while standings.next_if(|standing| standing.outlet < outlet.id).is_some() {}
            let standing = standings.next_if(|standing| standing.outlet == outlet.id);
            let standing = standing.unwrap_or_else(|| standing_of(&outlet));
            registry.put_outlet(outlet.clone());
            delivery.add(outlet, standing);
        }
    }
}

#[cfg(test)]
mod queue_tests;
#[cfg(test)]
mod tests;
