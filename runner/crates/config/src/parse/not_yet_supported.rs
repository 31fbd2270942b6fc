//! What Tidegate's grammar has and this version does not carry out yet.
//!
//! These keys and values are no mistakes of spelling, so they get an answer of their own. Who builds
//! one of them takes it off this list, and nothing else refuses it.

use super::keys::Kind;
use crate::diagnostic::{Diagnostic, SourceSpan};

const KEYS: &[(Kind, &[&str])] = &[
    (Kind::PipelineFile, &["test"]),
    (Kind::SingleFile, &["test"]),
    (Kind::SettingsFile, &["reload"]),
    (Kind::Step, &["was"]),
];

const VALUES: &[(Kind, &str, &[&str])] = &[(Kind::FileSource, "type", &["exec"])];

/// Whether a later version knows `key` in a table of this kind.
pub(crate) fn key(kind: Kind, key: &str) -> bool {
    KEYS.iter().any(|(other, keys)| *other == kind && keys.contains(&key))
}

/// Whether a later version knows `value` as the value of `key`.
pub(crate) fn value(kind: Kind, key: &str, value: &str) -> bool {
    VALUES.iter().any(|(other, name, values)| *other == kind && *name == key && values.contains(&value))
}

/// Says so. `what` is as the user wrote it, or nearly so.
pub(crate) fn diagnostic(place: &SourceSpan, what: &str) -> Diagnostic {
    Diagnostic::error_at(place, format!("`{what}` is not supported yet in this version of Tidegate"))
}
