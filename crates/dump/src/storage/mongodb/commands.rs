//! Bulks of documents, and what the server says of each of them.

use std::collections::HashMap;

use futures_util::TryStreamExt;
use mongodb::bson::{Bson, Document, RawDocument, RawDocumentBuf, doc, raw::cstr};
use mongodb::{Collection, Database};

use super::failure::{DUPLICATE_KEY, failure, kind_of_document};
use super::{ID, encode};
use crate::error::{Error, ErrorKind, Result};
use crate::value::Value;

/// Documents in one command.
const DOCUMENTS_MAX: usize = 10_000;
/// A command is one document, and one document has 16 MiB at most; a larger one goes alone.
const COMMAND_BYTES_MAX: usize = 8 << 20;

/// A document that the server did not take.
#[derive(Debug)]
pub(super) struct Refusal {
    /// Its place among those that were sent.
    pub index: usize,
    pub code: i32,
    pub message: String,
}

impl Refusal {
    pub fn into_error(self) -> Error {
        Error::new(kind_of_document(self.code), self.message)
    }
}

/// The way that documents take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Method {
    /// They must be new.
    Insert,
    /// They take the place of those with the same `_id`.
    Upsert,
}

/// Sends the documents, in as many commands as it takes. An error is about all of them.
pub(super) async fn send(
    collection: &Collection<RawDocumentBuf>,
    database: &Database,
    documents: &[&[u8]],
    method: Method,
) -> Result<Vec<Refusal>> {
    let mut refusals = Vec::new();
    let mut from = 0;
    while from < documents.len() {
        let to = from + fitting(&documents[from..]);
        let command = command(collection.name(), &documents[from..to], method)?;
        let reply = database.run_raw_command(command).await;
        let reply = reply.map_err(|error| failure("the documents cannot be written", error))?;
        read_reply(&reply, from, &mut refusals)?;
        from = to;
    }
    Ok(refusals)
}

/// How many of the documents go into one command; one at least.
fn fitting(documents: &[&[u8]]) -> usize {
    let mut bytes = 0;
    let fits = |document: &&&[u8]| {
        bytes += document.len() + 64;
        bytes <= COMMAND_BYTES_MAX
    };
    documents.iter().take(DOCUMENTS_MAX).take_while(fits).count().max(1)
}

fn command(collection: &str, documents: &[&[u8]], method: Method) -> Result<RawDocumentBuf> {
    let broken = |reason| Error::failed(format!("a command cannot be made: {reason}"));
    let (verb, list) = match method {
        Method::Insert => ("insert", "documents"),
        Method::Upsert => ("update", "updates"),
    };
    let mut out = Vec::with_capacity(documents.iter().map(|document| document.len() + 64).sum());
    let start = encode::begin(&mut out);
    encode::element(verb, &Value::text(collection), &mut out).map_err(broken)?;
    out.push(0x04);
    out.extend_from_slice(list.as_bytes());
    out.push(0);
    let array = encode::begin(&mut out);
    for (index, document) in documents.iter().enumerate() {
        out.push(0x03);
        out.extend_from_slice(index.to_string().as_bytes());
        out.push(0);
        match method {
            Method::Insert => out.extend_from_slice(document),
            Method::Upsert => upsert(document, &mut out)?,
        }
    }
    encode::end(array, &mut out);
    encode::element("ordered", &Value::Bool(false), &mut out).map_err(broken)?;
    let concern = vec![("w".to_owned(), Value::text("majority")), ("j".to_owned(), Value::Bool(true))];
    encode::element("writeConcern", &Value::Object(concern), &mut out).map_err(broken)?;
    encode::end(start, &mut out);
    RawDocumentBuf::from_bytes(out).map_err(|error| broken(error.to_string()))
}

/// `{q: {_id: …}, u: document, upsert: true}`.
fn upsert(document: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let start = encode::begin(out);
    out.extend_from_slice(b"\x03q\0");
    out.extend_from_slice(id_of(document)?.as_bytes());
    out.extend_from_slice(b"\x03u\0");
    out.extend_from_slice(document);
    out.extend_from_slice(b"\x08upsert\0\x01");
    encode::end(start, out);
    Ok(())
}

