use std::sync::Arc;

use super::*;
use crate::infer;
use crate::job::Job;
use crate::value::Column;

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
    let mapping = plan(&job(rules), &infer::schema(&batch), None, &Takes::default()).unwrap();
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
    let mapping = plan(&job(&rule("fail")), &infer::schema(&batch), None, &Takes::default()).unwrap();
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
    let error = plan(&wrong, &Schema::default(), None, &Takes::default()).unwrap_err().to_string();
    assert!(error.contains("column \"a\"") && error.contains("the expression is wrong"), "{error}");
}

#[test]
fn documents_become_rows_and_nothing_is_lost() {
    let lines = [r#"{"_id":1,"a":"x","b":null}"#, r#"{"_id":2,"b":{"c":[1]},"new":true}"#];
    let batch = documents(&lines);
    let mut schema = infer::schema(&documents(&lines[..1]));
    schema.columns.retain(|column| &*column.name != "new");
    let mapping = plan(&job(""), &schema, None, &Takes::default()).unwrap();
    let (there, rejects) = mapping.apply(batch, 0).unwrap();
    assert!(rejects.is_empty(), "{rejects:?}");
    let back = Job { spread: Some("_rest".into()), nulls: Nulls::Omit, ..job("") };
    let back = plan(&back, &mapping.schema, None, &Takes { documents: true, ..Takes::default() }).unwrap();
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
    let error = plan(&job(""), &source, Some(&target), &Takes::default()).unwrap_err();
    assert!(error.to_string().contains("no column \"b\""), "{error}");
    let rules = job("[[column]]\nname = 'a'");
    let mapping = plan(&rules, &source, Some(&target), &Takes::default()).unwrap();
    let (mapped, _) = mapping.apply(documents(&[r#"{"a":1}"#]), 0).unwrap();
    assert_eq!(mapped.batch.rows[0], Row::Cells(vec![Value::text("1")]), "as the column of the target");
    assert!(plan(&job("[[column]]\nname = 'z'"), &source, Some(&target), &Takes::default()).is_err());
}

/// What becomes of a row of a table with one column `a`, on its way to a table that exists.
fn onto(from: Column, to: Kind, value: Value) -> Result<Value, String> {
    let of = |column| Schema { columns: vec![column], key: Vec::new(), is_open: false };
    let mapping = plan(&job(""), &of(from), Some(&of(Column::new("a", to))), &Takes::default()).unwrap();
    let mut batch = RowBatch::new(mapping.schema.names());
    batch.push(Row::Cells(vec![value]));
    let (mut mapped, mut rejects) = mapping.apply(batch, 0).unwrap();
    match mapped.batch.rows.pop() {
        Some(Row::Cells(mut cells)) => Ok(cells.remove(0)),
        _ => Err(rejects.remove(0).reason),
    }
}

#[test]
fn the_type_of_a_column_that_exists_decides() {
    let text = |text: &str| Value::text(text);
    let typed = |kind| Column::new("a", kind);
    let is =
        |from: Kind, to: Kind, value: Value, expected: Value| assert_eq!(onto(typed(from), to, value), Ok(expected));
    is(Kind::Text, Kind::Int32, text("1"), Value::Int(1));
    is(Kind::Int64, Kind::Text, Value::Int(1), text("1"));
    is(Kind::Text, Kind::Json, text("[1]"), Value::Json("[1]".into()));
    is(Kind::Text, Kind::Bytes, text("abcd"), text("abcd"));
    // What only the target knows is left to it.
    is(Kind::Text, Kind::Date, text("0000-00-00"), text("0000-00-00"));
    is(Kind::Int64, Kind::Bool, Value::Int(7), Value::Int(7));
    // A column that holds the same takes whatever the source has in it.
    is(Kind::Int32, Kind::Int64, text("odd"), text("odd"));
    let refused = |from: Kind, to: Kind, value: Value, expected: &str| {
        assert_eq!(onto(typed(from), to, value).unwrap_err(), format!("column a: {expected}"));
    };
    refused(Kind::Text, Kind::Int32, text("x"), "cannot make int32 of text \"x\"");
    refused(Kind::Int64, Kind::Int16, Value::Int(40_000), "cannot make int16 of an integer 40000");
    refused(Kind::Text, Kind::Decimal(Some((4, 2))), text("1.255"), "cannot make decimal(4,2) of text \"1.255\"");
    assert!(onto(typed(Kind::Text), Kind::Json, text("{")).unwrap_err().contains("no JSON"));
}

#[test]
fn a_text_that_the_sample_does_not_promise_is_refused() {
    let sampled = |kind| Column { native: Some(infer::READ_FROM_TEXT.to_owned()), ..Column::new("a", kind) };
    assert_eq!(onto(sampled(Kind::Int64), Kind::Int32, Value::text("7")), Ok(Value::Int(7)));
    assert_eq!(onto(sampled(Kind::Int64), Kind::Float64, Value::text("7.5")), Ok(Value::Float(7.5)));
    for odd in ["007", "+1", " 1"] {
        let reason = onto(sampled(Kind::Int64), Kind::Int64, Value::text(odd)).unwrap_err();
        assert!(reason.starts_with(&format!("column a: text {odd:?} is not how int64 is written")), "{reason}");
    }
    // Documents get the types that were seen too.
    let schema = Schema { columns: vec![sampled(Kind::Int64)], key: Vec::new(), is_open: false };
    let mapping = plan(&job(""), &schema, None, &Takes { documents: true, ..Takes::default() }).unwrap();
    let mut batch = RowBatch::new(schema.names());
    ["1", "007"].iter().for_each(|text| batch.push(Row::Cells(vec![Value::text(*text)])));
    let (mapped, rejects) = mapping.apply(batch, 0).unwrap();
    assert_eq!(mapped.batch.rows, [Row::Cells(vec![Value::Int(1)])]);
    assert_eq!(rejects[0].row, 1);
}

#[test]
fn a_field_with_a_dot_in_its_name_is_taken_whole() {
    let batch = documents(&[r#"{"a.b":1}"#]);
    let mapping = plan(&job(""), &infer::schema(&batch), None, &Takes::default()).unwrap();
    let (mapped, _) = mapping.apply(batch, 0).unwrap();
    assert_eq!(mapped.batch.rows, [Row::Cells(vec![Value::Int(1), Value::Null])]);
}
