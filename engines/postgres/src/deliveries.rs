//! What outlets have, and where they stand.

use std::sync::atomic::Ordering;

use async_trait::async_trait;
use bytes::Bytes;
use flare_core::{
    DocumentNumber, Error, OutletId, Result, Sequence, StreamId,
    delivery::{AttemptQuery, AttemptRecord, Behind, DeadLetter},
    document::{Progress, Retry, Standing, Version},
    port::{Deliveries, Span},
    replay::Replay,
};
use flare_toolkit::rows;
use jiff::Timestamp;
use tokio_postgres::Row;

use crate::{
    Inner, PostgresStore,
    connection::Call,
    groups::unreadable,
    record::Job,
    values::{Id, Json, Number, Time, Url, bigint, sequence},
};

const SEAL: &str = "UPDATE owner SET epoch = $1 WHERE epoch <= $1 RETURNING epoch";
const OWNER: &str = "SELECT epoch FROM owner";
const VERSIONS: &str = "SELECT w.place, v.sequence, v.revision, v.deleted \
    FROM unnest($1::uuid[], $2::bigint[]) WITH ORDINALITY AS w (outlet, number, place) \
    JOIN versions v ON v.outlet = w.outlet AND v.number = w.number";
const CURSORS: &str =
    "SELECT outlet, cursor, demand, failing_since FROM cursors WHERE outlet > $1 ORDER BY outlet LIMIT $2";
const CURSOR: &str = "SELECT outlet, cursor, demand, failing_since FROM cursors WHERE outlet = $1";
const RETRIES: &str = "SELECT outlet, number, url, attempts, due FROM retries \
    WHERE outlet >= $1 AND outlet <= $2 ORDER BY outlet, number";
/// The last row that was looked at comes in any case: it tells how far the look went.
const MISSING: &str = "SELECT number, url, sequence, revision, updated_at, is_missing, looked = $5 FROM (\
    SELECT c.number, c.url, c.sequence, c.revision, c.updated_at, row_number() OVER (ORDER BY c.sequence) AS looked, \
    coalesce(d.sequence = c.sequence AND (v.sequence IS NULL OR v.sequence < c.sequence), false) AS is_missing \
    FROM (SELECT number, url, sequence, revision, updated_at FROM changes \
    WHERE stream = $1 AND sequence > $3 AND sequence <= $4 ORDER BY sequence LIMIT $5) c \
    LEFT JOIN documents d ON d.number = c.number LEFT JOIN versions v ON v.outlet = $2 AND v.number = c.number) m \
    WHERE is_missing OR looked = $5 ORDER BY sequence";
const DEAD_LETTERS: &str = "SELECT body FROM dead_letters WHERE outlet = $1 ORDER BY sequence OFFSET $2 LIMIT $3";
const DEAD_LETTER_COUNT: &str = "SELECT count(*) FROM dead_letters WHERE outlet = $1";
const DISCARD: &str = "DELETE FROM dead_letters WHERE outlet = $1 AND sequence = ANY($2)";
const ATTEMPTS: &str = "SELECT body, at FROM attempts WHERE outlet = $1 AND at <= $2 ORDER BY at DESC LIMIT $3";
const FORGET_ATTEMPTS: &str = "DELETE FROM attempts a USING (SELECT outlet, at FROM attempts WHERE at < $1 LIMIT $2) o \
    WHERE a.outlet = o.outlet AND a.at = o.at RETURNING 1";
/// The time in the body is in microseconds.
const FORGET_DEAD_LETTERS: &str = "DELETE FROM dead_letters d USING (SELECT outlet, sequence FROM dead_letters \
    WHERE (body ->> 'at')::bigint < $1 LIMIT $2) o WHERE d.outlet = o.outlet AND d.sequence = o.sequence RETURNING 1";
const SAVE_REPLAY: &str = "INSERT INTO replays VALUES ($1, $2) ON CONFLICT (outlet) DO UPDATE SET body = excluded.body";
const END_REPLAY: &str = "DELETE FROM replays WHERE outlet = $1";
const REPLAYS: &str = "SELECT outlet, body FROM replays ORDER BY outlet";

/// Changes that are compared with versions in one step.
const MISSING_ROWS: i64 = 10_000;
/// Rows of the log of attempts that are read in one step, and for a page in all.
const ATTEMPT_ROWS: i64 = 64;
const ATTEMPT_ROWS_MAX: usize = 4096;
/// Rows removed in one statement.
const FORGET_ROWS: i64 = 2000;
const NOBODY: Id = Id([0; 16]);

#[async_trait]
impl Deliveries for PostgresStore {
    async fn seal(&self, epoch: u64) -> Result<()> {
        let seal = Call::new(SEAL).with(bigint(Sequence(epoch)));
        if self.inner.pool.query(&seal).await?.is_empty() {
            let rows = self.inner.pool.query(&Call::new(OWNER)).await?;
            let owner: i64 = rows.first().map_or(Ok(0), |row| row.try_get(0)).map_err(unreadable)?;
            return Err(Error::conflict(format!("epoch {owner} is newer than epoch {epoch}")));
        }
        self.inner.epoch.fetch_max(epoch, Ordering::AcqRel);
        Ok(())
    }

