//! A map for keys that Flare makes itself (ids, numbers): nobody outside chooses them, so a fast hash is enough.

pub(crate) type FastMap<K, V> = std::collections::HashMap<K, V, rustc_hash::FxBuildHasher>;
