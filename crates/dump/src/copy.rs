//! The copy: workers take chunks from the offset manager, and what becomes of each is written down.

mod bisect;
mod chunk;
mod flow;
mod reading;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::flow::{Finished, Flow};
use crate::error::{Error, ErrorKind, Result};
use crate::event::{Event, Observer, Progress};
use crate::history::{Done, Journal, Line, Place, State};
use crate::key::Range;
use crate::offsets::{Offsets, Planned, Selection};
use crate::patience::{Patience, answer_limit};
use crate::port::{Target, Upper, Walk};
use crate::rejects::Rejects;
use crate::session::Session;

/// How far the walk runs ahead. What it writes down meanwhile goes to the disk in one wait.
const CHUNKS_AHEAD: usize = 32;

/// How a copy is run.
#[derive(Clone, Debug, Default)]
pub struct Run {
    pub selection: Selection,
    /// Goes on with the history; without it, there must be none that is not ended.
    pub resume: bool,
    /// Forgets the history.
    pub fresh: bool,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Summary {
    pub state: State,
    /// Why, where it did not end well.
    pub message: Option<String>,
    /// Of the whole copy, with earlier runs.
    pub rows: u64,
    pub bytes: u64,
    pub rejects: u64,
    pub rejects_file: Option<std::path::PathBuf>,
    pub chunks: u64,
    pub failed: Vec<(String, String)>,
    /// Of this run.
    pub rows_now: u64,
    pub elapsed: Duration,
    pub verified: Option<crate::verify::Verified>,
}

/// What workers share.
pub(crate) struct Shared {
    session: Session,
    journal: Arc<Journal>,
    observer: Arc<dyn Observer>,
    progress: Arc<Progress>,
    rejects: Rejects,
    /// Rejects of chunks that are done.
    rejected: AtomicU64,
    /// Of the chunk that was done last.
    row_bytes: AtomicU64,
    is_raw: bool,
    give_up_after: Duration,
    at_end: CancellationToken,
}

/// Copies until the end, a failure, or `stop`. An error means that nothing was begun.
pub async fn run(
    session: Session,
    place: Place,
    run: Run,
    observer: Arc<dyn Observer>,
    progress: Arc<Progress>,
    stop: CancellationToken,
) -> Result<Summary> {
    let began = Instant::now();
    let journal = Arc::new(Journal::open(place.clone())?);
    let rejects = Rejects::beside(place.base());
    begin(&session, &journal, &rejects, &run).await?;
    let (rows_before, _, rejected) = journal.with(|history| history.totals());
    progress.rows_done.store(rows_before, Ordering::Relaxed);
    progress.rejects.store(rejected, Ordering::Relaxed);
    let row_bytes = match (session.description.rows, session.description.bytes) {
        (Some(rows), Some(bytes)) if rows > 0 => bytes / rows,
        _ => 0,
    };
    let shared = Arc::new(Shared {
        is_raw: session.is_raw(),
        give_up_after: session.job.give_up_after(),
        session,
        journal,
        observer,
        progress,
        rejects,
        rejected: AtomicU64::new(rejected),
        row_bytes: AtomicU64::new(row_bytes),
        at_end: CancellationToken::new(),
    });
    let state = match shared.copy(run.selection, &stop).await {
        Ok(state) => state,
        Err(error) => shared.failure(&error),
    };
    let (state, verified) = shared.finish(state, began).await;
    shared.close(state, rows_before, began, verified)
}

/// Begins a history or goes on with one, and makes the target ready.
async fn begin(session: &Session, journal: &Journal, rejects: &Rejects, run: &Run) -> Result<()> {
    let fingerprint = session.job.fingerprint()?;
    let before = journal.history();
    let history = &before;
    let is_open = !history.job.is_empty() && history.state != State::Ended;
    if is_open && !run.fresh {
        if !run.resume {
            return Err(Error::invalid(format!(
                "this copy was begun and is not ended ({}): use resume to go on, or --fresh to forget it",
                journal.place().history().display()
            )));
        }
        if history.fingerprint != fingerprint {
            return Err(Error::invalid(
                "the job has changed since this copy began (addresses, mode, key, size or columns): undo the change, \
                 or use --fresh to begin again",
            ));
        }
    } else if run.resume && history.state == State::Ended && !history.job.is_empty() {
        return Err(Error::invalid(format!(
            "this copy is complete, there is nothing to resume ({}): to copy again, use run, with --mode replace if the \
             target is to be made anew",
            journal.place().history().display()
        )));
    } else if run.resume && !run.fresh {
        return Err(Error::invalid(format!(
            "there is no copy to resume: {} is missing here; begin one with `flare dump run`, or go to the folder and use \
             the addresses of the one that was begun",
            journal.place().history().display()
        )));
    } else {
        journal.clear()?;
        rejects.clear()?;
        let upper = session.reader.upper().await.map_err(|error| error.within(&session.source))?;
        let upper = match upper {
            Upper::Key(key) => Some(key),
            Upper::Empty | Upper::Unknown => None,
        };
        let (from, to) = (session.source.to_string(), session.target.to_string());
        journal.append(Line::Started { job: new_job()?, fingerprint, from, to, upper })?;
    }
    let history = journal.history();
    let target = Target {
        job: history.job,
        mode: session.job.mode,
        schema: session.mapping.schema.clone(),
        is_resumed: history.prepared,
    };
    if !history.prepared {
        // Whoever made the target ready must be known to have done it.
        let line = journal.append(Line::State { state: State::Running, message: None })?;
        journal.sync(line).await?;
    }
    if let Err(error) = session.writer.prepare(&target).await {
        if !history.prepared {
            journal.put_back(before)?;
        }
        return Err(error.within(&session.target));
    }
    journal.append(Line::Prepared)?;
    journal.append(Line::State { state: State::Running, message: None })?;
    Ok(())
}

fn new_job() -> Result<String> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| Error::failed(format!("cannot make a name for the copy: {error}")))?;
    Ok(crate::value::to_hex(&bytes))
}

