//! The service: credentials, where it is, and the queues that it has.

use std::{collections::HashMap, time::Duration};

use aws_config::{BehaviorVersion, Region, retry::RetryConfig, timeout::TimeoutConfig};
use aws_sdk_sqs::{
    Client,
    config::Credentials,
    types::QueueAttributeName::{
        ApproximateNumberOfMessages, ApproximateNumberOfMessagesDelayed, ApproximateNumberOfMessagesNotVisible,
        MessageRetentionPeriod, QueueArn, ReceiveMessageWaitTimeSeconds, RedrivePolicy, VisibilityTimeout,
    },
};
use aws_smithy_http_client::{
    Builder,
    tls::{Provider, rustls_provider::CryptoMode},
};
use flare_core::{
    Error, Result,
    queue::{Declared, Depth, QueueName},
};
use flare_toolkit::health::Health;
use parking_lot::Mutex;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    failure::{Failure, Reason},
    options::Options,
};

/// Of queues that are made: the longest that SQS knows.
const RETENTION: Duration = Duration::from_secs(14 * 24 * 3600);
/// The longest that SQS knows.
pub(crate) const POLL_SECONDS_MAX: u64 = 20;
/// Of calls that SQS could not answer, or has no time for.
const ATTEMPTS_MAX: u32 = 4;
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(2);
/// Idle connections; a long poll holds one.
const IDLE_CONNECTIONS_MAX: usize = 64;

pub(crate) struct Service {
    pub client: Client,
    /// Where it is, for people.
    pub name: String,
    pub timeout: Duration,
    pub visibility: Duration,
    may_create: bool,
    dead_letter: Option<(String, u32)>,
    urls: Mutex<HashMap<QueueName, String>>,
    pub health: Health,
    /// Calls that outlive whoever asked for them.
    pub calls: TaskTracker,
    pub stop: CancellationToken,
}

impl Service {
    pub async fn open(options: &Options) -> Result<Self> {
        let http = Builder::new()
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .tls_provider(Provider::Rustls(CryptoMode::AwsLc))
            .build_https();
        let retry = RetryConfig::standard().with_max_attempts(ATTEMPTS_MAX);
        let mut loader = aws_config::defaults(BehaviorVersion::latest())
            .http_client(http)
            .retry_config(retry.with_initial_backoff(RETRY_MIN).with_max_backoff(RETRY_MAX))
            .timeout_config(timeouts(options.timeout));
        if let Some(region) = &options.region {
            loader = loader.region(Region::new(region.clone()));
        }
        if let Some(profile) = &options.profile {
            loader = loader.profile_name(profile);
        }
        if let Some(endpoint) = &options.endpoint {
            loader = loader.endpoint_url(endpoint);
        }
        if let (Some(key), Some(secret)) = (&options.key, &options.secret) {
            let token = options.session_token.clone();
            loader = loader.credentials_provider(Credentials::new(key, secret, token, None, "flare"));
        }
        let config = loader.load().await;
        let Some(region) = config.region() else {
            return Err(Error::invalid("SQS needs a region: set the option region, or AWS_REGION"));
        };
        let name = match &options.endpoint {
            Some(endpoint) => format!("SQS at {endpoint}"),
            None => format!("SQS in {region}"),
        };
        Ok(Self {
            client: Client::new(&config),
            name,
            timeout: options.timeout,
            visibility: options.visibility,
            may_create: options.create,
            dead_letter: options.dead_letter.clone().map(|name| (name, options.receives_before_dead)),
            urls: Mutex::default(),
            health: Health::default(),
            calls: TaskTracker::new(),
            stop: CancellationToken::new(),
        })
    }

    pub fn check(&self) -> Result<()> {
        if self.stop.is_cancelled() { Err(Error::unavailable("the queue was closed")) } else { Ok(()) }
    }

    pub fn explain(&self, queue: &QueueName, failure: Failure) -> Error {
        if failure.reason == Reason::Missing {
            self.urls.lock().remove(queue);
        }
        failure.explain(&self.name, &format!("the queue {queue}"))
    }

    /// The address of a queue; `NotFound` if there is none.
    pub async fn url(&self, queue: &QueueName) -> Result<String> {
        if let Some(url) = self.urls.lock().get(queue) {
            return Ok(url.clone());
        }
        self.find(queue).await.map_err(|failure| self.explain(queue, failure))
    }

    async fn find(&self, queue: &QueueName) -> Result<String, Failure> {
        let url = self.find_by_name(queue.as_str()).await?;
        self.urls.lock().insert(queue.clone(), url.clone());
        Ok(url)
    }

    async fn find_by_name(&self, name: &str) -> Result<String, Failure> {
        let found = self.client.get_queue_url().queue_name(name).send().await.map_err(|error| Failure::of(&error))?;
        found.queue_url.ok_or_else(|| Failure::new(Reason::Away, "there was no address in the answer"))
    }

