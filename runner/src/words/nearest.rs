//! "Did you mean …?"

/// The name most like `word`, if one is near enough to be what was meant.
#[must_use]
pub fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    names
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(word, name), name))
        .filter(|&(distance, name)| distance > 0 && distance <= 1 + word.len().min(name.len()) / 4)
        .min()
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_slip_is_recognised_and_another_word_is_not() {
        let names = ["from", "format", "follow", "to"];
        assert_eq!(nearest("form", names), Some("from"));
        assert_eq!(nearest("folow", names), Some("follow"));
        assert_eq!(nearest("retry", names), None);
        assert_eq!(nearest("xy", ["ab"]), None);
    }
}
