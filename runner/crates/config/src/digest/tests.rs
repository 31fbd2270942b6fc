//! Tests of digests: edits that change them, and edits that do not.

use std::collections::BTreeSet;
use std::fmt::{Display, Write as _};
use std::path::Path;

use super::*;
use crate::load::{LoadOptions, load};
use crate::parse::keys::{KINDS, TableKind};

mod edits;
mod files;

use edits::EDITS;
use files::FILES;

/// The files as a folder, loaded.
fn configuration(files: &[(&str, String)]) -> Configuration {
    let temp = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        let path = temp.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    }
    at(temp.path())
}

fn at(path: &Path) -> Configuration {
    let env = |name: &str| (name == "SECRET").then(|| "hunter2".to_owned());
    let options = LoadOptions { env: Box::new(env), ..LoadOptions::default() };
    let (mut configuration, _) =
        load(path, &options).finish().unwrap_or_else(|mistakes| panic!("{mistakes}"));
    // The facts of a loaded plugin.
    for plugin in configuration.steps.iter_mut().flat_map(|step| &mut step.processors) {
        if let Some(plugin) = plugin.plugin_mut() {
            plugin.sha256 = "ab".repeat(32);
        }
    }
    configuration
}

fn files() -> Vec<(&'static str, String)> {
    FILES.iter().map(|(name, text)| (*name, (*text).to_owned())).collect()
}

/// The differing aspects of all parts, as `step p/a: timeout`.
fn differences(old: &ConfigurationDigest, new: &ConfigurationDigest) -> BTreeSet<String> {
    fn of<K: Ord + Display, A: Copy + Ord>(
        all: &mut BTreeSet<String>,
        kind: &str,
        old: &PartDigests<K, A>,
        new: &PartDigests<K, A>,
        words: fn(A) -> &'static str,
    ) {
        for address in old.keys().chain(new.keys()) {
            match (old.get(address), new.get(address)) {
                (Some(old), Some(new)) => {
                    let aspects = old.differing(new).into_iter();
                    all.extend(aspects.map(|aspect| format!("{kind} {address}: {}", words(aspect))));
                }
                (None, _) => drop(all.insert(format!("+ {kind} {address}"))),
                (_, None) => drop(all.insert(format!("- {kind} {address}"))),
            }
        }
    }
    let mut all = BTreeSet::new();
    of(&mut all, "step", &old.steps, &new.steps, StepAspect::as_str);
    of(&mut all, "queue", &old.queues, &new.queues, QueueAspect::as_str);
    of(&mut all, "source", &old.sources, &new.sources, SourceAspect::as_str);
    of(&mut all, "sink", &old.sinks, &new.sinks, SinkAspect::as_str);
    of(&mut all, "gate", &old.gates, &new.gates, GateAspect::as_str);
    let runner = old.runner.differing(&new.runner).into_iter();
    all.extend(runner.map(|aspect| format!("runner: {}", aspect.as_str())));
    all.extend(new.pipelines.difference(&old.pipelines).map(|name| format!("+ pipeline {name}")));
    all.extend(old.pipelines.difference(&new.pipelines).map(|name| format!("- pipeline {name}")));
    all
}

/// The files with `from` replaced by `to`, which occurs once in all of them.
fn edited(from: &str, to: &str) -> Vec<(&'static str, String)> {
    let mut files = files();
    let found: usize = files.iter().map(|(_, text)| text.matches(from).count()).sum();
    assert_eq!(found, 1, "`{from}` occurs {found} times");
    for (_, text) in &mut files {
        *text = text.replace(from, to);
    }
    files
}

#[test]
fn an_edit_of_one_key_changes_the_expected_aspects_alone() {
    let old = configuration(&files()).digest();
    for (kind, key, from, to, expected) in EDITS {
        let new = configuration(&edited(from, to)).digest();
        let differences = differences(&old, &new);
        let expected: BTreeSet<String> = expected.iter().map(|&text| text.to_owned()).collect();
        assert_eq!(differences, expected, "{kind:?} `{key}`: `{from}` is replaced by `{to}`");
        let parts = |text: &&String| !text.starts_with("runner") && !text.contains("pipeline ");
        let same = !differences.iter().any(|text| parts(&text));
        assert_eq!(old.fingerprint() == new.fingerprint(), same, "{kind:?} `{key}`");
    }
}

