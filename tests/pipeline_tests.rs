//! Tests of `tidegate test`: outcomes, the clock, mocks, and results for programs.

use std::fs;
use std::path::Path;

use crate::plugins;
use crate::project::{Outcome, Project};

/// A pipeline with a test; the source and the sink exist in no test.
const PIPELINE: &str = r#"
[pipeline]
errors = "failed"
[source.orders]
type = "file"
path = "missing.ndjson"
format = "ndjson"
[step.price]
from = "orders"
run = "price.rhai"
to = { priced = "priced", audit = "audit" }
[step.charge]
from = "priced"
run = "builtin:http"
http = { url = "http://127.0.0.1:1/charge", method = "POST" }
retry = { backoff = "exponential", initial = "1h", jitter = "none", max_attempts = 3 }
to = "ledger"
[sink.ledger]
type = "file"
path = "out/ledger.ndjson"
[sink.audit_file]
from = "audit"
type = "file"
path = "out/audit.ndjson"
"#;

const PRICE: &str = "fn process(order) {
    if order.pieces < 0 { reject(`order ${order.id} is negative`) }
    #{ priced: #{ id: order.id, price: order.pieces * 1.5, note: () }, audit: order }
}";

fn project(tests: &str) -> Project {
    Project::new()
        .file("orders.toml", format!("{PIPELINE}{tests}"))
        .file("price.rhai", PRICE)
        .file("insist.rhai", "fn process(job) { retry(\"not yet\") }")
}

fn test(tests: &str) -> Outcome {
    project(tests).tidegate(&["test"])
}

/// The standard output without the duration, which is at its end.
fn shown(outcome: &Outcome) -> &str {
    outcome.stdout.rsplit_once(" in ").map_or(&outcome.stdout, |(shown, _)| shown)
}

