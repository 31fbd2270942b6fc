//! Takes secrets out of what others say: an answer or a command may repeat what it was given.

use crate::words::Secret;

/// Shorter texts stand everywhere, and are no secrets.
const SHORTEST: usize = 4;

/// The secrets that must not be shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Scrub {
    /// The longest first, since one may be part of another.
    secrets: Vec<Secret>,
}

impl Scrub {
    pub(super) fn new<'a>(secrets: impl IntoIterator<Item = &'a Secret>) -> Self {
        let long = secrets.into_iter().filter(|secret| secret.reveal().trim().len() >= SHORTEST);
        let mut secrets: Vec<Secret> = long.map(|secret| Secret::new(secret.reveal().trim())).collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.reveal().len()));
        Self { secrets }
    }

    /// `text` with `…` for each secret in it.
    pub(super) fn clean(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret.reveal(), "…"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_taken_out_and_short_texts_are_none() {
        let secrets = ["hunter2", "hunter22", "", "ab", " padded \n"].map(Secret::new);
        let scrub = Scrub::new(&secrets);
        assert_eq!(scrub.clean("ab: hunter22, hunter2, padded"), "ab: …, …, …");
    }
}
