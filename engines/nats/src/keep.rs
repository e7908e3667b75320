//! Tells the server in time of messages that are worked on for long.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use flare_toolkit::taken::Taken;
use tokio::time::MissedTickBehavior;

use crate::connection::Connection;

const IN_PROGRESS: Bytes = Bytes::from_static(b"+WPI");
/// How often the server hears of a message within the time after which it would come again.
const WORDS_IN_TIME: u32 = 4;

/// Works until the queue is closed.
pub(crate) async fn keep(taken: Arc<Taken>, connection: Arc<Connection>, ack_wait: Duration) {
    let age = ack_wait / WORDS_IN_TIME;
    let mut ticks = tokio::time::interval(age / 2);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let stop = connection.stop.clone();
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        if !connection.is_up() {
            continue;
        }
        for receipt in taken.due(age).into_iter().flat_map(|(_, receipts)| receipts) {
            if connection.client.publish(receipt.0.to_string(), IN_PROGRESS).await.is_err() {
                break;
            }
        }
    }
}
