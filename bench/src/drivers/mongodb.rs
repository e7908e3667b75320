//! A group of changes: the head of the log with the rows in it, journalled by a majority, then the rows in their
//! collections. A group of versions: one bulk of upserts and the cursor.

use anyhow::{Result, ensure};
use mongodb::bson::{DateTime, RawArrayBuf, RawDocumentBuf, raw::cstr, rawdoc};

use super::Change;

const STREAM: &str = "00000000-0000-0000-0000-000000000001";

pub struct Database {
    database: mongodb::Database,
}

impl Database {
    pub async fn open(url: &str, namespace: &str) -> Result<Self> {
        let database = mongodb::Client::with_uri_str(url).await?.database(namespace);
        database.collection::<RawDocumentBuf>("head").insert_one(rawdoc! { "_id": "head" }).await?;
        Ok(Self { database })
    }

    pub async fn write(&self, changes: &[Change]) -> Result<()> {
        let at = DateTime::now();
        let (mut rows, mut documents, mut updates) = (RawArrayBuf::new(), RawArrayBuf::new(), RawArrayBuf::new());
        for change in changes {
            let url = change.url.as_str();
            rows.push(rawdoc! {
                "_id": change.sequence, "stream": STREAM, "number": change.number, "url": url,
                "revision": change.revision, "updatedAt": at, "total": change.sequence, "content": change.text(),
            });
            let row = rawdoc! {
                "_id": { "stream": STREAM, "url": url }, "stream": STREAM, "number": change.number,
                "sequence": change.sequence, "revision": change.revision, "updatedAt": at, "deleted": false,
            };
            documents.push(row.clone());
            let query = rawdoc! { "_id": { "stream": STREAM, "url": url } };
            updates.push(rawdoc! { "q": query, "u": row, "upsert": true });
        }
        let last = rawdoc! { "rows": { "changes": rows.clone(), "documents": documents } };
        let head = rawdoc! { "q": { "_id": "head" }, "u": { "$set": { "last": last } } };
        self.send("update", "head", one(head), true).await?;
        tokio::try_join!(
            self.send("insert", "changes", rows, false),
            self.send("update", "documents", updates, false)
        )?;
        Ok(())
    }

    pub async fn record(&self, delivered: &[Change]) -> Result<()> {
        let mut versions = RawArrayBuf::new();
        for change in delivered {
            let id = rawdoc! { "outlet": STREAM, "number": change.number };
            let row = rawdoc! {
                "_id": id.clone(), "sequence": change.sequence, "revision": change.revision, "deleted": false,
            };
            versions.push(rawdoc! { "q": { "_id": id }, "u": row, "upsert": true });
        }
        self.send("update", "versions", versions, true).await?;
        let cursor = delivered.last().map_or(0, |change| change.sequence);
        let cursor = rawdoc! { "q": { "_id": STREAM }, "u": { "$set": { "cursor": cursor } }, "upsert": true };
        self.send("update", "cursors", one(cursor), true).await
    }

    async fn send(&self, verb: &str, table: &str, statements: RawArrayBuf, journal: bool) -> Result<()> {
        let mut command = RawDocumentBuf::new();
        if verb == "insert" {
            command.append(cstr!("insert"), table);
            command.append(cstr!("documents"), statements);
        } else {
            command.append(cstr!("update"), table);
            command.append(cstr!("updates"), statements);
        }
        command.append(cstr!("ordered"), false);
        let concern = if journal {
            rawdoc! { "w": "majority", "j": true }
        } else {
            rawdoc! { "w": "majority" }
        };
        command.append(cstr!("writeConcern"), concern);
        let answer = self.database.run_raw_command(command).await?;
        ensure!(!answer.contains_key("writeErrors"), "{answer}");
        Ok(())
    }
}

fn one(statement: RawDocumentBuf) -> RawArrayBuf {
    let mut statements = RawArrayBuf::new();
    statements.push(statement);
    statements
}

/// Without the name of a replica set, whose members would be asked for.
pub fn direct(url: &str) -> String {
    let (address, options) = url.split_once('?').unwrap_or((url, ""));
    let ours = |option: &str| option.starts_with("replicaSet=") || option.starts_with("directConnection=");
    let others = options.split('&').filter(|option| !option.is_empty() && !ours(option));
    let options: Vec<&str> = others.chain(["directConnection=true"]).collect();
    let slash = if address.splitn(4, '/').count() < 4 { "/" } else { "" };
    format!("{address}{slash}?{}", options.join("&"))
}

pub async fn remove(url: &str, namespace: &str) -> Result<()> {
    Ok(mongodb::Client::with_uri_str(url).await?.database(namespace).drop().await?)
}

#[cfg(test)]
mod tests {
    use super::direct;

    #[test]
    fn an_address_becomes_direct() {
        let expected = "mongodb://h:1/db?w=1&directConnection=true";
        assert_eq!(direct("mongodb://h:1/db?replicaSet=rs0&w=1"), expected);
        assert_eq!(direct(expected), expected);
        assert_eq!(direct("mongodb://h:1"), "mongodb://h:1/?directConnection=true");
    }
}
