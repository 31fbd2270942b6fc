//! Later keys: lists keys and values of Tidegate's grammar that this version does not support yet.
//!
//! They are no typing errors, so they have a diagnostic of their own. An implementation of a key removes it
//! from this list; no other code refuses it.

use super::keys::TableKind;
use crate::diagnostic::{Diagnostic, SourceSpan};

const KEYS: &[(TableKind, &[&str])] = &[
    (TableKind::Pipeline, &["was"]),
    (TableKind::Queue, &["was"]),
    (TableKind::FileSource, &["was"]),
    (TableKind::HttpSource, &["was"]),
    (TableKind::ScheduleSource, &["was"]),
];

const VALUES: &[(TableKind, &str, &[&str])] = &[(TableKind::FileSource, "type", &["exec"])];

/// Whether a later version supports `key` in a table of this kind.
pub(crate) fn key(kind: TableKind, key: &str) -> bool {
    KEYS.iter().any(|(other, keys)| *other == kind && keys.contains(&key))
}

/// Whether a later version supports `value` as the value of `key`.
pub(crate) fn value(kind: TableKind, key: &str, value: &str) -> bool {
    VALUES.iter().any(|(other, name, values)| *other == kind && *name == key && values.contains(&value))
}

/// The diagnostic. `what` is as the user wrote it, approximately.
pub(crate) fn diagnostic(place: &SourceSpan, what: &str) -> Diagnostic {
    Diagnostic::error_at(place, format!("`{what}` is not supported yet in this version of Tidegate"))
}
