//! The result of a run: one aligned table, the same as JSON, and its place in docs/performance.md.

use std::fmt::{self, Display, Formatter};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::machine::Machine;
use crate::sample::Sample;

const DOC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/performance.md");
const BEGIN: &str = "<!-- bench:begin, written by `./bench/run --write-doc` -->";
const END: &str = "<!-- bench:end -->";
/// Other programs taking more of the machine than this spoil absolute numbers.
const ELSEWHERE_MAX: f64 = 0.10;
const HEADINGS: [&str; 13] = [
    "scenario", "subject", "docs/s", "deliv/s", "p50 ms", "p99 ms", "CPU µs", "RSS", "peak", "B/doc", "result", "goal",
    "",
];
const TEXT_COLUMNS: usize = 2;

#[derive(Debug, Default, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    pub scenario: String,
    pub subject: String,
    /// The medians.
    pub sample: Sample,
    pub runs: Vec<Sample>,
    pub result: String,
    pub goal: String,
    pub ok: Option<bool>,
    pub error: Option<String>,
}

impl Row {
    pub fn new(scenario: &str, subject: impl Into<String>, runs: Vec<Sample>) -> Self {
        let sample = Sample::median(&runs);
        Self { scenario: scenario.into(), subject: subject.into(), sample, runs, ..Self::default() }
    }

    pub fn failed(scenario: &str, error: String) -> Self {
        Self { scenario: scenario.into(), subject: "failed".into(), error: Some(error), ..Self::default() }
    }

    pub fn at_least(mut self, ratio: f64, goal: f64) -> Self {
        self.result = format!("{ratio:.2} x");
        self.goal = format!("≥ {goal:.2} x");
        self.ok = Some(ratio >= goal);
        self
    }

    pub fn at_most(mut self, value: f64, goal: f64, unit: &str) -> Self {
        let digits = if value < 10.0 { 2 } else { 0 };
        self.result = format!("{value:.digits$} {unit}");
        self.goal = format!("≤ {goal} {unit}");
        self.ok = Some(value <= goal);
        self
    }

    /// `value` may exceed `reference` by the share; being cheaper is no fault.
    pub fn flat(mut self, value: f64, reference: f64, share: f64) -> Self {
        let change = value / reference - 1.0;
        self.result = format!("{:+.0} %", change * 100.0);
        self.goal = format!("≤ +{:.0} %", share * 100.0);
        self.ok = Some(change <= share);
        self
    }

    fn cells(&self) -> [String; 13] {
        let sample = &self.sample;
        let mib = |bytes: f64| format!("{:.0}", bytes / 1024.0 / 1024.0);
        [
            self.scenario.clone(),
            self.subject.clone(),
            show(sample.documents_per_second, thousands),
            show(sample.deliveries_per_second, thousands),
            show(sample.p50_ms, milliseconds),
            show(sample.p99_ms, milliseconds),
            show(sample.cpu_micros, |micros| format!("{micros:.1}")),
            show(sample.rss_bytes, mib),
            show(sample.rss_bytes_max, mib),
            show(sample.written_bytes, thousands),
            self.result.clone(),
            self.goal.clone(),
            self.ok.map_or("", |ok| if ok { "ok" } else { "short" }).into(),
        ]
    }
}

#[derive(Debug, Serialize)]
pub struct Report {
    pub machine: Machine,
    pub quick: bool,
    pub rows: Vec<Row>,
}

impl Report {
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report is plain data") + "\n"
    }

    /// Whether every scenario came to its end, whatever its numbers.
    pub fn is_complete(&self) -> bool {
        self.rows.iter().all(|row| row.error.is_none())
    }

    /// Replaces what stands between the markers in docs/performance.md.
    pub fn write_doc(&self) -> Result<()> {
        let file = Path::new(DOC);
        let text = fs::read_to_string(file).with_context(|| format!("read {DOC}"))?;
        let fresh =
            replace(&text, &format!("\n```text\n{self}```\n")).with_context(|| format!("no markers in {DOC}"))?;
        fs::write(file, fresh).with_context(|| format!("write {DOC}"))
    }

    fn table(&self) -> Vec<[String; 13]> {
        let headings = HEADINGS.map(str::to_owned);
        std::iter::once(headings).chain(self.rows.iter().map(Row::cells)).collect()
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.quick {
            notes.push("quick run: shows that everything works; its numbers mean nothing".into());
        }
        let elsewhere = self.rows.iter().map(|row| row.sample.elsewhere).fold(0.0, f64::max);
        if elsewhere > ELSEWHERE_MAX {
            notes.push(format!("other programs took up to {:.0} % of the machine", elsewhere * 100.0));
        }
        for row in &self.rows {
            let Sample { errors, coalesced, repeated, .. } = row.sample;
            if errors + coalesced + repeated > 0 {
                notes.push(format!(
                    "{}, {}: {errors} PUTs refused, {coalesced} revisions coalesced, {repeated} deliveries repeated",
                    row.scenario, row.subject
                ));
            }
            notes.extend(row.error.iter().map(|error| format!("{} FAILED: {error}", row.scenario)));
        }
        notes
    }
}

impl Display for Report {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let table = self.table();
        let width = |column: usize| table.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..HEADINGS.len()).map(width).collect();
        writeln!(out, "{}\n", self.machine)?;
        let mut previous = String::new();
        for mut row in table {
            // A scenario is named once.
            if row[0] == previous {
                row[0].clear();
            } else {
                previous.clone_from(&row[0]);
            }
            let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
                if column < TEXT_COLUMNS { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            });
            writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        let notes = self.notes();
        if !notes.is_empty() {
            writeln!(out, "\n{}", notes.join("\n"))?;
        }
        Ok(())
    }
}

fn replace(text: &str, fresh: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{fresh}\n{END}{after}"))
}

fn show(value: Option<f64>, format: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "–".into(), format)
}

fn milliseconds(value: f64) -> String {
    if value < 10.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}

fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (value, expected) in [(0.0, "0"), (999.4, "999"), (1000.0, "1 000"), (1_234_567.0, "1 234 567")] {
            assert_eq!(thousands(value), expected);
        }
    }

    #[test]
    fn a_table_fits_a_terminal() {
        let sample = Sample {
            documents_per_second: Some(88_888.0),
            deliveries_per_second: Some(88_888.0),
            p50_ms: Some(8.88),
            p99_ms: Some(8888.0),
            cpu_micros: Some(888.8),
            rss_bytes: Some(888.0 * 1024.0 * 1024.0),
            rss_bytes_max: Some(888.0 * 1024.0 * 1024.0),
            written_bytes: Some(88_888.0),
            ..Sample::default()
        };
        let row = Row::new("flat: documents", "1000000 documents", vec![sample]).at_least(0.88, 0.88);
        let report = Report { machine: Machine::describe(), quick: false, rows: vec![row] };
        let text = report.to_string();
        let longest = text.lines().skip(2).map(|line| line.chars().count()).max();
        assert!(longest.is_some_and(|columns| columns <= 120), "{longest:?}\n{text}");
    }

    #[test]
    fn the_text_between_the_markers_is_replaced() {
        let text = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        assert_eq!(replace(&text, "new"), Some(format!("a\n{BEGIN}\nnew\n{END}\nb\n")));
        assert_eq!(replace("no markers", "new"), None);
    }
}
