//! What two nodes can rely on that work on the same data at once.

use std::{future::Future, sync::Arc};

use flare_core::{
    ErrorKind, Sequence,
    document::{Progress, Retry, Written},
    outlet::Revisions,
    port::{FeedQuery, Inserted, Store},
    revision::Revision,
};
use futures_util::future::join_all;

use crate::{heard::Heard, make, wait::until};

const WRITERS: u64 = 4;
const ROUNDS: u64 = 25;

pub(crate) async fn check<F: Future<Output = Store>>(open: impl Fn(usize) -> F) {
    println!("  a_node_hears_of_the_changes_of_others_in_order");
    a_node_hears_of_the_changes_of_others_in_order(open(0).await, open(0).await).await;
    println!("  nodes_that_write_the_same_documents_agree");
    nodes_that_write_the_same_documents_agree(open(1).await, open(1).await).await;
    println!("  a_node_sees_the_entities_of_others");
    a_node_sees_the_entities_of_others(open(2).await, open(2).await).await;
    println!("  an_owner_that_was_replaced_takes_nothing_from_the_new_one");
    an_owner_that_was_replaced_takes_nothing_from_the_new_one(open(3).await, open(3).await).await;
    println!("  a_stream_deleted_by_another_takes_no_documents");
    a_stream_deleted_by_another_takes_no_documents(open(4).await, open(4).await).await;
    println!("  of_two_who_decide_on_the_same_entities_one_is_told_to_look_again");
    of_two_who_decide_on_the_same_entities_one_is_told_to_look_again(open(5).await, open(5).await).await;
    println!("  nodes_open_fresh_data_at_once");
    let nodes = join_all((0..3).map(|_| open(6))).await;
    close(&nodes.iter().collect::<Vec<_>>()).await;
}

async fn close(nodes: &[&Store]) {
    for node in nodes {
        node.engine.close().await.unwrap();
    }
}

async fn a_node_hears_of_the_changes_of_others_in_order(one: Store, two: Store) {
    let stream = make::stored_stream(&one, "http://api.test/users/{id}").await;
    let heard = Arc::new(Heard::default());
    two.documents.listen(heard.clone());
    for revision in 1..=20 {
        let writer = if revision % 3 == 0 { &two } else { &one };
        make::write(writer, make::put(&stream, &revision.to_string(), revision)).await.unwrap();
    }
    let head = one.documents.head().max(two.documents.head());
    until("all changes are heard", || heard.sequences.lock().clone().len() == 20).await;
    assert!(heard.sequences.lock().clone().is_sorted(), "{:?}", heard.sequences.lock().clone());
    assert_eq!(heard.sequences.lock().clone().last(), Some(&head.0));
    assert!(heard.missed.lock().is_empty());
    until("the head is known to all", || one.documents.head() == head && two.documents.head() == head).await;
    let read = two.documents.get(stream.id, &make::url("19")).await.unwrap().unwrap();
    assert_eq!(read.revision, Revision::new(19));
    close(&[&one, &two]).await;
}

/// Of the same revision of a document, one write is a change; the order of the sequences is the order of the revisions.
async fn nodes_that_write_the_same_documents_agree(one: Store, two: Store) {
    let stream = make::stored_stream(&one, "http://api.test/users/{id}").await;
    let heard = Arc::new(Heard::default());
    one.documents.listen(heard.clone());
    let (stream, nodes) = (&stream, &[&one, &two]);
    let writers = (0..WRITERS).map(|writer| async move {
        let node = nodes[writer as usize % nodes.len()];
        let mut changes = Vec::new();
        for revision in 1..=i128::from(ROUNDS) {
            let writes = (0..3).map(|name| make::put(stream, &name.to_string(), revision)).collect();
            for written in node.documents.write(writes).await.unwrap() {
                match written {
                    Written::Changed(change) => changes.push((change.number, change.sequence, change.revision)),
                    Written::Unchanged => {}
                }
            }
        }
        changes
    });
    let mut changes: Vec<_> = join_all(writers).await.into_iter().flatten().collect();
    changes.sort_by_key(|(_, sequence, _)| *sequence);
    assert!(changes.windows(2).all(|pair| pair[0].1 < pair[1].1), "a sequence was given out twice");
    let mut documents: Vec<_> = changes.iter().map(|(number, ..)| *number).collect();
    documents.sort_unstable();
    documents.dedup();
    assert_eq!(documents.len(), 3, "a document has one number");
    for document in documents {
        let revisions: Vec<Revision> =
            changes.iter().filter(|(number, ..)| *number == document).map(|(.., r)| *r).collect();
        assert!(revisions.windows(2).all(|pair| pair[0] < pair[1]), "{revisions:?}");
        assert_eq!(revisions.last(), Some(&Revision::new(i128::from(ROUNDS))));
    }
    until("all changes are heard", || heard.sequences.lock().clone().len() == changes.len()).await;
    assert_eq!(heard.sequences.lock().clone(), changes.iter().map(|(_, sequence, _)| sequence.0).collect::<Vec<_>>());

    let query = FeedQuery { after: Sequence::START, revisions: Revisions::All, limit: 1000, bytes_max: 1 << 20 };
    until("the other knows of all", || two.documents.head() == one.documents.head()).await;
    let history = two.documents.feed(stream.id, query).await.unwrap().changes;
    assert_eq!(history.len(), changes.len());
    for change in history.iter().filter(|change| change.number.0 != change.sequence.0) {
        let older = history.iter().find(|older| Some(older.sequence) == change.replaces).unwrap();
        assert_eq!(older.number, change.number);
        assert!(older.revision < change.revision);
    }
    close(&[&one, &two]).await;
}

