//! The person at the terminal: how wide it is, and what they say when they are asked.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use super::exit::{self, Exit};

/// The width of standard output in characters; `None` where it is no terminal.
pub(super) fn width() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    console::Term::stdout().size_checked().map(|(_, columns)| usize::from(columns))
}

/// `text` in at most `width` characters, with `…` where it was cut.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.chars().nth(width).is_none() {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// Asks whether to go on, unless `yes` was said beforehand.
///
/// # Errors
/// The exit code, where the answer is no, or nobody is there to be asked.
pub(super) fn confirm(question: &str, yes: bool) -> Result<(), Exit> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(exit::misuse(format_args!("{question} Nobody is there to say yes: add `--yes`")));
    }
    eprint!("{question} Go on? [y/N] ");
    let _ = io::stderr().flush();
    let mut answer = String::new();
    let answered = io::stdin().lock().read_line(&mut answer);
    if answered.is_ok() && matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") {
        return Ok(());
    }
    eprintln!("nothing was changed");
    Err(Exit::Failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_where_it_does_not_fit() {
        assert_eq!(cut("äöü", 3), "äöü");
        assert_eq!(cut("äöüß", 3), "äö…");
        assert_eq!(cut("a", 0), "…");
    }
}
