//! What a user can set.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use flare_core::{Error, Result};

/// Where the data is, and how it is reached.
#[derive(Clone, Debug)]
pub struct Options {
    /// Some nodes of the cluster; the others are found through them. Each may have a port of its own (`host:port`).
    pub hosts: Vec<String>,
    /// The port of hosts without one.
    pub port: u16,
    /// Letters, digits and underscores. It is created if it is not there.
    pub keyspace: String,
    pub username: Option<String>,
    pub password: Option<String>,
    /// How long one request may take.
    pub timeout: Duration,
    /// How many replicas answer before a read or a write counts.
    pub consistency: Consistency,
    /// Where nodes agree on the order of changes.
    pub serial_consistency: SerialConsistency,
    /// How a new keyspace is replicated; one that is there is left as it is. One copy on any node, unless set.
    pub with_replication: Option<Replication>,
    /// The data centre whose nodes are asked first.
    pub local_data_centre: Option<String>,
    /// Connections to each node.
    pub connections: usize,
    /// How often to look for changes of other Flare nodes.
    pub follow_interval: Duration,
    /// Encrypted connections, if set.
    pub tls: Option<Tls>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            hosts: vec!["127.0.0.1".into()],
            port: 9042,
            keyspace: "flare".into(),
            username: None,
            password: None,
            timeout: Duration::from_secs(5),
            consistency: Consistency::LocalQuorum,
            serial_consistency: SerialConsistency::Serial,
            with_replication: None,
            local_data_centre: None,
            connections: 2,
            follow_interval: Duration::from_millis(200),
            tls: None,
        }
    }
}

impl Options {
    /// The contact points, each with its port.
    pub(crate) fn contact_points(&self) -> Vec<String> {
        let with_port = |host: &String| {
            let has_port = host.rsplit_once(':').is_some_and(|(name, port)| {
                port.parse::<u16>().is_ok() && (!name.contains(':') || name.ends_with(']'))
            });
            if has_port { host.clone() } else { format!("{host}:{}", self.port) }
        };
        self.hosts.iter().map(with_port).collect()
    }

    pub(crate) fn check(&self) -> Result<()> {
        let name = self.keyspace.as_bytes();
        let is_name = name.first().is_some_and(u8::is_ascii_alphabetic)
            && name.len() <= 48
            && name.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'_');
        if !is_name {
            let what = "a keyspace has at most 48 lower-case letters, digits and underscores, a letter first";
            return Err(Error::invalid(format!("{what}, unlike {:?}", self.keyspace)));
        }
        if self.hosts.is_empty() {
            return Err(Error::invalid("Cassandra needs at least one host"));
        }
        if self.connections == 0 {
            return Err(Error::invalid("Cassandra needs at least one connection to each node"));
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Consistency {
    /// One replica: only for data that is kept once.
    One,
    Quorum,
    /// A quorum of the local data centre.
    LocalQuorum,
    EachQuorum,
    All,
}

impl Consistency {
    pub const ALL: [Self; 5] = [Self::One, Self::Quorum, Self::LocalQuorum, Self::EachQuorum, Self::All];

    /// The name in the configuration and in CQL.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::One => "ONE",
            Self::Quorum => "QUORUM",
            Self::LocalQuorum => "LOCAL_QUORUM",
            Self::EachQuorum => "EACH_QUORUM",
            Self::All => "ALL",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str().eq_ignore_ascii_case(name))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SerialConsistency {
    /// Nodes of all data centres agree.
    Serial,
    /// Only nodes of the local data centre do: right when all Flare nodes are in that one.
    LocalSerial,
}

impl SerialConsistency {
    pub const ALL: [Self; 2] = [Self::Serial, Self::LocalSerial];

    /// The name in the configuration and in CQL.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Serial => "SERIAL",
            Self::LocalSerial => "LOCAL_SERIAL",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str().eq_ignore_ascii_case(name))
    }
}