impl Shared {
    /// Copies everything, and leaves no task behind.
    async fn copy(self: &Arc<Self>, selection: Selection, stop: &CancellationToken) -> Result<State> {
        if self.is_empty().await? {
            return Ok(State::Ended);
        }
        let (sender, chunks) = mpsc::channel(self.session.job.workers + CHUNKS_AHEAD);
        let is_retry = selection.failed;
        let mut walk = JoinSet::new();
        walk.spawn(self.offsets(selection).run(sender));
        let mut flow = Flow::new(Arc::clone(self));
        let copied = tokio::select! {
            copied = flow.run(chunks) => copied,
            () = stop.cancelled() => {
                walk.shutdown().await;
                flow.wind_down().await;
                return Ok(State::Interrupted);
            }
        };
        if copied.is_err() {
            walk.shutdown().await;
            flow.give_up().await;
        }
        copied?;
        if let Some(walked) = walk.join_next().await {
            walked.map_err(|error| Error::failed("the walk ended unexpectedly").because(error))??;
        }
        let state = self.is_at_end().await?;
        // Who does only failed chunks again has not looked for others.
        let is_cut = self.journal.with(|history| history.walked);
        Ok(if is_retry && !is_cut && state == State::Ended { State::Interrupted } else { state })
    }

    async fn is_empty(&self) -> Result<bool> {
        let is_begun = self.journal.with(|history| history.next.ordinal > 0 || history.upper.is_some());
        Ok(!is_begun && self.session.reader.upper().await? == Upper::Empty)
    }

    fn offsets(self: &Arc<Self>, selection: Selection) -> Offsets {
        let job = &self.session.job;
        let shared = Arc::clone(self);
        let row_bytes = move || Some(shared.row_bytes.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0);
        Offsets {
            reader: Arc::clone(&self.session.reader),
            journal: Arc::clone(&self.journal),
            observer: Arc::clone(&self.observer),
            selection,
            chunksize: job.chunksize,
            size: job.size,
            chunk_bytes: job.chunk_bytes,
            row_bytes: Arc::new(row_bytes),
            give_up_after: self.give_up_after,
            at_end: self.at_end.clone(),
        }
    }

    /// Writes down what became of a chunk. An error stops the copy.
    fn note(&self, finished: Finished) -> Result<()> {
        let Finished { worker, planned: Planned { chunk, range, .. }, result, ms } = finished;
        match result {
            Ok(done) => {
                let done = Done { ms, ..done };
                if done.rows == 0 && done.rejects == 0 {
                    self.note_empty(&range)?;
                }
                if let Some(bytes) = done.bytes.checked_div(done.rows) {
                    self.row_bytes.store(bytes, Ordering::Relaxed);
                }
                Progress::add(&self.progress.chunks_done, 1);
                Progress::add(&self.progress.rows_done, done.rows);
                let Done { rows, bytes, rejects, .. } = done;
                self.journal.append(Line::Done { chunk: chunk.clone(), done })?;
                let chunk = chunk.to_string();
                self.observer.notify(&Event::Completed { worker, chunk, range, rows, bytes, rejects, ms });
                Ok(())
            }
            Err(error) => {
                Progress::add(&self.progress.errors, 1);
                let message = error.chain();
                self.journal.append(Line::Failed { chunk: chunk.clone(), message: message.clone() })?;
                let name = chunk.to_string();
                self.observer.notify(&Event::Error { worker, chunk: name, range: range.clone(), message });
                match error.kind() {
                    ErrorKind::Failed | ErrorKind::Rejected => Ok(()),
                    ErrorKind::Unavailable | ErrorKind::Invalid => {
                        Err(error.within(format_args!("chunk {chunk} ({range})")))
                    }
                }
            }
        }
    }

