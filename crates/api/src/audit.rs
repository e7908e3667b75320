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

/// Whether a request is recorded. Documents are not: they are the traffic.
pub(crate) fn concerns(method: &Method, uri: &Uri) -> bool {
    let path = uri.path();
    !access::is_reading(method) && path != bulk::PATH && !path.starts_with(documents::PREFIX)
}

/// Records a request by its answer.
pub(crate) fn record(name: &RequestName, caller: &Caller, peer: IpAddr, response: &Response) {
    let id = RequestId::sent(response.headers()).unwrap_or_else(RequestId::make);
    let (method, path, status) = (&name.method, name.path(), response.status().as_u16());
    tracing::info!(target: "audit", who = %caller, %peer, %method, %path, status, request_id = %id, "administration");
}

#[cfg(test)]
mod tests {
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
}
