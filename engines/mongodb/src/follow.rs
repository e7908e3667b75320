//! What goes on in the background: hearing of what others have written, finishing what they have left half done, purging.

use std::{sync::Arc, time::Duration};

use flare_core::{Result, Sequence};
use flare_toolkit::{follow::Follower, health::Backoff};
use futures_util::{StreamExt, TryStreamExt};
use mongodb::{
    bson::{Document, doc},
    options::ChangeStreamOptions,
};
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    connection::{Connection, Deployment},
    feed,
    log::Log,
    purge,
    rows::read_int,
    spawn,
    table::Table,
    writer::WriteLane,
};

/// A group that is committed and not in its place for so long was left by a node that has ended.
const HALF_DONE_MAX: Duration = Duration::from_secs(1);
/// How often to look for something to purge that nobody has told of.
const PURGE_INTERVAL: Duration = Duration::from_secs(30);
const WATCH_WAIT_MIN: Duration = Duration::from_millis(100);
const WATCH_WAIT_MAX: Duration = Duration::from_secs(10);

pub(crate) struct Parts {
    pub connection: Arc<Connection>,
    pub log: Arc<Log>,
    pub follower: Arc<Follower>,
    pub lane: Arc<WriteLane>,
    pub purge: Arc<Notify>,
    pub stop: CancellationToken,
    pub interval: Duration,
}

/// Starts the tasks; they end when they are told to stop.
pub(crate) fn start(parts: &Parts) {
    let looks =
        Arc::new(Looks { connection: parts.connection.clone(), lane: parts.lane.clone(), half_done: Mutex::new(None) });
    let (follower, stop, interval) = (parts.follower.clone(), parts.stop.clone(), parts.interval);
    spawn(async move {
        let head = || looks.head();
        let read = |after, limit| feed::read_after(&looks.connection, after, follower.head(), limit);
        follower.run(stop, interval, head, read).await;
    });
    if parts.connection.deployment == Deployment::Replicated {
        let (connection, follower, stop) = (parts.connection.clone(), parts.follower.clone(), parts.stop.clone());
        spawn(async move {
            let _stopped = stop.run_until_cancelled(watch(&connection, &follower)).await;
        });
    }
    let (connection, log, purge) = (parts.connection.clone(), parts.log.clone(), parts.purge.clone());
    let stop = parts.stop.clone();
    spawn(async move {
        let _stopped = stop.run_until_cancelled(clean(&connection, &log, &purge)).await;
    });
}

/// Looks at the head: how far others are, and whether they have left something half done.
struct Looks {
    connection: Arc<Connection>,
    lane: Arc<WriteLane>,
    /// The version that is committed and not applied, and since when that was seen.
    half_done: Mutex<Option<(u64, Instant)>>,
}

impl Looks {
    /// How far everything is in its place. Also settles what this node itself does not know of its last write.
    async fn head(&self) -> Result<Sequence> {
        self.lane.settle().await?;
        let rows = self.connection.rows(Table::Head);
        let find = rows.find(doc! { "_id": { "$in": ["head", "applied"] } });
        let find = find.projection(doc! { "version": 1, "sequence": 1 }).read_concern(self.connection.committed());
        let read = async { find.await?.try_collect::<Vec<_>>().await };
        let (mut applied, mut version) = ((0, Sequence::START), 0);
        for row in self.connection.call("look for changes", read).await? {
            match row.get_str("_id") {
                Ok("applied") => applied = (read_int(&row, "version")?, Sequence(read_int(&row, "sequence")?)),
                _ => version = read_int(&row, "version")?,
            }
        }
        if self.is_left_half_done(applied.0, version) {
            self.lane.repair().await?;
        }
        Ok(applied.1)
    }

    fn is_left_half_done(&self, applied: u64, version: u64) -> bool {
        let mut half_done = self.half_done.lock();
        if applied >= version {
            *half_done = None;
            return false;
        }
        match *half_done {
            Some((seen, since)) if seen == version => since.elapsed() >= HALF_DONE_MAX,
            _ => {
                *half_done = Some((version, Instant::now()));
                false
            }
        }
    }
}

/// Has the server tell when others have written. Without it, the follower looks at its interval.
async fn watch(connection: &Connection, follower: &Follower) {
    let mut backoff = Backoff::new(WATCH_WAIT_MIN, WATCH_WAIT_MAX);
    loop {
        match watch_once(connection, follower, &mut backoff).await {
            Ok(()) => {}
            Err(error) => tracing::debug!(reason = %error, "could not listen to the server"),
        }
        tokio::time::sleep(backoff.next(crate::writer::chance())).await;
    }
}

async fn watch_once(connection: &Connection, follower: &Follower, backoff: &mut Backoff) -> mongodb::error::Result<()> {
    let applied = doc! { "$match": { "documentKey._id": "applied", "operationType": "update" } };
    let rows = connection.database().collection::<Document>(Table::Head.name());
    let mut stream = rows.watch().pipeline([applied]).with_options(ChangeStreamOptions::default()).await?;
    backoff.reset();
    // Something may have come before the first word.
    follower.look();
    while let Some(event) = stream.next().await {
        let fields = event?.update_description.map(|update| update.updated_fields);
        let sequence = fields.and_then(|fields| fields.get_i64("sequence").ok());
        if let Some(sequence) = sequence.and_then(|sequence| u64::try_from(sequence).ok()) {
            follower.noticed(Sequence(sequence));
        }
    }
    Ok(())
}

async fn clean(connection: &Connection, log: &Log, purge: &Notify) {
    loop {
        let cleaned = async {
            purge::run(connection).await?;
            log.remove_parts().await
        };
        if let Err(error) = cleaned.await {
            tracing::debug!(reason = error.chain(), "could not purge; it is tried again");
        }
        let _told = tokio::time::timeout(PURGE_INTERVAL, purge.notified()).await;
    }
}
