//! The reference page of the configuration.

use super::keys::{self, Key};
use super::kind::Kind;

const HEAD: &str = "<!-- Generated from the structs in flare/src/config by the tests of `flare`. Do not edit. -->

# Configuration

Flare reads a TOML file: the one of `--config`, else of `FLARE_CONFIG`, else `flare.toml` in the folder in which it is
started, if there is one. `flare config` prints a sample with every key and its default; `flare config --check FILE` says
what is wrong with a file, with line and column.

Flags win over environment variables, those over the file, and the file over the defaults. Unknown keys and unknown
`FLARE_` variables are errors. In a variable, lists are separated by commas.

Durations are whole numbers with units: `500ms`, `1s`, `15m`, `72h`, `7d`, `1h30m`. Sizes are whole numbers of bytes, alone or
with a unit: `64KiB`, `1MiB`, `10MB`.
";

/// The page `docs/reference/config.md`.
pub fn reference() -> String {
    let mut page = HEAD.to_owned();
    for section in keys::sections() {
        page.push_str(&format!("\n## [{}]\n\n{}\n\n", section.name, section.description));
        page.push_str("| key | default | what it does |\n|---|---|---|\n");
        for key in &section.keys {
            page.push_str(&row(key));
        }
    }
    page
}

fn row(key: &Key) -> String {
    let meaning = format!("{} {}", key.description, allowed(&key.kind));
    let meaning = cell(&meaning);
    format!("| `{}`<br>`{}` | `{}` | {} |\n", key.name, key.variable, cell(&key.default), meaning.trim_end())
}

fn allowed(kind: &Kind) -> String {
    match kind {
        Kind::Choice(choices) => {
            let choices = choices.iter().map(|choice| format!("`{}`: {}", choice.word, choice.meaning));
            format!("{}.", choices.collect::<Vec<_>>().join("; "))
        }
        Kind::Text { .. } | Kind::Secret => String::new(),
        kind => format!("Allowed: {}.", kind.allowed()),
    }
}

/// The text within a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}
