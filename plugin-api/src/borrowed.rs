//! Borrowed bytes: are read from the other side of the boundary.

use std::mem::MaybeUninit;
use std::ptr;

use crate::abi::{self, TidegateBytes};

/// Nothing in memory is longer.
pub(crate) const BYTES_MAX: usize = isize::MAX as usize;

/// A greater length gives an empty slice.
///
/// # Safety
/// The contract of [`TidegateBytes`]: `bytes` points to `len` bytes that do not change during `'a`, or `len`
/// is 0.
pub(crate) unsafe fn slice<'a>(bytes: TidegateBytes) -> &'a [u8] {
    if bytes.len == 0 || bytes.len > BYTES_MAX || bytes.bytes.is_null() {
        return &[];
    }
    // SAFETY: not null, and the caller vouches for the rest.
    unsafe { std::slice::from_raw_parts(bytes.bytes, bytes.len) }
}

/// The same as an owned text; invalid UTF-8 in it is replaced.
///
/// # Safety
/// As [`slice`].
pub(crate) unsafe fn text(bytes: TidegateBytes) -> String {
    // SAFETY: the caller vouches for it.
    String::from_utf8_lossy(unsafe { slice(bytes) }).into_owned()
}

/// A struct of the boundary, made of integers, pointers and optional functions, so that zeros are a valid
/// value.
///
/// # Safety
/// It is `repr(C)`, and a value of it may be all zeros.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: integers, pointers and options of functions.
unsafe impl Plain for abi::TidegatePlugin {}
// SAFETY: as above.
unsafe impl Plain for abi::TidegateStep {}
// SAFETY: as above.
unsafe impl Plain for abi::TidegateSetup {}
// SAFETY: as above.
unsafe impl Plain for abi::TidegateHost {}
// SAFETY: as above.
unsafe impl Plain for abi::TidegateJob {}
// SAFETY: as above.
unsafe impl Plain for abi::TidegateAnswer {}

/// The first `size` bytes of a struct of the other side, which may have fewer fields than this version, or
/// more. Missing fields are zero.
///
/// # Safety
/// `from` points to `size` bytes.
pub(crate) unsafe fn prefix<T: Plain>(from: *const T, size: usize) -> T {
    let mut whole = MaybeUninit::<T>::zeroed();
    // SAFETY: no more is read than is there, and no more written than there is room for.
    unsafe {
        ptr::copy_nonoverlapping(from.cast::<u8>(), whole.as_mut_ptr().cast(), size.min(size_of::<T>()));
    }
    // SAFETY: zeros are a valid value, and the bytes that replace them are valid values of the other side.
    unsafe { whole.assume_init() }
}

/// As [`prefix`], for a struct that begins with its size.
///
/// # Safety
/// `from` points to a struct of the boundary that begins with its size as a `size_t`.
pub(crate) unsafe fn sized<T: Plain>(from: *const T) -> T {
    // SAFETY: the caller vouches for it.
    unsafe { prefix(from, from.cast::<usize>().read()) }
}
