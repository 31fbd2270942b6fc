//! Valid configurations: tests of their parsed values, and of their order.

use std::path::PathBuf;

use tidegate_config::{
    Configuration, Diagnostic, Input, InputMode, LoadOptions, Position, Processor, Severity, SourceSpan,
    Target, check_disk, load,
};

use super::{Folder, options};

/// Every key of the grammar.
pub(super) const EVERY_KEY: [(&str, &str); 8] = [
    (
        "tidegate.toml",
        r#"
[runner]
data = "state"
workers = 3
shutdown_timeout = "45s"
[log]
level = "info,tidegate::store=debug"
format = "json"
[reload]
watch = false
tests = true
watch_errors = { rate = 0.5, within = "30s" }

[retry.patient]
backoff = "fibonacci"
initial = "2s"
max = "10m"

[gate.gas]
run = "parse.rhai"
every = "5s"
"#,
    ),
    (
        "orders.toml",
        r#"# Größe: the comment has more bytes than characters.
[pipeline]
name = "shop"
errors = "failed"
delivery = "at-least-once"

[source.events]
type = "file"
path = "data/*.csv"
format = "csv"
follow = true
max_line = "1MiB"
headers = false
delimiter = ";"

[queue.priced]
retain = "7d"
max_size = "1GiB"
meta = ["tx", "index", "time"]
dedupe = "1d"
allow_cycle = true

[step.price]
from = "events"
run = ["parse.rhai", "lib/price.rhai"]
to = { done = "priced", "odd-ones" = "audit" }
when = "job.total > 0"
types = ["order", "refund"]
topics = ["shop"]
timeout = "5s"
limits = { operations = 1000000, memory = "16MiB", depth = 16 }
delivery = "exactly-once"
begin_at = 1000
crash_limit = 5
errors = "unpriced"
config = { currency = "EUR", at = 2024-05-06T07:08:09Z, rates = [1, 2.5, { x = true }], token = "${file:token}" }

[step.again]
from = "priced"
run = "parse.rhai"
to = "priced"

[sink.audit]
type = "file"
path = "out/audit.ndjson"
format = "lines"
on_mismatch = "append"

[sink.report]
from = ["priced", "other/done"]
type = "stdout"
format = "ndjson"
delivery = "at-most-once"
begin_at = "newest"

[[test]]
name = "a price"
step = "price"
given = [{ total = 1, note = "${file:token}" }]
later = [{ after = "1s", given = { events = [{ total = 2 }] } }]
at = 2026-01-31T12:00:00Z
for = "1h"
expect = { priced = [1], unpriced = ["x"], errors = ["x"], attempts = 2, elapsed = "1h", halted = "x", dropped = 1, waiting = 0 }
"#,
    ),
    (
        "other.toml",
        r#"
[step.take]
from = "shop/${QUEUE}"
to = "done"

[sink.nowhere]
from = "shop/unpriced"
type = "null"

[sink.dead]
from = "shop/failed"
type = "null"
"#,
    ),
    (
        "pairs.toml",
        r#"
[source.payments]
type = "file"
path = "data/payments.ndjson"
format = "ndjson"

[queue.matched]
meta = ["index"]

[step.match]
join = { payment = "payments", order = "shop/priced" }
when = "job.order.id == job.payment.order"
to = "matched"

[step.newest]
alts = { new-one = "matched", "0ld" = "other/done" }
types = ["order"]
topics = ["shop"]
to = "pages"

[sink.pages]
type = "null"
"#,
    ),
    (
        "waiting.toml",
        r#"
[source.ticks]
type = "schedule"
cron = "30 2 * * mon-fri"
time_zone = "Europe/Berlin"
missed = "once"
payload = { report = "daily" }

[source.beats]
type = "schedule"
every = "5m"

[retry.chain]
backoff = "exponential"
initial = "500ms"
factor = 1.5
max = "1h"
jitter = "equal"
max_attempts = 5
ttl = "1d"
then = "drop"
on = ["timeout", "http 5xx", "script"]

[queuer.per-pool]
strategy = "one-round-parallel"
lane = "order.pool"
lane_missing = "default"
delay_window = "15s"
max_processing = 8
max_pending = 20
max_search_ahead = 0
max_per_lane = 2
rate = "100/s"
lane_rate = "10/1m"
age = "at"
id = "id"
reads = "inputs"
writes = "outputs"

[gate.open]
run = ["parse.rhai"]
every = "1m"
timeout = "3s"
config = { most = 60 }

[step.submit]
from = "ticks"
run = "parse.rhai"
retry = "chain"
queuer = "per-pool"
gate = "open"
monitor = { run = ["builtin:exec", "parse.rhai"], exec = { command = ["true"] }, every = "2s", batch = 50, timeout = "1m", config = { x = 1 } }

[[test]]
name = "mocks"
given = { ticks = [1] }
expect = { attempts = { submit = 1 } }
[test.mock]
"builtin:exec" = { gate_closed = "x" }
submit.monitor."builtin:exec" = [
    { output = 1 }, { outputs = [1] }, { error = "x", cause = "exit 1" }, { retry = "x", in = "1s" }, { reject = "x" },
    { pending = "x" },
]

[step.nightly]
from = "beats"
retry = "patient"
queuer = { strategy = "rounds", pause = "5s", max_processing = 1, max_search_ahead = 1000 }
gate = "gas"

[step.urgent]
from = "beats"
retry = { backoff = "list", delays = ["0s", "10s"], then = "halt", max_attempts = 0 }
queuer = { strategy = "priority", priority = "urgency", aging = "1m" }
"#,
    ),
    ("parse.rhai", "fn process(job) { job }\n"),
    ("lib/price.rhai", "fn process(job) { job }\n"),
    ("token", "tok-123\n"),
];

