//! A pull: one request that the server answers as soon as there is a message, with all that is there.

use std::{sync::Arc, time::Duration};

use async_nats::{Message as Delivery, StatusCode, Subscriber};
use bytes::Bytes;
use flare_core::{
    Error, Result,
    queue::{Message, QueueName, Receipt},
};
use futures_util::StreamExt;
use serde_json::json;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};

use crate::{NAK, connection::Connection, failure::Failure, lines::Lines};

/// The server keeps a request that it cannot fill because too much is taken: once something came, what follows comes
/// at once or not now.
const LULL: Duration = Duration::from_millis(200);
/// How long to wait if requests of others are before ours.
const TURN: Duration = Duration::from_millis(50);

/// Why the server gives no more.
enum Ending {
    /// That was all, or nothing came in time.
    Over,
    /// Others have asked before us, for more than there is.
    Later,
    /// There is no such consumer, or nobody who would know.
    NobodyThere,
    Refused(String),
}

pub(crate) async fn pull(
    connection: &Arc<Connection>,
    lines: &Lines,
    pulls: &TaskTracker,
    queue: &QueueName,
    max: usize,
    wait: Duration,
) -> Result<Vec<Message>> {
    let until = Instant::now() + wait;
    if max == 0 {
        return Ok(Vec::new());
    }
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let lost = connection.lost();
        let mut net = Net::cast(connection, lines, pulls, queue, max, left).await?;
        let ending = tokio::select! {
            ending = net.fill(left) => ending?,
            () = lost => Ending::Refused("the connection was lost".into()),
            () = connection.stop.cancelled() => return Err(Error::unavailable("the queue was closed")),
        };
        let messages = net.haul();
        if !messages.is_empty() {
            return Ok(messages);
        }
        match ending {
            Ending::Over => return Ok(messages),
            Ending::Later if Instant::now() + TURN < until => tokio::time::sleep(TURN).await,
            Ending::Later => return Ok(messages),
            Ending::NobodyThere => {
                lines.check(queue).await?;
                return Err(lines.explain(queue, Failure::NobodyThere));
            }
            Ending::Refused(words) => {
                let server = &connection.server;
                return Err(Error::unavailable(format!("NATS at {server} gives no messages of {queue}: {words}")));
            }
        }
    }
}

/// A request that is under way, and what came of it. If it is dropped, what came and what is still on its way is given
/// back.
struct Net {
    connection: Arc<Connection>,
    subscriber: Option<Subscriber>,
    /// Where the answers come.
    inbox: String,
    max: usize,
    caught: Vec<Delivery>,
    /// The server knows that the request is done with.
    is_over: bool,
    /// Messages that were handed on.
    came: usize,
    /// Whoever closes the queue waits for this.
    token: TaskTrackerToken,
}

impl Net {
    async fn cast(
        connection: &Arc<Connection>,
        lines: &Lines,
        pulls: &TaskTracker,
        queue: &QueueName,
        max: usize,
        wait: Duration,
    ) -> Result<Self> {
        // Together: wait for the first, and then give no more than what is there.
        let mut request = json!({"batch": max, "no_wait": true});
        if !wait.is_zero() {
            request["expires"] = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX).into();
        }
        let inbox = connection.client.new_inbox();
        let unsent = |error: Box<dyn std::error::Error + Send + Sync>| {
            let text = format!("NATS at {} cannot be asked for messages: {error}", connection.server);
            Error::unavailable(text)
        };
        let subscriber = connection.client.subscribe(inbox.clone()).await.map_err(|error| unsent(error.into()))?;
        let mut net = Self {
            connection: connection.clone(),
            subscriber: Some(subscriber),
            inbox: inbox.clone(),
            max,
            caught: Vec::new(),
            is_over: true,
            came: 0,
            token: pulls.token(),
        };
        let subject = connection.next_subject(lines.stream(), queue.as_str());
        net.is_over = false;
        let sent = connection.client.publish_with_reply(subject, inbox, Bytes::from(request.to_string()));
        timeout(connection.timeout, sent)
            .await
            .map_err(|elapsed| unsent(elapsed.into()))?
            .map_err(|error| unsent(error.into()))?;
        Ok(net)
    }

    /// Takes what comes until the server ends it, or there is enough.
    async fn fill(&mut self, wait: Duration) -> Result<Ending> {
        let end = Instant::now() + wait + self.connection.timeout;
        let Some(subscriber) = &mut self.subscriber else { return Ok(Ending::Over) };
        while self.caught.len() < self.max {
            let patience = if self.caught.is_empty() { end } else { end.min(Instant::now() + LULL) };
            let Ok(next) = timeout_at(patience, subscriber.next()).await else {
                if self.caught.is_empty() {
                    let server = &self.connection.server;
                    return Err(Error::unavailable(format!("NATS at {server} does not answer to a pull")));
                }
                break;
            };
            let Some(delivery) = next else { return Ok(Ending::Refused("the connection was closed".into())) };
            match ending(&delivery) {
                None => self.caught.push(delivery),
                Some(ending) => {
                    self.is_over = true;
                    return Ok(ending);
                }
            }
        }
        self.is_over = self.caught.len() >= self.max;
        Ok(Ending::Over)
    }

    /// What was caught.
    fn haul(&mut self) -> Vec<Message> {
        self.came += self.caught.len();
        std::mem::take(&mut self.caught).into_iter().filter_map(message).collect()
    }
}

