//! `guarded`: converts panics of redb into errors of this crate.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use redb::Database;

use crate::error::StoreCause;

thread_local! {
    /// Number of calls of [`guarded`] on this thread's stack.
    static GUARDS: Cell<usize> = const { Cell::new(0) };
}

/// Whether a panic of this thread becomes an error with its own message, so that no other message is needed.
#[must_use]
pub fn answers_panics() -> bool {
    GUARDS.get() > 0
}

/// Converts a panic of redb into an error.
///
/// redb checks most of the data that it reads from a damaged file, and panics in some cases. They are a free
/// page that is freed, and a key of the wrong length (see `tests/damage.rs`). Such a file must not end the thread, and with
/// it the error message. The memory of redb is not used any more: readers get errors, and a writer must
/// reopen.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Result<T, StoreCause>) -> Result<T, StoreCause> {
    GUARDS.set(GUARDS.get() + 1);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    GUARDS.set(GUARDS.get() - 1);
    outcome.unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<String>().map(String::as_str);
        let message = message.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(StoreCause::broken(message.unwrap_or("nothing more is known")))
    })
}

/// Closes a database, which writes to the file, and so may panic.
pub(crate) fn close(database: Option<Database>) {
    // A file that was not closed properly is repaired when it is opened.
    let _ = guarded(|| {
        drop(database);
        Ok(())
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_redb_becomes_an_error_and_is_known_to_while_it_is_told() {
        assert!(!answers_panics());
        let outcome = guarded(|| {
            assert!(answers_panics());
            let inner =
                guarded(|| -> Result<(), StoreCause> { std::panic::panic_any("no such page".to_owned()) });
            assert!(answers_panics(), "the outer one still answers");
            inner
        });
        let Err(StoreCause::Damaged(what)) = outcome else { panic!("{outcome:?}") };
        assert_eq!(what, "its structure is broken (no such page)");
        assert!(!answers_panics());
    }
}
