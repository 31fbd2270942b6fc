//! Tests of graphs: every output format draws the same topology.

use tempfile::TempDir;

use super::topology::{Depths, Topology};
use super::{dot, json, mermaid, text};
use tidegate_config::{Configuration, LoadOptions, load};

const SOURCE: &str = "type = \"file\"\npath = \"in\"\nformat = \"lines\"";

const QUICKSTART: [(&str, &str); 1] = [(
    "quakes",
    r#"
[pipeline]
errors = "failed"
[source.events]
SOURCE
[step.classify]
from = "events"
to = "classified"
[step.alert]
from = "classified"
to = { catalogue = "catalogue", alert = "alerts" }
[sink.catalogue]
type = "null"
[sink.alerts]
type = "null"
"#,
)];

/// One configuration with every element: a join, alternatives, forks, several readers, errors that are read,
/// sinks with `from`, and two pipelines.
const EVERYTHING: [(&str, &str); 2] = [
    (
        "shop",
        r#"
[pipeline]
errors = "failed"
[source.orders]
SOURCE
[source.payments]
SOURCE
[step.price]
from = "orders"
to = { ok = "priced", odd = "odd" }
errors = "unpriced"
[step.audit]
from = "priced"
to = "trail"
delivery = "at-least-once"
[step.match]
join = { order = "priced", payment = "payments" }
to = { matched = "matched", trail = "trail" }
[step.mend]
from = "unpriced"
to = "odd"
[sink.trail]
type = "null"
[sink.report]
from = ["matched", "odd"]
type = "stdout"
delivery = "at-most-once"
"#,
    ),
    (
        "ship",
        r#"
[source.returns]
SOURCE
[step.newest]
alts = { sold = "shop/matched", returned = "returns" }
to = "parcels"
[step.weigh]
from = "parcels"
to = { light = "light", heavy = "heavy" }
[step.join-all]
join = { light = "light", heavy = "heavy", shop = "shop/matched" }
to = "sent"
[sink.sent]
type = "null"
[sink.bill]
from = "parcels"
type = "null"
"#,
    ),
];

const CYCLE: [(&str, &str); 1] = [(
    "crawl",
    r#"
[source.seeds]
SOURCE
[queue.pages]
allow_cycle = true
[step.seed]
from = "seeds"
to = "pages"
[step.fetch]
from = "pages"
to = { link = "pages", text = "texts" }
[sink.texts]
type = "null"
"#,
)];

const ONE_STEP: [(&str, &str); 1] = [("one", "[source.in]\nSOURCE\n[step.drop]\nfrom = \"in\"\n")];

fn configuration(files: &[(&str, &str)]) -> Configuration {
    let folder = TempDir::new().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(format!("{name}.toml")), text.replace("SOURCE", SOURCE)).unwrap();
    }
    load(folder.path(), &LoadOptions::default()).finish().unwrap_or_else(|mistakes| panic!("{mistakes}")).0
}

fn topology(files: &[(&str, &str)]) -> Topology {
    Topology::of(&configuration(files), None)
}

fn live(files: &[(&str, &str)]) -> Topology {
    let configuration = configuration(files);
    let mut depths = Depths::default();
    for (step, number) in configuration.steps.iter().zip(1000..) {
        for input in &step.inputs {
            depths.waiting.insert((step.address.to_string(), input.address.to_string()), number);
            depths.kept.insert(input.address.to_string(), 12_345);
        }
    }
    Topology::of(&configuration, Some(&depths))
}

fn drawn(topology: &Topology) -> String {
    text::draw(&topology.without_implied_steps())
}

#[test]
fn the_quick_start_is_drawn() {
    insta::assert_snapshot!(drawn(&topology(&QUICKSTART)));
}

#[test]
fn joins_alternatives_and_forks_are_drawn() {
    insta::assert_snapshot!(drawn(&topology(&EVERYTHING)));
}

#[test]
fn a_way_that_goes_round_is_drawn() {
    insta::assert_snapshot!(drawn(&topology(&CYCLE)), @"
    ▶  seeds  file source
    ◆  seed   step
    ○  pages  queue        ↺ from fetch
    ◆  fetch  step         → link: pages ↺, text: texts
    ■  texts  null sink
    ");
}

/// One sink receives the step's outputs and the failures on the way to it.
const ERRORS_BACK: [(&str, &str); 1] = [(
    "p",
    r#"
[pipeline]
errors = "failed"
[source.in]
SOURCE
[step.first]
from = "in"
to = "good"
[step.again]
from = "bad"
to = "good"
[step.last]
from = "good"
errors = "bad"
[queue.bad]
allow_cycle = true
[sink.out]
from = ["good", "failed"]
type = "null"
"#,
)];

#[test]
fn errors_that_come_back_are_drawn() {
    insta::assert_snapshot!(drawn(&topology(&ERRORS_BACK)));
}

#[test]
fn a_step_alone_is_drawn() {
    insta::assert_snapshot!(drawn(&topology(&ONE_STEP)), @"
    ▶  in    file source
    ◆  drop  step
    ");
}

#[test]
fn jobs_that_wait_are_told_in_the_drawing() {
    insta::assert_snapshot!(drawn(&live(&EVERYTHING)));
}

#[test]
fn a_drawing_is_not_wider_than_a_terminal() {
    for files in [&QUICKSTART[..], &EVERYTHING, &CYCLE, &ONE_STEP] {
        for line in drawn(&live(files)).lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }
}

#[test]
fn mermaid_has_shapes_bindings_and_pipelines() {
    insta::assert_snapshot!(mermaid::draw(&topology(&EVERYTHING).without_implied_steps()));
    insta::assert_snapshot!("mermaid_live", mermaid::draw(&live(&QUICKSTART).without_implied_steps()));
}

#[test]
fn dot_has_shapes_bindings_and_pipelines() {
    insta::assert_snapshot!(dot::draw(&topology(&EVERYTHING).without_implied_steps()));
    insta::assert_snapshot!("dot_live", dot::draw(&live(&QUICKSTART).without_implied_steps()));
}

#[test]
fn json_has_everything_that_each_node_depends_on() {
    let document = json::document(&live(&CYCLE));
    insta::assert_snapshot!(serde_json::to_string_pretty(&document).unwrap());
}
