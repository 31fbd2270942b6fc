//! What a change that somebody asks for comes to: for the store, and for a run that has it open.

use tidegate_plugin::Payloads;

use super::error::Chain;
use super::request::Granted;
use tidegate_config::QueueRef;
use tidegate_model::Progress;
use tidegate_store::{Changes, DelayedJob, DelayedKey, ReadError};

/// What a request comes to.
#[derive(Debug)]
pub struct Amendment {
    pub changes: Changes,
    /// What is appended, by queue, and what it carries.
    pub(crate) appended: Vec<(QueueRef, Payloads, Option<Payloads>)>,
    /// By step and input: progress that is another now.
    pub(crate) progress: Vec<(usize, usize, Progress)>,
    /// Waiting jobs that somebody wanted to be moved.
    pub(crate) moves: Option<Moving>,
    /// A step that shall start nothing, or go on.
    pub(crate) paused: Option<(usize, bool)>,
    /// What is said of a pending job is taken: the one that the changes delay.
    pub(crate) told: bool,
    pub granted: Granted,
}

/// Jobs of a step that wait, and what becomes of them.
#[derive(Debug)]
pub(crate) struct Moving {
    pub(crate) step: usize,
    pub(crate) rows: Vec<(DelayedKey, Place)>,
    /// Indices of the input that are accounted for now.
    pub(crate) jobs: Vec<u64>,
    /// Those that were accounted for before, or that it does not have.
    pub(crate) left: Vec<u64>,
}

/// Where a job stands that stood in the store by itself.
#[derive(Debug)]
pub(crate) enum Place {
    /// Nowhere any more.
    Gone,
    /// As it did.
    Same(Box<DelayedJob>),
    /// At this position among those that the changes delay.
    Delayed(usize),
}

impl Amendment {
    pub(crate) fn new(changes: Changes, granted: Granted) -> Self {
        let (appended, progress) = (Vec::new(), Vec::new());
        Self { changes, appended, progress, moves: None, paused: None, told: false, granted }
    }
}

/// An error of the store as a sentence.
pub(crate) fn said(error: &ReadError) -> String {
    Chain(error).to_string()
}