fn loaded(folder: &Folder) -> Configuration {
    let (configuration, warnings) = folder.load().unwrap_or_else(|mistakes| panic!("{mistakes}"));
    assert!(warnings.is_empty(), "{warnings}");
    configuration
}

fn steps(configuration: &Configuration) -> Vec<String> {
    configuration.steps.iter().map(|step| step.address.to_string()).collect()
}

#[test]
fn every_key_arrives() {
    let folder = Folder::of(&EVERY_KEY);
    let text = format!("{:#?}", loaded(&folder));
    insta::assert_snapshot!(folder.plain(&text));
}

#[test]
fn a_pushed_source_is_the_queue_of_its_name() {
    let pipeline = "[source.requests]\ntype = \"http\"\nkey = \"order.id\"\ndedupe = \"7d\"\n\
                    max_body = \"1MiB\"\nmax_waiting = 0\ntoken = \"${file:token}\"\n\
                    [source.plain]\ntype = \"http\"\n\
                    [queue.requests]\nretain = \"1d\"\n\
                    [step.a]\nalts = { one = \"requests\", two = \"plain\" }\n\
                    [sink.out]\nfrom = \"requests\"\ntype = \"null\"\n";
    let settings = "[runner]\nlisten = \"127.0.0.1:8484\"\n";
    let configuration =
        loaded(&Folder::of(&[("p.toml", pipeline), ("tidegate.toml", settings), ("token", "tok-123\n")]));
    assert_eq!(configuration.settings.listen, Some("127.0.0.1:8484".parse().unwrap()));
    assert!(configuration.sources.is_empty());
    insta::assert_debug_snapshot!(configuration.queues);
    let inputs = configuration.steps.iter().flat_map(|step| &step.inputs);
    assert!(inputs.into_iter().all(|input| matches!(input.input, Input::Queue(_))));
}

#[test]
fn references_lead_to_what_they_name() {
    let configuration = loaded(&Folder::of(&EVERY_KEY));
    for input in configuration.steps.iter().flat_map(|step| &step.inputs) {
        let address = match input.input {
            Input::Source(source) => &configuration.sources[source.0].address,
            Input::Queue(queue) => &configuration.queues[queue.0].address,
        };
        assert_eq!(address, &input.address);
    }
    let price = configuration.steps.iter().find(|step| step.address.to_string() == "shop/price").unwrap();
    let targets: Vec<_> = price
        .outputs
        .iter()
        .map(|output| match output.target {
            Target::Queue(queue) => configuration.queues[queue.0].address.to_string(),
            Target::Sink(sink) => configuration.sinks[sink.0].address.to_string(),
        })
        .collect();
    assert_eq!(targets, ["shop/priced", "shop/audit"]);
    assert_eq!(configuration.queues[price.errors.unwrap().0].address.to_string(), "shop/unpriced");
    let Processor::Script(script) = &price.processors[1] else { panic!("it is a script") };
    let folder_text = EVERY_KEY[1].1;
    assert_eq!(&folder_text[script.named_at.clone()], "\"lib/price.rhai\"");
}

