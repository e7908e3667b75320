//! The one commit point: the document `head`.
//!
//! A group of writes is one update of this one document: it takes the next sequences, and holds the rows of the group. It
//! applies only if nobody has written since the writer looked (`version`), so whatever the writer has decided on is still
//! so; and a single document is atomic and durable on every kind of MongoDB, also where there are no transactions. Only
//! then are the rows put in their places ([`Log::apply`]), each in a way that may be repeated at any time, even after newer
//! ones. The document `applied` says how far that is done. Whoever finds that it is not, because a node has ended in
//! between, does it: when it opens the store, before the next group, and when it has waited for a while. The next group
//! overwrites the rows of the last one only after they are in their places on a majority of servers.
//!
//! Why no transaction: one that a node has left open when it was killed holds the document for a minute, in which no other
//! node can write. And it takes more round trips.
//!
//! A writer that was not answered finds the truth ([`Log::outcome`]): the head remembers the last groups.

use std::sync::Arc;

use flare_core::{Result, Sequence};
use flare_toolkit::rows::damaged;
use futures_util::{TryStreamExt, future::try_join_all};
use jiff::Timestamp;
use mongodb::bson::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, doc, oid::ObjectId, raw::cstr, rawdoc};

use crate::{
    connection::{Connection, Durability, Failure},
    rows::{date, int, read_int},
    table::{Rule, Table},
};

/// Groups that the head remembers: a writer that was not answered is found among them.
const REMEMBERED_GROUPS: u64 = 64;
/// The rows of a larger group are written beforehand, in parts.
const HEAD_ROWS_BYTES_MAX: usize = 8 << 20;
/// Parts of a group that was never committed are kept so long.
const PARTS_SECONDS_MAX: i64 = 3600;

/// A place in the history of the store. Every write that was decided on moves the version; documents move the sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Position {
    pub version: u64,
    pub sequence: Sequence,
    /// The revision of streams, outlets and tokens.
    pub entities: u64,
}

/// Rows by their table.
#[derive(Default)]
pub(crate) struct Rows(Vec<(Table, Vec<RawDocumentBuf>)>);

impl Rows {
    pub fn put(&mut self, table: Table, row: RawDocumentBuf) {
        match self.0.iter_mut().find(|(known, _)| *known == table) {
            Some((_, rows)) => rows.push(row),
            None => self.0.push((table, vec![row])),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn bytes(&self) -> usize {
        self.0.iter().flat_map(|(_, rows)| rows).map(|row| row.as_bytes().len()).sum()
    }

    /// Those of some tables.
    #[cfg(test)]
    pub fn only(&self, tables: &[Table]) -> Self {
        Self(self.0.iter().filter(|(table, _)| tables.contains(table)).cloned().collect())
    }

    fn write(&self) -> RawDocumentBuf {
        let mut whole = RawDocumentBuf::new();
        for (table, rows) in &self.0 {
            let mut list = RawArrayBuf::new();
            rows.iter().for_each(|row| list.push(row.clone()));
            whole.append(table.key(), list);
        }
        whole
    }

    fn read(&mut self, whole: &RawDocument) -> Result<()> {
        for table in Table::OF_GROUPS {
            let Ok(list) = whole.get_array(table.name()) else { continue };
            for row in list {
                match row {
                    Ok(RawBsonRef::Document(row)) => self.put(table, row.to_owned()),
                    _ => return Err(damaged("head")),
                }
            }
        }
        Ok(())
    }
}

/// Writes that are decided on, and become true together.
pub(crate) struct Group {
    pub id: ObjectId,
    /// What it was decided on.
    pub base: Position,
    /// The last sequence that it takes.
    pub sequence: Sequence,
    pub rows: Rows,
    /// It changes streams, outlets or tokens.
    pub touches_entities: bool,
}

impl Group {
    pub fn new(base: Position) -> Self {
        let (id, sequence) = (ObjectId::new(), base.sequence);
        Self { id, base, sequence, rows: Rows::default(), touches_entities: false }
    }

    /// Where the store is after this group.
    pub fn position(&self) -> Position {
        let entities = self.base.entities + u64::from(self.touches_entities);
        Position { version: self.base.version + 1, sequence: self.sequence, entities }
    }
}

/// What became of a group whose writer was not answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// It is committed, and its rows are in their places.
    Committed,
    /// It is not, and never will be.
    Lost,
    /// Too many groups have come since.
    Forgotten,
}

/// The head as it was read.
struct Head {
    position: Position,
    recent: Vec<ObjectId>,
    /// The last group, and its rows or the number of their parts.
    last: Option<(ObjectId, Rows, i64)>,
    applied: u64,
}

pub(crate) struct Log {
    connection: Arc<Connection>,
}

impl Log {
    pub fn new(connection: Arc<Connection>) -> Self {
        Self { connection }
    }

