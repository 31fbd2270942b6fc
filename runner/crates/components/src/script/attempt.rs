//! `ScriptAttempt`: enforces the limits of a script on memory, time and operations.
//!
//! Each operation of a script is charged here, also in closures that a native function calls. A native
//! function that creates more than its arguments first asks for memory; smaller allocations are noticed at
//! the next operation.
//!
//! A limit that is reached between two operations unwinds the stack up to [`run`]. An error would not do:
//! Rhai formats the whole value if the function that formats it fails.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::time::Duration;

use rhai::{Dynamic, Engine, EvalAltResult, EvalContext, Position};

use super::api::context::ScriptContext;
use super::api::decided::{AttemptEnd, Emit};
use super::ticker;
use super::values::captured::{Captured, Kept};
use crate::coarse_clock::CoarseClock;
use crate::memory::{self, Budget};
use tidegate_config::Limits;

/// Shared by the engines of a step; one attempt at a time.
#[derive(Debug)]
pub(crate) struct ScriptAttempt {
    limits: Limits,
    context: ScriptContext,
    /// The jobs that it has emitted.
    emitted: RefCell<Vec<Emit>>,
    /// In nanoseconds of [`CoarseClock`].
    deadline: Cell<Option<u64>>,
    /// Number of operations performed.
    operations: Cell<u64>,
    /// Number of operations before the next check of the limits.
    most: Cell<u64>,
    /// The tick of the last read of the clock.
    asked: Cell<u64>,
    /// The operation at which it stops with an error that has a position; `None`: it runs up to its limits.
    stop: Cell<Option<u64>>,
    /// The operation that is formatting a text.
    writing: Cell<Option<u64>>,
    captured: RefCell<Captured>,
    kept: RefCell<Kept>,
}

thread_local! {
    /// The running attempt; without one, an attempt with default limits.
    static CURRENT: RefCell<Rc<ScriptAttempt>> = RefCell::new(ScriptAttempt::new(&Limits::default()));
}

/// The running attempt of this thread, for functions of scripts.
pub(crate) fn current() -> Rc<ScriptAttempt> {
    CURRENT.with_borrow(Rc::clone)
}

/// An attempt in progress. Dropping it frees its memory.
#[derive(Debug)]
pub(crate) struct RunningAttempt {
    attempt: Rc<ScriptAttempt>,
    outer: Outer,
    /// Dropped last: memory that is freed before is not charged to the outer budget.
    _budget: Budget,
}

/// The state to restore after a nested attempt.
#[derive(Debug)]
struct Outer {
    /// The attempt that ran before on this thread.
    current: Option<Rc<ScriptAttempt>>,
    deadline: Option<u64>,
    operations: u64,
    most: u64,
    stop: Option<u64>,
    writing: Option<u64>,
    captured: Captured,
}

/// The payload of the unwinding.
struct Struck(AttemptEnd);

impl ScriptAttempt {
    pub(crate) fn new(limits: &Limits) -> Rc<Self> {
        Self::with(limits, ScriptContext::none())
    }

    /// Attempts at jobs with this `context`.
    pub(crate) fn with(limits: &Limits, context: ScriptContext) -> Rc<Self> {
        Rc::new(Self {
            limits: *limits,
            context,
            emitted: RefCell::default(),
            deadline: Cell::default(),
            operations: Cell::default(),
            most: Cell::new(limits.operations),
            asked: Cell::new(ticker::NEVER),
            stop: Cell::default(),
            writing: Cell::default(),
            captured: RefCell::default(),
            kept: RefCell::default(),
        })
    }

    /// Starts an attempt with `left` of its time. An attempt in progress continues afterwards.
    pub(crate) fn begin(self: &Rc<Self>, left: Option<Duration>) -> RunningAttempt {
        // The clock is read for each job.
        let deadline = left.map(|left| {
            let nanos = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
            CoarseClock::fit_for(Some(left)).now().saturating_add(nanos)
        });
        let outer = Outer {
            current: Some(CURRENT.replace(Rc::clone(self))),
            deadline: self.deadline.replace(deadline),
            operations: self.operations.replace(0),
            most: self.most.replace(self.limits.operations),
            stop: self.stop.take(),
            writing: self.writing.take(),
            captured: self.captured.take(),
        };
        RunningAttempt { attempt: Rc::clone(self), outer, _budget: Budget::new(self.limits.memory) }
    }

    /// Charges each operation of `engine`.
    pub(crate) fn watch(self: &Rc<Self>, engine: &mut Engine) {
        let attempt = Rc::clone(self);
        engine.on_progress(move |_| {
            #[cfg(test)]
            looks::look();
            let operations = attempt.operations.get() + 1;
            attempt.operations.set(operations);
            let is_plain = operations <= attempt.most.get()
                && memory::left() >= 0
                && ticker::ticks() == attempt.asked.get();
            if is_plain { None } else { attempt.interrupt() }
        });
    }