#[test]
fn inputs_come_in_order_of_binding() {
    let configuration = loaded(&Folder::of(&EVERY_KEY));
    let inputs = |name: &str| {
        let step = configuration.steps.iter().find(|step| step.address.name.as_str() == name).unwrap();
        let bindings: Vec<_> = step.inputs.iter().map(|input| input.binding.as_str()).collect();
        (step.take, bindings)
    };
    assert_eq!(inputs("match"), (InputMode::Join, vec!["order", "payment"]));
    assert_eq!(inputs("newest"), (InputMode::Alts, vec!["0ld", "new-one"]));
    assert_eq!(inputs("price"), (InputMode::From, vec![""]));
}

#[test]
fn a_joining_step_comes_after_all_that_feed_it() {
    let text = r#"
[source.in]
type = "file"
path = "in"
format = "lines"
[step.a-match]
join = { first = "left", second = "right" }
[step.b-left]
from = "in"
to = "left"
[step.c-right]
from = "left"
to = "right"
"#;
    let configuration = loaded(&Folder::of(&[("a.toml", text)]));
    assert_eq!(steps(&configuration), ["a/b-left", "a/c-right", "a/a-match"]);
}

#[test]
fn a_step_promises_what_it_says_or_its_pipeline_says() {
    let configuration = loaded(&Folder::of(&EVERY_KEY));
    let promises: Vec<_> =
        configuration.steps.iter().map(|step| format!("{} {:?}", step.address, step.delivery)).collect();
    insta::assert_snapshot!(promises.join("\n"));
}

#[test]
fn only_what_cannot_be_taken_back_is_an_effect() {
    let configuration = loaded(&Folder::of(&EVERY_KEY));
    let with_effects: Vec<_> = configuration
        .steps
        .iter()
        .filter(|step| step.has_effects(&configuration))
        .map(|step| step.address.to_string())
        .collect();
    assert_eq!(with_effects, ["shop/report-other-done", "shop/report-priced", "waiting/submit"]);
}

#[test]
fn what_can_be_seen_outside_is_tried_again_unless_it_happens_at_most_once() {
    let text = r#"
[step.pure]
from = "in"
to = "out"
[step.asked]
from = "in"
retry = { max = "1m" }
[step.effect]
from = "in"
run = "builtin:exec"
exec = { command = ["true"] }
[step.shows]
from = "in"
to = "shown"
[step.once]
from = "in"
to = "shown"
delivery = "at-most-once"
[sink.shown]
type = "stdout"
"#;
    let (configuration, _) = Folder::of(&[("a.toml", text)]).load().unwrap_or_else(|it| panic!("{it}"));
    let longest = |name: &str| {
        let step = configuration.steps.iter().find(|step| step.address.name.as_str() == name).unwrap();
        step.retry_policy().map(|retry| retry.max.as_secs())
    };
    assert_eq!(
        ["pure", "asked", "effect", "shows", "once"].map(longest),
        [None, Some(60), Some(3600), None, None]
    );
}

#[test]
fn jobs_are_guarded_where_their_attempts_run_code_in_the_process_and_are_repeated() {
    let text = r#"
[step.copy]
from = "in"
to = "out"
[step.script]
from = "in"
run = "add.rhai"
to = "out"
[step.command]
from = "in"
run = "builtin:exec"
exec = { command = ["true"] }
to = "out"
[step.command-when]
from = "in"
when = "job.id > 1"
run = "builtin:exec"
exec = { command = ["true"] }
to = "out"
[step.plugin]
from = "in"
run = "plugin:ledger"
to = "out"
[step.isolated]
from = "in"
run = "plugin:ledger"
isolate = "process"
to = "out"
[step.isolated-script]
from = "in"
run = ["plugin:ledger", "add.rhai"]
isolate = "process"
to = "out"
[step.unlimited]
from = "in"
run = "add.rhai"
crash_limit = 0
to = "out"
[step.once]
from = "in"
run = "add.rhai"
delivery = "at-most-once"
to = "out"
"#;
    let folder = Folder::of(&[("a.toml", text), ("add.rhai", "fn process(job) { job }")]);
    let (configuration, _) = folder.load().unwrap_or_else(|it| panic!("{it}"));
    let mut in_process: Vec<&str> = configuration
        .steps
        .iter()
        .filter(|step| step.runs_code_in_process())
        .map(|step| step.address.name.as_str())
        .collect();
    in_process.sort_unstable();
    assert_eq!(in_process, ["command-when", "isolated-script", "once", "plugin", "script", "unlimited"]);
    let mut guarded: Vec<&str> = configuration.guarded_steps().map(|step| step.name.as_str()).collect();
    guarded.sort_unstable();
    assert_eq!(guarded, ["command-when", "isolated-script", "plugin", "script"]);
}

