//! The known name that was probably meant.

/// The known name nearest to a wrong one, if any is near enough to be a likely slip.
pub fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wrong = wrong.to_ascii_lowercase();
    let slips_max = (wrong.chars().count() / 3).max(2);
    known
        .into_iter()
        .map(|name| (strsim::osa_distance(&wrong, &name.to_ascii_lowercase()), name))
        .filter(|(slips, name)| *slips <= slips_max && *slips < name.chars().count())
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_name_and_a_stranger_finds_none() {
        let check = |wrong: &str, expected: Option<&str>| {
            assert_eq!(nearest(wrong, ["addr", "timeout", "default-limit", "key"]), expected, "{wrong}");
        };
        check("adr", Some("addr"));
        check("Addr", Some("addr"));
        check("address", None);
        check("timeuot", Some("timeout"));
        check("default_limit", Some("default-limit"));
        check("defaultLimit", Some("default-limit"));
        check("completely-else", None);
        check("", None);
        check("abc", None);
    }
}
