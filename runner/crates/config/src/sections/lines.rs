//! Lines: parses the keys that files, commands and tables share, of records and their longest length.

use crate::diagnostic::{Diagnostic, SourceSpan};
use crate::parse::context::ParseContext;
use crate::parse::field::Field;
use crate::parse::table::TableReader;
use tidegate_model::parse_size;

pub(crate) const LINE_BYTES_MAX_DEFAULT: usize = 64 << 20;

pub(crate) fn max_line(reading: &mut ParseContext<'_>, field: Field<'_>) -> Option<usize> {
    let bytes = field.quantity(reading, ("size", "64MiB"), parse_size, Some(&0))?;
    usize::try_from(bytes).ok()
}

/// A key without an effect is a misunderstanding, and reported.
pub(crate) fn refuse_outside_csv(reading: &mut ParseContext<'_>, section: &TableReader<'_>) {
    for key in ["headers", "delimiter"] {
        if let Some(field) = section.field(key) {
            let place: SourceSpan = field.place(reading);
            let message = format!("`{key}` means something with `format = \"csv\"` only");
            reading.report(Diagnostic::error_at(&place, message).help(format!("leave `{key}` out")));
        }
    }
}

pub(crate) fn delimiter(reading: &mut ParseContext<'_>, field: Field<'_>) -> Option<u8> {
    let text = field.text(reading)?;
    match text.value.as_bytes() {
        [byte] if byte.is_ascii() && !matches!(byte, b'"' | b'\n' | b'\r') => Some(*byte),
        _ => {
            let message = format!("{} cannot be a `delimiter`", text.quoted());
            let help = "use one ASCII character, like `\",\"`, `\";\"` or `\"\\t\"`";
            reading.report(Diagnostic::error_at(&text.place, message).help(help));
            None
        }
    }
}