    /// Tracks each captured variable that `engine` reads. It slows down other variables too, and so is only
    /// for scripts that capture some.
    pub(crate) fn watch_captured(self: &Rc<Self>, engine: &mut Engine) {
        let attempt = Rc::clone(self);
        #[expect(
            deprecated,
            reason = "its note calls it volatile, not deprecated: tests pin the behaviour in use"
        )]
        engine.on_var(move |name, _, mut context: EvalContext<'_, '_, '_, '_, '_, '_>| {
            let scope = context.scope_mut();
            match scope.get_mut(name) {
                Some(variable) if variable.is_shared() => attempt.adopt(variable),
                Some(_) => {}
                None => {
                    if let Some(constant) = scope.get(name).filter(|constant| constant.is_shared()) {
                        attempt.hold(constant);
                    }
                }
            }
            Ok(None)
        });
    }

    #[cold]
    fn interrupt(&self) -> Option<Dynamic> {
        if self.stop.get().is_some_and(|stop| self.operations.get() >= stop) {
            return Some(Dynamic::from(AttemptEnd::TooManyOperations));
        }
        if let Some(why) = self.end() {
            self.operations.set(self.writing.get().unwrap_or(self.operations.get()));
            strike(why);
        }
        None
    }

    /// Why the attempt must end, if it must.
    #[cold]
    fn end(&self) -> Option<AttemptEnd> {
        if self.operations.get() > self.limits.operations {
            return Some(AttemptEnd::TooManyOperations);
        }
        if memory::left() < 0 {
            self.sweep();
            if memory::left() < 0 {
                return Some(AttemptEnd::TooMuchMemory { bytes: self.held(), by: None });
            }
        }
        self.asked.set(ticker::see());
        let is_over = self.deadline.get().is_some_and(|deadline| CoarseClock::Exact.now() >= deadline);
        is_over.then_some(AttemptEnd::TimedOut)
    }

    /// The bytes that the attempt holds.
    fn held(&self) -> u64 {
        u64::try_from(i128::from(self.limits.memory) - i128::from(memory::left())).unwrap_or(0)
    }

    /// Checks that `bytes` more, which `function` is about to allocate, stay within the limit.
    pub(crate) fn room(&self, function: &'static str, bytes: usize) -> Result<(), Box<EvalAltResult>> {
        let fits = || i64::try_from(bytes).is_ok_and(|bytes| bytes <= memory::left());
        if fits() {
            return Ok(());
        }
        self.sweep();
        if fits() {
            return Ok(());
        }
        let bytes = self.held().saturating_add(bytes as u64);
        Err(ended(AttemptEnd::TooMuchMemory { bytes, by: Some(function) }))
    }

    /// The bytes that it may still allocate.
    pub(crate) fn free(&self) -> usize {
        let most = usize::try_from(self.limits.memory).unwrap_or(usize::MAX);
        let left = || usize::try_from(memory::left()).map_or(0, |left| left.min(most));
        if left() < most / 2 {
            self.sweep();
        }
        left()
    }

    /// The error of `function` if its result exceeds the limit.
    #[expect(clippy::unnecessary_box_returns, reason = "errors of Rhai are boxed")]
    pub(crate) fn full(&self, function: &'static str) -> Box<EvalAltResult> {
        ended(AttemptEnd::TooMuchMemory { bytes: self.limits.memory, by: Some(function) })
    }

    /// For native functions with long loops: checks that time and memory are left.
    #[inline]
    pub(crate) fn go_on(&self, function: &'static str) -> Result<(), Box<EvalAltResult>> {
        #[cfg(test)]
        looks::look();
        if memory::left() >= 0 && ticker::ticks() == self.asked.get() { Ok(()) } else { self.stop(function) }
    }

    #[cold]
    fn stop(&self, function: &'static str) -> Result<(), Box<EvalAltResult>> {
        match self.end() {
            None => Ok(()),
            Some(AttemptEnd::TooMuchMemory { bytes, .. }) => {
                Err(ended(AttemptEnd::TooMuchMemory { bytes, by: Some(function) }))
            }
            Some(why) => Err(ended(why)),
        }
    }

    /// Number of operations performed.
    pub(crate) fn operations(&self) -> u64 {
        self.operations.get()
    }

    /// If `work` fails at a limit, the attempt ends by unwinding, and no operation of `work` counts. For
    /// functions whose errors Rhai misinterprets.
    pub(crate) fn or_strike<T>(&self, work: impl FnOnce() -> Result<T, Box<EvalAltResult>>) -> Option<T> {
        let outer = self.writing.get();
        let before = outer.unwrap_or(self.operations.get());
        self.writing.set(Some(before));
        let worked = work();
        self.writing.set(outer);
        match worked.map_err(|error| *error) {
            Ok(made) => Some(made),
            Err(EvalAltResult::ErrorTerminated(token, _)) => {
                self.operations.set(before);
                token.try_cast().map(|why| strike(why))
            }
            Err(_) => None,
        }
    }

    /// The attempt that has just started stops at this operation at the latest.
    pub(crate) fn stop_at(&self, operation: u64) {
        self.stop.set(Some(operation));
        self.most.set(self.limits.operations.min(operation.saturating_sub(1)));
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The job's context for its functions.
    pub(crate) fn context(&self) -> &ScriptContext {
        &self.context
    }

    /// Adds an output, if it has fewer than `most`.
    pub(crate) fn emit(&self, one: Emit, most: usize) -> bool {
        let mut emitted = self.emitted.borrow_mut();
        let has_room = emitted.len() < most;
        if has_room {
            emitted.push(one);
        }
        has_room
    }

    /// The emitted outputs, in the order of the calls.
    pub(crate) fn take_emitted(&self) -> Vec<Emit> {
        self.emitted.take()
    }

    /// Tracks a captured variable that is read.
    fn adopt(&self, variable: &mut Dynamic) {
        self.captured.borrow_mut().adopt(variable, &self.kept.borrow());
    }

    /// Holds a captured constant that is read.
    fn hold(&self, constant: &Dynamic) {
        self.captured.borrow_mut().hold(constant);
    }

    /// Frees captured variables that the script no longer uses.
    fn sweep(&self) {
        if let Ok(mut captured) = self.captured.try_borrow_mut() {
            captured.sweep();
        }
    }

    /// Scripts that `work` reads leave no state.
    pub(crate) fn apart<T>(&self, work: impl FnOnce() -> T) -> T {
        let kept = self.kept.take();
        let made = work();
        self.kept.replace(kept);
        made
    }
}

