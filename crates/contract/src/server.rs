//! The real servers that tests run against: where they are, and what tests may do to them.

use std::process::Stdio;

/// The address in the variable. Without one the test says so and is over; in CI it fails.
pub fn url(variable: &str) -> Option<String> {
    let url = std::env::var(variable).ok();
    if url.is_none() {
        println!("skipped: {variable} is not set; `dev/servers up` starts the server, `dev/servers env` says where");
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{variable} is not set, and in CI nothing is skipped");
    }
    url
}

/// Whether tests may kill and configure the servers: FLARE_TEST_SERVERS=1 says that `dev/servers` has started them.
pub fn are_ours() -> bool {
    let are_ours = std::env::var("FLARE_TEST_SERVERS").as_deref() == Ok("1");
    if !are_ours {
        println!("skipped: FLARE_TEST_SERVERS is not 1, so the server is not ours to kill");
    }
    are_ours
}

/// The host and the port, as the URL has them.
pub fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    rest[..end].rsplit('@').next().unwrap_or_default()
}

/// Does something to a server with `dev/servers`.
pub async fn control(command: &str, server: &str) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dev/servers");
    let mut run = tokio::process::Command::new(script);
    // A server whose address is given counts as one from elsewhere.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("FLARE_TEST_")) {
        run.env_remove(name);
    }
    let done = run.args([command, server]).stdout(Stdio::null()).status().await.unwrap();
    assert!(done.success(), "dev/servers {command} {server}");
}

#[cfg(test)]
mod tests {
    use super::host;

    #[test]
    fn the_host_of_a_url_has_neither_user_nor_path() {
        for url in [
            "mongodb://127.0.0.1:27017/?replicaSet=flare",
            "mongodb://me:pass%40word@127.0.0.1:27017/?a=b@c",
            "cassandra://me:secret@127.0.0.1:27017",
            "127.0.0.1:27017",
        ] {
            assert_eq!(host(url), "127.0.0.1:27017", "{url}");
        }
    }
}
