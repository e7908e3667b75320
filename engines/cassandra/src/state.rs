//! What a node knows of the store as of a turn of the log, and how it catches up.

use std::{collections::VecDeque, sync::atomic::Ordering};

use flare_core::{Result, Sequence, StreamId, url::DocumentUrl};
use flare_toolkit::rows::{damaged, decode_stream};
use rustc_hash::FxHashMap;

use crate::{
    Core, apply,
    connection::{Connection, all},
    entities::{self, KIND_STREAM},
    group::{self, Entry, RowChange},
    heads::{Head, Recent},
    layout,
    log::{self, Kind, Turn},
    statement::Query,
};

pub(crate) const READ_STATE: Query =
    Query::new("SELECT turn, sequence, entities, swept_from, swept_to FROM state WHERE name = 'log'");

/// Documents whose newest change is remembered.
const HEADS_MAX: usize = 100_000;
/// Turns of which the group is remembered: as many as a follower may be behind.
const TURNS_MAX: usize = 25_000;

/// A group as it stands in the log.
#[derive(Clone, Debug)]
pub(crate) enum Group {
    Changes(Vec<(usize, Entry)>),
    Rows(Vec<RowChange>),
}

/// A group with its place in the log.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub turn: Turn,
    /// The sequence of its first change.
    pub first: u64,
    pub group: Group,
}

/// A turn with changes, as a follower needs to know it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub first: u64,
    pub last: u64,
    pub group: uuid::Uuid,
}

/// How far replaced changes were removed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Swept {
    /// Up to here a sweep has passed.
    pub from: u64,
    /// Up to here one is passing: what is replaced there is removed at once.
    pub to: u64,
}

/// The store as of a turn.
pub(crate) struct State {
    pub turn: u64,
    pub sequence: u64,
    /// The last turn that changed a stream, an outlet or a token.
    pub entities: u64,
    pub swept: Swept,
    /// With how many characters all their URLs start.
    pub streams: FxHashMap<StreamId, usize>,
    pub counts: FxHashMap<StreamId, u64>,
    pub heads: Recent<(StreamId, DocumentUrl), Option<Head>>,
    /// When the clock was last noted, in milliseconds.
    pub clock_at: i64,
    /// In the log, but not yet in the tables that are made from it.
    pub unapplied: VecDeque<Placed>,
}

impl State {
    /// Takes up where the tables are.
    pub async fn open(connection: &Connection) -> Result<Self> {
        let mut state = Self {
            turn: 0,
            sequence: 0,
            entities: 0,
            swept: Swept::default(),
            streams: FxHashMap::default(),
            counts: FxHashMap::default(),
            heads: Recent::new(HEADS_MAX),
            clock_at: 0,
            unapplied: VecDeque::new(),
        };
        state.jump(connection).await?;
        Ok(state)
    }

    /// Takes up where the tables are; true if that is further on.
    pub async fn jump(&mut self, connection: &Connection) -> Result<bool> {
        let Some(found) = read_state(connection).await? else {
            return Ok(false);
        };
        if found.turn <= self.turn {
            return Ok(false);
        }
        (self.turn, self.sequence, self.entities, self.swept) =
            (found.turn, found.sequence, found.entities, found.swept);
        self.heads.clear();
        self.counts.clear();
        self.unapplied.clear();
        self.streams.clear();
        for (id, row) in entities::read_all(connection, KIND_STREAM).await? {
            self.learn_stream(&RowChange { kind: KIND_STREAM.into(), id, row: Some(row) })?;
        }
        Ok(true)
    }

    /// Takes a turn into account.
    pub fn learn(&mut self, placed: &Placed) -> Result<()> {
        let turn = &placed.turn;
        match &placed.group {
            Group::Changes(changes) => {
                for (position, entry) in changes {
                    let head = apply::head(entry, *position, placed);
                    self.heads.insert((entry.stream, entry.url.clone()), Some(head));
                }
            }
            Group::Rows(rows) => {
                for row in rows {
                    if entities::is_entity(&row.kind) {
                        self.entities = turn.turn;
                    }
                    if row.kind == KIND_STREAM {
                        self.learn_stream(row)?;
                    }
                    if row.kind == entities::KIND_SWEPT {
                        self.swept = entities::decode_swept(row)?;
                    }
                }
            }
        }
        self.counts.extend(turn.counts.iter().map(|(stream, count)| (*stream, *count)));
        (self.turn, self.sequence) = (turn.turn, turn.last);
        Ok(())
    }

