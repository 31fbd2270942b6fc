//! Robustness: no content of a file causes a panic, and every place is within its text.

use proptest::prelude::*;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tidegate_config::{Diagnostics, Severity};

use super::Folder;
use super::whole::EVERY_KEY;

/// Loads and renders; checks that places can be shown, and that an error exists.
fn examine(folder: &Folder) {
    match folder.load() {
        Ok((_, warnings)) => {
            assert_eq!(warnings.count(Severity::Error), 0);
            examine_places(&warnings);
        }
        Err(diagnostics) => {
            assert!(diagnostics.has_errors());
            examine_places(&diagnostics);
        }
    }
}

fn examine_places(diagnostics: &Diagnostics) {
    for diagnostic in diagnostics.iter() {
        if let (Some(span), Some(text)) = (&diagnostic.span, diagnostics.files().get(&diagnostic.file)) {
            assert!(text.get(span.clone()).is_some(), "{diagnostic:?}");
        }
        for (place, _) in &diagnostic.related {
            let text = diagnostics.files().get(&place.file).unwrap();
            assert!(text.get(place.span.clone()).is_some(), "{diagnostic:?}");
        }
    }
    let shown = diagnostics.render(false);
    assert!(!shown.contains("tok-123") && !shown.contains("hunter2"), "{shown}");
    assert_eq!(shown.is_empty(), diagnostics.is_empty());
    assert_eq!(diagnostics.records().len(), diagnostics.iter().len());
}

#[test]
fn a_file_that_ends_anywhere_is_read_or_refused() {
    let folder = Folder::of(&EVERY_KEY);
    for (name, text) in EVERY_KEY.iter().filter(|(name, _)| name.contains(".toml")) {
        for end in 0..text.len() {
            folder.write(name, &text.as_bytes()[..end]);
            examine(&folder);
        }
        folder.write(name, text.as_bytes());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_file_with_bytes_changed_is_read_or_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        plain in any::<bool>(),
    ) {
        let mut bytes = EVERY_KEY[1].1.as_bytes().to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            // Half of the time with bytes that have a meaning in TOML, which reach deeper code.
            let meaning = b"[]{}=\"'.,#$ \n\\/-0a";
            bytes[at] = if plain { meaning[usize::from(byte) % meaning.len()] } else { byte };
        }
        let folder = Folder::of(&EVERY_KEY);
        folder.write(EVERY_KEY[1].0, &bytes);
        examine(&folder);
    }

    #[test]
    fn lines_in_any_order_are_read_or_refused(
        order in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
    ) {
        let lines: Vec<_> = EVERY_KEY[1].1.lines().collect();
        let text: String = order.iter().flat_map(|at| [lines[at.index(lines.len())], "\n"]).collect();
        let folder = Folder::of(&EVERY_KEY);
        folder.write(EVERY_KEY[1].0, text.as_bytes());
        examine(&folder);
    }
}

/// A path that is not a file has no text, and reading it would block.
#[test]
fn a_named_pipe_is_refused_and_not_waited_for() {
    let folder = Folder::of(&[(
        "a.toml",
        "[step.a]\nfrom = \"x\"\nrun = \"pipe.rhai\"\nto = \"${file:pipe.rhai}\"\n",
    )]);
    for name in ["pipe.rhai", "b.toml"] {
        let path = folder.configs().join(name);
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    }
    insta::assert_snapshot!(folder.shown());
}

/// Look-ups and sorting are done once, so that the time is linear: this number took half a minute before.
#[test]
fn each_of_twenty_thousand_mistakes_is_reported_with_its_line() {
    let text: String = (0..20_000).map(|number| format!("[stpe{number}]\n")).collect::<Vec<_>>().concat();
    let folder = Folder::of(&[("a.toml", &text)]);
    let Err(diagnostics) = folder.load() else { panic!("nothing of it is known") };
    let lines: Vec<_> = diagnostics.records().iter().filter_map(|record| record.line).collect();
    assert_eq!(lines, (1..=20_000).collect::<Vec<_>>());
    assert_eq!(diagnostics.render(false).matches("unknown table").count(), 20_000);
}
