//! Where a storage is: a URL or a path, read at the edge. What it says to others never has a password in it.

use std::collections::BTreeMap;
use std::fmt;

use crate::error::{Error, Result};

/// The technologies that rows can be read from and written to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    File,
    Postgres,
    MongoDb,
    MySql,
    Sqlite,
    /// A resource of a Flare server.
    Flare,
}

/// How the addresses of servers begin.
const SCHEMES: &[&str] = &[
    "postgres",
    "postgresql",
    "mongodb",
    "mongodb+srv",
    "mysql",
    "mariadb",
    "sqlite",
    "flare",
    "flares",
    "flare+http",
    "flare+https",
];

/// An address with the options behind its question mark.
#[derive(Clone)]
pub struct Location {
    pub scheme: Scheme,
    /// Up to the question mark, with credentials: for drivers only.
    address: String,
    /// What stands behind it. A storage takes what it knows; the rest is for its driver.
    options: BTreeMap<String, String>,
}

impl Location {
    /// Reads an address. `${NAME}` stands for a variable of the environment.
    pub fn parse(text: &str) -> Result<Self> {
        let text = expand(text, |name| std::env::var(name).ok())?;
        let Some((scheme, rest)) = text.split_once("://") else {
            // Somebody's password could be taken for the name of a file, and be shown.
            if let Some((scheme, _)) = text.split_once(':').filter(|(scheme, _)| SCHEMES.contains(scheme)) {
                return Err(Error::invalid(format!("the address is wrong: {scheme} is followed by ://")));
            }
            return Self::file(&text);
        };
        let scheme = match scheme {
            "file" => return Self::file(rest),
            "postgres" | "postgresql" => Scheme::Postgres,
            "mongodb" | "mongodb+srv" => Scheme::MongoDb,
            "mysql" | "mariadb" => Scheme::MySql,
            "sqlite" => Scheme::Sqlite,
            "flare" | "flares" | "flare+http" | "flare+https" => Scheme::Flare,
            other => {
                return Err(Error::invalid(format!(
                    "{other:?} is no storage: write postgres://, mongodb://, mysql://, sqlite://, flare:// or a file"
                )));
            }
        };
        if matches!(scheme, Scheme::Postgres | Scheme::MongoDb | Scheme::MySql) && has_bare_password(rest) {
            return Err(Error::invalid(
                "the address is wrong: in a user or password write %40 for @, %2F for /, %3F for ? and %23 for #",
            ));
        }
        let (address, query) = text.split_once('?').unwrap_or((&text, ""));
        Ok(Self { scheme, address: address.to_owned(), options: options(query)? })
    }

    fn file(path: &str) -> Result<Self> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        if path.is_empty() {
            return Err(Error::invalid("the address is empty: write a URL or the path of a file"));
        }
        let options = options(query)?;
        let ends = |ends: &[&str]| ends.iter().any(|end| path.ends_with(end));
        let is_sqlite = !options.contains_key("format") && ends(&[".db", ".sqlite", ".sqlite3"]);
        let scheme = if is_sqlite { Scheme::Sqlite } else { Scheme::File };
        Ok(Self { scheme, address: path.to_owned(), options })
    }

    /// Up to the question mark. It may hold a password.
    pub fn secret_address(&self) -> &str {
        &self.address
    }

    /// What follows the host: `db.users` of `mongodb://host/db.users`; the whole path of a file.
    pub fn path(&self) -> &str {
        match self.address.split_once("://") {
            None => &self.address,
            Some((_, rest)) if self.scheme == Scheme::Sqlite => rest,
            Some((_, rest)) => rest.split_once('/').map_or("", |(_, path)| path),
        }
    }

    /// Takes an option that belongs to the storage.
    pub fn take(&mut self, name: &str) -> Option<String> {
        self.options.remove(name)
    }

    /// The address with the options that were not taken, for the driver.
    pub fn secret_url(&self) -> String {
        let pairs: Vec<_> = self.options.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
        if pairs.is_empty() { self.address.clone() } else { format!("{}?{}", self.address, pairs.join("&")) }
    }

    /// An error if an option is left that nobody took, for storages without a driver that would say so.
    pub fn expect_no_more(&self) -> Result<()> {
        match self.options.keys().next() {
            None => Ok(()),
            Some(name) => Err(Error::invalid(format!("{self}: the option {name:?} is not known"))),
        }
    }
}

