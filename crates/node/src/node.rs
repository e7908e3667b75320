//! The node as its API sees it.

mod follow;
mod lag;
mod life;
mod passive;
mod replay;
mod secret;
mod turn;
mod worker;

pub(crate) use follow::Difference;
pub use lag::{Lag, Resync};
pub use passive::DEMAND_MAX;
pub use replay::ReplayFrom;
pub use turn::{Duty, Work};

use follow::{Known, LOAD_PAGE, Made};
use worker::Worker;

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use flare_core::{
    Error, OutletId, Result, Sequence, StreamId, TokenId,
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
    token::{Token, TokenText},
    trace::Trace,
    url::DocumentUrl,
};
use jiff::Timestamp;
use parking_lot::RwLock;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::{
    clock,
    delivery::FilterProblem,
    intake::{DocumentNews, Intake, IntakeError},
    lease::Deadline,
    registry::Registry,
    settings::{Membership, Settings},
    supervisor::{Failure, Supervisor},
    tokens::{NewToken, Tokens},
};

pub use secret::Rotation;

/// How often a stream is compared with all others because other nodes have written meanwhile.
const CLAIMS_MAX: usize = 20;

/// A running node. What it knows and answers is always there; the worker only while it is this node's turn: alone,
/// always.
pub struct Node {
    store: Store,
    registry: Arc<Registry>,
    intake: Intake,
    worker: RwLock<Option<Arc<Worker>>>,
    duty: RwLock<Duty>,
    settings: Settings,
    supervisor: Supervisor,
    stop: CancellationToken,
    /// The turn under way has ended.
    turns_ended: CancellationToken,
    tokens: Tokens,
    /// Changes to streams, outlets and tokens happen one after another, so that memory and store agree.
    administration: Mutex<Known>,
    /// As in [`Known`].
    revision: AtomicU64,
    /// How often it was looked what other nodes have written.
    looks: AtomicU64,
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
    pub duty: Duty,
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
    /// Reads streams, outlets and tokens from the store. Alone, goes on with what is due before it returns; otherwise
    /// when it is the turn of this node.
    pub async fn start(store: Store, settings: &Settings, supervisor: &Supervisor) -> Result<Arc<Self>> {
        let registry = Arc::new(Registry::default());
        let intake = Intake::new(registry.clone(), store.documents.clone(), settings.json_depth_max);
        let work = if settings.membership.roles.worker { Work::Waits } else { Work::StandsBy };
        let stop = CancellationToken::new();
        let node = Arc::new(Self {
            tokens: Tokens::new(store.tokens.clone()),
            store,
            registry,
            intake,
            worker: RwLock::default(),
            duty: RwLock::new(Duty::new(work)),
            settings: settings.clone(),
            supervisor: supervisor.clone(),
            stop: stop.clone(),
            turns_ended: CancellationToken::new(),
            administration: Mutex::default(),
            revision: AtomicU64::new(0),
            looks: AtomicU64::new(0),
            started_at: clock::now(),
        });
        node.load().await?;
        if !node.is_shared() {
            node.start_work(supervisor.part(Deadline::never())).await?;
            node.duty.write().work = Work::Works;
            return Ok(node);
        }
        supervisor.spawn("entity-follower", Failure::StopsNode, node.clone().follow(stop.clone()));
        let turns = node.clone();
        supervisor.spawn("turns", Failure::StopsNode, async move {
            let _ended = turns.turns_ended.clone().drop_guard();
            match work {
                Work::StandsBy => turns.stand_by(stop).await,
                Work::Works | Work::Waits => turns.take_turns(stop).await,
            }
        });
        Ok(node)
    }

    /// Finishes what is in flight and records it. Intake must have stopped.
    pub async fn finish(&self) {
        self.stop.cancel();
        if !self.is_shared() {
            return self.finish_work().await;
        }
        // The delivery has its grace, and so has the recorder; the store is then told that this node has stopped.
        let patience = 2 * self.settings.grace + Duration::from_secs(10);
        if tokio::time::timeout(patience, self.turns_ended.cancelled()).await.is_err() {
            tracing::warn!("the work did not end within the grace period; some deliveries will be repeated");
        }
    }

    /// Closes the store. The node must have finished.
    pub async fn close(&self) -> Result<()> {
        self.store.engine.close().await
    }

