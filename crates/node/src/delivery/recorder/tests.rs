use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use flare_core::{
    Error, Sequence, StreamId,
    delivery::{AttemptQuery, AttemptRecord, Behind, DeadLetter},
    document::Standing,
    port::Span,
    replay::Replay,
    revision::Revision,
};
use jiff::Timestamp;

use super::*;

/// Versions in memory, which can be out of reach.
#[derive(Default)]
struct Shelf {
    versions: Mutex<FastMap<Place, Version>>,
    is_away: AtomicBool,
}

impl Shelf {
    fn reach(&self) -> Result<()> {
        if self.is_away.load(Ordering::Relaxed) { Err(Error::unavailable("away")) } else { Ok(()) }
    }
}

fn unused<T>() -> Result<T> {
    Err(Error::internal("the recorder does not ask for it"))
}

#[async_trait]
impl Deliveries for Shelf {
    async fn seal(&self, _: u64) -> Result<()> {
        unused()
    }

    async fn record(&self, progress: Vec<Progress>) -> Result<()> {
        self.reach()?;
        for step in progress {
            if let Some((at, Known::Has(version))) = known_in(&Step::Progress(step)) {
                self.versions.lock().insert(at, version);
            }
        }
        Ok(())
    }

    async fn version(&self, outlet: OutletId, number: DocumentNumber) -> Result<Option<Version>> {
        self.reach()?;
        Ok(self.versions.lock().get(&(outlet, number)).copied())
    }

    async fn standings(&self, _: Option<OutletId>, _: usize) -> Result<Vec<Standing>> {
        unused()
    }

    async fn standing(&self, _: OutletId) -> Result<Standing> {
        unused()
    }

    async fn missing(&self, _: StreamId, _: OutletId, _: Span, _: usize) -> Result<Vec<Behind>> {
        unused()
    }

    async fn dead_letters(&self, _: OutletId, _: usize, _: usize) -> Result<(Vec<DeadLetter>, usize)> {
        unused()
    }

    async fn discard_dead_letters(&self, _: OutletId, _: Vec<Sequence>) -> Result<()> {
        unused()
    }

    async fn forget_dead_letters(&self, _: Timestamp) -> Result<()> {
        unused()
    }

    async fn attempts(&self, _: OutletId, _: AttemptQuery) -> Result<Vec<AttemptRecord>> {
        unused()
    }

    async fn forget_attempts(&self, _: Timestamp) -> Result<()> {
        unused()
    }

    async fn save_replay(&self, _: OutletId, _: Option<Replay>) -> Result<()> {
        unused()
    }

    async fn replays(&self) -> Result<Vec<Replay>> {
        unused()
    }
}

struct World {
    shelf: Arc<Shelf>,
    recorder: Recorder,
    outlet: OutletId,
}

const DOCUMENT: DocumentNumber = DocumentNumber(1);

impl World {
    fn new() -> Self {
        let shelf = Arc::new(Shelf::default());
        let recorder = Recorder::new(shelf.clone(), Duration::ZERO);
        Self { shelf, recorder, outlet: OutletId::generate() }
    }

    fn delivered(&self, sequence: u64) {
        let version = Version { sequence: Sequence(sequence), revision: Revision::new(1), deleted: false };
        self.recorder.record(Progress::Version { outlet: self.outlet, number: DOCUMENT, version });
    }

    fn forget(&self, change: u64, to: u64) {
        self.recorder.forget(self.outlet, DOCUMENT, Forget { change: Sequence(change), to: Sequence(to) });
    }

    async fn version(&self) -> Option<u64> {
        self.recorder.version(self.outlet, DOCUMENT).await.unwrap().map(|version| version.sequence.0)
    }

    fn stored(&self) -> Option<u64> {
        self.shelf.versions.lock().get(&(self.outlet, DOCUMENT)).map(|version| version.sequence.0)
    }
}

#[tokio::test]
async fn after_a_failed_write_the_last_version_counts() {
    let world = World::new();
    world.delivered(3);
    world.delivered(5);
    world.shelf.is_away.store(true, Ordering::Relaxed);
    assert!(world.recorder.flush().await.is_err());
    assert_eq!(world.version().await, Some(5));
    world.delivered(7);
    world.shelf.is_away.store(false, Ordering::Relaxed);
    assert_eq!(world.version().await, Some(7));
    world.recorder.flush().await.unwrap();
    assert_eq!((world.stored(), world.version().await), (Some(7), Some(7)));
}

#[tokio::test]
async fn what_is_to_be_told_again_is_forgotten_and_nothing_newer() {
    for is_stored in [false, true] {
        let world = World::new();
        world.delivered(5);
        if is_stored {
            world.recorder.flush().await.unwrap();
        }
        world.forget(4, 3);
        assert_eq!(world.version().await, Some(5), "it has something newer");
        world.forget(5, 4);
        assert_eq!(world.version().await, Some(4));
        world.recorder.flush().await.unwrap();
        assert_eq!((world.stored(), world.version().await), (Some(4), Some(4)));
        world.delivered(5);
        world.recorder.flush().await.unwrap();
        assert_eq!(world.stored(), Some(5));
    }
}

#[tokio::test]
async fn one_who_has_nothing_has_nothing_to_forget() {
    let world = World::new();
    world.forget(5, 4);
    assert_eq!(world.version().await, None);
    world.recorder.flush().await.unwrap();
    assert_eq!(world.stored(), None);
}

#[tokio::test]
async fn what_is_forgotten_stays_so_while_the_store_is_away() {
    let world = World::new();
    world.delivered(5);
    world.recorder.flush().await.unwrap();
    world.forget(5, 4);
    world.shelf.is_away.store(true, Ordering::Relaxed);
    assert!(world.recorder.flush().await.is_err());
    world.shelf.is_away.store(false, Ordering::Relaxed);
    assert_eq!(world.version().await, Some(4));
    world.recorder.flush().await.unwrap();
    assert_eq!(world.stored(), Some(4));
}
