//! From the start of the process to a good answer on /ready, with an empty store.

use anyhow::Result;

use super::progress;
use crate::lab::Lab;
use crate::process::Usage;
use crate::report::Row;
use crate::sample::{Sample, median};
use crate::server::Server;

const GOAL_MS: f64 = 1000.0;

pub async fn run(lab: &Lab) -> Result<Vec<Row>> {
    let name = "start-up";
    progress(name, "start with an empty store");
    let (mut times_ms, mut runs) = (Vec::new(), Vec::new());
    for _ in 0..lab.scale.starts {
        let flare = Server::start(lab).await?;
        times_ms.push(flare.start_ms);
        runs.push(Sample::of_memory(&Usage::of(flare.subject.pid)?));
    }
    let time_ms = median(times_ms).unwrap_or(f64::NAN);
    Ok(vec![Row::new(name, "flare, to /ready", runs).at_most(time_ms, GOAL_MS, "ms")])
}
