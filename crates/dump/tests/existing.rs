//! Targets that exist: the types of their columns decide what becomes of values.

#![cfg(all(feature = "mysql", feature = "postgres", feature = "sqlite"))]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod server;

use std::path::Path;
use std::sync::Arc;

use flare_dump::copy::{Run, run};
use flare_dump::event::{Progress, Silent};
use flare_dump::history::Place;
use flare_dump::job::Job;
use flare_dump::port::WriteMode;
use flare_dump::session::Session;
use tokio_util::sync::CancellationToken;

const CSV: &str = "\
id,n,d,f,b,day,j,s
1,1,1.50,2.5,true,2024-02-29,\"{\"\"a\"\":1}\",007
2,x,1.50,2.5,true,2024-02-29,1,x
3,3000000000,1.50,2.5,true,2024-02-29,1,x
4,4,1.555,2.5,true,2024-02-29,1,x
5,5,1.50,much,true,2024-02-29,1,x
6,6,1.50,2.5,maybe,2024-02-29,1,x
7,7,1.50,2.5,true,2024-02-29,{,x
8,,,,,,,
";

const DOCUMENTS: &str = r#"{"id":"11","n":"-7","d":"1.5","f":"2.5","b":"no","day":"2024-02-29","j":"text","s":5}
{"id":12,"n":1.5}
{"id":13,"n":4.0,"d":12345.0}
{"id":14,"n":4.0,"d":12.0}
"#;

/// What is there afterwards.
const ROWS: [&str; 4] = [
    r#"{"id":1,"n":1,"d":1.50,"f":2.5,"b":true,"day":{"$day":"2024-02-29"},"j":{"a":1},"s":"007"}"#,
    r#"{"id":11,"n":-7,"d":1.50,"f":2.5,"b":false,"day":{"$day":"2024-02-29"},"j":"text","s":"5"}"#,
    r#"{"id":14,"n":4,"d":12.00,"f":null,"b":null,"day":null,"j":null,"s":null}"#,
    r#"{"id":8,"n":null,"d":null,"f":null,"b":null,"day":null,"j":null,"s":null}"#,
];

/// Adds a file to a table, and returns the rows that were refused as `row: reason`.
async fn append(folder: &Path, name: &str, content: &str, table: &str) -> Vec<String> {
    let file = folder.join(name);
    std::fs::write(&file, content).unwrap();
    let mut job = Job::new(file.to_str().unwrap(), table);
    (job.mode, job.max_rejects) = (WriteMode::Append, 100);
    let session = Session::open(job).await.unwrap();
    let place = Place::of_job(&folder.join("job.toml"));
    let how = Run { fresh: true, ..Run::default() };
    let stop = CancellationToken::new();
    let summary = run(session, place, how, Arc::new(Silent), Progress::shared(), stop).await.unwrap();
    assert!(summary.message.is_none() && summary.failed.is_empty(), "{table}: {summary:?}");
    let Some(rejects) = summary.rejects_file else { return Vec::new() };
    let rejects = std::fs::read_to_string(rejects).unwrap();
    let shown = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        format!("{}: {}", line["row"], line["reason"].as_str().unwrap())
    };
    rejects.lines().map(shown).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_types_of_a_table_that_exists_decide() {
    let folder = tempfile::tempdir().unwrap();
    let origin = folder.path().join("origin.db");
    rusqlite::Connection::open(&origin)
        .unwrap()
        .execute_batch(
            "CREATE TABLE empty (id INTEGER PRIMARY KEY, n INT32, d DECIMAL_TEXT(6,2), f REAL, b BOOLEAN, \
             day DATE_TEXT, j JSON_TEXT, s TEXT)",
        )
        .unwrap();
    for table in server::tables(folder.path(), "existing") {
        let mut make = Job::new(format!("{}?table=empty", origin.display()), &table);
        make.mode = WriteMode::Replace;
        server::copy(make).await;
        let refused = append(folder.path(), "a.csv", CSV, &table).await;
        let expected = [
            "2: column n: cannot make int32 of text \"x\"",
            "3: column n: cannot make int32 of text \"3000000000\"",
            "4: column d: cannot make decimal(6,2) of text \"1.555\"",
            "5: column f: cannot make float64 of text \"much\"",
            "6: column b: cannot make bool of text \"maybe\"",
        ];
        let is_so = refused.iter().zip(expected).all(|(found, expected)| found.starts_with(expected));
        assert!(is_so, "{table}: {refused:?}");
        assert!(
            refused.len() == 6 && refused[5].starts_with("7: column j: the text is no JSON"),
            "{table}: {refused:?}"
        );
        let refused = append(folder.path(), "a.ndjson", DOCUMENTS, &table).await;
        let expected = [
            "2: column n: cannot make int32 of a float 1.5",
            "3: column d: cannot make decimal(6,2) of a float 12345.0",
        ];
        assert_eq!(refused, expected, "{table}");
        let out = folder.path().join("out.ndjson").to_str().unwrap().to_owned();
        let mut back = Job::new(&table, &out);
        back.mode = WriteMode::Replace;
        server::copy(back).await;
        let text = std::fs::read_to_string(&out).unwrap();
        let mut found: Vec<&str> = text.lines().collect();
        found.sort_unstable();
        // SQLite keeps a decimal as it came.
        let padded = |line: &str| {
            line.replace(r#"{"$numberDecimal":"1.5"}"#, "1.50").replace(r#"{"$numberDecimal":"12.0"}"#, "12.00")
        };
        for (found, expected) in found.iter().zip(ROWS) {
            assert_eq!(padded(found), expected, "{table}");
        }
        assert_eq!(found.len(), ROWS.len(), "{table}: {found:?}");
    }
}