/// Runs a script, or a part of one. A limit that is reached in it is an error of it, past any `try` of the
/// script.
pub(crate) fn run<T>(work: impl FnOnce() -> Result<T, Box<EvalAltResult>>) -> Result<T, Box<EvalAltResult>> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| match panic.downcast::<Struck>() {
        Ok(struck) => Err(ended(struck.0)),
        Err(panic) => resume_unwind(panic),
    })
}

/// Ends the attempt, up to [`run`].
fn strike(why: AttemptEnd) -> ! {
    resume_unwind(Box::new(Struck(why)))
}

/// Ends the attempt, past any `try` of the script.
#[expect(clippy::unnecessary_box_returns, reason = "errors of Rhai are boxed")]
pub(crate) fn ended(why: AttemptEnd) -> Box<EvalAltResult> {
    EvalAltResult::ErrorTerminated(Dynamic::from(why), Position::NONE).into()
}

impl RunningAttempt {
    /// Keeps the captured variables after the attempt, in their present state.
    pub(crate) fn keep(&self) {
        self.attempt.captured.borrow_mut().keep(&mut self.attempt.kept.borrow_mut());
    }
}

impl Drop for RunningAttempt {
    fn drop(&mut self) {
        let Outer { current, deadline, operations, most, stop, writing, captured } = &mut self.outer;
        if let Some(outer) = current.take() {
            CURRENT.set(outer);
        }
        self.attempt.captured.replace(std::mem::take(captured)).release();
        self.attempt.deadline.set(*deadline);
        self.attempt.operations.set(*operations);
        self.attempt.most.set(*most);
        self.attempt.stop.set(*stop);
        self.attempt.writing.set(*writing);
    }
}

/// For tests: the longest time between two checks of an attempt's time. Measured in CPU time of the thread,
/// which other threads do not affect.
#[cfg(test)]
pub(crate) mod looks {
    use std::cell::Cell;
    use std::time::Duration;

    use rustix::time::{ClockId, clock_gettime};

    thread_local! {
        static LAST: Cell<Option<Duration>> = const { Cell::new(None) };
        static LONGEST: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    fn now() -> Duration {
        Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap()
    }

    pub(crate) fn look() {
        if let Some(last) = LAST.get() {
            let now = now();
            LONGEST.set(LONGEST.get().max(now.saturating_sub(last)));
            LAST.set(Some(now));
        }
    }

    /// The longest time between two checks while `work` runs.
    pub(crate) fn longest_between(work: impl FnOnce()) -> Duration {
        LONGEST.set(Duration::ZERO);
        LAST.set(Some(now()));
        work();
        look();
        LAST.set(None);
        LONGEST.get()
    }
}
