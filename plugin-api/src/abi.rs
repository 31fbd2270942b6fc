//! The C ABI between the runner and a plugin: everything that crosses the boundary, in one file.
//!
//! Rust authors do not need it: `PluginStep` and `export_plugin!` are made of it. Authors in other
//! languages take `include/tidegate_plugin.h`, which is generated from here.
//!
//! A plugin is a shared library that exports one function, [`tidegate_plugin`](TidegateEntry). It
//! returns a description that stays as it is for as long as the library is loaded.
//!
//! **Versions.** The runner reads `abi_version` and `size` before anything else, and refuses a library
//! of another version. Every struct begins with its size as whoever made it was compiled (or, where
//! many stand in a row, the row says it), so that fields can be added at the end: a reader looks only
//! at fields within the size.
//!
//! **Memory.** Nothing is ever freed by the other side. A [`TidegateBytes`] is borrowed: it is valid
//! until the call that it was handed to returns (those in a description: for as long as the library
//! is loaded), and whoever wants to keep it makes a copy. What a plugin makes, it pushes into the
//! runner, which copies it before `push` returns.
//!
//! **Threads.** `init` is called once, before anything else. One instance of a step is created, used
//! and destroyed on one thread, one call after the other; several instances, of one step too, are used
//! on several threads at once. The functions of [`TidegateHost`] may be called from any thread, those
//! of [`TidegateAnswer`] only on the thread of the call that it was handed to, before that returns.
//!
//! **Failing.** No exception and no panic may cross the boundary; the process ends there. Statuses are
//! integers, since an unknown value of a foreign enum would be undefined; an unknown status is a failed
//! attempt.

use std::ffi::c_void;
use std::mem::{align_of, offset_of, size_of};

/// The version of this interface. It changes when a library that was built before cannot be used.
pub const TIDEGATE_ABI_VERSION: u32 = 1;

/// It is done: outputs that were pushed are delivered, together.
pub const TIDEGATE_OK: i32 = 0;
/// The attempt failed; `say` tells why. What happens next is for the step's retry policy.
pub const TIDEGATE_FAILED: i32 = 1;
/// Try again, when the retry policy says so.
pub const TIDEGATE_RETRY: i32 = 2;
/// Try again after the time that `delay` was given.
pub const TIDEGATE_RETRY_IN: i32 = 3;
/// Never try this job again.
pub const TIDEGATE_REJECT: i32 = 4;
/// The step cannot start anything now; the job keeps its place, and this was no attempt.
pub const TIDEGATE_GATE_CLOSED: i32 = 5;
/// An outside system finishes the job; `say` gives the handle that a monitor asks for.
pub const TIDEGATE_PENDING: i32 = 6;
/// The code panicked and was caught. The instance is destroyed, and a new one is created.
pub const TIDEGATE_PANICKED: i32 = 7;

/// Bytes of a token: hex digits.
pub const TIDEGATE_TOKEN_LEN: usize = 32;

/// `flags` of a step: attempts can be seen from outside (it sends, writes or pays).
pub const TIDEGATE_HAS_EFFECTS: u64 = 1;

pub const TIDEGATE_LOG_ERROR: i32 = 1;
pub const TIDEGATE_LOG_WARN: i32 = 2;
pub const TIDEGATE_LOG_INFO: i32 = 3;
pub const TIDEGATE_LOG_DEBUG: i32 = 4;
pub const TIDEGATE_LOG_TRACE: i32 = 5;

/// Borrowed bytes; texts are UTF-8 without a final zero. `bytes` may be null where `len` is 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TidegateBytes {
    pub bytes: *const u8,
    pub len: usize,
}

/// The one function that a plugin exports, under the name `tidegate_plugin`. It may be called more
/// than once and from any thread, and always returns the same description (or null, where the plugin
/// cannot be used at all).
pub type TidegateEntry = unsafe extern "C" fn() -> *const TidegatePlugin;

/// What a library is and offers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TidegatePlugin {
    /// `TIDEGATE_ABI_VERSION`.
    pub abi_version: u32,
    /// `sizeof(TidegatePlugin)`.
    pub size: u32,
    pub name: TidegateBytes,
    /// Its own version, for people.
    pub version: TidegateBytes,
    /// May be null. Called once after loading, before anything else is used; anything but
    /// `TIDEGATE_OK` refuses the library, with what it says as the reason.
    pub init: Option<unsafe extern "C" fn(answer: *const TidegateAnswer) -> i32>,
    /// `step_count` steps in a row, each `step_size` bytes after the one before.
    pub steps: *const TidegateStep,
    pub step_count: usize,
    /// `sizeof(TidegateStep)`.
    pub step_size: usize,
}

