//! Documents and their feed.

use std::sync::Arc;

use flare_core::{
    Sequence,
    document::{Change, DocumentWrite, Written},
    outlet::Revisions,
    port::{ChangeListener, DocumentQuery, FeedQuery, Store},
    revision::Revision,
    trace::Trace,
};
use parking_lot::Mutex;

use crate::{Case, cases, make};

pub(crate) const CASES: &[Case] = cases![
    a_document_reads_back_byte_for_byte,
    a_trace_stays_with_its_change,
    only_a_newer_revision_is_a_change,
    a_delete_leaves_a_tombstone_that_only_a_newer_revision_ends,
    a_delete_of_nothing_announces_nothing,
    a_delete_of_an_older_revision_announces_nothing,
    writes_of_one_batch_see_each_other,
    concurrent_writes_of_one_document_keep_the_newest,
    sequences_rise_and_the_number_stays,
    the_feed_has_the_newest_change_of_each_document_in_order,
    the_feed_is_cut_by_count_and_by_bytes,
    replaced_changes_are_kept_until_they_are_swept,
    a_change_says_what_it_replaced_and_both_are_found,
    streams_do_not_see_each_other,
    a_list_is_in_url_order_and_counts_all,
    a_list_goes_on_behind_a_url,
    a_list_is_narrowed_by_prefix_and_time,
    a_listener_hears_every_change_in_order_before_the_writer_is_answered,
];

const ENDPOINT: &str = "http://api.test/users/{id}";

fn names(changes: &[Change]) -> Vec<String> {
    changes.iter().map(|change| change.url.as_str().rsplit('/').next().unwrap().to_owned()).collect()
}

