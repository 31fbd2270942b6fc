//! `Restart`: whether the command of a source is started again after its end.

/// `restart` of a source of type `exec`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Restart {
    /// After a failure. The exit code 0 is the end of the source.
    #[default]
    OnFailure,
    /// After every end.
    Always,
    Never,
}
