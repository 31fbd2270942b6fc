//! Terminal: measures its width, wraps texts, and asks the operator for confirmation.

use std::io::{self, BufRead as _, IsTerminal as _};

use unicode_width::UnicodeWidthChar as _;

use super::console::{self, prints_to_terminal};
use super::exit::{self, Exit};
use tidegate_model::plain;

/// The width of standard output in columns; `None` if it is not a terminal.
pub(crate) fn width() -> Option<usize> {
    if !prints_to_terminal() {
        return None;
    }
    ::console::Term::stdout().size_checked().map(|(_, columns)| usize::from(columns))
}

/// The width of standard error in columns; `None` if it is not a terminal.
pub(crate) fn error_width() -> Option<usize> {
    let size = console::is_terminal().then(|| ::console::Term::stderr().size_checked()).flatten();
    size.map(|(_, columns)| usize::from(columns))
}

/// The width of the text on a terminal, in columns.
pub(crate) fn columns(text: &str) -> usize {
    text.chars().map(wide).sum()
}

fn wide(character: char) -> usize {
    character.width().unwrap_or(0)
}

/// `text` in at most `width` columns, with `…` if it was shortened.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    fitting(text.chars(), width.saturating_sub(1)).chain(['…']).collect()
}

/// The end of `text` in at most `width` columns, with `…` if it was shortened.
pub(crate) fn cut_front(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let end: Vec<char> = fitting(text.chars().rev(), width.saturating_sub(1)).collect();
    ['…'].into_iter().chain(end.into_iter().rev()).collect()
}

/// The longest prefix of the characters that fits into `room` columns.
fn fitting(characters: impl Iterator<Item = char>, mut room: usize) -> impl Iterator<Item = char> {
    characters.map_while(move |character| {
        room = room.checked_sub(wide(character))?;
        Some(character)
    })
}

/// `text`, indented by `indent` columns, in lines of at most `width`; further lines are indented by four
/// more. A longer word stays whole.
pub(crate) fn indented(text: &str, indent: usize, width: Option<usize>) -> String {
    let mut lines = vec![" ".repeat(indent)];
    for word in text.split(' ') {
        let Some(line) = lines.last_mut() else { break };
        let begun = line.chars().any(|character| character != ' ');
        let wanted = columns(line) + usize::from(begun) + columns(word);
        if begun && width.is_some_and(|width| wanted > width) {
            lines.push(format!("{}{word}", " ".repeat(indent + 4)));
        } else {
            line.extend([if begun { " " } else { "" }, word]);
        }
    }
    lines.join("\n")
}

/// `text` in lines of at most `width`, broken between words; further lines are indented by `hang` characters.
/// A longer word stays whole, and line ends of the text are kept.
pub(crate) fn wrapped(text: &str, hang: usize, width: Option<usize>) -> String {
    let Some(width) = width else { return text.to_owned() };
    let mut lines: Vec<String> = Vec::new();
    for (number, piece) in text.split('\n').enumerate() {
        lines.push(if number == 0 { String::new() } else { " ".repeat(hang) });
        let mut begun = false;
        for word in piece.split(' ') {
            let Some(line) = lines.last_mut() else { break };
            let wanted = line.chars().count() + usize::from(begun) + word.chars().count();
            if begun && wanted > width {
                lines.push(" ".repeat(hang) + word);
            } else {
                line.extend([if begun { " " } else { "" }, word]);
            }
            begun = true;
        }
    }
    lines.join("\n")
}

/// Asks for confirmation, unless `yes` was given.
///
/// # Errors
/// The exit code, if the answer is no or no terminal can be asked.
pub(crate) fn confirm(question: &str, yes: bool) -> Result<(), Exit> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(exit::misuse(format_args!("{question} Without a terminal this needs `--yes`")));
    }
    console::write(&plain::lines(&format!("{question} Continue? [y/N] ")));
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
    fn a_wide_character_takes_two_columns_and_is_not_cut_in_the_middle() {
        assert_eq!(columns("注文 1"), 6);
        assert_eq!(cut("注文書", 6), "注文書");
        assert_eq!(cut("注文書", 5), "注文…");
        assert_eq!(cut("注文書", 4), "注…");
        assert_eq!(cut_front("注文書", 4), "…書");
        assert_eq!(indented("注文 書", 2, Some(8)), "  注文\n      書");
    }

    #[test]
    fn a_sentence_goes_on_below_where_it_does_not_fit() {
        assert_eq!(indented("gate closed since noon", 2, None), "  gate closed since noon");
        assert_eq!(indented("gate closed since noon", 2, Some(16)), "  gate closed\n      since noon");
        assert_eq!(indented("supercalifragilistic", 1, Some(9)), " supercalifragilistic");
    }

    #[test]
    fn a_long_line_is_broken_between_words() {
        let text = "kind        no such order here\nor elsewhere";
        assert_eq!(wrapped(text, 4, None), text);
        let lines = ["kind        no such", "    order here", "    or elsewhere"];
        assert_eq!(wrapped(text, 4, Some(20)), lines.join("\n"));
        assert_eq!(wrapped("supercalifragilistic word", 2, Some(9)), "supercalifragilistic\n  word");
    }
}