#[test]
fn a_step_that_the_error_queue_feeds_does_not_inherit_it() {
    let text = r#"
[pipeline]
errors = "failed"
[source.in]
type = "file"
path = "in"
format = "lines"
[step.first]
from = "in"
to = "good"
[step.mend]
from = "failed"
to = "mended"
[sink.good]
type = "null"
[sink.whole]
from = "mended2"
type = "null"
[step.more]
from = "mended"
to = "mended2"
"#;
    let configuration = loaded(&Folder::of(&[("a.toml", text)]));
    let with_errors: Vec<_> = configuration
        .steps
        .iter()
        .filter(|step| step.errors.is_some())
        .map(|step| step.address.to_string())
        .collect();
    assert_eq!(with_errors, ["a/first"]);
    assert_eq!(steps(&configuration), ["a/first", "a/mend", "a/more", "a/whole"]);
}

#[test]
fn a_single_file_takes_the_settings_beside_it_and_no_other_pipeline() {
    let text = "[source.in]\ntype = \"file\"\npath = \"in\"\nformat = \"lines\"\n[step.a]\nfrom = \"in\"\n";
    let folder = Folder::of(&[
        (
            "tidegate.toml",
            "[runner]\ndata = \"x\"\nworkers = 7\n[log]\nlevel = \"debug\"\n[retry.patient]\nmax = \"1m\"\n\
             [retry.idle]\nmax = \"2m\"\n",
        ),
        ("one.toml", &format!("{text}retry = \"patient\"\n")),
        ("two.toml", "?"),
    ]);
    let (configuration, warnings) = folder.load_at("configs/one.toml").unwrap();
    assert_eq!(folder.relative(&configuration.data), "configs/x");
    assert_eq!((configuration.settings.workers, configuration.pipelines.len()), (7, 1));
    assert_eq!(configuration.log.level, "debug");
    assert_eq!(configuration.steps[0].retry_policy().map(|retry| retry.max.as_secs()), Some(60));
    assert!(warnings.is_empty(), "{warnings}");
    assert!(!configuration.data.exists());
}

#[test]
fn a_single_file_may_hold_its_settings() {
    let text = "[runner]\ndata = \"x\"\nlisten = \"127.0.0.1:8484\"\n[log]\nlevel = \"warn\"\n\
                [source.in]\ntype = \"http\"\n[step.a]\nfrom = \"in\"\n";
    let folder = Folder::of(&[("one.toml", text)]);
    let configuration = folder.load_at("configs/one.toml").unwrap().0;
    assert_eq!(folder.relative(&configuration.data), "configs/x");
    assert_eq!(configuration.settings.listen, Some("127.0.0.1:8484".parse().unwrap()));
    assert_eq!(configuration.log.level, "warn");
}

#[test]
fn data_given_by_hand_wins() {
    let folder = Folder::of(&EVERY_KEY);
    let options = LoadOptions { data: Some(PathBuf::from("by/hand")), ..options() };
    let (configuration, _) = load(&folder.configs(), &options).finish().unwrap();
    assert_eq!(configuration.data, std::path::absolute("by/hand").unwrap());
}

#[test]
fn hidden_files_and_folders_are_no_pipelines() {
    let folder = Folder::of(&EVERY_KEY);
    folder.write(".#orders.toml", b"?");
    folder.write("folder.toml/x.toml", b"?");
    assert_eq!(loaded(&folder).pipelines.len(), 4);
}

