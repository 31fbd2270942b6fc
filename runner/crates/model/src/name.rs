//! `Name` and `Address`: names in a configuration, and their syntax.

use std::fmt;
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The name of a pipeline, source, queue, step or sink: ASCII letters, digits, `_` and `-`, starting with a
/// letter or digit, at most 128 bytes. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// The name, or `None` if `text` is not one.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let mut bytes = text.bytes();
        let starts_well = bytes.next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        let goes_on_well = bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
        (starts_well && goes_on_well && text.len() <= 128).then(|| Self(Arc::from(text)))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

/// The address of a named element of a pipeline: `pipeline/name`. Queues, sources, sinks and steps have
/// addresses.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    pub pipeline: Name,
    pub name: Name,
}

impl Address {
    #[must_use]
    pub fn new(pipeline: Name, name: Name) -> Self {
        Self { pipeline, name }
    }

    /// Parses `pipeline/name`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (pipeline, name) = text.split_once('/')?;
        Some(Self::new(Name::new(pipeline)?, Name::new(name)?))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.pipeline, self.name)
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = || D::Error::custom(format!("`{}` is not a `pipeline/name`", text.escape_debug()));
        Self::parse(&text).ok_or_else(wrong)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_words() {
        for good in ["a", "per-pool", "crawler_old", "7d", "A1"] {
            assert_eq!(Name::new(good).map(|name| name.to_string()).as_deref(), Some(good));
        }
        for bad in ["", "-a", "_a", "a/b", "a b", "ä", &"x".repeat(129)] {
            assert_eq!(Name::new(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_address_has_one_slash() {
        assert_eq!(Address::parse("a/b").map(|it| it.to_string()).as_deref(), Some("a/b"));
        for bad in ["a", "a/", "/b", "a/b/c"] {
            assert_eq!(Address::parse(bad), None, "{bad}");
        }
    }
}
