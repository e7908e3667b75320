//! Lengths of time as people write them: `500ms`, `15s`, `2m`, `1h`.

use std::time::Duration;

/// From long to short, in milliseconds.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Whole numbers with one unit only.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, size) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(size).map(Duration::from_millis)
}

/// In the longest unit that divides it.
pub(crate) fn format(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let exact = UNITS.into_iter().find(|(_, size)| millis > 0 && millis.is_multiple_of(*size));
    let (unit, size) = exact.unwrap_or(("ms", 1));
    format!("{}{unit}", millis / size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written() {
        let check = |text: &str, millis: u64, written: &str| {
            let duration = parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((duration, &*format(duration)), (Duration::from_millis(millis), written));
        };
        check("500ms", 500, "500ms");
        check("15s", 15_000, "15s");
        check("60s", 60_000, "1m");
        check("1h", 3_600_000, "1h");
        check("1500ms", 1_500, "1500ms");
        check("0s", 0, "0ms");
        for wrong in
            ["", "s", "5", "1.5s", "-1s", "+1s", "5 s", "1h30m", "5S", "99999999999999999999s", "9999999999999999h"]
        {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
