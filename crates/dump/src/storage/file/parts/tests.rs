use std::io::Write;

use super::super::Place;
use super::super::compression::Compression;
use super::super::format::Format;
use super::*;
use crate::json::Style;
use crate::port::WriteMode;

struct Desk {
    folder: tempfile::TempDir,
    format: Format,
}

impl Desk {
    fn new(format: Format) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), format }
    }

    fn target(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    /// As a process that has just started.
    fn parts(&self, mode: WriteMode) -> Parts {
        let (path, compression, style) = (self.target(), Compression::None, Style::Extended);
        let place = Arc::new(Place { path, format: self.format, compression, style });
        let parts = Parts::of(&self.target(), "job", Beginning { place, mode, names: Arc::from([]) });
        parts.create().unwrap();
        parts.look().unwrap();
        parts
    }

    fn files(&self, end: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder.path().join("out.parts-job")).unwrap();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        files.retain(|path| path.to_str().unwrap().ends_with(end));
        files.sort();
        files
    }

    fn whole(&self) -> String {
        fs::read_to_string(&self.files("whole")[0]).unwrap()
    }

    fn finished(&self, parts: &Parts) -> String {
        parts.become_target(&self.target()).unwrap();
        assert!(parts.have_become(&self.target()));
        fs::read_to_string(self.target()).unwrap()
    }
}

/// A chunk of one row.
fn write(parts: &Parts, chunk: &str, text: &str) {
    let mut encoder = Compression::None.writer(parts.begin(chunk).unwrap()).unwrap();
    encoder.write_all(text.as_bytes()).unwrap();
    parts.keep(chunk, 1, encoder.finish().unwrap().checksum()).unwrap();
}

fn settle(parts: &Parts, chunks: &[&str]) -> Vec<bool> {
    parts.settle(&chunks.iter().map(|&chunk| chunk.to_owned()).collect::<Vec<_>>()).unwrap()
}

#[test]
fn parts_that_follow_each_other_become_one_file_before_the_end() {
    let desk = Desk::new(Format::NdJson);
    let parts = desk.parts(WriteMode::Create);
    write(&parts, "1", "b\n");
    write(&parts, "0", "a\n");
    write(&parts, "3", "d\n");
    assert_eq!(settle(&parts, &["0", "1", "2", "3"]), [true, true, false, true]);
    assert_eq!(desk.whole(), "a\nb\n");
    assert_eq!(desk.files(END).len(), 1);
    let parts = desk.parts(WriteMode::Create);
    assert_eq!(parts.done("1").unwrap(), Some(Written { rows: 1 }));
    write(&parts, "2", "c\n");
    assert_eq!(settle(&parts, &["2"]), [true]);
    assert_eq!((desk.whole().as_str(), desk.files(END).len()), ("a\nb\nc\nd\n", 0));
    assert_eq!(desk.finished(&parts), "a\nb\nc\nd\n");
}

#[test]
fn a_part_without_its_bytes_does_not_count() {
    let desk = Desk::new(Format::NdJson);
    let parts = desk.parts(WriteMode::Create);
    write(&parts, "0", "a\n");
    write(&parts, "1", "b\n");
    let lost = &desk.files(END)[0];
    fs::write(lost, "\0\0").unwrap();
    let parts = desk.parts(WriteMode::Create);
    assert_eq!(settle(&parts, &["0", "1"]), [false, true]);
    assert_eq!(parts.done("0").unwrap(), None);
    write(&parts, "0", "a\n");
    assert_eq!(desk.finished(&parts), "a\nb\n");
}

#[test]
fn what_is_not_noted_is_cut_off() {
    let desk = Desk::new(Format::NdJson);
    let parts = desk.parts(WriteMode::Create);
    write(&parts, "0", "a\n");
    settle(&parts, &["0"]);
    let add = |end: &str, text: &str| {
        let file = fs::OpenOptions::new().append(true).open(&desk.files(end)[0]);
        file.unwrap().write_all(text.as_bytes()).unwrap();
    };
    add("whole", "half of ");
    add("whole.notes", "1 1 1");
    let parts = desk.parts(WriteMode::Create);
    assert_eq!(parts.done("1").unwrap(), None);
    write(&parts, "1", "b\n");
    settle(&parts, &["1"]);
    let parts = desk.parts(WriteMode::Create);
    assert_eq!(parts.done("1").unwrap(), Some(Written { rows: 1 }));
    assert_eq!(desk.finished(&parts), "a\nb\n");
}

#[test]
fn a_part_that_was_moved_and_not_removed_is_there_once() {
    let desk = Desk::new(Format::NdJson);
    let parts = desk.parts(WriteMode::Create);
    write(&parts, "0", "a\n");
    let path = desk.files(END).remove(0);
    settle(&parts, &["0"]);
    fs::write(path, "a\n").unwrap();
    assert_eq!(desk.finished(&desk.parts(WriteMode::Create)), "a\n");
}

#[test]
fn a_chunk_that_was_cut_does_not_count_whole() {
    let desk = Desk::new(Format::NdJson);
    let parts = desk.parts(WriteMode::Create);
    write(&parts, "1", "b\nc\n");
    write(&parts, "1.01", "c\n");
    write(&parts, "1.00", "b\n");
    write(&parts, "0", "a\n");
    assert_eq!(settle(&parts, &["0", "1", "1.00", "1.01"]), [true, false, true, true]);
    assert_eq!(desk.finished(&parts), "a\nb\nc\n");
}

#[test]
fn a_whole_that_is_gone_is_not_made_up() {
    let desk = Desk::new(Format::NdJson);
    let parts = desk.parts(WriteMode::Create);
    write(&parts, "0", "a\n");
    settle(&parts, &["0"]);
    fs::remove_file(&desk.files("whole")[0]).unwrap();
    let error = desk.parts(WriteMode::Create).become_target(&desk.target()).unwrap_err();
    assert!(error.to_string().contains("shorter than its notes say"), "{error}");
}

#[test]
fn documents_of_an_array_have_commas_between_them_wherever_the_parts_come_from() {
    let desk = Desk::new(Format::Json);
    let parts = desk.parts(WriteMode::Create);
    write(&parts, "0", "");
    write(&parts, "1", "1");
    settle(&parts, &["0", "1"]);
    let parts = desk.parts(WriteMode::Create);
    write(&parts, "2", "");
    write(&parts, "4", "4");
    settle(&parts, &["2", "4"]);
    assert_eq!(desk.finished(&parts), "[\n1,\n4\n]\n");
}

#[test]
fn what_is_appended_to_is_read_at_the_end() {
    let desk = Desk::new(Format::NdJson);
    fs::write(desk.target(), "x\n").unwrap();
    let parts = desk.parts(WriteMode::Append);
    write(&parts, "0", "a\n");
    assert_eq!(settle(&parts, &["0"]), [true]);
    fs::write(desk.target(), "x\ny").unwrap();
    assert_eq!(desk.finished(&parts), "x\ny\na\n");
}

#[test]
fn a_folder_that_was_being_removed_is_removed_and_is_no_ledger() {
    let desk = Desk::new(Format::NdJson);
    let parts = desk.parts(WriteMode::Create);
    write(&parts, "0", "a\n");
    assert_eq!(desk.finished(&parts), "a\n");
    let away = desk.folder.path().join("out.parts-job.removed");
    fs::rename(desk.folder.path().join("out.parts-job"), &away).unwrap();
    assert!(!parts.exist());
    parts.remove().unwrap();
    assert!(!away.exists());
}