/// A step that a plugin offers. Functions must not be null unless it says so.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TidegateStep {
    pub name: TidegateBytes,
    /// A line for people; may be empty.
    pub description: TidegateBytes,
    /// `TIDEGATE_HAS_EFFECTS`, or 0. A runner refuses bits that it does not know.
    pub flags: u64,
    /// May be null: then any `config` will do. Says (`say`) the JSON Schema of the step's `config`. It
    /// must answer without having been set up, as a check does not run anything.
    pub schema: Option<unsafe extern "C" fn(answer: *const TidegateAnswer) -> i32>,
    /// Makes an instance, on each thread before its first job and again after a panic, and puts it into `*instance`, which the runner hands back and never looks
    /// into; it may be null. What `setup` points to is gone when the call returns, but for its `host`.
    /// On anything but `TIDEGATE_OK` nothing was made, and the reason is what it says. If no instance of the step
    /// was ever made in this run, the step stops; otherwise, and on `TIDEGATE_RETRY`, `TIDEGATE_RETRY_IN` and
    /// `TIDEGATE_GATE_CLOSED`, it waits, and `create` is called again.
    pub create: Option<
        unsafe extern "C" fn(
            setup: *const TidegateSetup,
            answer: *const TidegateAnswer,
            instance: *mut *mut c_void,
        ) -> i32,
    >,
    /// Runs one attempt on one job, pushes its outputs, and returns a status. Outputs of anything but
    /// `TIDEGATE_OK` are dropped.
    pub process: Option<
        unsafe extern "C" fn(
            instance: *mut c_void,
            job: *const TidegateJob,
            answer: *const TidegateAnswer,
        ) -> i32,
    >,
    /// Ends an instance; it is not used again, whatever the status is. Threads that it started must
    /// have ended when this returns, or hold the host with `retain`.
    pub destroy: Option<unsafe extern "C" fn(instance: *mut c_void, answer: *const TidegateAnswer) -> i32>,
}

/// What an instance is made from.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TidegateSetup {
    /// `sizeof(TidegateSetup)` of the runner.
    pub size: usize,
    /// Valid until `destroy` returns, and beyond that for as long as it is retained.
    pub host: *const TidegateHost,
    pub pipeline: TidegateBytes,
    pub step: TidegateBytes,
    /// The step's `config`: a JSON object.
    pub config: TidegateBytes,
    /// The names of the step's outputs; one empty name for `to = "…"`, none for a step without `to`.
    pub bindings: *const TidegateBytes,
    pub binding_count: usize,
    /// How long an attempt may take, all processors of the step together; 0 for no limit.
    pub timeout_ms: u64,
}

/// What the runner does for an instance at any time, from any thread.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TidegateHost {
    /// `sizeof(TidegateHost)` of the runner.
    pub size: usize,
    /// Handed to each function.
    pub context: *const c_void,
    /// Writes to the runner's log, under the name of the plugin. `level` is a `TIDEGATE_LOG_…`.
    pub log: Option<unsafe extern "C" fn(context: *const c_void, level: i32, text: TidegateBytes)>,
    /// 1 when what runs should end soon: the attempt is past its timeout, or the instance is gone.
    pub stopping: Option<unsafe extern "C" fn(context: *const c_void) -> i32>,
    /// Keeps the host (and the library loaded) past `destroy`, for each call once, until `release`.
    pub retain: Option<unsafe extern "C" fn(context: *const c_void)>,
    /// Gives back what `retain` took. The library stays loaded all the same where this comes after
    /// `destroy`, since the runner cannot know when the caller has left it.
    pub release: Option<unsafe extern "C" fn(context: *const c_void)>,
    /// Writes the token of the job with this delivery hash to `token`, which has room for
    /// `TIDEGATE_TOKEN_LEN` bytes, without a final zero. An outside system shows it when it says what
    /// became of the job. Anything but `TIDEGATE_OK` says that there is none, and writes nothing. A runner
    /// whose `size` ends before this field does not have it.
    pub token: Option<
        unsafe extern "C" fn(context: *const c_void, hash_high: u64, hash_low: u64, token: *mut u8) -> i32,
    >,
}

/// One job, as one attempt sees it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TidegateJob {
    /// `sizeof(TidegateJob)` of the runner.
    pub size: usize,
    /// JSON.
    pub payload: TidegateBytes,
    /// The job's place in its source or queue, from 1.
    pub index: u64,
    /// The delivery hash (128 bits): the same on every attempt and after every restart.
    pub hash_high: u64,
    pub hash_low: u64,
    /// Milliseconds since the Unix epoch.
    pub now_ms: i64,
    /// From 1.
    pub attempt: u32,
    /// Which piece it is of those that processors before this one made of one job: 0 for the first one, and
    /// for a job that is whole. Index and attempt are those of the job; each piece has its own hash, and so
    /// its own token. A runner that knows no pieces says 0.
    pub piece: u32,
}