    /// Commits the group, and says whether it did: not, if somebody else has written since it was decided on.
    pub async fn commit(&self, group: &Group) -> Result<bool, Failure> {
        let mut last = rawdoc! { "group": group.id };
        if group.rows.bytes() <= HEAD_ROWS_BYTES_MAX {
            last.append(cstr!("rows"), group.rows.write());
        } else {
            last.append(cstr!("parts"), self.write_parts(group).await?);
        }
        let after = group.position();
        let mut set = rawdoc! { "version": int(after.version), "sequence": int(after.sequence.0) };
        set.append(cstr!("last"), last);
        let mut change = rawdoc! {
            "$set": set,
            "$push": { "recent": { "$each": [group.id], "$slice": -int(REMEMBERED_GROUPS) } },
        };
        if group.touches_entities {
            change.append(cstr!("$inc"), rawdoc! { "entitiesRevision": 1i64 });
        }
        self.update_head(group.base.version, change).await
    }

    async fn update_head(&self, version: u64, change: RawDocumentBuf) -> Result<bool, Failure> {
        let statement = rawdoc! { "q": { "_id": "head", "version": int(version) }, "u": change };
        let reply = self.connection.update(Table::Head, &[statement], Durability::Journaled).await?;
        Ok(reply.matched == 1)
    }

    /// Puts the rows in their places, where newer ones are not there already. All at once: who finds a row that speaks
    /// of another which is not there yet looks again.
    pub async fn apply(&self, rows: &Rows) -> Result<(), Failure> {
        let tables = rows.0.iter().map(|(table, rows)| async move {
            match table.rule() {
                Rule::Once => self.connection.insert(*table, rows, Durability::Replicated).await,
                Rule::Forward(by) => {
                    let statements: Vec<_> = rows.iter().filter_map(|row| forward(row, by)).collect();
                    self.connection.update(*table, &statements, Durability::Replicated).await
                }
            }
        });
        try_join_all(tables).await.map(drop)
    }

    /// Notes that everything up to here is in its place, for those who wait for it.
    pub async fn mark_applied(&self, position: Position) -> Result<(), Failure> {
        let (version, sequence) = (int(position.version), int(position.sequence.0));
        let statement = rawdoc! {
            "q": { "_id": "applied", "version": { "$lt": version } },
            "u": { "$set": {
                "version": version, "sequence": sequence, "entitiesRevision": int(position.entities),
            } },
        };
        self.connection.update(Table::Head, &[statement], Durability::Replicated).await.map(drop)
    }

    /// Where the store is, after everything that was committed is in its place.
    pub async fn recover(&self) -> Result<Position> {
        let head = self.read().await?;
        self.finish(&head).await?;
        Ok(head.position)
    }

    /// The revision of entities. Whoever reads them after this finds at least what it stands for.
    pub async fn entities_revision(&self) -> Result<u64> {
        let rows = self.connection.rows(Table::Head);
        let find = rows.find(doc! { "_id": { "$in": ["head", "applied"] } });
        let find = find.projection(doc! { "entitiesRevision": 1 }).read_concern(self.connection.committed());
        let read = async { find.await?.try_collect::<Vec<_>>().await };
        let rows = self.connection.call("read the revision of entities", read).await?;
        match &rows[..] {
            [one, other] if read_int(one, "entitiesRevision").ok() == read_int(other, "entitiesRevision").ok() => {
                read_int(one, "entitiesRevision")
            }
            // Rows may not be in their places yet.
            _ => Ok(self.recover().await?.entities),
        }
    }

    /// What became of the group, once that is certain. `Unavailable` while it is not.
    pub async fn outcome(&self, group: &Group) -> Result<Outcome> {
        loop {
            let head = self.read().await?;
            if head.recent.contains(&group.id) {
                self.finish(&head).await?;
                return Ok(Outcome::Committed);
            }
            match head.position.version.saturating_sub(group.base.version) {
                // It may still be on its way. Moved on, the version stops it for good.
                0 => drop(self.pass(group.base.version).await?),
                1..=REMEMBERED_GROUPS => return Ok(Outcome::Lost),
                _ => return Ok(Outcome::Forgotten),
            }
        }
    }

    /// Moves the version on, and nothing else: what was decided on before does not apply any more.
    async fn pass(&self, version: u64) -> Result<bool> {
        let change = rawdoc! { "$set": { "version": int(version + 1) } };
        self.update_head(version, change).await.map_err(Failure::into_error)
    }

    /// Whether this is still the last version: nothing was decided on since.
    pub async fn is_still(&self, version: u64) -> Result<bool> {
        let rows = self.connection.rows(Table::Head);
        let find = rows
            .find_one(doc! { "_id": "head" })
            .projection(doc! { "version": 1 })
            .read_concern(self.connection.linearizable())
            .max_time(self.connection.timeout);
        let row = self.connection.call("read the head", find).await?.ok_or_else(|| damaged("head"))?;
        Ok(read_int(&row, "version")? == version)
    }