/// Gives back what was caught, and what may still come.
impl Drop for Net {
    fn drop(&mut self) {
        let caught = std::mem::take(&mut self.caught);
        let Some(subscriber) = self.subscriber.take() else { return };
        if (caught.is_empty() && self.is_over) || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let (connection, token, inbox) = (self.connection.clone(), self.token.clone(), std::mem::take(&mut self.inbox));
        let (came, is_over) = (self.came + caught.len(), self.is_over);
        // The last of all that the server may send: the messages, a word in the end, and one of ours.
        let last = self.max + 2;
        crate::spawn(async move {
            let late = async {
                if is_over { Vec::new() } else { catch_the_rest(&connection, subscriber, &inbox, came, last).await }
            };
            for receipt in caught.into_iter().chain(late.await).filter_map(message).map(|message| message.receipt) {
                // What the server does not hear of comes again after `ack_wait`.
                let _may_be_away = connection.client.publish(receipt.0.to_string(), NAK).await;
            }
            drop(token);
        });
    }
}

/// Ends a request, and catches what the server has sent before it heard of that.
///
/// The driver forgets a subscription at once when it is ended. So it is told to end after a number of messages that
/// is more than the server can have sent, and we send what is missing ourselves.
async fn catch_the_rest(
    connection: &Connection,
    mut subscriber: Subscriber,
    inbox: &str,
    came: usize,
    last: usize,
) -> Vec<Delivery> {
    let mut caught = Vec::new();
    let catching = async {
        if subscriber.unsubscribe_after(last as u64).await.is_err() {
            return;
        }
        for _ in came..last {
            if connection.client.publish(inbox.to_owned(), Bytes::new()).await.is_err() {
                return;
            }
        }
        while let Some(delivery) = subscriber.next().await {
            caught.push(delivery);
        }
    };
    let _may_be_away = timeout(connection.timeout, catching).await;
    caught
}

fn message(delivery: Delivery) -> Option<Message> {
    let receipt = delivery.reply?;
    Some(Message { body: delivery.payload, receipt: Receipt(receipt.as_str().into()) })
}

/// Whether it is a word of the server, and no message.
fn ending(delivery: &Delivery) -> Option<Ending> {
    let status = delivery.status?;
    let words = delivery.description.clone().unwrap_or_default();
    Some(match status {
        StatusCode::OK => return None,
        StatusCode::NO_RESPONDERS => Ending::NobodyThere,
        StatusCode::NOT_FOUND => Ending::Over,
        StatusCode::TIMEOUT if words.eq_ignore_ascii_case("Requests Pending") => Ending::Later,
        StatusCode::TIMEOUT => Ending::Over,
        _ if words.eq_ignore_ascii_case("Consumer Deleted") => Ending::NobodyThere,
        _ => Ending::Refused(format!("{words} ({status})")),
    })
}
