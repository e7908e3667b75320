//! What outlets have done, written down.
//!
//! Many steps are folded to the last one of each row and written in few commands. They are no transaction: what must not
//! be missing is written first (a retry before the cursor that passes its document), so that one that was interrupted
//! repeats deliveries and loses none.
//!
//! Every row has the epoch of the owner that wrote it, and only the same or a newer owner writes over it.

use std::collections::HashMap;

use flare_core::{
    DocumentNumber, Error, OutletId, Result, Sequence,
    delivery::{AttemptRecord, DeadLetter},
    document::{Progress, Retry, Version},
};
use flare_toolkit::rows::{encode_attempts, encode_dead_letter, micros};
use jiff::Timestamp;
use mongodb::bson::{RawBson, RawDocumentBuf, doc, raw::cstr, rawdoc};

use crate::{
    connection::{Connection, Durability, Failure},
    rows::{binary, body::entity_row, date, int, outlet_document, read_int, retry_row, version_row},
    table::Table,
};

/// The last step of each row.
#[derive(Default)]
struct Folded {
    versions: HashMap<(OutletId, DocumentNumber), Version>,
    cursors: HashMap<OutletId, Sequence>,
    /// None: settled.
    retries: HashMap<(OutletId, DocumentNumber), Option<Retry>>,
    letters: HashMap<(OutletId, Sequence), DeadLetter>,
    demands: HashMap<OutletId, u64>,
    failing: HashMap<OutletId, Option<Timestamp>>,
    attempts: HashMap<(OutletId, Timestamp), Vec<AttemptRecord>>,
}

impl Folded {
    fn add(&mut self, step: Progress) {
        match step {
            Progress::Version { outlet, number, version } | Progress::Forgotten { outlet, number, version } => {
                self.versions.insert((outlet, number), version);
            }
            Progress::Cursor { outlet, cursor } => drop(self.cursors.insert(outlet, cursor)),
            Progress::Retry(retry) => drop(self.retries.insert((retry.outlet, retry.number), Some(retry))),
            Progress::Settled { outlet, number } => drop(self.retries.insert((outlet, number), None)),
            Progress::DeadLetter(letter) => drop(self.letters.insert((letter.outlet, letter.sequence), letter)),
            Progress::Demand { outlet, left } => drop(self.demands.insert(outlet, left)),
            Progress::Failing { outlet, since } => drop(self.failing.insert(outlet, since)),
            Progress::Attempts { outlet, attempts } => {
                if let Some(first) = attempts.first().map(|attempt| attempt.at) {
                    self.attempts.insert((outlet, first), attempts);
                }
            }
        }
    }
}

/// Writes the steps down as the owner of this epoch. `Conflict` if there is a newer owner; what that one has written
/// stays as it is.
pub(crate) async fn record(
    connection: &Connection,
    epoch: u64,
    steps: impl IntoIterator<Item = Progress>,
) -> Result<()> {
    let mut folded = Folded::default();
    steps.into_iter().for_each(|step| folded.add(step));
    let owner = async { owner_epoch(connection).await.map_err(Failure::NotDone) };
    let first = futures_util::future::try_join5(
        put(connection, Table::DeadLetters, folded.letters(epoch)?, epoch),
        put(connection, Table::Versions, folded.versions(epoch), epoch),
        put(connection, Table::Retries, folded.retries(epoch), epoch),
        put(connection, Table::Attempts, folded.attempts(epoch), epoch),
        put(connection, Table::Demands, folded.demands(epoch), epoch),
    );
    let (newest, _) = futures_util::future::try_join(owner, first).await.map_err(Failure::into_error)?;
    if newest > epoch {
        return Err(replaced(newest, epoch));
    }
    let (cursors, settled) = (folded.cursors(epoch), folded.settled(epoch));
    let second = futures_util::future::try_join(
        update(connection, Table::Cursors, &cursors),
        update(connection, Table::Retries, &settled),
    );
    second.await.map(drop).map_err(Failure::into_error)
}

/// Says how many met a row that they could not be put over.
async fn update(connection: &Connection, table: Table, statements: &[RawDocumentBuf]) -> Result<u64, Failure> {
    if statements.is_empty() {
        return Ok(0);
    }
    Ok(connection.update(table, statements, Durability::Journaled).await?.duplicates)
}

/// Puts whole rows, each over one of the same or an older owner.
async fn put(connection: &Connection, table: Table, rows: Vec<RawDocumentBuf>, epoch: u64) -> Result<(), Failure> {
    let statements: Vec<_> = rows.into_iter().filter_map(|row| fenced(row, epoch)).collect();
    // A row in the way is that of a newer owner, or was made by an older one at this very moment.
    while update(connection, table, &statements).await? > 0 {
        let newest = owner_epoch(connection).await.map_err(Failure::NotDone)?;
        if newest > epoch {
            return Err(Failure::NotDone(replaced(newest, epoch)));
        }
    }
    Ok(())
}

