//! The other side of the boundary, for whoever runs plugins: a description made safe.
//!
//! [`Plugin::attach`] is the one function that has to trust a pointer. Everything that it gives out
//! keeps the library loaded.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::abi::{
    self, PLUGIN_BYTES_MIN, STEP_BYTES_MIN, TIDEGATE_ABI_VERSION, TIDEGATE_FAILED, TIDEGATE_OK,
    TIDEGATE_TOKEN_LEN, TidegateAnswer, TidegateBytes, TidegateHost, TidegateJob, TidegatePlugin,
    TidegateSetup, TidegateStep,
};
use crate::words::format_duration;
use crate::{Cause, Checkpoint, Failure, FailureKind, Job, Level, Outputs, Place, borrowed, json};

mod output;

pub use output::fault_of_handle;

/// What keeps a library loaded.
pub type Keep = Arc<dyn KeepsLoaded>;

/// Keeps a library loaded until it is dropped, and longer where threads that ran its code are left.
pub trait KeepsLoaded: Send + Sync + 'static {
    /// This thread runs code of the library from now on.
    fn entered(&self);
}

/// For code that is part of the program.
impl KeepsLoaded for () {
    fn entered(&self) {}
}

/// A library whose description has been read and found in order.
#[derive(Clone)]
pub struct Plugin {
    name: String,
    version: String,
    /// At least one. Each keeps the library loaded.
    offers: Vec<Offer>,
}

/// A step that a plugin offers.
#[derive(Clone)]
pub struct Offer {
    name: String,
    description: String,
    has_effects: bool,
    schema: Option<String>,
    functions: Functions,
    keep: Keep,
}

#[derive(Clone, Copy)]
struct Functions {
    create: unsafe extern "C" fn(*const TidegateSetup, *const TidegateAnswer, *mut *mut c_void) -> i32,
    process: unsafe extern "C" fn(*mut c_void, *const TidegateJob, *const TidegateAnswer) -> i32,
    destroy: unsafe extern "C" fn(*mut c_void, *const TidegateAnswer) -> i32,
}

/// Why a description cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unusable {
    /// There is none.
    Null,
    /// It was built for another version of the interface.
    Version(u32),
    /// It is shorter than this version's.
    Size(usize),
    /// A function or a list is missing; says which.
    Missing(String),
    /// Texts that should say something, or steps of one name; says which.
    Wrong(String),
    /// The plugin itself refuses.
    Init(String),
}

/// What an instance asks of whoever runs it; called from any thread.
pub trait Host: Send + Sync {
    fn log(&self, level: Level, message: &str);

    /// Whether what runs should end.
    fn stopping(&self) -> bool;

    /// The token of the job with this delivery hash, where there are tokens.
    fn token(&self, hash: u128) -> Option<[u8; TIDEGATE_TOKEN_LEN]>;
}

/// What an instance is made from.
#[derive(Clone, Copy, Debug)]
pub struct Spec<'a> {
    pub pipeline: &'a str,
    pub step: &'a str,
    /// A JSON object.
    pub config: &'a str,
    pub bindings: &'a [&'a str],
    pub timeout: Option<Duration>,
}

/// An instance of a step; on one thread.
pub struct Instance {
    raw: *mut c_void,
    functions: Functions,
    /// `None` when it has ended.
    line: Option<Arc<Line>>,
    keep: Keep,
    /// What stood in the outputs before the job that runs.
    before: Checkpoint,
    /// Neither sent nor shared.
    _thread: PhantomData<*mut ()>,
}

/// What a plugin holds on to of the runner. It is counted (each `retain` is one `Arc` more), since the
/// plugin's threads may outlive the instance.
struct Line {
    host: TidegateHost,
    serves: Box<dyn Host>,
    /// The instance is gone.
    ended: AtomicBool,
}

// SAFETY: the pointer in `host` is to the line itself, and everything else may be shared.
unsafe impl Send for Line {}
// SAFETY: as above.
unsafe impl Sync for Line {}