#[test]
fn digests_are_shared_with_an_earlier_configuration_but_for_parts_that_differ() {
    let old = configuration(&files()).digest();
    for (_, key, from, to, _) in EDITS {
        let new = configuration(&edited(from, to)).digest();
        let mut shared = new.clone();
        shared.share(&old);
        assert_eq!(shared, new, "`{key}`");
        assert_shared(key, &old.steps, &shared.steps);
        assert_shared(key, &old.queues, &shared.queues);
        assert_shared(key, &old.sources, &shared.sources);
        assert_shared(key, &old.sinks, &shared.sinks);
        assert_shared(key, &old.gates, &shared.gates);
    }
}

/// Digests that are equal are one in memory.
fn assert_shared<K: Ord + Display, A: Eq>(key: &str, old: &PartDigests<K, A>, new: &PartDigests<K, A>) {
    for (address, part) in new {
        let earlier = old.get(address);
        let is_shared = earlier.is_some_and(|earlier| Arc::ptr_eq(earlier, part));
        assert_eq!(is_shared, earlier == Some(part), "`{key}` of {address}");
    }
}

#[test]
fn no_key_of_the_grammar_is_forgotten() {
    let forgotten: Vec<String> = KINDS
        .into_iter()
        .flat_map(|kind| kind.keys().iter().map(move |key| (kind, *key)))
        // A single file has the tables of both kinds of files.
        .filter(|(kind, _)| *kind != TableKind::SingleFile)
        // Tests are no part of what runs.
        .filter(|(kind, key)| {
            !matches!(kind, TableKind::Test | TableKind::LaterJobs | TableKind::MockAnswer) && *key != "test"
        })
        // It is parsed, and not supported yet.
        .filter(|(kind, key)| *kind != TableKind::WatchErrors && *key != "watch_errors")
        .filter(|(kind, key)| !EDITS.iter().any(|(other, name, ..)| (other, name) == (kind, key)))
        .map(|(kind, key)| format!("{kind:?} `{key}`"))
        .collect();
    assert!(forgotten.is_empty(), "no edit changes {}", forgotten.join(", "));
}

#[test]
fn a_test_of_a_pipeline_changes_no_digest() {
    let old = configuration(&files()).digest();
    let mut tested = files();
    for (name, text) in tested.iter_mut().filter(|(name, _)| ["p.toml", "q.toml"].contains(name)) {
        writeln!(text, "\n[[test]]\nname = \"{name}\"\nexpect = {{ elapsed = \"0s\" }}").expect("a text");
    }
    let new = configuration(&tested);
    assert!(!new.tests.is_empty());
    assert_eq!(differences(&old, &new.digest()), BTreeSet::new());
}

#[test]
fn every_aspect_is_changed_by_some_edit() {
    let covered: BTreeSet<&str> = EDITS.iter().flat_map(|(.., expected)| *expected).copied().collect();
    let has = |kind: &str, aspect: &str| {
        covered.iter().any(|text| text.starts_with(kind) && text.ends_with(&format!(": {aspect}")))
    };
    let all = [
        ("step", StepAspect::ALL.iter().map(|aspect| aspect.as_str()).collect::<Vec<_>>()),
        ("queue", QueueAspect::ALL.iter().map(|aspect| aspect.as_str()).collect()),
        ("source", SourceAspect::ALL.iter().map(|aspect| aspect.as_str()).collect()),
        ("sink", SinkAspect::ALL.iter().map(|aspect| aspect.as_str()).collect()),
        ("gate", GateAspect::ALL.iter().map(|aspect| aspect.as_str()).collect()),
        ("runner", RunnerAspect::ALL.iter().map(|aspect| aspect.as_str()).collect()),
    ];
    for (kind, aspects) in all {
        for aspect in aspects {
            assert!(has(kind, aspect), "no edit changes `{aspect}` of a {kind}");
        }
    }
}

#[test]
fn comments_blanks_and_the_order_of_tables_change_nothing() {
    let old = configuration(&files()).digest();
    // Each table with its keys, in reverse order, with comments and blanks.
    let turned = FILES.iter().map(|(name, text)| {
        if Path::new(name).extension().is_none_or(|end| end != "toml") {
            return (*name, (*text).to_owned());
        }
        let tables = text.split("\n\n").map(|table| {
            let mut lines: Vec<&str> = table.trim().lines().collect();
            let header = lines.remove(0);
            lines.reverse();
            let keys = lines.join("   # more\n\n  ");
            format!("# a comment\n\n{header} # and more\n  {keys}\n")
        });
        let mut tables: Vec<String> = tables.collect();
        tables.reverse();
        (*name, tables.join("\n\n# between\n"))
    });
    let new = configuration(&turned.collect::<Vec<_>>()).digest();
    assert_eq!(differences(&old, &new), BTreeSet::new());
    assert_eq!(old.fingerprint(), new.fingerprint());
    assert_eq!(old, new);
}

