//! A job with its two sides looked at: what a copy, a plan and a preview begin with.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::job::Job;
use crate::location::Location;
use crate::mapping::{self, Mapping, Takes};
use crate::port::{Description, Reader, WriteMode, Writer};
use crate::storage::{self, ReadOptions};
use crate::value::Schema;

/// Both sides, and how rows get from one to the other.
pub struct Session {
    pub job: Job,
    pub source: Location,
    pub target: Location,
    pub reader: Arc<dyn Reader>,
    pub writer: Arc<dyn Writer>,
    pub description: Description,
    /// What the target has, if it exists and its rows stay.
    pub existing: Option<Schema>,
    pub mapping: Arc<Mapping>,
}

impl Session {
    /// Connects to both sides and decides on the mapping.
    pub async fn open(job: Job) -> Result<Self> {
        job.check()?;
        let (source, target) = (job.source()?, job.target()?);
        if source.secret_url() == target.secret_url() {
            return Err(Error::invalid(format!("{source} is both the source and the target")));
        }
        let options = ReadOptions { key: job.key.clone(), by_offset: job.by_offset };
        let reader = storage::reader(&source, &options)?;
        let writer = storage::writer(&target)?;
        let description = reader.describe().await.map_err(|error| error.within(&source))?;
        let existing = writer.describe().await.map_err(|error| error.within(&target))?;
        // What is replaced has no say.
        let existing = existing.filter(|_| job.mode != WriteMode::Replace);
        let columns = existing.iter().flat_map(|schema| &schema.columns).filter(|column| writer.takes_as_is(column));
        let as_is = columns.map(|column| Arc::clone(&column.name)).collect();
        let takes = Takes { documents: writer.takes_documents(), as_is };
        let mapping = mapping::plan(&job, &description.schema, existing.as_ref(), &takes)?;
        Ok(Self { mapping: Arc::new(mapping), job, source, target, reader, writer, description, existing })
    }

    /// Whether rows can be passed on unread.
    pub fn is_raw(&self) -> bool {
        let format = self.description.raw.as_ref();
        self.mapping.is_identity() && !self.job.verify && format.is_some_and(|format| self.writer.takes_raw(format))
    }

    /// About how many rows will be read.
    pub fn rows_estimate(&self) -> Option<u64> {
        let rows = self.description.rows;
        match self.job.size {
            Some(size) => Some(rows.map_or(size, |rows| rows.min(size))),
            None => rows,
        }
    }
}
