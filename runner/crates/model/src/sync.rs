//! Locks without poisoning: a lock stays usable after a panic of the thread that held it.
//!
//! The guarded value must be consistent after every statement. Then a panic leaves it consistent, and the thread
//! that panicked reports the panic.

use std::fmt;
use std::sync::{PoisonError, TryLockError};

pub use std::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

/// [`std::sync::Mutex`] without poisoning.
#[derive(Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    #[must_use]
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` if another guard exists.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        free(self.0.try_lock())
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// [`std::sync::RwLock`] without poisoning.
#[derive(Default)]
pub struct RwLock<T>(std::sync::RwLock<T>);

impl<T> RwLock<T> {
    #[must_use]
    pub const fn new(value: T) -> Self {
        Self(std::sync::RwLock::new(value))
    }

    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` if a guard that writes exists.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        free(self.0.try_read())
    }

    /// `None` if another guard exists.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        free(self.0.try_write())
    }
}

impl<T: fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The guard, unless the lock is held.
fn free<G>(tried: Result<G, TryLockError<G>>) -> Option<G> {
    match tried {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_lock_is_usable_after_a_panic_of_its_holder() {
        let (mutex, lock) = (Mutex::new(1), RwLock::new(1));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let (mut one, mut other) = (mutex.lock(), lock.write());
            (*one, *other) = (2, 3);
            panic!("with both locks held");
        }));
        assert!(panicked.is_err());
        assert_eq!((*mutex.lock(), *lock.read()), (2, 3));
        let held = mutex.try_lock();
        assert_eq!(held.as_deref(), Some(&2));
        assert!(mutex.try_lock().is_none(), "it is held");
        let reads = lock.try_read();
        assert!(reads.is_some() && lock.try_read().is_some() && lock.try_write().is_none(), "it is read");
    }
}