    fn learn_stream(&mut self, row: &RowChange) -> Result<()> {
        let id: [u8; 16] = row.id[..].try_into().map_err(|_| damaged("stream"))?;
        let id = StreamId::from_bytes(id);
        match &row.row {
            Some(text) => {
                let stream = decode_stream(id, text.as_bytes())?;
                self.streams.insert(id, layout::common_chars(stream.endpoint.as_str()));
            }
            None => {
                self.streams.remove(&id);
                self.counts.remove(&id);
            }
        }
        Ok(())
    }
}

/// How far the tables are complete.
pub(crate) struct Applied {
    pub turn: u64,
    pub sequence: u64,
    pub entities: u64,
    pub swept: Swept,
}

pub(crate) async fn read_state(connection: &Connection) -> Result<Option<Applied>> {
    type Row = (Option<i64>, Option<i64>, Option<i64>, Option<i64>, Option<i64>);
    let row: Option<Row> = connection.row(READ_STATE, ()).await?;
    let number = |value: Option<i64>| value.unwrap_or_default() as u64;
    Ok(row.map(|(turn, sequence, entities, from, to)| Applied {
        turn: number(turn),
        sequence: number(sequence),
        entities: number(entities),
        swept: Swept { from: number(from), to: number(to) },
    }))
}

impl Core {
    /// Reads what others have appended, and makes sure that it is in the tables. Says how many turns that were.
    pub async fn catch_up(&self, state: &mut State) -> Result<usize> {
        self.finish(state).await?;
        let mut turns = 0;
        loop {
            let found = log::read_after(&self.connection, state.turn).await?;
            if found.is_empty() {
                return Ok(turns);
            }
            let applied = self.applied_turn().await?;
            let mut groups = Vec::new();
            let mut before = state.sequence;
            for turn in found {
                let last = turn.last;
                groups.push(self.load(turn, before));
                before = last;
            }
            for placed in all(groups).await? {
                if placed.turn.turn > applied {
                    apply::apply(self, state, &placed).await?;
                }
                self.learn(state, &placed)?;
                turns += 1;
            }
        }
    }

    /// Brings into the tables what this node has appended and could not write there.
    pub async fn finish(&self, state: &mut State) -> Result<()> {
        while let Some(placed) = state.unapplied.front().cloned() {
            apply::apply(self, state, &placed).await?;
            state.unapplied.pop_front();
            self.seen(placed.turn.last);
        }
        self.is_unfinished.store(false, Ordering::Release);
        Ok(())
    }

    /// What this node has appended is in the log, but not in the tables; it is brought there later.
    pub fn leave_unfinished(&self, state: &mut State, placed: Placed) -> Result<()> {
        state.learn(&placed)?;
        self.remember(&placed);
        self.turn.fetch_max(placed.turn.turn, Ordering::AcqRel);
        state.unapplied.push_back(placed);
        self.is_unfinished.store(true, Ordering::Release);
        Ok(())
    }

    /// Takes up where the tables are, because the log does not go back so far; true if that is further on.
    pub async fn jump(&self, state: &mut State) -> Result<bool> {
        let has_jumped = state.jump(&self.connection).await?;
        if has_jumped {
            self.turn.fetch_max(state.turn, Ordering::AcqRel);
            self.seen(state.sequence);
        }
        Ok(has_jumped)
    }

    /// Takes a turn into account that is in the tables.
    pub fn learn(&self, state: &mut State, placed: &Placed) -> Result<()> {
        state.learn(placed)?;
        self.remember(placed);
        self.turn.fetch_max(placed.turn.turn, Ordering::AcqRel);
        self.seen(placed.turn.last);
        Ok(())
    }

    /// Lets followers find the changes of a turn.
    pub fn remember(&self, placed: &Placed) {
        if placed.turn.kind == Kind::Changes {
            let mut turns = self.turns.lock();
            turns.push_back(Told { first: placed.first, last: placed.turn.last, group: placed.turn.group });
            while turns.len() > TURNS_MAX {
                turns.pop_front();
            }
        }
    }

    /// Everything up to this sequence is in the tables.
    fn seen(&self, sequence: u64) {
        self.applied.fetch_max(sequence, Ordering::AcqRel);
    }

    /// Up to here the tables are complete, as far as this node knows.
    pub fn applied(&self) -> Sequence {
        Sequence(self.applied.load(Ordering::Acquire))
    }

    pub async fn applied_turn(&self) -> Result<u64> {
        Ok(read_state(&self.connection).await?.map_or(0, |applied| applied.turn))
    }

    async fn load(&self, turn: Turn, before: u64) -> Result<Placed> {
        let group = match turn.kind {
            Kind::Changes => Group::Changes(group::read_changes(&self.connection, turn.group).await?),
            Kind::Rows => Group::Rows(group::read_rows(&self.connection, turn.group).await?),
        };
        Ok(Placed { turn, first: before + 1, group })
    }
}
