//! Borrowed bytes as they come across the boundary.

use crate::abi::TidegateBytes;

/// Nothing in memory is longer.
pub(crate) const BYTES_MAX: usize = isize::MAX as usize;

/// What cannot be that long is nothing.
///
/// # Safety
/// As the ABI says of [`TidegateBytes`]: `bytes` points to `len` bytes that stay as they are for `'a`,
/// or `len` is 0.
pub(crate) unsafe fn slice<'a>(bytes: TidegateBytes) -> &'a [u8] {
    if bytes.len == 0 || bytes.len > BYTES_MAX || bytes.bytes.is_null() {
        return &[];
    }
    // SAFETY: not null, and the caller vouches for the rest.
    unsafe { std::slice::from_raw_parts(bytes.bytes, bytes.len) }
}

/// The same as a text of its own; what is not UTF-8 in it is replaced.
///
/// # Safety
/// As [`slice`].
pub(crate) unsafe fn text(bytes: TidegateBytes) -> String {
    // SAFETY: the caller vouches for it.
    String::from_utf8_lossy(unsafe { slice(bytes) }).into_owned()
}
