//! Opens the store. With [`super::queue`] the one place that names engines.

use std::sync::Arc;

use flare_core::port::{Schema, Store};

use crate::config::{Config, Repository, RepositoryEngine};

/// Opens the store, and brings its layout up to date first.
pub async fn open(config: &Config) -> anyhow::Result<Store> {
    match config.repository.engine {
        RepositoryEngine::Memory => memory::open(config),
        RepositoryEngine::Embedded => embedded::open(config),
        RepositoryEngine::Mongodb => mongodb::open(&config.repository).await,
        RepositoryEngine::Cassandra => cassandra::open(&config.repository).await,
        RepositoryEngine::Postgres => postgres::open(&config.repository).await,
    }
}

/// The layout of the data, without opening the store.
pub async fn schema(config: &Config) -> anyhow::Result<Arc<dyn Schema>> {
    match config.repository.engine {
        RepositoryEngine::Memory => anyhow::bail!("the engine \"memory\" keeps nothing that could be migrated"),
        RepositoryEngine::Embedded => embedded::schema(config),
        RepositoryEngine::Mongodb => mongodb::schema(&config.repository).await,
        RepositoryEngine::Cassandra => cassandra::schema(&config.repository).await,
        RepositoryEngine::Postgres => postgres::schema(&config.repository).await,
    }
}

/// None for what nobody has set.
#[cfg(any(
    feature = "mongodb",
    feature = "cassandra",
    feature = "postgres",
    feature = "rabbitmq",
    feature = "sqs",
    feature = "nats"
))]
pub(super) fn given(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(any(feature = "mongodb", feature = "cassandra", feature = "postgres", feature = "rabbitmq", feature = "nats"))]
pub(super) fn given_path(path: &std::path::Path) -> Option<std::path::PathBuf> {
    (!path.as_os_str().is_empty()).then(|| path.to_owned())
}

#[cfg(any(feature = "embedded", feature = "memory"))]
fn store_options(config: &Config) -> flare_keyvalue::Options {
    flare_keyvalue::Options {
        writes_waiting_max: config.repository.write_queue_max,
        keeps_history: !config.domain.retention.get().is_zero(),
    }
}

#[cfg(feature = "embedded")]
mod embedded {
    use super::*;
    use crate::start::whole;

    fn options(config: &Config) -> flare_embedded::Options {
        let repository = &config.repository;
        flare_embedded::Options {
            path: repository.path.clone(),
            cache_bytes: repository.cache.bytes(),
            reserve_bytes: repository.reserve.bytes(),
            store: store_options(config),
        }
    }

    pub fn open(config: &Config) -> anyhow::Result<Store> {
        flare_embedded::open(&options(config)).map_err(whole)
    }

    pub fn schema(config: &Config) -> anyhow::Result<Arc<dyn Schema>> {
        flare_embedded::schema(&options(config)).map_err(whole)
    }
}

#[cfg(feature = "memory")]
mod memory {
    use super::*;

    pub fn open(config: &Config) -> anyhow::Result<Store> {
        flare_memory::open(&store_options(config)).map_err(crate::start::whole)
    }
}

#[cfg(feature = "mongodb")]
mod mongodb {
    use flare_mongodb::Options;

    use super::*;
    use crate::start::whole;

    fn options(repository: &Repository) -> Options {
        let defaults = Options::default();
        Options {
            url: given(repository.url.expose()),
            addrs: if repository.addrs.is_empty() { defaults.addrs } else { repository.addrs.clone() },
            database: given(&repository.database),
            username: given(&repository.username),
            password: given(repository.password.expose()),
            replica_set: given(&repository.replica_set),
            ca: given_path(&repository.ca),
            pool_limit: if repository.pool_limit == 0 { defaults.pool_limit } else { repository.pool_limit },
            timeout: repository.timeout.get(),
            follow_interval: repository.follow_interval.get(),
        }
    }

    pub async fn open(repository: &Repository) -> anyhow::Result<Store> {
        flare_mongodb::open(&options(repository)).await.map_err(whole)
    }

