//! `locate`: finds the place of a value for higher crates, which have only its path.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The bytes of the value at the end of `path` in a file; with `key`, the bytes of its key. A path that is
/// absent gives the bytes of its longest existing part.
#[must_use]
pub fn locate(text: &str, path: &[&str], key: bool) -> Option<Range<usize>> {
    let (root, _) = DeTable::parse_recoverable(text);
    let (first, rest) = path.split_first()?;
    let (name, mut value) = root.get_ref().get_key_value(*first)?;
    let mut last_key = name.span();
    let mut reached = rest.len();
    for (position, part) in rest.iter().enumerate() {
        let Some((span, inner)) = step(value, part) else {
            reached = position;
            break;
        };
        (last_key, value) = (span.unwrap_or_else(|| inner.span()), inner);
    }
    Some(if key && reached == rest.len() { last_key } else { value.span() })
}

type Inner<'t> = (Option<Range<usize>>, &'t Spanned<DeValue<'t>>);

fn step<'t>(value: &'t Spanned<DeValue<'t>>, part: &str) -> Option<Inner<'t>> {
    match value.get_ref() {
        DeValue::Table(table) => table.get_key_value(part).map(|(key, value)| (Some(key.span()), value)),
        DeValue::Array(elements) => elements.get(part.parse::<usize>().ok()?).map(|value| (None, value)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "[step.a]\nconfig = { list = [1, { deep = \"x\" }], other = 2 }\n[step.b.config]\nrate = 3\n";

    fn found(path: &[&str], key: bool) -> &'static str {
        &TEXT[locate(TEXT, path, key).unwrap()]
    }

    #[test]
    fn values_and_keys_are_found_however_they_are_written() {
        assert_eq!(found(&["step", "a", "config", "list", "1", "deep"], false), "\"x\"");
        assert_eq!(found(&["step", "a", "config", "other"], true), "other");
        assert_eq!(found(&["step", "b", "config", "rate"], false), "3");
    }

    #[test]
    fn of_a_way_that_ends_early_the_last_there_is_counts() {
        assert_eq!(found(&["step", "a", "config", "list", "7"], false), "[1, { deep = \"x\" }]");
        assert_eq!(
            found(&["step", "a", "config", "none"], true),
            "{ list = [1, { deep = \"x\" }], other = 2 }"
        );
        assert_eq!(locate(TEXT, &["none"], false), None);
    }
}
