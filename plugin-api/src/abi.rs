//! ABI: the C interface between the runner and a plugin; everything that crosses the boundary is in this
//! file.
//!
//! Rust authors do not need it: `PluginStep` and `export_plugin!` are built on it. Authors in other languages
//! use `include/tidegate_plugin.h`, which is generated from this file.
//!
//! A plugin is a shared library that exports one function, [`tidegate_plugin`](TidegateEntry). It returns a
//! description that does not change while the library is loaded.
//!
//! **Versions.** The runner reads `abi_version` and `size` before anything else, and refuses a library of
//! another version. Every struct begins with its size as compiled by its creator; the size of an array's
//! elements is beside the array. So fields can be added at the end: a reader reads only fields within the
//! size.
//!
//! **Memory.** Neither side frees memory of the other. A [`TidegateBytes`] is borrowed: it is valid until the
//! call that receives it returns. Texts of a description are valid while the library is loaded. A receiver
//! that keeps bytes makes a copy. A plugin pushes its outputs into the runner, which copies them before
//! `push` returns.
//!
//! **Threads.** `init` is called once, before anything else. One instance of a step is created, used and
//! destroyed on one thread, one call after the other. Several instances, also of one step, are used on
//! several threads at once. The functions of [`TidegateHost`] may be called from any thread. The functions of
//! [`TidegateAnswer`] may be called only on the thread of the call that received it, before that call
//! returns.
//!
//! **Failures.** No exception and no panic may cross the boundary; the process ends there. Statuses are
//! integers, since an unknown value of a foreign enum would be undefined. An unknown status is a failed
//! attempt.

use std::ffi::c_void;
use std::mem::{align_of, offset_of, size_of};

/// The version of this interface. It changes when older libraries become unusable.
pub const TIDEGATE_ABI_VERSION: u32 = 1;

/// The attempt succeeded: the pushed outputs are delivered, together.
pub const TIDEGATE_OK: i32 = 0;
/// The attempt failed; `say` gives the reason. The step's retry policy decides on a retry.
pub const TIDEGATE_FAILED: i32 = 1;
/// Retry, by the retry policy.
pub const TIDEGATE_RETRY: i32 = 2;
/// Retry after the time given to `delay`.
pub const TIDEGATE_RETRY_IN: i32 = 3;
/// Never retry this job.
pub const TIDEGATE_REJECT: i32 = 4;
/// The step cannot start jobs now; the job keeps its place, and this was no attempt.
pub const TIDEGATE_GATE_CLOSED: i32 = 5;
/// The job is pending in an external system; `say` gives the handle that a monitor asks for.
pub const TIDEGATE_PENDING: i32 = 6;
/// The code panicked, and the panic was caught. The instance is destroyed, and a new one is created.
pub const TIDEGATE_PANICKED: i32 = 7;
/// The step stops at this job, which stays where it is until the step starts again.
pub const TIDEGATE_HALT: i32 = 8;

/// Bytes of a token: hex digits.
pub const TIDEGATE_TOKEN_LEN: usize = 32;

/// `flags` of a step: attempts have external effects (they send, write or pay).
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

/// The one function that a plugin exports, under the name `tidegate_plugin`. It may be called several times
/// and from any thread, and always returns the same description, or null if the plugin cannot be used.
pub type TidegateEntry = unsafe extern "C" fn() -> *const TidegatePlugin;

/// The description of a library.
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
    /// May be null. Called once after loading, before any other function. Any status except `TIDEGATE_OK`
    /// refuses the library, with the text of `say` as the reason.
    pub init: Option<unsafe extern "C" fn(answer: *const TidegateAnswer) -> i32>,
    /// `step_count` steps in an array, each `step_size` bytes after the one before.
    pub steps: *const TidegateStep,
    pub step_count: usize,
    /// `sizeof(TidegateStep)`.
    pub step_size: usize,
}

/// A step of a plugin. Functions must not be null unless documented.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TidegateStep {
    pub name: TidegateBytes,
    /// One line for people; may be empty.
    pub description: TidegateBytes,
    /// `TIDEGATE_HAS_EFFECTS`, or 0. A runner refuses unknown bits.
    pub flags: u64,
    /// May be null: then any `config` is valid. Returns (with `say`) the JSON Schema of the step's `config`.
    /// It must work without a setup, since a check runs no code of the step.
    pub schema: Option<unsafe extern "C" fn(answer: *const TidegateAnswer) -> i32>,
    /// Creates an instance, on each thread before its first job and again after a panic, and stores it in
    /// `*instance`. The runner passes the pointer back and never dereferences it; it may be null. `setup` and
    /// its contents are valid only during the call, except for its `host`. On any status except `TIDEGATE_OK`
    /// no instance was created, and the text of `say` is the reason. If no instance of the step was ever
    /// created in this run, the step stops. Otherwise, and on `TIDEGATE_RETRY`, `TIDEGATE_RETRY_IN` and
    /// `TIDEGATE_GATE_CLOSED`, it waits, and `create` is called again.
    pub create: Option<
        unsafe extern "C" fn(
            setup: *const TidegateSetup,
            answer: *const TidegateAnswer,
            instance: *mut *mut c_void,
        ) -> i32,
    >,
    /// Runs one attempt on one job, pushes its outputs, and returns a status. On any status except
    /// `TIDEGATE_OK` the outputs are dropped.
    pub process: Option<
        unsafe extern "C" fn(
            instance: *mut c_void,
            job: *const TidegateJob,
            answer: *const TidegateAnswer,
        ) -> i32,
    >,
    /// Ends an instance; it is not used again, with any status. Threads that it started must have ended when
    /// this returns, or hold the host with `retain`.
    pub destroy: Option<unsafe extern "C" fn(instance: *mut c_void, answer: *const TidegateAnswer) -> i32>,
}

