//! What outlets have, and where they stand.

use std::ops::ControlFlow;

use async_trait::async_trait;
use bytes::Bytes;
use flare_core::{
    DocumentNumber, OutletId, Result,
    document::{Progress, Retry, Standing, Version},
    port::Deliveries,
};

use crate::{Durability, KeyValue, KeyValueStore, Table, keys, rows};

#[async_trait]
impl Deliveries for KeyValueStore {
    async fn record(&self, progress: Vec<Progress>) -> Result<()> {
        self.writer
            .transact(Durability::Later, move |transaction| {
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
                    }
                }
                Ok(())
            })
            .await
    }

    fn version(&self, outlet: OutletId, number: DocumentNumber) -> Result<Option<Version>> {
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
                    standings.push(Standing { outlet: OutletId::from_bytes(id), cursor, retries: Vec::new() });
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
