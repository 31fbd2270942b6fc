//! Rules of sentences: are checked on every page of the documents.

use super::page::{Page, Prose};

/// Words of speech, persons and vague quantities in the place of the field's words.
const BANNED: [&str; 18] = [
    "told",
    "said",
    "stands",
    "comes to",
    "through with",
    "let go of",
    "lets go of",
    "letting go of",
    "looks at",
    "somebody",
    "someone",
    "nobody",
    "whoever",
    "so many",
    "so often",
    "some dozens",
    "some hundred",
    "some thousand",
];

/// A sentence begins with its subject.
const BEGINNINGS: [&str; 6] = ["what", "who", "whoever", "where", "those", "of"];

const WORDS_MAX: usize = 25;

/// Every fault of a page, one per line.
pub(super) fn faults(page: &Page) -> Vec<String> {
    let mut faults = Vec::new();
    for prose in &page.prose {
        faults.extend(
            faults_of(prose).into_iter().map(|fault| format!("{}:{}: {fault}", page.name, prose.line)),
        );
    }
    let comments = page.sections.iter().flat_map(|section| &section.blocks);
    for block in comments.filter(|block| ["toml", "rhai", "sh"].contains(&block.language())) {
        let comments = block.text.lines().filter_map(|line| line.split_once("# ").or(line.split_once("// ")));
        for (_, comment) in comments {
            let found = banned(comment).into_iter();
            faults.extend(found.map(|fault| format!("{}:{}: {fault}", page.name, block.line)));
        }
    }
    faults
}

fn faults_of(prose: &Prose) -> Vec<String> {
    let text = without_code(&prose.text);
    let mut faults = banned(&text);
    for sentence in sentences(&text) {
        let words: Vec<&str> = sentence.split_whitespace().collect();
        let Some(first) = words.first() else { continue };
        let first = first.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
        if !prose.is_heading && BEGINNINGS.contains(&first.as_str()) {
            faults.push(format!("a sentence begins with `{first}`: {sentence}"));
        }
        if words.len() > WORDS_MAX {
            faults.push(format!("a sentence of {} words: {sentence}", words.len()));
        }
    }
    faults
}

fn banned(text: &str) -> Vec<String> {
    let words = words(text);
    let found = BANNED.iter().filter(|banned| words.contains(&format!(" {banned} ")));
    found.map(|banned| format!("`{banned}` in: {text}")).collect()
}

/// In small letters, with one space around each word.
fn words(text: &str) -> String {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let words: Vec<String> = words.map(str::to_lowercase).collect();
    format!(" {} ", words.join(" "))
}

/// Code becomes one word, a link becomes its text, and emphasis is removed.
fn without_code(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let prose: String = parts.map(|(at, part)| if at % 2 == 0 { part } else { "code" }).collect();
    let mut text = String::new();
    let mut rest = prose.as_str();
    while let Some((before, target)) = rest.split_once("](") {
        text.push_str(before);
        rest = target.split_once(')').map_or("", |(_, rest)| rest);
    }
    text.push_str(rest);
    text.replace(['[', ']'], "").replace("**", "")
}

/// A sentence ends with a mark and a space; a colon ends one too.
fn sentences(text: &str) -> Vec<&str> {
    let mut sentences = Vec::new();
    let mut rest = text;
    while let Some(end) = [". ", "! ", "? ", ": "].iter().filter_map(|mark| rest.find(mark)).min() {
        let (sentence, after) = rest.split_at(end + 1);
        sentences.push(sentence);
        rest = after.trim_start();
    }
    sentences.push(rest);
    sentences
}

#[test]
fn a_sentence_is_judged_by_its_words_its_beginning_and_its_length() {
    let prose = |text: &str| Prose { line: 1, text: text.into(), is_heading: false };
    let count = |text: &str| faults_of(&prose(text)).len();
    assert_eq!(count("A queue keeps `what nobody told` jobs. [Where](x.md) it is: here."), 1);
    assert_eq!(count("It is told so often. A stand, a saying."), 2);
    assert_eq!(count(&"word ".repeat(25)), 0);
    assert_eq!(count(&"word ".repeat(26)), 1);
    assert_eq!(count(&format!("{}end. {}", "word ".repeat(20), "word ".repeat(20))), 0);
}
