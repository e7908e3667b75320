//! A dump whose target has no room: it stops, says how to go on, and goes on when there is room.

use std::path::Path;
use std::process::{Command, Output};

use flare_tests::{SmallDisk, binary, skipped};

const DISK_MIB: u64 = 32;
const ROWS: usize = 50_000;

fn dump(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command.arg("dump").args(arguments).current_dir(folder).output().unwrap()
}

#[test]
fn a_dump_to_a_full_disk_stops_and_goes_on_when_there_is_room() {
    let disk = match SmallDisk::mount(DISK_MIB) {
        Ok(disk) => disk,
        Err(reason) => return skipped("a dump to a full disk", &reason),
    };
    let folder = tempfile::tempdir().unwrap();
    let line = |id: usize| format!("{{\"id\":{id},\"padding\":\"{}\"}}\n", "x".repeat(100));
    let text: String = (0..ROWS).map(line).collect();
    std::fs::write(folder.path().join("in.ndjson"), &text).unwrap();
    disk.fill(text.len() as u64 / 2);

    let target = disk.path().join("out.ndjson");
    let arguments =
        ["--from", "in.ndjson", "--to", target.to_str().unwrap(), "--chunksize", "500", "--give-up-after", "1"];
    let stopped = dump(folder.path(), &arguments);
    let told = String::from_utf8_lossy(&stopped.stderr).into_owned();
    assert_eq!(stopped.status.code(), Some(3), "{told}");
    assert!(told.contains("No space left on device") && told.contains("to go on: flare dump resume"), "{told}");
    assert!(!target.exists());

    disk.empty();
    let ended = dump(folder.path(), &[&["resume"], &arguments[..]].concat());
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(std::fs::read_to_string(&target).unwrap() == text, "the target is not what the source is");
}
