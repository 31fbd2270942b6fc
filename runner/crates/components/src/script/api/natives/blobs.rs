//! Functions on blobs: replace Rhai's that create more than their arguments.

use rhai::{Array, Blob, Dynamic, Module};

use super::{Answer, changes, reads};
use crate::script::attempt::{ScriptAttempt, current};

pub(crate) fn register(module: &mut Module) {
    reads(module, "blob", |length: i64| blob(&current(), length, 0));
    reads(module, "blob", |length: i64, value: i64| blob(&current(), length, value));
    changes(module, "pad", |blob: &mut Blob, length: i64, value: i64| -> Answer<()> {
        let length = usize::try_from(length).unwrap_or(0);
        current().room("pad", length.saturating_sub(blob.len()))?;
        if length > blob.len() {
            blob.resize(length, byte(value));
        }
        Ok(())
    });
    reads(module, "to_array", |blob: &mut Blob| -> Answer<Array> {
        current().room("to_array", blob.len().saturating_mul(size_of::<Dynamic>()))?;
        Ok(blob.iter().map(|&byte| i64::from(byte).into()).collect())
    });
    reads(module, "as_string", |blob: Blob| -> Answer<String> {
        // An invalid UTF-8 byte becomes three bytes.
        current().room("as_string", blob.len().saturating_mul(3))?;
        Ok(String::from_utf8(blob)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    });
}

fn blob(attempt: &ScriptAttempt, length: i64, value: i64) -> Answer<Blob> {
    let length = usize::try_from(length).unwrap_or(0);
    attempt.room("blob", length)?;
    Ok(vec![byte(value); length])
}

fn byte(value: i64) -> u8 {
    value.to_le_bytes()[0]
}
