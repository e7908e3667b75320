//! Chunks on their way: read ahead, handed to workers, and noted once the target has them for good.
//!
//! At most one chunk per worker is being written, which bounds what is done again after a crash. What may overlap with
//! that does: the next chunks are being read, and a target that makes chunks durable together does so for those that
//! are committed, while workers go on. If it turns out to have lost one (it was restarted), the chunk is done again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use super::Shared;
use super::reading::Ahead;
use crate::error::{Error, ErrorKind, Result};
use crate::event::{Event, Progress};
use crate::history::Done;
use crate::offsets::Planned;
use crate::patience::Patience;

/// How many chunks are read that no worker has taken yet.
const CHUNKS_READ_AHEAD: usize = 1;
/// While others are written, chunks are made durable when they are so many, or when the last time is so long ago.
const UNSETTLED_MAX: usize = 16;
const SETTLE_EVERY: Duration = Duration::from_millis(100);
/// How long chunks in flight may take after somebody asked to stop.
const GRACE: Duration = Duration::from_secs(10);

/// What a worker brings back.
pub(super) struct Finished {
    pub worker: usize,
    pub planned: Planned,
    pub result: Result<Done>,
    pub ms: u64,
}

impl Finished {
    /// Whether the target has something that may still be lost.
    fn is_written(&self) -> bool {
        self.result.as_ref().is_ok_and(|done| done.rows > 0 || done.rejects > 0)
    }
}

/// Chunks, and whether the target has each for good.
type Settled = Result<(Vec<Finished>, Vec<bool>)>;

pub(super) struct Flow {
    shared: Arc<Shared>,
    free: Vec<usize>,
    /// Chunks that wait for a worker, in the order in which they are read.
    ahead: VecDeque<(Planned, Ahead)>,
    busy: JoinSet<Finished>,
    /// Chunks that are committed, and not yet known to be durable.
    unsettled: Vec<Finished>,
    /// At most one.
    settling: JoinSet<Settled>,
    settle_at: Instant,
}

impl Flow {
    pub fn new(shared: Arc<Shared>) -> Self {
        let free = (0..shared.session.job.workers).rev().collect();
        let (ahead, busy, settling) = (VecDeque::new(), JoinSet::new(), JoinSet::new());
        Self { shared, free, ahead, busy, unsettled: Vec::new(), settling, settle_at: Instant::now() }
    }

    /// Copies chunks until there are no more. An error stops the copy.
    pub async fn run(&mut self, mut chunks: mpsc::Receiver<Planned>) -> Result<()> {
        let mut is_open = true;
        loop {
            self.hand_out();
            if self.busy.is_empty() || self.unsettled.len() >= UNSETTLED_MAX || Instant::now() >= self.settle_at {
                self.settle();
            }
            let is_waiting = !self.unsettled.is_empty() && self.settling.is_empty();
            if !is_open && self.is_over() {
                return Ok(());
            }
            tokio::select! {
                Some(finished) = self.busy.join_next() => self.finished(finished)?,
                Some(settled) = self.settling.join_next() => self.settled(settled)?,
                planned = chunks.recv(), if is_open && self.ahead.len() < CHUNKS_READ_AHEAD => match planned {
                    Some(planned) => self.read_ahead(planned),
                    None => is_open = false,
                },
                () = tokio::time::sleep_until(self.settle_at), if is_waiting => (),
            }
        }
    }

    fn is_over(&self) -> bool {
        self.ahead.is_empty() && self.busy.is_empty() && self.unsettled.is_empty() && self.settling.is_empty()
    }

    fn read_ahead(&mut self, planned: Planned) {
        let ahead = self.shared.read(&planned.range, self.shared.is_raw);
        // What may be done already is asked for first.
        let ahead = if planned.is_again { ahead } else { Ahead::Begun(ahead.begin(&self.shared)) };
        self.ahead.push_back((planned, ahead));
    }

    fn hand_out(&mut self) {
        while let Some(worker) = self.free.pop() {
            let Some((planned, ahead)) = self.ahead.pop_front() else { return self.free.push(worker) };
            self.busy.spawn(Arc::clone(&self.shared).work(worker, planned, ahead));
        }
    }

