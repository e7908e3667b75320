//! The known name that was probably meant.

/// A longer name is no slip of a known one, and comparing it would cost time.
const BYTES_MAX: usize = 64;

/// The known name nearest to a wrong one, if any is near enough to be a likely slip.
pub(crate) fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if wrong.len() > BYTES_MAX {
        return None;
    }
    let wrong = wrong.to_lowercase();
    let slips_max = (wrong.chars().count() / 3).max(2);
    known
        .into_iter()
        .map(|name| (strsim::osa_distance(&wrong, &name.to_lowercase()), name))
        .filter(|(slips, name)| *slips <= slips_max && *slips < name.chars().count())
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, name)| name)
}
