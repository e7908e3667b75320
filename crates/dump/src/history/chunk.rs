//! The names of chunks.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The number of a chunk, and of the part of it if it was cut later: `7`, `7.3`. They sort as numbers.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ChunkId(Vec<u64>);

impl ChunkId {
    pub fn new(ordinal: u64) -> Self {
        Self(vec![ordinal])
    }

    pub fn ordinal(&self) -> u64 {
        self.0[0]
    }

    pub fn part(&self, number: u64) -> Self {
        Self(self.0.iter().copied().chain([number]).collect())
    }
}

impl fmt::Display for ChunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(u64::to_string).collect();
        f.write_str(&numbers.join("."))
    }
}

impl FromStr for ChunkId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers: Result<Vec<u64>, _> = text.split('.').map(str::parse).collect();
        numbers.map(Self).map_err(|_| format!("{text:?} is no chunk"))
    }
}

impl Serialize for ChunkId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ChunkId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
