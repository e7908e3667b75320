//! What outlets have, and where they stand.

mod attempts;
mod missing;

use std::{ops::ControlFlow, sync::atomic::Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use flare_core::{
    DocumentNumber, Error, OutletId, Result, Sequence, StreamId,
    delivery::{AttemptQuery, AttemptRecord, Behind, DeadLetter},
    document::{Progress, Retry, Standing, Version},
    port::{Deliveries, Span},
    replay::Replay,
};
use jiff::Timestamp;

use crate::{
    Durability, KeyValue, KeyValueStore, Table, blocking, keys, rows,
    transaction::{Transaction, read_count},
};

#[async_trait]
impl Deliveries for KeyValueStore {
    async fn seal(&self, epoch: u64) -> Result<()> {
        self.seal_epoch(epoch).await
    }

    async fn record(&self, progress: Vec<Progress>) -> Result<()> {
        let epoch = self.epoch.load(Ordering::Relaxed);
        self.writer
            .transact(Durability::Later, move |transaction| {
                require_epoch(transaction, epoch)?;
                for step in progress {
                    match step {
                        Progress::Version { outlet, number, version } => transaction.put(
                            Table::Versions,
                            keys::outlet_document(outlet, number),
                            rows::encode_version(&version),
                        ),
                        Progress::Cursor { outlet, cursor } => transaction.put(
                            Table::Cursors,
                            Bytes::copy_from_slice(outlet.as_bytes()),
                            rows::encode_cursor(cursor),
                        ),
                        Progress::Retry(retry) => transaction.put(
                            Table::Retries,
                            keys::outlet_document(retry.outlet, retry.number),
                            rows::encode_retry(&retry),
                        ),
                        Progress::Settled { outlet, number } => {
                            transaction.remove(Table::Retries, keys::outlet_document(outlet, number));
                        }
                        Progress::Forgotten { outlet, number, version } => transaction.put(
                            Table::Versions,
                            keys::outlet_document(outlet, number),
                            rows::encode_version(&version),
                        ),
                        Progress::DeadLetter(letter) => transaction.put(
                            Table::DeadLetters,
                            keys::outlet_sequence(letter.outlet, letter.sequence),
                            rows::encode_dead_letter(&letter)?,
                        ),
                        Progress::Demand { outlet, left } => transaction.put(
                            Table::Demands,
                            Bytes::copy_from_slice(outlet.as_bytes()),
                            rows::encode_cursor(Sequence(left)),
                        ),
                        Progress::Failing { outlet, since: Some(since) } => transaction.put(
                            Table::Demands,
                            keys::failing(outlet),
                            Bytes::copy_from_slice(&rows::micros(since).to_be_bytes()),
                        ),
                        Progress::Failing { outlet, since: None } => {
                            transaction.remove(Table::Demands, keys::failing(outlet));
                        }
                        Progress::Attempts { outlet, attempts } => {
                            if let Some(first) = attempts.first() {
                                let key = keys::outlet_time(outlet, first.at);
                                transaction.put(Table::Attempts, key, rows::encode_attempts(&attempts));
                            }
                        }
                    }
                }
                Ok(())
            })
            .await
    }

    async fn version(&self, outlet: OutletId, number: DocumentNumber) -> Result<Option<Version>> {
        self.map
            .get(Table::Versions, &keys::outlet_document(outlet, number))?
            .map(|row| rows::decode_version(&row))
            .transpose()
    }

    async fn standings(&self, after: Option<OutletId>, limit: usize) -> Result<Vec<Standing>> {
        let from = after.map_or_else(Bytes::new, |id| keys::after(id.as_bytes()));
        let mut standings = Vec::new();
        let mut failure = None;
        if limit == 0 {
            return Ok(standings);
        }
        self.map.scan(Table::Cursors, &from, &[u8::MAX; 17], &mut |key, row| {
            let Ok(id) = <[u8; 16]>::try_from(&key[..]) else { return ControlFlow::Continue(()) };
            match rows::decode_cursor(&row) {
                Ok(cursor) => {
                    let (demand, failing_since) =
                        match self.demand(&id).and_then(|demand| Ok((demand, self.failing_since(&id)?))) {
                            Ok(read) => read,
                            Err(error) => {
                                failure = Some(error);
                                return ControlFlow::Break(());
                            }
                        };
                    let outlet = OutletId::from_bytes(id);
                    standings.push(Standing { outlet, cursor, retries: Vec::new(), demand, failing_since });
                }
                Err(error) => failure = Some(error),
            }
            if failure.is_none() && standings.len() < limit {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        if let Some(error) = failure {
            return Err(error);
        }
        if let Some(last) = standings.last().map(|standing| standing.outlet) {
            let mut retries = retries(&*self.map, &from, &keys::after_prefix(last.as_bytes()))?.into_iter().peekable();
            for standing in &mut standings {
                while let Some(retry) = retries.next_if(|retry| retry.outlet <= standing.outlet) {
                    // A retry without a cursor is what is left of a deleted outlet.
                    if retry.outlet == standing.outlet {
                        standing.retries.push(retry);
                    }
                }
            }
        }
        Ok(standings)
    }

    async fn standing(&self, outlet: OutletId) -> Result<Standing> {
        let id = outlet.as_bytes();
        let Some(cursor) = self.map.get(Table::Cursors, id)? else {
            return Err(Error::not_found(format!("outlet {outlet} does not exist")));
        };
        let retries = retries(&*self.map, id, &keys::after_prefix(id))?;
        let (demand, failing_since) = (self.demand(id)?, self.failing_since(id)?);
        Ok(Standing { outlet, cursor: rows::decode_cursor(&cursor)?, retries, demand, failing_since })
    }

    async fn missing(&self, stream: StreamId, outlet: OutletId, span: Span, limit: usize) -> Result<Vec<Behind>> {
        let map = self.map.clone();
        blocking(move || missing::find(&*map, stream, outlet, span, limit)).await
    }

    async fn dead_letters(&self, outlet: OutletId, offset: usize, limit: usize) -> Result<(Vec<DeadLetter>, usize)> {
        let (mut letters, mut total) = (Vec::new(), 0);
        let mut failure = None;
        let prefix = outlet.as_bytes();
        self.map.scan(Table::DeadLetters, prefix, &keys::after_prefix(prefix), &mut |_, row| {
            if total >= offset && letters.len() < limit {
                match rows::decode_dead_letter(outlet, &row) {
                    Ok(letter) => letters.push(letter),
                    Err(error) => {
                        failure = Some(error);
                        return ControlFlow::Break(());
                    }
                }
            }
            total += 1;
            ControlFlow::Continue(())
        })?;
        failure.map_or(Ok((letters, total)), Err)
    }

    async fn discard_dead_letters(&self, outlet: OutletId, sequences: Vec<Sequence>) -> Result<()> {
        let discard = move |transaction: &mut Transaction<'_>| {
            for sequence in sequences {
                transaction.remove(Table::DeadLetters, keys::outlet_sequence(outlet, sequence));
            }
            Ok(())
        };
        self.writer.transact(Durability::Now, discard).await
    }

    async fn attempts(&self, outlet: OutletId, query: AttemptQuery) -> Result<Vec<AttemptRecord>> {
        let map = self.map.clone();
        blocking(move || attempts::find(&*map, outlet, &query)).await
    }

    async fn forget_attempts(&self, older_than: Timestamp) -> Result<()> {
        for step in attempts::old(&*self.map, older_than)? {
            self.remove(Table::Attempts, step).await?;
        }
        Ok(())
    }

    async fn forget_dead_letters(&self, older_than: Timestamp) -> Result<()> {
        let mut old = Vec::new();
        self.map.scan(Table::DeadLetters, &[], &[u8::MAX; 25], &mut |key, row| {
            let is_old = |outlet: &[u8; 16]| {
                rows::decode_dead_letter(OutletId::from_bytes(*outlet), &row).is_ok_and(|letter| letter.at < older_than)
            };
            if key.first_chunk().is_some_and(is_old) {
                old.push(key);
            }
            ControlFlow::Continue(())
        })?;
        self.remove(Table::DeadLetters, old).await
    }

    async fn save_replay(&self, outlet: OutletId, replay: Option<Replay>) -> Result<()> {
        let row = replay.map(|replay| rows::encode_replay(&replay)).transpose()?;
        let save = move |transaction: &mut Transaction<'_>| {
            match row {
                Some(row) => transaction.put(Table::Meta, keys::replay(outlet), row),
                None => transaction.remove(Table::Meta, keys::replay(outlet)),
            }
            Ok(())
        };
        self.writer.transact(Durability::Now, save).await
    }

    async fn replays(&self) -> Result<Vec<Replay>> {
        let mut replays = Vec::new();
        self.map.scan(Table::Meta, keys::REPLAYS, &keys::after_prefix(keys::REPLAYS), &mut |key, row| {
            if let Some(outlet) = keys::tail::<16>(&key) {
                replays.push(rows::decode_replay(OutletId::from_bytes(outlet), &row));
            }
            ControlFlow::Continue(())
        })?;
        replays.into_iter().collect()
    }
}

impl KeyValueStore {
    fn demand(&self, outlet: &[u8; 16]) -> Result<u64> {
        let row = self.map.get(Table::Demands, outlet)?;
        Ok(row.map(|row| rows::decode_cursor(&row)).transpose()?.map_or(0, |left| left.0))
    }

    fn failing_since(&self, outlet: &[u8; 16]) -> Result<Option<Timestamp>> {
        let row = self.map.get(Table::Demands, &keys::failing(OutletId::from_bytes(*outlet)))?;
        let micros = |row: Bytes| row[..].try_into().map(i64::from_be_bytes).map_err(|_| rows::damaged("failing"));
        row.map(|row| micros(row).and_then(rows::timestamp)).transpose()
    }
}

/// One who was replaced records nothing.
fn require_epoch(transaction: &mut Transaction<'_>, epoch: u64) -> Result<()> {
    let owner = read_count(transaction.get(Table::Meta, &Bytes::from_static(keys::EPOCH))?.as_ref())?;
    if owner > epoch { Err(Error::conflict(format!("epoch {owner} has replaced epoch {epoch}"))) } else { Ok(()) }
}

/// The retries of a range of keys, in the order of the outlets.
fn retries(map: &dyn KeyValue, from: &[u8], to: &[u8]) -> Result<Vec<Retry>> {
    let mut found = Vec::new();
    let mut failure = None;
    map.scan(Table::Retries, from, to, &mut |key, row| {
        let parts = key.split_first_chunk::<16>().zip(keys::tail::<8>(&key));
        let Some(((outlet, _), number)) = parts else { return ControlFlow::Continue(()) };
        let number = DocumentNumber(u64::from_be_bytes(number));
        match rows::decode_retry(OutletId::from_bytes(*outlet), number, &row) {
            Ok(retry) => found.push(retry),
            Err(error) => {
                failure = Some(error);
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    })?;
    failure.map_or(Ok(found), Err)
}