    async fn record(&self, progress: Vec<Progress>) -> Result<()> {
        let epoch = self.inner.epoch.load(Ordering::Acquire);
        let weight = progress.len();
        self.records.run_within(self.inner.patience(), Job { epoch, progress }, weight, || self.inner.busy()).await
    }

    async fn version(&self, outlet: OutletId, number: DocumentNumber) -> Result<Option<Version>> {
        self.versions.run_within(self.inner.patience(), (outlet, number), 1, || self.inner.busy()).await
    }

    async fn standings(&self, after: Option<OutletId>, limit: usize) -> Result<Vec<Standing>> {
        let after = after.map_or(NOBODY, Id::from);
        let call = Call::new(CURSORS).with(after).with(i64::try_from(limit).unwrap_or(i64::MAX));
        let mut standings = read_standings(&self.inner.pool.query(&call).await?)?;
        let (Some(first), Some(last)) = (standings.first(), standings.last()) else { return Ok(standings) };
        let mut retries = self.inner.retries(first.outlet, last.outlet).await?.into_iter().peekable();
        for standing in &mut standings {
            while let Some(retry) = retries.next_if(|retry| retry.outlet <= standing.outlet) {
                // A retry without a cursor is what is left of a deleted outlet.
                if retry.outlet == standing.outlet {
                    standing.retries.push(retry);
                }
            }
        }
        Ok(standings)
    }

    async fn standing(&self, outlet: OutletId) -> Result<Standing> {
        let rows = self.inner.pool.query(&Call::new(CURSOR).with(Id::from(outlet))).await?;
        let Some(standing) = read_standings(&rows)?.pop() else {
            return Err(Error::not_found(format!("outlet {outlet} does not exist")));
        };
        Ok(Standing { retries: self.inner.retries(outlet, outlet).await?, ..standing })
    }

    async fn missing(&self, stream: StreamId, outlet: OutletId, span: Span, limit: usize) -> Result<Vec<Behind>> {
        let mut behind = Vec::new();
        let (mut after, until) = (bigint(span.after), bigint(span.until));
        while behind.len() < limit {
            let call = Call::new(MISSING)
                .with(Id::from(stream))
                .with(Id::from(outlet))
                .with(after)
                .with(until)
                .with(MISSING_ROWS);
            let rows = self.inner.pool.query(&call).await?;
            let mut goes_on = false;
            for row in &rows {
                after = row.try_get(2).map_err(unreadable)?;
                goes_on = row.try_get(6).map_err(unreadable)?;
                if row.try_get(5).map_err(unreadable)? {
                    behind.push(read_behind(row).map_err(unreadable)?);
                }
            }
            if !goes_on {
                break;
            }
        }
        behind.truncate(limit);
        Ok(behind)
    }

    async fn dead_letters(&self, outlet: OutletId, offset: usize, limit: usize) -> Result<(Vec<DeadLetter>, usize)> {
        let page = Call::new(DEAD_LETTERS)
            .with(Id::from(outlet))
            .with(i64::try_from(offset).unwrap_or(i64::MAX))
            .with(i64::try_from(limit).unwrap_or(i64::MAX));
        let count = Call::new(DEAD_LETTER_COUNT).with(Id::from(outlet));
        let rows = self.inner.pool.query_all(&[&page, &count]).await?;
        let letter = |row: &Row| rows::decode_dead_letter(outlet, &row.try_get::<_, Json>(0).map_err(unreadable)?.0);
        let letters = rows[0].iter().map(letter).collect::<Result<_>>()?;
        let total: i64 = rows[1].first().map_or(Ok(0), |row| row.try_get(0)).map_err(unreadable)?;
        Ok((letters, usize::try_from(total).unwrap_or(0)))
    }

    async fn discard_dead_letters(&self, outlet: OutletId, sequences: Vec<Sequence>) -> Result<()> {
        let sequences: Vec<i64> = sequences.into_iter().map(bigint).collect();
        self.inner.pool.query(&Call::new(DISCARD).with(Id::from(outlet)).with(sequences)).await.map(drop)
    }

    async fn attempts(&self, outlet: OutletId, query: AttemptQuery) -> Result<Vec<AttemptRecord>> {
        self.inner.attempts(outlet, &query).await
    }

    async fn forget_attempts(&self, older_than: Timestamp) -> Result<()> {
        let call = Call::new(FORGET_ATTEMPTS).with(Time(older_than)).with(FORGET_ROWS);
        while self.inner.pool.query(&call).await?.len() as i64 == FORGET_ROWS {}
        Ok(())
    }

    async fn forget_dead_letters(&self, older_than: Timestamp) -> Result<()> {
        let call = Call::new(FORGET_DEAD_LETTERS).with(rows::micros(older_than)).with(FORGET_ROWS);
        while self.inner.pool.query(&call).await?.len() as i64 == FORGET_ROWS {}
        Ok(())
    }