pub(crate) fn replaced(newest: u64, epoch: u64) -> Error {
    Error::conflict(format!("epoch {newest} has replaced epoch {epoch}"))
}

/// The newest owner.
pub(crate) async fn owner_epoch(connection: &Connection) -> Result<u64> {
    let rows = connection.rows(Table::Head);
    let find = rows.find_one(doc! { "_id": "owner" });
    let row = connection.call("read the owner", find.read_concern(connection.committed())).await?;
    row.map_or(Ok(0), |row| read_int(&row, "epoch"))
}

/// The statement that puts a row where none of a newer owner is. Over such a one it fails as a duplicate.
fn fenced(row: RawDocumentBuf, epoch: u64) -> Option<RawDocumentBuf> {
    let mut query = RawDocumentBuf::new();
    query.append(cstr!("_id"), row.get("_id").ok()??);
    query.append(cstr!("epoch"), rawdoc! { "$lte": int(epoch) });
    Some(rawdoc! { "q": query, "u": row, "upsert": true })
}

impl Folded {
    fn versions(&self, epoch: u64) -> Vec<RawDocumentBuf> {
        let row = |((outlet, number), version): (&(OutletId, DocumentNumber), &Version)| {
            version_row(*outlet, *number, version, epoch)
        };
        self.versions.iter().map(row).collect()
    }

    fn retries(&self, epoch: u64) -> Vec<RawDocumentBuf> {
        self.retries.values().flatten().map(|retry| retry_row(retry, epoch)).collect()
    }

    /// A settled retry stays for a while, so that an older owner does not bring it back.
    fn settled(&self, epoch: u64) -> Vec<RawDocumentBuf> {
        let now = date(Timestamp::now());
        let settled = self.retries.iter().filter(|(_, retry)| retry.is_none());
        settled
            .map(|((outlet, number), _)| {
                rawdoc! {
                    "q": { "_id": outlet_document(*outlet, *number), "epoch": { "$lte": int(epoch) } },
                    "u": { "$set": { "settledAt": now, "epoch": int(epoch) } },
                }
            })
            .collect()
    }

    /// The row was made with the outlet, and goes with it.
    fn cursors(&self, epoch: u64) -> Vec<RawDocumentBuf> {
        let statement = |(outlet, cursor): (&OutletId, &Sequence)| {
            rawdoc! {
                "q": { "_id": outlet.to_string(), "epoch": { "$lte": int(epoch) } },
                "u": { "$set": { "cursor": int(cursor.0), "epoch": int(epoch) } },
            }
        };
        let failing = |(outlet, since): (&OutletId, &Option<Timestamp>)| {
            let mut set = rawdoc! { "epoch": int(epoch) };
            match since {
                Some(since) => set.append(cstr!("failingSince"), micros(*since)),
                None => set.append(cstr!("failingSince"), RawBson::Null),
            }
            rawdoc! {
                "q": { "_id": outlet.to_string(), "epoch": { "$lte": int(epoch) } },
                "u": { "$set": set },
            }
        };
        self.cursors.iter().map(statement).chain(self.failing.iter().map(failing)).collect()
    }

    fn letters(&self, epoch: u64) -> Result<Vec<RawDocumentBuf>> {
        let row = |letter: &DeadLetter| {
            let id = doc! { "outlet": letter.outlet.to_string(), "sequence": int(letter.sequence.0) };
            entity_row(doc! { "_id": id, "epoch": int(epoch) }, &encode_dead_letter(letter)?)
        };
        self.letters.values().map(row).collect()
    }

    fn demands(&self, epoch: u64) -> Vec<RawDocumentBuf> {
        let row = |(outlet, left): (&OutletId, &u64)| {
            rawdoc! { "_id": outlet.to_string(), "left": int(*left), "epoch": int(epoch) }
        };
        self.demands.iter().map(row).collect()
    }

    fn attempts(&self, epoch: u64) -> Vec<RawDocumentBuf> {
        let row = |((outlet, first), attempts): (&(OutletId, Timestamp), &Vec<AttemptRecord>)| {
            rawdoc! {
                "_id": { "outlet": outlet.to_string(), "at": nanos(*first) },
                "at": date(*first),
                "count": attempts.len() as i64,
                "epoch": int(epoch),
                "records": binary(&encode_attempts(attempts)),
            }
        };
        self.attempts.iter().map(row).collect()
    }
}

/// Times that do not fit are as far away as can be.
pub(crate) fn nanos(at: Timestamp) -> i64 {
    let nanos = at.as_nanosecond();
    i64::try_from(nanos).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests;
