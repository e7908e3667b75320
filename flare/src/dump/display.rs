//! What is shown while a copy runs, and at its end.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Instant;

use flare_dump::copy::Summary;
use flare_dump::event::{Event, Observer, Progress};
use flare_dump::history::State;
use flare_dump::session::Session;
use indicatif::{HumanBytes, HumanCount, HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

use super::run::How;
use crate::terminal::{self, harmless};

const BAR: &str = "{prefix}  {percent:>3}% [{bar:30}] {human_pos}/{human_len} rows  {msg}  ETA {eta}";
const SPINNER: &str = "{prefix}  {spinner} {human_pos} rows  {msg}";

/// Shows events and progress in one of several ways.
pub struct Display {
    how: How,
    bar: ProgressBar,
    progress: Arc<Progress>,
    workers: usize,
    began: Instant,
    /// Rows that earlier runs had done, for the rate of this one.
    from: String,
    to: String,
}

impl Display {
    pub fn new(how: How, session: &Session, progress: Arc<Progress>) -> Self {
        let is_bar = how == How::Auto && std::io::stderr().is_terminal();
        let how = if how == How::Auto && !is_bar { How::Lines } else { how };
        let target = if is_bar { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let rows = session.rows_estimate().filter(|rows| *rows > 0);
        let bar = ProgressBar::with_draw_target(rows, target);
        let style = ProgressStyle::with_template(if rows.is_some() { BAR } else { SPINNER });
        bar.set_style(style.expect("the template is well-formed"));
        bar.set_prefix(harmless(&session.source.to_string()).into_owned());
        let (from, to) = (session.source.to_string(), session.target.to_string());
        Self { how, bar, progress, workers: session.job.workers, began: Instant::now(), from, to }
    }

    /// Draws the bar anew.
    pub fn draw(&self) {
        let get = Progress::get;
        let seconds = self.began.elapsed().as_secs_f64().max(0.001);
        let (rows, bytes) = (get(&self.progress.rows), get(&self.progress.bytes));
        let mut message = format!(
            "{} rows/s  {}/s  {}/{} workers",
            HumanCount((rows as f64 / seconds) as u64),
            HumanBytes((bytes as f64 / seconds) as u64),
            get(&self.progress.busy),
            self.workers,
        );
        for (count, name) in [(get(&self.progress.errors), "errors"), (get(&self.progress.rejects), "rejects")] {
            if count > 0 {
                message.push_str(&format!("  {count} {name}"));
            }
        }
        let done = get(&self.progress.rows_done);
        // An estimate may fall short.
        if self.bar.length().is_some_and(|length| length < done) {
            self.bar.set_length(done);
        }
        self.bar.set_position(done);
        self.bar.set_message(message);
    }

    pub fn close(&self) {
        self.bar.finish_and_clear();
    }

    /// A remark that does not disturb the bar.
    pub fn say(&self, text: &str) {
        if self.how != How::None {
            self.bar.suspend(|| terminal::note(harmless(text)));
        }
    }

    /// What came of it.
    pub fn summary(&self, summary: &Summary) {
        let seconds = summary.elapsed.as_secs_f64();
        let rate = (summary.rows_now as f64 / seconds.max(0.001)) as u64;
        let verified = summary.verified.as_ref().map(ToString::to_string);
        // Whoever closed standard output does not want to know.
        let _ = match self.how {
            How::None => Ok(()),
            How::Json => terminal::print(
                json!({
                    "event": "summary", "state": summary.state, "rows": summary.rows, "bytes": summary.bytes,
                    "chunks": summary.chunks, "failed": summary.failed.len(), "rejects": summary.rejects,
                    "rejectsFile": summary.rejects_file, "rowsNow": summary.rows_now, "seconds": seconds,
                    "rowsPerSecond": rate, "verified": verified, "message": summary.message,
                })
                .to_string(),
            ),
            How::Auto | How::Lines => {
                let mut lines = vec![
                    ("from", self.from.clone()),
                    ("to", self.to.clone()),
                    ("state", state(summary.state).to_owned()),
                    ("rows", HumanCount(summary.rows).to_string()),
                    ("bytes", HumanBytes(summary.bytes).to_string()),
                    ("chunks", HumanCount(summary.chunks).to_string()),
                    ("failed", summary.failed.len().to_string()),
                    ("rejects", summary.rejects.to_string()),
                    ("time", format!("{} ({rate} rows/s)", HumanDuration(summary.elapsed))),
                ];
                lines.extend(summary.rejects_file.as_ref().map(|file| ("rejected to", file.display().to_string())));
                lines.extend(verified.map(|text| ("verified", text)));
                let lines: Vec<String> = lines.iter().map(|(name, value)| format!("{name:<12}{value}")).collect();
                terminal::print(harmless(&lines.join("\n")))
            }
        };
    }
}

pub fn state(state: State) -> &'static str {
    match state {
        State::Running => "running, or ended by a crash",
        State::Ended => "complete",
        State::Incomplete => "some chunks failed",
        State::Failed => "failed",
        State::Interrupted => "interrupted",
    }
}

impl Observer for Display {
    fn notify(&self, event: &Event) {
        match self.how {
            How::Json => {
                let line = serde_json::to_string(event).unwrap_or_default();
                let _ = terminal::print(line);
            }
            How::None => (),
            How::Lines => {
                if let Some(text) = told(event) {
                    terminal::note(harmless(&text));
                }
            }
            How::Auto => match event {
                Event::Completed { .. } | Event::End { .. } | Event::Failure { .. } => (),
                other => self.say(&told(other).unwrap_or_default()),
            },
        }
    }
}

/// An event for people. A failure is told with the way to go on, at the end.
fn told(event: &Event) -> Option<String> {
    Some(match event {
        Event::Completed { worker, chunk, range, rows, bytes, rejects, ms } => {
            let rejects = if *rejects > 0 { format!(", {rejects} rejected") } else { String::new() };
            let bytes = HumanBytes(*bytes);
            format!("completed  worker {worker}  chunk {chunk} ({range}): {rows} rows, {bytes}{rejects}, {ms} ms")
        }
        Event::Error { worker, chunk, range, message } => {
            format!("error      worker {worker}  chunk {chunk} ({range}): {message}")
        }
        Event::Retry { chunk, message, wait_ms } => {
            format!("retry      chunk {chunk} in {wait_ms} ms: {message}")
        }
        Event::End { rows, .. } => format!("end        {rows} rows"),
        Event::Failure { .. } => return None,
    })
}