#[test]
fn a_crate_above_reports_into_scripts() {
    let folder = Folder::of(&EVERY_KEY);
    let (_, mut diagnostics) = folder.load().unwrap();
    let file = folder.configs().join("lib/price.rhai");
    let span = diagnostics.files().span_at(&file, Position { line: 1, column: 19 });
    let diagnostic = Diagnostic::error(&file, span, "unexpected `job`").label("here").note("a note");
    diagnostics.push(diagnostic.clone());
    diagnostics.push(diagnostic.related(
        SourceSpan { file: folder.configs().join("orders.toml").into(), span: 418..434 },
        "named here",
    ));
    diagnostics.push(Diagnostic::warning(&file, None, "it is all wrong"));
    diagnostics.push(Diagnostic::warning(&file, None, "it is all wrong"));
    insta::assert_snapshot!(folder.plain(&diagnostics.render(false)));
    // One mistake, although only one of the two names another place.
    assert_eq!((diagnostics.count(Severity::Error), diagnostics.count(Severity::Warning)), (1, 1));
    assert!(diagnostics.render(true).contains("\u{1b}["));
    let json = serde_json::to_string_pretty(&diagnostics.records()).unwrap();
    insta::assert_snapshot!("a_crate_above_reports_into_scripts_as_json", folder.plain(&json));
}

#[test]
fn files_of_other_editors_are_read() {
    let folder = Folder::of(&EVERY_KEY);
    let text = EVERY_KEY[1].1;
    let plain = format!("{:?}", loaded(&folder).queues);
    folder.write(EVERY_KEY[1].0, text.replace('\n', "\r\n").as_bytes());
    assert_eq!(format!("{:?}", loaded(&folder).queues), plain);
    folder.write(EVERY_KEY[1].0, format!("\u{feff}{text}").as_bytes());
    assert_eq!(format!("{:?}", loaded(&folder).queues), plain);
}

#[test]
fn a_script_of_another_editor_is_read_without_its_mark() {
    let folder = Folder::of(&[(
        "a.toml",
        "[source.in]\ntype = \"file\"\npath = \"in\"\nformat = \"ndjson\"\n[step.s]\nfrom = \"in\"\nrun = \"s.rhai\"\nto = \"out\"\n[sink.out]\ntype = \"null\"",
    )]);
    folder.write("s.rhai", "\u{feff}fn process(job) { job }\r\n".as_bytes());
    let configuration = loaded(&folder);
    let [Processor::Script(script)] = &*configuration.steps[0].processors else { panic!("a script") };
    assert_eq!(&*script.text, "fn process(job) { job }\r\n");
}

#[test]
fn requests_and_commands_are_read_with_everything_that_they_say() {
    let folder = Folder::of(&[(
        "a.toml",
        r#"
        [source.events]
        type = "file"
        path = "in.ndjson"
        format = "ndjson"
        [step.charge]
        from = "events"
        run = ["builtin:http", "builtin:exec"]
        http = { url = "https://[::1]:8443/charge/{order.id}?key=${SECRET}", method = "PATCH", headers = { Authorization = "Bearer ${SECRET}" }, body = { id = "{ctx.hash}", sum = "{sum}", tags = ["x", 1.5, true] }, timeout = "5s", max_response = "1MiB", accept = ["2xx", "404"], response = "full" }
        exec = { command = ["sh", "-c", "echo {{}}", "{order.id}"], env = { KEY = "${SECRET}" }, cwd = ".", timeout = "2s" }
        to = "hook"
        [sink.hook]
        type = "http"
        url = "http://localhost"
        [sink.other]
        from = "events"
        type = "http"
        url = "http://localhost/{id}"
        timeout = "1s"
        errors = "failed"
        "#,
    )]);
    let (configuration, warnings) = folder.load().unwrap();
    assert_eq!(warnings.render(false), "");
    let of_steps: Vec<_> = configuration.steps.iter().map(|step| (&step.processors, step.timeout)).collect();
    let kinds: Vec<_> = configuration.sinks.iter().map(|sink| &sink.kind).collect();
    let shown = folder.plain(&format!("{of_steps:#?}\n{kinds:#?}"));
    assert!(!shown.contains("hunter2"), "{shown}");
    insta::assert_snapshot!(shown);
    assert!(configuration.steps.iter().all(|step| step.has_effects(&configuration)));
    assert!(configuration.steps.iter().any(|step| step.errors.is_some()));
}

