//! What a caller may do. Who it is was found out by the guard; here its rights are held against method and path.
//!
//! The lines are drawn by the path and not in the handlers, so that a new route has a rule before it has a handler:
//! what is not named here needs `admin` to be written, and is out of reach of a token that is bound to resources.

use std::{fmt, sync::Arc};

use flare_core::{
    token::{Scope, Token},
    url::DocumentUrl,
};
use flare_node::Node;
use http::{Method, request::Parts};

use crate::{
    error::{self, ApiError},
    routes::{bulk, documents},
};

/// Who makes a request.
#[derive(Clone, Debug, Default)]
pub(crate) enum Caller {
    /// Nobody was asked: the path is open to all, or the request was refused before.
    #[default]
    Anyone,
    /// This machine, without a token.
    Local,
    /// The holder of one of `security.tokens`.
    Configured,
    /// The holder of a token that this server made.
    Holder(Arc<Token>),
    /// Another node, for a caller that it has asked for its rights.
    Node,
}

impl Caller {
    /// The token that limits what the caller reaches, if there is one.
    pub fn bound(&self) -> Option<&Token> {
        match self {
            Self::Holder(token) if token.is_bound() => Some(token),
            _ => None,
        }
    }

    /// Refuses what the caller may not do. The documents of a bulk request are checked one by one, when they are read.
    pub fn check(&self, head: &Parts, node: &Node) -> Result<(), ApiError> {
        let Self::Holder(token) = self else { return Ok(()) };
        let needed = scope_of(&head.method, head.uri.path());
        if token.scope < needed {
            let detail = format!(
                "the token {:?} ({}) has the scope {}, {} {} needs {}",
                token.name,
                token.id,
                token.scope.as_str(),
                head.method,
                head.uri.path(),
                needed.as_str()
            );
            return Err(ApiError::new(error::FORBIDDEN, detail));
        }
        self.check_reach(head, node)
    }

    fn check_reach(&self, head: &Parts, node: &Node) -> Result<(), ApiError> {
        let Some(token) = self.bound() else { return Ok(()) };
        let path = head.uri.path();
        if let Some(url) = path.strip_prefix(documents::PREFIX) {
            return self.check_document(&DocumentUrl::from_request(url, head.uri.query())?, node);
        }
        let is_reached = match segments(path) {
            // Of the list it sees its own part.
            ["resources", "", ""] => true,
            // What does not read as an id is none of its own, however a router might decode it.
            ["resources", id, _] => id.parse().is_ok_and(|id| token.reaches(id)),
            _ => path == bulk::PATH || matches!(path, "/" | "/status" | "/openapi.json" | "/docs"),
        };
        if is_reached { Ok(()) } else { Err(out_of_reach(token, path)) }
    }

    /// Refuses a document that is not of a resource that the caller reaches.
    pub fn check_document(&self, url: &DocumentUrl, node: &Node) -> Result<(), ApiError> {
        let Some(token) = self.bound() else { return Ok(()) };
        match node.stream_of(url) {
            Some(stream) if token.reaches(stream.id) => Ok(()),
            _ => Err(out_of_reach(token, url.as_str())),
        }
    }
}

/// The caller in the log.
impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anyone => f.write_str("nobody known"),
            Self::Local => f.write_str("loopback"),
            Self::Configured => f.write_str("config token"),
            Self::Node => f.write_str("another node"),
            Self::Holder(token) => write!(f, "token {} {:?}", token.id, token.name),
        }
    }
}

/// Whether a request with this method changes nothing.
pub(crate) fn is_reading(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// The least scope that a request needs.
fn scope_of(method: &Method, path: &str) -> Scope {
    match segments(path) {
        ["tokens", ..] => Scope::Admin,
        // Whoever pulls messages takes them from the subscriber for a while.
        ["resources", _, "subscriptions"] if path.ends_with("/messages") => Scope::Write,
        _ if is_reading(method) => Scope::Read,
        ["documents", ..] | ["resources", _, "subscriptions"] => Scope::Write,
        _ => Scope::Admin,
    }
}

/// The first three segments of a path; empty where there are none.
fn segments(path: &str) -> [&str; 3] {
    let mut segments = path.split('/').skip(1);
    std::array::from_fn(|_| segments.next().unwrap_or_default())
}

fn out_of_reach(token: &Token, what: &str) -> ApiError {
    let streams: Vec<_> = token.streams.iter().map(ToString::to_string).collect();
    let detail = format!(
        "the token {:?} ({}) is bound to the resources {}, and {what} is not of them",
        token.name,
        token.id,
        streams.join(", ")
    );
    ApiError::new(error::FORBIDDEN, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scope_of_a_request_follows_from_method_and_path() {
        let check = |method: Method, path: &str, scope: Scope| {
            assert_eq!(scope_of(&method, path), scope, "{method} {path}");
        };
        for path in ["/", "/status", "/resources", "/resources/1", "/resources/1/subscriptions/2/lag", "/documents/x"] {
            check(Method::GET, path, Scope::Read);
            check(Method::HEAD, path, Scope::Read);
        }
        check(Method::PUT, "/documents/http://api/tokens/1", Scope::Write);
        check(Method::DELETE, "/documents/http://api/1", Scope::Write);
        check(Method::POST, "/documents", Scope::Write);
        check(Method::POST, "/resources/1/subscriptions", Scope::Write);
        check(Method::PUT, "/resources/1/subscriptions/2", Scope::Write);
        check(Method::POST, "/resources/1/subscriptions/2/pause", Scope::Write);
        check(Method::GET, "/resources/1/subscriptions/2/messages", Scope::Write);
        check(Method::POST, "/resources", Scope::Admin);
        check(Method::DELETE, "/resources/1", Scope::Admin);
        check(Method::POST, "/anything/new", Scope::Admin);
        for method in [Method::GET, Method::HEAD, Method::POST, Method::DELETE, Method::OPTIONS] {
            check(method.clone(), "/tokens", Scope::Admin);
            check(method, "/tokens/1", Scope::Admin);
        }
    }
}
