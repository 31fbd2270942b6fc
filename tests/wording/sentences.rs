//! Sentences: finds the faults of a text, each with its place.

use super::banned::banned;
use super::pieces::{BREAK, Kind};

/// A sentence begins with its subject.
const BEGINNINGS: [&str; 6] = ["what", "who", "whoever", "where", "those", "of"];

const WORDS_MAX: usize = 25;

pub(crate) struct Word<'a> {
    pub(crate) text: &'a str,
    /// In small letters, without the marks around it; quotation marks stay.
    pub(crate) plain: String,
    /// Its place in the text, in bytes.
    at: usize,
}

/// The faults of a text without code, each with its place in bytes.
pub(crate) fn faults(text: &str, kind: Kind) -> Vec<(usize, String)> {
    let mut faults = Vec::new();
    for words in sentences(text, kind) {
        let shown = words.iter().map(|word| word.text).collect::<Vec<_>>().join(" ");
        for at in 0..words.len() {
            if let Some(banned) = banned(&words[at..], kind) {
                faults.push((words[at].at, format!("`{banned}` in: {shown}")));
            }
        }
        let Some(Word { plain: first, at, .. }) = words.first() else { continue };
        let is_fragment = kind == Kind::Title || kind == Kind::String && words.len() <= 3;
        if BEGINNINGS.contains(&first.as_str()) && !is_fragment {
            faults.push((*at, format!("a sentence begins with `{first}`: {shown}")));
        }
        if words.len() > WORDS_MAX {
            faults.push((*at, format!("a sentence of {} words: {shown}", words.len())));
        }
    }
    faults
}

/// A sentence ends with a mark and a space, or with a break; in a message a semicolon ends one too.
fn sentences(text: &str, kind: Kind) -> Vec<Vec<Word<'_>>> {
    let marks: &[char] =
        if kind == Kind::String { &['.', '!', '?', ':', ';'] } else { &['.', '!', '?', ':'] };
    let mut sentences = vec![Vec::new()];
    let mut begin = None;
    for (at, char) in text.char_indices().chain([(text.len(), ' ')]) {
        if char.is_whitespace() {
            let mut ends = char == BREAK;
            if let (Some(begin), Some(sentence)) = (begin.take(), sentences.last_mut()) {
                let word = &text[begin..at];
                let plain = word.trim_matches([',', '.', ';', ':', '!', '?', '(', ')', '*']).to_lowercase();
                let word = Word { text: word, plain, at: begin };
                ends |= word.text.ends_with(marks);
                sentence.push(word);
            }
            if ends {
                sentences.push(Vec::new());
            }
        } else if begin.is_none() {
            begin = Some(at);
        }
    }
    sentences
}

#[test]
fn a_sentence_is_judged_by_its_words_its_beginning_and_its_length() {
    let count = |text: &str| faults(text, Kind::Comment).len();
    assert_eq!(count("A queue keeps ` jobs. Where it is: here."), 1);
    assert_eq!(count("It is told so often. A stander, \"a saying\"."), 2);
    assert_eq!(count(&"word ".repeat(25)), 0);
    assert_eq!(count(&"word ".repeat(26)), 1);
    assert_eq!(count(&format!("{}end. {}", "word ".repeat(20), "word ".repeat(20))), 0);
    assert!(faults("Where it is", Kind::Title).is_empty());
}