/// Where the answers of one call go.
struct Target<'a> {
    outputs: Option<&'a mut Outputs>,
    said: String,
    place: Option<Place>,
    context: Option<Box<str>>,
    delay_ms: u64,
    /// What kind of failure it is, in a word.
    word: Option<String>,
    /// An output went to a binding that is none.
    astray: Option<u32>,
    /// Bytes that the outputs may come to, and how many of them are left.
    memory: u64,
    room: u64,
    /// An output was refused since there was no room.
    full: bool,
}

impl Plugin {
    /// Reads a description, and initializes the plugin.
    ///
    /// # Errors
    /// Why it cannot be used; nothing was called then, but for `Init`.
    ///
    /// # Safety
    /// `description` is null, or what a plugin's entry returned, and its library stays loaded for as
    /// long as `keep` lives.
    pub unsafe fn attach(description: *const TidegatePlugin, keep: &Keep) -> Result<Self, Unusable> {
        if description.is_null() {
            return Err(Unusable::Null);
        }
        if !description.is_aligned() {
            return Err(Unusable::Wrong("it does not stand at an address that is a multiple of 8".into()));
        }
        // SAFETY: of every version, these two come first. They are read alone, as nothing else is known
        // to be there yet.
        let (version, size) = unsafe {
            ((&raw const (*description).abi_version).read(), (&raw const (*description).size).read())
        };
        if version != TIDEGATE_ABI_VERSION {
            return Err(Unusable::Version(version));
        }
        if (size as usize) < PLUGIN_BYTES_MIN {
            return Err(Unusable::Size(size as usize));
        }
        // SAFETY: it has so many bytes.
        let about = unsafe { borrowed::prefix(description, size as usize) };
        if about.step_size < STEP_BYTES_MIN || about.step_size % align_of::<TidegateStep>() != 0 {
            return Err(Unusable::Size(about.step_size));
        }
        if about.step_count == 0 || about.steps.is_null() {
            return Err(Unusable::Missing("steps".into()));
        }
        if about.step_count > STEPS_MAX {
            let count = about.step_count;
            return Err(Unusable::Wrong(format!("it has {count} steps, and {STEPS_MAX} are the most")));
        }
        if !about.steps.is_aligned() {
            let wrong = "its steps do not stand at an address that is a multiple of 8";
            return Err(Unusable::Wrong(wrong.into()));
        }
        // SAFETY: texts of a description live as long as the library.
        let (name, version) = unsafe { (line(about.name, "name")?, line(about.version, "version")?) };
        if name.is_empty() {
            return Err(Unusable::Wrong("its name is empty".into()));
        }
        let steps: Vec<TidegateStep> = (0..about.step_count)
            .map(|position| {
                // SAFETY: `step_count` steps of `step_size` bytes stand in a row.
                unsafe { borrowed::prefix(about.steps.byte_add(position * about.step_size), about.step_size) }
            })
            .collect();
        if let Some(init) = about.init {
            // SAFETY: as the ABI asks: once, before anything else is used.
            call(None, |answer| unsafe { init(answer) })
                .map_err(|failure| Unusable::Init(failure.message))?;
        }
        let mut offers: Vec<Offer> = Vec::with_capacity(steps.len());
        for step in steps {
            // SAFETY: the step is of a description that lives as long as `keep`.
            let offer = unsafe { Offer::of(&step, keep) }?;
            if offers.iter().any(|other| other.name == offer.name) {
                return Err(Unusable::Wrong(format!("it offers `{}` twice", offer.name)));
            }
            offers.push(offer);
        }
        Ok(Self { name, version, offers })
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// In the plugin's order.
    #[must_use]
    pub fn offers(&self) -> &[Offer] {
        &self.offers
    }

    #[must_use]
    pub fn offer(&self, name: &str) -> Option<&Offer> {
        self.offers.iter().find(|offer| offer.name == name)
    }
}

/// More steps than that are a mistake.
const STEPS_MAX: usize = 4096;
/// A longer name, version or description is a mistake, in bytes.
const LINE_BYTES_MAX: usize = 64 << 10;

/// A text of a description, which messages show: one line.
///
/// # Safety
/// As [`borrowed::slice`].
unsafe fn line(bytes: TidegateBytes, what: &str) -> Result<String, Unusable> {
    if bytes.len > LINE_BYTES_MAX {
        let len = bytes.len;
        return Err(Unusable::Wrong(format!(
            "the {what} has {len} bytes, and {LINE_BYTES_MAX} are the most"
        )));
    }
    // SAFETY: the caller vouches for it.
    let text = unsafe { borrowed::text(bytes) };
    if text.contains(char::is_control) {
        return Err(Unusable::Wrong(format!(
            "the {what} holds a control character, perhaps the end of a line"
        )));
    }
    Ok(text)
}

impl Offer {
    /// # Safety
    /// As [`Plugin::attach`].
    unsafe fn of(step: &TidegateStep, keep: &Keep) -> Result<Self, Unusable> {
        // SAFETY: texts of a description live as long as the library.
        let (name, description) =
            unsafe { (line(step.name, "name of a step")?, line(step.description, "description of a step")?) };
        if name.is_empty() || name.contains(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_') {
            return Err(Unusable::Wrong(format!("`{name}` is no name for a step")));
        }
        let missing = |function| Unusable::Missing(format!("function `{function}` of its step `{name}`"));
        let functions = Functions {
            create: step.create.ok_or_else(|| missing("create"))?,
            process: step.process.ok_or_else(|| missing("process"))?,
            destroy: step.destroy.ok_or_else(|| missing("destroy"))?,
        };
        let mut schema = None;
        if let Some(ask) = step.schema {
            let mut target = Target::new(None);
            // SAFETY: as the ABI asks: after `init`, with an answer of its own.
            let asked = target.call(|answer| unsafe { ask(answer) });
            asked.map_err(|failure| Unusable::Wrong(format!("the schema of `{name}`: {failure}")))?;
            schema = Some(target.said).filter(|said| !said.is_empty());
        }
        let unknown = step.flags & !abi::TIDEGATE_HAS_EFFECTS;
        if unknown != 0 {
            let wrong =
                format!("its step `{name}` has flags that this Tidegate does not know ({unknown:#x})");
            return Err(Unusable::Wrong(wrong));
        }
        let has_effects = step.flags & abi::TIDEGATE_HAS_EFFECTS != 0;
        Ok(Self { name, description, has_effects, schema, functions, keep: Arc::clone(keep) })
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Whether attempts can be seen from outside.
    #[must_use]
    pub fn has_effects(&self) -> bool {
        self.has_effects
    }

    /// The JSON Schema of the step's config, as the plugin says it.
    #[must_use]
    pub fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// Makes an instance for this thread.
    ///
    /// # Errors
    /// What the plugin says.
    pub fn create(&self, spec: &Spec<'_>, host: Box<dyn Host>) -> Result<Instance, Failure> {
        self.keep.entered();
        let line = Line::open(host);
        let bindings: Vec<TidegateBytes> =
            spec.bindings.iter().map(|binding| TidegateBytes::of(binding.as_bytes())).collect();
        let setup = TidegateSetup {
            size: size_of::<TidegateSetup>(),
            host: &raw const line.host,
            pipeline: TidegateBytes::of(spec.pipeline.as_bytes()),
            step: TidegateBytes::of(spec.step.as_bytes()),
            config: TidegateBytes::of(spec.config.as_bytes()),
            bindings: bindings.as_ptr(),
            binding_count: bindings.len(),
            timeout_ms: spec
                .timeout
                .map_or(0, |timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).max(1)),
        };
        let mut raw = std::ptr::null_mut();
        // SAFETY: as the ABI asks; all that `setup` points to lives past the call.
        let created =
            call(None, |answer| unsafe { (self.functions.create)(&raw const setup, answer, &raw mut raw) });
        if let Err(failure) = created {
            line.end(&self.keep);
            return Err(failure);
        }
        let (functions, keep) = (self.functions, Arc::clone(&self.keep));
        let before = Checkpoint::default();
        Ok(Instance { raw, functions, line: Some(line), keep, before, _thread: PhantomData })
    }
}

impl Instance {
    /// Runs one attempt, whose outputs may come to `memory` bytes, and looks at what it gave. Outputs of a
    /// failed one are left for the caller to take back.
    ///
    /// # Errors
    /// What the plugin says, or what is wrong with an output. After [`FailureKind::Panicked`] the instance
    /// should be dropped.
    pub fn process(&mut self, job: &Job<'_>, outputs: &mut Outputs, memory: u64) -> Result<(), Failure> {
        outputs.mark(&mut self.before);
        let raw_job = TidegateJob {
            size: size_of::<TidegateJob>(),
            payload: TidegateBytes::of(job.payload),
            index: job.index,
            hash_high: (job.hash >> 64) as u64,
            #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
            hash_low: job.hash as u64,
            now_ms: job.now_ms,
            attempt: job.attempt,
            piece: job.piece,
        };
        let (process, raw) = (self.functions.process, self.raw);
        let mut target = Target { memory, room: memory, ..Target::new(Some(&mut *outputs)) };
        // SAFETY: as the ABI asks: `create` made it, on this thread, and it is not destroyed.
        target.call(|answer| unsafe { process(raw, &raw const raw_job, answer) })?;
        output::check(job, &self.before, outputs)
    }