    fn finished(&mut self, finished: std::result::Result<Finished, JoinError>) -> Result<()> {
        let finished = finished.map_err(|error| Error::failed("a worker ended unexpectedly").because(error))?;
        self.free.push(finished.worker);
        if self.shared.session.writer.settles() && finished.is_written() {
            self.unsettled.push(finished);
            return Ok(());
        }
        self.shared.note(finished)
    }

    /// Begins to make durable what is committed, if that is not being done.
    fn settle(&mut self) {
        if !self.unsettled.is_empty() && self.settling.is_empty() {
            let chunks = std::mem::take(&mut self.unsettled);
            self.settling.spawn(Arc::clone(&self.shared).settle(chunks));
            self.settle_at = Instant::now() + SETTLE_EVERY;
        }
    }

    fn settled(&mut self, settled: std::result::Result<Settled, JoinError>) -> Result<()> {
        let settled = settled.map_err(|error| Error::failed("the target was not synced").because(error))?;
        let (chunks, is_there) = settled?;
        for (finished, is_there) in chunks.into_iter().zip(is_there) {
            if is_there {
                self.shared.note(finished)?;
                continue;
            }
            let planned = Planned { is_again: true, ..finished.planned };
            let ahead = self.shared.read(&planned.range, self.shared.is_raw);
            self.ahead.push_back((planned, ahead));
        }
        Ok(())
    }

    /// Lets the chunks in flight finish, for a while.
    pub async fn wind_down(&mut self) {
        self.ahead.clear();
        let finishing = async {
            // What cannot be noted is done again.
            while let Some(finished) = self.busy.join_next().await {
                let _ = self.finished(finished);
            }
            self.settle_rest().await;
        };
        let _ = tokio::time::timeout(GRACE, finishing).await;
        self.close().await;
    }

    /// Gives the chunks in flight up, and notes those that are done.
    pub async fn give_up(&mut self) {
        self.ahead.clear();
        self.busy.shutdown().await;
        let _ = tokio::time::timeout(GRACE, self.settle_rest()).await;
        self.close().await;
    }

    async fn settle_rest(&mut self) {
        loop {
            self.settle();
            let Some(settled) = self.settling.join_next().await else { return };
            if self.settled(settled).is_err() {
                return;
            }
        }
    }

    async fn close(&mut self) {
        self.busy.shutdown().await;
        self.settling.shutdown().await;
    }
}

impl Shared {
    /// One chunk, tried again as long as it is worth it.
    async fn work(self: Arc<Self>, worker: usize, planned: Planned, ahead: Ahead) -> Finished {
        let began = Instant::now();
        Progress::add(&self.progress.busy, 1);
        let mut patience = Patience::new(self.give_up_after);
        let mut first = Some(ahead);
        let mut is_again = planned.is_again;
        let result = loop {
            let error = match self.chunk(&planned, is_again, first.take()).await {
                Err(error) if error.kind() == ErrorKind::Unavailable => error,
                result => break result,
            };
            let Some(delay) = patience.next_delay() else { break Err(error) };
            is_again = true;
            let (chunk, message) = (planned.chunk.to_string(), error.chain());
            self.observer.notify(&Event::Retry { chunk, message, wait_ms: delay.as_millis() as u64 });
            tokio::time::sleep(delay).await;
        };
        self.progress.busy.fetch_sub(1, Ordering::Relaxed);
        Finished { worker, planned, result, ms: began.elapsed().as_millis() as u64 }
    }

    /// Makes chunks durable, tried again as long as it is worth it.
    async fn settle(self: Arc<Self>, chunks: Vec<Finished>) -> Settled {
        let names: Vec<String> = chunks.iter().map(|finished| finished.planned.chunk.to_string()).collect();
        let mut patience = Patience::new(self.give_up_after);
        loop {
            let error = match self.at_target(self.session.writer.settle(&names)).await {
                Err(error) if error.kind() == ErrorKind::Unavailable => error,
                result => return result.map(|is_there| (chunks, is_there)),
            };
            let Some(delay) = patience.next_delay() else { return Err(error) };
            let (chunk, message) = (names.join(", "), error.chain());
            self.observer.notify(&Event::Retry { chunk, message, wait_ms: delay.as_millis() as u64 });
            tokio::time::sleep(delay).await;
        }
    }
}
