use std::time::Duration;

use flare_contract::make;
use flare_core::{
    document::{DocumentWrite, WriteBody},
    port::Store,
    revision::Revision,
    stream::Stream,
};
use futures_util::{StreamExt, stream::FuturesUnordered};

use super::*;

struct Lab {
    store: Store,
    stream: Stream,
    filtering: Filtering,
}

impl Lab {
    async fn new() -> Self {
        let store = flare_memory::open(&flare_keyvalue::Options::default()).unwrap();
        let stream = make::stored_stream(&store, "http://api.test/users/{id}").await;
        let filtering = Filtering::new(store.documents.clone());
        Self { store, stream, filtering }
    }

    /// Puts a document, or deletes it, and gives back the change.
    async fn change(&self, revision: i128, content: Option<&str>) -> Change {
        let revision = Revision::new(revision);
        let body = match content {
            Some(content) => WriteBody::Put { revision, content: Bytes::copy_from_slice(content.as_bytes()) },
            None => WriteBody::Delete { revision: Some(revision) },
        };
        let url = make::url("1");
        let write = DocumentWrite { stream: self.stream.id, url: url.clone(), body, at: make::at(0), trace: None };
        make::write(&self.store, write).await.unwrap();
        self.store.documents.get(self.stream.id, &url).await.unwrap().unwrap()
    }

    fn outlet(&self, filter: &str) -> Outlet {
        Outlet { filter: Some(Filter::parse(filter).unwrap()), ..make::outlet(&self.stream, Sequence::START) }
    }

    async fn wants(&self, filter: &str, change: &Change) -> bool {
        self.filtering.wants(&self.outlet(filter), change).await.unwrap()
    }

    fn evaluations(&self) -> u64 {
        self.filtering.evaluations.load(Ordering::Relaxed)
    }
}

#[tokio::test]
async fn a_filter_sees_what_the_change_replaced() {
    let lab = Lab::new().await;
    let created = lab.change(1, Some(r#"{"n":1}"#)).await;
    assert!(lab.wants("action == 'create' && previous == null && current.n == 1", &created).await);
    let updated = lab.change(2, Some(r#"{"n":2}"#)).await;
    assert!(lab.wants("action == 'update' && previous.n == 1 && state.n + 1 == current.n", &updated).await);
    let deleted = lab.change(3, None).await;
    assert!(lab.wants("action == 'delete' && current == null && previous.n == 2", &deleted).await);
    let back = lab.change(4, Some(r#"{"n":4}"#)).await;
    assert!(lab.wants("action == 'create' && previous == null && id == 'http://api.test/users/1'", &back).await);
}

#[tokio::test]
async fn each_distinct_filter_is_evaluated_once_per_change() {
    let lab = Lab::new().await;
    lab.change(1, Some(r#"{"n":0}"#)).await;
    let outlets: Vec<_> =
        (0..2000).map(|n| lab.outlet(&format!("current.n == {} && previous.n == 0", n % 100))).collect();
    let change = lab.change(2, Some(r#"{"n":7}"#)).await;
    let asked: FuturesUnordered<_> = outlets.iter().map(|outlet| lab.filtering.wants(outlet, &change)).collect();
    let wanted = asked.filter(|answer| std::future::ready(*answer.as_ref().unwrap())).count().await;
    assert_eq!(wanted, 20);
    assert_eq!(lab.evaluations(), 100);
    for outlet in &outlets {
        lab.filtering.wants(outlet, &change).await.unwrap();
    }
    assert_eq!(lab.evaluations(), 100);
    let next = lab.change(3, Some(r#"{"n":8}"#)).await;
    lab.filtering.wants(&outlets[0], &next).await.unwrap();
    assert_eq!(lab.evaluations(), 101);
}

#[tokio::test]
async fn a_filter_that_does_not_fit_matches_nothing_and_is_remembered_until_it_is_another() {
    let lab = Lab::new().await;
    let outlet = lab.outlet("current.missing > 1");
    let change = lab.change(1, Some(r#"{"n":1}"#)).await;
    assert!(!lab.filtering.wants(&outlet, &change).await.unwrap());
    let problem = lab.filtering.problem(outlet.id).unwrap();
    assert_eq!(
        (&*problem.reason, problem.document.as_str()),
        ("there is no member \"missing\"", "http://api.test/users/1")
    );
    lab.filtering.forget_problem(outlet.id);
    let deleted = lab.change(2, None).await;
    assert!(!lab.filtering.wants(&outlet, &deleted).await.unwrap());
    assert!(lab.filtering.problem(outlet.id).is_none(), "a delete is no problem");
}

#[tokio::test]
async fn a_large_document_and_a_costly_filter_get_the_same_answers() {
    let lab = Lab::new().await;
    let numbers: Vec<String> = (0..20_000).map(|n| n.to_string()).collect();
    let content = format!(r#"{{"numbers":[{}]}}"#, numbers.join(","));
    let change = lab.change(1, Some(&content)).await;
    assert!(lab.wants("current.numbers.exists(n, n == 19999)", &change).await);
    assert!(!lab.wants("current.numbers.exists(n, n == 20000)", &change).await);
    let endless = lab.outlet("current.numbers.all(a, current.numbers.all(b, a + b >= 0))");
    let answer = tokio::time::timeout(Duration::from_secs(20), lab.filtering.wants(&endless, &change)).await;
    assert!(!answer.unwrap().unwrap());
    assert!(lab.filtering.problem(endless.id).unwrap().reason.contains("too costly"));
}

#[tokio::test]
async fn what_is_kept_is_bounded() {
    let lab = Lab::new().await;
    let outlet = lab.outlet("true");
    let content = format!(r#"{{"text":"{}"}}"#, "x".repeat(1 << 20));
    for revision in 0..20 {
        let change = lab.change(revision, Some(&content)).await;
        lab.filtering.wants(&outlet, &change).await.unwrap();
    }
    let recent = lab.filtering.recent.lock();
    assert!(recent.bytes <= CHANGES_BYTES_MAX && recent.order.len() == recent.changes.len(), "{}", recent.bytes);
    assert_eq!(recent.changes.len(), 7);
}
