//! What an attempt may use: memory, time and operations.
//!
//! Each operation of a script is charged here, also those of closures that a native function calls. A native
//! function that makes more than it is given asks for room first; what comes together in between is seen
//! with the next operation.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rhai::{Dynamic, Engine, EvalAltResult, Position};

use super::captured::{Captured, Kept};
use super::control::Ended;
use super::ticker;
use crate::config::Limits;
use crate::memory::{self, Budget};

/// Shared by the engines of a step; an attempt at a time.
#[derive(Debug)]
pub(super) struct Attempt {
    limits: Limits,
    deadline: Cell<Option<Instant>>,
    /// How many operations it has taken.
    operations: Cell<u64>,
    /// The tick at which the clock was asked last.
    asked: Cell<u64>,
    /// What a function found that could not fail itself.
    doom: RefCell<Option<Ended>>,
    captured: RefCell<Captured>,
    kept: RefCell<Kept>,
}

/// An attempt under way. What it holds is free once this is dropped.
#[derive(Debug)]
pub(super) struct Running {
    attempt: Rc<Attempt>,
    outer: Outer,
    /// Dropped last: what is freed before is not charged to anything around it.
    _budget: Budget,
}

/// What an attempt that is under way resumes with.
#[derive(Debug)]
struct Outer {
    deadline: Option<Instant>,
    operations: u64,
    doom: Option<Ended>,
    captured: Captured,
}

impl Attempt {
    pub(super) fn new(limits: &Limits) -> Rc<Self> {
        Rc::new(Self {
            limits: *limits,
            deadline: Cell::default(),
            operations: Cell::default(),
            asked: Cell::new(ticker::NEVER),
            doom: RefCell::default(),
            captured: RefCell::default(),
            kept: RefCell::default(),
        })
    }

    /// Begins an attempt, which has `left` of its time. Where one is under way it goes on afterwards.
    pub(super) fn begin(self: &Rc<Self>, left: Option<Duration>) -> Running {
        let deadline = left.and_then(|left| Instant::now().checked_add(left));
        let outer = Outer {
            deadline: self.deadline.replace(deadline),
            operations: self.operations.replace(0),
            doom: self.doom.take(),
            captured: self.captured.take(),
        };
        Running { attempt: Rc::clone(self), outer, _budget: Budget::new(self.limits.memory) }
    }

    /// Charges each operation that `engine` performs.
    pub(super) fn watch(self: &Rc<Self>, engine: &mut Engine) {
        let attempt = Rc::clone(self);
        engine.on_progress(move |_| {
            let operations = attempt.operations.get() + 1;
            attempt.operations.set(operations);
            let is_plain = operations <= attempt.limits.operations
                && memory::left() >= 0
                && ticker::ticks() == attempt.asked.get();
            if is_plain { None } else { attempt.end().map(Dynamic::from) }
        });
    }

    /// Why the attempt must end, if it must.
    #[cold]
    fn end(&self) -> Option<Ended> {
        if let Some(doom) = &*self.doom.borrow() {
            return Some(doom.clone());
        }
        if self.operations.get() > self.limits.operations {
            return Some(Ended::TooManyOperations);
        }
        if memory::left() < 0 {
            self.sweep();
            if memory::left() < 0 {
                return Some(Ended::TooMuchMemory { bytes: self.held(), by: None });
            }
        }
        self.asked.set(ticker::see());
        let is_over = self.deadline.get().is_some_and(|deadline| Instant::now() >= deadline);
        is_over.then_some(Ended::TimedOut)
    }

    /// The bytes that the attempt holds.
    fn held(&self) -> u64 {
        u64::try_from(i128::from(self.limits.memory) - i128::from(memory::left())).unwrap_or(0)
    }

