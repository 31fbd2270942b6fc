//! `Entry`: the function of a script that the runner calls.

/// The entry function, by the role of the script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EntryPoint {
    /// A step: makes outputs of a job.
    #[default]
    Process,
    /// A gate: returns whether it is open.
    Open,
    /// An HTTP source: returns whether it accepts a job, or why not.
    Accept,
    /// A monitor: returns the statuses of pending jobs.
    Status,
}

impl EntryPoint {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Open => "open",
            Self::Accept => "accept",
            Self::Status => "status",
        }
    }

    /// The name of its argument in messages.
    pub(crate) fn parameter(self) -> &'static str {
        match self {
            Self::Process | Self::Accept => "job",
            Self::Open => "answer",
            Self::Status => "jobs",
        }
    }

    /// Whether its return value is one answer, not a list of outputs.
    pub(crate) fn answers(self) -> bool {
        self != Self::Process
    }
}
