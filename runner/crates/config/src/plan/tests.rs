//! Tests of plans: changes of parts, and their effects in words.

use std::fmt::Write as _;

use super::*;
use crate::load::{LoadOptions, load};

const OLD: &str = "[source.in]\ntype = \"file\"\npath = \"in\"\nformat = \"lines\"\n\
    [step.price]\nfrom = \"in\"\nto = \"priced\"\nerrors = \"failed\"\n\
    [step.ship]\nfrom = \"priced\"\nretry = { backoff = \"fixed\", max_attempts = 3 }\n\
    queuer = { strategy = \"fifo\", lane = \"pool\" }\nto = \"out\"\n\
    [sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\n";

fn digest(files: &[(&str, &str)]) -> ConfigurationDigest {
    let temp = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        std::fs::write(temp.path().join(name), text).expect("a file");
    }
    let options = LoadOptions { data: Some("/data".into()), ..LoadOptions::default() };
    let (configuration, _) = load(temp.path(), &options).finish().unwrap_or_else(|all| panic!("{all}"));
    configuration.digest()
}

fn address(text: &str) -> Address {
    Address::parse(text).expect("an address")
}

/// `price` and `ship` have run; `ship` has 1,204 waiting jobs and 3 delayed ones.
fn state() -> PlanState {
    let remains = |input: &str, waiting, delayed| StepRemains {
        inputs: BTreeMap::from([(address(input), waiting)]),
        delayed,
        pending: 0,
    };
    PlanState {
        steps: BTreeMap::from([
            (address("shop/price"), remains("shop/in", None, 0)),
            (address("shop/ship"), remains("shop/priced", Some(1204), 3)),
        ]),
        queues: BTreeMap::from([(address("shop/priced"), 1204), (address("shop/failed"), 1)]),
        known: PartNames {
            steps: ["shop/price", "shop/ship"].map(address).into(),
            queues: ["shop/priced", "shop/failed", "shop/ancient"].map(address).into(),
            ..PartNames::default()
        },
    }
}

fn shown(new: &[(&str, &str)]) -> String {
    let plan = Plan::between(&digest(&[("shop.toml", OLD)]), &digest(new), &state());
    let mut text = String::new();
    for PartChange { kind, name, action, aspects, settings, effects } in &plan.changes {
        writeln!(text, "{action:?} {} {name} [{}]", kind.as_str(), aspects.join(", ")).expect("a text");
        for PlannedSetting { key, old, new } in settings {
            writeln!(text, "    {key}: {old:?} → {new:?}").expect("a text");
        }
        for effect in effects {
            writeln!(text, "    {effect}").expect("a text");
        }
    }
    text
}

#[test]
fn equal_configurations_have_an_empty_plan() {
    assert_eq!(shown(&[("shop.toml", &format!("# a comment\n{OLD}"))]), "");
}

#[test]
fn changed_settings_have_their_texts_and_effects() {
    let new = OLD.replace("max_attempts = 3", "max_attempts = 5").replace("\"pool\"", "\"account\"");
    insta::assert_snapshot!(shown(&[("shop.toml", &new)]));
}

#[test]
fn a_renamed_pipeline_orphans_its_queues_and_keeps_progress() {
    insta::assert_snapshot!(shown(&[("store.toml", OLD)]));
}

#[test]
fn a_pipeline_that_was_another_one_takes_everything_over() {
    let new = format!("[pipeline]\nwas = \"shop\"\n{}", OLD.replace("[pipeline]\n", ""));
    insta::assert_snapshot!(shown(&[("store.toml", &new)]));
}

#[test]
fn queues_and_sources_that_were_others_take_over() {
    let new = OLD
        .replace("\"priced\"", "\"valued\"")
        .replace("[source.in]", "[source.orders]\nwas = \"in\"")
        .replace("from = \"in\"", "from = \"orders\"")
        + "[queue.valued]\nwas = \"priced\"\n";
    insta::assert_snapshot!(shown(&[("shop.toml", &new)]));
}

#[test]
fn a_step_goes_on_at_its_progress_on_an_input_that_was_renamed_while_the_step_did_not_read_it() {
    let old = OLD.replace("from = \"priced\"", "from = \"other\"");
    let new = OLD.replace("\"priced\"", "\"valued\"") + "[queue.valued]\nwas = \"priced\"\n";
    let plan = Plan::between(&digest(&[("shop.toml", &old)]), &digest(&[("shop.toml", &new)]), &state());
    let ship = plan.changes.iter().find(|change| change.name == "shop/ship").expect("a change");
    assert!(
        ship.effects
            .contains(&"continues on `shop/valued` at its kept progress: 1,204 jobs waiting".to_owned()),
        "{:?}",
        ship.effects
    );
}

