//! The person at the terminal: how wide it is, and what they say when they are asked.

use std::io::{self, BufRead as _, IsTerminal as _};

use super::console::{self, prints_to_terminal};
use super::exit::{self, Exit};
use crate::words::plain;

/// The width of standard output in characters; `None` where it is no terminal.
pub(super) fn width() -> Option<usize> {
    if !prints_to_terminal() {
        return None;
    }
    ::console::Term::stdout().size_checked().map(|(_, columns)| usize::from(columns))
}

/// The width of standard error in columns; `None` where it is no terminal.
pub(super) fn error_width() -> Option<usize> {
    let size = console::is_terminal().then(|| ::console::Term::stderr().size_checked()).flatten();
    size.map(|(_, columns)| usize::from(columns))
}

/// `text` in at most `width` characters, with `…` where it was cut.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.chars().nth(width).is_none() {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// The end of `text` in at most `width` characters, with `…` where it was cut.
pub(super) fn cut_front(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    ['…'].into_iter().chain(text.chars().skip(length + 1 - width.max(1))).collect()
}

/// `text`, `indent` characters from the left, in lines of at most `width`; each but the first stands four
/// further in. A word that is longer stays whole.
pub(super) fn indented(text: &str, indent: usize, width: Option<usize>) -> String {
    let mut lines = vec![" ".repeat(indent)];
    for word in text.split(' ') {
        let Some(line) = lines.last_mut() else { break };
        let begun = line.chars().any(|character| character != ' ');
        let wanted = line.chars().count() + usize::from(begun) + word.chars().count();
        if begun && width.is_some_and(|width| wanted > width) {
            lines.push(format!("{}{word}", " ".repeat(indent + 4)));
        } else {
            line.extend([if begun { " " } else { "" }, word]);
        }
    }
    lines.join("\n")
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
    console::write(&plain::lines(&format!("{question} Go on? [y/N] ")));
    let mut answer = String::new();
    let answered = io::stdin().lock().read_line(&mut answer);
    if answered.is_ok() && matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") {
        return Ok(());
    }
    exit::note("nothing was changed");
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
        assert_eq!(cut_front("äöü", 3), "äöü");
        assert_eq!(cut_front("äöüß", 3), "…üß");
        assert_eq!(cut_front("ab", 0), "…");
    }

    #[test]
    fn a_sentence_goes_on_below_where_it_does_not_fit() {
        assert_eq!(indented("gate closed since noon", 2, None), "  gate closed since noon");
        assert_eq!(indented("gate closed since noon", 2, Some(16)), "  gate closed\n      since noon");
        assert_eq!(indented("supercalifragilistic", 1, Some(9)), " supercalifragilistic");
    }
}
