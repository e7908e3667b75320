//! `flare dump plan`, `preview` and `guess`.

use clap::Args;
use flare_dump::job::Job;
use flare_dump::mapping;
use flare_dump::port::Walk;
use flare_dump::row::RowBatch;
use flare_dump::session::Session;
use flare_dump::value::Column;
use indicatif::{HumanBytes, HumanCount};

use super::options::JobOptions;
use crate::terminal::{self, harmless};

/// Arguments of `flare dump preview`.
#[derive(Args, Debug)]
pub struct Preview {
    #[command(flatten)]
    job: JobOptions,

    /// How many rows
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    rows: u16,
}

impl Preview {
    pub async fn run(self) -> anyhow::Result<()> {
        let session = Session::open(self.job.job()?).await?;
        let sample: RowBatch = session.reader.sample(self.rows.into()).await?;
        let (mapped, rejects) = session.mapping.apply(sample, 0)?;
        for row in &mapped.batch.rows {
            terminal::print(harmless(&mapping::as_text(row, &mapped.batch.names)))?;
        }
        for reject in rejects {
            terminal::note(harmless(&format!("row {} is refused: {}: {}", reject.row + 1, reject.reason, reject.text)));
        }
        Ok(())
    }
}

/// What would be done.
pub async fn plan(options: &JobOptions) -> anyhow::Result<()> {
    let session = Session::open(options.job()?).await?;
    let (job, description) = (&session.job, &session.description);
    let unknown = || "unknown until all are read".to_owned();
    let rows = session.rows_estimate();
    let chunks = rows.map(|rows| rows.div_ceil(job.chunksize));
    let mut lines = vec![
        ("from", session.source.to_string()),
        (
            "to",
            format!("{} ({:?}{})", session.target, job.mode, if session.existing.is_some() { ", exists" } else { "" }),
        ),
        ("rows", rows.map_or_else(unknown, |rows| format!("about {}", HumanCount(rows)))),
        ("bytes", description.bytes.map_or_else(unknown, |bytes| format!("about {}", HumanBytes(bytes)))),
        ("cut by", cut_by(&description.walk)),
        ("chunks", chunks.map_or_else(unknown, |n| format!("about {} of {} rows", HumanCount(n), job.chunksize))),
        ("workers", job.workers.to_string()),
        (
            "rows pass",
            if session.is_raw() { "unread, in the format of both sides" } else { "value by value" }.to_owned(),
        ),
    ];
    if job.by_offset {
        lines.push(("cost", offset_cost(&session)));
    }
    let mut text: Vec<String> = lines.iter().map(|(name, value)| format!("{name:<10}{value}")).collect();
    let schema = &session.mapping.schema;
    text.push(if schema.is_open { "\nfields that were seen".to_owned() } else { "\ncolumns".to_owned() });
    text.extend(schema.columns.iter().map(|column| column_line(column, schema.key.contains(&column.name))));
    terminal::print(harmless(&text.join("\n")))
}

fn column_line(column: &Column, is_key: bool) -> String {
    let kind = column.kind.to_string();
    let (null, key) = (if column.nullable { "" } else { "  not null" }, if is_key { "  key" } else { "" });
    format!("  {:<24}{kind:<16}{null}{key}", column.name).trim_end().to_owned()
}

fn cut_by(walk: &Walk) -> String {
    match walk {
        Walk::Key(columns) => format!("the key ({})", columns.join(", ")),
        Walk::Position(what) => format!("position ({what})"),
        Walk::Sequence => "nothing: one cursor reads, several workers write".to_owned(),
        Walk::Offset => "counting rows (OFFSET)".to_owned(),
    }
}

/// What reading by offset costs: every chunk passes over all rows before it.
pub fn offset_cost(session: &Session) -> String {
    let chunksize = session.job.chunksize;
    let Some(rows) = session.rows_estimate() else {
        return "by offset every chunk passes over all rows before it: the cost grows with the square".to_owned();
    };
    let chunks = rows.div_ceil(chunksize);
    let passed = u128::from(chunks) * u128::from(chunks.saturating_sub(1)) / 2 * u128::from(chunksize);
    let times = passed as f64 / rows.max(1) as f64 + 1.0;
    format!(
        "by offset about {} rows are passed over to read {}: {times:.1} times the work of a walk by key",
        HumanCount(u64::try_from(passed).unwrap_or(u64::MAX)),
        HumanCount(rows)
    )
}

/// A job file with the columns that the source suggests.
pub async fn guess(options: &JobOptions) -> anyhow::Result<()> {
    let job = options.job()?;
    let session = Session::open(Job { columns: Vec::new(), ..job.clone() }).await?;
    let (columns, rest) = mapping::inferred(&session.description.schema);
    let job = Job { columns, rest: job.rest.clone().or(rest), ..job };
    let text = toml::to_string(&job)?;
    terminal::print(text.trim_end())
}
