//! Where the server is, and how to speak to it: the options, read once.

use std::{path::PathBuf, str::FromStr, time::Duration};

use flare_core::{Error, Result};
use tokio_postgres::config::{Config, Host, SslMode, TargetSessionAttrs};

use crate::{
    Options,
    tls::{Connector, Trust},
};

/// A connection that takes longer is not going to come.
const CONNECT_TIMEOUT_MAX: Duration = Duration::from_secs(5);
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
/// The longest name that PostgreSQL takes, less what the names of our channels add.
const SCHEMA_BYTES_MAX: usize = 50;

/// What a connection is made with.
#[derive(Clone)]
pub(crate) struct Address {
    pub config: Config,
    pub tls: Connector,
    /// For people: no credentials.
    pub name: String,
}

impl Address {
    pub fn read(options: &Options) -> Result<Self> {
        check_schema(&options.schema)?;
        let (mut config, mode, root) = match &options.url {
            Some(url) => parse(url)?,
            None => (from_parts(options), None, None),
        };
        let mode = Mode::parse(mode.as_deref().unwrap_or("prefer"))?;
        let ca = options.ca.clone().or(root.map(PathBuf::from));
        let trust = match (mode, ca) {
            (Mode::VerifyFull, ca) => Trust::Named(ca),
            (Mode::VerifyCa, ca) => Trust::Signed(ca),
            // As libpq does: who names an authority wants it to be asked.
            (Mode::Require, Some(ca)) => Trust::Signed(Some(ca)),
            (Mode::Disable | Mode::Prefer | Mode::Require, _) => Trust::Anybody,
        };
        config.ssl_mode(match mode {
            Mode::Disable => SslMode::Disable,
            Mode::Prefer => SslMode::Prefer,
            Mode::Require | Mode::VerifyCa | Mode::VerifyFull => SslMode::Require,
        });
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(Error::invalid("the address of PostgreSQL names no host"));
        }
        if config.get_application_name().is_none() {
            config.application_name("flare");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(options.timeout.min(CONNECT_TIMEOUT_MAX));
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(options.timeout);
        }
        config.keepalives_idle(KEEPALIVE_IDLE);
        // A standby takes no writes: after a failover the primary is looked for among the hosts.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        let tls = Connector::new(&trust)?;
        Ok(Self { name: name(&config), config, tls })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

impl Mode {
    fn parse(text: &str) -> Result<Self> {
        Ok(match text {
            "disable" => Self::Disable,
            "allow" | "prefer" => Self::Prefer,
            "require" => Self::Require,
            "verify-ca" => Self::VerifyCa,
            "verify-full" => Self::VerifyFull,
            _ => {
                return Err(Error::invalid(format!(
                    "sslmode {text:?} of PostgreSQL is none of disable, prefer, require, verify-ca and verify-full"
                )));
            }
        })
    }
}

fn check_schema(schema: &str) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    let starts_well = schema.bytes().next().is_some_and(|first| !first.is_ascii_digit());
    if starts_well && schema.len() <= SCHEMA_BYTES_MAX && schema.bytes().all(is_plain) && !schema.starts_with("pg_") {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the schema {schema:?} of PostgreSQL must have 1 to {SCHEMA_BYTES_MAX} lower-case letters, digits and \
         underscores, not begin with a digit, and not with pg_"
    )))
}

fn from_parts(options: &Options) -> Config {
    let mut config = Config::new();
    config.host(&options.host).port(options.port).dbname(&options.database);
    if let Some(username) = &options.username {
        config.user(username);
    }
    if let Some(password) = &options.password {
        config.password(password);
    }
    config
}

/// Reads a URL or a list of `key=value`. The driver knows less of `sslmode` than libpq, and nothing of `sslrootcert`.
fn parse(text: &str) -> Result<(Config, Option<String>, Option<String>)> {
    let is_url = text.starts_with("postgres://") || text.starts_with("postgresql://");
    let (rest, mode, root) = if is_url { split_url(text) } else { split_list(text) };
    // The text may have a password: the message leaves it out.
    let config = Config::from_str(&rest)
        .map_err(|error| Error::invalid("the address of PostgreSQL cannot be read").because(error))?;
    Ok((config, mode, root))
}

fn split_url(text: &str) -> (String, Option<String>, Option<String>) {
    let Some((base, query)) = text.split_once('?') else { return (text.into(), None, None) };
    let (mut mode, mut root, mut kept) = (None, None, Vec::new());
    for pair in query.split('&') {
        match pair.split_once('=') {
            Some(("sslmode", value)) => mode = Some(percent_decode(value)),
            Some(("sslrootcert", value)) => root = Some(percent_decode(value)),
            _ => kept.push(pair),
        }
    }
    let rest = if kept.is_empty() { base.into() } else { format!("{base}?{}", kept.join("&")) };
    (rest, mode, root)
}

