//! Exported functions: turn a [`PluginStep`] into the functions of the ABI, for
//! [`export_plugin!`](crate::export_plugin).

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::{Once, OnceLock};

use crate::abi::{
    self, TIDEGATE_FAILED, TIDEGATE_OK, TidegateAnswer, TidegateBytes, TidegateJob, TidegatePlugin,
    TidegateSetup, TidegateStep,
};
use crate::{Context, Failure, FailureKind, Job, Outlet, Place, PluginStep, borrowed};

/// Exports steps as a plugin: once in a crate of type `cdylib`.
///
/// ```
/// # use tidegate_plugin::{Context, Failure, Job, Outlet, PluginStep};
/// # struct Uppercase;
/// # impl PluginStep for Uppercase {
/// #     const NAME: &'static str = "uppercase";
/// #     type Config = serde_json::Value;
/// #     fn create(_: serde_json::Value, _: &Context) -> Result<Self, Failure> { Ok(Self) }
/// #     fn process(&mut self, job: &Job<'_>, outlet: &mut Outlet<'_>) -> Result<(), Failure> { outlet.push(job.payload) }
/// # }
/// tidegate_plugin::export_plugin!(Uppercase);
/// ```
///
/// The plugin has the name and the version of the crate.
#[macro_export]
macro_rules! export_plugin {
    ($($step:ty),+ $(,)?) => {
        #[cfg(panic = "abort")]
        compile_error!("a plugin must not be built with `panic = \"abort\"`: a panic would end the runner");

        /// The description of this library for Tidegate.
        #[allow(unsafe_code, missing_docs)]
        #[unsafe(no_mangle)]
        pub extern "C" fn tidegate_plugin() -> *const $crate::abi::TidegatePlugin {
            const STEPS: &[$crate::abi::TidegateStep] = &[$($crate::export::step::<$step>()),+];
            static PLUGIN: $crate::export::Exported<$crate::abi::TidegatePlugin> =
                $crate::export::Exported::new($crate::export::plugin(
                    env!("CARGO_PKG_NAME"),
                    env!("CARGO_PKG_VERSION"),
                    STEPS,
                ));
            PLUGIN.get()
        }
    };
}

/// A description that never changes, and so may be read from any thread.
#[derive(Debug)]
pub struct Exported<T>(T);

// SAFETY: never written to, and its pointers are valid while the library is loaded.
unsafe impl<T> Sync for Exported<T> {}

impl<T> Exported<T> {
    #[must_use]
    pub const fn new(description: T) -> Self {
        Self(description)
    }

    #[must_use]
    pub const fn get(&self) -> &T {
        &self.0
    }
}

/// Describes a plugin.
#[must_use]
pub const fn plugin(
    name: &'static str,
    version: &'static str,
    steps: &'static [TidegateStep],
) -> TidegatePlugin {
    TidegatePlugin {
        abi_version: abi::TIDEGATE_ABI_VERSION,
        #[expect(clippy::cast_possible_truncation, reason = "less than 100 bytes")]
        size: size_of::<TidegatePlugin>() as u32,
        name: TidegateBytes::of(name.as_bytes()),
        version: TidegateBytes::of(version.as_bytes()),
        init: Some(init),
        steps: steps.as_ptr(),
        step_count: steps.len(),
        step_size: size_of::<TidegateStep>(),
    }
}

/// Describes one of its steps.
#[must_use]
pub const fn step<S: PluginStep>() -> TidegateStep {
    const { assert!(is_name(S::NAME), "`NAME` of a step is made of letters, digits, `-` and `_`") };
    TidegateStep {
        name: TidegateBytes::of(S::NAME.as_bytes()),
        description: TidegateBytes::of(S::DESCRIPTION.as_bytes()),
        flags: if S::EFFECTS { abi::TIDEGATE_HAS_EFFECTS } else { 0 },
        schema: Some(schema::<S>),
        create: Some(create::<S>),
        process: Some(process::<S>),
        destroy: Some(destroy::<S>),
    }
}

/// Whether a runner accepts it as the name of a step.
const fn is_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    let mut position = 0;
    while position < bytes.len() {
        if !bytes[position].is_ascii_alphanumeric() && bytes[position] != b'-' && bytes[position] != b'_' {
            return false;
        }
        position += 1;
    }
    !bytes.is_empty()
}

/// A step with its context, which is dropped last.
struct Slot<S> {
    step: S,
    /// See [`Outlet`].
    scratch: Vec<u8>,
    context: Context,
}

thread_local! {
    /// This thread runs a call of the runner, which reports a panic itself.
    static IN_CALL: Cell<bool> = const { Cell::new(false) };
    static LAST_PANIC: RefCell<Option<Place>> = const { RefCell::new(None) };
}

