//! Where the brokers are, and who asks.

use std::time::Duration;

use flare_core::{Error, Result};
use flare_toolkit::tls::client_config;
use lapin::{
    tcp::RustlsConnector,
    uri::{AMQPAuthority, AMQPScheme, AMQPUri, AMQPUserInfo},
};

use crate::Options;

/// The buffers of a connection grow with the frames that it allows.
const FRAME_BYTES_MAX: u32 = 32 << 10;
const TLS_PORT: u16 = 5671;
const PORT: u16 = 5672;

pub(crate) struct Address {
    /// Brokers of one cluster.
    pub servers: Vec<AMQPUri>,
    pub tls: RustlsConnector,
    pub timeout: Duration,
}

impl Address {
    pub fn read(options: &Options) -> Result<Self> {
        if options.timeout.is_zero() {
            return Err(Error::invalid("the timeout of RabbitMQ must be longer than nothing"));
        }
        if options.prefetch == 0 {
            return Err(Error::invalid("the prefetch of RabbitMQ must be at least 1"));
        }
        let heartbeat = u16::try_from(options.heartbeat.as_secs()).ok().filter(|seconds| *seconds > 0);
        let heartbeat =
            heartbeat.ok_or_else(|| Error::invalid("the heartbeat of RabbitMQ must be from 1 to 65535 seconds"))?;
        let mut servers = match &options.url {
            Some(url) => read_url(url)?,
            None => read_addrs(options)?,
        };
        for server in &mut servers {
            server.query.heartbeat = Some(heartbeat);
            server.query.frame_max = Some(FRAME_BYTES_MAX);
        }
        let tls = client_config(options.ca.as_deref())?.into();
        Ok(Self { servers, tls, timeout: options.timeout })
    }

    /// All brokers, for people.
    pub fn names(&self) -> String {
        self.servers.iter().map(name).collect::<Vec<_>>().join(", ")
    }
}

/// One broker, for people.
pub(crate) fn name(server: &AMQPUri) -> String {
    format!("{}:{}", server.authority.host, server.authority.port)
}

fn read_url(url: &str) -> Result<Vec<AMQPUri>> {
    let wrong = |why: &str| Error::invalid(format!("the url of RabbitMQ cannot be read: {why}"));
    let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("it must begin with amqp:// or amqps://"))?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let (user, hosts) =
        authority.rsplit_once('@').map_or((String::new(), authority), |(user, hosts)| (format!("{user}@"), hosts));
    hosts
        .split(',')
        .map(|host| format!("{scheme}://{user}{host}{path}").parse().map_err(|error: String| wrong(&error)))
        .collect()
}

fn read_addrs(options: &Options) -> Result<Vec<AMQPUri>> {
    if options.addrs.is_empty() {
        return Err(Error::invalid("the addrs of RabbitMQ must name at least one broker"));
    }
    let (scheme, port) = if options.tls { (AMQPScheme::AMQPS, TLS_PORT) } else { (AMQPScheme::AMQP, PORT) };
    let read = |addr: &String| {
        let wrong = || Error::invalid(format!("an addr of RabbitMQ must be host:port, not {addr:?}"));
        let (host, port) = match addr.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().map_err(|_| wrong())?),
            None => (addr.as_str(), port),
        };
        if host.is_empty() {
            return Err(wrong());
        }
        let userinfo = AMQPUserInfo { username: options.username.clone(), password: options.password.clone() };
        let authority = AMQPAuthority { userinfo, host: host.into(), port };
        Ok(AMQPUri { scheme: scheme.clone(), authority, vhost: options.vhost.clone(), query: Default::default() })
    };
    options.addrs.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(options: &Options) -> std::result::Result<Vec<String>, String> {
        let shown = |server: &AMQPUri| {
            let user = &server.authority.userinfo;
            format!("{:?} {}:{}@{} {}", server.scheme, user.username, user.password, name(server), server.vhost)
        };
        let address = Address::read(options).map_err(|error| error.to_string())?;
        Ok(address.servers.iter().map(shown).collect())
    }

    #[test]
    fn a_url_names_one_broker_or_several() {
        let url = |url: &str| read(&Options { url: Some(url.into()), ..Options::default() });
        assert_eq!(url("amqp://me:s%40crt@mq:5673/%2f").unwrap(), ["AMQP me:s@crt@mq:5673 /"]);
        assert_eq!(url("amqps://me:x@one,two:99/v").unwrap(), ["AMQPS me:x@one:5671 v", "AMQPS me:x@two:99 v"]);
        assert_eq!(url("amqp://mq").unwrap(), ["AMQP guest:guest@mq:5672 /"]);
    }

    #[test]
    fn a_url_that_is_wrong_is_refused_without_the_password() {
        for wrong in ["me:secret@mq", "http://me:secret@mq", "amqp://me:secret@mq:port/"] {
            let error = read(&Options { url: Some(wrong.into()), ..Options::default() }).unwrap_err();
            assert!(error.contains("url of RabbitMQ") && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn brokers_may_be_named_one_by_one() {
        let options = Options {
            addrs: vec!["one:5673".into(), "two".into()],
            vhost: "flare".into(),
            username: "me".into(),
            password: "x".into(),
            tls: true,
            ..Options::default()
        };
        assert_eq!(read(&options).unwrap(), ["AMQPS me:x@one:5673 flare", "AMQPS me:x@two:5671 flare"]);
    }

    #[test]
    fn options_that_cannot_work_are_named() {
        let check = |options: Options, named: &str| {
            let error = read(&options).unwrap_err();
            assert!(error.contains(named), "{error}");
        };
        check(Options { addrs: vec![], ..Options::default() }, "addrs");
        check(Options { addrs: vec!["mq:x".into()], ..Options::default() }, "\"mq:x\"");
        check(Options { prefetch: 0, ..Options::default() }, "prefetch");
        check(Options { timeout: Duration::ZERO, ..Options::default() }, "timeout");
        check(Options { heartbeat: Duration::from_millis(10), ..Options::default() }, "heartbeat");
        check(Options { ca: Some("/nowhere.pem".into()), ..Options::default() }, "/nowhere.pem");
    }

    #[test]
    fn secrets_are_not_shown() {
        let options = Options { url: Some("amqp://me:hush@mq".into()), password: "hush".into(), ..Options::default() };
        assert!(!format!("{options:?}").contains("hush"));
    }
}
