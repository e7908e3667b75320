//! Things to put into a store.

use std::{num::NonZeroU32, sync::Arc};

use bytes::Bytes;
use flare_core::{
    OutletId, Sequence, StreamId, TokenId,
    change::{ChangeRule, FieldPath},
    document::{Change, DocumentWrite, WriteBody, Written, WrittenChange},
    filter::Filter,
    outlet::{
        ActionOverride, Content, DataValue, DeliveryPolicy, Endpoint, Format, Method, Mode, Outlet, Revisions, Secret,
        Signing, Status,
    },
    pattern::Pattern,
    port::{FeedQuery, Inserted, Store},
    retry::RetryPolicy,
    revision::{Revision, RevisionFormat},
    stream::Stream,
    template::Template,
    token::{Scope, Token},
    url::DocumentUrl,
};
use jiff::Timestamp;

pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

/// The newest change of each document past `after`.
pub async fn feed(store: &Store, stream: StreamId, after: Sequence) -> Vec<Change> {
    read(store, stream, after, Revisions::Last).await
}

/// Every change past `after` that is kept.
pub async fn history(store: &Store, stream: StreamId, after: Sequence) -> Vec<Change> {
    read(store, stream, after, Revisions::All).await
}

async fn read(store: &Store, stream: StreamId, after: Sequence, revisions: Revisions) -> Vec<Change> {
    let query = FeedQuery { after, revisions, limit: 1000, bytes_max: 1 << 20 };
    store.documents.feed(stream, query).await.unwrap().changes
}

pub fn stream(endpoint: &str) -> Stream {
    Stream {
        id: StreamId::generate(),
        endpoint: Pattern::parse(endpoint).unwrap(),
        change: ChangeRule {
            field: FieldPath::parse("meta.updatedAt").unwrap(),
            format: RevisionFormat::parse("2006-01-02T15:04:05Z07:00").unwrap(),
        },
        created_at: at(0),
    }
}

pub fn outlet(stream: &Stream, since: Sequence) -> Outlet {
    let template = |text| Template::parse(text, &stream.endpoint).unwrap();
    Outlet {
        id: OutletId::generate(),
        stream: stream.id,
        name: "wishlist".into(),
        status: Status::Active,
        mode: Mode::Active,
        endpoint: Endpoint {
            url: template("http://client.test/{id}"),
            method: Method::Post,
            headers: vec![("x-one".into(), vec!["1".into(), "2".into()])],
            actions: vec![(
                flare_core::document::Action::Delete,
                ActionOverride { url: None, method: Some(Method::Delete), headers: vec![] },
            )],
            handshake: true,
        },
        delivery: Arc::new(DeliveryPolicy {
            success: vec![200],
            discard: vec![500],
            timeout: std::time::Duration::from_millis(1500),
            concurrency: 7,
            rate: NonZeroU32::new(100),
            ttl: Some(std::time::Duration::from_secs(3600)),
            retry: RetryPolicy::default(),
        }),
        content: Content { document: true, envelope: false, format: Format::CloudEvents },
        data: vec![("id".into(), DataValue::Text(template("{id}"))), ("n".into(), DataValue::Json("[1,2]".into()))],
        filter: Some(Filter::parse("current.name != 'nobody'").unwrap()),
        revisions: Revisions::All,
        snapshot: false,
        signing: Signing {
            secret: Secret::from_bytes(&[7; 32]).unwrap(),
            previous: Some((Secret::from_key_pair(&[8; 64]).unwrap(), at(5))),
        },
        since,
        created_at: at(1),
        updated_at: at(2),
    }
}

/// A stream that is in the store.
pub async fn stored_stream(store: &Store, endpoint: &str) -> Stream {
    let stream = stream(endpoint);
    assert_eq!(store.streams.insert(&stream, None, None).await.unwrap(), Some(Inserted::New));
    stream
}

/// An outlet that is in the store.
pub async fn stored_outlet(store: &Store, stream: &Stream) -> Outlet {
    let outlet = outlet(stream, store.documents.head());
    assert_eq!(store.outlets.insert(&outlet, None).await.unwrap(), Inserted::New);
    outlet
}

pub fn token() -> Token {
    Token {
        id: TokenId::generate(),
        name: "nightly import".into(),
        scope: Scope::Write,
        streams: vec![StreamId::generate(), StreamId::generate()],
        digest: std::array::from_fn(|n| n as u8),
        created_at: at(3),
        expires_at: Some(at(4)),
    }
}

/// A token that is in the store.
pub async fn stored_token(store: &Store) -> Token {
    let token = token();
    store.tokens.insert(&token).await.unwrap();
    token
}

pub fn url(name: &str) -> DocumentUrl {
    DocumentUrl::parse(&format!("http://api.test/users/{name}")).unwrap()
}

pub fn put(stream: &Stream, name: &str, revision: i128) -> DocumentWrite {
    let content = Bytes::from(format!(r#"{{"name":"{name}","revision":{revision}}}"#));
    let body = WriteBody::Put { revision: Revision::new(revision), content };
    DocumentWrite { stream: stream.id, url: url(name), body, at: at(revision as i64), trace: None }
}

pub fn delete(stream: &Stream, name: &str, revision: Option<i128>) -> DocumentWrite {
    let body = WriteBody::Delete { revision: revision.map(Revision::new) };
    DocumentWrite { stream: stream.id, url: url(name), body, at: at(1000), trace: None }
}

/// Writes one document and gives back what became of it.
pub async fn write(store: &Store, write: DocumentWrite) -> Option<WrittenChange> {
    match store.documents.write(vec![write]).await.unwrap().pop().unwrap() {
        Written::Changed(change) => Some(change),
        Written::Unchanged => None,
    }
}
