use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use flare_memory::open;

use super::*;

const TIME: Duration = Duration::from_secs(1);

fn rows() -> Arc<dyn Coordination> {
    open(&Default::default()).unwrap().coordination
}

fn claim(address: &str) -> Claim {
    Claim { node: Uuid::now_v7(), address: address.into(), secret: Password::generate().unwrap(), time: TIME }
}

async fn acquire(rows: &Arc<dyn Coordination>, address: &str) -> Lease {
    Lease::acquire(rows.clone(), &claim(address), |_| {}).await.unwrap()
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
    let (two, sees) = (claim("two"), |sight: Sight| match sight {
        Sight::Works(owner) => waited_for.push(owner.address),
        Sight::Nobody | Sight::Gone(_) => panic!("{sight:?}"),
    });
    let second = Lease::acquire(rows.clone(), &two, sees);
    tokio::select! {
        _ = second => panic!("two at once"),
        error = first.keep() => panic!("{error}"),
        () = tokio::time::sleep(3 * TIME) => {}
    }
    assert!(!waited_for.is_empty() && waited_for.iter().all(|owner| owner == "one"), "{waited_for:?}");
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

#[tokio::test]
async fn one_who_only_watches_learns_who_works_and_that_it_is_gone() {
    let rows = rows();
    let (tell, told) = std::sync::mpsc::channel();
    let watching = watch(rows.clone(), TIME, |sight| tell.send(sight).unwrap());
    let working = async {
        let mut lease = acquire(&rows, "one").await;
        lease.row.process = None;
        lease.renew().await.unwrap();
        tokio::time::sleep(3 * patience(TIME)).await;
    };
    tokio::select! {
        () = watching => {}
        () = working => {}
    }
    let sights: Vec<_> = told.try_iter().collect();
    let works = sights.iter().filter(|sight| matches!(sight, Sight::Works(owner) if owner.address == "one")).count();
    assert!(works > 1, "{sights:?}");
    assert!(matches!(sights.last(), Some(Sight::Gone(owner)) if owner.address == "one"), "{sights:?}");
}

#[tokio::test]
async fn one_who_has_lost_its_turn_takes_it_again_with_a_new_epoch() {
    let rows = rows();
    let claim = claim("one");
    let first = Lease::acquire(rows.clone(), &claim, |_| {}).await.unwrap();
    let again = Lease::acquire(rows.clone(), &claim, |_| {}).await.unwrap();
    assert_eq!((first.epoch(), again.epoch()), (1, 2));
}

#[test]
fn a_password_is_known_by_its_whole_text_and_shown_to_nobody() {
    let password = Password::generate().unwrap();
    let text = password.reveal().to_owned();
    assert!(password.is(text.as_bytes()));
    for wrong in ["", &text[1..], &format!("{text}0")] {
        assert!(!password.is(wrong.as_bytes()));
    }
    assert!(!Password::default().is(b""), "no password is none that could be said");
    assert!(!format!("{password:?}").contains(&text));
}

#[tokio::test]
async fn one_who_may_be_silent_for_longer_is_waited_for_as_long() {
    let rows = rows();
    let longer = Claim { time: 3 * TIME, ..claim("one") };
    let first = Lease::acquire(rows.clone(), &longer, |_| {}).await.unwrap();
    acquire(&rows, "two").await;
    assert!(now() > first.deadline, "the first could still work");
}

#[tokio::test]
async fn the_deadline_moves_with_the_beats_and_passes_without_them() {
    let mut lease = acquire(&rows(), "one").await;
    let deadline = lease.deadline();
    assert!(!deadline.is_over());
    let before = deadline.0.load(Ordering::Relaxed);
    tokio::time::sleep(Duration::from_millis(5)).await;
    lease.renew().await.unwrap();
    assert!(deadline.0.load(Ordering::Relaxed) > before);
    deadline.pass();
    assert!(deadline.is_over() && !Deadline::never().is_over());
}
