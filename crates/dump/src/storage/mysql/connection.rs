//! Connections, and what their errors mean.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error as MySqlError, Opts, OptsBuilder, Pool, PoolConstraints, PoolOpts, Row};

use crate::error::{Error, ErrorKind, Result};
use crate::job::WORKERS_MAX;

/// The same in every session: UTC, UTF-8, errors instead of values that were bent to fit, zeros that stay zeros.
const SETTINGS: &str = "SET NAMES utf8mb4, time_zone = '+00:00', net_write_timeout = 3600, net_read_timeout = 3600, \
    sql_mode = 'STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,NO_ENGINE_SUBSTITUTION'";

/// A server, and connections to it that are not in use.
#[derive(Clone)]
pub(super) struct Server {
    pool: Pool,
}

impl Server {
    pub fn new(url: &str) -> Result<Self> {
        let url = url.strip_prefix("mariadb://").map_or(url.to_owned(), |rest| format!("mysql://{rest}"));
        let options = Opts::from_url(&url).map_err(|error| Error::invalid(format!("the address is wrong: {error}")))?;
        // Walking, reading and writing at once, and as many that are being cleaned up.
        let most = PoolConstraints::new(0, WORKERS_MAX * 4).unwrap_or_default();
        let pool = PoolOpts::default().with_constraints(most).with_reset_connection(false);
        let options = OptsBuilder::from_opts(options)
            .pool_opts(pool)
            .setup(vec![SETTINGS])
            .stmt_cache_size(0)
            .prefer_socket(false);
        Ok(Self { pool: Pool::new(options) })
    }

    pub async fn connect(&self) -> Result<Conn> {
        self.pool.get_conn().await.map_err(|error| failure("cannot connect", error))
    }

    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    pub async fn run(&self, sql: &str) -> Result<()> {
        self.connect().await?.query_drop(sql).await.map_err(|error| failure("a statement failed", error))
    }

    /// The rows of one statement, in the binary protocol.
    pub async fn rows(&self, sql: &str) -> Result<Vec<Row>> {
        self.connect().await?.exec(sql, ()).await.map_err(|error| failure("a query failed", error))
    }

    /// The rows of one statement as text; nulls are empty.
    pub async fn texts(&self, sql: &str) -> Result<Vec<Vec<String>>> {
        let rows: Vec<Row> =
            self.connect().await?.query(sql).await.map_err(|error| failure("a query failed", error))?;
        let text = |value| match value {
            mysql_async::Value::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            _ => String::new(),
        };
        Ok(rows.into_iter().map(|row| row.unwrap().into_iter().map(text).collect()).collect())
    }
}

/// A row with the same key is there.
pub(super) const DUPLICATE_KEY: u16 = 1062;

/// About a value: null, out of range, cut off, malformed, too long, refused by a rule or by another table.
const REFUSED: &[u16] = &[
    1048, 1062, 1136, 1153, 1264, 1265, 1292, 1300, 1365, 1366, 1367, 1369, 1406, 1411, 1416, 1441, 1451, 1452, 1644,
    1690, 1906, 3140, 3141, 3819, 4025,
];
/// Too many connections, shutting down, no room, locks, killed, read only for now.
const PASSING: &[u16] = &[
    1021, 1028, 1037, 1038, 1040, 1041, 1042, 1053, 1077, 1079, 1080, 1114, 1129, 1152, 1158, 1159, 1160, 1161, 1180,
    1181, 1203, 1205, 1213, 1226, 1290, 1317, 1836, 1927, 1969, 3024, 3170, 4031,
];
/// Credentials, rights, names, syntax.
const WRONG: &[u16] = &[
    1044, 1045, 1046, 1049, 1050, 1051, 1054, 1064, 1067, 1068, 1069, 1071, 1072, 1074, 1075, 1103, 1110, 1118, 1142,
    1143, 1146, 1170, 1171, 1227, 1251, 1273, 1364, 1425, 1426, 1439, 1698,
];

/// An error in the words of the copy.
pub(super) fn failure(what: &str, error: MySqlError) -> Error {
    match error {
        MySqlError::Server(answer) => {
            let kind = match answer.code {
                code if REFUSED.contains(&code) => ErrorKind::Rejected,
                code if PASSING.contains(&code) => ErrorKind::Unavailable,
                code if WRONG.contains(&code) => ErrorKind::Invalid,
                _ if answer.state.starts_with("22") || answer.state.starts_with("23") => ErrorKind::Rejected,
                _ if answer.state.starts_with("08") || answer.state.starts_with("40") => ErrorKind::Unavailable,
                _ => ErrorKind::Failed,
            };
            Error::new(kind, format!("{} (error {})", answer.message, answer.code))
        }
        // The driver repeats itself on the way to the reason.
        MySqlError::Io(_) => Error::new(ErrorKind::Unavailable, format!("{what}: {}", root(&error))),
        MySqlError::Driver(
            mysql_async::DriverError::ConnectionClosed
            | mysql_async::DriverError::PoolDisconnected
            | mysql_async::DriverError::PacketOutOfOrder,
        ) => Error::new(ErrorKind::Unavailable, what).because(error),
        MySqlError::Url(_) => Error::new(ErrorKind::Invalid, what).because(error),
        other => Error::new(ErrorKind::Failed, what).because(other),
    }
}

/// The last of the causes.
fn root(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), root)
}

/// Whether the server refused a second row with the same key.
pub(super) fn is_duplicate(error: &MySqlError) -> bool {
    matches!(error, MySqlError::Server(answer) if answer.code == DUPLICATE_KEY)
}
