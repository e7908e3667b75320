//! Whole copies, from file to file.

use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::*;
use crate::job::Job;

/// A folder with a source of `rows` lines.
struct Desk {
    folder: tempfile::TempDir,
    job: Job,
    events: Arc<Heard>,
}

#[derive(Default)]
struct Heard(Mutex<Vec<Event>>);

impl Observer for Heard {
    fn notify(&self, event: &Event) {
        self.0.lock().push(event.clone());
    }
}

impl Desk {
    fn new(source: &str, target: &str, content: &[u8]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let mut job = Job::new(path(source), path(target));
        std::fs::write(&job.from, content).unwrap();
        (job.chunksize, job.workers, job.give_up_after) = (10, 3, 1);
        Self { folder, job, events: Arc::default() }
    }

    fn lines(rows: usize) -> Self {
        Self::new("in.ndjson", "out.ndjson", lines(rows).as_bytes())
    }

    fn place(&self) -> Place {
        Place::of_job(&self.folder.path().join("job.toml"))
    }

    async fn run(&self, how: Run) -> Result<Summary> {
        let session = Session::open(self.job.clone()).await?;
        let events = Arc::clone(&self.events) as Arc<dyn Observer>;
        run(session, self.place(), how, events, Progress::shared(), CancellationToken::new()).await
    }

    async fn copy(&self) -> Summary {
        self.run(Run::default()).await.unwrap()
    }

    fn output(&self) -> String {
        std::fs::read_to_string(&self.job.to).unwrap()
    }

    /// The rows of the target, in order.
    fn ids(&self) -> Vec<u64> {
        let id = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["id"].as_u64().unwrap();
        let mut ids: Vec<u64> = self.output().lines().map(id).collect();
        ids.sort_unstable();
        ids
    }
}

fn lines(rows: usize) -> String {
    (0..rows).map(|id| format!("{{\"id\":{id},\"name\":\"row {id}\"}}\n")).collect()
}

#[tokio::test]
async fn all_rows_are_copied_once_and_the_end_is_told() {
    for rows in [1, 9, 10, 11, 95] {
        let desk = Desk::lines(rows);
        let summary = desk.copy().await;
        assert_eq!(summary.state, State::Ended);
        assert_eq!(summary.rows, rows as u64);
        assert_eq!(desk.output(), lines(rows), "the order of chunks is the order of the source");
        let events = desk.events.0.lock();
        assert!(matches!(events.last(), Some(Event::End { .. })));
        let completed = events.iter().filter(|event| matches!(event, Event::Completed { .. })).count();
        assert_eq!(completed, summary.chunks as usize);
        assert!(!desk.place().journal().exists() && desk.place().history().exists());
    }
}

#[tokio::test]
async fn an_empty_source_ends_at_once() {
    let desk = Desk::lines(0);
    assert_eq!(desk.copy().await.state, State::Ended);
    assert_eq!(desk.output(), "");
}

#[tokio::test]
async fn compressed_sources_and_targets_are_copied_too() {
    let packed = zstd::encode_all(lines(57).as_bytes(), 1).unwrap();
    let desk = Desk::new("in.ndjson.zst", "out.json.gz", &packed);
    let summary = desk.copy().await;
    assert_eq!((summary.state, summary.rows), (State::Ended, 57));
    let mut text = String::new();
    let file = std::fs::File::open(&desk.job.to).unwrap();
    std::io::Read::read_to_string(&mut flate2::read::MultiGzDecoder::new(file), &mut text).unwrap();
    let found: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    assert_eq!(found.len(), 57);
    assert_eq!(found[56]["id"], 56);
}

