//! `Secret`: a text that is not in the configuration files, and must not be shown.

use std::fmt;

use twox_hash::XxHash3_64;

/// A text that must not occur in messages and logs. Shown as a number that changes with it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for its one intended use.
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
