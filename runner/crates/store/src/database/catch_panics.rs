//! Keeps panics of redb inside this crate.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use redb::Database;

use crate::error::Cause;

thread_local! {
    /// How many calls of [`guarded`] this thread is in.
    static GUARDS: Cell<usize> = const { Cell::new(0) };
}

/// Whether a panic of this thread becomes an error with words of its own, so that no other words are needed.
#[must_use]
pub fn answers_panics() -> bool {
    GUARDS.get() > 0
}

/// Answers a panic of redb with an error.
///
/// redb checks what it reads from a damaged file in most places, and panics in some (a free page
/// that is freed, a key of the wrong length; `tests/damage.rs` meets them). Such a file must not
/// take down the thread, and with it the words on what is wrong. What redb then has in memory is
/// not built on: readers get errors, and a writer must reopen.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Result<T, Cause>) -> Result<T, Cause> {
    GUARDS.set(GUARDS.get() + 1);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    GUARDS.set(GUARDS.get() - 1);
    outcome.unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<String>().map(String::as_str);
        let message = message.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(Cause::broken(message.unwrap_or("nothing more is known")))
    })
}

/// Closes a database, which writes to the file, and so may panic as everything else may.
pub(crate) fn close(database: Option<Database>) {
    // A file that was not closed well is repaired when it is opened.
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
            let inner = guarded(|| -> Result<(), Cause> { std::panic::panic_any("no such page".to_owned()) });
            assert!(answers_panics(), "the outer one still answers");
            inner
        });
        let Err(Cause::Damaged(what)) = outcome else { panic!("{outcome:?}") };
        assert_eq!(what, "its structure is broken (no such page)");
        assert!(!answers_panics());
    }
}
