//! The function that is called in a script.

/// Which one, by what the script is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Entry {
    /// A step: makes outputs of a job.
    #[default]
    Process,
    /// A gate: whether it is open.
    Open,
    /// A monitor: what became of jobs that are pending.
    Status,
}

impl Entry {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Open => "open",
            Self::Status => "status",
        }
    }

    /// What it is given, as messages call it.
    pub(crate) fn parameter(self) -> &'static str {
        match self {
            Self::Process => "job",
            Self::Open => "answer",
            Self::Status => "jobs",
        }
    }

    /// Whether what it returns is one answer, whatever it is, and not a number of outputs.
    pub(crate) fn answers(self) -> bool {
        self != Self::Process
    }
}