fn read_reply(reply: &Document, from: usize, refusals: &mut Vec<Refusal>) -> Result<()> {
    for error in reply.get_array("writeErrors").into_iter().flatten().filter_map(Bson::as_document) {
        let index = error.get_i32("index").unwrap_or_default();
        let (code, message) = (error.get_i32("code").unwrap_or_default(), error.get_str("errmsg").unwrap_or_default());
        let mut message = message.to_owned();
        if let Ok(details) = error.get_document("errInfo") {
            message = format!("{message}: {details}");
        }
        refusals.push(Refusal { index: from + usize::try_from(index).unwrap_or_default(), code, message });
    }
    if let Ok(error) = reply.get_document("writeConcernError") {
        let message = error.get_str("errmsg").unwrap_or("the write was not replicated");
        return Err(Error::new(ErrorKind::Unavailable, message));
    }
    Ok(())
}

/// `{_id: …}` of a document.
pub(super) fn id_of(document: &[u8]) -> Result<RawDocumentBuf> {
    let damaged = |reason: String| Error::failed(format!("a document cannot be written: {reason}"));
    let raw = RawDocument::from_bytes(document).map_err(|error| damaged(error.to_string()))?;
    let id = raw.get(ID).map_err(|error| damaged(error.to_string()))?;
    let mut only = RawDocumentBuf::new();
    only.append(cstr!("_id"), id.ok_or_else(|| damaged("it has no _id".to_owned()))?);
    Ok(only)
}

/// Takes out the refusals of documents that are there already, byte for byte: an earlier attempt wrote them.
pub(super) async fn without_repeated(
    collection: &Collection<RawDocumentBuf>,
    documents: &[&[u8]],
    refusals: Vec<Refusal>,
) -> Result<Vec<Refusal>> {
    let (doubled, mut others): (Vec<_>, Vec<_>) =
        refusals.into_iter().partition(|refusal| refusal.code == DUPLICATE_KEY);
    for some in doubled.chunks(DOCUMENTS_MAX) {
        let sent: Vec<&[u8]> = some.iter().map(|refusal| documents[refusal.index]).collect();
        let existing = existing(collection, &sent).await?;
        for refusal in some {
            let document = documents[refusal.index];
            let is_there = existing.get(id_of(document)?.as_bytes()).is_some_and(|other| other == document);
            if !is_there {
                let (index, code, message) = (refusal.index, refusal.code, refusal.message.clone());
                others.push(Refusal { index, code, message });
            }
        }
    }
    others.sort_by_key(|refusal| refusal.index);
    Ok(others)
}

/// What the collection has under the same `_id`s, by `{_id: …}`.
async fn existing(collection: &Collection<RawDocumentBuf>, documents: &[&[u8]]) -> Result<HashMap<Vec<u8>, Vec<u8>>> {
    let mut cursor = collection
        .find(doc! { ID: { "$in": ids(documents)? } })
        .await
        .map_err(|error| failure("documents with the same _id cannot be read", error))?;
    let mut found = HashMap::new();
    let next = |error| failure("documents with the same _id cannot be read", error);
    while let Some(document) = cursor.try_next().await.map_err(next)? {
        found.insert(id_of(document.as_bytes())?.into_bytes(), document.into_bytes());
    }
    Ok(found)
}

/// Removes documents again.
pub(super) async fn remove(collection: &Collection<RawDocumentBuf>, documents: &[&[u8]]) -> Result<()> {
    for some in documents.chunks(DOCUMENTS_MAX) {
        let removed = collection.delete_many(doc! { ID: { "$in": ids(some)? } }).await;
        removed.map_err(|error| failure("documents cannot be taken back", error))?;
    }
    Ok(())
}

fn ids(documents: &[&[u8]]) -> Result<Vec<Bson>> {
    let id = |document: &&[u8]| {
        let only = Document::try_from(id_of(document)?);
        let mut only = only.map_err(|error| Error::failed("a document cannot be written").because(error))?;
        Ok(only.remove(ID).unwrap_or(Bson::Null))
    };
    documents.iter().map(id).collect()
}
