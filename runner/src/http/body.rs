//! Request body: is read up to a size, within a memory limit and a time limit.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::StatusCode;
use hyper::body::{Body as _, Bytes, Incoming};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

use super::response::HttpRefusal;
use crate::connection_limit::ConnectionPermit;
use tidegate_model::format_size;

/// How long the next piece of a body may take to arrive …
const PIECE_PATIENCE: Duration = Duration::from_secs(15);
/// … and the whole body.
const BODY_PATIENCE: Duration = Duration::from_mins(5);

/// How long a request waits for memory for its body.
const ROOM_PATIENCE: Duration = Duration::from_secs(10);

/// A whole body, and its memory permit.
pub(crate) struct WholeBody {
    pub(crate) bytes: Bytes,
    _room: Option<OwnedSemaphorePermit>,
}

/// Reads at most `most` bytes, a limit that `whose` names. A body whose declared length exceeds it is not
/// read.
pub(crate) async fn collect(
    mut body: Incoming,
    (whose, most): (&str, usize),
    room: &Arc<Semaphore>,
    place: &ConnectionPermit,
) -> Result<WholeBody, HttpRefusal> {
    if body.size_hint().lower() > most as u64 {
        return Err(too_large(whose, most));
    }
    let deadline = Instant::now() + BODY_PATIENCE;
    let (mut first, mut rest) = (Bytes::new(), Vec::new());
    let mut taken: Option<OwnedSemaphorePermit> = None;
    loop {
        let patience = deadline.min(Instant::now() + PIECE_PATIENCE);
        let frame = match timeout_at(patience, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) => {
                return Err(HttpRefusal::wrong(format!("the body broke off: {error}")).closing());
            }
            Ok(None) => break,
            Err(_) => {
                let error = "the body does not arrive; nothing was accepted";
                return Err(HttpRefusal::new(StatusCode::REQUEST_TIMEOUT, error).closing());
            }
        };
        let Ok(piece) = frame.into_data() else { continue };
        if first.len() + rest.len() + piece.len() > most {
            return Err(too_large(whose, most));
        }
        let more = reserve(room, piece.len())?;
        match &mut taken {
            Some(taken) => taken.merge(more),
            None => taken = Some(more),
        }
        if first.is_empty() && rest.is_empty() {
            first = piece;
        } else {
            if rest.is_empty() {
                rest.extend_from_slice(&std::mem::take(&mut first));
            }
            rest.extend_from_slice(&piece);
        }
    }
    place.work();
    let bytes = if rest.is_empty() { first } else { Bytes::from(rest) };
    Ok(WholeBody { bytes, _room: taken })
}

/// Reserves `bytes` for parsing a whole body. Waiting is safe, since the holders need no more memory to
/// finish.
pub(crate) async fn reserve_parsed(
    parsed: &Arc<Semaphore>,
    bytes: usize,
) -> Result<OwnedSemaphorePermit, HttpRefusal> {
    let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
    let room = timeout(ROOM_PATIENCE, Arc::clone(parsed).acquire_many_owned(permits)).await;
    room.ok().and_then(Result::ok).ok_or_else(full)
}

/// No request waits for memory while it holds half a body, so no two can block each other.
fn reserve(room: &Arc<Semaphore>, bytes: usize) -> Result<OwnedSemaphorePermit, HttpRefusal> {
    let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
    Arc::clone(room).try_acquire_many_owned(permits).map_err(|_| full())
}

fn full() -> HttpRefusal {
    let error = "the memory limit for bodies is reached; nothing was accepted";
    HttpRefusal::later(StatusCode::SERVICE_UNAVAILABLE, error).closing()
}

fn too_large(whose: &str, most: usize) -> HttpRefusal {
    let error = format!("the body exceeds {} {whose}", format_size(most as u64));
    HttpRefusal::new(StatusCode::PAYLOAD_TOO_LARGE, error).closing()
}