    pub async fn schema(repository: &Repository) -> anyhow::Result<Arc<dyn Schema>> {
        flare_mongodb::schema(&options(repository)).await.map_err(whole)
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use anyhow::Context;
    use flare_postgres::Options;

    use super::*;
    use crate::start::whole;

    fn options(repository: &Repository) -> anyhow::Result<Options> {
        let defaults = Options::default();
        let (host, port) = match &repository.addrs[..] {
            [] => (defaults.host, defaults.port),
            [addr] => match addr.rsplit_once(':') {
                Some((host, port)) => {
                    let wrong = || format!("repository.addrs: {addr:?} must be \"host:port\"");
                    (host.to_owned(), port.parse().with_context(wrong)?)
                }
                None => (addr.clone(), defaults.port),
            },
            _ => anyhow::bail!(
                "repository.addrs: the engine \"postgres\" takes one server; use `repository.url` for more"
            ),
        };
        Ok(Options {
            url: given(repository.url.expose()),
            host,
            port,
            database: given(&repository.database).unwrap_or(defaults.database),
            username: given(&repository.username),
            password: given(repository.password.expose()),
            schema: repository.schema.clone(),
            pool_limit: if repository.pool_limit == 0 { defaults.pool_limit } else { repository.pool_limit as usize },
            timeout: repository.timeout.get(),
            follow_interval: repository.follow_interval.get(),
            ca: given_path(&repository.ca),
            ..defaults
        })
    }

    pub async fn open(repository: &Repository) -> anyhow::Result<Store> {
        flare_postgres::open(&options(repository)?).await.map_err(whole)
    }

    pub async fn schema(repository: &Repository) -> anyhow::Result<Arc<dyn Schema>> {
        flare_postgres::schema(&options(repository)?).await.map_err(whole)
    }
}

#[cfg(feature = "cassandra")]
mod cassandra {
    use std::collections::BTreeMap;

    use anyhow::Context;
    use flare_cassandra::{Consistency, Options, Replication, SerialConsistency, Tls};

    use super::*;
    use crate::start::whole;

    fn options(repository: &Repository) -> anyhow::Result<Options> {
        let defaults = Options::default();
        let with_replication = match given(&repository.with_replication) {
            Some(text) => Some(replication(&text)?),
            None => None,
        };
        Ok(Options {
            hosts: if repository.addrs.is_empty() { defaults.hosts } else { repository.addrs.clone() },
            keyspace: repository.keyspace.clone(),
            username: given(&repository.username),
            password: given(repository.password.expose()),
            timeout: repository.timeout.get(),
            consistency: Consistency::parse(&repository.consistency).with_context(|| {
                format!(
                    "repository.consistency: {:?} is none of {}",
                    repository.consistency,
                    Consistency::ALL.map(Consistency::as_str).join(", ")
                )
            })?,
            serial_consistency: SerialConsistency::parse(&repository.serial_consistency).with_context(|| {
                format!(
                    "repository.serial-consistency: {:?} is none of {}",
                    repository.serial_consistency,
                    SerialConsistency::ALL.map(SerialConsistency::as_str).join(", ")
                )
            })?,
            with_replication,
            local_data_centre: given(&repository.data_centre),
            connections: if repository.pool_limit == 0 { defaults.connections } else { repository.pool_limit as usize },
            follow_interval: repository.follow_interval.get(),
            tls: given_path(&repository.ca).map(|file| Tls { ca_file: Some(file) }),
            ..defaults
        })
    }

    /// Reads the map as CQL has it: `{'class': 'SimpleStrategy', 'replication_factor': 1}`.
    fn replication(text: &str) -> anyhow::Result<Replication> {
        let wrong = || {
            format!(
                "repository.with-replication: {text:?} is not a map such as \"{{'class': 'SimpleStrategy', 'replication_factor': 3}}\""
            )
        };
        let inner = text.trim().strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).with_context(wrong)?;
        let plain = |part: &str| part.trim().trim_matches(['\'', '"']).to_owned();
        let mut map = BTreeMap::new();
        for entry in inner.split(',').filter(|entry| !entry.trim().is_empty()) {
            let (name, value) = entry.split_once(':').with_context(wrong)?;
            map.insert(plain(name), plain(value));
        }
        Replication::parse(&map).map_err(whole)
    }

    pub async fn open(repository: &Repository) -> anyhow::Result<Store> {
        flare_cassandra::open(&options(repository)?).await.map_err(whole)
    }

    pub async fn schema(repository: &Repository) -> anyhow::Result<Arc<dyn Schema>> {
        flare_cassandra::schema(&options(repository)?).await.map_err(whole)
    }
}

/// Stands in for an engine that was left out of the build.
macro_rules! left_out {
    ($engine:ident, $feature:literal, $config:ty, $($asynchronous:tt)?) => {
        #[cfg(not(feature = $feature))]
        mod $engine {
            use super::*;

            pub $($asynchronous)? fn open(_: &$config) -> anyhow::Result<Store> {
                missing()
            }

            #[allow(dead_code, reason = "not every engine has a layout")]
            pub $($asynchronous)? fn schema(_: &$config) -> anyhow::Result<Arc<dyn Schema>> {
                missing()
            }

            fn missing<T>() -> anyhow::Result<T> {
                anyhow::bail!(concat!(
                    "the engine \"", $feature, "\" is not part of this build; set repository.engine to another one, or \
                     build with `--features ", $feature, "`"
                ))
            }
        }
    };
}

left_out!(memory, "memory", Config,);
left_out!(embedded, "embedded", Config,);
left_out!(mongodb, "mongodb", Repository, async);
left_out!(cassandra, "cassandra", Repository, async);
left_out!(postgres, "postgres", Repository, async);