    async fn read(&self) -> Result<Head> {
        let rows = self.connection.rows(Table::Head);
        let find = rows.find(doc! { "_id": { "$in": ["head", "applied"] } });
        let find = find.read_concern(self.connection.committed());
        let read = async { find.await?.try_collect::<Vec<_>>().await };
        let found = self.connection.call("read the head", read).await?;
        let row = |name| {
            let mut rows = found.iter();
            rows.find(|row| row.get_str("_id").is_ok_and(|id| id == name)).ok_or_else(|| damaged("head"))
        };
        let (head, applied) = (row("head")?, row("applied")?);
        let position = Position {
            version: read_int(head, "version")?,
            sequence: Sequence(read_int(head, "sequence")?),
            entities: read_int(head, "entitiesRevision")?,
        };
        let recent = head.get_array("recent").map_err(|error| damaged("head").because(error))?;
        Ok(Head {
            position,
            recent: recent.into_iter().filter_map(|id| id.ok()?.as_object_id()).collect(),
            last: head.get_document("last").ok().map(read_last).transpose()?,
            applied: read_int(applied, "version")?,
        })
    }

    /// Puts the rows of the last group in their places, unless it is known that they are.
    async fn finish(&self, head: &Head) -> Result<()> {
        if head.applied >= head.position.version {
            return Ok(());
        }
        if let Some((group, rows, parts)) = &head.last {
            self.apply(rows).await.map_err(Failure::into_error)?;
            if *parts > 0 {
                let rows = self.read_parts(*group, *parts).await?;
                self.apply(&rows).await.map_err(Failure::into_error)?;
            }
        }
        self.mark_applied(head.position).await.map_err(Failure::into_error)
    }
}

/// Rows of a large group.
impl Log {
    pub(crate) async fn write_parts(&self, group: &Group) -> Result<i64, Failure> {
        let (mut parts, mut bytes) = (vec![Rows::default()], 0);
        for (table, rows) in &group.rows.0 {
            for row in rows {
                bytes += row.as_bytes().len();
                if bytes > HEAD_ROWS_BYTES_MAX {
                    parts.push(Rows::default());
                    bytes = row.as_bytes().len();
                }
                if let Some(part) = parts.last_mut() {
                    part.put(*table, row.clone());
                }
            }
        }
        let at = date(Timestamp::now());
        let rows: Vec<_> = (0i64..)
            .zip(&parts)
            .map(|(part, rows)| {
                rawdoc! { "_id": { "group": group.id, "part": part }, "at": at, "rows": rows.write() }
            })
            .collect();
        let written = self.connection.insert(Table::Parts, &rows, Durability::Journaled).await;
        // Nothing is committed yet.
        written.map_err(|failure| Failure::NotDone(failure.into_error()))?;
        Ok(int(parts.len() as u64))
    }

    async fn read_parts(&self, group: ObjectId, parts: i64) -> Result<Rows> {
        let mut rows = Rows::default();
        for part in 0..parts {
            let parts = self.connection.rows(Table::Parts);
            let find = parts.find_one(doc! { "_id": { "group": group, "part": part } });
            match self.connection.call("read a part of a group", find).await? {
                Some(part) => rows.read(crate::rows::read_part(&part, "rows")?)?,
                None => match self.read().await? {
                    // Somebody else has applied the group, and removed its parts.
                    head if head.applied >= head.position.version => break,
                    _ => return Err(damaged("part")),
                },
            }
        }
        Ok(rows)
    }

    /// Removes the parts of groups that are applied or were never committed.
    pub async fn remove_parts(&self) -> Result<()> {
        let old = doc! { "at": { "$lt": date(Timestamp::now() - jiff::SignedDuration::from_secs(PARTS_SECONDS_MAX)) } };
        let rows = self.connection.rows(Table::Parts);
        let find = rows.find_one(old.clone()).projection(doc! { "_id": 1 });
        if self.connection.call("look for parts", find).await?.is_none() {
            return Ok(());
        }
        let head = self.read().await?;
        self.finish(&head).await?;
        // Whoever has written parts and was held up must not commit them any more.
        if self.pass(head.position.version).await? {
            self.mark_applied(Position { version: head.position.version + 1, ..head.position })
                .await
                .map_err(Failure::into_error)?;
            self.connection.call("remove parts", rows.delete_many(old)).await?;
        }
        Ok(())
    }
}

fn read_last(last: &RawDocument) -> Result<(ObjectId, Rows, i64)> {
    let group = last.get_object_id("group").map_err(|error| damaged("head").because(error))?;
    let mut rows = Rows::default();
    if let Ok(whole) = last.get_document("rows") {
        rows.read(whole)?;
    }
    Ok((group, rows, last.get_i64("parts").unwrap_or(0)))
}

/// The statement that puts a row over an older one, or where there is none. Over a newer one it fails as a duplicate.
fn forward(row: &RawDocument, by: &'static mongodb::bson::raw::CStr) -> Option<RawDocumentBuf> {
    let (id, number) = (row.get("_id").ok()??, row.get(by.as_str()).ok()??);
    let mut older = RawDocumentBuf::new();
    older.append(cstr!("$lt"), number);
    let mut query = RawDocumentBuf::new();
    query.append(cstr!("_id"), id);
    query.append(by, older);
    let mut statement = RawDocumentBuf::new();
    statement.append(cstr!("q"), query);
    statement.append(cstr!("u"), row.to_owned());
    statement.append(cstr!("upsert"), true);
    Some(statement)
}
