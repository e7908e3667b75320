use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use flare_memory::open;

use super::*;

const TIME: Duration = Duration::from_secs(1);

fn rows() -> Arc<dyn Coordination> {
    open(&Default::default()).unwrap().coordination
}

fn claim(address: &str) -> Claim {
    Claim { address: address.into(), time: TIME }
}

async fn acquire(rows: &Arc<dyn Coordination>, address: &str) -> Lease {
    Lease::acquire(rows.clone(), claim(address), |_| {}).await.unwrap()
}

#[tokio::test]
async fn one_who_has_left_is_followed_at_once_with_a_new_epoch() {
    let rows = rows();
    let mut first = acquire(&rows, "one").await;
    first.release().await.unwrap();
    let second = acquire(&rows, "two").await;
    assert_eq!((first.epoch(), second.epoch()), (1, 2));
}

#[tokio::test]
async fn one_who_beats_is_waited_for() {
    let rows = rows();
    let mut first = acquire(&rows, "one").await;
    let mut waited_for = Vec::new();
    let second = Lease::acquire(rows.clone(), claim("two"), |owner| waited_for.push(owner.to_owned()));
    tokio::select! {
        _ = second => panic!("two at once"),
        error = first.keep() => panic!("{error}"),
        () = tokio::time::sleep(3 * TIME) => {}
    }
    assert_eq!(waited_for, ["one"]);
}

#[tokio::test]
async fn one_who_is_gone_is_followed_only_after_its_time() {
    let rows = rows();
    let first = acquire(&rows, "one").await;
    let second = acquire(&rows, "two").await;
    assert_eq!(second.epoch(), first.epoch() + 1);
    assert!(now() > first.deadline, "the first could still work");
}

#[tokio::test]
async fn one_who_was_followed_learns_of_it() {
    let rows = rows();
    let mut first = acquire(&rows, "one").await;
    let mut second = acquire(&rows, "two").await;
    // It slept, and believes in its time.
    first.deadline = now() + TIME;
    let error = first.keep().await;
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("two"), "{error}");
    second.renew().await.unwrap();
}

/// Answers are lost: some writes arrive nevertheless, and nobody says so.
struct Forgetful {
    rows: Arc<dyn Coordination>,
    calls: AtomicU32,
}

#[async_trait]
impl Coordination for Forgetful {
    async fn get(&self, key: &str) -> Result<Option<AgreedRow>> {
        self.rows.get(key).await
    }

    async fn compare_and_set(&self, key: &str, seen: Option<u64>, value: Bytes) -> Result<Agreement> {
        match self.calls.fetch_add(1, Ordering::Relaxed) % 3 {
            0 => self.rows.compare_and_set(key, seen, value).await.map(|_| Agreement::Unknown),
            1 => Ok(Agreement::Unknown),
            _ => self.rows.compare_and_set(key, seen, value).await,
        }
    }
}

#[tokio::test]
async fn lost_answers_are_found_out() {
    let rows: Arc<dyn Coordination> = Arc::new(Forgetful { rows: rows(), calls: AtomicU32::new(0) });
    let mut lease = acquire(&rows, "one").await;
    for _ in 0..10 {
        lease.renew().await.unwrap();
    }
}

/// Nothing arrives.
struct Away;

#[async_trait]
impl Coordination for Away {
    async fn get(&self, _: &str) -> Result<Option<AgreedRow>> {
        Err(Error::unavailable("away"))
    }

    async fn compare_and_set(&self, _: &str, _: Option<u64>, _: Bytes) -> Result<Agreement> {
        Err(Error::unavailable("away"))
    }
}

#[tokio::test]
async fn one_who_cannot_reach_the_store_stops_before_anybody_follows() {
    let mut lease = acquire(&rows(), "one").await;
    let deadline = lease.deadline;
    lease.coordination = Arc::new(Away);
    assert_eq!(lease.keep().await.kind(), ErrorKind::Unavailable);
    assert!(now() >= deadline);
}
