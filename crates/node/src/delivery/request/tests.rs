use std::sync::Arc;

use flare_contract::make;
use flare_core::{
    DocumentNumber, Sequence, document::WrittenChange, outlet::Content, revision::Revision, trace::Trace,
};
use futures_util::FutureExt;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::*;

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// A push of one change, to be bent as a test needs it.
struct Sample {
    stream: Stream,
    outlet: Outlet,
    change: Change,
    action: Action,
}

impl Sample {
    fn new(format: Format) -> Self {
        let stream = make::stream("http://api.test/users/{id}");
        let mut outlet = make::outlet(&stream, Sequence::START);
        outlet.content = Content { document: true, envelope: true, format };
        outlet.endpoint.handshake = false;
        outlet.signing.previous = None;
        let change = change(&stream, Some(Bytes::from_static(br#"{"name": "Zo\u00eb"}"#)));
        Self { stream, outlet, change, action: Action::Create }
    }

    fn deleted(format: Format) -> Self {
        let sample = Self::new(format);
        let mut outlet = sample.outlet;
        outlet.endpoint.actions.clear();
        Self { change: change(&sample.stream, None), action: Action::Delete, outlet, stream: sample.stream }
    }

    /// The headers and the body of the request.
    fn request(&self) -> (HeaderMap, Bytes) {
        let push = Push {
            outlet: &self.outlet,
            stream: &self.stream,
            change: &self.change,
            action: self.action,
            attempt: 3,
            now: make::at(100),
            wire: None,
            origin: "flare.test",
        };
        let (parts, body) = push.request().unwrap().into_parts();
        (parts.headers, body.collect().now_or_never().unwrap().unwrap().to_bytes())
    }
}

fn change(stream: &Stream, content: Option<Bytes>) -> Change {
    let written = WrittenChange {
        sequence: Sequence(5),
        number: DocumentNumber(5),
        revision: Revision::new(1_700_000_000_000_000_000),
        replaces: None,
    };
    Change::new(stream.id, &written, make::url("a%20b"), make::at(7), content)
}

fn get<'h>(headers: &'h HeaderMap, name: &str) -> &'h str {
    headers.get(name).map_or("", |value| value.to_str().unwrap())
}

#[test]
fn every_push_names_the_subscription_the_document_the_revision_and_the_attempt() {
    for format in Format::ALL {
        let sample = Sample::new(format);
        let (headers, body) = sample.request();
        let revision = sample.stream.change.format.render(sample.change.revision).trim_matches('"').to_owned();
        assert_eq!(get(&headers, "webhook-id"), format!("msg_{}_5", sample.outlet.id));
        assert_eq!(get(&headers, "flare-subscription"), sample.outlet.id.to_string());
        assert_eq!(get(&headers, "flare-document"), "http://api.test/users/a%20b");
        assert_eq!(get(&headers, "flare-revision"), revision);
        assert_eq!(get(&headers, "flare-attempt"), "3");
        assert_eq!(get(&headers, "x-one"), "1");
        let message = Message { id: get(&headers, "webhook-id"), timestamp: "1700000100", body: &body };
        let expected = signature::sign_once(&sample.outlet.signing, &message, make::at(100)).unwrap();
        assert_eq!(get(&headers, "webhook-signature"), expected);
        assert!(!headers.contains_key("traceparent") && !headers.contains_key("webhook-request-origin"));
    }
}

#[test]
fn a_structured_event_says_the_same_as_the_headers() {
    let (headers, body) = Sample::new(Format::CloudEvents).request();
    assert_eq!(get(&headers, "content-type"), "application/cloudevents+json; charset=utf-8");
    let event: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        event,
        json!({
            "specversion": "1.0", "id": get(&headers, "webhook-id"), "source": "http://api.test/users/",
            "type": "flare.document.created", "subject": "http://api.test/users/a%20b", "time": make::at(7).to_string(),
            "flarerevision": get(&headers, "flare-revision"), "flaredata": r#"{"id":"a b","n":[1,2]}"#,
            "datacontenttype": "application/json", "data": {"name": "Zo\u{eb}"}
        })
    );
}

#[test]
fn a_binary_event_has_the_document_as_its_body() {
    let mut sample = Sample::new(Format::CloudEventsBinary);
    sample.outlet.endpoint.headers.push(("Content-Type".into(), vec!["text/plain".into()]));
    let (headers, body) = sample.request();
    assert_eq!(body, sample.change.content.clone().unwrap());
    assert_eq!(get(&headers, "content-type"), "application/json", "the type belongs to the event");
    assert_eq!(get(&headers, "ce-id"), get(&headers, "webhook-id"));
    assert_eq!(get(&headers, "ce-type"), "flare.document.created");
    assert_eq!(get(&headers, "ce-subject"), "http://api.test/users/a%2520b");
    assert_eq!(get(&headers, "ce-flaredata"), "{%22id%22:%22a%20b%22,%22n%22:[1,2]}");
}

#[test]
fn an_event_of_a_delete_has_no_data() {
    let (headers, body) = Sample::deleted(Format::CloudEvents).request();
    let event: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(event["type"], "flare.document.deleted");
    assert!(event.get("data").is_none() && event.get("datacontenttype").is_none());
    assert_eq!(get(&headers, "content-type"), "application/cloudevents+json; charset=utf-8");
    let (headers, body) = Sample::deleted(Format::CloudEventsBinary).request();
    assert!(body.is_empty());
    assert_eq!((get(&headers, "content-type"), get(&headers, "ce-type")), ("", "flare.document.deleted"));
}

#[test]
fn without_the_document_an_event_is_only_the_news() {
    let mut sample = Sample::new(Format::CloudEventsBinary);
    sample.outlet.content.document = false;
    assert!(sample.request().1.is_empty());
    sample.outlet.content.format = Format::CloudEvents;
    let event: Value = serde_json::from_slice(&sample.request().1).unwrap();
    assert_eq!((event.get("data"), &event["type"]), (None, &json!("flare.document.created")));
}

#[test]
fn the_trace_of_the_change_is_passed_on() {
    let mut sample = Sample::new(Format::Flare);
    sample.change.trace = Trace::parse(TRACE, Some("a=1")).map(Arc::new);
    let (headers, _) = sample.request();
    assert_eq!((get(&headers, "traceparent"), get(&headers, "tracestate")), (TRACE, "a=1"));
    sample.change.trace = Trace::parse(TRACE, None).map(Arc::new);
    let (headers, _) = sample.request();
    assert!(headers.contains_key("traceparent") && !headers.contains_key("tracestate"));
}

#[test]
fn a_handshake_is_asked_for_with_the_headers_of_the_endpoint() {
    let mut sample = Sample::new(Format::Flare);
    sample.outlet.endpoint.handshake = true;
    assert_eq!(get(&sample.request().0, "webhook-request-origin"), "flare.test");
    let push = Push {
        outlet: &sample.outlet,
        stream: &sample.stream,
        change: &sample.change,
        action: Action::Create,
        attempt: 1,
        now: make::at(0),
        wire: None,
        origin: "flare.test",
    };
    let question = push.question(&"http://client.test/a".parse().unwrap()).unwrap();
    assert_eq!(question.method(), http::Method::OPTIONS);
    let headers = question.headers();
    assert_eq!(get(headers, "webhook-request-origin"), "flare.test");
    assert_eq!(get(headers, "webhook-request-rate"), "6000", "100 in a second are 6000 in a minute");
    assert_eq!(get(headers, "x-one"), "1");
    assert!(!headers.contains_key("webhook-signature"));
}
