//! Reading the documents of a resource.
//!
//! A server lists them by counting, in the order of their URLs. Documents that come and go meanwhile would shift the
//! pages, so each page begins with the last document of the one before: where that is another, the place is found
//! again.

use std::sync::Arc;

use async_trait::async_trait;

use super::Place;
use super::api::Document;
use crate::error::{Error, Result};
use crate::infer;
use crate::json::{self, Style};
use crate::key::{Key, Range};
use crate::location::Location;
use crate::port::{Batches, Boundary, Description, Reader, SAMPLE_ROWS, Upper, Walk};
use crate::row::{Row, RowBatch};
use crate::storage::ReadOptions;
use crate::storage::sequence::{Cursor, Sequence};
use crate::value::Value;

/// Documents per request.
const PAGE_ROWS: u64 = 1000;

/// Reads the documents of a resource.
pub struct FlareReader {
    place: Arc<Place>,
    sequence: Sequence,
}

impl FlareReader {
    pub fn new(location: &Location, options: &ReadOptions) -> Result<Self> {
        if !options.key.is_empty() || options.by_offset {
            return Err(Error::invalid(format!("{location}: a resource is read in the order of its URLs only")));
        }
        let place = Arc::new(Place::read(location)?);
        let source = Arc::clone(&place);
        let sequence = Sequence::new(Arc::new(move || {
            let place = Arc::clone(&source);
            Box::pin(async move {
                let resource = place.resource().await?.id.clone();
                Ok(Box::new(Pages { place, resource, offset: 0, last: None }) as Box<dyn Cursor>)
            })
        }));
        Ok(Self { place, sequence })
    }
}

#[async_trait]
impl Reader for FlareReader {
    async fn describe(&self) -> Result<Description> {
        let resource = self.place.resource().await?;
        let page = self.place.api.documents(&resource.id, 0, SAMPLE_ROWS as u64).await?;
        let total = page.total();
        let mut schema = infer::schema(&self.place.rows(page.documents));
        schema.is_open = true;
        Ok(Description { schema, rows: Some(total), bytes: None, walk: Walk::Sequence, raw: None })
    }

    async fn sample(&self, rows: usize) -> Result<RowBatch> {
        let resource = self.place.resource().await?;
        Ok(self.place.rows(self.place.api.documents(&resource.id, 0, rows as u64).await?.documents))
    }

    async fn upper(&self) -> Result<Upper> {
        Ok(Upper::Unknown)
    }

    async fn boundary(&self, after: Option<&Key>, _upper: Option<&Key>, rows: u64) -> Result<Boundary> {
        Ok(Sequence::boundary(after, rows))
    }

    fn read(&self, range: &Range, _raw: bool) -> Batches {
        self.sequence.read(range)
    }
}

impl Place {
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

/// All documents of a resource.
struct Pages {
    place: Arc<Place>,
    resource: String,
    /// Where the next page begins: at the document that was read last.
    offset: u64,
    last: Option<String>,
}

#[async_trait]
impl Cursor for Pages {
    async fn next(&mut self) -> Result<Option<RowBatch>> {
        let mut step = 1;
        // Whether all documents before here were read.
        let mut is_sure = self.last.is_none();
        loop {
            let page = self.place.api.documents(&self.resource, self.offset, PAGE_ROWS).await?;
            let (total, listed) = (page.total(), page.documents.len() as u64);
            let is_known = |document: &Document| self.last.as_ref().is_some_and(|last| document.id <= *last);
            let begins_known = page.documents.first().is_some_and(is_known);
            if !begins_known && !is_sure && self.offset > 0 {
                // Some went away, and those behind moved up: back to what is known.
                self.offset = self.offset.saturating_sub(step);
                step *= 2;
                continue;
            }
            let new: Vec<Document> = page.documents.into_iter().skip_while(is_known).collect();
            if let Some(last) = new.last() {
                self.last = Some(last.id.clone());
                self.offset += listed - 1;
                return Ok(Some(self.place.rows(new)));
            }
            if listed == 0 || self.offset + listed >= total {
                return Ok(None);
            }
            // Others came before here, or the page was cut short: on with the next.
            self.offset += listed;
            is_sure = true;
        }
    }
}

impl std::fmt::Debug for FlareReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.place.named)
    }
}
