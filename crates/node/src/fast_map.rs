//! A map and a set for keys that Flare makes itself (ids, numbers): nobody outside chooses them, so a fast hash is
//! enough.

pub(crate) type FastMap<K, V> = std::collections::HashMap<K, V, rustc_hash::FxBuildHasher>;
pub(crate) type FastSet<K> = std::collections::HashSet<K, rustc_hash::FxBuildHasher>;
