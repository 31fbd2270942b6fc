//! Wording: comments, strings, `--help` and the demonstrations use the words of the field. The documents are
//! checked by the same rules in [`crate::documents`].
//!
//! A fault names its file and line. Text between backticks is code and is not checked; neither is a string
//! without spaces.

mod banned;
pub(crate) mod pieces;
pub(crate) mod sentences;

use std::fs;
use std::path::{Path, PathBuf};

use pieces::{BREAK, Kind, Piece, comments_after, names, pieces, without_code};

/// The files of this test, which contain the banned words.
const LISTS: &str = "tests/wording";

#[test]
fn comments_and_strings_use_the_words_of_the_field() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the root");
    let mut faults = Vec::new();
    for file in sources(&root) {
        let name = file.strip_prefix(&root).expect("a file below the root").to_string_lossy().into_owned();
        if name.starts_with(LISTS) {
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

#[test]
fn names_in_the_code_are_no_verbs_of_speech() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the root");
    let files = files(&root, &["runner", "plugin-api", "plugins"], &["rs"]);
    assert!(files.len() > 400, "{} files", files.len());
    let mut faults = Vec::new();
    for file in files {
        let source = fs::read_to_string(&file).expect("a source");
        for (line, name) in names(&source) {
            if banned::NAMES.contains(&&*name.to_lowercase()) {
                let file = file.strip_prefix(&root).expect("a file below the root").display();
                faults.push(format!("{file}:{line}: `{name}`"));
            }
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn the_help_of_every_command_uses_the_words_of_the_field() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/cli/snapshots/tidegate__cli__tests__every_command_has_the_help_of_the_snapshot.snap");
    let text = fs::read_to_string(file).expect("the snapshot of the help");
    assert!(text.contains("$ tidegate run --help"));
    // A paragraph or an option ends with a line that the next one does not continue.
    let text = text.lines().map(|line| {
        let is_entry = line.starts_with(['$', '-']) || line.trim_start().starts_with(['-', '[', '<']);
        let is_command = line.strip_prefix("  ").is_some_and(|rest| !rest.starts_with(' '));
        if is_entry || is_command || line.trim().is_empty() {
            format!("{BREAK}{line}")
        } else {
            line.to_owned()
        }
    });
    let text = without_code(&text.collect::<Vec<_>>().join("\n"));
    let faults = sentences::faults(&text, Kind::Title);
    let faults: Vec<_> = faults.into_iter().map(|(_, fault)| fault).collect();
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn the_comments_of_configurations_and_scripts_use_the_words_of_the_field() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the root");
    let files = files(&root, &["configs", "runner", "plugins", "plugin-api", "tests"], &["toml", "rhai"]);
    assert!(files.len() > 40, "{} files", files.len());
    let mut faults = Vec::new();
    for file in files {
        let name = file.strip_prefix(&root).expect("a file below the root").to_string_lossy().into_owned();
        let mark = if name.ends_with("toml") { "#" } else { "//" };
        // A diagnostics case may hold a file that is not UTF-8.
        let text = fs::read(&file).expect("a file");
        for piece in comments_after(mark, &String::from_utf8_lossy(&text)) {
            faults
                .extend(faults_of(&piece).into_iter().map(|(line, fault)| format!("{name}:{line}: {fault}")));
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

/// The Rust and C files of all crates and tests, in order.
fn sources(root: &Path) -> Vec<PathBuf> {
    files(root, &["runner", "plugin-api", "plugins", "tests"], &["rs", "c", "h"])
}

/// The files of these kinds below the folders, in order.
fn files(root: &Path, folders: &[&str], kinds: &[&str]) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = folders.iter().map(|it| root.join(it)).collect();
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder").flatten() {
            let path = entry.path();
            let kind = path.extension().map(|kind| kind.to_string_lossy().into_owned()).unwrap_or_default();
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if kinds.contains(&kind.as_str()) {
                files.push(path);
            }
        }
    }
    files.sort();
    files
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
    let faults = sentences::faults(&piece.text, piece.kind).into_iter();
    faults.map(|(at, fault)| (piece.line_of(at), fault)).collect()
}

/// Two words of small letters follow each other, and it is neither a configuration nor JSON nor a script.
fn is_prose(text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase());
    let is_code = text.contains(" = ") || ["{\"", "();", ") {", "$("].iter().any(|mark| text.contains(mark));
    let is_last = |word: &str| is_word(word.trim_end_matches([',', '.', ':', ';']));
    !is_code && words.windows(2).any(|pair| is_word(pair[0]) && is_last(pair[1]))
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
fn a_file_opens_with_a_noun_phrase_and_a_verb_phrase() {
    let is_right = |source: &str| fault_of_first_line(&pieces(source)).is_none();
    assert!(is_right("//! `Store`: keeps jobs.\n"));
    assert!(!is_right("//! Keeps jobs.\n//! `Store`: it.\n"));
    assert!(!is_right("use std::fs;\n//! `Store`: keeps jobs.\n"));
}
