//! Reading the documents of a resource, in the order of their URLs, which are the key.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream;

use super::Place;
use super::api::{Document, Documents};
use crate::error::{Error, Result};
use crate::infer;
use crate::json::{self, Style};
use crate::key::{Key, Range};
use crate::location::Location;
use crate::port::{Batches, Boundary, Description, Reader, SAMPLE_ROWS, Upper, Walk};
use crate::row::{Batch, Row, RowBatch};
use crate::storage::ReadOptions;
use crate::value::Value;

/// Documents per request.
const PAGE_ROWS: u64 = 1000;

/// Reads the documents of a resource.
pub struct FlareReader {
    place: Arc<Place>,
}

impl FlareReader {
    pub fn new(location: &Location, options: &ReadOptions) -> Result<Self> {
        if !options.key.is_empty() || options.by_offset {
            return Err(Error::invalid(format!("{location}: a resource is read in the order of its URLs only")));
        }
        Ok(Self { place: Arc::new(Place::read(location)?) })
    }
}

#[async_trait]
impl Reader for FlareReader {
    async fn describe(&self) -> Result<Description> {
        let page = self.place.documents(None, 0, SAMPLE_ROWS as u64).await?;
        let total = page.total();
        let mut schema = infer::schema(&self.place.rows(page.documents));
        schema.is_open = true;
        let walk = Walk::Key(vec!["URL".to_owned()]);
        Ok(Description { schema, rows: Some(total), bytes: None, walk, raw: None })
    }

    async fn sample(&self, rows: usize) -> Result<RowBatch> {
        Ok(self.place.rows(self.place.documents(None, 0, rows as u64).await?.documents))
    }

    async fn upper(&self) -> Result<Upper> {
        let mut last = 0;
        loop {
            let page = self.place.documents(None, last, 1).await?;
            let total = page.total();
            match page.documents.into_iter().next() {
                Some(document) if last + 1 == total => return Ok(Upper::Key(key(document.id))),
                None if total == 0 => return Ok(Upper::Empty),
                // Others came or went since they were counted.
                _ => last = total.saturating_sub(1),
            }
        }
    }

    async fn boundary(&self, after: Option<&Key>, upper: Option<&Key>, rows: u64) -> Result<Boundary> {
        let page = self.place.documents(url(after)?, rows.saturating_sub(1), 1).await?;
        let upper = url(upper)?;
        Ok(match page.documents.into_iter().next() {
            Some(document) if upper.is_none_or(|upper| document.id.as_str() < upper) => Boundary::At(key(document.id)),
            _ => Boundary::Last,
        })
    }

    fn read(&self, range: &Range, _raw: bool) -> Batches {
        let (place, range) = (Arc::clone(&self.place), range.clone());
        let first = range.after.clone();
        Box::pin(stream::try_unfold(Some(first), move |after| {
            let (place, upto) = (Arc::clone(&place), range.upto.clone());
            async move {
                let Some(after) = after else { return Ok(None) };
                let mut page = place.documents(url(after.as_ref())?, 0, PAGE_ROWS).await?.documents;
                let upto = url(upto.as_ref())?;
                // The server may send fewer than there are: only nothing, or what lies behind, is the end.
                let is_end = page.last().is_none_or(|last| upto.is_some_and(|upto| last.id.as_str() >= upto));
                page.retain(|document| upto.is_none_or(|upto| document.id.as_str() <= upto));
                let next = page.last().filter(|_| !is_end).map(|last| Some(key(last.id.clone())));
                Ok((!page.is_empty()).then(|| (Batch::Rows(place.rows(page)), next)))
            }
        }))
    }
}

fn key(url: String) -> Key {
    Key::one(Value::Text(url))
}

/// The URL that a key is.
fn url(key: Option<&Key>) -> Result<Option<&str>> {
    match key.map(|key| key.0.as_slice()) {
        None => Ok(None),
        Some([Value::Text(url)]) => Ok(Some(url)),
        Some(_) => {
            Err(Error::invalid("the history is of a version that counted documents: use --fresh to begin again"))
        }
    }
}

impl Place {
    async fn documents(&self, after: Option<&str>, offset: u64, rows: u64) -> Result<Documents> {
        self.api.documents(&self.resource().await?.id, after, offset, rows).await
    }

    fn rows(&self, documents: Vec<Document>) -> RowBatch {
        let mut batch = RowBatch::documents();
        documents.into_iter().for_each(|document| batch.push(self.row(document)));
        batch
    }

    fn row(&self, Document { id, document }: Document) -> Row {
        let text = document.get();
        let read = match self.style {
            Style::Extended => json::parse(text.as_bytes()),
            Style::Plain => json::parse_plain(text.as_bytes()),
        };
        match read {
            Ok(Value::Object(mut fields)) => {
                if let Some(name) = &self.url {
                    fields.insert(0, (name.clone(), Value::Text(id)));
                }
                Row::Document(fields)
            }
            Ok(_) => Row::bad(text, "the document is no object"),
            Err(reason) => Row::bad(text, reason),
        }
    }
}

impl std::fmt::Debug for FlareReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.place.named)
    }
}
