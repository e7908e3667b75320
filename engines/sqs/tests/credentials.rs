//! Credentials and region are found where AWS puts them. The environment belongs to a process, so each case is a
//! process of its own: this test again, with another name.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

mod server;

use flare_sqs::Options;
use server::{Server, door::Door, fresh_name, open};
use tokio::process::Command;

/// What the processes below do: they know where to ask, and nothing else.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs as a process of the other tests"]
async fn asks_for_a_queue() {
    let endpoint = std::env::var("FLARE_TEST_DOOR").ok();
    let profile = std::env::var("FLARE_TEST_PROFILE").ok();
    let queue = open(&Options { endpoint, profile, ..Options::default() }).await;
    let name = fresh_name();
    queue.declare(&name).await.unwrap();
    queue.remove(&name).await.unwrap();
}

/// Who asks, with these variables and no others of AWS.
async fn caller(door: &Door, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "asks_for_a_queue", "--ignored"]);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("AWS_")) {
        command.env_remove(name);
    }
    command.env("FLARE_TEST_DOOR", format!("http://{}", door.address)).env("AWS_EC2_METADATA_DISABLED", "true");
    command.env("HOME", "/nowhere").envs(variables.iter().copied());
    let done = command.output().await.unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    let caller = door.caller();
    let mut words = caller.split('/');
    format!("{} in {}", words.next().unwrap(), words.nth(1).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_come_from_the_environment_or_a_profile() {
    let Some(server) = Server::find() else { return };
    let door = Door::open(server.host()).await;
    let environment =
        [("AWS_ACCESS_KEY_ID", "from-environment"), ("AWS_SECRET_ACCESS_KEY", "s"), ("AWS_REGION", "eu-west-1")];
    assert_eq!(caller(&door, &environment).await, "from-environment in eu-west-1");

    let folder = tempfile::tempdir().unwrap();
    let (config, credentials) = (folder.path().join("config"), folder.path().join("credentials"));
    std::fs::write(&config, "[profile flare]\nregion = eu-west-2\n").unwrap();
    std::fs::write(&credentials, "[flare]\naws_access_key_id = from-profile\naws_secret_access_key = s\n").unwrap();
    let files = [
        ("AWS_CONFIG_FILE", config.to_str().unwrap()),
        ("AWS_SHARED_CREDENTIALS_FILE", credentials.to_str().unwrap()),
        ("FLARE_TEST_PROFILE", "flare"),
    ];
    assert_eq!(caller(&door, &files).await, "from-profile in eu-west-2");

    let program = folder.path().join("program");
    std::fs::write(&program, "{\"Version\":1,\"AccessKeyId\":\"from-program\",\"SecretAccessKey\":\"s\"}").unwrap();
    let lines = format!("[profile flare]\nregion = eu-west-3\ncredential_process = cat {}\n", program.display());
    std::fs::write(&config, lines).unwrap();
    std::fs::write(&credentials, "").unwrap();
    assert_eq!(caller(&door, &files).await, "from-program in eu-west-3");
}