#[tokio::test]
async fn bad_rows_go_to_the_reject_file_with_their_reasons() {
    let mut text = lines(40);
    text.insert_str(0, "{\"id\": nonsense}\n");
    let mut desk = Desk::new("in.ndjson", "out.ndjson", text.as_bytes());
    let failed = desk.copy().await;
    assert_eq!(failed.state, State::Failed);
    assert!(failed.message.as_ref().unwrap().contains("--max-rejects"), "{failed:?}");
    desk.job.max_rejects = 1;
    let summary = desk.run(Run { resume: true, ..Run::default() }).await.unwrap();
    assert_eq!((summary.state, summary.rows, summary.rejects), (State::Ended, 40, 1));
    assert_eq!(desk.ids(), (0..40).collect::<Vec<_>>());
    let rejects = std::fs::read_to_string(summary.rejects_file.unwrap()).unwrap();
    let line: serde_json::Value = serde_json::from_str(rejects.trim()).unwrap();
    assert_eq!(line["text"], "{\"id\": nonsense}");
    assert_eq!((line["chunk"].as_str(), line["row"].as_u64()), (Some("0"), Some(1)));
    assert!(line["reason"].as_str().unwrap().contains("not JSON"));
}

#[tokio::test]
async fn only_the_offsets_that_are_asked_for_are_copied() {
    let desk = Desk::lines(95);
    let selection = Selection { only: Some([2, 9].into()), ..Selection::default() };
    let summary = desk.run(Run { selection, ..Run::default() }).await.unwrap();
    assert_eq!(summary.rows, 15);
    assert_eq!(desk.ids(), (20..30).chain(90..95).collect::<Vec<_>>());

    let desk = Desk::lines(95);
    let selection = Selection { from: 8, ..Selection::default() };
    desk.run(Run { selection, ..Run::default() }).await.unwrap();
    assert_eq!(desk.ids(), (80..95).collect::<Vec<_>>());
}

#[tokio::test]
async fn no_more_rows_are_copied_than_the_size() {
    let mut desk = Desk::lines(95);
    desk.job.size = Some(25);
    assert_eq!(desk.copy().await.rows, 25);
    assert_eq!(desk.ids(), (0..25).collect::<Vec<_>>());
}

#[tokio::test]
async fn chunks_of_large_rows_have_fewer_of_them() {
    let mut desk = Desk::lines(50);
    desk.job.chunk_bytes = 100;
    let summary = desk.copy().await;
    assert_eq!(summary.rows, 50);
    assert!(summary.chunks > 10, "{}", summary.chunks);
}

