//! What was given up.

use flare_core::{OutletId, Result, Sequence, delivery::DeadLetter};
use flare_toolkit::rows::decode_dead_letter;
use jiff::Timestamp;

use crate::{
    Core,
    connection::all,
    layout::{self, DEAD_LETTERS, outlet_uuid},
    standing::{self, Buckets},
    statement::{Plan, Query},
};

const COUNT: Query = Query::new("SELECT COUNT(*) FROM dead_letters WHERE outlet = ? AND bucket = ?");
const READ: Query = Query::new("SELECT letter FROM dead_letters WHERE outlet = ? AND bucket = ?");
const WRITTEN: Query =
    Query::new("SELECT WRITETIME(letter) FROM dead_letters WHERE outlet = ? AND bucket = ? AND sequence = ?");
const REMOVE: Query = Query::new("DELETE FROM dead_letters WHERE outlet = ? AND bucket = ? AND sequence = ?");

/// Some of the dead letters, oldest first, and how many there are.
pub(crate) async fn page(
    core: &Core,
    outlet: OutletId,
    offset: usize,
    limit: usize,
) -> Result<(Vec<DeadLetter>, usize)> {
    let Some(Buckets { dead_letters, .. }) = standing::buckets(core, outlet).await? else {
        return Ok((Vec::new(), 0));
    };
    let (mut letters, mut total) = (Vec::new(), 0);
    for bucket in dead_letters {
        let count: Option<(i64,)> = core.connection.row(COUNT, (outlet_uuid(outlet), bucket)).await?;
        let count = count.map_or(0, |(count,)| count as usize);
        if letters.len() < limit && total + count > offset {
            let skip = offset.saturating_sub(total);
            read(core, outlet, bucket, skip, limit, &mut letters).await?;
        }
        total += count;
    }
    Ok((letters, total))
}

async fn read(
    core: &Core,
    outlet: OutletId,
    bucket: i32,
    skip: usize,
    limit: usize,
    letters: &mut Vec<DeadLetter>,
) -> Result<()> {
    let mut rows = core.connection.stream::<(Option<String>,)>(READ, (outlet_uuid(outlet), bucket)).await?;
    let mut passed = 0;
    while letters.len() < limit
        && let Some((letter,)) = rows.next().await?
    {
        passed += 1;
        if passed > skip
            && let Some(letter) = letter
        {
            letters.push(decode_dead_letter(outlet, letter.as_bytes())?);
        }
    }
    Ok(())
}

/// Removes what was given up before this time, some at a time.
pub(crate) async fn forget(core: &Core, older_than: Timestamp) -> Result<()> {
    const STEP: usize = 500;
    for outlet in standing::with_letters(core).await? {
        let mut kept = 0;
        loop {
            let (letters, _) = page(core, outlet, kept, STEP).await?;
            let old: Vec<_> = letters.iter().filter(|letter| letter.at < older_than).map(|one| one.sequence).collect();
            kept += letters.len() - old.len();
            discard(core, outlet, old).await?;
            if letters.len() < STEP {
                break;
            }
        }
    }
    Ok(())
}

/// Removes letters as they are now. One that is given up once more in the meantime stays.
pub(crate) async fn discard(core: &Core, outlet: OutletId, sequences: Vec<Sequence>) -> Result<()> {
    let mut removals = Vec::new();
    for sequence in sequences {
        removals.push(discard_one(core, outlet, sequence));
    }
    all(removals).await.map(drop)
}

async fn discard_one(core: &Core, outlet: OutletId, sequence: Sequence) -> Result<()> {
    let key = (outlet_uuid(outlet), layout::retries_bucket(sequence.0), sequence.0 as i64);
    let written: Option<(Option<i64>,)> = core.connection.row(WRITTEN, key).await?;
    let Some((Some(written),)) = written else { return Ok(()) };
    let mut plan = Plan::default();
    plan.add(DEAD_LETTERS, &[], REMOVE, key, 0);
    core.connection.write(written, plan).await
}
