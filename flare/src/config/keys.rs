//! Every key of the configuration with its meaning, default and allowed values, taken from the schema of the structs,
//! so that checks, sample and reference cannot drift apart.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::Value as Json;

use super::Config;
use super::kind::Kind;

/// The beginning of the name of every variable that Flare reads.
pub const VARIABLE_PREFIX: &str = "FLARE_";

/// One section of the file.
pub struct Section {
    /// The name in the file: `http`.
    pub name: String,
    /// What it is about.
    pub description: String,
    /// Its keys, in the order of the struct.
    pub keys: Vec<Key>,
}

/// One key of a section.
pub struct Key {
    /// The name in the file: `default-limit`.
    pub name: String,
    /// Section and name: `http.default-limit`.
    pub path: String,
    /// The environment variable that overrides the file: `FLARE_HTTP_DEFAULT_LIMIT`.
    pub variable: String,
    /// What it does.
    pub description: String,
    /// The default as it stands in a file.
    pub default: String,
    /// What it may be.
    pub kind: Kind,
}

/// All sections, in the order of [`Config`].
pub fn sections() -> &'static [Section] {
    static SECTIONS: LazyLock<Vec<Section>> = LazyLock::new(read_schema);
    &SECTIONS
}

/// All keys of all sections.
pub fn all() -> impl Iterator<Item = &'static Key> {
    sections().iter().flat_map(|section| &section.keys)
}

/// The key with this section and name.
pub fn find(section: &str, name: &str) -> Option<&'static Key> {
    sections().iter().find(|known| known.name == section)?.keys.iter().find(|key| key.name == name)
}

/// The schema says what the keys are; the written default says in which order they stand, because the maps of the
/// schema are sorted by name.
fn read_schema() -> Vec<Section> {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    let schema = settings.into_generator().into_root_schema_for::<Config>().to_value();
    let defaults = toml::to_string(&Config::default()).expect("the default configuration is plain TOML");

    let mut sections: Vec<Section> = Vec::new();
    for line in defaults.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let description = text(&schema["properties"][name], "description");
            sections.push(Section { name: name.to_owned(), description, keys: Vec::new() });
        } else if let (Some(section), Some((name, default))) = (sections.last_mut(), line.split_once(" = ")) {
            let key = read_key(&schema["properties"][&section.name]["properties"][name], &section.name, name, default);
            section.keys.push(key);
        }
    }
    sections
}

fn read_key(schema: &Json, section: &str, name: &str, default: &str) -> Key {
    let variable = format!("{VARIABLE_PREFIX}{section}_{name}").to_ascii_uppercase().replace('-', "_");
    Key {
        name: name.to_owned(),
        path: format!("{section}.{name}"),
        variable,
        description: text(schema, "description"),
        default: default.to_owned(),
        kind: Kind::of(schema),
    }
}

/// A text of a schema on one line, as doc comments are wrapped.
pub(super) fn text(schema: &Json, field: &str) -> String {
    let text = schema[field].as_str().unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_the_structs_is_a_key_with_a_description() {
        let fields = serde_json::to_value(Config::default()).unwrap();
        let fields: usize =
            fields.as_object().unwrap().values().map(|section| section.as_object().unwrap().len()).sum();
        assert_eq!(all().count(), fields);
        for section in sections() {
            assert!(!section.description.is_empty(), "{}", section.name);
        }
        for key in all() {
            assert!(key.description.ends_with('.'), "{}: {:?}", key.path, key.description);
        }
    }

    #[test]
    fn every_default_is_allowed() {
        for key in all() {
            let line: toml::Table = format!("value = {}", key.default).parse().unwrap();
            assert_eq!(key.kind.check(&line["value"]), Ok(()), "{}", key.path);
        }
    }

    #[test]
    fn keys_keep_the_order_of_the_struct() {
        let names: Vec<_> = sections().iter().map(|section| section.name.as_str()).collect();
        let expected = ["http", "repository", "task", "aws", "delivery", "node", "domain", "log", "security"];
        assert_eq!(names, expected);
        assert_eq!(sections()[0].keys[0].path, "http.addr");
        assert_eq!(find("http", "default-limit").unwrap().variable, "FLARE_HTTP_DEFAULT_LIMIT");
        assert!(find("http", "path").is_none());
    }
}
