//! The servers that tests run against.

/// The address in the variable. Without it the test is skipped, unless the servers are said to be there.
pub fn url(variable: &str) -> Option<String> {
    match std::env::var(variable) {
        Ok(url) => Some(url),
        Err(_) if std::env::var_os("FLARE_TEST_SERVERS").is_some() => panic!("{variable} is not set"),
        Err(_) => {
            println!("skipped: {variable} is not set; dev/servers starts the server and prints it");
            None
        }
    }
}

/// Copies, as the command does.
#[allow(dead_code, reason = "not every test copies")]
pub async fn copy(job: flare_dump::job::Job) -> flare_dump::copy::Summary {
    use flare_dump::copy::{Run, run};
    use flare_dump::event::{Progress, Silent};
    let folder = tempfile::tempdir().unwrap();
    let place = flare_dump::history::Place::of_job(&folder.path().join("job.toml"));
    let session = flare_dump::session::Session::open(job).await.unwrap();
    let stop = tokio_util::sync::CancellationToken::new();
    let summary =
        run(session, place, Run::default(), std::sync::Arc::new(Silent), Progress::shared(), stop).await.unwrap();
    assert!(summary.failed.is_empty() && summary.message.is_none(), "{summary:?}");
    summary
}

/// The addresses of a table on every server there is, and of one in a file of the folder.
#[allow(dead_code, reason = "not every test is about all")]
pub fn tables(folder: &std::path::Path, name: &str) -> Vec<String> {
    let mut tables = vec![format!("sqlite://{}/tables.db?table={name}", folder.display())];
    tables.extend(url("FLARE_TEST_POSTGRES_URL").map(|url| {
        let join = if url.contains('?') { '&' } else { '?' };
        format!("{url}{join}table=flare_dump_{name}")
    }));
    tables.extend(url("FLARE_TEST_MARIADB_URL").map(|url| format!("{url}?table=flare_dump_{name}")));
    tables
}