#[tokio::test]
async fn what_came_after_the_start_is_not_copied() {
    let desk = Desk::lines(30);
    let session = Session::open(desk.job.clone()).await.unwrap();
    let grow = |event: &Event| matches!(event, Event::Completed { .. });
    struct Grower<F>(PathBuf, F);
    impl<F: Fn(&Event) -> bool + Send + Sync> Observer for Grower<F> {
        fn notify(&self, event: &Event) {
            if (self.1)(event) {
                let mut file = std::fs::OpenOptions::new().append(true).open(&self.0).unwrap();
                std::io::Write::write_all(&mut file, b"{\"id\":777}\n").unwrap();
            }
        }
    }
    let observer = Arc::new(Grower(PathBuf::from(&desk.job.from), grow));
    let token = CancellationToken::new();
    run(session, desk.place(), Run::default(), observer, Progress::shared(), token).await.unwrap();
    assert_eq!(desk.ids(), (0..30).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_copy_that_was_stopped_goes_on_where_it_was() {
    let desk = Desk::lines(300);
    let stop = CancellationToken::new();
    struct Stopper(CancellationToken);
    impl Observer for Stopper {
        fn notify(&self, event: &Event) {
            if matches!(event, Event::Completed { .. }) {
                self.0.cancel();
            }
        }
    }
    let session = Session::open(desk.job.clone()).await.unwrap();
    let observer = Arc::new(Stopper(stop.clone()));
    let summary = run(session, desk.place(), Run::default(), observer, Progress::shared(), stop).await.unwrap();
    assert_eq!(summary.state, State::Interrupted);
    assert!(summary.rows < 300);
    let error = desk.run(Run::default()).await.unwrap_err();
    assert!(error.to_string().contains("not ended"), "{error}");
    let failed = Selection { failed: true, ..Selection::default() };
    let retried = desk.run(Run { resume: true, selection: failed, ..Run::default() }).await.unwrap();
    assert_eq!((retried.state, retried.rows_now), (State::Interrupted, 0), "nothing has failed, and nothing is ended");
    let rest = desk.run(Run { resume: true, ..Run::default() }).await.unwrap();
    assert_eq!((rest.state, rest.rows), (State::Ended, 300));
    assert_eq!(rest.rows_now, 300 - summary.rows, "nothing is copied twice");
    assert_eq!(desk.output(), lines(300));
}

#[tokio::test]
async fn a_job_that_changed_is_not_gone_on_with() {
    let mut desk = Desk::lines(30);
    desk.job.rest = None;
    let stop = CancellationToken::new();
    stop.cancel();
    let session = Session::open(desk.job.clone()).await.unwrap();
    run(session, desk.place(), Run::default(), Arc::new(crate::event::Silent), Progress::shared(), stop).await.unwrap();
    desk.job.mode = crate::port::WriteMode::Replace;
    let error = desk.run(Run { resume: true, ..Run::default() }).await.unwrap_err();
    assert!(error.to_string().contains("has changed"), "{error}");
    let fresh = desk.run(Run { fresh: true, ..Run::default() }).await.unwrap();
    assert_eq!(fresh.rows, 30);
}

#[tokio::test]
async fn a_target_that_is_away_ends_in_failure_and_is_resumed() {
    let desk = Desk::lines(30);
    let session = Session::open(desk.job.clone()).await.unwrap();
    // Where the parts are to be, there is a file: nothing can be written.
    struct Spoiler(PathBuf);
    impl Observer for Spoiler {
        fn notify(&self, event: &Event) {
            if let Event::Completed { .. } = event {
                let parts = std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path());
                let parts: Vec<PathBuf> = parts.filter(|path| path.to_str().unwrap().contains(".parts-")).collect();
                parts.iter().for_each(|path| drop(std::fs::rename(path, self.0.join("hidden"))));
            }
        }
    }
    let observer = Arc::new(Spoiler(desk.folder.path().to_owned()));
    let mut job = desk.job.clone();
    job.workers = 1;
    let session = Session { job, ..session };
    let token = CancellationToken::new();
    let summary = run(session, desk.place(), Run::default(), observer, Progress::shared(), token).await.unwrap();
    assert_eq!(summary.state, State::Incomplete, "{summary:?}");
    assert!(!Path::new(&desk.job.to).exists());
    let history = desk.place().load().unwrap().unwrap();
    assert_eq!(history.failed().count(), 2);
    let hidden = desk.folder.path().join("hidden");
    std::fs::rename(hidden, format!("{}.parts-{}", desk.job.to, history.job)).unwrap();
    let selection = Selection { failed: true, split: Some(3), ..Selection::default() };
    let retried = desk.run(Run { resume: true, selection, ..Run::default() }).await.unwrap();
    assert_eq!((retried.state, retried.rows), (State::Ended, 30));
    assert!(retried.chunks > 5, "failed chunks were cut: {}", retried.chunks);
    assert_eq!(desk.output(), lines(30));
}

#[tokio::test]
async fn the_target_is_verified_on_request() {
    let mut desk = Desk::lines(45);
    desk.job.verify = true;
    let summary = desk.copy().await;
    assert_eq!(summary.state, State::Ended);
    let verified = summary.verified.unwrap();
    assert!(verified.is_same() && verified.rows_found == 45, "{verified:?}");
    // The same rows as read, but for one.
    let mut text = desk.output();
    text = text.replace("row 17", "row 71");
    std::fs::write(&desk.job.to, text).unwrap();
    let session = Session::open(Job { mode: crate::port::WriteMode::Replace, ..desk.job.clone() }).await.unwrap();
    let history = desk.place().load().unwrap().unwrap();
    assert!(!crate::verify::verify(&session, &history).await.unwrap().is_same());
}

#[tokio::test]
async fn a_mapping_makes_other_rows() {
    let text = lines(25).replace("row 7\"", "row x\"");
    let mut desk = Desk::new("in.ndjson", "out.csv", text.as_bytes());
    let rules = "from='a'\nto='b'\n[[column]]\nname='number'\nfrom='id'\nas='int64'\n\
                 [[column]]\nname='half'\nexpression='row.id / 2'\nas='int64'";
    desk.job.columns = toml::from_str::<Job>(rules).unwrap().columns;
    assert_eq!(desk.copy().await.rows, 25);
    let found = desk.output();
    assert_eq!(found.lines().next(), Some("number,half"));
    assert_eq!(found.lines().nth(25), Some("24,12"));
}
