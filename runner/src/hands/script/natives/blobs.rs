//! Functions on blobs that make more than they are given.

use std::rc::Rc;

use rhai::{Array, Blob, Dynamic, Engine};

use super::{Answer, changes, reads};
use crate::hands::script::attempt::Attempt;

pub(super) fn register(engine: &mut Engine, attempt: &Rc<Attempt>) {
    let of = Rc::clone(attempt);
    reads(engine, "blob", move |length: i64| blob(&of, length, 0));
    let of = Rc::clone(attempt);
    reads(engine, "blob", move |length: i64, value: i64| blob(&of, length, value));
    let of = Rc::clone(attempt);
    changes(engine, "pad", move |blob: &mut Blob, length: i64, value: i64| -> Answer<()> {
        let length = usize::try_from(length).unwrap_or(0);
        of.room("pad", length.saturating_sub(blob.len()))?;
        if length > blob.len() {
            blob.resize(length, byte(value));
        }
        Ok(())
    });
    let of = Rc::clone(attempt);
    reads(engine, "to_array", move |blob: &mut Blob| -> Answer<Array> {
        of.room("to_array", blob.len().saturating_mul(size_of::<Dynamic>()))?;
        Ok(blob.iter().map(|&byte| i64::from(byte).into()).collect())
    });
    let of = Rc::clone(attempt);
    reads(engine, "as_string", move |blob: Blob| -> Answer<String> {
        // What is no UTF-8 becomes three bytes.
        of.room("as_string", blob.len().saturating_mul(3))?;
        Ok(String::from_utf8(blob)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    });
}

fn blob(attempt: &Attempt, length: i64, value: i64) -> Answer<Blob> {
    let length = usize::try_from(length).unwrap_or(0);
    attempt.room("blob", length)?;
    Ok(vec![byte(value); length])
}

fn byte(value: i64) -> u8 {
    value.to_le_bytes()[0]
}
