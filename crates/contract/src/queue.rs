//! What every queue must do.

use std::{collections::BTreeSet, future::Future, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use flare_core::{
    ErrorKind,
    queue::{Declared, Depth, Message, Queue, QueueName, Receipt},
};
use futures_util::future::join_all;

/// Long enough for a message to come that is there.
const SOON: Duration = Duration::from_secs(20);
/// How long a queue that is believed to be empty is asked.
const BRIEFLY: Duration = Duration::from_millis(300);

type Shared = Arc<dyn Queue>;
type Running = Pin<Box<dyn Future<Output = ()>>>;

/// A case: a name for people, and what it does with two connections to the same broker.
struct Case {
    name: &'static str,
    run: fn(Shared, Shared) -> Running,
}

macro_rules! cases {
    ($($case:ident),* $(,)?) => {
        &[$(Case { name: stringify!($case), run: |one, two| Box::pin($case(one, two)) }),*]
    };
}

const CASES: &[Case] = cases![
    a_queue_is_made_once,
    a_removed_queue_is_gone,
    what_is_pushed_is_pulled_and_gone_once_it_is_acknowledged,
    a_pull_gives_no_more_than_was_asked_for,
    a_pull_waits_for_a_message,
    an_empty_queue_gives_nothing,
    queues_do_not_mix,
    what_is_given_back_comes_again,
    what_was_taken_by_one_who_left_comes_to_another,
    a_pull_that_is_dropped_loses_nothing,
    what_is_taken_is_not_given_to_another,
    a_receipt_may_be_used_twice,
    a_message_may_be_long,
    the_depth_tells_what_waits_and_what_is_taken,
    many_messages_go_through,
    one_that_is_closed_says_so,
];

/// All that is asked of a queue: `open` gives a new connection to the same broker each time. Each case has a queue of its own.
pub(crate) async fn check<F: Future<Output = Shared>>(open: impl Fn() -> F) {
    for case in CASES {
        println!("  {}", case.name);
        let (one, two) = (open().await, open().await);
        (case.run)(one.clone(), two.clone()).await;
        for queue in [one, two] {
            let _closed_by_the_case = queue.close().await;
        }
    }
}

fn fresh_name() -> QueueName {
    QueueName::new(format!("flare-contract-{}", flare_core::OutletId::generate())).unwrap()
}

async fn fresh(queue: &Shared) -> QueueName {
    let name = fresh_name();
    assert_eq!(queue.declare(&name).await.unwrap(), Declared::Made);
    name
}

fn texts(range: std::ops::Range<usize>) -> Vec<Bytes> {
    range.map(|number| Bytes::from(format!("{{\"message\": {number}, \"text\": \"ação 雪\"}}"))).collect()
}

/// Pulls until it has so many.
async fn pull_all(queue: &Shared, name: &QueueName, count: usize) -> Vec<Message> {
    let mut all = Vec::new();
    while all.len() < count {
        let messages = queue.pull(name, count - all.len(), SOON).await.unwrap();
        assert!(!messages.is_empty(), "only {} of {count} came", all.len());
        all.extend(messages);
    }
    all
}

fn bodies(messages: &[Message]) -> BTreeSet<Bytes> {
    messages.iter().map(|message| message.body.clone()).collect()
}

/// The claims to messages that were pulled.
pub fn receipts(messages: &[Message]) -> Vec<Receipt> {
    messages.iter().map(|message| message.receipt.clone()).collect()
}

fn all_of(messages: &[Bytes]) -> BTreeSet<Bytes> {
    messages.iter().cloned().collect()
}

async fn a_queue_is_made_once(one: Shared, two: Shared) {
    let name = fresh(&one).await;
    assert_eq!(one.declare(&name).await.unwrap(), Declared::There);
    assert_eq!(two.declare(&name).await.unwrap(), Declared::There);
    one.push(&name, texts(0..1)).await.unwrap();
    assert_eq!(two.declare(&name).await.unwrap(), Declared::There);
    assert_eq!(pull_all(&two, &name, 1).await.len(), 1, "declaring a queue keeps what is in it");
    one.remove(&name).await.unwrap();
}

async fn a_removed_queue_is_gone(one: Shared, two: Shared) {
    let name = fresh(&one).await;
    one.push(&name, texts(0..3)).await.unwrap();
    assert_eq!(one.pull(&name, 1, SOON).await.unwrap().len(), 1);
    one.remove(&name).await.unwrap();
    one.remove(&name).await.unwrap();
    two.remove(&fresh_name()).await.unwrap();
    for queue in [&one, &two] {
        let refused = queue.push(&name, texts(0..1)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NotFound, "{}", refused.chain());
        let refused = queue.pull(&name, 1, BRIEFLY).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NotFound, "{}", refused.chain());
    }
}