/// The setup of an instance.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TidegateSetup {
    /// `sizeof(TidegateSetup)` of the runner.
    pub size: usize,
    /// Valid until `destroy` returns, and longer while it is retained.
    pub host: *const TidegateHost,
    pub pipeline: TidegateBytes,
    pub step: TidegateBytes,
    /// The step's `config`: a JSON object.
    pub config: TidegateBytes,
    /// The names of the step's outputs; one empty name for `to = "…"`, none for a step without `to`.
    pub bindings: *const TidegateBytes,
    pub binding_count: usize,
    /// Maximum time of an attempt, for all processors of the step together; 0 for no limit.
    pub timeout_ms: u64,
}

/// The runner's services for an instance, at any time and from any thread.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TidegateHost {
    /// `sizeof(TidegateHost)` of the runner.
    pub size: usize,
    /// The first argument of each function.
    pub context: *const c_void,
    /// Writes to the runner's log, under the name of the plugin. `level` is a `TIDEGATE_LOG_…`.
    pub log: Option<unsafe extern "C" fn(context: *const c_void, level: i32, text: TidegateBytes)>,
    /// 1 if running code should end soon: the attempt is past its timeout, or the instance is gone.
    pub stopping: Option<unsafe extern "C" fn(context: *const c_void) -> i32>,
    /// Keeps the host (and the library loaded) past `destroy`; each call needs one `release`.
    pub retain: Option<unsafe extern "C" fn(context: *const c_void)>,
    /// Releases one `retain`. After `destroy` the library stays loaded nevertheless, since the runner cannot
    /// know when the caller has left its code.
    pub release: Option<unsafe extern "C" fn(context: *const c_void)>,
    /// Writes the token of the job with this delivery hash to `token`, which has space for
    /// `TIDEGATE_TOKEN_LEN` bytes, without a final zero. An external system sends it with the completion of
    /// the job. On any status except `TIDEGATE_OK` no token exists, and nothing is written. A runner whose
    /// `size` ends before this field does not have it.
    pub token: Option<
        unsafe extern "C" fn(context: *const c_void, hash_high: u64, hash_low: u64, token: *mut u8) -> i32,
    >,
}

/// One job in one attempt.
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
    /// The number of this piece among those that earlier processors made from one job: 0 for the first one,
    /// and for a whole job. Index and attempt are those of the job. Each piece has its own hash, and so its
    /// own token. A runner without pieces passes 0.
    pub piece: u32,
}

/// The answer of one call, in addition to its status.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TidegateAnswer {
    /// `sizeof(TidegateAnswer)` of the runner.
    pub size: usize,
    /// The first argument of each function.
    pub target: *mut c_void,
    /// In `process`: adds an output (JSON) to the binding at this position, from 0. Returns `TIDEGATE_OK`. It
    /// returns `TIDEGATE_FAILED` if the binding does not exist, or the outputs of the job together exceed
    /// `limits.memory`; the attempt then fails. A step without outputs drops the outputs of binding 0.
    pub push: Option<unsafe extern "C" fn(target: *mut c_void, binding: u32, payload: TidegateBytes) -> i32>,
    /// The reason of a failure, the handle of a pending job, or (in `schema`) the schema. The last call
    /// counts.
    pub say: Option<unsafe extern "C" fn(target: *mut c_void, text: TidegateBytes)>,
    /// The place in the plugin's code, from line 1; `column` may be 0.
    pub place: Option<unsafe extern "C" fn(target: *mut c_void, file: TidegateBytes, line: u32, column: u32)>,
    /// The circumstances of a failure as JSON, which are stored beside the reason on the error queue.
    pub context: Option<unsafe extern "C" fn(target: *mut c_void, json: TidegateBytes)>,
    /// The delay for `TIDEGATE_RETRY_IN`.
    pub delay: Option<unsafe extern "C" fn(target: *mut c_void, delay_ms: u64)>,
    /// The class of a failure, in addition to the status `TIDEGATE_FAILED`: `payload` (the job is invalid,
    /// and is not retried), `limit`, `output`, `timeout`, `connection`, `http 503`, `exit 3`. With
    /// `TIDEGATE_RETRY` and `TIDEGATE_RETRY_IN` only the last four count. Retry policies and error records
    /// use these words; another word has no effect. A runner whose `size` ends before this field does not
    /// have it.
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

/// Bytes of a `TidegatePlugin` and of a `TidegateStep` in the first library of this version: a reader
/// requires no more.
pub(crate) const PLUGIN_BYTES_MIN: usize = 72;
pub(crate) const STEP_BYTES_MIN: usize = 72;

impl TidegateBytes {
    /// Borrows `bytes`; the caller must keep them alive long enough.
    #[must_use]
    pub const fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.as_ptr(), len: bytes.len() }
    }
}

#[cfg(test)]
mod tests;
