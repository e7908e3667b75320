//! `flare documents load`: many documents, in batches, a few requests at a time.

mod batches;

use std::io::BufReader;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::http::{Method, StatusCode};
use anyhow::Context;
use bytes::Bytes;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::error::{Error, Told};
use super::http::{Body, Client, NDJSON};
use super::{Input, Options};
use crate::terminal::{self, harmless};
use batches::{Batch, Batches, Size};

/// A batch is closed when it has this many bytes, well below the limit that a server has by default.
const BATCH_BYTES_MAX: usize = 4 << 20;

/// How often a batch is sent when the server is busy or away.
const ATTEMPTS_MAX: u32 = 6;

/// The wait before the second attempt; it doubles with each further one.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// The longest wait that a server may ask for.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(10);

const HELP: &str = "\
Every line is a document to write or to delete:
  {\"id\": \"http://api.company.com/users/1\", \"document\": {\"id\": 1, \"revision\": 7}}
  {\"id\": \"http://api.company.com/users/2\", \"delete\": true}
  {\"id\": \"http://api.company.com/users/3\", \"delete\": true, \"revision\": 8}

Lines that fail are told on standard error with their numbers, and the others are loaded. With --json \
they are told on standard output, one JSON object per line, and the last line is the summary. Loading a \
file again does no harm: what is already there is counted as unchanged and announces nothing. Where a file \
both writes and deletes the same document, --parallel 1 keeps the order of its lines.

Examples:
  flare documents load users.ndjson
  gunzip < users.ndjson.gz | flare documents load - --batch 5000";

/// Arguments of `flare documents load`.
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct Load {
    /// The NDJSON file, or - for standard input
    #[arg(value_name = "FILE")]
    file: Input,

    /// How many documents a request carries at most
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    batch: u32,

    /// How many requests are under way at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    parallel: u16,
}

/// The answer to a bulk request.
#[derive(Deserialize, Default)]
struct Answer {
    #[serde(default)]
    accepted: u64,
    #[serde(default)]
    unchanged: u64,
    #[serde(default)]
    failed: u64,
    #[serde(default)]
    errors: Vec<LineError>,
}

impl Answer {
    /// A server that took no line at all answers with 422, and with a report nevertheless.
    fn of_refusal(error: &Error) -> Option<Self> {
        let Error::Refused { status: StatusCode::UNPROCESSABLE_ENTITY, body, .. } = error else { return None };
        serde_json::from_slice(body).ok().filter(|answer: &Self| !answer.errors.is_empty())
    }
}

/// A line that the server did not take.
#[derive(Deserialize)]
struct LineError {
    /// Its number in the request, from 1.
    line: usize,
    id: Option<String>,
    error: Told,
}

/// What became of a batch.
struct Outcome {
    batch: Batch,
    answer: Result<Answer, Error>,
}

impl Load {
    /// Loads the documents; fails if any line did.
    pub async fn run(self, client: Client, options: &Options) -> anyhow::Result<()> {
        let size = Size { lines_max: self.batch as usize, bytes_max: BATCH_BYTES_MAX };
        let input = BufReader::with_capacity(1 << 20, self.file.open()?);
        let parallel = usize::from(self.parallel);
        let (sender, mut batches) = mpsc::channel(parallel);
        // Reading blocks, and standard input may block for ever, so nothing waits for this thread.
        let reader = std::thread::Builder::new().name("reader".to_owned());
        reader.spawn(move || read(Batches::new(input, size), &sender)).context("cannot start a thread")?;

        let sender = Arc::new(Sender { client, reached: AtomicBool::new(false) });
        let mut tally = Tally::new(&self.file, options.json);
        let mut under_way = JoinSet::new();
        let mut open = true;
        while open || !under_way.is_empty() {
            tokio::select! {
                batch = batches.recv(), if open && under_way.len() < parallel => match batch {
                    Some(batch) => {
                        let batch = batch.with_context(|| format!("cannot read {}", self.file.name()))?;
                        under_way.spawn(Arc::clone(&sender).send(batch));
                    }
                    None => open = false,
                },
                Some(outcome) = under_way.join_next() => {
                    open &= tally.add(outcome.context("a request broke")?)?;
                }
            }
        }
        tally.finish()
    }
}

/// Hands batches over until the input ends or nobody takes them any more.
fn read(batches: Batches<impl std::io::BufRead>, sender: &mpsc::Sender<std::io::Result<Batch>>) {
    for batch in batches {
        if sender.blocking_send(batch).is_err() {
            return;
        }
    }
}

/// Sends batches, several times where that may help.
struct Sender {
    client: Client,
    /// Whether the server has answered yet. One that was never there is not waited for.
    reached: AtomicBool,
}

impl Sender {
    async fn send(self: Arc<Self>, mut batch: Batch) -> Outcome {
        let body = batch.take_body();
        if batch.lines.is_empty() {
            return Outcome { batch, answer: Ok(Answer::default()) };
        }
        let mut attempt = 1;
        let mut delay = RETRY_DELAY;
        loop {
            let answer = self.send_once(body.clone()).await;
            if answer.as_ref().err().is_none_or(Error::is_answer) {
                self.reached.store(true, Ordering::Relaxed);
            }
            match answer {
                Err(error)
                    if attempt < ATTEMPTS_MAX && error.is_temporary() && self.reached.load(Ordering::Relaxed) =>
                {
                    tokio::time::sleep(error.retry_after().unwrap_or(delay).min(RETRY_DELAY_MAX)).await;
                }
                answer => return Outcome { batch, answer },
            }
            attempt += 1;
            delay *= 2;
        }
    }

    async fn send_once(&self, body: Bytes) -> Result<Answer, Error> {
        let body = Body { kind: NDJSON, bytes: body };
        match self.client.send(Method::POST, "/documents", Some(body)).await {
            Ok(answer) => serde_json::from_slice(&answer).map_err(|_| Error::Foreign),
            Err(error) => Answer::of_refusal(&error).ok_or(error),
        }
    }
}

/// The sums so far, and what people see of them.
struct Tally {
    name: String,
    json: bool,
    bar: ProgressBar,
    accepted: u64,
    unchanged: u64,
    failed: u64,
    /// The first line and the error of the request that ended the run.
    stopped: Option<(u64, Error)>,
}

impl Tally {
    fn new(file: &Input, json: bool) -> Self {
        let (bar, template) = match file.length() {
            Some(length) => {
                (ProgressBar::new(length), "{bar:30} {percent:>3}%  {msg}  {binary_bytes_per_sec}  {eta} left")
            }
            None => (ProgressBar::no_length(), "{spinner} {binary_bytes}  {msg}  {binary_bytes_per_sec}"),
        };
        bar.set_draw_target(ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self { name: file.name(), json, bar, accepted: 0, unchanged: 0, failed: 0, stopped: None }
    }

    /// Counts what became of a batch; `false` means that there is no use in sending more.
    fn add(&mut self, outcome: Outcome) -> anyhow::Result<bool> {
        let Outcome { batch, answer } = outcome;
        for wrong in &batch.wrong {
            self.failed += 1;
            let error = json!({ "code": "line.invalid", "title": "invalid line", "detail": wrong.reason });
            self.line_failed(wrong.line, None, &wrong.reason, &error)?;
        }
        match answer {
            Ok(answer) => {
                self.accepted += answer.accepted;
                self.unchanged += answer.unchanged;
                self.failed += answer.failed;
                let told = answer.errors.len() as u64;
                for LineError { line, id, error } in answer.errors {
                    let line = line.checked_sub(1).and_then(|index| batch.lines.get(index)).copied().unwrap_or(0);
                    let wire = json!({ "code": error.code, "title": error.title, "detail": error.detail });
                    self.line_failed(line, id.as_deref(), &error.sentence(), &wire)?;
                }
                self.not_told(&batch, answer.failed.saturating_sub(told));
            }
            Err(error) => {
                self.failed += batch.lines.len() as u64;
                let first = batch.lines.first().copied().unwrap_or(0);
                if self.stopped.as_ref().is_none_or(|(line, _)| first < *line) {
                    self.stopped = Some((first, error));
                }
            }
        }
        self.bar.inc(batch.input_bytes);
        self.bar.set_message(format!("{} documents", self.accepted + self.unchanged));
        Ok(self.stopped.is_none())
    }

    fn line_failed(&self, line: u64, id: Option<&str>, sentence: &str, error: &Value) -> anyhow::Result<()> {
        if self.json {
            return self.bar.suspend(|| terminal::print(json!({ "line": line, "id": id, "error": error }).to_string()));
        }
        let id = id.map(|id| format!("{}: ", harmless(id))).unwrap_or_default();
        self.bar.suspend(|| terminal::note(format!("{}:{line}: {id}{}", self.name, harmless(sentence))));
        Ok(())
    }

    /// Servers list only the first failures of a request.
    fn not_told(&self, batch: &Batch, count: u64) {
        if let (1.., Some(first), Some(last)) = (count, batch.lines.first(), batch.lines.last()) {
            let name = &self.name;
            let text =
                format!("{name}: {count} more of the lines {first} to {last} failed; --batch 100 tells each of them");
            self.bar.suspend(|| terminal::note(text));
        }
    }

    fn finish(self) -> anyhow::Result<()> {
        self.bar.finish_and_clear();
        let Self { accepted, unchanged, failed, .. } = self;
        if self.json {
            terminal::print(json!({ "accepted": accepted, "unchanged": unchanged, "failed": failed }).to_string())?;
        } else {
            terminal::print(format!("{accepted} accepted, {unchanged} unchanged, {failed} failed"))?;
        }
        if let Some((line, error)) = self.stopped {
            let again = "run it again when this is solved: what is already there is counted as unchanged";
            return Err(error).with_context(|| format!("stopped at {}:{line}; {again}", self.name));
        }
        anyhow::ensure!(failed == 0, "{failed} of the lines of {} failed", self.name);
        Ok(())
    }
}