#[test]
fn a_step_gets_the_given_jobs_and_its_outputs_are_compared() {
    let outcome = test(
        r#"
[[test]]
name = "a price is 1.5 a piece"
step = "price"
given = [{ id = 1, pieces = 2 }, { id = 2, pieces = -1 }]
expect = { priced = [{ id = 1, price = 3 }], audit = [{ id = 1, pieces = 2 }], errors = ["order 2 is negative"], attempts = 2 }
"#,
    )
    .done();
    insta::assert_snapshot!(shown(&outcome), @"
    ok    orders/price: a price is 1.5 a piece
    1 test passed
    ");
}

#[test]
fn a_failed_test_shows_each_difference_with_its_place() {
    let outcome = test(
        r#"
[[test]]
name = "everything differs"
step = "price"
given = [{ id = 1, pieces = 2 }, { id = 2, pieces = -1 }, { id = 3, pieces = 4 }]
[test.expect]
priced = [{ id = 1, price = 3 }, { id = 4, price = 6 }, { id = 5, price = 0 }]
failed = [{ message = "is positive", attempt = 1, kind = "rejected" }]
attempts = 2
elapsed = "1s"
halted = "never"
waiting = 1
"#,
    )
    .failed(1);
    insta::assert_snapshot!(shown(&outcome));
}

#[test]
fn events_that_a_test_does_not_expect_fail_it() {
    let outcome = test(
        r#"
[step.insist]
from = "insisting"
run = "insist.rhai"
retry = { backoff = "fixed", initial = "1d", jitter = "none", max_attempts = 0 }
to = "insisted"

[[test]]
name = "an error"
given = { orders = [{ id = 1, pieces = -1 }] }
expect = { ledger = [] }

[[test]]
name = "no mock"
step = "charge"
given = [{ id = 1 }]
expect = { ledger = [] }

[[test]]
name = "too few answers, and too many"
given = { orders = [{ id = 1, pieces = 1 }, { id = 2, pieces = 1 }] }
mock = { "builtin:http" = [{ output = 1 }] }
expect = { ledger = [1] }

[[test]]
name = "an answer is left"
step = "charge"
mock = { "builtin:http" = [{ output = 1 }] }
expect = { ledger = [] }

[[test]]
name = "a job that is tried again for ever"
step = "insist"
given = [{ id = 1 }]
expect = { insisted = [] }

[[test]]
name = "a job that stays pending"
step = "charge"
given = [{ id = 1 }]
mock = { "builtin:http" = { pending = "x" } }
expect = { ledger = [] }
"#,
    )
    .failed(1);
    insta::assert_snapshot!(shown(&outcome));
}

#[test]
fn the_clock_of_a_test_moves_over_delays_at_once() {
    test(
        r#"
[[test]]
name = "a charge is tried again after one hour, and again"
step = "charge"
given = [{ id = 1 }]
mock = { "builtin:http" = [{ error = "busy", cause = "http 503" }, { retry = "busy" }, { output = { tx = 1 } }] }
expect = { ledger = [{ tx = 1 }], attempts = 3, elapsed = "2h" }

[[test]]
name = "a time of its own"
step = "charge"
given = [{ id = 1 }]
mock = { "builtin:http" = [{ retry = "later", in = "1d" }, { output = 1 }] }
expect = { ledger = [1], elapsed = "1d" }

[[test]]
name = "the third failure is the last"
given = { orders = [{ id = 1, pieces = 1 }] }
mock = { "builtin:http" = { error = "busy" } }
expect = { ledger = [], failed = [{ message = "busy", attempt = 3, step = "charge" }], attempts = { price = 1, charge = 3 } }

[[test]]
name = "a test ends at its time, and jobs may wait"
step = "charge"
for = "30m"
given = [{ id = 1 }]
mock = { "builtin:http" = [{ retry = "busy" }] }
expect = { ledger = [], waiting = 1, elapsed = "30m" }
"#,
    )
    .done();
}

#[test]
fn gates_monitors_and_schedules_follow_the_clock_of_the_test() {
    let project = Project::new()
        .file(
            "p.toml",
            r#"
[source.tick]
type = "schedule"
cron = "0 * * * *"
time_zone = "UTC"
[step.submit]
from = "tick"
run = "builtin:exec"
exec = { command = ["false"] }
gate = "open"
to = "done"
[step.submit.monitor]
run = ["builtin:exec", "status.rhai"]
exec = { command = ["false"] }
every = "10s"
[gate.open]
run = ["builtin:exec", "open.rhai"]
exec = { command = ["false"] }
every = "5m"
[sink.done]
type = "stdout"

[[test]]
name = "each hour has a job"
at = "2026-01-31T11:30:00Z"
for = "2h"
mock.submit = { "builtin:exec" = [{ output = 1 }, { output = 2 }] }
mock.open = { "builtin:exec" = { output = 10 } }
expect = { done = [1, 2] }

[[test]]
name = "a schedule does not tick without a time"
expect = { done = [], elapsed = "0s" }

[[test]]
name = "a tick can be given"
given = { tick = [{ due = "2026-01-31T12:00:00Z" }] }
mock.submit = { "builtin:exec" = [{ pending = "x" }], monitor = { "builtin:exec" = [{ output = "no" }, { output = "yes" }] } }
mock.open = { "builtin:exec" = [{ output = 20 }, { output = 10 }] }
expect = { done = [{ due = "2026-01-31T12:00:00Z" }], attempts = { submit = 1 }, elapsed = "5m20s" }
"#,
        )
        .file("open.rhai", "fn open(price) { price < 15 }")
        .file("status.rhai", "fn status(word) { [if word == \"yes\" { \"committed\" } else { \"pending\" }] }");
    project.tidegate(&["test", "."]).done();
}

#[test]
fn jobs_that_come_later_find_the_state_that_earlier_ones_left() {
    let project = Project::new().file(
        "p.toml",
        r#"
[step.settle]
from = "requests"
queuer = { strategy = "rounds", pause = "1h", max_processing = 1 }
to = "settled"
[step.slow]
from = "settled"
queuer = { strategy = "fifo", rate = "1/m" }
to = "paid"

[[test]]
name = "a round has the jobs of its start"
step = "settle"
given = [1, 2]
later = [{ after = "2h", given = [5] }, { after = "10s", given = [3, 4] }]
expect = { settled = [1, 2, 3, 4, 5], attempts = 5, elapsed = "2h" }

[[test]]
name = "the first jobs come later"
given = { requests = [] }
later = [{ after = "1d", given = { requests = [1], settled = [2] } }]
expect = { paid = [2, 1], elapsed = "24h1m" }

[[test]]
name = "a test ends before all jobs have come"
for = "1h"
later = [{ after = "10s", given = { settled = [1] } }, { after = "2h", given = { settled = [2] } }]
expect = { paid = [1], elapsed = "1h" }
"#,
    );
    project.tidegate(&["test", "."]).done();
}

#[test]
fn a_plugin_with_effects_needs_a_mock_and_one_without_runs() {
    let project = Project::new().file(
        "p.toml",
        r#"
[step.submit]
from = "matched"
run = "plugin:flaky"
retry = { backoff = "fixed", initial = "1s", jitter = "none" }
to = "committed"
[step.calm]
from = "calm"
run = "plugin:flaky/calm"
to = "calmed"
errors = "failed"

[[test]]
name = "a refused charge is tried again after one second"
step = "submit"
given = [{ id = 1, pool = "a" }]
mock = { "plugin:flaky" = [{ retry = "busy" }, { output = { id = 1, tx = 9 } }] }
expect = { committed = [{ id = 1, tx = 9 }], attempts = 2, elapsed = "1s" }

[[test]]
name = "a plugin without effects"
step = "calm"
given = [{ id = 1 }, { id = 2, do = "reject" }]
expect = { calmed = [{ id = 1 }], failed = [{ job = { id = 2, do = "reject" }, kind = "rejected" }] }

[[test]]
name = "no mock"
step = "submit"
given = [{ id = 1 }]
expect = { committed = [{ id = 1 }] }
"#,
    );
    let plugins = plugins::folder().display().to_string();
    let outcome = project.tidegate(&["test", ".", "--plugins", &plugins]).failed(1);
    let failed: Vec<&str> = outcome.stdout.lines().filter(|line| line.starts_with("FAIL")).collect();
    assert_eq!(failed, ["FAIL  p/submit: no mock"], "{}", outcome.stdout);
    assert!(outcome.stdout.contains("calls `plugin:flaky`, which has no mock"), "{}", outcome.stdout);
}

#[test]
fn an_http_sink_has_a_mock_of_its_own() {
    let project = Project::new().file(
        "p.toml",
        r#"
[step.emit]
from = "orders"
run = "emit.rhai"
to = { hook = "hook" }
retry = { backoff = "fixed", initial = "5s", jitter = "none", max_attempts = 2, then = "drop" }
[sink.hook]
type = "http"
url = "http://127.0.0.1:1/{id}"

[[test]]
name = "a request is sent again, and then dropped"
step = "emit"
given = [{ id = 1 }, { id = 2 }]
mock = { "sink:hook" = [{ output = 1 }, { error = "busy", cause = "http 503" }, { error = "gone", cause = "http 503" }] }
expect = { hook = [{ id = 1 }], attempts = 3, dropped = 1, elapsed = "5s" }

[[test]]
name = "every request is accepted without a mock"
step = "emit"
given = [{ id = 1 }]
expect = { hook = [{ id = 1 }] }

[[test]]
name = "a request is within the attempt, so it cannot be late"
step = "emit"
given = [{ id = 1, late = true }]
expect = { halted = "cannot be delayed", attempts = 1 }

[[test]]
name = "a dropped job is not expected"
step = "emit"
given = [{ id = 1 }]
mock = { "sink:hook" = { error = "gone", cause = "http 503" } }
expect = { hook = [] }
"#,
    )
    .file("emit.rhai", "fn process(job) { if \"late\" in job { emit_in(\"hook\", job, \"1s\") } else { emit(\"hook\", job) } }");
    let outcome = project.tidegate(&["test", "."]);
    insta::assert_snapshot!(shown(&outcome));
}

#[test]
fn joins_and_alternatives_get_their_jobs_by_binding_or_name() {
    let project = Project::new()
        .file(
            "p.toml",
            r#"
[step.pair]
join = { order = "orders", payment = "payments" }
run = "pair.rhai"
to = "pairs"
[step.any]
alts = { old = "crawler_old", new = "crawler_new" }
run = "any.rhai"
to = "q/pages"

[[test]]
name = "jobs meet in pairs"
step = "pair"
given = { order = "orders.ndjson", payments = [{ paid = 1 }, { paid = 2 }, { paid = 3 }] }
expect = { pairs = "pairs.ndjson" }

[[test]]
name = "either is passed on"
step = "any"
given = { crawler_new = [1], "p/crawler_old" = [2] }
expect = { "q/pages" = [1, 2] }
"#,
        )
        .file("q.toml", "[sink.file]\nfrom = \"pages\"\ntype = \"null\"\n")
        .file("orders.ndjson", "{\"id\": null}\n\n{\"id\": 2}\n")
        .file("pairs.ndjson", "[null, 1]\n[2, 2]\n")
        .file("pair.rhai", "fn process(job) { [[job.order.id, job.payment.paid]] }")
        .file("any.rhai", "fn process(job) { job.values()[0] }");
    project.tidegate(&["test", "."]).done();
}

#[test]
fn a_test_run_touches_nothing() {
    let project = project(
        r#"
[[test]]
name = "the whole pipeline"
given = { orders = [{ id = 1, pieces = 1 }] }
mock = { "builtin:http" = { output = 1 } }
expect = { ledger = [1], audit_file = [{ id = 1, pieces = 1 }], attempts = { audit_file = 1 } }
"#,
    );
    project.tidegate(&["test"]).done();
    let entries = fs::read_dir(project.path()).expect("it can be listed");
    let mut names: Vec<_> = entries.map(|entry| entry.expect("it can be listed").file_name()).collect();
    names.sort();
    assert_eq!(names, ["insist.rhai", "orders.toml", "price.rhai"]);
}

#[test]
fn a_filter_chooses_tests_by_pipeline_step_and_name() {
    let project = project(
        "
[[test]]
name = \"one\"
expect = { ledger = [] }
[[test]]
name = \"two\"
step = \"price\"
expect = { priced = [] }
",
    );
    let ran = |filter: &str| {
        let outcome = project.tidegate(&["test", "--filter", filter]).done();
        outcome.stdout.lines().filter(|line| line.starts_with("ok")).count()
    };
    assert_eq!((ran("orders"), ran("orders/price"), ran("one"), ran("price: two")), (2, 1, 1, 1));
    project.tidegate(&["test", "--filter", "three"]).failed(1).says("no test matches `three`");
}

#[test]
fn results_are_json_and_junit_for_programs() {
    let project = project(
        "
[[test]]
name = \"one\"
expect = { ledger = [1] }
[[test]]
name = \"two\"
step = \"price\"
expect = { priced = [] }
",
    );
    let junit = ["test", "--junit", "results.xml", "--format", "json"];
    let outcome = project.tidegate(&junit).failed(1);
    let results: serde_json::Value = serde_json::from_str(&outcome.stdout).expect("it is JSON");
    let first = &results["tests"][0];
    assert_eq!((&first["passed"], &results["tests"][1]["passed"]), (&false.into(), &true.into()));
    assert_eq!(first["differences"][0]["expected"], serde_json::json!([1]));
    assert_eq!(first["differences"][0]["actual"], serde_json::json!([]));
    let xml = project.read("results.xml");
    for part in [
        "<testsuites tests=\"2\" failures=\"1\"",
        "classname=\"orders/price\"",
        "<failure message=\"`ledger` differs\">",
    ] {
        assert!(xml.contains(part), "`{part}` is missing in\n{xml}");
    }
}

#[test]
fn a_secret_is_not_in_the_report() {
    let project = Project::new()
        .file(
            "p.toml",
            r#"
[step.sign]
from = "orders"
run = "sign.rhai"
config = { key = "${KEY}" }
to = "signed"
errors = "failed"
[[test]]
name = "the key leaks"
step = "sign"
given = [{ id = 1 }, { id = 2 }]
expect = { signed = [{ other = "${OTHER}" }] }
"#,
        )
        .file(
            "sign.rhai",
            "fn process(job, ctx) { if job.id == 2 { throw ctx.config.key } #{ key: `${ctx.config.key}!` } }",
        );
    let mut command = project.command(&["test", ".", "--format", "json"]);
    let output = command.env("KEY", "hunter2").env("OTHER", "hunter3").output().expect("it can be started");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!text.contains("hunter") && text.contains("\"key\": \"…!\""), "{text}");
}

