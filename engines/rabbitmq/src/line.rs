//! Pulling from one queue: a consumer brings messages into a buffer, and pulls take them from there.
//!
//! The prefetch bounds what a node has of a queue, the buffer included. While messages lie in a buffer nobody else can
//! have them, so a queue that nobody pulls from gives its consumer up and the buffer back.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use flare_core::{
    Error, Result,
    queue::{Message, QueueName},
};
use flare_toolkit::health::Backoff;
use futures_util::StreamExt;
use lapin::{Consumer, message::Delivery};
use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

use crate::{
    admin::Admin,
    closed,
    deliveries::{Deliveries, DeliveryChannel, Verdict},
    failure,
    ledger::Held,
    link::Link,
    spawn,
};

/// A queue that nobody has pulled from for this long is given up.
const QUIET_MAX: Duration = Duration::from_secs(1);
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// A pull waits at least this long after its consumer was made, for what is there to come.
const FIRST_MESSAGE: Duration = Duration::from_millis(100);
/// Between the end of a consumer that the broker ended and the next one.
const AGAIN_MIN: Duration = Duration::from_millis(50);
const AGAIN_MAX: Duration = Duration::from_secs(5);

/// All queues that are pulled from.
pub(crate) struct Lines {
    admin: Arc<Admin>,
    deliveries: Arc<Deliveries>,
    link: Arc<Link>,
    lines: Mutex<HashMap<QueueName, Arc<Line>>>,
    stop: CancellationToken,
}

struct Line {
    queue: QueueName,
    state: Mutex<State>,
    /// Messages, the phase or a failure have come.
    changed: Notify,
    /// Nobody seems to pull.
    quiet: Notify,
    held: Held,
}

struct State {
    phase: Phase,
    buffer: VecDeque<Waiting>,
    pulls: usize,
    /// When the last pull ended.
    quiet_since: Instant,
    /// The consumer shall end although somebody may pull.
    must_leave: bool,
    failures: u64,
    failure: Option<Error>,
}

/// A message that nobody has pulled yet.
struct Waiting {
    channel: Arc<DeliveryChannel>,
    number: u64,
    body: Bytes,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Idle,
    Starting,
    Consuming { since: Instant },
}

/// How a consumer ended.
enum End {
    /// We gave it up.
    Left,
    /// The broker ended it, as it does when a queue is removed.
    Cancelled,
    Lost(Error),
}

impl Lines {
    pub fn start(
        admin: Arc<Admin>,
        deliveries: Arc<Deliveries>,
        link: Arc<Link>,
        stop: CancellationToken,
    ) -> Arc<Self> {
        let lines = Arc::new(Self { admin, deliveries, link, lines: Mutex::default(), stop });
        spawn(lines.clone().look());
        lines
    }

    pub async fn pull(self: &Arc<Self>, queue: &QueueName, max: usize, until: Instant) -> Result<Vec<Message>> {
        let (pulling, failures) = self.enter(queue);
        let line = &pulling.line;
        let late = Instant::now() + self.link.timeout();
        loop {
            let changed = line.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let phase = {
                let mut state = line.state.lock();
                if !state.buffer.is_empty() {
                    let count = max.min(state.buffer.len());
                    return Ok(state.buffer.drain(..count).map(Waiting::pulled).collect());
                }
                if state.failures != failures {
                    return Err(state.failure.clone().unwrap_or_else(closed));
                }
                if state.phase == Phase::Idle {
                    state.phase = Phase::Starting;
                    spawn(self.clone().serve(line.clone()));
                }
                state.phase
            };
            let deadline = match phase {
                Phase::Consuming { since } => until.max(since + FIRST_MESSAGE),
                Phase::Idle | Phase::Starting => late,
            };
            let waited = tokio::select! {
                () = self.stop.cancelled() => return Err(closed()),
                waited = timeout_at(deadline, changed) => waited,
            };
            match (waited, phase) {
                (Ok(()), _) => {}
                (Err(_), Phase::Consuming { .. }) => return Ok(Vec::new()),
                (Err(_), _) => {
                    return Err(Error::unavailable(format!("RabbitMQ does not answer for the queue {queue}")));
                }
            }
        }
    }