    pub async fn declare(&self, queue: &QueueName) -> Result<Declared> {
        match self.find(queue).await {
            Ok(_) => return Ok(Declared::There),
            Err(failure) if failure.reason == Reason::Missing => {}
            // Where the policy lets nobody ask for addresses, SQS does not tell whether there is a queue.
            Err(failure) => return Err(self.not_declared(queue, failure)),
        }
        if !self.may_create {
            return Err(Error::invalid(format!(
                "{} has no queue {queue}, and the option create is off: make it, or turn the option on",
                self.name
            )));
        }
        match self.make(queue).await {
            Ok(()) => Ok(Declared::Made),
            // Made by somebody else at the same moment, with settings of his own.
            Err(failure) if failure.reason == Reason::Exists => {
                self.find(queue).await.map_err(|failure| self.not_declared(queue, failure))?;
                Ok(Declared::There)
            }
            Err(failure) => Err(self.not_declared(queue, failure)),
        }
    }

    fn not_declared(&self, queue: &QueueName, failure: Failure) -> Error {
        if failure.reason != Reason::Denied {
            return self.explain(queue, failure);
        }
        let reason = failure.explain(&self.name, &format!("the queue {queue}"));
        Error::invalid(format!(
            "{reason}; allow sqs:GetQueueUrl and sqs:CreateQueue to these credentials, or make the queue yourself \
             and set create = false"
        ))
    }

    async fn make(&self, queue: &QueueName) -> Result<(), Failure> {
        let mut making = self
            .client
            .create_queue()
            .queue_name(queue.as_str())
            .attributes(VisibilityTimeout, self.visibility.as_secs().to_string())
            .attributes(MessageRetentionPeriod, RETENTION.as_secs().to_string())
            .attributes(ReceiveMessageWaitTimeSeconds, POLL_SECONDS_MAX.to_string());
        if let Some((name, receives)) = &self.dead_letter
            && name != queue.as_str()
        {
            let target = self.dead_letter_target(name).await?;
            // Names of AWS have no characters that JSON would want otherwise.
            let policy = format!(r#"{{"deadLetterTargetArn":"{target}","maxReceiveCount":"{receives}"}}"#);
            making = making.attributes(RedrivePolicy, policy);
        }
        let made = making.send().await.map_err(|error| Failure::of(&error))?;
        if let Some(url) = made.queue_url {
            self.urls.lock().insert(queue.clone(), url);
        }
        Ok(())
    }

    /// The full name of the queue for dead letters, which is made where it is missing.
    async fn dead_letter_target(&self, name: &str) -> Result<String, Failure> {
        let url = match self.find_by_name(name).await {
            Err(failure) if failure.reason == Reason::Missing => {
                let retention = RETENTION.as_secs().to_string();
                let making = self.client.create_queue().queue_name(name).attributes(MessageRetentionPeriod, retention);
                making.send().await.map_err(|error| Failure::of(&error))?.queue_url.unwrap_or_default()
            }
            found => found?,
        };
        let asking = self.client.get_queue_attributes().queue_url(url).attribute_names(QueueArn);
        let attributes = asking.send().await.map_err(|error| Failure::of(&error))?.attributes.unwrap_or_default();
        let target = attributes.get(&QueueArn).cloned();
        target.ok_or_else(|| Failure::new(Reason::Away, format!("the queue {name} does not tell its full name")))
    }

    pub async fn remove(&self, queue: &QueueName) -> Result<()> {
        let url = match self.find(queue).await {
            Ok(url) => url,
            Err(failure) if failure.reason == Reason::Missing => return Ok(()),
            Err(failure) => return Err(self.explain(queue, failure)),
        };
        let removed = self.client.delete_queue().queue_url(url).send().await.map_err(|error| Failure::of(&error));
        self.urls.lock().remove(queue);
        match removed {
            Ok(_) => Ok(()),
            Err(failure) if failure.reason == Reason::Missing => Ok(()),
            Err(failure) => Err(self.explain(queue, failure)),
        }
    }

    pub async fn depth(&self, queue: &QueueName) -> Result<Depth> {
        let asking = self
            .client
            .get_queue_attributes()
            .queue_url(self.url(queue).await?)
            .attribute_names(ApproximateNumberOfMessages)
            .attribute_names(ApproximateNumberOfMessagesDelayed)
            .attribute_names(ApproximateNumberOfMessagesNotVisible);
        let answer = asking.send().await.map_err(|error| self.explain(queue, Failure::of(&error)))?;
        let attributes = answer.attributes.unwrap_or_default();
        let count = |name| attributes.get(&name).and_then(|count| count.parse::<u64>().ok()).unwrap_or_default();
        Ok(Depth {
            ready: count(ApproximateNumberOfMessages) + count(ApproximateNumberOfMessagesDelayed),
            taken: count(ApproximateNumberOfMessagesNotVisible),
        })
    }
}

/// Of each attempt of a call.
pub(crate) fn timeouts(timeout: Duration) -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(timeout)
        .operation_attempt_timeout(timeout)
        .operation_timeout(timeout * 2)
        .build()
}
