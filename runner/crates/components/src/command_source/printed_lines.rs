//! `PrintedLines`: lines of a command on their way to the store.

use tidegate_plugin::Payloads;

/// Lines that are committed together.
#[derive(Debug, Default)]
pub struct PrintedLines {
    pub jobs: Payloads,
    /// Lines that are no jobs.
    pub bad: Vec<BadLine>,
    /// The cursor behind these lines, if it has changed.
    pub cursor: Option<String>,
}

/// A line that is no job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// Its number since the start of the command, from 1.
    pub line: u64,
    /// Its beginning.
    pub text: Vec<u8>,
    /// A sentence fragment.
    pub message: String,
    /// The number of jobs of the same read before it.
    pub position: usize,
}

impl PrintedLines {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.bad.is_empty() && self.cursor.is_none()
    }

    /// Approximate memory of the lines.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.jobs.byte_len() + self.bad.iter().map(|bad| bad.text.len()).sum::<usize>()
    }

    /// Adds the lines that follow.
    pub(crate) fn append(&mut self, next: Self) {
        let before = self.jobs.len();
        self.jobs.append(&next.jobs);
        let moved = |bad: BadLine| BadLine { position: bad.position + before, ..bad };
        self.bad.extend(next.bad.into_iter().map(moved));
        self.cursor = next.cursor.or(self.cursor.take());
    }
}