async fn what_is_pushed_is_pulled_and_gone_once_it_is_acknowledged(one: Shared, two: Shared) {
    let name = fresh(&one).await;
    let pushed = texts(0..25);
    one.push(&name, pushed.clone()).await.unwrap();
    let messages = pull_all(&two, &name, 25).await;
    assert_eq!(bodies(&messages), all_of(&pushed));
    two.ack(&name, receipts(&messages)).await.unwrap();
    assert_eq!(two.pull(&name, 1, BRIEFLY).await.unwrap(), []);
    two.close().await.unwrap();
    assert_eq!(one.pull(&name, 1, BRIEFLY).await.unwrap(), [], "what is acknowledged does not come back");
    one.remove(&name).await.unwrap();
}

async fn a_pull_gives_no_more_than_was_asked_for(one: Shared, _: Shared) {
    let name = fresh(&one).await;
    one.push(&name, texts(0..30)).await.unwrap();
    let mut left = 30;
    for max in [1, 3, 10, 12] {
        let messages = one.pull(&name, max, SOON).await.unwrap();
        assert!((1..=max).contains(&messages.len()), "{} of {max}", messages.len());
        left -= messages.len();
    }
    assert_eq!(pull_all(&one, &name, left).await.len(), left);
    one.remove(&name).await.unwrap();
}

async fn a_pull_waits_for_a_message(one: Shared, two: Shared) {
    let name = fresh(&one).await;
    let (pulled, pushed) = tokio::join!(two.pull(&name, 5, SOON), async {
        tokio::time::sleep(BRIEFLY).await;
        one.push(&name, texts(0..1)).await
    });
    pushed.unwrap();
    assert_eq!(bodies(&pulled.unwrap()), all_of(&texts(0..1)));
    one.remove(&name).await.unwrap();
}

async fn an_empty_queue_gives_nothing(one: Shared, _: Shared) {
    let name = fresh(&one).await;
    assert_eq!(one.pull(&name, 5, Duration::ZERO).await.unwrap(), []);
    assert_eq!(one.pull(&name, 5, BRIEFLY).await.unwrap(), []);
    one.push(&name, Vec::new()).await.unwrap();
    one.ack(&name, Vec::new()).await.unwrap();
    one.nack(&name, Vec::new()).await.unwrap();
    one.remove(&name).await.unwrap();
}

async fn queues_do_not_mix(one: Shared, _: Shared) {
    let (here, there) = (fresh(&one).await, fresh(&one).await);
    one.push(&here, texts(0..2)).await.unwrap();
    one.push(&there, texts(2..4)).await.unwrap();
    assert_eq!(bodies(&pull_all(&one, &here, 2).await), all_of(&texts(0..2)));
    assert_eq!(bodies(&pull_all(&one, &there, 2).await), all_of(&texts(2..4)));
    one.remove(&here).await.unwrap();
    assert_eq!(one.depth(&there).await.unwrap().ready, 0);
    one.remove(&there).await.unwrap();
}

async fn what_is_given_back_comes_again(one: Shared, _: Shared) {
    let name = fresh(&one).await;
    one.push(&name, texts(0..4)).await.unwrap();
    let first = pull_all(&one, &name, 4).await;
    one.ack(&name, receipts(&first[..1])).await.unwrap();
    one.nack(&name, receipts(&first[1..])).await.unwrap();
    let again = pull_all(&one, &name, 3).await;
    assert_eq!(bodies(&again), bodies(&first[1..]));
    one.ack(&name, receipts(&again)).await.unwrap();
    assert_eq!(one.pull(&name, 1, BRIEFLY).await.unwrap(), []);
    one.remove(&name).await.unwrap();
}

async fn what_was_taken_by_one_who_left_comes_to_another(one: Shared, two: Shared) {
    let name = fresh(&one).await;
    one.push(&name, texts(0..12)).await.unwrap();
    let taken = pull_all(&one, &name, 12).await;
    one.ack(&name, receipts(&taken[..2])).await.unwrap();
    one.close().await.unwrap();
    let inherited = pull_all(&two, &name, 10).await;
    assert_eq!(bodies(&inherited), bodies(&taken[2..]));
    two.remove(&name).await.unwrap();
}

async fn a_pull_that_is_dropped_loses_nothing(one: Shared, two: Shared) {
    let name = fresh(&one).await;
    for round in 0..10_u64 {
        let waiting = one.pull(&name, 3, SOON);
        // Dropped before, while or after the messages come.
        let _dropped = tokio::time::timeout(Duration::from_millis(round * 2), async {
            tokio::join!(waiting, two.push(&name, texts(0..1)))
        })
        .await;
    }
    one.push(&name, texts(1..2)).await.unwrap();
    one.close().await.unwrap();
    let mut seen = BTreeSet::new();
    while !all_of(&texts(0..2)).is_subset(&seen) {
        let messages = two.pull(&name, 10, SOON).await.unwrap();
        assert!(!messages.is_empty(), "a message was lost: {seen:?}");
        seen.extend(bodies(&messages));
    }
    two.remove(&name).await.unwrap();
}

