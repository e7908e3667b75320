//! `flare dump status`.

use anyhow::bail;
use clap::Args;
use indicatif::{HumanBytes, HumanCount};
use serde_json::json;

use super::display::state;
use super::options::JobOptions;
use crate::terminal::{self, harmless};

/// How many failed chunks are listed.
const FAILED_SHOWN_MAX: usize = 20;

/// Arguments of `flare dump status`.
#[derive(Args, Debug)]
pub struct Status {
    #[command(flatten)]
    job: JobOptions,

    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

impl Status {
    pub fn run(self) -> anyhow::Result<()> {
        let place = match &self.job.job {
            Some(path) => flare_dump::history::Place::of_job(path),
            None => self.job.place(&self.job.job()?)?,
        };
        let Some(history) = place.load()? else {
            bail!(
                "there is no copy: neither {} nor {} is here; `flare dump run` begins one",
                place.history().display(),
                place.journal().display()
            );
        };
        let (rows, bytes, rejects) = history.totals();
        let (done, open) = (history.done().count(), history.open().count());
        let failed: Vec<_> = history.failed().collect();
        if self.json {
            let chunks: Vec<_> = failed
                .iter()
                .map(|(id, chunk, message)| json!({"chunk": id.to_string(), "range": chunk.range, "message": message}))
                .collect();
            return terminal::print(
                json!({
                    "state": history.state, "from": history.from, "to": history.to, "rows": rows, "bytes": bytes,
                    "rejects": rejects, "chunksDone": done, "chunksOpen": open, "walked": history.walked,
                    "next": history.next, "failed": chunks, "message": history.message,
                })
                .to_string(),
            );
        }
        let next = match &history.next.after {
            _ if history.walked => "nothing: the source is cut to its end".to_owned(),
            None => format!("chunk {}", history.next.ordinal),
            Some(key) => format!("chunk {}, after {key}", history.next.ordinal),
        };
        let mut lines = vec![
            ("state", state(history.state).to_owned()),
            ("from", history.from.clone()),
            ("to", history.to.clone()),
            ("rows", HumanCount(rows).to_string()),
            ("bytes", HumanBytes(bytes).to_string()),
            ("chunks", format!("{done} done, {open} not")),
            ("rejects", rejects.to_string()),
            ("next", next),
        ];
        lines.extend(history.message.as_ref().map(|message| ("message", message.clone())));
        let mut text: Vec<String> = lines.iter().map(|(name, value)| format!("{name:<10}{value}")).collect();
        for (id, chunk, message) in failed.iter().take(FAILED_SHOWN_MAX) {
            text.push(format!("failed    chunk {id} ({}): {message}", chunk.range));
        }
        terminal::print(harmless(&text.join("\n")))
    }
}
