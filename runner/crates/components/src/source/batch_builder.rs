//! `BatchBuilder`: builds a batch from records.

use std::path::Path;
use std::sync::Arc;

use tidegate_plugin::Payloads;

use super::codec::{Codec, head};
use tidegate_model::{Batch, Fault, LineNumbers, LineRun, SourceOffset};

/// The limits of a batch. It always holds one job, of any size.
#[derive(Clone, Copy, Debug)]
pub struct BatchLimit {
    pub jobs: usize,
    pub bytes: usize,
}

#[derive(Debug)]
pub(crate) struct BatchBuilder {
    limit: BatchLimit,
    /// The place of the first job.
    start: Option<SourceOffset>,
    payloads: Payloads,
    runs: Vec<LineRun>,
    faults: Vec<Fault>,
    /// The line of the next job, if it continues the last run.
    next_line: u64,
}

impl BatchBuilder {
    pub(crate) fn new(limit: BatchLimit) -> Self {
        Self {
            limit,
            start: None,
            payloads: Payloads::new(),
            runs: Vec::new(),
            faults: Vec::new(),
            next_line: 0,
        }
    }

    pub(crate) fn start(&self) -> Option<SourceOffset> {
        self.start
    }

    pub(crate) fn is_full(&self) -> bool {
        !self.payloads.is_empty()
            && (self.payloads.len() >= self.limit.jobs || self.payloads.byte_len() >= self.limit.bytes)
    }

    /// Allocates memory for the jobs of a window of `bytes`, once per batch.
    pub(crate) fn expect(&mut self, bytes: usize) {
        if self.payloads.is_empty() {
            // A lower mean length only costs another growth.
            let bytes = bytes.min(self.limit.bytes);
            self.payloads = Payloads::with_capacity(self.limit.jobs.min(bytes / 64 + 1), bytes);
        }
    }

    /// Adds the job of `record`, or a fault if it is invalid.
    pub(crate) fn push(&mut self, at: SourceOffset, codec: &mut Codec, record: &[u8]) {
        self.place(at);
        if let Err(message) = codec.encode(record, &mut self.payloads) {
            self.fault(record, message);
        }
    }

    /// Adds a fault with the beginning of `record`.
    pub(crate) fn push_fault(&mut self, at: SourceOffset, record: &[u8], message: String) {
        self.place(at);
        self.fault(record, message);
    }

    /// The batch of `file`'s jobs; `None` if it has none.
    pub(crate) fn finish(self, codec: &Codec, file: Arc<Path>) -> Option<Batch> {
        Some(Batch {
            first: self.start?.index,
            payloads: self.payloads,
            form: codec.form(),
            places: Some(LineNumbers { file, runs: self.runs }),
            faults: self.faults,
            stamps: Vec::new(),
            carried: None,
        })
    }

    fn place(&mut self, at: SourceOffset) {
        if self.start.is_none() {
            self.start = Some(at);
        }
        if self.next_line != at.line {
            self.runs.push(LineRun { position: self.payloads.len(), line: at.line });
        }
        self.next_line = at.line + 1;
    }

    fn fault(&mut self, record: &[u8], message: String) {
        self.faults.push(Fault { position: self.payloads.len(), message });
        self.payloads.push(head(record));
    }
}
