//! Host line: is the plugin's handle of its host, counted, since threads of the plugin may outlive an instance.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use crate::abi::{TIDEGATE_FAILED, TIDEGATE_OK, TIDEGATE_TOKEN_LEN, TidegateBytes, TidegateHost};
use crate::{Level, borrowed};

/// The handle that keeps a library loaded.
pub type Keep = Arc<dyn KeepsLoaded>;

/// Keeps a library loaded until it is dropped, and longer while threads that ran its code exist.
pub trait KeepsLoaded: Send + Sync + 'static {
    /// This thread runs code of the library from now on.
    fn entered(&self);
}

/// For code that is part of the program.
impl KeepsLoaded for () {
    fn entered(&self) {}
}

/// The runner's services for an instance; called from any thread.
pub trait Host: Send + Sync {
    fn log(&self, level: Level, message: &str);

    /// Whether running code should end.
    fn stopping(&self) -> bool;

    /// The token of the job with this delivery hash, if the runner has tokens.
    fn token(&self, hash: u128) -> Option<[u8; TIDEGATE_TOKEN_LEN]>;
}

/// The plugin's handle of the runner. It is counted (each `retain` is one more `Arc`), since the plugin's
/// threads may outlive the instance.
pub(super) struct Line {
    pub(super) host: TidegateHost,
    serves: Box<dyn Host>,
    /// The instance is gone.
    pub(super) ended: AtomicBool,
}

// SAFETY: the pointer in `host` is to the line itself, and everything else may be shared.
unsafe impl Send for Line {}

// SAFETY: as above.
unsafe impl Sync for Line {}

/// The state after the end of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// No part of it is left.
    Clean,
    /// A part of the plugin, perhaps a thread, still holds the runner; the library stays loaded for ever.
    LeftBehind,
}

impl Line {
    pub(super) fn open(serves: Box<dyn Host>) -> Arc<Self> {
        Arc::new_cyclic(|line: &Weak<Self>| Self {
            host: TidegateHost {
                size: size_of::<TidegateHost>(),
                context: line.as_ptr().cast(),
                log: Some(log),
                stopping: Some(stopping),
                retain: Some(retain),
                release: Some(release),
                token: Some(token),
            },
            serves,
            ended: AtomicBool::new(false),
        })
    }

    /// Releases the runner's reference. If the plugin still holds one, its library must never be closed,
    /// since the end of the code that releases it is unknown.
    pub(super) fn end(self: Arc<Self>, keep: &Keep) -> Ended {
        self.ended.store(true, Ordering::Release);
        if Arc::strong_count(&self) == 1 {
            return Ended::Clean;
        }
        std::mem::forget(Arc::clone(keep));
        Ended::LeftBehind
    }
}

unsafe extern "C" fn log(context: *const c_void, level: i32, text: TidegateBytes) {
    // SAFETY: the plugin holds the line, and the text lives for this call.
    let (line, text) = unsafe { (&*context.cast::<Line>(), borrowed::text(text)) };
    // A panic here would have to cross the plugin.
    let _ = catch_unwind(AssertUnwindSafe(|| line.serves.log(Level::from_abi(level), &text)));
}

unsafe extern "C" fn stopping(context: *const c_void) -> i32 {
    // SAFETY: the plugin holds the line.
    let line = unsafe { &*context.cast::<Line>() };
    i32::from(line.ended.load(Ordering::Acquire) || line.serves.stopping())
}

unsafe extern "C" fn retain(context: *const c_void) {
    // SAFETY: the plugin holds the line, which came out of an `Arc`.
    unsafe { Arc::increment_strong_count(context.cast::<Line>()) };
}

unsafe extern "C" fn release(context: *const c_void) {
    // SAFETY: it releases one `retain`.
    unsafe { Arc::decrement_strong_count(context.cast::<Line>()) };
}

unsafe extern "C" fn token(context: *const c_void, hash_high: u64, hash_low: u64, to: *mut u8) -> i32 {
    // SAFETY: the plugin holds the line.
    let line = unsafe { &*context.cast::<Line>() };
    let hash = u128::from(hash_high) << 64 | u128::from(hash_low);
    // A panic here would have to cross the plugin.
    let made = catch_unwind(AssertUnwindSafe(|| line.serves.token(hash)));
    let Ok(Some(token)) = made else { return TIDEGATE_FAILED };
    // SAFETY: the plugin passes space for this many bytes, which need no alignment.
    unsafe { to.cast::<[u8; TIDEGATE_TOKEN_LEN]>().write(token) };
    TIDEGATE_OK
}