    /// What this process is among those that share the data.
    pub fn membership(&self) -> &Membership {
        &self.settings.membership
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
            queue: self.worker_now().and_then(|worker| worker.delivery.queue_status()),
            streams,
            outlets,
            sequence: self.store.documents.head(),
            deliveries: self.worker_now().map(|worker| worker.delivery.counts()).unwrap_or_default(),
            duty: self.duty(),
        }
    }

    /// Makes a token, and shows its text this once. `Conflict` if there are too many.
    pub async fn create_token(&self, new: NewToken) -> Result<(Arc<Token>, TokenText)> {
        let mut known = self.administrate().await?;
        let made = self.tokens.create(new).await?;
        self.made(&mut known, Made::Token(made.0.id));
        Ok(made)
    }

    /// From here on the token opens nothing on this node, and in a moment on no other. `NotFound` if it is not there.
    pub async fn revoke_token(&self, id: TokenId) -> Result<()> {
        let mut known = self.administrate().await?;
        self.tokens.revoke(id).await?;
        self.wrote(&mut known);
        Ok(())
    }

    /// `Conflict` if another stream could match the same URL.
    pub async fn create_stream(&self, new: NewStream, once: Option<Idempotency>) -> Result<Created<Arc<Stream>>> {
        let mut known = self.administrate().await?;
        let stream = Arc::new(Stream {
            id: StreamId::generate(),
            endpoint: new.endpoint,
            change: new.change,
            created_at: clock::now(),
        });
        for _ in 0..CLAIMS_MAX {
            // Memory first: it knows whether the endpoint is free. A repeated request finds it taken by what it made.
            let claimed = self.registry.insert_stream(stream.clone());
            let seen = self.is_shared().then_some(known.revision());
            let inserted = match &claimed {
                Ok(()) => self.store.streams.insert(&stream, once.clone(), seen).await,
                Err(overlap) => self.find_repeated_stream(&stream, overlap, once.clone()).await.map(Some),
            };
            if claimed.is_ok() && !matches!(inserted, Ok(Some(Inserted::New))) {
                self.registry.remove_stream(stream.id);
            }
            match inserted? {
                Some(Inserted::New) => {
                    self.made(&mut known, Made::Stream(stream.id));
                    return Ok(Created::New(stream));
                }
                Some(Inserted::Before(id)) => {
                    let before = self.registry.stream(id);
                    return before.map(Created::Before).ok_or_else(|| gone("resource", &id.to_string()));
                }
                // Another node has written since: what it made may match the same URLs.
                None => self.catch_up(&mut known).await?,
            }
        }
        Err(Error::unavailable("other nodes change resources and subscriptions all the time; try again"))
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
        let mut known = self.administrate().await?;
        self.store.streams.delete(id).await?;
        self.wrote(&mut known);
        self.registry.remove_stream(id);
        if let Some(worker) = self.worker_now() {
            worker.delivery.forget_stream(id);
        }
        Ok(())
    }

    /// `NotFound` if the stream is not there.
    pub async fn create_outlet(
        &self,
        stream: StreamId,
        new: NewOutlet,
        once: Option<Idempotency>,
    ) -> Result<Created<Arc<Outlet>>> {
        let mut known = self.administrate().await?;
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
                self.made(&mut known, Made::Outlet(outlet.id));
                self.registry.put_outlet(outlet.clone());
                if let Some(worker) = self.worker_now() {
                    worker.delivery.add(outlet.clone(), standing_of(&outlet));
                }
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
        let mut known = self.administrate().await?;
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
            updated_at: clock::after(present.updated_at),
            ..(*present).clone()
        });
        self.put_outlet(&mut known, outlet).await
    }

    /// Writes what has become of an outlet, and tells all who should know.
    async fn put_outlet(&self, known: &mut Known, outlet: Arc<Outlet>) -> Result<Arc<Outlet>> {
        self.store.outlets.update(&outlet).await?;
        self.wrote(known);
        self.registry.put_outlet(outlet.clone());
        if let Some(worker) = self.worker_now() {
            worker.delivery.update(outlet.clone());
        }
        Ok(outlet)
    }

    pub fn outlet(&self, stream: StreamId, id: OutletId) -> Option<Arc<Outlet>> {
        self.registry.outlet(stream, id)
    }

    /// Whether the queue of the outlet is still to be set up. Only the node that works knows.
    pub fn is_preparing(&self, id: OutletId) -> bool {
        self.worker_now().is_some_and(|worker| worker.delivery.is_preparing(id))
    }

    /// The last change for which the filter of the outlet had no answer, since the node took the outlet up. Only the node
    /// that works knows.
    pub fn filter_problem(&self, id: OutletId) -> Option<FilterProblem> {
        self.worker_now()?.delivery.filter_problem(id)
    }

    /// None if the stream is not there.
    pub fn outlets(&self, stream: StreamId, offset: usize, limit: usize) -> Option<Page<Arc<Outlet>>> {
        self.registry.outlets(stream, offset, limit)
    }

    /// `NotFound` if it is not there.
    pub async fn delete_outlet(&self, stream: StreamId, id: OutletId) -> Result<()> {
        let mut known = self.administrate().await?;
        if self.registry.outlet(stream, id).is_none() {
            return Err(missing(id));
        }
        self.store.outlets.delete(id).await?;
        self.wrote(&mut known);
        self.registry.remove_outlet(stream, id);
        if let Some(worker) = self.worker_now() {
            worker.replays.drop(id);
            worker.delivery.remove(stream, id);
        }
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

#[cfg(test)]
mod queue_tests;
#[cfg(test)]
mod tests;
