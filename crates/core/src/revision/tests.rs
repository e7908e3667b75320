use proptest::prelude::*;

use super::*;

fn format(text: &str) -> RevisionFormat {
    RevisionFormat::parse(text).unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

/// Reads a time and checks it in the form that Flare shows.
fn check(layout: &str, value: &str, expected: &str) {
    let format = format(layout);
    let revision = format.read(&JsonScalar::Text(value)).unwrap_or_else(|error| panic!("{layout:?}: {error}"));
    assert_eq!(format.render(revision), format!("\"{expected}\""), "{layout:?} {value:?}");
}

fn refuse(layout: &str, value: &str, part_of_message: &str) {
    let error = format(layout).read(&JsonScalar::Text(value)).expect_err(value).to_string();
    assert!(error.contains(part_of_message), "{layout:?} {value:?}: {error}");
}

fn refuse_format(text: &str, part_of_message: &str) {
    let error = RevisionFormat::parse(text).expect_err(text).to_string();
    assert!(error.contains(part_of_message), "{text:?}: {error}");
}

#[test]
fn integers_are_read_as_they_are_and_nothing_else_is() {
    let read = |value| RevisionFormat::Integer.read(&value);
    assert_eq!(read(JsonScalar::Integer(7)), Ok(Revision::new(7)));
    assert_eq!(read(JsonScalar::Integer(INTEGER_MIN)), Ok(Revision::new(INTEGER_MIN)));
    assert_eq!(read(JsonScalar::Integer(INTEGER_MAX)), Ok(Revision::new(INTEGER_MAX)));
    let refuse = |value, message: &str| assert_eq!(read(value).unwrap_err().to_string(), message);
    let expected = "is not an integer between -9223372036854775808 and 18446744073709551615";
    refuse(JsonScalar::Integer(INTEGER_MAX + 1), &format!("18446744073709551616 {expected}: it is out of range"));
    refuse(JsonScalar::Text("7"), &format!("\"7\" {expected}: it is a string"));
    refuse(JsonScalar::Bool(true), &format!("true {expected}: it is a boolean"));
    refuse(JsonScalar::Null, &format!("null {expected}: it is null"));
    let reason = "it is a number with a fraction or an exponent, or out of range";
    refuse(JsonScalar::Float(7.0), &format!("7.0 {expected}: {reason}"));
    assert_eq!(RevisionFormat::default().render(Revision::new(-7)), "-7");
    assert_eq!(RevisionFormat::Integer.as_str(), None);
}

#[test]
fn bytes_sort_as_revisions_do() {
    let revisions = [i128::MIN, -256, -1, 0, 1, 255, 256, i128::MAX].map(Revision::new);
    assert!(revisions.map(Revision::to_bytes).is_sorted());
    assert!(revisions.iter().all(|revision| Revision::from_bytes(revision.to_bytes()) == *revision));
}

#[test]
fn rfc3339_times_are_instants() {
    check("rfc3339", "2024-02-29T23:59:59Z", "2024-02-29T23:59:59Z");
    check("RFC3339", "1970-01-01t00:00:00z", "1970-01-01T00:00:00Z");
    check("rfc3339", "2024-01-01 00:00:00.5+01:30", "2023-12-31T22:30:00.5Z");
    check("rfc3339", "2024-01-01T00:00:00.123456789-00:00", "2024-01-01T00:00:00.123456789Z");
    check("rfc3339", "2024-01-01T00:00:00.1234567890000Z", "2024-01-01T00:00:00.123456789Z");
    check("rfc3339", "2024-01-01T00:00:00", "2024-01-01T00:00:00Z");
    check("rfc3339", "2016-12-31T23:59:60.25Z", "2016-12-31T23:59:59.999999999Z");
    check("rfc3339", "0000-01-01T00:00:00Z", "0000-01-01T00:00:00Z");
    check("rfc3339", "9999-12-31T23:59:59.999999999Z", "9999-12-31T23:59:59.999999999Z");
    let epoch = format("rfc3339").read(&JsonScalar::Text("1970-01-01T00:00:01.5Z"));
    assert_eq!(epoch, Ok(Revision::new(1_500_000_000)));
}

#[test]
fn what_is_not_rfc3339_is_refused_with_a_reason() {
    refuse("rfc3339", "2024-02-30T00:00:00Z", "the day is out of range");
    refuse("rfc3339", "2023-02-29T00:00:00Z", "the day is out of range");
    refuse("rfc3339", "2024-13-01T00:00:00Z", "the month is out of range");
    refuse("rfc3339", "2024-01-01T24:00:00Z", "the hour is out of range");
    refuse("rfc3339", "2024-01-01T00:60:00Z", "the minute is out of range");
    refuse("rfc3339", "2024-01-01T00:00:61Z", "the second is out of range");
    refuse("rfc3339", "2024-01-01T00:00:00.Z", "too few digits");
    refuse("rfc3339", "2024-01-01T00:00:00.1234567891Z", "finer than a nanosecond");
    refuse("rfc3339", "2024-01-01T00:00:00+0100", "its zone is neither Z nor");
    refuse("rfc3339", "2024-01-01T00:00:00+24:00", "its zone is neither Z nor");
    refuse("rfc3339", "2024-01-01T00:00:00ZZ", "more text after it");
    refuse("rfc3339", "2024-01-01", "it is not written so");
    refuse("rfc3339", "", "\"\" is not a time as in RFC 3339");
    refuse("rfc3339", "0000-01-01T00:00:00+00:01", "outside the years 0000 to 9999");
    refuse("rfc3339", "9999-12-31T23:59:59-00:01", "outside the years 0000 to 9999");
    let error = format("rfc3339").read(&JsonScalar::Integer(1_700_000_000)).unwrap_err().to_string();
    assert!(error.contains("1700000000 is not a time") && error.contains("it is a number"), "{error}");
    let error = format("rfc3339").read(&JsonScalar::Text(&"x".repeat(1_000_000))).unwrap_err().to_string();
    assert!(error.len() < 300, "{error}");
}

#[test]
fn strftime_patterns_are_read_by_jiff() {
    check("%Y-%m-%d %H:%M:%S", "2024-05-06 07:08:09", "2024-05-06T07:08:09Z");
    check("%Y-%m-%dT%H:%M:%S%.f%:z", "2024-05-06T07:08:09.25+01:00", "2024-05-06T06:08:09.25Z");
    check("%d/%m/%Y", "06/05/2024", "2024-05-06T00:00:00Z");
    check("%a, %d %b %Y %I:%M %p", "Mon, 06 May 2024 12:30 AM", "2024-05-06T00:30:00Z");
    check("%Y-%j", "2024-366", "2024-12-31T00:00:00Z");
    check("%s", "1700000000", "2023-11-14T22:13:20Z");
    check("%s.%f", "1700000000.5", "2023-11-14T22:13:20.5Z");
    refuse("%s", "-99999999999", "outside the years 0000 to 9999");
    refuse("%Y-%m-%d", "2024-02-30", "\"2024-02-30\" is not a time in the pattern \"%Y-%m-%d\"");
    refuse("%Y-%m-%d", "2024-02-03x", "is not a time in the pattern");
}

#[test]
fn a_strftime_pattern_that_does_not_order_times_is_refused() {
    refuse_format("%H:%M:%S", "cannot be used");
    refuse_format("%d/%m", "cannot be used");
    refuse_format("%Y-%m", "cannot be used");
    refuse_format("%Y-%m-%d %I:%M:%S", "does not keep times in order");
    refuse_format("%Y-%m-%d %M:%S", "cannot be used");
    refuse_format("%Y-%m-%d %Z", "cannot be used");
    refuse_format("%Y-%m-%d %Q", "cannot be used");
    refuse_format("%Y-%m-%d %!", "cannot be used");
    refuse_format("%", "cannot be used");
}

/// The expected times are those of Go 1.26: `time.Parse(layout, value)`, in UTC.
#[test]
fn go_layouts_read_what_go_reads() {
    check("2006-01-02T15:04:05Z07:00", "2024-05-06T07:08:09Z", "2024-05-06T07:08:09Z");
    check("2006-01-02T15:04:05Z07:00", "2024-05-06T07:08:09.123+02:00", "2024-05-06T05:08:09.123Z");
    check("2006-01-02T15:04:05.999999999Z07:00", "2024-05-06T07:08:09-03:30", "2024-05-06T10:38:09Z");
    check("2006-01-02T15:04:05.999Z0700", "2024-05-06T07:08:09,123456789-0330", "2024-05-06T10:38:09.123456789Z");
    check("2006-01-02 15:04:05.000", "2024-05-06 07:08:09.250", "2024-05-06T07:08:09.25Z");
    check("2006-01-02 15:04:05,000", "2024-05-06 07:08:09.250", "2024-05-06T07:08:09.25Z");
    check("2006-01-02 15:04:05Z07", "2024-05-06 07:08:09-03", "2024-05-06T10:08:09Z");
    check("2006-01-02 15:04:05Z070000", "2024-05-06 07:08:09+013015", "2024-05-06T05:37:54Z");
    check("2006-01-02 15:04:05Z07:00:00", "2024-05-06 07:08:09+01:30:15", "2024-05-06T05:37:54Z");
    check("2006-01-02 15:04:05 -0700", "2024-05-06 07:08:09 +2400", "2024-05-05T07:08:09Z");
    check("2006-01-02 15:04:05 -07:00", "2024-05-06 07:08:09 -00:30", "2024-05-06T07:38:09Z");
    check("2006-01-02 15:04:05 -07", "2024-05-06 07:08:09 +05", "2024-05-06T02:08:09Z");
    check("2006-01-02 15:04:05 -070000", "2024-05-06 07:08:09 +000060", "2024-05-06T07:07:09Z");
    check("2006-01-02 15:04:05 -07:00:00", "2024-05-06 07:08:09 +00:00:01", "2024-05-06T07:08:08Z");
    check("2006-01-02", "2024-05-06", "2024-05-06T00:00:00Z");
    check("2006.01.02", "2024.05.06", "2024-05-06T00:00:00Z");
    check("20060102150405", "20240506070809", "2024-05-06T07:08:09Z");
    check("1/2/06 3:4:5 pm", "5/6/68 7:8:9 pm", "2068-05-06T19:08:09Z");
    check("1/2/06 3:4:5 PM", "12/31/69 12:0:0 AM", "1969-12-31T00:00:00Z");
    check("Jan _2 2006 03:04PM", "may  6 2024 12:04PM", "2024-05-06T12:04:00Z");
    check("Monday, January 2, 2006", "wednesday, MAY 16, 2024", "2024-05-16T00:00:00Z");
    check("Mon Jan _2 15:04:05 2006", "Mon May 16 07:08:09 2024", "2024-05-16T07:08:09Z");
    check("Mon Jan _2 15:04:05 MST 2006", "Mon May  6 07:08:09 UTC 2024", "2024-05-06T07:08:09Z");
    check("Mon, 02 Jan 2006 15:04:05 MST", "Mon, 06 May 2024 07:08:09 GMT", "2024-05-06T07:08:09Z");
    check("Mon, 02 Jan 2006 15:04:05 -0700", "Mon, 06 May 2024 07:08:09 -0700", "2024-05-06T14:08:09Z");
    check("2006-01-02 15:04:05.999999999 -0700 MST", "2024-05-06 07:08:09.5 +0900 JST", "2024-05-05T22:08:09.5Z");
    check("2006-002", "2024-060", "2024-02-29T00:00:00Z");
    check("2006-002", "2023-365", "2023-12-31T00:00:00Z");
    check("2006 __2 15h", "2024   9 23h", "2024-01-09T23:00:00Z");
    check("2006-002 Jan 2", "2024-060 Feb 29", "2024-02-29T00:00:00Z");
    check("2006_2006-01-02", "2024_2023-01-02", "2023-01-02T00:00:00Z");
    check("06-01-02 at 15h", "24-05-06 at 7h", "2024-05-06T07:00:00Z");
    check("2006  01 02", "2024 05    06", "2024-05-06T00:00:00Z");
    check("2006-01-02 ", "2024-05-06", "2024-05-06T00:00:00Z");
}

#[test]
fn go_layouts_refuse_what_go_refuses() {
    refuse("2006-01-02 15:04:05.000", "2024-05-06 07:08:09.25", "too few digits");
    refuse("2006-01-02 15:04:05.000", "2024-05-06 07:08:09", "the fraction of the second is missing");
    refuse("2006-01-02", "2024-5-06", "the month is missing");
    refuse("2006-01-02", "2024-00-06", "the month is out of range");
    refuse("2006-01-02", "2024-05-32", "the day is out of range");
    refuse("2006-01-02", "2023-02-29", "the day is out of range");
    refuse("2006-01-02", "2024-05-06 ", "there is more text after it");
    refuse("2006-01-02", "24-05-06", "the year is missing");
    refuse("2006-01-02 15:04", "2024-05-06 24:00", "the hour is out of range");
    refuse("2006-01-02 15:04", "2024-05-06 7:5", "the minute is missing");
    refuse("2006-01-02 15:04Z07:00", "2024-05-06 07:05z", "the zone is not an offset as in the layout");
    refuse("2006-01-02 15:04Z07:00", "2024-05-06 07:05+0100", "the zone is not an offset as in the layout");
    refuse("2006-01-02 15:04Z07:00", "2024-05-06 07:05+25:00", "the zone is not an offset as in the layout");
    refuse("2006-01-02 3:04 PM", "2024-05-06 13:00 PM", "the hour is out of range");
    refuse("2006-01-02 3:04 PM", "2024-05-06 1:00 pm", "AM or PM is missing");
    refuse("2006-01-02 MST", "2024-05-06 ab", "the abbreviation of the zone is missing");
    refuse("Jan 2 2006", "Mai 6 2024", "a name of a month or a day is missing");
    refuse("2006-002", "2023-366", "the day of the year is out of range");
    refuse("2006-002", "2023-000", "the day of the year is out of range");
    refuse("2006-002 Jan", "2024-060 Mar", "the day of the year is not that of the month");
    refuse("2006-01-02T15", "2024-05-06 07", "\"T\" is missing");
    refuse("2006-01-02 15", "2024-05-06_07", "a space is missing");
}

#[test]
fn a_zone_name_counts_only_if_its_offset_is_known() {
    let layout = "Mon, 02 Jan 2006 15:04:05 MST";
    check(layout, "Mon, 06 May 2024 07:08:09 EST", "2024-05-06T12:08:09Z");
    check(layout, "Mon, 06 May 2024 07:08:09 GMT+3", "2024-05-06T04:08:09Z");
    check(layout, "Mon, 06 May 2024 07:08:09 -03", "2024-05-06T10:08:09Z");
    refuse(layout, "Mon, 06 May 2024 07:08:09 JST", "the zone's offset is not known: add -0700 to the layout");
    refuse(layout, "Mon, 06 May 2024 07:08:09 AKDT", "the zone's offset is not known");
    check("2006-01-02 MST -0700", "2024-05-06 AKDT -0800", "2024-05-06T08:00:00Z");
}

#[test]
fn a_layout_that_does_not_order_times_is_refused() {
    refuse_format("", "it has no year, 2006 or 06");
    refuse_format("integer", "or left out for an integer");
    refuse_format("15:04:05", "it has no year");
    refuse_format("2006", "it has no day");
    refuse_format("2006-01", "it has no day");
    refuse_format("2006-02", "it has no day");
    refuse_format("yyyy-MM-dd", "it has no year");
    refuse_format("2006-01-02 03:04:05", "the hour 03 needs PM");
    refuse_format("2006-01-02 04:05", "it has minutes but no hour");
    refuse_format("2006-01-02 15:05", "it has seconds but no minute");
    refuse_format("2006-01-02 15:04.000", "it has a fraction but no second");
    refuse_format(&"x".repeat(FORMAT_BYTES_MAX + 1), "257 bytes, at most 256");
}

#[test]
fn every_number_can_be_shown_as_a_time() {
    let show = |value| format("rfc3339").render(Revision::new(value));
    assert_eq!(show(0), "\"1970-01-01T00:00:00Z\"");
    assert_eq!(show(-1), "\"1969-12-31T23:59:59.999999999Z\"");
    assert!(show(i128::MAX).starts_with("\"+"));
    assert!(show(i128::MIN).starts_with("\"-"));
}

/// A time between the years 0000 and 9999 with an offset, as RFC 3339 writes it.
fn any_time() -> impl Strategy<Value = (Revision, String)> {
    (-62_167_132_800_i128..253_402_214_400, 0..1_000_000_000_u32, -23 * 60..=23 * 60_i32).prop_map(
        |(seconds, nanosecond, offset)| {
            let revision = Revision::new(seconds * 1_000_000_000 + i128::from(nanosecond));
            let local = Revision::new(revision.value() + i128::from(offset) * 60_000_000_000);
            let sign = if offset < 0 { '-' } else { '+' };
            let (hours, minutes) = (offset.abs() / 60, offset.abs() % 60);
            let text = rfc3339::Utc(local).to_string();
            (revision, format!("{}{sign}{hours:02}:{minutes:02}", text.trim_end_matches('Z')))
        },
    )
}

proptest! {
    #[test]
    fn revisions_are_in_the_order_of_time((one, text_of_one) in any_time(), (other, text_of_other) in any_time()) {
        for layout in ["rfc3339", "2006-01-02T15:04:05.999999999Z07:00", "%Y-%m-%dT%H:%M:%S%.f%:z"] {
            let format = format(layout);
            let read = |text: &str| format.read(&JsonScalar::Text(text)).unwrap();
            prop_assert_eq!(read(&text_of_one), one, "{} {}", layout, text_of_one);
            prop_assert_eq!(read(&text_of_one).cmp(&read(&text_of_other)), one.cmp(&other));
        }
    }

    #[test]
    fn what_is_shown_is_read_back((revision, _) in any_time()) {
        let shown = format("rfc3339").render(revision);
        let read = format("rfc3339").read(&JsonScalar::Text(shown.trim_matches('"')));
        prop_assert_eq!(read, Ok(revision));
    }

    #[test]
    fn bytes_keep_every_revision(value in any::<i128>(), other in any::<i128>()) {
        let (one, other) = (Revision::new(value), Revision::new(other));
        prop_assert_eq!(Revision::from_bytes(one.to_bytes()), one);
        prop_assert_eq!(one.to_bytes().cmp(&other.to_bytes()), one.cmp(&other));
    }

    #[test]
    fn formats_never_panic(
        text in "(2006|06|-|01|2|Jan|02|002|_2|15|03|05|\\.000|,999|PM|MST|Z07:00|-0700|%[a-zA-Z.:#]{1,2}| |\\PC){0,9}",
        value in "([0-9]{1,4}|[-+:., ]|\\PC){0,12}",
    ) {
        if let Ok(format) = RevisionFormat::parse(&text) {
            prop_assert_eq!(format.as_str(), Some(text.as_str()));
            let _ = format.read(&JsonScalar::Text(&value));
        }
    }
}