#[test]
fn a_queue_that_loses_its_last_reader_is_named() {
    let new = OLD.replace("from = \"priced\"", "from = \"other\"\nbegin_at = \"newest\"");
    insta::assert_snapshot!(shown(&[("shop.toml", &new)]));
}

#[test]
fn jobs_that_wait_for_a_removed_step_and_that_retention_deletes_are_counted() {
    let ship = OLD.find("[step.ship]").expect("it is there");
    let copy = "[sink.copy]\nfrom = \"priced\"\ntype = \"null\"\n";
    let old = format!("{OLD}{copy}");
    let between = |old: &str, new: &str| {
        let plan = Plan::between(&digest(&[("shop.toml", old)]), &digest(&[("shop.toml", new)]), &state());
        let change = plan.changes.into_iter().find(|change| change.name == "shop/ship").expect("a change");
        change.effects.join("\n")
    };
    let deleted = "1,204 jobs wait for it on `shop/priced`, and are deleted when all other steps of the queue are past them";
    let removed = format!("{}{copy}", &OLD[..ship]);
    assert!(between(&old, &removed).contains(deleted), "{}", between(&old, &removed));
    let elsewhere = old.replace("[step.ship]\nfrom = \"priced\"", "[step.ship]\nfrom = \"failed\"");
    assert!(between(&old, &elsewhere).contains(deleted), "{}", between(&old, &elsewhere));
    let kept = format!("{removed}[queue.priced]\nretain = \"forever\"\n");
    assert!(!between(&old, &kept).contains("deleted"), "{}", between(&old, &kept));
}

#[test]
fn a_table_that_goes_shows_no_settings_that_limited_nothing() {
    let shown =
        shown(&[("shop.toml", &OLD.replace("queuer = { strategy = \"fifo\", lane = \"pool\" }\n", ""))]);
    assert!(shown.contains("queuer.lane: Some(\"pool\") → None"), "{shown}");
    assert!(!shown.contains("Some(\"none\") → None") && !shown.contains("unlimited"), "{shown}");
}

#[test]
fn other_targets_leave_jobs_behind() {
    let new = OLD
        .replace("to = \"priced\"\nerrors = \"failed\"", "to = \"done\"\nerrors = \"lost\"")
        .replace("out.ndjson", "new.ndjson");
    insta::assert_snapshot!(shown(&[("shop.toml", &new)]));
}

#[test]
fn settings_of_the_runner_say_when_they_take_effect() {
    let settings = "[runner]\nworkers = 3\nshutdown_timeout = \"5s\"\n[reload]\nwatch = false\n";
    insta::assert_snapshot!(shown(&[("shop.toml", OLD), ("tidegate.toml", settings)]));
}

#[test]
fn a_was_that_moves_nothing_is_named_in_a_note() {
    let new = OLD.replace("[step.ship]", "[step.ship]\nwas = \"send\"")
        + "[queue.priced]\nwas = \"costs\"\n[queue.other]\nwas = \"ancient\"\n[step.more]\nwas = \"none\"\nfrom = \"other\"\n";
    let plan = Plan::between(&digest(&[("shop.toml", OLD)]), &digest(&[("shop.toml", &new)]), &state());
    insta::assert_snapshot!(plan.notes.join("\n"), @r#"
    `was = "none"` of step `shop/more` has no effect: nothing of `shop/none` is left to move, so it begins anew; correct the name, or remove `was`
    `was = "send"` of step `shop/ship` has no effect: the step is known by its name already; remove `was`
    `was = "costs"` of queue `shop/priced` has no effect: the queue is known by its name already; remove `was`
    "#);
}

#[test]
fn a_plan_passes_through_json() {
    let plan = Plan::between(&digest(&[("shop.toml", OLD)]), &digest(&[("store.toml", OLD)]), &state());
    let json = serde_json::to_string(&plan).expect("it is JSON");
    assert_eq!(serde_json::from_str::<Plan>(&json).expect("a plan"), plan);
    assert!(!plan.is_empty() && plan.count(PlanAction::Add) == plan.count(PlanAction::Remove));
}
