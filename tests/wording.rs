//! Wording of the sources: comments and strings of every crate use the words of the field.
//!
//! A fault names its file and line. Text between backticks is code and is not checked; neither is a string
//! without spaces. A quotation may follow *say*: a message says "no such file".

mod pieces;

use std::fs;
use std::path::{Path, PathBuf};

use pieces::{BREAK, Kind, Piece, pieces};

/// Files that list the banned words.
const LISTS: [&str; 2] = ["tests/wording", "tests/documents/prose.rs"];

/// Persons instead of roles.
const PERSONS: [&str; 10] = [
    "somebody",
    "someone",
    "nobody",
    "anybody",
    "anyone",
    "everybody",
    "everyone",
    "no one",
    "whoever",
    "whatever",
];

/// Verbs of speech for the flow of data. A quotation may follow the last four.
const SPEECH: [&str; 8] = ["tell", "tells", "told", "telling", "say", "says", "said", "saying"];

/// Idioms in the place of a verb, quantities without numbers, and metaphors in the place of terms.
const IDIOMS: [&str; 44] = [
    "stand",
    "stands",
    "stood",
    "standing",
    "come to",
    "comes to",
    "came to",
    "through with",
    "let go",
    "lets go",
    "letting go",
    "look at",
    "looks at",
    "looked at",
    "looking at",
    "a look",
    "none of its",
    "so many",
    "so often",
    "so much",
    "some dozens",
    "some hundred",
    "some thousand",
    "the outside",
    "from outside",
    "crew",
    "shop",
    "desk",
    "desks",
    "shelf",
    "shelves",
    "shelved",
    "errand",
    "errands",
    "hall",
    "sight",
    "sights",
    "glance",
    "glances",
    "absolve",
    "absolves",
    "absolved",
    "whereabouts",
    "ledger's",
];

/// What a message may not contain: it names its object, then the problem.
const MESSAGES: [&str; 4] = ["is none", "are none", "says nothing", "has another"];

/// A sentence begins with its subject.
const BEGINNINGS: [&str; 6] = ["what", "who", "whoever", "where", "those", "of"];

const WORDS_MAX: usize = 25;

#[test]
fn comments_and_strings_use_the_words_of_the_field() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the root");
    let mut faults = Vec::new();
    for file in sources(&root) {
        let name = file.strip_prefix(&root).expect("a file below the root").to_string_lossy().into_owned();
        if LISTS.iter().any(|file| name.starts_with(file)) {
            continue;
        }
        let source = fs::read_to_string(&file).expect("a source");
        let pieces = pieces(&source);
        faults.extend(fault_of_first_line(&pieces).map(|(line, fault)| format!("{name}:{line}: {fault}")));
        for piece in pieces {
            faults
                .extend(faults_of(&piece).into_iter().map(|(line, fault)| format!("{name}:{line}: {fault}")));
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

/// The Rust and C files of all crates and tests, in order.
fn sources(root: &Path) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> =
        ["runner", "plugin-api", "plugins", "tests"].map(|it| root.join(it)).into();
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder").flatten() {
            let path = entry.path();
            let kind = path.extension().map(|kind| kind.to_string_lossy().into_owned()).unwrap_or_default();
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if ["rs", "c", "h"].contains(&kind.as_str()) {
                sources.push(path);
            }
        }
    }
    sources.sort();
    sources
}

/// A file opens with its noun phrase, a colon, and its verb phrase.
fn fault_of_first_line(pieces: &[Piece]) -> Option<(usize, String)> {
    let first = pieces.iter().find(|piece| piece.kind == Kind::Comment);
    let opening = first.filter(|piece| piece.line == 1).map(|piece| {
        let end = piece.text.find([BREAK, '.']).unwrap_or(piece.text.len());
        &piece.text[..end]
    });
    let is_right = opening.is_some_and(|opening| opening.contains(": ") || opening.contains(":\n"));
    (!is_right).then(|| (1, "a file opens with `<noun phrase>: <verb phrase>.`".to_owned()))
}