/// The address for people: without user, password and options.
impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((scheme, rest)) = self.address.split_once("://") else { return f.write_str(&self.address) };
        let end = rest.find('/').unwrap_or(rest.len());
        let host = rest[..end].rsplit_once('@').map_or(&rest[..end], |(_, host)| host);
        write!(f, "{scheme}://{host}{}", &rest[end..])?;
        match self.options.get("table").or(self.options.get("collection")) {
            Some(table) => write!(f, "?table={table}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Whether a slash or a question mark of a password is taken for the end of the host: then an @ comes behind it.
fn has_bare_password(rest: &str) -> bool {
    let (address, query) = rest.split_once('?').unwrap_or((rest, ""));
    match address.split_once('/') {
        Some((_, path)) => path.contains('@'),
        None => !address.contains('@') && query.contains('@'),
    }
}

fn options(query: &str) -> Result<BTreeMap<String, String>> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decode(value).ok_or_else(|| Error::invalid(format!("the option {name:?} is badly encoded")))?;
            Ok((name.to_owned(), value))
        })
        .collect()
}

/// Resolves `%41`. A plus stays one.
pub fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        bytes.extend(crate::value::from_hex(rest.get(..2)?)?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
}

fn encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~/:,".contains(&byte);
    let mut encoded = String::new();
    for byte in text.bytes() {
        if plain(byte) { encoded.push(byte.into()) } else { encoded.push_str(&format!("%{byte:02X}")) }
    }
    encoded
}

/// Replaces `${NAME}`.
fn expand(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<String> {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, after)) = after.split_once('}') else {
            return Err(Error::invalid("the address has a ${ without its }"));
        };
        let value = variable(name).ok_or_else(|| {
            Error::invalid(format!("the address needs the environment variable {name}: it is not set"))
        })?;
        expanded.push_str(before);
        expanded.push_str(&value);
        rest = after;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_never_shown() {
        let check = |text: &str, shown: &str| {
            let location = Location::parse(text).unwrap();
            assert_eq!(location.to_string(), shown);
            assert_eq!(format!("{location:?}"), shown);
        };
        check("postgres://me:secret@host:5432/db?table=users&sslmode=require", "postgres://host:5432/db?table=users");
        check("mongodb://a:p%40ss@h1,h2/db.users?replicaSet=rs", "mongodb://h1,h2/db.users");
        check("mysql://u:p@ss@host/db", "mysql://host/db");
        check("./users.ndjson.gz", "./users.ndjson.gz");
        check("file:///tmp/a.csv?header=false", "/tmp/a.csv");
    }

    #[test]
    fn an_address_that_would_show_its_password_is_refused() {
        for text in [
            "postgres://me:se/cret@host/db?table=t",
            "postgres://me:se?cret@host/db?table=t",
            "mysql://me:a@se/cret@host/db?table=t",
            "mongodb:/me:secret@host/db.users",
            "postgres:me:secret@host/db",
        ] {
            let error = Location::parse(text).unwrap_err().to_string();
            assert!(error.starts_with("the address is wrong") && !error.contains("cret"), "{text}: {error}");
        }
        assert!(Location::parse("flare://host/resources/http://a.com/@{id}").is_ok());
        assert!(Location::parse("mongodb://host/db.users?authMechanismProperties=a@b").is_ok());
    }

    #[test]
    fn options_are_taken_and_the_rest_is_for_the_driver() {
        let mut location = Location::parse("postgres://u:p@h/db?table=my%20users&sslmode=require").unwrap();
        assert_eq!(location.take("table").as_deref(), Some("my users"));
        assert_eq!(location.secret_url(), "postgres://u:p@h/db?sslmode=require");
        assert_eq!(location.path(), "db");
        assert!(location.expect_no_more().is_err());
    }

    #[test]
    fn what_is_no_storage_is_refused() {
        assert!(Location::parse("redis://h/0").unwrap_err().to_string().contains("redis"));
        assert!(Location::parse("").is_err());
        assert_eq!(Location::parse("a.db").unwrap().scheme, Scheme::Sqlite);
        assert_eq!(Location::parse("sqlite:///tmp/x?table=t").unwrap().path(), "/tmp/x");
    }

    #[test]
    fn variables_of_the_environment_are_put_in() {
        let of = |name: &str| (name == "PASS").then(|| "s3".to_owned());
        assert_eq!(expand("mysql://u:${PASS}@h/d", of).unwrap(), "mysql://u:s3@h/d");
        assert!(expand("${NONE}", of).unwrap_err().to_string().contains("NONE"));
        assert!(expand("${PASS", of).is_err());
    }
}
