//! Where a change came from, in the words of W3C Trace Context: what a publisher sends along and clients are passed.

/// The length of a `traceparent` of version 00.
const PARENT_BYTES: usize = 55;
/// The longest `tracestate` that is passed on, as the standard asks for.
const STATE_BYTES_MAX: usize = 512;

/// A `traceparent` that is well-formed, and the `tracestate` that came with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trace {
    parent: Box<str>,
    state: Option<Box<str>>,
}

impl Trace {
    /// None if `parent` is not a `traceparent` of version 00. A `state` that cannot be passed on is left out: without
    /// it the trace is still right.
    pub fn parse(parent: &str, state: Option<&str>) -> Option<Self> {
        let state = state.map(|state| state.trim_matches([' ', '\t'])).filter(|state| is_state(state));
        is_parent(parent).then(|| Self { parent: parent.into(), state: state.map(Into::into) })
    }

    pub fn parent(&self) -> &str {
        &self.parent
    }

    pub fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// What it costs to keep it in memory.
    pub fn memory_bytes(&self) -> usize {
        self.parent.len() + self.state.as_ref().map_or(0, |state| state.len())
    }
}

/// `00-<32 hex>-<16 hex>-<2 hex>` in lower case, where neither id is all zeros.
fn is_parent(text: &str) -> bool {
    if text.len() != PARENT_BYTES {
        return false;
    }
    let parts: Vec<&str> = text.split('-').collect();
    let [version, trace, span, flags] = parts[..] else { return false };
    let is_hex = |part: &str, length: usize| {
        part.len() == length && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_id = |part: &str, length: usize| is_hex(part, length) && part.bytes().any(|byte| byte != b'0');
    version == "00" && is_id(trace, 32) && is_id(span, 16) && is_hex(flags, 2)
}

fn is_state(text: &str) -> bool {
    (1..=STATE_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_is_taken_only_if_it_is_well_formed() {
        assert_eq!(Trace::parse(PARENT, None).unwrap().parent(), PARENT);
        for wrong in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-011",
            "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-600f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0é4736-00f067aa0ba902b-01",
        ] {
            assert_eq!(Trace::parse(wrong, None), None, "{wrong}");
        }
    }

    #[test]
    fn a_tracestate_that_cannot_be_passed_on_is_left_out() {
        let state = |text: &str| Trace::parse(PARENT, Some(text)).unwrap().state().map(str::to_owned);
        assert_eq!(state(" rojo=1,congo=t61 ").as_deref(), Some("rojo=1,congo=t61"));
        assert_eq!(state("x".repeat(512).as_str()).map(|state| state.len()), Some(512));
        for wrong in ["", "  ", "a=\u{e9}", "a=1\r\nb: 2", &"x".repeat(513)] {
            assert_eq!(state(wrong), None, "{wrong}");
        }
    }
}
