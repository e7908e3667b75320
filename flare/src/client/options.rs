//! The options that every command of the client has.

use std::fmt;
use std::str::FromStr;

use clap::Args;
use http::{HeaderValue, Uri};

use crate::config::Duration;

/// Which server, and how its answers are shown.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Server")]
pub struct Options {
    /// The server
    #[arg(long, global = true, value_name = "URL", env = "FLARE_URL", default_value = "http://127.0.0.1:8080")]
    pub url: ServerUrl,

    /// The bearer token; needed for a server on another machine
    #[arg(long, global = true, value_name = "TOKEN", env = "FLARE_TOKEN", hide_env_values = true)]
    pub token: Option<Token>,

    /// The time an answer may take
    #[arg(long, global = true, value_name = "DURATION", default_value = "30s")]
    pub timeout: Duration,

    /// Print the JSON of the server instead of a table
    #[arg(long, global = true)]
    pub json: bool,
}

/// The URL of a server, without a slash at its end.
#[derive(Clone, Debug)]
pub struct ServerUrl(String);

impl ServerUrl {
    /// The URL; a path of the API can be appended.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ServerUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let uri: Option<Uri> = text.parse().ok();
        let web = |uri: &Uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.query().is_none();
        let named = |uri: &Uri| uri.authority().is_some_and(|authority| !authority.as_str().contains('@'));
        match uri.filter(|uri| web(uri) && named(uri)) {
            Some(_) => Ok(Self(text.trim_end_matches('/').to_owned())),
            None => Err("write the URL of a server, such as http://127.0.0.1:8080".to_owned()),
        }
    }
}

/// A bearer token, which is not shown.
#[derive(Clone)]
pub struct Token(HeaderValue);

impl Token {
    /// The value of the header `Authorization`.
    pub fn header(&self) -> &HeaderValue {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

impl FromStr for Token {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let header = flare_client::bearer(text);
        Ok(Self(header.ok_or_else(|| "a token consists of visible ASCII characters".to_owned())?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_web_urls() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(text.parse::<ServerUrl>().ok().as_ref().map(ServerUrl::as_str), expected, "{text}");
        };
        check("http://127.0.0.1:8080", Some("http://127.0.0.1:8080"));
        check("https://flare.company.com/api/", Some("https://flare.company.com/api"));
        check("127.0.0.1:8080", None);
        check("localhost", None);
        check("ftp://a", None);
        check("http://", None);
        check("http://a?b", None);
        check("http://user:secret@a", None);
    }

    #[test]
    fn a_token_is_not_shown() {
        let token: Token = "hunter2".parse().unwrap();
        assert!(!format!("{token:?} {:?}", token.header()).contains("hunter2"));
        assert!("a\nb".parse::<Token>().is_err());
        assert!("".parse::<Token>().is_err());
    }
}
