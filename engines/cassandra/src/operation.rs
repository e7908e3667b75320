//! What can be done to entities, and which rows it comes to. All of it is decided from the rows as of the turn before.

use flare_core::{Error, OutletId, Result, StreamId, TokenId, port::Idempotency};
use flare_toolkit::rows::damaged;

use crate::{
    connection::Connection,
    entities::{
        self, KIND_COUNT, KIND_OUTLET, KIND_PURGE, KIND_REPLAY, KIND_STANDING, KIND_STREAM, KIND_TOKEN, KIND_TRIMMED,
        kind_key, kind_outlets, read,
    },
    group::RowChange,
    state::{State, Swept},
};

pub(crate) const PURGE_STREAM: u8 = b's';
pub(crate) const PURGE_OUTLET: u8 = b'o';

pub(crate) enum Operation {
    InsertStream {
        id: StreamId,
        row: String,
        once: Option<Idempotency>,
        seen: Option<u64>,
    },
    DeleteStream(StreamId),
    InsertOutlet {
        id: OutletId,
        stream: StreamId,
        row: String,
        start: u64,
        once: Option<Idempotency>,
    },
    UpdateOutlet {
        id: OutletId,
        row: String,
    },
    DeleteOutlet(OutletId),
    InsertToken {
        id: TokenId,
        row: String,
    },
    DeleteToken(TokenId),
    SaveReplay {
        outlet: OutletId,
        row: Option<String>,
    },
    /// A sweep begins or ends.
    Sweep {
        swept: Swept,
        trimmed: Option<u64>,
    },
    /// Nothing is left of something deleted.
    Purged(Vec<u8>),
}

/// What an operation came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Done,
    /// The same request made this before.
    Before([u8; 16]),
    /// Entities have changed since the caller looked.
    Outdated,
}

type Decided = (Vec<RowChange>, Outcome);

fn put(kind: &str, id: &[u8], row: impl Into<String>) -> RowChange {
    RowChange { kind: kind.into(), id: id.to_vec(), row: Some(row.into()) }
}

fn remove(kind: &str, id: &[u8]) -> RowChange {
    RowChange { kind: kind.into(), id: id.to_vec(), row: None }
}

fn missing(what: &str, id: impl std::fmt::Display) -> Error {
    Error::not_found(format!("{what} {id} does not exist"))
}

fn taken(what: &str, id: impl std::fmt::Display) -> Error {
    Error::conflict(format!("{what} {id} exists already"))
}

impl Operation {
    /// The rows that it changes; none if there is nothing to do.
    pub async fn decide(&self, connection: &Connection, state: &State) -> Result<Decided> {
        let rows = match self {
            Self::InsertStream { id, row, once, seen } => {
                let decided = insert(connection, KIND_STREAM, id.as_bytes(), row, once.as_ref()).await?;
                let is_outdated = decided.1 == Outcome::Done && seen.is_some_and(|seen| seen != state.entities);
                return Ok(if is_outdated { (Vec::new(), Outcome::Outdated) } else { decided });
            }
            Self::DeleteStream(id) => delete_stream(connection, *id).await?,
            Self::InsertOutlet { id, stream, row, start, once } => {
                if !state.streams.contains_key(stream) {
                    return Err(missing("stream", stream));
                }
                let (mut rows, outcome) = insert(connection, KIND_OUTLET, id.as_bytes(), row, once.as_ref()).await?;
                if outcome == Outcome::Done {
                    rows.push(put(&kind_outlets(*stream), id.as_bytes(), ""));
                    rows.push(put(KIND_STANDING, id.as_bytes(), start.to_string()));
                }
                return Ok((rows, outcome));
            }
            Self::UpdateOutlet { id, row } => {
                require(connection, KIND_OUTLET, id.as_bytes(), id).await?;
                vec![put(KIND_OUTLET, id.as_bytes(), row.as_str())]
            }
            Self::DeleteOutlet(id) => delete_outlet(connection, *id).await?,
            Self::InsertToken { id, row } => return insert(connection, KIND_TOKEN, id.as_bytes(), row, None).await,
            Self::DeleteToken(id) => {
                require(connection, KIND_TOKEN, id.as_bytes(), id).await?;
                vec![remove(KIND_TOKEN, id.as_bytes())]
            }
            Self::SaveReplay { outlet, row } => {
                vec![RowChange { kind: KIND_REPLAY.into(), id: outlet.as_bytes().to_vec(), row: row.clone() }]
            }
            Self::Sweep { swept, trimmed } => {
                let mut rows = vec![entities::swept_row(*swept)];
                rows.extend(trimmed.map(|bucket| put(KIND_TRIMMED, &[], bucket.to_string())));
                rows
            }
            Self::Purged(id) => vec![remove(KIND_PURGE, id)],
        };
        Ok((rows, Outcome::Done))
    }
}

