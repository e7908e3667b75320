//! The one place that names engines.

use anyhow::bail;
use flare_core::port::Store;

use crate::config::{Config, RepositoryEngine};

pub fn open(config: &Config) -> anyhow::Result<Store> {
    let opened = match config.repository.engine {
        #[cfg(feature = "embedded")]
        RepositoryEngine::Embedded => flare_embedded::open(&flare_embedded::Options {
            path: config.repository.path.clone(),
            cache_bytes: config.repository.cache.bytes(),
            reserve_bytes: config.repository.reserve.bytes(),
            store: flare_keyvalue::Options { writes_waiting_max: config.repository.write_queue_max },
        }),
        #[cfg(feature = "memory")]
        RepositoryEngine::Memory => {
            flare_memory::open(&flare_keyvalue::Options { writes_waiting_max: config.repository.write_queue_max })
        }
        #[allow(unreachable_patterns, reason = "reached only in builds without all engines")]
        engine => bail!("repository.engine = {engine:?} is not part of this build"),
    };
    opened.map_err(super::whole)
}