#[test]
fn a_mistake_in_a_test_keeps_all_from_running() {
    let project = project("[[test]]\nname = \"one\"\nexpect = { ledgre = [] }\n");
    project.tidegate(&["test"]).failed(78).says("did you mean `ledger`?");
    project.tidegate(&["check", "."]).failed(78).says("did you mean `ledger`?");
}

#[test]
fn every_demonstration_has_tests_that_pass() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs");
    let plugins = plugins::folder().display().to_string();
    let mut ran = 0;
    for entry in fs::read_dir(root).expect("the demonstrations are there") {
        let folder = entry.expect("it can be listed").path().display().to_string();
        let outcome = Project::new().tidegate(&["test", &folder, "--plugins", &plugins]).done();
        assert!(outcome.stdout.starts_with("ok "), "{folder}: {}", outcome.stdout);
        ran += 1;
    }
    assert!(ran > 5, "only {ran} demonstrations were found");
}

#[test]
fn a_test_has_the_results_of_a_run() {
    let quickstart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/quickstart");
    let mut project = Project::new();
    for name in ["quakes.toml", "classify.rhai", "alert.rhai", "data/earthquakes.ndjson"] {
        project = project.file(name, fs::read(quickstart.join(name)).expect("the demonstration is there"));
    }
    project.run().done();
    assert_eq!(project.read("out/catalogue.ndjson").lines().count(), 1679);
    project.append(
        "quakes.toml",
        r#"
[[test]]
name = "the whole week"
given = { events = "data/earthquakes.ndjson" }
expect = { catalogue = "out/catalogue.ndjson", alerts = "out/alerts.ndjson" }
"#,
    );
    project.tidegate(&["test", "--filter", "the whole week"]).done();
}

#[test]
fn a_configuration_without_tests_passes() {
    let outcome = test("").done();
    assert_eq!(outcome.stdout, "the configuration has no tests\n");
}
