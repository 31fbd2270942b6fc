//! Suggestions: find the nearest name to a mistyped one.

pub use tidegate_plugin::words::listed;

/// The candidate that `text` most likely means, if one is near enough. The first in alphabetical order wins a
/// tie, so that the result does not depend on the order of the candidates.
pub fn nearest<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = text.to_lowercase();
    candidates
        .into_iter()
        .filter(|candidate| *candidate != text)
        .map(|candidate| (strsim::damerau_levenshtein(&lower, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= reach(text, candidate))
        .min()
        .map(|(_, candidate)| candidate)
}

/// As [`nearest`], for names like `pipeline/name`: a text without `/` is compared with the names alone.
pub fn nearest_address<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if text.contains('/') {
        return nearest(text, candidates);
    }
    let name = |candidate: &'a str| candidate.rsplit('/').next().unwrap_or(candidate);
    let candidates: Vec<&str> = candidates.into_iter().collect();
    let named = |wanted: &str| candidates.iter().copied().find(|&candidate| name(candidate) == wanted);
    named(text).or_else(|| named(nearest(text, candidates.iter().map(|&candidate| name(candidate)))?))
}

/// As [`did_you_mean`], for names like `pipeline/name`.
pub fn did_you_mean_address<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest_address(text, candidates).map(|candidate| format!("did you mean `{candidate}`?"))
}

/// `did you mean `x`?`, for the `help` of a diagnostic.
pub fn did_you_mean<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(text, candidates).map(|candidate| format!("did you mean `{candidate}`?"))
}

/// The maximum number of typing errors: a third of the text, and one in a short text.
fn reach(text: &str, candidate: &str) -> usize {
    let length = text.chars().count().max(candidate.chars().count());
    if length < 3 { 0 } else { (length / 3).max(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_finger_find_their_word() {
        let words = ["from", "to", "run", "timeout", "topics", "types"];
        for (slip, meant) in [("form", "from"), ("timeuot", "timeout"), ("type", "types"), ("From", "from")] {
            assert_eq!(nearest(slip, words), Some(meant), "{slip}");
        }
        for other in ["x", "join", "ru", "elephant"] {
            assert_ne!(nearest(other, words), Some("from"), "{other}");
        }
        assert_eq!(nearest("elephant", words), None);
    }

    #[test]
    fn a_name_without_its_pipeline_finds_the_whole() {
        let names = ["shop/done", "shop/work", "bank/work"];
        let found = |text| nearest_address(text, names);
        assert_eq!(found("done"), Some("shop/done"));
        assert_eq!(found("wrok"), Some("shop/work"));
        assert_eq!(found("shop/dnoe"), Some("shop/done"));
        assert_eq!(found("elephant"), None);
    }
}
