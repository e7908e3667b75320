//! The shapes of the API's JSON, and their way into the types of the domain.
//!
//! What a client sends is read into a shape of its own, whose schema is in the OpenAPI page, and then turned into
//! domain types. A wrong shape (not JSON, a wrong type, an unknown field) is 400; a right shape with a value that
//! cannot be is 422.

pub(crate) mod delivery;
pub(crate) mod document;
pub(crate) mod duration;
pub(crate) mod egress;
pub(crate) mod endpoint;
pub(crate) mod filter;
pub(crate) mod json;
pub(crate) mod life;
pub(crate) mod members;
pub(crate) mod overview;
pub(crate) mod page;
pub(crate) mod passive;
pub(crate) mod replay;
pub(crate) mod resource;
pub(crate) mod secret;
pub(crate) mod subscription;
pub(crate) mod token;

/// A value that cannot be: the field, the value and what is allowed. Which thing it spoils is known to the caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refusal(pub String);

impl Refusal {
    /// The value of `field` is not what is allowed.
    pub fn of(field: &str, value: impl std::fmt::Debug, allowed: impl std::fmt::Display) -> Self {
        Self(format!("{field} is {}, it must be {allowed}", excerpt(&format!("{value:?}"))))
    }

    /// What the domain says about `field`; such messages repeat the value themselves.
    pub fn because(field: &str, reason: impl std::fmt::Display) -> Self {
        Self(format!("{field}: {reason}"))
    }
}

/// How much of a value a message repeats.
const EXCERPT_CHARS_MAX: usize = 100;

/// The start of a text of any length, for a message.
pub(crate) fn excerpt(text: &str) -> String {
    match text.char_indices().nth(EXCERPT_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