#[test]
fn an_unrelated_pipeline_adds_only_its_own_parts() {
    let old = configuration(&files()).digest();
    // Its name sorts first, so that all positions move.
    let text = "[source.a]\ntype = \"file\"\npath = \"a\"\nformat = \"lines\"\n\n[step.a]\nfrom = \"a\"\nto = \"b\"\n";
    let mut files = files();
    files.push(("a.toml", text.to_owned()));
    let new = configuration(&files).digest();
    let expected = ["+ pipeline a", "+ queue a/b", "+ source a/a", "+ step a/a"].map(str::to_owned);
    assert_eq!(differences(&old, &new), BTreeSet::from(expected));
}

#[test]
fn the_positions_of_parts_change_nothing() {
    let mut moved = configuration(&files());
    let digest = moved.digest();
    let mut positions = crate::Positions::default();
    configuration(&[("p.toml", "[source.z]\ntype = \"file\"\npath = \"z\"\nformat = \"lines\"\n\n[step.z]\nfrom = \"z\"\nto = \"y\"\n".to_owned())])
        .keep_positions(&mut positions);
    moved.keep_positions(&mut positions);
    assert_eq!(moved.digest(), digest);
}

#[test]
fn digests_come_back_from_their_record() {
    let digest = configuration(&files()).digest();
    let text = digest.recorded();
    assert_eq!(ConfigurationDigest::from_recorded(&text).as_ref(), Some(&digest));
    for damaged in ["", "{}", &text[1..], &text.replace("\"timeout\"", "\"time\"")] {
        assert_eq!(ConfigurationDigest::from_recorded(damaged), None);
    }
    assert!(!text.contains("hunter2"));
}

#[test]
fn a_configuration_may_be_moved() {
    // Each call has a folder of its own.
    assert_eq!(configuration(&files()).digest(), configuration(&files()).digest());
}

#[test]
fn a_plugin_is_part_of_the_program() {
    let old = configuration(&files());
    let change = |change: &dyn Fn(&mut crate::PluginStepConfig)| {
        let mut new = old.clone();
        let plugin = new.steps.iter_mut().flat_map(|step| &mut step.processors);
        plugin.filter_map(crate::Processor::plugin_mut).for_each(change);
        new.derive();
        differences(&old.digest(), &new.digest())
    };
    assert_eq!(
        change(&|plugin| plugin.sha256 = "cd".repeat(32)),
        BTreeSet::from(["step p/plugged: program".to_owned()])
    );
    // A step with external effects has a retry policy and a queuer, and its outcomes are recorded.
    let expected = ["dedupe", "program", "queuer", "queuer limits", "retry"];
    assert_eq!(
        change(&|plugin| plugin.has_effects = true),
        expected.map(|aspect| format!("step p/plugged: {aspect}")).into()
    );
}

#[test]
fn a_change_has_the_texts_of_both_sides_without_inserted_values() {
    let old = configuration(&files()).digest();
    let new =
        configuration(&edited("limits = { operations = 1000,", "limits = { operations = 2000,")).digest();
    let address = Address::parse("p/work").expect("an address");
    let change = SettingChange {
        aspect: StepAspect::Limits,
        key: "limits.operations".to_owned(),
        old: Some("1000".to_owned()),
        new: Some("2000".to_owned()),
    };
    assert_eq!(old.steps[&address].changes(&new.steps[&address]), [change]);
    assert_eq!(old.steps[&address].shown("config.login"), Some("\"Basic …\""));
    let text = format!("{old:?}");
    assert!(!text.contains("hunter2") && text.contains('…'));
}

#[test]
fn a_setting_has_the_text_of_its_value() {
    let digest = configuration(&files()).digest();
    let mut text = String::new();
    for name in ["p/asks", "p/picks", "p/work"] {
        let address = Address::parse(name).expect("an address");
        let step = &digest.steps[&address];
        for change in PartDigest::new().changes(step) {
            writeln!(text, "{address} {} = {}", change.key, change.new.expect("it is new")).expect("a text");
        }
    }
    insta::assert_snapshot!(text);
}