async fn what_is_taken_is_not_given_to_another(one: Shared, two: Shared) {
    let name = fresh(&one).await;
    one.push(&name, texts(0..2)).await.unwrap();
    let taken = pull_all(&one, &name, 2).await;
    assert_eq!(two.pull(&name, 2, BRIEFLY).await.unwrap(), []);
    one.ack(&name, receipts(&taken)).await.unwrap();
    one.remove(&name).await.unwrap();
}

async fn a_receipt_may_be_used_twice(one: Shared, _: Shared) {
    let name = fresh(&one).await;
    one.push(&name, texts(0..2)).await.unwrap();
    let taken = receipts(&pull_all(&one, &name, 2).await);
    one.ack(&name, taken.clone()).await.unwrap();
    one.ack(&name, taken.clone()).await.unwrap();
    one.nack(&name, taken).await.unwrap();
    one.push(&name, texts(2..3)).await.unwrap();
    let next = pull_all(&one, &name, 1).await;
    assert_eq!(bodies(&next), all_of(&texts(2..3)), "the queue works on, and nothing came back");
    one.remove(&name).await.unwrap();
}

async fn a_message_may_be_long(one: Shared, _: Shared) {
    let name = fresh(&one).await;
    let length = one.limits().message_bytes_max.min(200 << 10);
    let long: Vec<_> = ["a", "b", "c"].iter().map(|letter| Bytes::from(letter.repeat(length))).collect();
    one.push(&name, long.clone()).await.unwrap();
    assert!(bodies(&pull_all(&one, &name, 3).await) == all_of(&long), "long messages must stay as they are");
    one.remove(&name).await.unwrap();
}

async fn the_depth_tells_what_waits_and_what_is_taken(one: Shared, two: Shared) {
    let name = fresh(&one).await;
    assert_eq!(one.depth(&name).await.unwrap(), Depth::default());
    one.push(&name, texts(0..7)).await.unwrap();
    wait_for_depth(&two, &name, 7).await;
    let taken = pull_all(&one, &name, 7).await;
    one.ack(&name, receipts(&taken[..3])).await.unwrap();
    wait_for_depth(&one, &name, 4).await;
    one.ack(&name, receipts(&taken[3..])).await.unwrap();
    wait_for_depth(&one, &name, 0).await;
    wait_for_depth(&two, &name, 0).await;
    one.remove(&name).await.unwrap();
    assert_eq!(one.depth(&name).await.unwrap_err().kind(), ErrorKind::NotFound);
}

/// Brokers count now and then: the figure must become right, not be right at once.
async fn wait_for_depth(queue: &Shared, name: &QueueName, total: u64) {
    let mut last = Depth::default();
    for _ in 0..100 {
        last = queue.depth(name).await.unwrap();
        if last.ready + last.taken == total {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the depth stays {last:?} instead of {total} in all");
}

async fn many_messages_go_through(one: Shared, two: Shared) {
    const PUSHERS: usize = 8;
    const EACH: usize = 250;
    let name = fresh(&one).await;
    let (pushing, pulled) = tokio::join!(
        join_all((0..PUSHERS).map(|pusher| one.push(&name, texts(pusher * EACH..(pusher + 1) * EACH)))),
        async {
            let mut seen = BTreeSet::new();
            while seen.len() < PUSHERS * EACH {
                let messages = two.pull(&name, 100, SOON).await.unwrap();
                assert!(!messages.is_empty(), "only {} came", seen.len());
                two.ack(&name, receipts(&messages)).await.unwrap();
                seen.extend(bodies(&messages));
            }
            seen
        }
    );
    pushing.into_iter().for_each(|pushed| pushed.unwrap());
    assert!(pulled == all_of(&texts(0..PUSHERS * EACH)));
    assert_eq!(one.pull(&name, 1, BRIEFLY).await.unwrap(), []);
    one.remove(&name).await.unwrap();
}

async fn one_that_is_closed_says_so(one: Shared, two: Shared) {
    let name = fresh(&one).await;
    one.close().await.unwrap();
    one.close().await.unwrap();
    let refused = [
        one.declare(&name).await.unwrap_err(),
        one.push(&name, texts(0..1)).await.unwrap_err(),
        one.pull(&name, 1, BRIEFLY).await.unwrap_err(),
        one.depth(&name).await.unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.chain());
    }
    two.remove(&name).await.unwrap();
}
