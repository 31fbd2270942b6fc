//! Later values: lists values of Tidegate's grammar that this version does not support yet.
//!
//! They are no typing errors, so they have a diagnostic of their own. An implementation of a value removes it
//! from this list; no other code refuses it.

use super::keys::TableKind;
use crate::diagnostic::{Diagnostic, SourceSpan};

const VALUES: &[(TableKind, &str, &[&str])] = &[];

/// Whether a later version supports `value` as the value of `key`.
pub(crate) fn value(kind: TableKind, key: &str, value: &str) -> bool {
    VALUES.iter().any(|(other, name, values)| *other == kind && *name == key && values.contains(&value))
}

/// The diagnostic. `what` is as the user wrote it, approximately.
pub(crate) fn diagnostic(place: &SourceSpan, what: &str) -> Diagnostic {
    Diagnostic::error_at(place, format!("`{what}` is not supported yet in this version of Tidegate"))
}