async fn a_node_sees_the_entities_of_others(one: Store, two: Store) {
    let before = two.engine.entities_revision().await.unwrap();
    let stream = make::stored_stream(&one, "http://api.test/users/{id}").await;
    let outlet = make::stored_outlet(&one, &stream).await;
    assert!(two.engine.entities_revision().await.unwrap() > before);
    assert_eq!(two.streams.page(None, 10).await.unwrap().len(), 1);
    let known = Arc::new(stream.clone());
    let lookup = move |_| Some(known.clone());
    assert_eq!(two.outlets.page(None, 10, &lookup).await.unwrap()[0].id, outlet.id);
    make::write(&two, make::put(&stream, "1", 1)).await.unwrap();
    two.outlets.delete(outlet.id).await.unwrap();
    two.streams.delete(stream.id).await.unwrap();
    assert!(one.streams.page(None, 10).await.unwrap().is_empty());
    close(&[&one, &two]).await;
}

/// Whoever has compared a new stream with all others learns that there are others by now.
async fn of_two_who_decide_on_the_same_entities_one_is_told_to_look_again(one: Store, two: Store) {
    let seen = one.engine.entities_revision().await.unwrap();
    let (first, second) = (make::stream("http://api.test/users/{id}"), make::stream("http://api.test/{kind}/1"));
    assert_eq!(one.streams.insert(&first, None, Some(seen)).await.unwrap(), Some(Inserted::New));
    assert_eq!(two.streams.insert(&second, None, Some(seen)).await.unwrap(), None);
    assert_eq!(two.streams.page(None, 10).await.unwrap().len(), 1);
    let seen = two.engine.entities_revision().await.unwrap();
    assert_eq!(two.streams.insert(&second, None, Some(seen)).await.unwrap(), Some(Inserted::New));
    let outlet = make::stored_outlet(&one, &first).await;
    let seen = two.engine.entities_revision().await.unwrap();
    one.outlets.delete(outlet.id).await.unwrap();
    let third = make::stream("http://api.test/a/b/c");
    assert_eq!(two.streams.insert(&third, None, Some(seen)).await.unwrap(), None);

    let seen = one.engine.entities_revision().await.unwrap();
    let all = (0..8).map(|number| {
        let node = if number % 2 == 0 { &one } else { &two };
        async move {
            let stream = make::stream(&format!("http://api.test/race/{number}"));
            node.streams.insert(&stream, None, Some(seen)).await.unwrap()
        }
    });
    assert_eq!(join_all(all).await.into_iter().flatten().collect::<Vec<_>>(), [Inserted::New]);
    close(&[&one, &two]).await;
}

async fn an_owner_that_was_replaced_takes_nothing_from_the_new_one(old: Store, new: Store) {
    let stream = make::stored_stream(&old, "http://api.test/users/{id}").await;
    let outlet = make::stored_outlet(&old, &stream).await.id;
    let number = make::write(&old, make::put(&stream, "1", 1)).await.unwrap().number;
    let retry = |attempts| Retry { outlet, number, url: make::url("1"), attempts, due: make::at(60) };
    old.deliveries.seal(1).await.unwrap();
    old.deliveries.record(vec![Progress::Retry(retry(1))]).await.unwrap();
    new.deliveries.seal(2).await.unwrap();
    let steps = vec![Progress::Retry(retry(2)), Progress::Cursor { outlet, cursor: Sequence(9) }];
    new.deliveries.record(steps).await.unwrap();

    let late = vec![Progress::Settled { outlet, number }, Progress::Cursor { outlet, cursor: Sequence(3) }];
    if let Err(error) = old.deliveries.record(late).await {
        assert_eq!(error.kind(), ErrorKind::Conflict);
    }
    assert_eq!(old.deliveries.seal(1).await.unwrap_err().kind(), ErrorKind::Conflict);
    let standing = new.deliveries.standing(outlet).await.unwrap();
    assert_eq!((standing.cursor, standing.retries), (Sequence(9), vec![retry(2)]));
    close(&[&old, &new]).await;
}

async fn a_stream_deleted_by_another_takes_no_documents(one: Store, two: Store) {
    let stream = make::stored_stream(&one, "http://api.test/users/{id}").await;
    make::write(&two, make::put(&stream, "1", 1)).await.unwrap();
    one.streams.delete(stream.id).await.unwrap();
    // The first would have announced nothing, as far as this node could remember.
    for name in ["1", "2"] {
        let error = two.documents.write(vec![make::put(&stream, name, 1)]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{name}");
    }
    close(&[&one, &two]).await;
}
