//! Takes documents in: finds the stream of a URL, reads the revision, and writes what is new.

use std::sync::Arc;

use bytes::Bytes;
use flare_core::{
    Error, ErrorKind,
    change::ChangeError,
    document::{DocumentWrite, WriteBody, Written},
    port::Documents,
    revision::Revision,
    trace::Trace,
    url::DocumentUrl,
};
use jiff::Timestamp;

use crate::{clock, registry::Registry};

/// What a publisher says about one document, before its stream is known.
#[derive(Clone, Debug)]
pub enum DocumentNews {
    Put { url: DocumentUrl, content: Bytes },
    Delete { url: DocumentUrl, revision: Option<Revision> },
}

impl DocumentNews {
    pub fn url(&self) -> &DocumentUrl {
        match self {
            Self::Put { url, .. } | Self::Delete { url, .. } => url,
        }
    }
}

/// Why a document was not taken in.
#[derive(Clone, Debug, thiserror::Error)]
pub enum IntakeError {
    #[error("no resource has an endpoint that matches {0}")]
    NoResource(DocumentUrl),
    #[error(transparent)]
    Change(#[from] ChangeError),
    #[error(transparent)]
    Store(#[from] Error),
}

pub(crate) struct Intake {
    registry: Arc<Registry>,
    documents: Arc<dyn Documents>,
    json_depth_max: usize,
}

impl Intake {
    pub fn new(registry: Arc<Registry>, documents: Arc<dyn Documents>, json_depth_max: usize) -> Self {
        Self { registry, documents, json_depth_max }
    }

    /// Resolves when the news is durable.
    pub async fn take(&self, news: DocumentNews, trace: Option<Arc<Trace>>) -> Result<Written, IntakeError> {
        let url = news.url().clone();
        let write = self.prepare(news, clock::now(), trace)?;
        let written = self.documents.write(vec![write]).await.map_err(|error| gone_or_failed(error, &url))?;
        written.into_iter().next().ok_or_else(|| Error::internal("the store did not answer a write").into())
    }

    /// Takes in what can be, in one durable step, and says of each what became of it.
    pub async fn take_all(
        &self,
        news: Vec<DocumentNews>,
        trace: Option<Arc<Trace>>,
    ) -> Result<Vec<Result<Written, IntakeError>>, Error> {
        let at = clock::now();
        let mut results = Vec::with_capacity(news.len());
        let mut writes = Vec::with_capacity(news.len());
        for one in news {
            match self.prepare(one, at, trace.clone()) {
                Ok(write) => {
                    results.push(Ok(Written::Unchanged));
                    writes.push(write);
                }
                Err(error) => results.push(Err(error)),
            }
        }
        let mut written = if writes.is_empty() { Vec::new() } else { self.documents.write(writes).await? }.into_iter();
        for result in results.iter_mut().filter(|result| result.is_ok()) {
            *result = written.next().ok_or_else(|| Error::internal("the store did not answer a write").into());
        }
        Ok(results)
    }

    fn prepare(
        &self,
        news: DocumentNews,
        at: Timestamp,
        trace: Option<Arc<Trace>>,
    ) -> Result<DocumentWrite, IntakeError> {
        let stream = self.registry.stream_of(news.url()).ok_or_else(|| IntakeError::NoResource(news.url().clone()))?;
        let (url, body) = match news {
            DocumentNews::Put { url, content } => {
                let revision = stream.change.revision_of(&content, self.json_depth_max)?;
                (url, WriteBody::Put { revision, content })
            }
            DocumentNews::Delete { url, revision } => (url, WriteBody::Delete { revision }),
        };
        Ok(DocumentWrite { stream: stream.id, url, body, at, trace })
    }
}

/// A stream that was deleted while the write was on its way is a stream that is not there.
fn gone_or_failed(error: Error, url: &DocumentUrl) -> IntakeError {
    match error.kind() {
        ErrorKind::NotFound => IntakeError::NoResource(url.clone()),
        _ => error.into(),
    }
}