/// Panics within a call are not printed but returned, with their place; other panics are printed.
unsafe extern "C" fn init(_: *const TidegateAnswer) -> i32 {
    type Hook = Box<dyn Fn(&PanicHookInfo<'_>) + Sync + Send>;
    static BEFORE: OnceLock<Hook> = OnceLock::new();
    fn hook(info: &PanicHookInfo<'_>) {
        if !IN_CALL.get() {
            if let Some(before) = BEFORE.get() {
                before(info);
            }
            return;
        }
        let place = info.location().map(|location| Place {
            file: location.file().to_owned(),
            line: u64::from(location.line()),
            column: Some(u64::from(location.column())),
        });
        LAST_PANIC.set(place);
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let _ = BEFORE.set(panic::take_hook()); // it is empty: only this function fills it
        panic::set_hook(Box::new(hook));
    });
    TIDEGATE_OK
}

unsafe extern "C" fn schema<S: PluginStep>(answer: *const TidegateAnswer) -> i32 {
    let call = || {
        if let Some(schema) = S::schema() {
            // SAFETY: `answer` is the runner's for this call.
            unsafe { say(answer, &schema) };
        }
        Ok(())
    };
    // SAFETY: `answer` is the runner's for this call.
    unsafe { guard(answer, call) }
}

unsafe extern "C" fn create<S: PluginStep>(
    setup: *const TidegateSetup,
    answer: *const TidegateAnswer,
    instance: *mut *mut c_void,
) -> i32 {
    let call = || {
        // SAFETY: `setup` is the runner's for this call.
        let (context, config) =
            unsafe { (Context::new(setup), borrowed::slice(borrowed::sized(setup).config)) };
        let config = serde_json::from_slice(config).map_err(|error| unfit(&error))?;
        let step = S::create(config, &context)?;
        let slot = Box::into_raw(Box::new(Slot { step, scratch: Vec::new(), context }));
        // SAFETY: the runner passes space for one pointer.
        unsafe { *instance = slot.cast() };
        Ok(())
    };
    // SAFETY: `answer` is the runner's for this call.
    unsafe { guard(answer, call) }
}

unsafe extern "C" fn process<S: PluginStep>(
    instance: *mut c_void,
    job: *const TidegateJob,
    answer: *const TidegateAnswer,
) -> i32 {
    let call = || {
        // SAFETY: `create` made it, `destroy` has not been called, and the runner uses an instance on one
        // thread at a time.
        let slot = unsafe { &mut *instance.cast::<Slot<S>>() };
        // SAFETY: job and payload live for this call. The runner may know fewer fields, or more.
        let job = unsafe { borrowed::sized(job) };
        // SAFETY: as above.
        let payload = unsafe { borrowed::slice(job.payload) };
        let job = Job {
            index: job.index,
            payload,
            attempt: job.attempt,
            now_ms: job.now_ms,
            hash: u128::from(job.hash_high) << 64 | u128::from(job.hash_low),
            piece: job.piece,
        };
        let Slot { step, scratch, context } = slot;
        // SAFETY: `answer` lives for this call, and the outlet does not leave it.
        let mut outlet = unsafe { Outlet::new(answer, context.bindings(), scratch) };
        step.process(&job, &mut outlet)
    };
    // SAFETY: `answer` is the runner's for this call.
    unsafe { guard(answer, call) }
}

unsafe extern "C" fn destroy<S: PluginStep>(instance: *mut c_void, answer: *const TidegateAnswer) -> i32 {
    let call = || {
        // SAFETY: `create` made it from a box, and the runner destroys it once.
        drop(unsafe { Box::from_raw(instance.cast::<Slot<S>>()) });
        Ok(())
    };
    // SAFETY: `answer` is the runner's for this call.
    unsafe { guard(answer, call) }
}

/// The error of an unreadable config. Serde's messages contain the text, which may be a secret.
fn unfit(error: &serde_json::Error) -> Failure {
    let message = error.to_string();
    let shows = ["invalid type: string ", "invalid value: string ", "unknown variant "];
    let why = match message.rsplit_once(", expected ") {
        Some((_, expected)) if shows.iter().any(|shows| message.starts_with(shows)) => {
            format!("it has a text instead of {expected}")
        }
        _ => message,
    };
    Failure::failed(format!("`config` does not match the step: {why}"))
}

/// Runs code that may panic, and reports its result to the runner. A panic is a failure with its message and
/// place.
///
/// # Safety
/// `answer` is that of the running call.
#[inline]
unsafe fn guard(answer: *const TidegateAnswer, call: impl FnOnce() -> Result<(), Failure>) -> i32 {
    let status = || match call() {
        Ok(()) => TIDEGATE_OK,
        // SAFETY: the caller vouches for it.
        Err(failure) => unsafe { explain(answer, &failure) },
    };
    // One look-up for both changes: in a library that was opened later it is a call.
    let called = IN_CALL.with(|in_call| {
        let outer = in_call.replace(true);
        let called = catch_unwind(AssertUnwindSafe(status));
        in_call.set(outer);
        called
    });
    // SAFETY: the caller vouches for it.
    called.unwrap_or_else(|thrown| unsafe { explain(answer, &panicked(thrown)) })
}