/// How a keyspace is replicated: what stands after `WITH REPLICATION =` in CQL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Replication {
    /// So many copies, wherever.
    Simple(u32),
    /// So many copies in each of these data centres.
    PerDataCentre(BTreeMap<String, u32>),
}

impl Replication {
    /// Reads the map as people know it from CQL: a `class`, and `replication_factor` or data centres.
    pub fn parse(map: &BTreeMap<String, String>) -> Result<Self> {
        let class = map.get("class").map_or("", |class| class.rsplit('.').next().unwrap_or_default());
        let mut copies = BTreeMap::new();
        for (name, text) in map.iter().filter(|(name, _)| *name != "class") {
            let wrong = || Error::invalid(format!("with-replication: {name} is a number of copies, not {text:?}"));
            if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')) {
                return Err(Error::invalid(format!("with-replication: {name:?} cannot be a data centre")));
            }
            copies.insert(name.clone(), text.parse::<u32>().ok().filter(|n| *n > 0).ok_or_else(wrong)?);
        }
        match (class, copies.len()) {
            ("SimpleStrategy", 1) if copies.contains_key("replication_factor") => {
                Ok(Self::Simple(copies["replication_factor"]))
            }
            ("NetworkTopologyStrategy", 1..) => Ok(Self::PerDataCentre(copies)),
            _ => Err(Error::invalid(
                "with-replication needs the class SimpleStrategy and a replication_factor, or the class \
                 NetworkTopologyStrategy and the number of copies in each data centre",
            )),
        }
    }

    pub(crate) fn to_cql(&self) -> String {
        match self {
            Self::Simple(copies) => format!("{{'class': 'SimpleStrategy', 'replication_factor': {copies}}}"),
            Self::PerDataCentre(centres) => {
                let centres: String = centres.iter().map(|(name, copies)| format!(", '{name}': {copies}")).collect();
                format!("{{'class': 'NetworkTopologyStrategy'{centres}}}")
            }
        }
    }
}

/// Encrypted connections to the cluster.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// The certificate authorities that are trusted, as PEM; those of the web unless set.
    pub ca_file: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn replication_reads_as_in_cql() {
        let check = |pairs: &[(&str, &str)], cql: &str| {
            assert_eq!(Replication::parse(&map(pairs)).unwrap().to_cql(), cql);
        };
        check(
            &[("class", "SimpleStrategy"), ("replication_factor", "3")],
            "{'class': 'SimpleStrategy', 'replication_factor': 3}",
        );
        check(
            &[("class", "org.apache.cassandra.locator.NetworkTopologyStrategy"), ("eu-1", "3"), ("us", "2")],
            "{'class': 'NetworkTopologyStrategy', 'eu-1': 3, 'us': 2}",
        );
    }

    #[test]
    fn replication_that_cannot_be_is_refused() {
        for pairs in [
            &[][..],
            &[("class", "SimpleStrategy")],
            &[("class", "SimpleStrategy"), ("replication_factor", "0")],
            &[("class", "SimpleStrategy"), ("replication_factor", "three")],
            &[("class", "NetworkTopologyStrategy")],
            &[("class", "NetworkTopologyStrategy"), ("eu'; DROP", "1")],
            &[("class", "Mine"), ("replication_factor", "1")],
        ] {
            assert!(Replication::parse(&map(pairs)).is_err(), "{pairs:?}");
        }
    }

    #[test]
    fn hosts_get_the_port_unless_they_have_one() {
        let hosts = ["a", "b:9043", "[::1]", "[::1]:9043"].map(String::from).to_vec();
        let options = Options { hosts, ..Options::default() };
        assert_eq!(options.contact_points(), ["a:9042", "b:9043", "[::1]:9042", "[::1]:9043"]);
    }

    #[test]
    fn a_keyspace_needs_a_plain_name() {
        let check = |name: &str| Options { keyspace: name.into(), ..Options::default() }.check().is_ok();
        assert!(check("flare") && check("flare_2"));
        for wrong in ["", "Flare", "2flare", "a b", "a\"b", &"a".repeat(49)] {
            assert!(!check(wrong), "{wrong}");
        }
    }
}
