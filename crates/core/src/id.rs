//! Identifiers. Every id is a type of its own, so that one cannot stand where another is meant.

use std::{fmt, str::FromStr};

use uuid::Uuid;

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(Uuid);

        impl $name {
            /// A new id that sorts after the ids made before it on this node (UUIDv7).
            pub fn generate() -> Self {
                Self(Uuid::now_v7())
            }

            pub fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(Uuid::from_bytes(bytes))
            }

            pub fn as_bytes(&self) -> &[u8; 16] {
                self.0.as_bytes()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.as_hyphenated().fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, uuid::Error> {
                Uuid::try_parse(text).map(Self)
            }
        }
    };
}

uuid_id! {
    /// Names a stream: a resource or a consumer.
    StreamId
}
uuid_id! {
    /// Names an outlet: a subscription or a producer.
    OutletId
}
uuid_id! {
    /// Names a token of the API.
    TokenId
}

impl OutletId {
    /// The slot of `slots` that this outlet belongs to; the unit of work that one node owns at a time.
    ///
    /// Taken from the random tail of the UUIDv7, so that outlets made in one burst spread evenly.
    pub fn slot(&self, slots: u16) -> u16 {
        let bytes = self.as_bytes();
        let tail =
            u64::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11], bytes[12], bytes[13], bytes[14], bytes[15]]);
        (tail % u64::from(slots.max(1))) as u16
    }
}

/// The place of a change in the store's one order of changes. Zero is before every change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Sequence(pub u64);

impl Sequence {
    pub const START: Self = Self(0);
    pub const MAX: Self = Self(u64::MAX);

    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The short name of a document: the sequence of its first change. It never changes, unlike the document.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DocumentNumber(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outlets_of_one_burst_spread_over_the_slots() {
        let mut counts = [0u32; 8];
        for _ in 0..8_000 {
            counts[usize::from(OutletId::generate().slot(8))] += 1;
        }
        assert!(counts.iter().all(|count| (700..1300).contains(count)), "{counts:?}");
    }

    #[test]
    fn an_id_reads_back_from_its_text() {
        let id = StreamId::generate();
        assert_eq!(id.to_string().parse(), Ok(id));
    }
}
