//! `Budget`: counts the memory of a thread in the allocator of the process. An attempt of a script thus fails
//! before the process is in danger.
//!
//! The library declares the allocator, so that each program that links it has it: the binary, its benches and
//! its tests.
//!
//! The count costs one addition in thread-local memory per allocation. A thread that frees the memory of
//! another one is credited with it. No attempt is affected, since an attempt runs on one thread.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;

use mimalloc::MiMalloc;

/// More than a thread can allocate.
const UNLIMITED: i64 = i64::MAX / 2;

thread_local! {
    /// The bytes that this thread may still allocate. Plain memory without a destructor, so that the
    /// allocator can use it at any time in a thread's life.
    static LEFT: Cell<i64> = const { Cell::new(UNLIMITED) };
}

#[cfg(test)]
thread_local! {
    /// The minimum of [`LEFT`].
    static LEAST: Cell<i64> = const { Cell::new(UNLIMITED) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The allocator of the process.
struct Counting;

fn take(bytes: usize) {
    LEFT.set(LEFT.get().wrapping_sub(bytes.cast_signed() as i64));
    #[cfg(test)]
    LEAST.set(LEAST.get().min(LEFT.get()));
}

fn give_back(bytes: usize) {
    LEFT.set(LEFT.get().wrapping_add(bytes.cast_signed() as i64));
}

#[expect(
    unsafe_code,
    reason = "an allocator cannot be written otherwise; each function passes its arguments on"
)]
// SAFETY: Every call is passed to mimalloc unchanged, which fulfils the contract of an allocator. The added
// code neither allocates, nor panics, nor accesses the memory in question.
unsafe impl GlobalAlloc for Counting {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: The caller fulfils the contract, which is that of mimalloc.
        unsafe { MiMalloc.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: As in `alloc`.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        give_back(layout.size());
        // SAFETY: `pointer` is from one of these functions, and so from mimalloc.
        unsafe { MiMalloc.dealloc(pointer, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        give_back(layout.size());
        take(size);
        // SAFETY: As in `dealloc`.
        unsafe { MiMalloc.realloc(pointer, layout, size) }
    }
}

/// The bytes that this thread may still allocate: negative once it exceeds its budget.
#[inline]
pub(crate) fn left() -> i64 {
    LEFT.get()
}

/// The minimum of the bytes left while `work` ran, for tests.
#[cfg(test)]
pub(crate) fn least_left(work: impl FnOnce()) -> i64 {
    LEAST.set(UNLIMITED);
    work();
    LEAST.get()
}

/// The allocations of `work` are on no budget.
pub(crate) fn uncounted<T>(work: impl FnOnce() -> T) -> T {
    let before = LEFT.get();
    let made = work();
    LEFT.set(before);
    made
}

/// The bytes that this thread may allocate until this is dropped. Budgets nest: an inner one has its own
/// bytes, and the bytes that remain allocated are charged to the outer one.
#[derive(Debug)]
pub(crate) struct Budget {
    bytes: i64,
    outer: i64,
}

impl Budget {
    pub(crate) fn new(bytes: u64) -> Self {
        let bytes = i64::try_from(bytes).map_or(UNLIMITED, |bytes| bytes.min(UNLIMITED));
        Self { bytes, outer: LEFT.replace(bytes) }
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        let kept = self.bytes.wrapping_sub(LEFT.get());
        LEFT.set(self.outer.wrapping_sub(kept));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_counts_what_its_thread_holds() {
        let budget = Budget::new(1000);
        let mut text = Vec::<u8>::with_capacity(400);
        assert_eq!(left(), 600);
        text.reserve_exact(700);
        assert_eq!(left(), 300);
        let other = std::thread::spawn(|| drop(Vec::<u8>::with_capacity(5000)));
        other.join().unwrap();
        let more = vec![0_u8; 700];
        assert!(left() < -300, "{}", left());
        drop((text, more));
        // Except for allocations of the thread itself.
        assert!(left() > 500, "{}", left());
        drop(budget);
        assert!(left() > UNLIMITED / 2);
    }

    #[test]
    fn what_an_inner_budget_keeps_is_charged_to_the_outer_one() {
        let _outer = Budget::new(1000);
        let inner = Budget::new(50);
        let kept = Vec::<u8>::with_capacity(300);
        assert_eq!(left(), -250);
        drop(inner);
        assert_eq!(left(), 700);
        let spare = uncounted(|| Vec::<u8>::with_capacity(300));
        assert_eq!(left(), 700);
        drop((kept, spare));
    }
}