#[cold]
fn panicked(thrown: Box<dyn Any + Send>) -> Failure {
    let failure = Failure::new(FailureKind::Panicked, message(&*thrown));
    // The payload of a panic may panic again when it is dropped; that panic is not reported.
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(thrown))) {
        std::mem::forget(again);
    }
    match LAST_PANIC.take() {
        Some(place) => failure.at(place),
        None => failure,
    }
}

fn message(thrown: &(dyn Any + Send)) -> String {
    let text = thrown.downcast_ref::<&str>().copied().map(str::to_owned);
    text.or_else(|| thrown.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".into())
}

/// Reports the reason of a failure to the runner, and returns its status.
///
/// # Safety
/// `answer` is that of the running call.
#[cold]
unsafe fn explain(answer: *const TidegateAnswer, failure: &Failure) -> i32 {
    // SAFETY: the caller vouches for it, here and below.
    unsafe { say(answer, &failure.message) };
    // SAFETY: as above. The runner may know fewer fields, or more.
    let answer = unsafe { borrowed::sized(answer) };
    if let (Some(set), Some(place)) = (answer.place, &failure.place) {
        let line = u32::try_from(place.line).unwrap_or(u32::MAX);
        let column = place.column.map_or(0, |column| u32::try_from(column).unwrap_or(u32::MAX));
        // SAFETY: as the ABI asks.
        unsafe { set(answer.target, TidegateBytes::of(place.file.as_bytes()), line, column) };
    }
    if let (Some(set), Some(context)) = (answer.context, &failure.context) {
        // SAFETY: as the ABI asks.
        unsafe { set(answer.target, TidegateBytes::of(context.as_bytes())) };
    }
    let kinds = [FailureKind::Payload, FailureKind::Limit, FailureKind::Output];
    if let (Some(set), true) = (answer.word, failure.cause.is_some() || kinds.contains(&failure.kind)) {
        let word = failure.word();
        // SAFETY: as the ABI asks; the word lives until the call returns.
        unsafe { set(answer.target, TidegateBytes::of(word.as_bytes())) };
    }
    match failure.kind {
        FailureKind::Retry => abi::TIDEGATE_RETRY,
        FailureKind::RetryIn(delay) => {
            if let Some(set) = answer.delay {
                // SAFETY: as the ABI asks.
                unsafe { set(answer.target, u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)) };
            }
            abi::TIDEGATE_RETRY_IN
        }
        FailureKind::Rejected => abi::TIDEGATE_REJECT,
        FailureKind::GateClosed => abi::TIDEGATE_GATE_CLOSED,
        FailureKind::Pending => abi::TIDEGATE_PENDING,
        FailureKind::Panicked => abi::TIDEGATE_PANICKED,
        FailureKind::Halted => abi::TIDEGATE_HALT,
        _ => TIDEGATE_FAILED,
    }
}

/// # Safety
/// As [`explain`].
unsafe fn say(answer: *const TidegateAnswer, text: &str) {
    // SAFETY: the caller vouches for it.
    let answer = unsafe { borrowed::sized(answer) };
    if let Some(say) = answer.say {
        // SAFETY: as the ABI asks; the text lives until the call returns.
        unsafe { say(answer.target, TidegateBytes::of(text.as_bytes())) };
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::unfit;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "is only read")]
    struct Config {
        count: Option<u64>,
        mode: Option<Mode>,
        letter: Option<char>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Mode {
        Fast,
        Slow,
    }

    fn message_of(config: &str) -> String {
        unfit(&serde_json::from_str::<Config>(config).unwrap_err()).message
    }

    #[test]
    fn what_does_not_fit_is_told_and_not_shown() {
        let messages = [
            message_of(r#"{"count": "hunter2, expected"}"#),
            message_of(r#"{"mode": "hunter2"}"#),
            message_of(r#"{"letter": "hunter2"}"#),
            message_of(r#"{"hunter": 2}"#),
        ];
        assert_eq!(
            messages.map(|message| message.replace("`config` does not match the step: ", "")),
            [
                "it has a text instead of u64 at line 1 column 29",
                "it has a text instead of `fast` or `slow` at line 1 column 18",
                "it has a text instead of a character at line 1 column 20",
                "unknown field `hunter`, expected one of `count`, `mode`, `letter` at line 1 column 9",
            ]
        );
    }
}
