//! Keeps panics of redb inside this floor.

use std::panic::{AssertUnwindSafe, catch_unwind};

use redb::Database;

use super::error::Cause;

/// Answers a panic of redb with an error.
///
/// redb checks what it reads from a damaged file in most places, and panics in some (a free page
/// that is freed, a key of the wrong length; `tests/damage.rs` meets them). Such a file must not
/// take down the thread, and with it the words on what is wrong. What redb then has in memory is
/// not built on: readers get errors, and a writer must reopen.
pub(super) fn guarded<T>(work: impl FnOnce() -> Result<T, Cause>) -> Result<T, Cause> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<String>().map(String::as_str);
        let message = message.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(Cause::broken(message.unwrap_or("nothing more is known")))
    })
}

/// Closes a database, which writes to the file, and so may panic as everything else may.
pub(super) fn close(database: Option<Database>) {
    // A file that was not closed well is repaired when it is opened.
    let _ = guarded(|| {
        drop(database);
        Ok(())
    });
}
