//! What a filter looks at: the documents of one change as values of CEL, built once for all filters.

use std::collections::HashMap;

use cel::common::{
    types::{CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString},
    value::Val,
};
use serde_json::Value as Json;

use crate::document::Action;

/// What a value takes besides its text: about what the library allocates for it.
const VALUE_BYTES: u64 = 32;

/// One change, as filters see it.
#[derive(Debug)]
pub struct Subject {
    current: Box<dyn Val>,
    previous: Box<dyn Val>,
    action: CelString<'static>,
    id: CelString<'static>,
    measure: Measure,
}

/// How large the documents are, which bounds what an evaluation can cost.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Measure {
    /// The larger of the two documents.
    pub document: u64,
    /// The largest thing in them that a loop can stop at: an item of an array, or a name.
    pub element: u64,
    /// The longest text in them, or the URL.
    pub text: u64,
}

impl Measure {
    /// Most documents are smaller in every respect.
    pub const USUAL: Self = Self { document: 16 << 10, element: 16 << 10, text: 16 << 10 };

    pub fn is_usual(self) -> bool {
        let Self { document, element, text } = Self::USUAL;
        self.document <= document && self.element <= element && self.text <= text
    }
}

impl Subject {
    /// `current` and `previous` are documents as they were taken in; one that is not JSON counts as absent.
    ///
    /// A JSON integer that fits 64 bits with a sign is an int of CEL, every other number a double.
    pub fn new(id: &str, action: Action, current: Option<&[u8]>, previous: Option<&[u8]>) -> Self {
        let mut measure = Measure { text: id.len() as u64, ..Measure::default() };
        let mut read = |json: Option<&[u8]>| -> Box<dyn Val> {
            match json.and_then(|json| serde_json::from_slice(json).ok()) {
                Some(json) => {
                    let (value, bytes) = convert(json, &mut measure);
                    measure.document = measure.document.max(bytes);
                    value
                }
                None => Box::new(CelNull),
            }
        };
        let (current, previous) = (read(current), read(previous));
        Self {
            current,
            previous,
            action: CelString::from(action.as_str().to_owned()),
            id: CelString::from(id.to_owned()),
            measure,
        }
    }

    pub(super) fn measure(&self) -> Measure {
        self.measure
    }

    pub(super) fn variable(&self, name: &str) -> Option<&dyn Val> {
        match name {
            "current" => Some(&*self.current),
            "previous" | "state" => Some(&*self.previous),
            "action" => Some(&self.action),
            "id" => Some(&self.id),
            _ => None,
        }
    }
}

/// The value, and about how many bytes it takes.
fn convert(json: Json, measure: &mut Measure) -> (Box<dyn Val>, u64) {
    match json {
        Json::Null => (Box::new(CelNull), VALUE_BYTES),
        Json::Bool(value) => (Box::new(CelBool::from(value)), VALUE_BYTES),
        Json::Number(number) => match number.as_i64() {
            Some(value) => (Box::new(CelInt::from(value)), VALUE_BYTES),
            None => (Box::new(CelDouble::from(number.as_f64().unwrap_or(f64::NAN))), VALUE_BYTES),
        },
        Json::String(text) => {
            let length = text.len() as u64;
            measure.text = measure.text.max(length);
            (Box::new(CelString::from(text)), VALUE_BYTES + length)
        }
        Json::Array(items) => {
            let mut bytes = VALUE_BYTES;
            let mut list = Vec::with_capacity(items.len());
            for item in items {
                let (item, item_bytes) = convert(item, measure);
                measure.element = measure.element.max(item_bytes);
                bytes += item_bytes;
                list.push(item);
            }
            (Box::new(CelList::from(list)), bytes)
        }
        Json::Object(members) => {
            let mut bytes = VALUE_BYTES;
            let mut map = HashMap::with_capacity(members.len());
            for (name, member) in members {
                let name_bytes = VALUE_BYTES + name.len() as u64;
                measure.text = measure.text.max(name.len() as u64);
                measure.element = measure.element.max(name_bytes);
                let (member, member_bytes) = convert(member, measure);
                bytes += name_bytes + member_bytes;
                map.insert(CelMapKey::from(name), member);
            }
            (Box::new(CelMap::from(map)), bytes)
        }
    }
}
