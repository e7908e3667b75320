//! Who records progress, and why an owner that was replaced changes nothing.
//!
//! Each owner takes a session: a number that rises with every one that is taken, by whichever node. What it records
//! carries the session and a counter as its timestamp. Cassandra keeps what has the newest timestamp, so that what an
//! older owner records, however late, is covered by what newer ones have recorded.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use flare_core::{
    Error, Result,
    port::{AgreedRow, Agreement},
};
use flare_toolkit::rows::damaged;
use tokio::{sync::Mutex, time::Instant};

use crate::{Core, coordination};

/// No key of a caller starts so.
const KEY: &str = "\u{1}owner";
/// How long a node believes that it was not replaced.
const BELIEF_SECONDS: u64 = 1;
/// How often two owners may get in each other's way.
const ATTEMPTS_MAX: usize = 100;

/// What a node knows of the owner.
pub(crate) struct Owner {
    /// The epoch that this node records for.
    epoch: AtomicU64,
    /// Zero if it has none.
    session: AtomicU64,
    counter: AtomicU32,
    taking: Mutex<Option<Instant>>,
}

#[derive(Clone, Copy, Default, Debug)]
struct Owned {
    epoch: u64,
    session: u64,
}

impl Owned {
    fn read(row: Option<&AgreedRow>) -> Result<Self> {
        let Some(row) = row else { return Ok(Self::default()) };
        let mut value = row.value.clone();
        let numbers = value.try_get_u64().and_then(|epoch| Ok(Self { epoch, session: value.try_get_u64()? }));
        numbers.map_err(|error| damaged("owner").because(error))
    }

    fn encode(self) -> Bytes {
        let mut value = BytesMut::with_capacity(16);
        value.put_u64(self.epoch);
        value.put_u64(self.session);
        value.freeze()
    }
}

impl Owner {
    pub async fn open(connection: &crate::connection::Connection) -> Result<Self> {
        let owned = Owned::read(coordination::read(connection, KEY).await?.as_ref())?;
        Ok(Self {
            epoch: AtomicU64::new(owned.epoch),
            session: AtomicU64::new(0),
            counter: AtomicU32::new(0),
            taking: Mutex::new(None),
        })
    }

    /// The next timestamp of this session. Rises with every call.
    fn next(&self) -> Option<i64> {
        let session = self.session.load(Ordering::Acquire);
        let counter = self.counter.fetch_add(1, Ordering::AcqRel);
        // A session that has counted to the end is followed by another one.
        (session != 0 && counter != u32::MAX).then_some((session << 32) as i64 | i64::from(counter))
    }
}

impl Core {
    /// Takes a session as the owner of this epoch.
    pub async fn seal(&self, epoch: u64) -> Result<()> {
        let mut checked = self.owner.taking.lock().await;
        self.take_session(epoch).await?;
        *checked = Some(Instant::now());
        Ok(())
    }

    async fn take_session(&self, epoch: u64) -> Result<()> {
        for _ in 0..ATTEMPTS_MAX {
            let row = coordination::read(&self.connection, KEY).await?;
            let owned = Owned::read(row.as_ref())?;
            if epoch < owned.epoch {
                return Err(Error::conflict(format!("epoch {} is newer than epoch {epoch}", owned.epoch)));
            }
            let next = Owned { epoch, session: owned.session + 1 };
            let seen = row.map(|row| row.version);
            if let Agreement::Applied(_) = self.set_agreed(KEY, seen, next.encode()).await? {
                self.owner.session.store(0, Ordering::Release);
                self.owner.counter.store(0, Ordering::Release);
                self.owner.epoch.store(epoch, Ordering::Release);
                self.owner.session.store(next.session, Ordering::Release);
                return Ok(());
            }
        }
        Err(Error::unavailable("could not agree with other nodes on who records progress"))
    }

    /// The timestamp of what is recorded next. `Conflict` if another owner is known.
    pub async fn next_record(&self) -> Result<i64> {
        let mut checked = self.owner.taking.lock().await;
        let epoch = self.owner.epoch.load(Ordering::Acquire);
        let is_old = checked.is_none_or(|at| at.elapsed().as_secs() >= BELIEF_SECONDS);
        if is_old {
            let owned = Owned::read(coordination::read(&self.connection, KEY).await?.as_ref())?;
            if owned.epoch > epoch {
                return Err(Error::conflict(format!("epoch {} has replaced epoch {epoch}", owned.epoch)));
            }
            *checked = Some(Instant::now());
        }
        match self.owner.next() {
            Some(timestamp) => Ok(timestamp),
            None => {
                self.take_session(epoch).await?;
                self.owner.next().ok_or_else(|| Error::internal("a new session cannot be used up"))
            }
        }
    }
}
