//! Who changed what: one line in the log, target `audit`, for every request that changes more than documents, or tried
//! to.

use std::net::IpAddr;

use axum::response::Response;
use http::{Method, Uri};

use crate::{
    access::{self, Caller},
    api::RequestName,
    request_id::RequestId,
    routes::{bulk, documents},
};

/// The status of a request whose client did not wait for the answer, as web servers log it.
const CLIENT_GONE: u16 = 499;

/// The record of one request. It is written when the request is answered, or given up: what a client began goes on
/// without it, so going away must not keep it out of the log.
pub(crate) struct Audit<'r> {
    name: &'r RequestName,
    /// What the client calls the request.
    id: Option<RequestId>,
    peer: IpAddr,
    pub caller: Caller,
    is_open: bool,
}

impl<'r> Audit<'r> {
    pub fn of(name: &'r RequestName, id: Option<&RequestId>, peer: IpAddr) -> Self {
        let is_open = concerns(&name.method, &name.uri);
        Self { name, id: id.filter(|_| is_open).cloned(), peer, caller: Caller::default(), is_open }
    }

    pub fn close(mut self, response: &Response) {
        if self.is_open {
            self.is_open = false;
            let id = RequestId::sent(response.headers());
            self.write(response.status().as_u16(), id);
        }
    }

    fn write(&self, status: u16, id: Option<RequestId>) {
        let id = id.unwrap_or_else(RequestId::make);
        let (who, peer, method, path) = (&self.caller, self.peer, &self.name.method, self.name.path());
        tracing::info!(target: "audit", %who, %peer, %method, %path, status, request_id = %id, "administration");
    }
}

impl Drop for Audit<'_> {
    fn drop(&mut self) {
        if self.is_open {
            let id = self.id.take();
            self.write(CLIENT_GONE, id);
        }
    }
}

/// Whether a request is recorded. Documents are not: they are the traffic.
fn concerns(method: &Method, uri: &Uri) -> bool {
    let path = uri.path();
    !access::is_reading(method) && path != bulk::PATH && !path.starts_with(documents::PREFIX)
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use axum::body::Body;
    use http::HeaderMap;

    use super::*;

    #[test]
    fn what_changes_more_than_documents_is_recorded() {
        let check = |method: Method, uri: &str, expected: bool| {
            assert_eq!(concerns(&method, &uri.parse().unwrap()), expected, "{method} {uri}");
        };
        check(Method::POST, "/resources", true);
        check(Method::PUT, "/resources/1/subscriptions/2", true);
        check(Method::POST, "/resources/1/subscriptions/2/pause", true);
        check(Method::DELETE, "/tokens/1", true);
        check(Method::POST, "/documents2", true);
        check(Method::GET, "/tokens", false);
        check(Method::HEAD, "/resources", false);
        check(Method::POST, "/documents", false);
        check(Method::PUT, "/documents/http://api/tokens/1", false);
    }

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What a request leaves in the log; without an answer, its client went away.
    fn logged(method: Method, path: &str, answer: Option<u16>) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).without_time().with_writer(move || writer.clone());
        tracing::subscriber::with_default(subscriber.finish(), || {
            let name = RequestName { method, uri: path.parse().unwrap() };
            let headers = HeaderMap::from_iter([("x-request-id".parse().unwrap(), "mine".parse().unwrap())]);
            let id = RequestId::sent(&headers);
            let mut audit = Audit::of(&name, id.as_ref(), IpAddr::from([10, 0, 0, 7]));
            audit.caller = Caller::Configured;
            if let Some(status) = answer {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = status.try_into().unwrap();
                *response.headers_mut() = headers;
                audit.close(&response);
            }
        });
        let bytes = lines.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_request_is_one_line_also_when_its_client_goes_away() {
        let line = |path: &str, status: u16| {
            let who = "INFO audit: administration who=config token peer=10.0.0.7";
            format!(" {who} method=DELETE path={path} status={status} request_id=mine\n")
        };
        assert_eq!(logged(Method::DELETE, "/resources/1?secret", Some(204)), line("/resources/1", 204));
        assert_eq!(logged(Method::DELETE, "/resources/1", None), line("/resources/1", 499));
        assert_eq!(logged(Method::DELETE, "/tokens/flare_0_x", Some(404)), line("/tokens/[hidden]", 404));
        assert_eq!(logged(Method::GET, "/resources", None), "");
        assert_eq!(logged(Method::PUT, "/documents/x", Some(202)), "");
    }
}