/// The faults of a piece, each with its line.
fn faults_of(piece: &Piece) -> Vec<(usize, String)> {
    if piece.kind == Kind::String && !is_prose(&piece.text) {
        return Vec::new();
    }
    let mut faults = Vec::new();
    for words in sentences(&piece.text, piece.kind) {
        let line = |at: usize| piece.line_of(words[at].at);
        let shown = words.iter().map(|word| word.text).collect::<Vec<_>>().join(" ");
        for at in 0..words.len() {
            if let Some(banned) = banned(&words[at..], piece.kind) {
                faults.push((line(at), format!("`{banned}` in: {shown}")));
            }
        }
        let Some(first) = words.first() else { continue };
        let first = first.plain.as_str();
        let is_fragment = piece.kind == Kind::String && words.len() <= 3;
        if BEGINNINGS.contains(&first) && !is_fragment {
            faults.push((line(0), format!("a sentence begins with `{first}`: {shown}")));
        }
        if words.len() > WORDS_MAX {
            faults.push((line(0), format!("a sentence of {} words: {shown}", words.len())));
        }
    }
    faults
}

/// Two words of small letters follow each other, and it is neither a configuration nor JSON nor a script.
fn is_prose(text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase());
    let is_code = text.contains(" = ") || ["{\"", "();", ") {", "$("].iter().any(|mark| text.contains(mark));
    let is_last = |word: &str| is_word(word.trim_end_matches([',', '.', ':', ';']));
    !is_code && words.windows(2).any(|pair| is_word(pair[0]) && is_last(pair[1]))
}

/// The banned words with which `words` begins.
fn banned(words: &[Word], kind: Kind) -> Option<&'static str> {
    let begins = |banned: &str| {
        let mut words = words.iter();
        banned.split(' ').all(|part| words.next().is_some_and(|word| word.plain == part))
    };
    let quotes = words.get(1).is_some_and(|word| word.text.starts_with(['"', '\'', '`']));
    let speech = SPEECH.into_iter().filter(|word| !(word.starts_with("sa") && quotes));
    let messages = MESSAGES.into_iter().filter(|_| kind == Kind::String);
    PERSONS.into_iter().chain(messages).chain(speech).chain(IDIOMS).find(|banned| begins(banned))
}

struct Word<'a> {
    text: &'a str,
    /// In small letters, without the marks around it; quotation marks stay.
    plain: String,
    /// Its place in the text, in bytes.
    at: usize,
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
                let plain = word.trim_matches([',', '.', ';', ':', '!', '?', '(', ')']).to_lowercase();
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
fn a_fault_is_named_with_its_line() {
    let source = "//! `X`: does what it is told.\n\n/// A word\n/// that nobody\n/// reads. What it is.\nfn f() { g(\"`a` is none\", \"says\", \"it says `no`\"); }\n";
    let faults = pieces(source).iter().flat_map(faults_of).collect::<Vec<_>>();
    let faults: Vec<_> =
        faults.iter().map(|(line, fault)| (*line, fault.split(':').next().unwrap_or_default())).collect();
    assert_eq!(
        faults,
        [(1, "`told` in"), (4, "`nobody` in"), (5, "a sentence begins with `what`"), (6, "`is none` in"),]
    );
}

#[test]
fn a_sentence_of_26_words_is_too_long() {
    let count = |words: usize| {
        let source = format!("// {}end.\n", "word ".repeat(words - 1));
        pieces(&source).iter().flat_map(faults_of).count()
    };
    assert_eq!((count(25), count(26)), (0, 1));
}

#[test]
fn a_file_opens_with_a_noun_phrase_and_a_verb_phrase() {
    let is_right = |source: &str| fault_of_first_line(&pieces(source)).is_none();
    assert!(is_right("//! `Store`: keeps jobs.\n"));
    assert!(!is_right("//! Keeps jobs.\n//! `Store`: it.\n"));
    assert!(!is_right("use std::fs;\n//! `Store`: keeps jobs.\n"));
}
