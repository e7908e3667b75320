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

/// Writes documents until one is refused, and then some more, smaller ones; returns those that were acknowledged, and
/// the first refusal.
async fn write_past_the_end(flare: &Flare) -> (Vec<usize>, Answer) {
    const MORE: usize = 40;
    let mut acknowledged = Vec::new();
    for number in 0..DOCUMENTS_MAX {
        let refusal = write(flare, number, DOCUMENT_BYTES).await;
        if refusal.status == 202 {
            acknowledged.push(number);
            continue;
        }
        // The server tries again and again whether there is room; a small write may find some.
        for (number, bytes) in (number + 1..).zip((1..=MORE).map(|divisor| DOCUMENT_BYTES / divisor)) {
            let answer = write(flare, number, bytes).await;
            match answer.status {
                202 => acknowledged.push(number),
                _ => drop(answer.expect_error(503, "repository.unavailable")),
            }
        }
        return (acknowledged, refusal);
    }
    panic!("{DOCUMENTS_MAX} documents of {DOCUMENT_BYTES} bytes fit into {DISK_MIB} MiB");
}

async fn write(flare: &Flare, number: usize, bytes: usize) -> Answer {
    let document = json!({ "revision": 1, "padding": noise(number, bytes) });
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

/// Waits until a large write is taken again.
async fn recovered(flare: &Flare) {
    const BETWEEN_TRIES: Duration = Duration::from_millis(50);
    let trying = async {
        while write(flare, DOCUMENTS_MAX, DOCUMENT_BYTES).await.status != 202 {
            tokio::time::sleep(BETWEEN_TRIES).await;
        }
    };
    within("writes are taken again", trying).await;
}

async fn expect_kept(flare: &Flare, documents: &[usize]) {
    for number in documents {
        assert_eq!(flare.revision(&user(*number)).await, 1);
    }
}

/// Fills the disk, looks at what still works, makes room, and looks at what was kept.
async fn fills_and_recovers(disk: &SmallDisk, config: &str, bytes_left: u64) {
    let receiver = Receiver::start().await;
    let data = disk.path().join("data");
    let mut flare = Flare::on_folder(&data, config).await;
    let resource = flare.resource(USERS).await;
    flare.subscribe(&resource, "a", &receiver.url("/a")).await;
    disk.fill(bytes_left);

    let (acknowledged, refusal) = write_past_the_end(&flare).await;
    let refusal = refusal.expect_error(503, "repository.unavailable");
    let reason = refusal.json()["error"]["detail"].as_str().unwrap().to_lowercase();
    assert!(reason.contains("full") || reason.contains("space"), "{reason}");
    assert!(refusal.header("retry-after").is_some());
    expect_kept(&flare, &acknowledged).await;
    flare.client().get("/resources").await.expect(200);

    disk.empty();
    recovered(&flare).await;
    expect_kept(&flare, &acknowledged).await;
    for number in &acknowledged {
        receiver.wait_revision("/a", &user(*number), 1).await;
    }
    flare.kill().await;
    flare.start_again().await;
    expect_kept(&flare, &acknowledged).await;
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
async fn at_the_reserve_every_kind_of_write_is_refused_and_the_health_says_so() {
    let disk = match SmallDisk::mount(DISK_MIB) {
        Ok(disk) => disk,
        Err(reason) => {
            return skipped("at_the_reserve_every_kind_of_write_is_refused_and_the_health_says_so", &reason);
        }
    };
    let flare = Flare::on_folder(&disk.path().join("data"), "[repository]\nreserve = \"48MiB\"\n").await;
    let resource = flare.resource(USERS).await;
    let subscription = flare.subscribe(&resource, "a", "http://127.0.0.1:9/").await;
    let first = "http://api.test/users/first";
    flare.put(first, 1).await;
    disk.fill(60 << 20);
    write_past_the_end(&flare).await;

    let client = flare.client();
    let other = json!({ "endpoint": "http://b.test/{id}", "change": { "field": "r" } });
    client.post("/resources", &other).await.expect_error(503, "repository.unavailable");
    client.delete(&subscription.path).await.expect_error(503, "repository.unavailable");
    client.delete_document(first).await.expect_error(503, "repository.unavailable");
    let batch = json!([{ "id": first, "document": { "revision": 2 } }]);
    client.post("/documents", &batch).await.expect_error(503, "repository.unavailable");
    client.get("/ready").await.expect(503);
    client.get(&subscription.path).await.expect(200);
    disk.empty();
    recovered(&flare).await;
    client.get("/ready").await.expect(200);
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
    let (acknowledged, _) = write_past_the_end(&flare).await;
    flare.kill().await;
    disk.empty();
    flare.start_again().await;
    expect_kept(&flare, &acknowledged).await;
    recovered(&flare).await;
}
