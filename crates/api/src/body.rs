//! Reads the body of a request: at most so many bytes, at least so fast.

use std::{pin::pin, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, header};
use http_body::Body;
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout_at};

use crate::{
    error::{self, ApiError},
    settings::ApiSettings,
};

/// Memory that is set aside on the word of a `Content-Length`; more only when the bytes are there.
const TRUSTED_BYTES_MAX: usize = 64 << 10;

#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyLimits {
    pub bytes_max: usize,
    /// The longest wait for more.
    pub frame_timeout: Duration,
    pub timeout: Duration,
}

impl BodyLimits {
    pub fn single(settings: &ApiSettings) -> Self {
        Self {
            bytes_max: settings.body_bytes_max,
            frame_timeout: settings.read_timeout,
            timeout: settings.body_timeout,
        }
    }

    pub fn batch(settings: &ApiSettings) -> Self {
        Self { bytes_max: settings.batch_bytes_max, ..Self::single(settings) }
    }

    fn too_large(&self) -> ApiError {
        let detail = format!("the body is larger than {} bytes, the most that is allowed", self.bytes_max);
        unread(ApiError::new(error::TOO_LARGE, detail))
    }
}

/// The whole body in memory of its own: the connection's buffer, of which the frames are parts, is not kept alive.
pub(crate) async fn collect<B>(body: B, limits: BodyLimits) -> Result<Bytes, ApiError>
where
    B: Body<Data = Bytes>,
{
    let announced = body.size_hint().lower();
    if announced > limits.bytes_max as u64 {
        return Err(limits.too_large());
    }
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let mut body = pin!(body);
    let end = Instant::now() + limits.timeout;
    let mut collected = Vec::with_capacity((announced as usize).min(TRUSTED_BYTES_MAX));
    loop {
        let patience = end.min(Instant::now() + limits.frame_timeout);
        let frame = match timeout_at(patience, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(_))) => {
                let detail = format!("the connection failed after {} bytes of the body", collected.len());
                return Err(unread(ApiError::new(error::BODY_INTERRUPTED, detail)));
            }
            Ok(None) => return Ok(collected.into_boxed_slice().into()),
            Err(_) => return Err(too_slow(&limits, collected.len(), Instant::now() >= end)),
        };
        let Ok(bytes) = frame.into_data() else { continue };
        if collected.len() + bytes.len() > limits.bytes_max {
            return Err(limits.too_large());
        }
        collected.extend_from_slice(&bytes);
    }
}

fn too_slow(limits: &BodyLimits, bytes: usize, is_whole: bool) -> ApiError {
    let detail = if is_whole {
        format!("only {bytes} bytes of the body came within {:?}", limits.timeout)
    } else {
        format!("nothing came for {:?} after {bytes} bytes of the body", limits.frame_timeout)
    };
    unread(ApiError::new(error::TOO_SLOW, detail))
}

/// The rest of the body is not read, so the connection ends with this answer: a client that is not told would send its
/// next request into it.
fn unread(error: ApiError) -> ApiError {
    error.with_header(header::CONNECTION, HeaderValue::from_static("close"))
}
