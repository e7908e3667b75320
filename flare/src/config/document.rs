//! The text of a configuration file: TOML with positions, held against the known keys.

use std::collections::BTreeMap;

use toml::Value;
use toml::de::{DeTable, DeValue};

use super::keys::{self, Key, Section};
use super::problem::{Origin, Problem};
use super::suggest::nearest;

/// A value that someone set.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The value, checked.
    pub value: Value,
    /// Who set it.
    pub origin: Origin,
}

/// What was set, by `section.key`.
pub type Settings = BTreeMap<String, Setting>;

/// Reads the settings of a file's text into `settings`; returns everything that is wrong with it.
pub fn read(name: &str, text: &str, settings: &mut Settings) -> Vec<Problem> {
    let mut reader = Reader { name, text, settings, problems: Vec::new() };
    reader.document();
    reader.problems
}

struct Reader<'a> {
    name: &'a str,
    text: &'a str,
    settings: &'a mut Settings,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn document(&mut self) {
        let (document, errors) = DeTable::parse_recoverable(self.text);
        if !errors.is_empty() {
            // What follows a syntax error is read by guessing, so its keys and values are not judged.
            for error in &errors {
                let at = error.span().map_or(self.text.len(), |span| span.start);
                self.refuse(at, format!("not TOML: {}", error.message()));
            }
            return;
        }
        for (name, value) in document.get_ref() {
            let at = name.span().start;
            match keys::sections().iter().find(|section| section.name == **name.get_ref()) {
                Some(section) => self.section(section, at, value.get_ref()),
                None => self.refuse(at, unknown_section(name.get_ref(), value.get_ref().is_table())),
            }
        }
    }

    fn section(&mut self, section: &'static Section, at: usize, value: &DeValue<'_>) {
        let Some(table) = value.as_table() else {
            let name = &section.name;
            return self
                .refuse(at, format!("`{name}` is a section, not a value; write [{name}] and its keys below it"));
        };
        for (name, value) in table {
            match section.keys.iter().find(|key| key.name == **name.get_ref()) {
                Some(key) => self.value(key, value.span().start, value.get_ref()),
                None => self.refuse(name.span().start, unknown_key(name.get_ref(), section)),
            }
        }
    }

    fn value(&mut self, key: &Key, at: usize, value: &DeValue<'_>) {
        let plain = plain(value).map_err(|reason| format!("{reason}; expected {}", key.kind.allowed()));
        let checked = plain.and_then(|value| key.kind.check(&value).map(|()| value));
        match checked {
            Ok(value) => {
                let setting = Setting { value, origin: self.origin(at) };
                self.settings.insert(key.path.clone(), setting);
            }
            Err(reason) => self.refuse(at, format!("`{}` {reason}", key.path)),
        }
    }

    fn refuse(&mut self, at: usize, message: String) {
        self.problems.push(Problem { origin: self.origin(at), message });
    }

    fn origin(&self, at: usize) -> Origin {
        let (line, column) = position(self.text, at);
        Origin::File { name: self.name.to_owned(), line, column }
    }
}

/// Line and column, counted from 1, of a byte of the text.
pub fn position(text: &str, at: usize) -> (usize, usize) {
    let before = &text[..text.floor_char_boundary(at)];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.bytes().filter(|byte| *byte == b'\n').count();
    (line + 1, before[line_start..].chars().count() + 1)
}

/// The value without positions.
fn plain(value: &DeValue<'_>) -> Result<Value, String> {
    Ok(match value {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Boolean(truth) => Value::Boolean(*truth),
        DeValue::Datetime(time) => Value::Datetime(*time),
        DeValue::Integer(number) => {
            let parsed = i64::from_str_radix(number.as_str(), number.radix());
            Value::Integer(parsed.map_err(|_| format!("is {number}, which is too large a number"))?)
        }
        DeValue::Float(number) => {
            let parsed = number.as_str().parse();
            Value::Float(parsed.map_err(|_| format!("is {number}, which is not a number"))?)
        }
        DeValue::Array(values) => {
            let values = values.iter().map(|value| plain(value.get_ref()));
            Value::Array(values.collect::<Result<_, _>>()?)
        }
        // No key is a table, so what is inside of one does not matter.
        DeValue::Table(_) => Value::Table(toml::Table::new()),
    })
}

fn unknown_section(name: &str, is_table: bool) -> String {
    let sections = keys::sections().iter().map(|section| section.name.as_str());
    if is_table {
        return match nearest(name, sections.clone()) {
            Some(near) => format!("unknown section `{name}`; did you mean [{near}]?"),
            None => format!("unknown section `{name}`; the sections are {}", listed(sections)),
        };
    }
    let near = nearest(name, keys::all().map(|key| key.name.as_str()));
    let owners = keys::all().filter(|key| Some(key.name.as_str()) == near).map(|key| format!("`{}`", key.path));
    let owners: Vec<_> = owners.collect();
    match owners.as_slice() {
        [] => format!("unknown key `{name}` outside of a section; the sections are {}", listed(sections)),
        owners => format!("`{name}` stands outside of a section; did you mean {}?", owners.join(" or ")),
    }
}

fn unknown_key(name: &str, section: &Section) -> String {
    let wrong = format!("unknown key `{}.{name}`", section.name);
    let names = section.keys.iter().map(|key| key.name.as_str());
    if let Some(near) = nearest(name, names.clone()) {
        return format!("{wrong}; did you mean `{near}`?");
    }
    match keys::all().find(|key| key.name == name) {
        Some(elsewhere) => format!("{wrong}; did you mean `{}`?", elsewhere.path),
        None => format!("{wrong}; the keys of [{}] are {}", section.name, listed(names)),
    }
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
