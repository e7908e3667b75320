use flare_contract::make;
use flare_toolkit::rows::{decode_outlet, encode_outlet};
use mongodb::bson::{Document, doc};

use super::*;

#[test]
fn every_revision_reads_back() {
    let long = 10i128.pow(34);
    for value in [0, 1, -1, 7, i64::MIN.into(), u64::MAX.into(), long - 1, 1 - long, long, -long, i128::MAX, i128::MIN]
    {
        let mut row = RawDocumentBuf::new();
        append_revision(&mut row, Revision::new(value));
        assert_eq!(read_revision(&row).unwrap(), Revision::new(value));
    }
}

#[test]
fn a_revision_is_the_number_that_a_shell_shows() {
    for value in [0, 42, -42, 1_700_000_000_000_000_000_000] {
        let mut row = RawDocumentBuf::new();
        append_revision(&mut row, Revision::new(value));
        assert_eq!(Document::try_from(&row).unwrap().get("revision").unwrap().to_string(), value.to_string());
    }
}

#[test]
fn times_keep_their_microseconds_also_before_1970() {
    for micros in [0, 1, -1, 999, 1_700_000_000_123_456, -1_000_001] {
        let at = Timestamp::from_microsecond(micros).unwrap();
        let mut row = RawDocumentBuf::new();
        append_time(&mut row, UPDATED_AT, at);
        assert_eq!(read_time(&row, UPDATED_AT).unwrap(), at);
    }
}

#[test]
fn content_is_text_where_it_can_be_and_comes_back_byte_for_byte() {
    for bytes in [&b"{\"a\": 1}"[..], b"", b"\xff\x00", "{\"n\":\"\u{0}\u{e9}\"}".as_bytes()] {
        let mut row = RawDocumentBuf::new();
        append_bytes(&mut row, cstr!("content"), bytes);
        assert_eq!(read_bytes(&row, "content").as_deref(), Some(bytes));
    }
}

#[test]
fn an_outlet_has_readable_members_and_comes_back_whole() {
    let stream = make::stream("http://api.test/users/{id}");
    let outlet = make::outlet(&stream, Sequence(3));
    let json = encode_outlet(&outlet).unwrap();
    let row = body::entity_row(doc! { "_id": outlet.id.to_string(), "version": 9i64 }, &json).unwrap();
    assert_eq!(row.get_str("name").unwrap(), "wishlist");
    assert!(row.get_i64("createdAt").is_ok());
    let names: Vec<_> = row.iter().map(|member| member.unwrap().0.as_str().to_owned()).collect();
    assert!(names.iter().all(|name| name == "_id" || !name.contains('_')), "{names:?}");
    let read = decode_outlet(outlet.id, &stream, &body::entity_json(&row).unwrap()).unwrap();
    assert_eq!(format!("{read:?}"), format!("{outlet:?}"));
}