fn split_list(text: &str) -> (String, Option<String>, Option<String>) {
    let (mut mode, mut root, mut kept) = (None, None, Vec::new());
    for pair in words(text) {
        match pair.split_once('=') {
            Some(("sslmode", value)) => mode = Some(value.trim_matches('\'').into()),
            Some(("sslrootcert", value)) => root = Some(value.trim_matches('\'').into()),
            _ => kept.push(pair),
        }
    }
    (kept.join(" "), mode, root)
}

/// The words of a text, where a quoted part may have spaces.
fn words(text: &str) -> Vec<&str> {
    let (mut words, mut start, mut is_quoted, mut is_escaped) = (Vec::new(), 0, false, false);
    for (at, character) in text.char_indices() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '\'' => is_quoted = !is_quoted,
            ' ' | '\t' | '\n' if !is_quoted => {
                words.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    words.push(&text[start..]);
    words.retain(|word| !word.is_empty());
    words
}

fn percent_decode(text: &str) -> String {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let code = tail.get(..2).and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(code) if byte == b'%' => {
                decoded.push(code);
                rest = &tail[2..];
            }
            _ => {
                decoded.push(byte);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

fn name(config: &Config) -> String {
    let ports = config.get_ports();
    let port = |at: usize| ports.get(at).or(ports.first()).copied().unwrap_or(5432);
    let hosts: Vec<String> = if config.get_hosts().is_empty() {
        config.get_hostaddrs().iter().enumerate().map(|(at, address)| format!("{address}:{}", port(at))).collect()
    } else {
        let named = config.get_hosts().iter().enumerate().map(|(at, host)| match host {
            Host::Tcp(host) => format!("{host}:{}", port(at)),
            Host::Unix(path) => path.display().to_string(),
        });
        named.collect()
    };
    match config.get_dbname() {
        Some(database) => format!("{}/{database}", hosts.join(",")),
        None => hosts.join(","),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(url: &str) -> Options {
        Options { url: Some(url.into()), ..Options::default() }
    }

    #[test]
    fn an_address_is_read_from_each_form_and_named_without_credentials() {
        for url in [
            "postgres://me:secret@db.test:6432/flare?sslmode=disable",
            "postgresql://me:secret@db.test:6432/flare?sslmode=require&connect_timeout=3",
            "host=db.test port=6432 user=me password='se cret' dbname=flare sslmode=prefer",
        ] {
            let address = Address::read(&options(url)).unwrap();
            assert_eq!(address.name, "db.test:6432/flare");
            assert_eq!(address.config.get_user(), Some("me"));
        }
        let parts = Options { host: "db.test".into(), database: "x".into(), ..Options::default() };
        assert_eq!(Address::read(&parts).unwrap().name, "db.test:5432/x");
        let several = "postgres://me@one.test:1,two.test:2/flare";
        assert_eq!(Address::read(&options(several)).unwrap().name, "one.test:1,two.test:2/flare");
    }

    #[test]
    fn the_ways_of_libpq_to_ask_for_tls_are_known() {
        let mode = |url: &str| Address::read(&options(url)).map(|address| address.config.get_ssl_mode());
        assert_eq!(mode("postgres://db.test/x").unwrap(), SslMode::Prefer);
        assert_eq!(mode("postgres://db.test/x?sslmode=disable").unwrap(), SslMode::Disable);
        assert_eq!(mode("postgres://db.test/x?sslmode=verify-full").unwrap(), SslMode::Require);
        assert_eq!(mode("host=db.test sslmode='verify-ca'").unwrap(), SslMode::Require);
        let error = mode("postgres://me:secret@db.test/x?sslmode=maybe").unwrap_err();
        assert!(error.chain().contains("maybe") && !error.chain().contains("secret"), "{error:?}");
        let error = mode("postgres://me:secret@db.test/x?sslrootcert=%2Fnot%2Fthere.pem&sslmode=require").unwrap_err();
        assert!(error.chain().contains("/not/there.pem"), "{error:?}");
    }

    #[test]
    fn what_cannot_be_an_address_is_refused_without_its_password() {
        for url in ["postgres://me:secret@db.test:x/", "nonsense secret", "", "user=me password=secret"] {
            let error = Address::read(&options(url)).err().unwrap();
            assert_eq!(error.kind(), flare_core::ErrorKind::Invalid);
            assert!(!error.chain().contains("secret"), "{error:?}");
        }
        for schema in ["", "Flare", "a-b", "1a", "pg_x", "a\"b", &"x".repeat(51)] {
            let options = Options { schema: schema.into(), ..options("postgres://db.test/x") };
            assert!(Address::read(&options).is_err(), "{schema}");
        }
    }
}