    /// Ends the instance.
    ///
    /// # Errors
    /// What the plugin says; the instance is gone all the same.
    pub fn close(mut self) -> Result<Ended, Failure> {
        self.end()
    }

    fn end(&mut self) -> Result<Ended, Failure> {
        let Some(line) = self.line.take() else { return Ok(Ended::Clean) };
        line.ended.store(true, Ordering::Release);
        let (destroy, raw) = (self.functions.destroy, self.raw);
        // SAFETY: as the ABI asks: `create` made it, on this thread, and this is the only `destroy`, since
        // the line is taken once.
        let destroyed = call(None, |answer| unsafe { destroy(raw, answer) });
        let ended = line.end(&self.keep);
        destroyed.map(|()| ended)
    }
}

/// How an instance ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Nothing of it is left.
    Clean,
    /// Something of the plugin, perhaps a thread, still holds on to the runner; the library stays loaded
    /// for good.
    LeftBehind,
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.end(); // whoever wants to know calls `close`
    }
}

impl Line {
    fn open(serves: Box<dyn Host>) -> Arc<Self> {
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

    /// Takes leave of it. Where the plugin still holds it, its library must never be closed: nobody
    /// knows when the code that will let go has run to its end.
    fn end(self: Arc<Self>, keep: &Keep) -> Ended {
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
    // SAFETY: it gives back one `retain`.
    unsafe { Arc::decrement_strong_count(context.cast::<Line>()) };
}

unsafe extern "C" fn token(context: *const c_void, hash_high: u64, hash_low: u64, to: *mut u8) -> i32 {
    // SAFETY: the plugin holds the line.
    let line = unsafe { &*context.cast::<Line>() };
    let hash = u128::from(hash_high) << 64 | u128::from(hash_low);
    // A panic here would have to cross the plugin.
    let made = catch_unwind(AssertUnwindSafe(|| line.serves.token(hash)));
    let Ok(Some(token)) = made else { return TIDEGATE_FAILED };
    // SAFETY: the plugin gives room for so many bytes, which need no alignment.
    unsafe { to.cast::<[u8; TIDEGATE_TOKEN_LEN]>().write(token) };
    TIDEGATE_OK
}

/// Calls into a plugin, with an answer of its own.
fn call(
    outputs: Option<&mut Outputs>,
    run: impl FnOnce(*const TidegateAnswer) -> i32,
) -> Result<(), Failure> {
    Target::new(outputs).call(run)
}

impl<'a> Target<'a> {
    fn new(outputs: Option<&'a mut Outputs>) -> Self {
        Self {
            outputs,
            said: String::new(),
            place: None,
            context: None,
            delay_ms: 0,
            word: None,
            astray: None,
            memory: 0,
            room: 0,
            full: false,
        }
    }

    fn call(&mut self, run: impl FnOnce(*const TidegateAnswer) -> i32) -> Result<(), Failure> {
        let answer = TidegateAnswer {
            size: size_of::<TidegateAnswer>(),
            target: (&raw mut *self).cast(),
            push: Some(push),
            say: Some(say),
            place: Some(place),
            context: Some(context),
            delay: Some(delay),
            word: Some(word),
        };
        let status = run(&raw const answer);
        if status == TIDEGATE_OK && self.astray.is_none() && !self.full {
            return Ok(());
        }
        Err(self.failure(status))
    }

    #[cold]
    fn failure(&mut self, status: i32) -> Failure {
        let said = std::mem::take(&mut self.said);
        let tries =
            matches!(status, TIDEGATE_OK | TIDEGATE_FAILED | abi::TIDEGATE_RETRY | abi::TIDEGATE_RETRY_IN);
        // What was pushed after that is lost, whatever the plugin made of the refusal.
        if self.full && tries {
            return output::too_much(self.memory);
        }
        let (mut kind, unsaid) = match (status, self.astray) {
            (TIDEGATE_OK, Some(binding)) => return astray(binding),
            (TIDEGATE_FAILED, Some(binding)) if said.is_empty() => return astray(binding),
            (TIDEGATE_FAILED, _) => (FailureKind::Failed, "it failed without a reason"),
            (abi::TIDEGATE_RETRY, _) => (FailureKind::Retry, "without a reason"),
            (abi::TIDEGATE_RETRY_IN, _) => {
                (FailureKind::RetryIn(Duration::from_millis(self.delay_ms)), "without a reason")
            }
            (abi::TIDEGATE_REJECT, _) => (FailureKind::Rejected, "without a reason"),
            (abi::TIDEGATE_GATE_CLOSED, _) => (FailureKind::GateClosed, "without a reason"),
            (abi::TIDEGATE_PENDING, _) => (FailureKind::Pending, ""),
            (abi::TIDEGATE_PANICKED, _) => (FailureKind::Panicked, "without a message"),
            (unknown, _) => {
                let message = format!("it returned the status {unknown}, which does not exist");
                return Failure::new(FailureKind::Failed, message);
            }
        };
        if kind == FailureKind::Pending
            && let Some(fault) = output::fault_of_handle(&said)
        {
            return Failure::new(FailureKind::Limit, fault);
        }
        let word = self.word.take().unwrap_or_default();
        let cause = Cause::of_word(&word).filter(|_| tries);
        if status == TIDEGATE_FAILED {
            kind = kind_of_word(&word, cause);
        }
        let message = if said.is_empty() { unsaid.to_owned() } else { said };
        let (context, place) = (self.context.take().map(as_json), self.place.take());
        Failure { context, place, cause, ..Failure::new(kind, message) }
    }
}

/// An output went to a binding that the step does not have.
fn astray(binding: u32) -> Failure {
    let message = format!("it gave an output to binding {binding}, which the step does not have");
    Failure::new(FailureKind::Output, message)
}

/// The kind of a failed attempt of which the plugin says this word.
fn kind_of_word(word: &str, cause: Option<Cause>) -> FailureKind {
    match (word, cause) {
        ("payload", _) => FailureKind::Payload,
        ("output", _) => FailureKind::Output,
        ("limit", _) | (_, Some(Cause::Timeout)) => FailureKind::Limit,
        _ => FailureKind::Failed,
    }
}

/// What is no JSON, as a text.
fn as_json(context: Box<str>) -> Box<str> {
    match json::check(context.as_bytes()) {
        Ok(()) => context,
        Err(_) => serde_json::Value::from(&*context).to_string().into(),
    }
}

/// What an attempt with this `timeout` came to that ended after its time was over: it has failed, and one
/// that was asked to stop and obeyed is no other than one that was not asked.
///
/// # Errors
/// Why it does not count. What asks for something by itself is left as it is.
pub fn ended_late(processed: Result<(), Failure>, timeout: Option<Duration>) -> Result<(), Failure> {
    match processed {
        Ok(()) => {
            let timeout = format_duration(timeout.unwrap_or_default());
            let message =
                format!("it came back after the `timeout` of {timeout}, so what it gave does not count");
            Err(Failure::new(FailureKind::Limit, message).because(Cause::Timeout))
        }
        Err(failure) if failure.kind == FailureKind::Failed && failure.cause.is_none() => {
            Err(Failure { kind: FailureKind::Limit, ..failure.because(Cause::Timeout) })
        }
        Err(failure) => Err(failure),
    }
}

unsafe extern "C" fn push(target: *mut c_void, binding: u32, payload: TidegateBytes) -> i32 {
    // SAFETY: it is the target of the call that runs, on its thread, and nobody else touches it meanwhile.
    let target = unsafe { &mut *target.cast::<Target<'_>>() };
    let len = payload.len;
    // SAFETY: the payload lives for this call.
    let payload = unsafe { borrowed::slice(payload) };
    let Some(outputs) = target.outputs.as_deref_mut() else {
        target.astray = Some(binding);
        return TIDEGATE_FAILED;
    };
    // A step without `to` drops what it is given.
    if outputs.bindings() == 0 && binding == 0 {
        return TIDEGATE_OK;
    }
    let Some(payloads) = outputs.get_mut(binding as usize) else {
        target.astray = Some(binding);
        return TIDEGATE_FAILED;
    };
    let Some(room) = target.room.checked_sub(len as u64).filter(|_| len <= borrowed::BYTES_MAX) else {
        target.full = true;
        return TIDEGATE_FAILED;
    };
    target.room = room;
    payloads.push(payload);
    TIDEGATE_OK
}

unsafe extern "C" fn say(target: *mut c_void, text: TidegateBytes) {
    // SAFETY: as in `push`.
    let target = unsafe { &mut *target.cast::<Target<'_>>() };
    // SAFETY: the text lives for this call.
    target.said = unsafe { borrowed::text(text) };
}

unsafe extern "C" fn place(target: *mut c_void, file: TidegateBytes, line: u32, column: u32) {
    // SAFETY: as in `push`.
    let target = unsafe { &mut *target.cast::<Target<'_>>() };
    // SAFETY: the text lives for this call.
    let file = unsafe { borrowed::text(file) };
    let column = (column > 0).then_some(u64::from(column));
    target.place = Some(Place { file, line: u64::from(line), column });
}

unsafe extern "C" fn context(target: *mut c_void, json: TidegateBytes) {
    // SAFETY: as in `push`.
    let target = unsafe { &mut *target.cast::<Target<'_>>() };
    // SAFETY: the text lives for this call.
    target.context = Some(unsafe { borrowed::text(json) }.into());
}

unsafe extern "C" fn delay(target: *mut c_void, delay_ms: u64) {
    // SAFETY: as in `push`.
    let target = unsafe { &mut *target.cast::<Target<'_>>() };
    target.delay_ms = delay_ms;
}

unsafe extern "C" fn word(target: *mut c_void, word: TidegateBytes) {
    // SAFETY: as in `push`.
    let target = unsafe { &mut *target.cast::<Target<'_>>() };
    // SAFETY: the word lives for this call.
    target.word = Some(unsafe { borrowed::text(word) });
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("it describes nothing"),
            Self::Version(version) => write!(
                f,
                "it was built for version {version} of the plugin interface; this Tidegate speaks version \
                 {TIDEGATE_ABI_VERSION}"
            ),
            Self::Size(size) => {
                write!(f, "its description has {size} bytes, which is no size of this version's")
            }
            Self::Missing(what) => write!(f, "its description lacks {what}"),
            Self::Wrong(what) => write!(f, "its description is wrong: {what}"),
            Self::Init(why) => write!(f, "it cannot be initialized: {why}"),
        }
    }
}

impl std::error::Error for Unusable {}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, version, offers, .. } = self;
        f.debug_struct("Plugin")
            .field("name", name)
            .field("version", version)
            .field("offers", offers)
            .finish()
    }
}

impl fmt::Debug for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offer").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instance").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
