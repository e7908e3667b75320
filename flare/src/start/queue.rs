//! The queue that changes go through. The other place that names engines is [`super::engine`].

use flare_node::{OpenQueue, QueuePer, TaskSettings};

use super::whole;
use crate::config::{Config, TaskEngine, TaskQueues};

/// None where outlets read the feed of the repository.
pub fn settings(config: &Config) -> anyhow::Result<Option<TaskSettings>> {
    let (engine, open, usual) = match config.task.engine {
        TaskEngine::Repository | TaskEngine::Memory => return Ok(None),
        // A queue costs little there, and shows people something.
        TaskEngine::Rabbitmq => ("rabbitmq", rabbitmq::open(config)?, QueuePer::Outlet),
        TaskEngine::Sqs => ("sqs", sqs::open(config)?, QueuePer::Slot),
        TaskEngine::Nats => ("nats", nats::open(config)?, QueuePer::Slot),
    };
    let queues = match config.task.queues {
        TaskQueues::Auto => usual,
        TaskQueues::Subscription => QueuePer::Outlet,
        TaskQueues::Slot => QueuePer::Slot,
    };
    let prefix = config.task.queue_subscription_delivery.clone();
    let settings = TaskSettings { engine, open, prefix, queues, window: config.task.window };
    settings.check().map_err(|error| whole(error).context("task.queue-subscription-delivery"))?;
    Ok(Some(settings))
}

#[cfg(any(feature = "rabbitmq", feature = "sqs", feature = "nats"))]
mod again {
    use std::sync::Arc;

    use flare_core::{Result, queue::Queue};

    /// Opens a queue with the same options each time.
    pub fn opener<O, F>(options: O, open: impl Fn(Arc<O>) -> F + Send + Sync + 'static) -> flare_node::OpenQueue
    where
        O: Send + Sync + 'static,
        F: Future<Output = Result<Arc<dyn Queue>>> + Send + 'static,
    {
        let options = Arc::new(options);
        Arc::new(move || Box::pin(open(options.clone())))
    }
}

#[cfg(feature = "rabbitmq")]
mod rabbitmq {
    use flare_rabbitmq::{Options, QueueType};

    use super::*;
    use crate::{
        config::TaskQueueType,
        start::engine::{given, given_path},
    };

    #[allow(clippy::unnecessary_wraps, reason = "an engine that was left out says so")]
    pub fn open(config: &Config) -> anyhow::Result<OpenQueue> {
        let (task, defaults) = (&config.task, Options::default());
        let options = Options {
            url: given(task.url.expose()),
            addrs: if task.addrs.is_empty() { defaults.addrs } else { task.addrs.clone() },
            username: given(&task.username).unwrap_or(defaults.username),
            password: given(task.password.expose()).unwrap_or(defaults.password),
            tls: !task.ca.as_os_str().is_empty(),
            ca: given_path(&task.ca),
            queue_type: match task.queue_type {
                TaskQueueType::Quorum => QueueType::Quorum,
                TaskQueueType::Classic => QueueType::Classic,
            },
            prefetch: task.prefetch,
            timeout: task.timeout.get(),
            ..defaults
        };
        Ok(again::opener(
            options,
            |options: std::sync::Arc<Options>| async move { flare_rabbitmq::open(&options).await },
        ))
    }
}

#[cfg(feature = "nats")]
mod nats {
    use flare_nats::Options;

    use super::*;
    use crate::start::engine::{given, given_path};

    #[allow(clippy::unnecessary_wraps, reason = "an engine that was left out says so")]
    pub fn open(config: &Config) -> anyhow::Result<OpenQueue> {
        let (task, defaults) = (&config.task, Options::default());
        let addrs = match given(task.url.expose()) {
            Some(url) => vec![url],
            None if task.addrs.is_empty() => defaults.addrs,
            None => task.addrs.clone(),
        };
        let options = Options {
            addrs,
            username: given(&task.username),
            password: given(task.password.expose()),
            credentials: given_path(&task.credentials),
            tls: !task.ca.as_os_str().is_empty(),
            ca: given_path(&task.ca),
            stream: task.queue_subscription_delivery.clone(),
            replicas: usize::from(task.replicas),
            max_bytes: task.stream_max.bytes(),
            ack_wait: task.hold.get(),
            timeout: task.timeout.get(),
            ..defaults
        };
        Ok(again::opener(options, |options: std::sync::Arc<Options>| async move { flare_nats::open(&options).await }))
    }
}

#[cfg(feature = "sqs")]
mod sqs {
    use flare_sqs::Options;

    use super::*;
    use crate::start::engine::given;

    #[allow(clippy::unnecessary_wraps, reason = "an engine that was left out says so")]
    pub fn open(config: &Config) -> anyhow::Result<OpenQueue> {
        let (task, aws) = (&config.task, &config.aws);
        let options = Options {
            region: given(&aws.region),
            key: given(&aws.key),
            secret: given(aws.secret.expose()),
            session_token: given(aws.session_token.expose()),
            profile: given(&aws.profile),
            endpoint: given(task.url.expose()),
            create: task.create,
            visibility: task.hold.get(),
            dead_letter: given(&task.dead_letter_queue),
            receives_before_dead: u32::from(task.dead_letter_receives),
            receives: usize::from(task.receives_max),
            timeout: task.timeout.get(),
        };
        Ok(again::opener(options, |options: std::sync::Arc<Options>| async move { flare_sqs::open(&options).await }))
    }
}

/// Stands in for an engine that was left out of the build.
macro_rules! left_out {
    ($engine:ident, $feature:literal) => {
        #[cfg(not(feature = $feature))]
        mod $engine {
            use super::*;

            pub fn open(_: &Config) -> anyhow::Result<OpenQueue> {
                anyhow::bail!(concat!(
                    "the engine \"",
                    $feature,
                    "\" is not part of this build; set task.engine to another one, or build with `--features ",
                    $feature,
                    "`"
                ))
            }
        }
    };
}

left_out!(rabbitmq, "rabbitmq");
left_out!(nats, "nats");
left_out!(sqs, "sqs");
