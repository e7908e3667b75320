//! The collections, and how a row of each is written so that writing it again changes nothing.

use mongodb::bson::raw::{CStr, cstr};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Table {
    /// One row per document: where its newest change is.
    Documents,
    /// One row per change, content included; `_id` is its sequence.
    Changes,
    Streams,
    Outlets,
    Tokens,
    /// What a client's key has made.
    Idempotency,
    /// Where each outlet stands in the feed.
    Cursors,
    /// The version of a document that an outlet has.
    Versions,
    Retries,
    DeadLetters,
    Attempts,
    Demands,
    Replays,
    /// How far the sequences had come at which time.
    Clock,
    /// Rows on which nodes agree.
    Agreed,
    /// What is left to remove of something deleted.
    Purges,
    /// The last group and how far it is applied, the owner, the sweep.
    Head,
    /// Parts of a group that is too large for the head.
    Parts,
    Migrations,
}

/// How a row of a group is put in its place. A group may be applied more than once, also late, when newer ones were.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rule {
    /// Only if there is none with its `_id`.
    Once,
    /// Only over a row whose number under this name is lower.
    Forward(&'static CStr),
}

impl Table {
    /// All, in the order in which they are named above.
    pub const ALL: [Self; 19] = [
        Self::Documents,
        Self::Changes,
        Self::Streams,
        Self::Outlets,
        Self::Tokens,
        Self::Idempotency,
        Self::Cursors,
        Self::Versions,
        Self::Retries,
        Self::DeadLetters,
        Self::Attempts,
        Self::Demands,
        Self::Replays,
        Self::Clock,
        Self::Agreed,
        Self::Purges,
        Self::Head,
        Self::Parts,
        Self::Migrations,
    ];

    /// All tables whose rows come from groups, in the order in which they are applied.
    pub const OF_GROUPS: [Self; 9] = [
        Self::Changes,
        Self::Documents,
        Self::Idempotency,
        Self::Cursors,
        Self::Streams,
        Self::Outlets,
        Self::Tokens,
        Self::Purges,
        Self::Clock,
    ];

    pub fn name(self) -> &'static str {
        self.key().as_str()
    }

    /// The name as that of a member.
    pub fn key(self) -> &'static CStr {
        match self {
            Self::Documents => cstr!("documents"),
            Self::Changes => cstr!("changes"),
            Self::Streams => cstr!("streams"),
            Self::Outlets => cstr!("outlets"),
            Self::Tokens => cstr!("tokens"),
            Self::Idempotency => cstr!("idempotency"),
            Self::Cursors => cstr!("cursors"),
            Self::Versions => cstr!("versions"),
            Self::Retries => cstr!("retries"),
            Self::DeadLetters => cstr!("deadLetters"),
            Self::Attempts => cstr!("attempts"),
            Self::Demands => cstr!("demands"),
            Self::Replays => cstr!("replays"),
            Self::Clock => cstr!("clock"),
            Self::Agreed => cstr!("agreed"),
            Self::Purges => cstr!("purges"),
            Self::Head => cstr!("head"),
            Self::Parts => cstr!("parts"),
            Self::Migrations => cstr!("migrations"),
        }
    }

    pub fn rule(self) -> Rule {
        match self {
            Self::Documents => Rule::Forward(cstr!("sequence")),
            Self::Streams | Self::Outlets | Self::Tokens => Rule::Forward(cstr!("version")),
            _ => Rule::Once,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_stands_in_its_place() {
        for (place, table) in Table::ALL.into_iter().enumerate() {
            assert_eq!(table as usize, place);
        }
    }
}