    /// Goes on only where `bytes` more, which `function` is about to take, stay within the limit.
    pub(super) fn room(&self, function: &'static str, bytes: usize) -> Result<(), Box<EvalAltResult>> {
        let fits = || i64::try_from(bytes).is_ok_and(|bytes| bytes <= memory::left());
        if fits() {
            return Ok(());
        }
        self.sweep();
        if fits() {
            return Ok(());
        }
        let bytes = self.held().saturating_add(bytes as u64);
        Err(ended(Ended::TooMuchMemory { bytes, by: Some(function) }))
    }

    /// The bytes that it may still take.
    pub(super) fn free(&self) -> usize {
        let most = usize::try_from(self.limits.memory).unwrap_or(usize::MAX);
        let left = || usize::try_from(memory::left()).map_or(0, |left| left.min(most));
        if left() < most / 2 {
            self.sweep();
        }
        left()
    }

    /// The error of `function`, which has found that what it makes takes more than that.
    #[expect(clippy::unnecessary_box_returns, reason = "as errors of Rhai are")]
    pub(super) fn full(&self, function: &'static str) -> Box<EvalAltResult> {
        ended(Ended::TooMuchMemory { bytes: self.limits.memory, by: Some(function) })
    }

    /// For native functions that go through much by themselves: goes on only where there is time and memory
    /// left.
    #[inline]
    pub(super) fn go_on(&self, function: &'static str) -> Result<(), Box<EvalAltResult>> {
        if memory::left() >= 0 && ticker::ticks() == self.asked.get() { Ok(()) } else { self.stop(function) }
    }

    #[cold]
    fn stop(&self, function: &'static str) -> Result<(), Box<EvalAltResult>> {
        match self.end() {
            None => Ok(()),
            Some(Ended::TooMuchMemory { bytes, .. }) => {
                Err(ended(Ended::TooMuchMemory { bytes, by: Some(function) }))
            }
            Some(why) => Err(ended(why)),
        }
    }

    /// Ends the attempt with its next operation, or with [`Self::settle`]: for functions whose errors Rhai
    /// takes for something else.
    pub(super) fn doom(&self, why: &EvalAltResult) {
        if let EvalAltResult::ErrorTerminated(token, _) = why {
            self.doom.replace(token.clone().try_cast());
            self.asked.set(ticker::NEVER);
        }
    }

    /// Whether the script, which has come to its end, was allowed to.
    pub(super) fn settle(&self) -> Result<(), Box<EvalAltResult>> {
        match &*self.doom.borrow() {
            Some(doom) => Err(ended(doom.clone())),
            None => Ok(()),
        }
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Takes charge of a captured variable that is read.
    pub(super) fn adopt(&self, variable: &mut Dynamic) {
        self.captured.borrow_mut().adopt(variable, &self.kept.borrow());
    }

    /// Holds a captured constant that is read.
    pub(super) fn hold(&self, constant: &Dynamic) {
        self.captured.borrow_mut().hold(constant);
    }

    /// Frees captured variables that the script has given up.
    fn sweep(&self) {
        if let Ok(mut captured) = self.captured.try_borrow_mut() {
            captured.sweep();
        }
    }

    /// Scripts that `work` reads leave nothing behind.
    pub(super) fn apart<T>(&self, work: impl FnOnce() -> T) -> T {
        let kept = self.kept.take();
        let made = work();
        self.kept.replace(kept);
        made
    }
}

/// Ends the attempt, past any `try` of the script.
#[expect(clippy::unnecessary_box_returns, reason = "as errors of Rhai are")]
pub(super) fn ended(why: Ended) -> Box<EvalAltResult> {
    EvalAltResult::ErrorTerminated(Dynamic::from(why), Position::NONE).into()
}

impl Running {
    /// What closures have captured stays after the attempt, as it is now.
    pub(super) fn keep(&self) {
        self.attempt.captured.borrow_mut().keep(&mut self.attempt.kept.borrow_mut());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Outer { deadline, operations, doom, captured } = &mut self.outer;
        self.attempt.captured.replace(std::mem::take(captured)).release();
        self.attempt.deadline.set(*deadline);
        self.attempt.operations.set(*operations);
        self.attempt.doom.replace(doom.take());
    }
}
