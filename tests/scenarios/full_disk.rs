//! Promise 1 and 7 on a full disk: writes are refused with the reason, reads go on, nothing acknowledged is lost, and
//! room is all that it takes to recover.

use std::time::Duration;

use flare_tests::{Answer, Flare, Receiver, SmallDisk, skipped, within};
use serde_json::json;

use crate::{USERS, user};

const DISK_MIB: u64 = 256;
const DOCUMENT_BYTES: usize = 200_000;
/// More documents than the disk can hold.
const DOCUMENTS_MAX: usize = 2 * (DISK_MIB as usize) * (1 << 20) / DOCUMENT_BYTES;

/// Writes documents until one is refused; returns how many were acknowledged, and the refusal.
async fn write_until_refused(flare: &Flare, revision: i64) -> (usize, Answer) {
    for number in 0..DOCUMENTS_MAX {
        let answer = write(flare, number, revision).await;
        if answer.status != 202 {
            return (number, answer);
        }
    }
    panic!("{DOCUMENTS_MAX} documents of {DOCUMENT_BYTES} bytes fit into {DISK_MIB} MiB");
}

async fn write(flare: &Flare, number: usize, revision: i64) -> Answer {
    let document = json!({ "revision": revision, "padding": noise(number, DOCUMENT_BYTES) });
    flare.client().put_document(&user(number), &document).await
}

/// Text that does not compress.
fn noise(seed: usize, length: usize) -> String {
    let mut state = seed as u64 + 0x9E37_79B9_7F4A_7C15;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'0' + (state % 75) as u8)
    };
    std::iter::repeat_with(next).filter(|letter| letter.is_ascii_alphanumeric()).take(length).collect()
}

/// Waits until a write is taken again.
async fn recovered(flare: &Flare, number: usize, revision: i64) {
    const BETWEEN_TRIES: Duration = Duration::from_millis(50);
    let trying = async {
        while write(flare, number, revision).await.status != 202 {
            tokio::time::sleep(BETWEEN_TRIES).await;
        }
    };
    within("writes are taken again", trying).await;
}

/// Fills the disk, looks at what still works, makes room, and looks at what was kept.
async fn fills_and_recovers(disk: &SmallDisk, config: &str, ballast_left: u64) {
    let receiver = Receiver::start().await;
    let data = disk.path().join("data");
    let mut flare = Flare::on_folder(&data, config).await;
    let resource = flare.resource(USERS).await;
    flare.subscribe(&resource, "a", &receiver.url("/a")).await;
    flare.put("http://api.test/users/first", 1).await;
    disk.fill(ballast_left);

    let (acknowledged, refusal) = write_until_refused(&flare, 1).await;
    let refusal = refusal.expect_error(503, "repository.unavailable");
    let reason = refusal.json()["error"]["detail"].as_str().unwrap().to_lowercase();
    assert!(reason.contains("full") || reason.contains("space"), "{reason}");
    assert!(refusal.header("retry-after").is_some());
    flare
        .client()
        .post("/resources", &json!({ "endpoint": "http://b.test/{id}", "change": { "field": "r" } }))
        .await
        .expect(503);

    assert_eq!(flare.revision("http://api.test/users/first").await, 1);
    for number in (0..acknowledged).step_by(7) {
        assert_eq!(flare.revision(&user(number)).await, 1, "reads go on");
    }
    flare.client().get("/resources").await.expect(200);
    flare.client().get("/health").await;

    disk.empty();
    recovered(&flare, acknowledged, 2).await;
    for number in 0..acknowledged {
        assert_eq!(flare.revision(&user(number)).await, 1);
        receiver.wait_revision("/a", &user(number), 1).await;
    }
    receiver.wait_revision("/a", &user(acknowledged), 2).await;
    flare.kill().await;
    flare.start_again().await;
    for number in 0..acknowledged {
        assert_eq!(flare.revision(&user(number)).await, 1, "kept over a kill");
    }
    receiver.expect_never_backwards();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_stop_at_the_reserve_and_go_on_when_there_is_room() {
    match SmallDisk::mount(DISK_MIB) {
        Ok(disk) => fills_and_recovers(&disk, "[repository]\nreserve = \"48MiB\"\n", 60 << 20).await,
        Err(reason) => skipped("writes_stop_at_the_reserve_and_go_on_when_there_is_room", &reason),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_is_really_full_loses_nothing_and_recovers() {
    match SmallDisk::mount(DISK_MIB) {
        Ok(disk) => fills_and_recovers(&disk, "[repository]\nreserve = \"0\"\n", 12 << 20).await,
        Err(reason) => skipped("a_disk_that_is_really_full_loses_nothing_and_recovers", &reason),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_dies_on_a_full_disk_starts_again_and_has_everything() {
    let disk = match SmallDisk::mount(DISK_MIB) {
        Ok(disk) => disk,
        Err(reason) => return skipped("a_server_that_dies_on_a_full_disk_starts_again_and_has_everything", &reason),
    };
    let data = disk.path().join("data");
    let mut flare = Flare::on_folder(&data, "[repository]\nreserve = \"0\"\n").await;
    flare.resource(USERS).await;
    disk.fill(12 << 20);
    let (acknowledged, _) = write_until_refused(&flare, 1).await;
    flare.kill().await;
    disk.empty();
    flare.start_again().await;
    for number in 0..acknowledged {
        assert_eq!(flare.revision(&user(number)).await, 1);
    }
    recovered(&flare, acknowledged, 2).await;
}