async fn require(connection: &Connection, kind: &str, id: &[u8], name: impl std::fmt::Display) -> Result<String> {
    read(connection, kind, id).await?.ok_or_else(|| missing(kind, name))
}

/// Something new with a row, unless the same request has made it before.
async fn insert(
    connection: &Connection,
    kind: &str,
    id: &[u8; 16],
    row: &str,
    once: Option<&Idempotency>,
) -> Result<Decided> {
    let mut rows = Vec::new();
    if let Some(once) = once {
        if let Some(before) = made_by(connection, once).await? {
            return Ok((rows, Outcome::Before(before)));
        }
        rows.push(remember(once, id));
    }
    if read(connection, kind, id).await?.is_some() {
        return Err(taken(kind, uuid::Uuid::from_bytes(*id)));
    }
    rows.push(put(kind, id, row));
    Ok((rows, Outcome::Done))
}

async fn delete_stream(connection: &Connection, id: StreamId) -> Result<Vec<RowChange>> {
    require(connection, KIND_STREAM, id.as_bytes(), id).await?;
    if !entities::read_page(connection, &kind_outlets(id), &[], 1).await?.is_empty() {
        return Err(Error::conflict(format!("stream {id} still has outlets")));
    }
    let purge = [&[PURGE_STREAM], &id.as_bytes()[..]].concat();
    Ok(vec![remove(KIND_STREAM, id.as_bytes()), remove(KIND_COUNT, id.as_bytes()), put(KIND_PURGE, &purge, "")])
}

async fn delete_outlet(connection: &Connection, id: OutletId) -> Result<Vec<RowChange>> {
    let row = require(connection, KIND_OUTLET, id.as_bytes(), id).await?;
    let stream = flare_toolkit::rows::outlet_stream(row.as_bytes())?;
    let purge = [&[PURGE_OUTLET], &id.as_bytes()[..]].concat();
    Ok(vec![
        remove(KIND_OUTLET, id.as_bytes()),
        remove(&kind_outlets(stream), id.as_bytes()),
        remove(KIND_STANDING, id.as_bytes()),
        remove(KIND_REPLAY, id.as_bytes()),
        put(KIND_PURGE, &purge, ""),
    ])
}

fn remember(once: &Idempotency, id: &[u8; 16]) -> RowChange {
    let fingerprint: String = once.fingerprint.iter().map(|byte| format!("{byte:02x}")).collect();
    let id = uuid::Uuid::from_bytes(*id);
    put(&kind_key(&once.key), &[], format!("{fingerprint} {id}"))
}

/// The id that a request with this key made before; `Invalid` if it was another request.
pub(crate) async fn made_by(connection: &Connection, once: &Idempotency) -> Result<Option<[u8; 16]>> {
    let Some(row) = read(connection, &kind_key(&once.key), &[]).await? else { return Ok(None) };
    let (fingerprint, id) = row.split_once(' ').ok_or_else(|| damaged("idempotency"))?;
    let same: String = once.fingerprint.iter().map(|byte| format!("{byte:02x}")).collect();
    if fingerprint != same {
        let reused = format!("the idempotency key {:?} was used before for another request; use a new key", once.key);
        return Err(Error::invalid(reused));
    }
    uuid::Uuid::try_parse(id).map(|id| Some(id.into_bytes())).map_err(|error| damaged("idempotency").because(error))
}