/// How one call answers, beside its status.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TidegateAnswer {
    /// `sizeof(TidegateAnswer)` of the runner.
    pub size: usize,
    /// Handed to each function.
    pub target: *mut c_void,
    /// In `process`: adds an output (JSON) to the binding at this position, from 0. Returns
    /// `TIDEGATE_OK`, or `TIDEGATE_FAILED` where there is no such binding or where all outputs of the job
    /// together exceed `limits.memory`; the attempt fails then. A step without outputs drops what is pushed
    /// to binding 0.
    pub push: Option<unsafe extern "C" fn(target: *mut c_void, binding: u32, payload: TidegateBytes) -> i32>,
    /// Why it is not done, the handle of a pending job, or (in `schema`) the schema. The last call counts.
    pub say: Option<unsafe extern "C" fn(target: *mut c_void, text: TidegateBytes)>,
    /// Where in the plugin's code it happened, from line 1; `column` may be 0.
    pub place: Option<unsafe extern "C" fn(target: *mut c_void, file: TidegateBytes, line: u32, column: u32)>,
    /// What stands beside the reason on an error queue: the circumstances, as JSON.
    pub context: Option<unsafe extern "C" fn(target: *mut c_void, json: TidegateBytes)>,
    /// How long to wait, for `TIDEGATE_RETRY_IN`.
    pub delay: Option<unsafe extern "C" fn(target: *mut c_void, delay_ms: u64)>,
    /// Says what kind of failure it is, beside a status that is `TIDEGATE_FAILED`: `payload` (the job is not
    /// what it should be, and is not tried again), `limit`, `output`, `timeout`, `connection`, `http 503`,
    /// `exit 3`. Beside `TIDEGATE_RETRY` and `TIDEGATE_RETRY_IN` the last four count. Retry policies and error
    /// records know these words; another one says nothing. A runner whose `size` ends before this field does
    /// not have it.
    pub word: Option<unsafe extern "C" fn(target: *mut c_void, word: TidegateBytes)>,
}

// The layout is a promise: a change here needs a new version, or a new field at an end.
#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(align_of::<TidegatePlugin>() == 8 && align_of::<TidegateJob>() == 8);
    assert!(size_of::<TidegateBytes>() == 16);
    assert!(size_of::<TidegatePlugin>() == 72);
    assert!(offset_of!(TidegatePlugin, abi_version) == 0);
    assert!(offset_of!(TidegatePlugin, size) == 4);
    assert!(offset_of!(TidegatePlugin, name) == 8);
    assert!(offset_of!(TidegatePlugin, version) == 24);
    assert!(offset_of!(TidegatePlugin, init) == 40);
    assert!(offset_of!(TidegatePlugin, steps) == 48);
    assert!(offset_of!(TidegatePlugin, step_count) == 56);
    assert!(offset_of!(TidegatePlugin, step_size) == 64);
    assert!(size_of::<TidegateStep>() == 72);
    assert!(offset_of!(TidegateStep, flags) == 32);
    assert!(offset_of!(TidegateStep, schema) == 40);
    assert!(offset_of!(TidegateStep, create) == 48);
    assert!(offset_of!(TidegateStep, process) == 56);
    assert!(offset_of!(TidegateStep, destroy) == 64);
    assert!(size_of::<TidegateSetup>() == 88);
    assert!(offset_of!(TidegateSetup, host) == 8);
    assert!(offset_of!(TidegateSetup, config) == 48);
    assert!(offset_of!(TidegateSetup, bindings) == 64);
    assert!(offset_of!(TidegateSetup, timeout_ms) == 80);
    assert!(size_of::<TidegateHost>() == 56);
    assert!(offset_of!(TidegateHost, log) == 16);
    assert!(offset_of!(TidegateHost, release) == 40);
    assert!(offset_of!(TidegateHost, token) == 48);
    assert!(size_of::<TidegateJob>() == 64);
    assert!(offset_of!(TidegateJob, payload) == 8);
    assert!(offset_of!(TidegateJob, index) == 24);
    assert!(offset_of!(TidegateJob, now_ms) == 48);
    assert!(offset_of!(TidegateJob, attempt) == 56);
    assert!(offset_of!(TidegateJob, piece) == 60);
    assert!(size_of::<TidegateAnswer>() == 64);
    assert!(offset_of!(TidegateAnswer, push) == 16);
    assert!(offset_of!(TidegateAnswer, context) == 40);
    assert!(offset_of!(TidegateAnswer, delay) == 48);
    assert!(offset_of!(TidegateAnswer, word) == 56);
};

/// Bytes of a `TidegatePlugin` and of a `TidegateStep` of the first library that was built for this version: a
/// reader asks for no more.
pub(crate) const PLUGIN_BYTES_MIN: usize = 72;
pub(crate) const STEP_BYTES_MIN: usize = 72;

impl TidegateBytes {
    /// Borrows `bytes`; whoever hands it on sees to it that they live long enough.
    #[must_use]
    pub const fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.as_ptr(), len: bytes.len() }
    }
}

#[cfg(test)]
mod tests;
