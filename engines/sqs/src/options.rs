//! What can be set, and what of it makes no sense.

use std::{fmt, time::Duration};

use flare_core::{Error, Result, queue::QueueName};

/// How the engine reaches SQS, and what it makes there.
#[derive(Clone)]
pub struct Options {
    /// Where the queues are, such as `eu-central-1`. Without it, what the environment and the profile of AWS say.
    pub region: Option<String>,
    /// An access key; without it, the chain of AWS: environment, profile, web identity, container, instance.
    pub key: Option<String>,
    pub secret: Option<String>,
    /// Of credentials that are temporary.
    pub session_token: Option<String>,
    /// The profile in the files of AWS.
    pub profile: Option<String>,
    /// The address of an endpoint that is not that of the region: inside a VPC, or of an emulator.
    pub endpoint: Option<String>,
    /// Whether queues may be made where they are missing.
    pub create: bool,
    /// How long after the last word of a node what it has taken comes again.
    pub visibility: Duration,
    /// The queue for messages that were received too often, of queues that are made; without it there is none.
    pub dead_letter: Option<String>,
    /// How often a message may be received before it goes there.
    pub receives_before_dead: u32,
    /// Calls at the same time that fetch for one pull, while there is much to fetch.
    pub receives: usize,
    /// How long a call may take, longer polls aside.
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            region: None,
            key: None,
            secret: None,
            session_token: None,
            profile: None,
            endpoint: None,
            create: true,
            visibility: Duration::from_secs(30),
            dead_letter: None,
            receives_before_dead: 10,
            receives: 4,
            timeout: Duration::from_secs(5),
        }
    }
}

/// Secrets are left out.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("region", &self.region)
            .field("key", &self.key)
            .field("profile", &self.profile)
            .field("endpoint", &self.endpoint)
            .field("create", &self.create)
            .field("visibility", &self.visibility)
            .field("dead_letter", &self.dead_letter)
            .field("receives_before_dead", &self.receives_before_dead)
            .field("receives", &self.receives)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// What SQS allows.
const VISIBILITY_MAX: Duration = Duration::from_secs(12 * 3600);
const RECEIVES_BEFORE_DEAD_MAX: u32 = 1000;
const RECEIVES_MAX: usize = 64;
/// Below, a node that is merely busy would lose what it works on; SQS counts seconds.
const VISIBILITY_MIN: Duration = Duration::from_secs(2);

impl Options {
    /// What cannot work, by the name that the configuration has for it.
    pub(crate) fn check(&self) -> Result<()> {
        if let Some(name) = &self.dead_letter {
            let wrong = |error| Error::invalid("dead-letter-queue of SQS is no name of a queue").because(error);
            QueueName::new(name.clone()).map_err(wrong)?;
        }
        let is_address = |text: &String| text.starts_with("http://") || text.starts_with("https://");
        let problem = if self.key.is_some() != self.secret.is_some() {
            "key and secret of SQS go together"
        } else if self.session_token.is_some() && self.key.is_none() {
            "session-token of SQS goes with key and secret"
        } else if self.endpoint.as_ref().is_some_and(|endpoint| !is_address(endpoint)) {
            "url of SQS must begin with http:// or https://"
        } else if !(VISIBILITY_MIN..=VISIBILITY_MAX).contains(&self.visibility) {
            "hold of SQS (its visibility timeout) must be from 2 seconds to 12 hours"
        } else if !(1..=RECEIVES_BEFORE_DEAD_MAX).contains(&self.receives_before_dead) {
            "dead-letter-receives of SQS must be from 1 to 1000"
        } else if !(1..=RECEIVES_MAX).contains(&self.receives) {
            "receives-max of SQS must be from 1 to 64"
        } else if self.timeout.is_zero() {
            "timeout of SQS must be longer than nothing"
        } else {
            return Ok(());
        };
        Err(Error::invalid(problem))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_is_named() {
        let check = |change: fn(&mut Options), named: &str| {
            let mut options = Options::default();
            change(&mut options);
            let text = options.check().unwrap_err().chain();
            assert!(text.contains(named), "{text}");
        };
        Options::default().check().unwrap();
        check(|options| options.key = Some("key".into()), "secret");
        check(|options| options.session_token = Some("token".into()), "session-token");
        check(|options| options.endpoint = Some("localhost:4566".into()), "url");
        check(|options| options.visibility = Duration::from_secs(1), "hold");
        check(|options| options.visibility = Duration::from_secs(50_000), "hold");
        check(|options| options.dead_letter = Some("a b".into()), "dead-letter-queue");
        check(|options| options.receives_before_dead = 0, "dead-letter-receives");
        check(|options| options.receives = 0, "receives-max");
        check(|options| options.timeout = Duration::ZERO, "timeout");
    }

    #[test]
    fn secrets_are_not_shown() {
        let (secret, token) = (Some("secret1".into()), Some("secret2".into()));
        let options = Options { key: Some("akid".into()), secret, session_token: token, ..Options::default() };
        let text = format!("{options:?}");
        assert!(text.contains("akid") && !text.contains("secret1") && !text.contains("secret2"), "{text}");
    }
}