#[test]
fn a_check_looks_at_files_on_disk() {
    let source = |name: &str, path: &str| {
        format!("[source.{name}]\ntype = \"file\"\nformat = \"lines\"\npath = \"{path}\"\n")
    };
    let sink = |name: &str, path: &str| {
        format!("[sink.{name}]\nfrom = \"near\"\ntype = \"file\"\npath = \"{path}\"\n")
    };
    let text = [
        source("near", "inn.ndjson"),
        source("far", "elephant"),
        source("waits", "later.log").replace("path", "follow = true\npath"),
        source("pattern", "*.csv"),
        "[sink.all]\ntype = \"null\"\nfrom = [\"far\", \"waits\", \"pattern\"]\n".to_owned(),
        sink("folder", "lib"),
        sink("beneath", "in.ndjson/out"),
        sink("fine", "new/out"),
    ];
    let folder = Folder::of(&[("a.toml", &text.concat()), ("in.ndjson", ""), ("lib/x", "")]);
    let (configuration, mut warnings) = folder.load().unwrap();
    assert!(warnings.is_empty(), "{warnings}");
    check_disk(&configuration, &mut warnings);
    insta::assert_snapshot!(folder.plain(&warnings.render(false)));
}

#[test]
fn a_check_looks_for_pipes_and_devices_among_sources() {
    let folder = Folder::of(&[(
        "a.toml",
        "[source.in]\ntype = \"file\"\nformat = \"lines\"\npath = \"/dev/null\"\n\
         [sink.out]\ntype = \"null\"\nfrom = \"in\"\n",
    )]);
    let (configuration, mut warnings) = folder.load().unwrap();
    check_disk(&configuration, &mut warnings);
    let rendered = warnings.render(false);
    assert!(rendered.contains("warning: `/dev/null` is neither a regular file nor a folder"), "{rendered}");
    assert!(rendered.contains("tidegate queue push PIPELINE/QUEUE"), "{rendered}");
}

#[test]
fn a_policy_of_a_pipeline_wins_over_one_of_the_settings() {
    let folder = Folder::of(&[
        ("tidegate.toml", "[retry.chain]\nmax = \"1m\"\n[retry.other]\n"),
        (
            "a.toml",
            concat!(
                "[source.events]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n\n",
                "[step.price]\nfrom = \"events\"\nretry = \"chain\"\n[retry.chain]\nmax = \"2m\"\n"
            ),
        ),
        (
            "b.toml",
            "[step.b]\nfrom = \"a/events\"\nretry = \"chain\"\n[step.c]\nfrom = \"a/events\"\nretry = \"other\"\n",
        ),
        (
            "c.toml",
            "[source.events]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n\n[step.price]\nfrom = \"events\"\n",
        ),
    ]);
    let (configuration, warnings) = folder.load().unwrap_or_else(|mistakes| panic!("{mistakes}"));
    assert!(warnings.is_empty(), "{warnings}");
    let longest = |step: &str| {
        let step = configuration.steps.iter().find(|one| one.address.to_string() == step).unwrap();
        step.retry.as_ref().map(|retry| retry.max.as_secs())
    };
    assert_eq!(longest("a/price"), Some(120), "a pipeline's own name wins");
    assert_eq!(longest("b/b"), Some(60));
    assert_eq!(longest("b/c"), Some(3600));
    assert_eq!(longest("c/price"), None);
}

#[test]
fn a_recorded_configuration_is_read_without_its_files() {
    let pipeline = "[source.in]\ntype = \"file\"\npath = \"in\"\nformat = \"lines\"\n[step.work]\nfrom = \"in\"\nrun = \"lib/work.rhai\"\n";
    let files = [
        ("tidegate.toml", "[runner]\nworkers = 3\n"),
        ("p.toml", pipeline),
        ("lib/work.rhai", "import \"more\" as more;\nfn process(job) { job }\n"),
        ("lib/more.rhai", "fn more() { 1 }\n"),
    ];
    let folder = Folder::of(&files);
    let before = loaded(&folder).digest();
    // Another pipeline came, and the rest is gone or changed.
    folder.write("p.toml", b"[step.work\n");
    folder.write("q.toml", b"[step.on]\nfrom = \"p/in\"\n");
    folder.write("lib/work.rhai", b"fn process(job) { 2 }\n");
    std::fs::remove_file(folder.configs().join("lib/more.rhai")).unwrap();
    let recorded = files.map(|(path, text)| (path.to_owned(), text.to_owned()));
    for path in ["configs", "configs/p.toml"] {
        let options = LoadOptions { recorded: Some(recorded.clone().into()), ..options() };
        let (configuration, _) = load(&folder.configs().join("..").join(path), &options).finish().unwrap();
        assert_eq!(configuration.digest().steps, before.steps, "{path}");
        assert_eq!(configuration.settings.workers, 3);
    }
}
