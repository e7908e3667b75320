//! Hearing of what other nodes write: by notifications, and by looking from time to time.
//!
//! Notifications need a connection that is ours alone. Behind a pooler that shares it, they do not come; then the look
//! at the interval is what counts. That look is also what notices that a server is gone, and that it is back.

use std::{sync::Arc, time::Duration};

use flare_core::Sequence;
use flare_toolkit::health::Backoff;
use tokio_util::sync::CancellationToken;

use crate::{Inner, connection::Connection, pool::chance};

const RECONNECT_MIN: Duration = Duration::from_millis(100);
const RECONNECT_MAX: Duration = Duration::from_secs(5);

/// Tells the follower of changes until it is told to stop.
pub(crate) async fn run(inner: Arc<Inner>, stop: CancellationToken, interval: Duration) {
    let head = || async { inner.read_head().await };
    let read = |after, limit| {
        let inner = &inner;
        async move { inner.follow(after, limit).await }
    };
    inner.follower.run(stop, interval, head, read).await;
}

/// Listens for notifications until it is told to stop.
pub(crate) async fn listen(inner: Arc<Inner>, stop: CancellationToken) {
    let mut backoff = Backoff::new(RECONNECT_MIN, RECONNECT_MAX);
    while !stop.is_cancelled() {
        let wait = tokio::select! {
            () = stop.cancelled() => return,
            listened = listen_once(&inner) => {
                if listened {
                    backoff.reset();
                }
                backoff.next(chance())
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Listens as long as the connection lasts; false if there was none.
async fn listen_once(inner: &Arc<Inner>) -> bool {
    let hearing = Arc::downgrade(inner);
    let heard = move |payload: &str| {
        if let Some(inner) = hearing.upgrade() {
            inner.heard(payload);
        }
    };
    let Ok(connection) = Connection::open(&inner.pool.address, &inner.pool.session, heard).await else { return false };
    if connection.run(&format!("LISTEN \"{}\"", inner.channel)).await.is_err() {
        return false;
    }
    // What was told before we listened.
    inner.follower.look();
    connection.ended().await;
    true
}

impl Inner {
    /// Our own writes are known already.
    fn heard(&self, payload: &str) {
        let Some((writer, head)) = payload.split_once(' ') else { return };
        if let Ok(head) = head.parse()
            && writer != format!("{:032x}", u128::from_be_bytes(self.writer.id.0))
        {
            self.follower.noticed(Sequence(head));
        }
    }
}
