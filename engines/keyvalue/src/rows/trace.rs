//! The trace of a change: the last part of its row, with its length at the very end.
//!
//! It stands behind the content so that the content stays one piece of the row.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use flare_core::{Result, trace::Trace};

use super::damaged;

const LENGTH_BYTES: usize = 2;

/// A space separates the two parts: it cannot stand in the first.
pub(super) fn encoded_bytes(trace: &Trace) -> usize {
    trace.parent().len() + trace.state().map_or(0, |state| 1 + state.len()) + LENGTH_BYTES
}

pub(super) fn append(row: &mut BytesMut, trace: &Trace) {
    row.put_slice(trace.parent().as_bytes());
    if let Some(state) = trace.state() {
        row.put_u8(b' ');
        row.put_slice(state.as_bytes());
    }
    row.put_u16((encoded_bytes(trace) - LENGTH_BYTES) as u16);
}

/// Takes the trace off the end of the row. What is not a trace any more is as good as none.
pub(super) fn split_off(row: &mut Bytes) -> Result<Option<Arc<Trace>>> {
    let cut = |row: &mut Bytes, bytes: usize| {
        let at = row.len().checked_sub(bytes).ok_or_else(|| damaged("change"))?;
        Ok(row.split_off(at))
    };
    let length = cut(row, LENGTH_BYTES)?;
    let text = cut(row, usize::from(u16::from_be_bytes([length[0], length[1]])))?;
    let text = std::str::from_utf8(&text).map_err(|error| damaged("change").because(error))?;
    let (parent, state) = text.split_once(' ').map_or((text, None), |(parent, state)| (parent, Some(state)));
    Ok(Trace::parse(parent, state).map(Arc::new))
}