    /// An empty chunk of a source that cannot say where it ends is its end.
    fn note_empty(&self, range: &Range) -> Result<()> {
        let is_sequence = self.session.description.walk == Walk::Sequence;
        if is_sequence && range.after.is_some() && !self.at_end.is_cancelled() {
            self.at_end.cancel();
            self.journal.append(Line::Walked)?;
        }
        Ok(())
    }

    /// After the last chunk: reads once more, and is at the end only if there is nothing and nothing failed.
    async fn is_at_end(&self) -> Result<State> {
        let (is_walked, upper) = self.journal.with(|history| (history.walked, history.upper.clone()));
        let (open, failed) = self.journal.with(|history| (history.open().count(), history.failed().count()));
        if open > 0 {
            return Ok(if failed > 0 { State::Incomplete } else { State::Interrupted });
        }
        if let (true, Some(upper)) = (is_walked, upper) {
            let beyond = Range { after: Some(upper.clone()), upto: Some(upper) };
            let mut batches = self.session.reader.read(&beyond, false);
            if let Some(batch) = batches.next().await
                && batch?.rows() > 0
            {
                return Err(Error::failed("the source has rows where it should have ended"));
            }
        }
        Ok(State::Ended)
    }

    fn failure(&self, error: &Error) -> State {
        let message = error.chain();
        self.observer.notify(&Event::Failure { message: message.clone() });
        let _ = self.journal.append(Line::State { state: State::Failed, message: Some(message) });
        State::Failed
    }

    /// Makes the target what it is to be, if all is copied, and looks at it if that was asked for.
    async fn finish(&self, state: State, began: Instant) -> (State, Option<crate::verify::Verified>) {
        if state != State::Ended {
            return (state, None);
        }
        let mut patience = Patience::new(self.give_up_after);
        loop {
            let Err(error) = self.session.writer.finish().await else { break };
            match patience.next_delay().filter(|_| error.kind() == ErrorKind::Unavailable) {
                Some(delay) => tokio::time::sleep(delay).await,
                None => return (self.failure(&error.within("the target cannot be finished")), None),
            }
        }
        let mut verified = None;
        if self.session.job.verify {
            match crate::verify::verify(&self.session, &self.journal.history()).await {
                Ok(found) if found.is_same() => verified = Some(found),
                Ok(found) => return (self.failure(&Error::failed(found.to_string())), Some(found)),
                Err(error) => return (self.failure(&error.within("the target cannot be verified")), None),
            }
        }
        let (rows, bytes, rejects) = self.journal.with(|history| history.totals());
        let ms = began.elapsed().as_millis() as u64;
        self.observer.notify(&Event::End { rows, bytes, rejects, ms });
        (State::Ended, verified)
    }

    /// Saves the history.
    fn close(
        &self,
        state: State,
        rows_before: u64,
        began: Instant,
        verified: Option<crate::verify::Verified>,
    ) -> Result<Summary> {
        let message = self.journal.with(|history| history.message.clone()).filter(|_| state == State::Failed);
        self.journal.append(Line::State { state, message: message.clone() })?;
        self.rejects.gather()?;
        self.journal.compact()?;
        let history = self.journal.history();
        let (rows, bytes, rejects) = history.totals();
        Ok(Summary {
            state,
            message,
            rows,
            bytes,
            rejects,
            rejects_file: (rejects > 0).then(|| self.rejects.file().to_owned()),
            chunks: history.done().count() as u64,
            failed: history
                .failed()
                .map(|(id, chunk, message)| (format!("{id} ({})", chunk.range), message.to_owned()))
                .collect(),
            rows_now: rows - rows_before.min(rows),
            elapsed: began.elapsed(),
            verified,
        })
    }

    /// How long one answer is waited for. Where ranges wait for each other, a wait says nothing.
    fn read_limit(&self) -> Option<Duration> {
        (self.session.description.walk != Walk::Sequence).then(|| answer_limit(self.give_up_after))
    }

    fn write_limit(&self) -> Option<Duration> {
        (!self.session.writer.waits_in_line()).then(|| answer_limit(self.give_up_after))
    }
}

#[cfg(test)]
mod tests;