    async fn save_replay(&self, outlet: OutletId, replay: Option<Replay>) -> Result<()> {
        let call = match replay {
            Some(replay) => Call::new(SAVE_REPLAY).with(Id::from(outlet)).with(Json(rows::encode_replay(&replay)?)),
            None => Call::new(END_REPLAY).with(Id::from(outlet)),
        };
        self.inner.pool.query(&call).await.map(drop)
    }

    async fn replays(&self) -> Result<Vec<Replay>> {
        let replay = |row: &Row| {
            let outlet = OutletId::from_bytes(row.try_get::<_, Id>(0).map_err(unreadable)?.0);
            rows::decode_replay(outlet, &row.try_get::<_, Json>(1).map_err(unreadable)?.0)
        };
        self.inner.pool.query(&Call::new(REPLAYS)).await?.iter().map(replay).collect()
    }
}

impl Inner {
    /// The versions of many documents, in one round trip.
    pub(crate) async fn versions(&self, jobs: Vec<(OutletId, DocumentNumber)>) -> Result<Vec<Result<Option<Version>>>> {
        let mut found: Vec<Result<Option<Version>>> = jobs.iter().map(|_| Ok(None)).collect();
        let (outlets, numbers): (Vec<Id>, Vec<i64>) =
            jobs.into_iter().map(|(outlet, number)| (Id::from(outlet), bigint(Sequence(number.0)))).unzip();
        for row in self.pool.query(&Call::new(VERSIONS).with(outlets).with(numbers)).await? {
            let place: i64 = row.try_get(0).map_err(unreadable)?;
            if let Some(slot) = found.get_mut(place as usize - 1) {
                *slot = read_version(&row).map(Some).map_err(unreadable);
            }
        }
        Ok(found)
    }

    /// The retries of a range of outlets, in their order.
    async fn retries(&self, first: OutletId, last: OutletId) -> Result<Vec<Retry>> {
        let call = Call::new(RETRIES).with(Id::from(first)).with(Id::from(last));
        let retry = |row: &Row| {
            let (Url(url), Time(due)) = (row.try_get(2)?, row.try_get(4)?);
            Ok(Retry {
                outlet: OutletId::from_bytes(row.try_get::<_, Id>(0)?.0),
                number: DocumentNumber(sequence(row.try_get(1)?).0),
                url,
                attempts: row.try_get::<_, i32>(3)?.unsigned_abs(),
                due,
            })
        };
        self.pool.query(&call).await?.iter().map(|row| retry(row).map_err(unreadable)).collect()
    }

    /// The newest attempts that match, read from the newest rows on.
    async fn attempts(&self, outlet: OutletId, query: &AttemptQuery) -> Result<Vec<AttemptRecord>> {
        let since = query.since.unwrap_or(Timestamp::UNIX_EPOCH);
        let mut until = query.before.unwrap_or(Timestamp::MAX);
        let (mut found, mut read) = (Vec::new(), 0);
        while found.len() < query.limit && read < ATTEMPT_ROWS_MAX {
            let call = Call::new(ATTEMPTS).with(Id::from(outlet)).with(Time(until)).with(ATTEMPT_ROWS);
            let rows = self.pool.query(&call).await?;
            for row in &rows {
                let body = Bytes::copy_from_slice(row.try_get(0).map_err(unreadable)?);
                let attempts = rows::decode_attempts(body)?;
                let newest = attempts.last().map(|attempt| attempt.at);
                found.extend(attempts.into_iter().rev().filter(|attempt| query.matches(attempt)));
                if found.len() >= query.limit || newest.is_some_and(|newest| newest < since) {
                    found.truncate(query.limit);
                    return Ok(found);
                }
                let Time(at) = row.try_get(1).map_err(unreadable)?;
                until = at - std::time::Duration::from_micros(1);
            }
            read += rows.len();
            if (rows.len() as i64) < ATTEMPT_ROWS {
                break;
            }
        }
        Ok(found)
    }
}

fn read_standings(rows: &[Row]) -> Result<Vec<Standing>> {
    let standing = |row: &Row| {
        Ok(Standing {
            outlet: OutletId::from_bytes(row.try_get::<_, Id>(0)?.0),
            cursor: sequence(row.try_get(1)?),
            retries: Vec::new(),
            demand: sequence(row.try_get(2)?).0,
            failing_since: row.try_get::<_, Option<Time>>(3)?.map(|since| since.0),
        })
    };
    rows.iter().map(|row| standing(row).map_err(unreadable)).collect()
}

fn read_version(row: &Row) -> Result<Version, tokio_postgres::Error> {
    Ok(Version {
        sequence: sequence(row.try_get(1)?),
        revision: row.try_get::<_, Number>(2)?.0,
        deleted: row.try_get(3)?,
    })
}

fn read_behind(row: &Row) -> Result<Behind, tokio_postgres::Error> {
    let (Url(url), Time(updated_at)) = (row.try_get(1)?, row.try_get(4)?);
    Ok(Behind {
        number: DocumentNumber(sequence(row.try_get(0)?).0),
        url,
        sequence: sequence(row.try_get(2)?),
        revision: row.try_get::<_, Number>(3)?.0,
        updated_at,
    })
}
