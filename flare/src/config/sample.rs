//! The sample file: every key with its meaning and default.

use super::keys::{self, Key};
use super::kind::Kind;

/// The width of the lines of the sample.
const COLUMNS_MAX: usize = 100;

const HEAD: &str = "Configuration of Flare: every key with its default. A file needs only the keys that differ. \
    Flags win over environment variables, those over the file, and the file over the defaults. The variable of a key is \
    FLARE_<SECTION>_<KEY> in upper case with underscores, such as FLARE_HTTP_DEFAULT_LIMIT for `default-limit` of \
    [http]; lists are separated by commas.";

/// The commented sample of every key with its default; as a file it changes nothing.
pub fn sample() -> String {
    let mut sample = String::new();
    comment(&mut sample, HEAD);
    for section in keys::sections() {
        sample.push_str(&format!("\n# {}\n", "-".repeat(COLUMNS_MAX - 2)));
        comment(&mut sample, &section.description);
        sample.push_str(&format!("[{}]\n", section.name));
        for key in &section.keys {
            sample.push('\n');
            comment(&mut sample, &key.description);
            allowed(&mut sample, key);
            sample.push_str(&format!("{} = {}\n", key.name, key.default));
        }
    }
    sample
}

fn allowed(sample: &mut String, key: &Key) {
    match &key.kind {
        Kind::Choice(choices) => {
            for choice in choices {
                comment(sample, &format!("  {:?}: {}", choice.word, choice.meaning));
            }
        }
        Kind::Text { .. } | Kind::Secret => (),
        kind => comment(sample, &format!("Allowed: {}.", kind.allowed())),
    }
}

/// Appends the text as comment lines, wrapped at words.
fn comment(sample: &mut String, text: &str) {
    let indent = text.len() - text.trim_start().len();
    let mut line = format!("# {}", &text[..indent]);
    let mut filled = false;
    for word in text.split_whitespace() {
        if filled && line.chars().count() + 1 + word.chars().count() > COLUMNS_MAX {
            sample.push_str(&line);
            sample.push('\n');
            line = format!("# {}", &text[..indent]);
            filled = false;
        }
        if filled {
            line.push(' ');
        }
        line.push_str(word);
        filled = true;
    }
    sample.push_str(&line);
    sample.push('\n');
}