    /// Gives up the queue, and what lies here of it, before it is removed: nobody shall pull that afterwards.
    pub async fn leave(&self, queue: &QueueName) {
        let Some(line) = self.lines.lock().get(queue).cloned() else { return };
        let late = Instant::now() + self.link.timeout();
        loop {
            let changed = line.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let mut state = line.state.lock();
                if !matches!(state.phase, Phase::Consuming { .. }) {
                    return;
                }
                state.must_leave = true;
            }
            line.quiet.notify_one();
            if timeout_at(late, changed).await.is_err() {
                return;
            }
        }
    }

    /// Messages of the queue that lie here, and those with the ones that were pulled and not acknowledged.
    pub fn holds(&self, queue: &QueueName) -> (u64, u64) {
        let line = self.lines.lock().get(queue).cloned();
        line.map_or((0, 0), |line| (line.state.lock().buffer.len() as u64, line.held.load(Ordering::Relaxed)))
    }

    /// One more pulls; also tells how many failures there were before.
    fn enter(&self, queue: &QueueName) -> (Pulling, u64) {
        let mut lines = self.lines.lock();
        let line = lines.entry(queue.clone()).or_insert_with(|| Arc::new(Line::new(queue)));
        let mut state = line.state.lock();
        state.pulls += 1;
        (Pulling { line: line.clone() }, state.failures)
    }

    /// Gives up what nobody pulls from, and forgets lines that hold nothing.
    async fn look(self: Arc<Self>) {
        let mut look = tokio::time::interval(LOOK_INTERVAL);
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return,
                _ = look.tick() => {}
            }
            self.deliveries.forget_the_lost();
            self.lines.lock().retain(|_, line| {
                let state = line.state.lock();
                if state.shall_leave() {
                    line.quiet.notify_one();
                }
                state.phase != Phase::Idle || state.pulls > 0 || line.held.load(Ordering::Relaxed) > 0
            });
        }
    }

    /// Consumes the queue for as long as somebody pulls.
    async fn serve(self: Arc<Self>, line: Arc<Line>) {
        let mut again = Backoff::new(AGAIN_MIN, AGAIN_MAX);
        loop {
            let end = match self.begin(&line).await {
                Ok((channel, consumer)) => {
                    line.set(Phase::Consuming { since: Instant::now() });
                    let end = line.consume(&channel, consumer).await;
                    channel.leave();
                    end
                }
                Err(error) => End::Lost(error),
            };
            let wait = match end {
                End::Lost(error) => return line.fail(error),
                End::Left => Duration::ZERO,
                End::Cancelled => again.next(1.0),
            };
            if line.rests() {
                return;
            }
            tokio::time::sleep(wait).await;
        }
    }

    async fn begin(&self, line: &Line) -> Result<(Arc<DeliveryChannel>, Consumer)> {
        // To consume a queue that is not there would close the channel under the consumers of others.
        self.admin.count(&line.queue).await?;
        let session = self.link.session(Instant::now() + self.link.timeout()).await?;
        self.deliveries.consume(line.queue.as_str(), &session).await
    }
}

impl Line {
    fn new(queue: &QueueName) -> Self {
        let state = State {
            phase: Phase::Idle,
            buffer: VecDeque::new(),
            pulls: 0,
            quiet_since: Instant::now(),
            must_leave: false,
            failures: 0,
            failure: None,
        };
        Self {
            queue: queue.clone(),
            state: Mutex::new(state),
            changed: Notify::new(),
            quiet: Notify::new(),
            held: Held::default(),
        }
    }

    fn set(&self, phase: Phase) {
        self.state.lock().phase = phase;
        self.changed.notify_waiters();
    }

    /// Those who wait get the error; the next pull tries again.
    fn fail(&self, error: Error) {
        let mut state = self.state.lock();
        state.phase = Phase::Idle;
        state.must_leave = false;
        state.failures += 1;
        state.failure = Some(error);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Rests if nobody pulls; otherwise a consumer is needed.
    fn rests(&self) -> bool {
        let mut state = self.state.lock();
        let rests = state.pulls == 0;
        state.phase = if rests { Phase::Idle } else { Phase::Starting };
        state.must_leave = false;
        drop(state);
        self.changed.notify_waiters();
        rests
    }

    /// Brings messages until the consumer ends; what is in the buffer then goes back.
    async fn consume(&self, channel: &Arc<DeliveryChannel>, mut consumer: Consumer) -> End {
        let mut end = End::Cancelled;
        loop {
            tokio::select! {
                delivery = consumer.next() => match delivery {
                    Some(Ok(delivery)) => self.take_in(channel, delivery),
                    Some(Err(error)) => end = End::Lost(channel.lost(&failure::reason(&error))),
                    None => break,
                },
                () = self.quiet.notified() => {
                    if self.state.lock().shall_leave() {
                        end = End::Left;
                        channel.cancel(&consumer).await;
                    }
                }
            }
        }
        let left = self.state.lock().buffer.drain(..).map(|waiting| waiting.number).collect();
        channel.settle(left, Verdict::Again).await;
        match end {
            End::Left | End::Cancelled if !channel.is_up() => End::Lost(channel.lost("the connection was closed")),
            end => end,
        }
    }

    fn take_in(&self, channel: &Arc<DeliveryChannel>, delivery: Delivery) {
        let number = delivery.delivery_tag;
        channel.came(number, &self.held);
        let waiting = Waiting { channel: channel.clone(), number, body: delivery.data.into() };
        self.state.lock().buffer.push_back(waiting);
        self.changed.notify_waiters();
    }
}

impl State {
    fn shall_leave(&self) -> bool {
        let is_unused = self.pulls == 0 && self.quiet_since.elapsed() >= QUIET_MAX;
        matches!(self.phase, Phase::Consuming { .. }) && (is_unused || self.must_leave)
    }
}

impl Waiting {
    fn pulled(self) -> Message {
        Message { receipt: self.channel.receipt(self.number), body: self.body }
    }
}

/// A pull, for as long as it is not dropped.
struct Pulling {
    line: Arc<Line>,
}

impl Drop for Pulling {
    fn drop(&mut self) {
        let mut state = self.line.state.lock();
        state.pulls -= 1;
        state.quiet_since = Instant::now();
    }
}
