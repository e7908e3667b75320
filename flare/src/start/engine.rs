//! The one place that names engines.

use flare_core::port::Store;

use crate::config::{Config, RepositoryEngine};

pub fn open(config: &Config) -> anyhow::Result<Store> {
    match config.repository.engine {
        RepositoryEngine::Embedded => embedded(config),
        RepositoryEngine::Memory => memory(config),
    }
}

#[cfg(feature = "embedded")]
fn embedded(config: &Config) -> anyhow::Result<Store> {
    let repository = &config.repository;
    let options = flare_embedded::Options {
        path: repository.path.clone(),
        cache_bytes: repository.cache.bytes(),
        reserve_bytes: repository.reserve.bytes(),
        store: store_options(config),
    };
    flare_embedded::open(&options).map_err(super::whole)
}

#[cfg(any(feature = "embedded", feature = "memory"))]
fn store_options(config: &Config) -> flare_keyvalue::Options {
    flare_keyvalue::Options {
        writes_waiting_max: config.repository.write_queue_max,
        keeps_history: !config.domain.retention.get().is_zero(),
    }
}

#[cfg(not(feature = "embedded"))]
fn embedded(_: &Config) -> anyhow::Result<Store> {
    anyhow::bail!("the engine \"embedded\" is not part of this build; set repository.engine to another one")
}

#[cfg(feature = "memory")]
fn memory(config: &Config) -> anyhow::Result<Store> {
    flare_memory::open(&store_options(config)).map_err(super::whole)
}

#[cfg(not(feature = "memory"))]
fn memory(_: &Config) -> anyhow::Result<Store> {
    anyhow::bail!("the engine \"memory\" is not part of this build; set repository.engine to another one")
}
