//! Diagnostics of configurations: each case is a folder below `diagnostics`, with the text that an operator
//! sees.
//!
//! `diagnostics/TOPIC/CASE/` is the configuration: its TOML files, and scripts if it names any.
//! `expected.txt` beside them is the output of `tidegate check`, and the name of the folder is the claim of
//! the case. A case that is not loaded as a folder has the paths to load in `paths.txt`, one per line.
//!
//! A new case is a new folder. This command writes missing and changed `expected.txt` files:
//!
//! ```sh
//! INSTA_UPDATE=always cargo test -p tidegate-config diagnostics
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use similar::TextDiff;

use super::Folder;

/// The expected text of a case. It is not part of the configuration, and neither is the list of paths.
const EXPECTED: &str = "expected.txt";
const PATHS: &str = "paths.txt";

#[test]
fn every_case_shows_its_expected_text() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/diagnostics");
    let update = std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always");
    let mut differences = Vec::new();
    let cases: Vec<_> = entries(&root).iter().flat_map(|topic| entries(topic)).collect();
    assert!(!cases.is_empty(), "there are no cases in {}", root.display());
    for case in cases {
        let shown = shown(&case);
        let file = case.join(EXPECTED);
        let expected = fs::read_to_string(&file).ok();
        if expected.as_ref() == Some(&shown) {
            continue;
        }
        if update {
            fs::write(&file, &shown).unwrap();
            continue;
        }
        let name = file.strip_prefix(&root).unwrap().display().to_string();
        let diff = TextDiff::from_lines(expected.as_deref().unwrap_or_default(), &shown);
        differences.push(diff.unified_diff().header(&name, "shown").to_string());
    }
    assert!(
        differences.is_empty(),
        "{} of the cases show another text:\n{}\nIf these texts are right: \
         INSTA_UPDATE=always cargo test -p tidegate-config diagnostics",
        differences.len(),
        differences.join("\n")
    );
}

/// The diagnostics of the configuration in this folder.
fn shown(case: &Path) -> String {
    let folder = Folder::of(&[]);
    copy(case, &folder.configs());
    match fs::read_to_string(case.join(PATHS)) {
        Ok(paths) => paths.lines().map(|path| folder.shown_at(path)).collect::<Vec<_>>().join("\n"),
        Err(_) => folder.shown(),
    }
}

/// Copies the folder, so that no text depends on the place of this repository.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in entries(from) {
        let name = entry.file_name().unwrap();
        if entry.is_dir() {
            copy(&entry, &to.join(name));
        } else if name != EXPECTED && name != PATHS {
            fs::copy(&entry, to.join(name)).unwrap();
        }
    }
}

/// The entries of the folder, in order.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    entries
}
