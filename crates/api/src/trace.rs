//! The trace context of a request (W3C), which goes on to the deliveries that it causes.

use std::sync::Arc;

use flare_core::trace::Trace;
use http::HeaderMap;

/// None unless there is one `traceparent` and it is well-formed: a wrong one spoils no write.
pub(crate) fn read(headers: &HeaderMap) -> Option<Arc<Trace>> {
    let mut parents = headers.get_all("traceparent").iter();
    let (Some(parent), None) = (parents.next(), parents.next()) else { return None };
    // Several headers of the same name are one list.
    let states: Vec<_> = headers.get_all("tracestate").iter().filter_map(|state| state.to_str().ok()).collect();
    let state = (!states.is_empty()).then(|| states.join(","));
    Trace::parse(parent.to_str().ok()?, state.as_deref()).map(Arc::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn one_parent_and_all_states_are_read() {
        let check = |given: &[(&'static str, &'static str)], expected: Option<Option<&str>>| {
            let mut headers = HeaderMap::new();
            for (name, value) in given {
                headers.append(*name, value.parse().unwrap());
            }
            let trace = read(&headers);
            assert_eq!(trace.as_ref().map(|trace| trace.state()), expected, "{given:?}");
        };
        check(&[], None);
        check(&[("tracestate", "a=1")], None);
        check(&[("traceparent", PARENT)], Some(None));
        check(&[("traceparent", PARENT), ("tracestate", "a=1"), ("tracestate", "b=2")], Some(Some("a=1,b=2")));
        check(&[("traceparent", PARENT), ("traceparent", PARENT)], None);
        check(&[("traceparent", "00-x")], None);
    }
}
