//! What the client of a passive outlet does: ask for messages, pull them, and say what became of them.

use std::time::Duration;

use flare_core::{Error, OutletId, Result, StreamId, outlet::Mode};
use tokio::time::Instant;

use super::{Node, life::not_passive, missing};
use crate::delivery::{
    mailbox::Command,
    slot::pull::{Message, Pull, ReceiptError, Settle},
};

/// How much a client may ask for in all.
pub const DEMAND_MAX: u64 = 1_000_000;

impl Node {
    /// Asks for so many more messages; says how many are asked for then. Durable.
    pub async fn add_demand(&self, stream: StreamId, id: OutletId, quantity: u64) -> Result<u64> {
        self.require_passive(stream, id)?;
        let worker = self.worker()?;
        let added = worker.ask(id, |left| Command::Demand { outlet: id, quantity, max: DEMAND_MAX, left }).await?;
        let left = added.map_err(|left| {
            Error::conflict(format!(
                "{left} messages are asked for already; {quantity} more would be past the maximum of {DEMAND_MAX}"
            ))
        })?;
        worker.during(worker.delivery.flush(&*self.store.engine)).await?;
        Ok(left)
    }

    /// How many messages are asked for and not yet sent.
    pub async fn demand(&self, stream: StreamId, id: OutletId) -> Result<u64> {
        self.require_passive(stream, id)?;
        Ok(self.inspect(id).await?.demand)
    }

    /// Up to `limit` messages, each leased; waits for the first for at most `wait`.
    pub async fn pull(
        &self,
        stream: StreamId,
        id: OutletId,
        limit: usize,
        wait: Duration,
        lease: Duration,
    ) -> Result<Vec<Message>> {
        self.require_passive(stream, id)?;
        let deadline = Instant::now() + wait;
        let pull = |reply| Command::Pull { outlet: id, pull: Pull { limit, lease, deadline, reply } };
        self.worker()?.ask(id, pull).await
    }

    /// Does the same with each receipt, and says of each whether it was one.
    pub async fn settle(
        &self,
        stream: StreamId,
        id: OutletId,
        receipts: Vec<String>,
        how: Settle,
    ) -> Result<Vec<Result<(), ReceiptError>>> {
        self.registry.outlet(stream, id).ok_or_else(|| missing(id))?;
        self.worker()?.ask(id, |results| Command::Settle { outlet: id, receipts, how, results }).await
    }

    fn require_passive(&self, stream: StreamId, id: OutletId) -> Result<()> {
        let outlet = self.registry.outlet(stream, id).ok_or_else(|| missing(id))?;
        if outlet.mode == Mode::Passive { Ok(()) } else { Err(not_passive(id)) }
    }
}
