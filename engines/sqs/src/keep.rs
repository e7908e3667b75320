//! Prolongs the invisibility of messages that are worked on for long.

use std::sync::Arc;

use flare_toolkit::taken::Taken;
use tokio::time::MissedTickBehavior;

use crate::{batches, service::Service};

/// How often a message is prolonged within the time after which it would come again.
const TIMES: u32 = 3;

/// Works until the queue is closed.
pub(crate) async fn keep(taken: Arc<Taken>, service: Arc<Service>) {
    let age = service.visibility / TIMES;
    let mut ticks = tokio::time::interval(age / 2);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let stop = service.stop.clone();
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        for (queue, receipts) in taken.due(age) {
            let prolonging = batches::hide(&service, &queue, receipts, service.visibility);
            match stop.run_until_cancelled(prolonging).await {
                // What could not be prolonged comes again, to this node or another.
                Some(outcome) => drop(service.health.note(outcome)),
                None => return,
            }
        }
    }
}
