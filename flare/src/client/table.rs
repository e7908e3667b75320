//! Tables for people.

use serde_json::Value;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::terminal::harmless;

/// The space between columns.
const GAP: &str = "  ";

/// A column is not made narrower than this.
const COLUMN_WIDTH_MIN: usize = 8;

/// A column of a table of JSON objects.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its head.
    pub title: &'static str,
    /// The field it shows, as a JSON pointer.
    pub pointer: &'static str,
    /// Whether it is shown in full even where the table is too wide: ids are made to be copied.
    pub whole: bool,
}

/// The objects as a table that fits the width, if there is one; columns without any value are left out.
pub fn table(columns: &[Column], objects: &[Value], width: Option<usize>) -> String {
    let cells = |column: &Column| {
        let values = objects.iter().map(|object| object.pointer(column.pointer).map_or(String::new(), cell));
        std::iter::once(column.title.to_owned()).chain(values).collect::<Vec<_>>()
    };
    let columns: Vec<(bool, Vec<String>)> = columns
        .iter()
        .map(|column| (column.whole, cells(column)))
        .filter(|(_, cells)| cells[1..].iter().any(|cell| !cell.is_empty()))
        .collect();
    let mut widths: Vec<usize> =
        columns.iter().map(|(_, cells)| cells.iter().map(|c| c.width()).max().unwrap_or(0)).collect();
    if let Some(width) = width {
        let whole: Vec<bool> = columns.iter().map(|(whole, _)| *whole).collect();
        shrink(&mut widths, &whole, width);
    }
    let row = |row: usize| {
        let cells = columns.iter().zip(&widths).map(|((_, cells), width)| fit(&cells[row], *width));
        cells.collect::<Vec<_>>().join(GAP).trim_end().to_owned()
    };
    (0..=objects.len()).map(row).collect::<Vec<_>>().join("\n")
}

/// Makes the columns fit: those at the end that have no room at all are dropped, then the widest one that may be
/// narrowed is, step by step. Nothing more is done for a single column that is shown in full.
fn shrink(widths: &mut Vec<usize>, whole: &[bool], room: usize) {
    let least = |(width, whole): (&usize, &bool)| if *whole { *width } else { COLUMN_WIDTH_MIN.min(*width) };
    while widths.len() > 1 && widths.iter().zip(whole).map(least).sum::<usize>() + gaps(widths) > room {
        widths.pop();
    }
    while widths.iter().sum::<usize>() + gaps(widths) > room {
        let narrowable = widths.iter_mut().zip(whole).filter(|(width, whole)| !**whole && **width > COLUMN_WIDTH_MIN);
        match narrowable.map(|(width, _)| width).max() {
            Some(widest) => *widest -= 1,
            None => return,
        }
    }
}

fn gaps(widths: &[usize]) -> usize {
    GAP.len() * widths.len().saturating_sub(1)
}

/// The text in exactly so many columns, its end replaced by `…` where it is too long.
fn fit(text: &str, width: usize) -> String {
    let mut fitted = text.to_owned();
    if text.width() > width {
        fitted.clear();
        let mut used = 1;
        for c in text.chars() {
            used += c.width().unwrap_or(0);
            if used > width {
                break;
            }
            fitted.push(c);
        }
        fitted.push('…');
    }
    let padding = width.saturating_sub(fitted.width());
    fitted + &" ".repeat(padding)
}

fn cell(value: &Value) -> String {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    harmless(&text.replace(['\n', '\t'], " ")).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 3] = [
        Column { title: "ID", pointer: "/id", whole: true },
        Column { title: "NONE", pointer: "/none", whole: false },
        Column { title: "ENDPOINT", pointer: "/endpoint/url", whole: false },
    ];

    fn objects() -> Vec<Value> {
        vec![
            serde_json::json!({"id": "0123456789", "endpoint": {"url": "http://a.com/users/{id}"}}),
            serde_json::json!({"id": 7, "endpoint": {"url": "日本語\u{1b}日本語日本語日本語"}, "none": null}),
        ]
    }

    #[test]
    fn a_table_has_the_columns_that_have_values() {
        insta::assert_snapshot!(table(&COLUMNS, &objects(), None), @r"
        ID          ENDPOINT
        0123456789  http://a.com/users/{id}
        7           日本語\u{1b}日本語日本語日本語
        ");
    }

    #[test]
    fn a_table_fits_the_terminal() {
        for width in 10..40 {
            let table = table(&COLUMNS, &objects(), Some(width));
            assert!(table.lines().all(|line| line.width() <= width), "{width}\n{table}");
        }
        insta::assert_snapshot!(table(&COLUMNS, &objects(), Some(25)), @r"
        ID          ENDPOINT
        0123456789  http://a.com…
        7           日本語\u{1b}…
        ");
        let narrow = table(&COLUMNS, &objects(), Some(5));
        assert!(narrow.contains("0123456789"));
    }
}