async fn a_document_reads_back_byte_for_byte(store: Store) {
    let stream = make::stored_stream(&store, ENDPOINT).await;
    let written = make::write(&store, make::put(&stream, "1", 7)).await.unwrap();
    let read = store.documents.get(stream.id, &make::url("1")).await.unwrap().unwrap();
    assert_eq!(read.content.as_deref(), Some(&br#"{"name":"1","revision":7}"#[..]));
    assert_eq!((read.revision, read.sequence, read.number), (Revision::new(7), written.sequence, written.number));
    assert_eq!(read.updated_at, make::at(7));
    assert!(store.documents.get(stream.id, &make::url("2")).await.unwrap().is_none());
}

async fn a_trace_stays_with_its_change(store: Store) {
    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let stream = make::stored_stream(&store, ENDPOINT).await;
    for (name, state) in [("1", None), ("2", Some("a=1,b=2 3"))] {
        let trace = Trace::parse(PARENT, state).map(Arc::new);
        assert!(trace.is_some());
        make::write(&store, DocumentWrite { trace: trace.clone(), ..make::put(&stream, name, 1) }).await.unwrap();
        let read = store.documents.get(stream.id, &make::url(name)).await.unwrap().unwrap();
        assert_eq!(read.trace, trace);
        assert_eq!(read.content.as_deref(), Some(format!(r#"{{"name":"{name}","revision":1}}"#).as_bytes()));
        make::write(&store, DocumentWrite { trace: trace.clone(), ..make::delete(&stream, name, None) }).await.unwrap();
        let read = store.documents.get(stream.id, &make::url(name)).await.unwrap().unwrap();
        assert!(read.is_delete() && read.trace == trace);
        make::write(&store, make::put(&stream, name, 2)).await.unwrap();
        let read = store.documents.get(stream.id, &make::url(name)).await.unwrap().unwrap();
        assert_eq!(read.trace, None, "it belongs to one change");
    }
}

async fn only_a_newer_revision_is_a_change(store: Store) {
    let stream = make::stored_stream(&store, ENDPOINT).await;
    assert!(make::write(&store, make::put(&stream, "1", 7)).await.is_some());
    let head = store.documents.head();
    assert!(make::write(&store, make::put(&stream, "1", 7)).await.is_none());
    assert!(make::write(&store, make::put(&stream, "1", 6)).await.is_none());
    assert!(make::write(&store, make::put(&stream, "1", -7)).await.is_none());
    assert_eq!(store.documents.head(), head);
    let written = make::write(&store, make::put(&stream, "1", 8)).await.unwrap();
    assert!(written.sequence > head);
    assert_eq!(written.replaces, Some(head));
}

async fn a_delete_leaves_a_tombstone_that_only_a_newer_revision_ends(store: Store) {
    let stream = make::stored_stream(&store, ENDPOINT).await;
    let created = make::write(&store, make::put(&stream, "1", 7)).await.unwrap();
    let deleted = make::write(&store, make::delete(&stream, "1", None)).await.unwrap();
    assert_eq!((deleted.number, deleted.revision), (created.number, Revision::new(7)));
    let tombstone = store.documents.get(stream.id, &make::url("1")).await.unwrap().unwrap();
    assert!(tombstone.is_delete());
    assert!(make::write(&store, make::put(&stream, "1", 6)).await.is_none());
    assert!(make::write(&store, make::put(&stream, "1", 7)).await.is_none());
    assert!(make::write(&store, make::delete(&stream, "1", None)).await.is_none());
    let back = make::write(&store, make::put(&stream, "1", 8)).await.unwrap();
    assert_eq!(back.number, created.number);
    assert!(!store.documents.get(stream.id, &make::url("1")).await.unwrap().unwrap().is_delete());
}

async fn a_delete_of_nothing_announces_nothing(store: Store) {
    let stream = make::stored_stream(&store, ENDPOINT).await;
    assert!(make::write(&store, make::delete(&stream, "1", None)).await.is_none());
    assert!(store.documents.get(stream.id, &make::url("1")).await.unwrap().is_none());
    // With a revision it is remembered, so that an older put that comes late does not bring the document up.
    assert!(make::write(&store, make::delete(&stream, "1", Some(5))).await.is_some());
    assert!(make::write(&store, make::put(&stream, "1", 4)).await.is_none());
    assert!(make::write(&store, make::put(&stream, "1", 6)).await.is_some());
}

async fn a_delete_of_an_older_revision_announces_nothing(store: Store) {
    let stream = make::stored_stream(&store, ENDPOINT).await;
    make::write(&store, make::put(&stream, "1", 7)).await.unwrap();
    assert!(make::write(&store, make::delete(&stream, "1", Some(6))).await.is_none());
    assert!(make::write(&store, make::delete(&stream, "1", Some(7))).await.is_some());
}

async fn writes_of_one_batch_see_each_other(store: Store) {
    let stream = make::stored_stream(&store, ENDPOINT).await;
    let writes = vec![
        make::put(&stream, "1", 2),
        make::put(&stream, "1", 1),
        make::put(&stream, "1", 3),
        make::delete(&stream, "1", None),
        make::put(&stream, "2", 1),
    ];
    let written = store.documents.write(writes).await.unwrap();
    let changed: Vec<_> = written.iter().map(|one| matches!(one, Written::Changed(_))).collect();
    assert_eq!(changed, [true, false, true, true, true]);
    assert_eq!(names(&make::feed(&store, stream.id, Sequence::START).await), ["1", "2"]);
}

async fn concurrent_writes_of_one_document_keep_the_newest(store: Store) {
    let stream = make::stored_stream(&store, ENDPOINT).await;
    let mut writes = Vec::new();
    for revision in [5, 3, 9, 1, 7, 9, 2, 8] {
        writes.push(store.documents.write(vec![make::put(&stream, "1", revision)]));
    }
    for write in writes {
        write.await.unwrap();
    }
    let read = store.documents.get(stream.id, &make::url("1")).await.unwrap().unwrap();
    assert_eq!(read.revision, Revision::new(9));
    assert_eq!(make::feed(&store, stream.id, Sequence::START).await.len(), 1);
}

async fn sequences_rise_and_the_number_stays(store: Store) {
    let stream = make::stored_stream(&store, ENDPOINT).await;
    let mut last = store.documents.head();
    let first = make::write(&store, make::put(&stream, "1", 1)).await.unwrap();
    assert_eq!(first.number.0, first.sequence.0);
    for revision in 2..10 {
        let written = make::write(&store, make::put(&stream, "1", revision)).await.unwrap();
        assert!(written.sequence > last);
        assert_eq!(written.number, first.number);
        last = written.sequence;
        assert_eq!(store.documents.head(), last);
    }
}

async fn the_feed_has_the_newest_change_of_each_document_in_order(store: Store) {
    let stream = make::stored_stream(&store, ENDPOINT).await;
    for name in ["b", "a", "c"] {
        make::write(&store, make::put(&stream, name, 1)).await.unwrap();
    }
    let middle = store.documents.head();
    make::write(&store, make::put(&stream, "b", 2)).await.unwrap();
    make::write(&store, make::delete(&stream, "a", None)).await.unwrap();
    let changes = make::feed(&store, stream.id, Sequence::START).await;
    assert_eq!(names(&changes), ["c", "b", "a"]);
    assert_eq!(changes.iter().map(|change| change.is_delete()).collect::<Vec<_>>(), [false, false, true]);
    assert!(changes.is_sorted_by_key(|change| change.sequence));
    assert_eq!(names(&make::feed(&store, stream.id, middle).await), ["b", "a"]);
    assert!(make::feed(&store, stream.id, store.documents.head()).await.is_empty());
}

async fn the_feed_is_cut_by_count_and_by_bytes(store: Store) {
    let stream = make::stored_stream(&store, ENDPOINT).await;
    for n in 0..20 {
        make::write(&store, make::put(&stream, &n.to_string(), 1)).await.unwrap();
    }
    let page = |after, limit, bytes_max| {
        store.documents.feed(stream.id, FeedQuery { after, revisions: Revisions::Last, limit, bytes_max })
    };
    let two = page(Sequence::START, 2, 1 << 20).await.unwrap();
    assert_eq!((names(&two.changes), two.until), (vec!["0".into(), "1".into()], two.changes[1].sequence));
    let rest = page(two.until, 3, 1 << 20).await.unwrap();
    assert_eq!(names(&rest.changes), ["2", "3", "4"]);
    assert_eq!(page(Sequence::START, 20, 1).await.unwrap().changes.len(), 1);
    assert!(page(Sequence::START, 0, 1 << 20).await.unwrap().changes.is_empty());
}

fn revisions(changes: &[Change]) -> Vec<(String, Revision)> {
    names(changes).into_iter().zip(changes.iter().map(|change| change.revision)).collect()
}

async fn replaced_changes_are_kept_until_they_are_swept(store: Store) {
    let stream = make::stored_stream(&store, ENDPOINT).await;
    let all = || make::history(&store, stream.id, Sequence::START);
    let expected = |list: &[(&str, i128)]| -> Vec<_> {
        list.iter().map(|(name, revision)| ((*name).to_owned(), Revision::new(*revision))).collect()
    };
    // The revision is also the minute of the write.
    for (name, revision) in [("a", 1), ("b", 2), ("a", 3), ("a", 5), ("c", 7)] {
        let write = DocumentWrite { at: make::at(revision * 60), ..make::put(&stream, name, revision.into()) };
        store.documents.write(vec![write]).await.unwrap();
    }
    assert_eq!(revisions(&all().await), expected(&[("a", 1), ("b", 2), ("a", 3), ("a", 5), ("c", 7)]));
    assert_eq!(
        revisions(&make::feed(&store, stream.id, Sequence::START).await),
        expected(&[("b", 2), ("a", 5), ("c", 7)])
    );
    assert_eq!(store.documents.sweep(make::at(3 * 60)).await.unwrap(), 1);
    assert_eq!(revisions(&all().await), expected(&[("b", 2), ("a", 3), ("a", 5), ("c", 7)]));
    // What a sweep has passed is forgotten when it is replaced; the newest change of a document stays.
    let write = DocumentWrite { at: make::at(8 * 60), ..make::put(&stream, "b", 8) };
    store.documents.write(vec![write]).await.unwrap();
    store.documents.sweep(make::at(3 * 60)).await.unwrap();
    assert_eq!(store.documents.sweep(make::at(100 * 60)).await.unwrap(), 1);
    assert_eq!(revisions(&all().await), expected(&[("a", 5), ("c", 7), ("b", 8)]));
    assert_eq!(store.documents.sweep(make::at(100 * 60)).await.unwrap(), 0);
}

async fn a_change_says_what_it_replaced_and_both_are_found(store: Store) {
    let stream = make::stored_stream(&store, ENDPOINT).await;
    let first = make::write(&store, make::put(&stream, "1", 1)).await.unwrap();
    let second = make::write(&store, make::put(&stream, "1", 2)).await.unwrap();
    let third = make::write(&store, make::delete(&stream, "1", None)).await.unwrap();
    let at = async |sequence| store.documents.change_at(stream.id, sequence).await.unwrap();
    let replaced = async |sequence| at(sequence).await.unwrap().replaces;
    assert_eq!(replaced(first.sequence).await, None);
    assert_eq!(replaced(second.sequence).await, Some(first.sequence));
    assert_eq!(replaced(third.sequence).await, Some(second.sequence));
    assert_eq!(at(first.sequence).await.unwrap().content.as_deref(), Some(&br#"{"name":"1","revision":1}"#[..]));
    assert!(at(third.sequence).await.unwrap().is_delete());
    assert!(at(third.sequence.next()).await.is_none());
    let newest = store.documents.get(stream.id, &make::url("1")).await.unwrap().unwrap();
    assert_eq!(newest.replaces, Some(second.sequence));
}

async fn streams_do_not_see_each_other(store: Store) {
    let users = make::stored_stream(&store, ENDPOINT).await;
    let orders = make::stored_stream(&store, "http://api.test/orders/{id}").await;
    make::write(&store, make::put(&users, "1", 1)).await.unwrap();
    assert!(store.documents.get(orders.id, &make::url("1")).await.unwrap().is_none());
    assert!(make::feed(&store, orders.id, Sequence::START).await.is_empty());
    let listed = store.documents.page(orders.id, &DocumentQuery { limit: 10, ..Default::default() }).await.unwrap();
    assert_eq!(listed.total, 0);
}

async fn a_list_is_in_url_order_and_counts_all(store: Store) {
    let stream = make::stored_stream(&store, ENDPOINT).await;
    for name in ["d", "a", "c", "b", "e"] {
        make::write(&store, make::put(&stream, name, 1)).await.unwrap();
    }
    make::write(&store, make::put(&stream, "a", 2)).await.unwrap();
    make::write(&store, make::delete(&stream, "c", None)).await.unwrap();
    let list = async |offset, limit| {
        let query = DocumentQuery { offset, limit, ..Default::default() };
        let page = store.documents.page(stream.id, &query).await.unwrap();
        (names(&page.documents), page.total)
    };
    assert_eq!(list(0, 10).await, (vec!["a".into(), "b".into(), "d".into(), "e".into()], 4));
    assert_eq!(list(1, 2).await, (vec!["b".into(), "d".into()], 4));
    assert_eq!(list(9, 2).await, (vec![], 4));
    let cut = DocumentQuery { limit: 10, bytes_max: Some(1), ..Default::default() };
    assert_eq!(names(&store.documents.page(stream.id, &cut).await.unwrap().documents), ["a"]);
}

async fn a_list_goes_on_behind_a_url(store: Store) {
    let stream = make::stored_stream(&store, ENDPOINT).await;
    for name in ["d", "aa", "c", "b", "a", "ac"] {
        make::write(&store, make::put(&stream, name, 1)).await.unwrap();
    }
    make::write(&store, make::delete(&stream, "c", None)).await.unwrap();
    let list = async |after: &str, prefix: &str, offset, limit| {
        let after = Some(make::url(after));
        let query = DocumentQuery { after, prefix: prefix.into(), offset, limit, ..Default::default() };
        let page = store.documents.page(stream.id, &query).await.unwrap();
        (names(&page.documents).join(" "), page.total)
    };
    assert_eq!(list("a", "", 0, 10).await, ("aa ac b d".to_owned(), 5));
    assert_eq!(list("a", "", 0, 2).await, ("aa ac".to_owned(), 5));
    assert_eq!(list("a", "", 2, 1).await, ("b".to_owned(), 5));
    // It need not be there.
    assert_eq!(list("c", "", 0, 10).await, ("d".to_owned(), 5));
    assert_eq!(list("ab", "http://api.test/users/a", 0, 10).await, ("ac".to_owned(), 3));
    assert_eq!(list("a", "http://api.test/users/b", 0, 10).await, ("b".to_owned(), 1));
    assert_eq!(list("b", "http://api.test/users/a", 0, 10).await, (String::new(), 3));
    assert_eq!(list("d", "", 0, 10).await, (String::new(), 5));
}

async fn a_list_is_narrowed_by_prefix_and_time(store: Store) {
    let stream = make::stored_stream(&store, ENDPOINT).await;
    for (name, revision) in [("aa", 1), ("ab", 2), ("b", 3), ("ac", 4)] {
        make::write(&store, make::put(&stream, name, revision)).await.unwrap();
    }
    let list = async |prefix: &str, since: Option<i64>| {
        let query = DocumentQuery {
            prefix: prefix.into(),
            changed_since: since.map(make::at),
            limit: 10,
            ..Default::default()
        };
        let page = store.documents.page(stream.id, &query).await.unwrap();
        assert_eq!(page.total, page.documents.len());
        names(&page.documents)
    };
    assert_eq!(list("http://api.test/users/a", None).await, ["aa", "ab", "ac"]);
    assert_eq!(list("", Some(3)).await, ["ac", "b"]);
    assert_eq!(list("http://api.test/users/a", Some(2)).await, ["ab", "ac"]);
}

#[derive(Default)]
struct Heard {
    sequences: Mutex<Vec<Sequence>>,
}

impl ChangeListener for Heard {
    fn changed(&self, changes: Vec<Arc<Change>>) {
        self.sequences.lock().extend(changes.iter().map(|change| change.sequence));
    }

    fn missed(&self, _: Sequence) {}
}

async fn a_listener_hears_every_change_in_order_before_the_writer_is_answered(store: Store) {
    let stream = make::stored_stream(&store, ENDPOINT).await;
    let heard = Arc::new(Heard::default());
    store.documents.listen(heard.clone());
    let mut told = Vec::new();
    for n in 0..50 {
        let written = make::write(&store, make::put(&stream, &(n % 7).to_string(), n)).await.unwrap();
        told.push(written.sequence);
        assert_eq!(heard.sequences.lock().last(), Some(&written.sequence));
    }
    make::write(&store, make::put(&stream, "1", 1)).await;
    assert_eq!(*heard.sequences.lock(), told);
}
