use std::sync::Arc;

use super::*;
use crate::infer;
use crate::job::Job;

fn documents(lines: &[&str]) -> RowBatch {
    let mut batch = RowBatch::documents();
    for line in lines {
        match json::parse(line.as_bytes()).unwrap() {
            Value::Object(fields) => batch.push(Row::Document(fields)),
            other => panic!("{other:?}"),
        }
    }
    batch
}

fn job(rules: &str) -> Job {
    toml::from_str(&format!("from = 'a.ndjson'\nto = 'b.csv'\n{rules}")).unwrap()
}

/// What becomes of the documents, as lines, with the reasons of those that are refused.
fn mapped(rules: &str, lines: &[&str]) -> Vec<String> {
    let batch = documents(lines);
    let mapping = plan(&job(rules), &infer::schema(&batch), None, true).unwrap();
    let (mapped, rejects) = mapping.apply(batch, 0).unwrap();
    let rows = mapped.batch.rows.iter().map(|row| as_text(row, &mapped.batch.names));
    rows.chain(rejects.iter().map(|reject| format!("{}: {}", reject.row, reject.reason))).collect()
}

#[test]
fn a_column_is_made_from_the_first_path_that_has_something() {
    let rules = "[[column]]\nname = 'city'\nfrom = ['address.city', 'city', 'tags.0']\nas = 'text'";
    let lines =
        [r#"{"address":{"city":"A"},"city":"B"}"#, r#"{"address":{"city":null},"city":"B"}"#, r#"{"tags":["C"]}"#];
    assert_eq!(mapped(rules, &lines), [r#"{"city":"A"}"#, r#"{"city":"B"}"#, r#"{"city":"C"}"#]);
}

#[test]
fn what_cannot_be_made_is_refused_or_null_or_stops_the_copy() {
    let rule = |on_error: &str| format!("[[column]]\nname = 'n'\nas = 'int64'\non-error = '{on_error}'");
    let lines = [r#"{"n":1}"#, r#"{"n":"x"}"#, r#"{"n":"7"}"#];
    assert_eq!(
        mapped(&rule("reject"), &lines),
        [r#"{"n":1}"#, r#"{"n":7}"#, "1: column n: cannot make int64 of text \"x\""]
    );
    assert_eq!(mapped(&rule("null"), &lines), [r#"{"n":1}"#, r#"{"n":null}"#, r#"{"n":7}"#]);
    let batch = documents(&lines);
    let mapping = plan(&job(&rule("fail")), &infer::schema(&batch), None, true).unwrap();
    let error = mapping.apply(batch, 0).unwrap_err();
    assert!(error.to_string().contains("column n") && error.to_string().contains(r#"{"n":"x"}"#), "{error}");
}

#[test]
fn a_default_stands_in_for_nothing() {
    let rules = "[[column]]\nname = 'a'\ndefault = 5\nas = 'int64'";
    assert_eq!(mapped(rules, &["{}", r#"{"a":null}"#, r#"{"a":2}"#]), [r#"{"a":5}"#, r#"{"a":5}"#, r#"{"a":2}"#]);
}

#[test]
fn an_expression_computes_the_rest() {
    let rules = "[[column]]\nname = 'total'\nexpression = 'row.price * row.count'\nas = 'int64'\n\
                 [[column]]\nname = 'who'\nexpression = 'row.first + \" \" + row.last'\nas = 'text'";
    let lines = [r#"{"price":3,"count":4,"first":"A","last":"B"}"#, r#"{"price":3}"#];
    let found = mapped(rules, &lines);
    assert_eq!(found[0], r#"{"total":12,"who":"A B"}"#);
    assert!(found[1].starts_with("1: column total: row.price * row.count failed"), "{}", found[1]);
    let wrong = job("[[column]]\nname = 'a'\nexpression = 'row.('");
    let error = plan(&wrong, &Schema::default(), None, true).unwrap_err().to_string();
    assert!(error.contains("column \"a\"") && error.contains("the expression is wrong"), "{error}");
}

#[test]
fn documents_become_rows_and_nothing_is_lost() {
    let lines = [r#"{"_id":1,"a":"x","b":null}"#, r#"{"_id":2,"b":{"c":[1]},"new":true}"#];
    let batch = documents(&lines);
    let mut schema = infer::schema(&documents(&lines[..1]));
    schema.columns.retain(|column| &*column.name != "new");
    let mapping = plan(&job(""), &schema, None, true).unwrap();
    let (there, rejects) = mapping.apply(batch, 0).unwrap();
    assert!(rejects.is_empty(), "{rejects:?}");
    let back = Job { spread: Some("_rest".into()), nulls: Nulls::Omit, ..job("") };
    let back = plan(&back, &mapping.schema, None, false).unwrap();
    // SQL has no missing: what was read from a table is null.
    let mut rows = there.batch;
    for row in &mut rows.rows {
        let Row::Cells(cells) = row else { panic!("a table has cells") };
        cells.iter_mut().filter(|cell| cell.is_empty()).for_each(|cell| *cell = Value::Null);
    }
    let (again, _) = back.apply(rows, 0).unwrap();
    let texts: Vec<String> = again.batch.rows.iter().map(|row| as_text(row, &again.batch.names)).collect();
    assert_eq!(texts[0], lines[0]);
    assert!(texts[1].contains(r#""new":true"#) && !texts[1].contains("\"a\""), "{}", texts[1]);
}

#[test]
fn a_target_that_exists_says_what_columns_there_are() {
    let source = infer::schema(&documents(&[r#"{"a":1,"b":2}"#]));
    let target = Schema { columns: vec![Column::new("a", Kind::Text)], key: vec![Arc::from("a")], is_open: false };
    let error = plan(&job(""), &source, Some(&target), true).unwrap_err();
    assert!(error.to_string().contains("no column \"b\""), "{error}");
    let rules = job("[[column]]\nname = 'a'");
    let mapping = plan(&rules, &source, Some(&target), true).unwrap();
    let (mapped, _) = mapping.apply(documents(&[r#"{"a":1}"#]), 0).unwrap();
    assert_eq!(mapped.batch.rows[0], Row::Cells(vec![Value::text("1")]), "as the column of the target");
    assert!(plan(&job("[[column]]\nname = 'z'"), &source, Some(&target), true).is_err());
}

use crate::value::Column;
