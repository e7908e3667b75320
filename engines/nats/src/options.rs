//! What can be set, and what of it makes no sense.

use std::{fmt, path::PathBuf, time::Duration};

use async_nats::ServerAddr;
use flare_core::{Error, Result};

/// How the engine reaches the server, and what it makes there.
#[derive(Clone)]
pub struct Options {
    /// Servers of one cluster, each `host:port`, `nats://host:port` or `tls://host:port`.
    pub addrs: Vec<String>,
    pub username: Option<String>,
    pub password: Option<String>,
    /// A token in place of a user.
    pub token: Option<String>,
    /// A file of credentials (`.creds`) in place of a user.
    pub credentials: Option<PathBuf>,
    /// Speak TLS even if the server does not insist.
    pub tls: bool,
    /// A file of certificates (PEM) of the authorities that may sign for the server, in place of those of the system.
    pub ca: Option<PathBuf>,
    /// The JetStream domain, where the server is a leaf node.
    pub domain: Option<String>,
    /// The stream; its subjects are `<stream>.<queue>`.
    pub stream: String,
    /// Copies of the stream in a cluster, if it is made: 1, 3 or 5.
    pub replicas: usize,
    /// How old a message may become, if the stream is made.
    pub max_age: Duration,
    /// How much the stream may hold, if it is made. What is more is refused.
    pub max_bytes: u64,
    /// How long after the last word of a node what it has taken comes again.
    pub ack_wait: Duration,
    /// Messages of one queue that may be taken and not settled, of all nodes together.
    pub taken_max: usize,
    /// How long a call may take.
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            addrs: vec!["127.0.0.1:4222".into()],
            username: None,
            password: None,
            token: None,
            credentials: None,
            tls: false,
            ca: None,
            domain: None,
            stream: "flare-subscription-delivery".into(),
            replicas: 1,
            max_age: Duration::from_secs(14 * 24 * 3600),
            max_bytes: 1 << 30,
            ack_wait: Duration::from_secs(30),
            taken_max: 10_000,
            timeout: Duration::from_secs(5),
        }
    }
}

/// Addresses may have a password in them: only what comes after it is shown.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("addrs", &self.names())
            .field("username", &self.username)
            .field("credentials", &self.credentials)
            .field("tls", &self.tls)
            .field("ca", &self.ca)
            .field("domain", &self.domain)
            .field("stream", &self.stream)
            .field("replicas", &self.replicas)
            .field("max_age", &self.max_age)
            .field("max_bytes", &self.max_bytes)
            .field("ack_wait", &self.ack_wait)
            .field("taken_max", &self.taken_max)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// NATS counts messages and bytes with a sign.
const COUNT_MAX: u64 = i64::MAX as u64;
/// Below, a node that is merely busy would lose what it works on.
const ACK_WAIT_MIN: Duration = Duration::from_secs(1);

impl Options {
    /// What cannot work, by the name that the configuration has for it.
    pub(crate) fn check(&self) -> Result<()> {
        self.servers()?;
        let ways = [self.username.is_some(), self.token.is_some(), self.credentials.is_some()];
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let problem = if ways.iter().filter(|is_given| **is_given).count() > 1 {
            "NATS takes one of username, token and credentials, not several"
        } else if self.username.is_some() != self.password.is_some() {
            "username and password of NATS go together"
        } else if self.stream.is_empty() || !self.stream.bytes().all(is_plain) {
            "stream of NATS must be letters, digits, - or _"
        } else if !(1..=5).contains(&self.replicas) {
            "replicas of NATS must be from 1 to 5"
        } else if self.ack_wait < ACK_WAIT_MIN {
            "hold of NATS (its ack wait) must be at least 1 second"
        } else if self.timeout.is_zero() {
            "timeout of NATS must be longer than nothing"
        } else if self.taken_max == 0 || self.taken_max as u64 > COUNT_MAX {
            "taken-max of NATS must be at least 1"
        } else if self.max_bytes == 0 || self.max_bytes > COUNT_MAX {
            "stream-max of NATS must be at least 1"
        } else {
            return Ok(());
        };
        Err(Error::invalid(problem))
    }

    pub(crate) fn servers(&self) -> Result<Vec<ServerAddr>> {
        if self.addrs.is_empty() {
            return Err(Error::invalid("addrs of NATS names no server"));
        }
        let read = |addr: &String| {
            let unreadable = || Error::invalid(format!("addrs of NATS has {:?}, which is no host:port", hide(addr)));
            addr.parse::<ServerAddr>().map_err(|error| unreadable().because(error))
        };
        self.addrs.iter().map(read).collect()
    }

    /// The servers, without what is secret.
    pub(crate) fn names(&self) -> String {
        self.addrs.iter().map(|addr| hide(addr)).collect::<Vec<_>>().join(", ")
    }
}

/// An address without user and password.
fn hide(addr: &str) -> &str {
    let host = addr.rsplit_once('@').map_or(addr, |(_, host)| host);
    host.split_once("://").map_or(host, |(_, host)| host)
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
        check(|options| options.addrs.clear(), "addrs");
        check(|options| options.addrs = vec!["http://host".into()], "addrs");
        check(|options| options.username = Some("me".into()), "password");
        check(|options| options.stream = "a.b".into(), "stream");
        check(|options| options.replicas = 0, "replicas");
        check(|options| options.ack_wait = Duration::from_millis(10), "hold");
        check(|options| options.timeout = Duration::ZERO, "timeout");
        check(|options| options.taken_max = 0, "taken-max");
        check(|options| options.max_bytes = 0, "stream-max");
        let both = |options: &mut Options| {
            (options.token, options.credentials) = (Some("t".into()), Some("file".into()));
        };
        check(both, "token");
    }

    #[test]
    fn secrets_are_not_shown() {
        let options = Options {
            addrs: vec!["nats://me:secret1@one:4222".into(), "two:4222".into()],
            username: Some("me".into()),
            password: Some("secret2".into()),
            token: Some("secret3".into()),
            ..Options::default()
        };
        let text = format!("{options:?}");
        assert!(text.contains("one:4222, two:4222") && !text.contains("secret"), "{text}");
    }
}
