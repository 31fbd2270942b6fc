//! Texts that came from outside the files of a configuration, and must not be shown.

use std::fmt;

use twox_hash::XxHash3_64;

/// A text that no message and no log may have. Shown as a number that changes when it does.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for where it has to go.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret(#{:x})", XxHash3_64::oneshot(self.0.as_bytes()))
    }
}
