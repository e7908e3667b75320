//! The flush of fjall's journal, beside fjall.
//!
//! fjall flushes under the lock that its writers need, so a flush and the next batch could not overlap. The journal is a
//! file like any other, and a flush of it through a handle of our own does the same work without the lock.
//!
//! What this relies on: batches go to the journal with the highest number, and before fjall starts a new one it flushes
//! the old one. So whoever looks for the newest journal after a write, and flushes that, has flushed the write.

use std::{
    fs::{self, File},
    io::{Error, ErrorKind, Result},
    path::PathBuf,
};

pub(crate) struct Journal {
    folder: PathBuf,
    /// The newest journal that was seen, with its number.
    newest: Option<(u64, File)>,
}

impl Journal {
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, newest: None }
    }

    /// Puts on disk every batch that was handed to the operating system before the call.
    pub fn sync(&mut self) -> Result<()> {
        let mut next = match &self.newest {
            Some((number, _)) => number + 1,
            None => self.highest_number()?,
        };
        // Numbers grow by one.
        loop {
            match File::open(self.path(next)) {
                Ok(file) => self.newest = Some((next, file)),
                Err(error) if error.kind() == ErrorKind::NotFound => break,
                Err(error) => return Err(error),
            }
            next += 1;
        }
        match &self.newest {
            Some((_, file)) => file.sync_data(),
            None => Err(Error::new(ErrorKind::NotFound, format!("no journal in {}", self.folder.display()))),
        }
    }

    fn path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{number}.jnl"))
    }

    fn highest_number(&self) -> Result<u64> {
        let mut highest = 0;
        for entry in fs::read_dir(&self.folder)? {
            let name = entry?.file_name();
            let number =
                name.to_str().and_then(|name| name.strip_suffix(".jnl")).and_then(|number| number.parse().ok());
            highest = highest.max(number.unwrap_or(0));
        }
        Ok(highest)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use fjall::{Database, KeyspaceCreateOptions, PersistMode};

    use super::*;

    /// The bytes that were written to the newest journal: it is made with holes, so its length tells nothing.
    fn written(journal: &Journal) -> u64 {
        journal.newest.as_ref().map_or(0, |(_, file)| file.metadata().unwrap().blocks() * 512)
    }

    #[test]
    fn what_was_just_written_is_in_the_journal_that_is_flushed() {
        const ROW: usize = 64 << 10;
        let folder = tempfile::tempdir().unwrap();
        let database = Database::builder(folder.path()).open().unwrap();
        let options = || KeyspaceCreateOptions::default().max_memtable_size(1 << 20);
        let keyspace = database.keyspace("rows", options).unwrap();
        let mut journal = Journal::new(folder.path().into());
        journal.sync().unwrap();
        let mut numbers = Vec::new();
        // What compresses would leave no trace.
        let noise: Vec<u8> =
            (0..).flat_map(|seed: u64| seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()).take(ROW).collect();
        // Long enough for fjall to go on to further journals.
        for row in 0..4000_u32 {
            let (number, before) = (journal.newest.as_ref().unwrap().0, written(&journal));
            let mut batch = database.batch().durability(Some(PersistMode::Buffer));
            batch.insert(&keyspace, row.to_be_bytes(), &noise[..]);
            batch.commit().unwrap();
            journal.sync().unwrap();
            let newest = journal.newest.as_ref().unwrap().0;
            assert!(newest > number || written(&journal) > before, "row {row} is not in journal {newest}");
            numbers.push(newest);
        }
        assert!(numbers.first() < numbers.last(), "the test is too short: fjall stayed with one journal");
    }
}
