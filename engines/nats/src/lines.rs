//! The stream, and the consumers that are the queues.

use std::{collections::HashMap, sync::Arc, time::Duration};

use async_nats::jetstream::{
    consumer::{self, AckPolicy, DeliverPolicy, ReplayPolicy},
    stream::{self, DiscardPolicy, RetentionPolicy, StorageType},
};
use flare_core::{
    Error, Result,
    queue::{Declared, Depth, QueueName},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{MESSAGE_BYTES_MAX, connection::Connection, failure::Failure, options::Options};

/// The stream takes messages for queues that another node has removed: so often it is looked.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);
/// We send no ids by which the server could find doubles.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(1);

pub(crate) struct Lines {
    connection: Arc<Connection>,
    stream: stream::Config,
    ack_wait: Duration,
    taken_max: i64,
    /// When queues were last seen.
    seen: Mutex<HashMap<QueueName, Instant>>,
}

impl Lines {
    pub fn new(connection: Arc<Connection>, options: &Options) -> Self {
        let stream = stream::Config {
            name: options.stream.clone(),
            description: Some("messages of Flare, one subject for each queue".into()),
            subjects: vec![format!("{}.*", options.stream)],
            retention: RetentionPolicy::WorkQueue,
            storage: StorageType::File,
            // What does not fit is refused: it must not push out what was confirmed.
            discard: DiscardPolicy::New,
            max_bytes: i64::try_from(options.max_bytes).unwrap_or(i64::MAX),
            max_messages: -1,
            max_messages_per_subject: -1,
            max_consumers: -1,
            max_message_size: MESSAGE_BYTES_MAX as i32,
            max_age: options.max_age,
            duplicate_window: DUPLICATE_WINDOW,
            num_replicas: options.replicas,
            ..stream::Config::default()
        };
        let taken_max = i64::try_from(options.taken_max).unwrap_or(i64::MAX);
        Self { connection, stream, ack_wait: options.ack_wait, taken_max, seen: Mutex::default() }
    }

    pub fn stream(&self) -> &str {
        &self.stream.name
    }

    pub fn subject(&self, queue: &QueueName) -> String {
        format!("{}.{queue}", self.stream())
    }

    /// The stream, which is made where it is missing.
    pub async fn find_or_make_stream(&self) -> Result<stream::Info> {
        let name = self.stream();
        let what = format!("the stream {name}");
        let mut found = self.connection.api::<stream::Info>(format!("STREAM.INFO.{name}"), &json!({})).await;
        if found.as_ref().is_err_and(Failure::is_missing) {
            found = self.connection.api(format!("STREAM.CREATE.{name}"), &self.stream).await;
        }
        if found.as_ref().is_err_and(Failure::is_taken) {
            found = self.connection.api(format!("STREAM.INFO.{name}"), &json!({})).await;
        }
        let info = found.map_err(|failure| self.connection.explain(&what, failure))?;
        match self.misfit(&info.config) {
            Some(misfit) => Err(Error::invalid(format!(
                "the stream {name} of NATS {misfit}; remove it, or name another with the option stream"
            ))),
            None => Ok(info),
        }
    }

    /// Why a stream of that name is not one of ours. Its limits are for people to change.
    fn misfit(&self, config: &stream::Config) -> Option<String> {
        if config.retention != RetentionPolicy::WorkQueue {
            Some("is no work queue".into())
        } else if config.discard != DiscardPolicy::New {
            Some("discards old messages when it is full".into())
        } else if config.no_ack {
            Some("confirms nothing".into())
        } else if !config.subjects.contains(&self.stream.subjects[0]) {
            Some(format!("does not have the subjects {}", self.stream.subjects[0]))
        } else {
            None
        }
    }

    pub async fn declare(&self, queue: &QueueName) -> Result<Declared> {
        // In this order: what was in the stream before the consumer was seen missing belongs to nobody.
        let last = self.find_or_make_stream().await?.state.last_sequence;
        let declared = match self.info(queue).await {
            Ok(info) => self.adjust(queue, &info.config).await?,
            Err(failure) if failure.is_missing() => {
                self.purge(queue, Some(last + 1)).await?;
                self.make(queue).await?
            }
            Err(failure) => return Err(self.explain(queue, failure)),
        };
        self.seen.lock().insert(queue.clone(), Instant::now());
        Ok(declared)
    }

    async fn make(&self, queue: &QueueName) -> Result<Declared> {
        match self.put(queue, "create").await {
            Ok(()) => Ok(Declared::Made),
            Err(failure) if failure.is_taken() => Ok(Declared::There),
            Err(failure) => Err(self.explain(queue, failure)),
        }
    }

    /// A consumer that is there must be one of ours; what the options say of it may have changed.
    async fn adjust(&self, queue: &QueueName, config: &consumer::Config) -> Result<Declared> {
        let is_ours = config.deliver_subject.is_none()
            && config.ack_policy == AckPolicy::Explicit
            && config.filter_subject == self.subject(queue);
        if !is_ours {
            return Err(Error::invalid(format!(
                "the consumer {queue} of the stream {} of NATS was not made by Flare: remove it",
                self.stream()
            )));
        }
        let is_right =
            config.ack_wait == self.ack_wait && config.max_ack_pending == self.taken_max && config.max_deliver == -1;
        if !is_right {
            self.put(queue, "update").await.map_err(|failure| self.explain(queue, failure))?;
        }
        Ok(Declared::There)
    }

    async fn put(&self, queue: &QueueName, action: &str) -> Result<(), Failure> {
        let (stream, subject) = (self.stream(), self.subject(queue));
        let config = consumer::Config {
            durable_name: Some(queue.to_string()),
            name: Some(queue.to_string()),
            filter_subject: subject.clone(),
            deliver_policy: DeliverPolicy::All,
            ack_policy: AckPolicy::Explicit,
            replay_policy: ReplayPolicy::Instant,
            ack_wait: self.ack_wait,
            max_ack_pending: self.taken_max,
            max_deliver: -1,
            ..consumer::Config::default()
        };
        let request = json!({"stream_name": stream, "config": config, "action": action});
        self.connection.api(format!("CONSUMER.CREATE.{stream}.{queue}.{subject}"), &request).await.map(|_: Value| ())
    }

    pub async fn remove(&self, queue: &QueueName) -> Result<()> {
        self.seen.lock().remove(queue);
        let subject = format!("CONSUMER.DELETE.{}.{queue}", self.stream());
        match self.connection.api::<Value>(subject, &json!({})).await {
            Ok(_) => {}
            Err(failure) if failure.is_missing() => {}
            Err(failure) => return Err(self.explain(queue, failure)),
        }
        self.purge(queue, None).await
    }

    /// Removes what is in the stream for the queue, below a sequence.
    async fn purge(&self, queue: &QueueName, below: Option<u64>) -> Result<()> {
        let mut request = json!({"filter": self.subject(queue)});
        if let Some(below) = below {
            request["seq"] = below.into();
        }
        match self.connection.api::<Value>(format!("STREAM.PURGE.{}", self.stream()), &request).await {
            Ok(_) => Ok(()),
            Err(failure) if failure.is_missing() => Ok(()),
            Err(failure) => Err(self.explain(queue, failure)),
        }
    }

    pub async fn depth(&self, queue: &QueueName) -> Result<Depth> {
        let info = self.info(queue).await.map_err(|failure| self.explain(queue, failure))?;
        Ok(Depth { ready: info.num_pending, taken: info.num_ack_pending as u64 })
    }

    /// `NotFound` if there is no such queue, as far as was known a moment ago.
    pub async fn check_now_and_then(&self, queue: &QueueName) -> Result<()> {
        let seen = self.seen.lock().get(queue).copied();
        match seen {
            Some(seen) if seen.elapsed() < LOOK_INTERVAL => Ok(()),
            _ => self.check(queue).await,
        }
    }

    /// `NotFound` if there is no such queue.
    pub async fn check(&self, queue: &QueueName) -> Result<()> {
        match self.info(queue).await {
            Ok(_) => {
                self.seen.lock().insert(queue.clone(), Instant::now());
                Ok(())
            }
            Err(failure) => {
                let was_seen = self.seen.lock().remove(queue).is_some();
                if failure.is_missing() && was_seen {
                    // What we have pushed since belongs to nobody. If somebody makes the queue at this moment, it may
                    // lose a message that the store will announce again.
                    self.purge(queue, None).await?;
                }
                Err(self.explain(queue, failure))
            }
        }
    }

    async fn info(&self, queue: &QueueName) -> Result<consumer::Info, Failure> {
        self.connection.api(format!("CONSUMER.INFO.{}.{queue}", self.stream()), &json!({})).await
    }

    pub fn explain(&self, queue: &QueueName, failure: Failure) -> Error {
        if failure.is_missing() {
            return Error::not_found(format!("there is no queue {queue}"));
        }
        self.connection.explain(&format!("the queue {queue}"), failure)
    }
}
