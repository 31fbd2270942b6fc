//! Tests of plugin steps: they run inside the runner's process.

use super::{c_count, compile, errors, folder, project};
use crate::project::{Project, ids, jobs};

#[test]
fn a_plugin_takes_its_place_among_scripts() {
    let project = project(
        "run = [\"before.rhai\", \"plugin:uppercase\", \"after.rhai\"]\nconfig = { field = \"name\" }",
    )
    .file(
        "before.rhai",
        "fn process(job) { [#{ id: job.id, name: `a${job.id}` }, #{ id: job.id, name: \"b\" }] }",
    )
    .file("after.rhai", "fn process(job) { if job.name == \"B\" { () } else { job } }")
    .file("in.ndjson", jobs(1..=2));
    project.run().done();
    assert_eq!(project.read("out.ndjson"), "{\"id\":1,\"name\":\"A1\"}\n{\"id\":2,\"name\":\"A2\"}\n");
}

/// A step with the outputs `seen` and `out`.
fn fork(run: &str) -> Project {
    let project = project(&format!("run = {run}\nwhen = \"job.id % 2 == 0\""))
        .file("emit.rhai", "fn process(job) { emit(\"seen\", job.id); job }")
        .file("out.rhai", "fn process(job) { #{ out: job } }")
        .file("in.ndjson", jobs(1..=4));
    let toml = project.read("p.toml").replace("to = \"out\"", "to = { seen = \"seen\", out = \"out\" }");
    project.write("p.toml", toml + "[sink.seen]\ntype = \"file\"\npath = \"seen.ndjson\"\n");
    project
}

#[test]
fn a_filter_stands_before_a_plugin_and_a_script_before_it_emits_past_it() {
    for isolate in ["", "\nisolate = \"process\""] {
        let project = fork(&format!("[\"emit.rhai\", \"plugin:measure/pass\", \"out.rhai\"]{isolate}"));
        project.run().done();
        assert_eq!(ids(&project.read("out.ndjson")), [2, 4]);
        assert_eq!(project.read("seen.ndjson"), "2\n4\n");
    }
}

#[test]
fn a_plugin_that_does_not_say_which_of_two_outputs_it_means_is_told() {
    let project = fork("[\"plugin:measure/pass\"]");
    project.run().done();
    let why = "output: plugin `measure/pass`: the step has several outputs (out, seen); name one";
    assert_eq!(errors(&project), [why; 2]);
}

#[test]
fn every_way_to_end_an_attempt_is_told() {
    let acts = ["fail", "reject", "retry", "retry_in", "panic", "garble", "pretty", "pass"];
    let lines = acts.map(|act| format!("{{\"do\":\"{act}\"}}\n")).concat();
    let project = project("run = \"plugin:flaky\"").file("in.ndjson", lines + "{\"half\n");
    project.run().done();
    insta::assert_snapshot!(errors(&project).join("\n"));
    insta::assert_snapshot!(project.read("out.ndjson").replace(" \n", "\n"), @r#"
    {   "id": 1,    "text": "a\nb" }
    {"do":"pass"}
    "#);
}

#[test]
fn a_plugin_asks_for_another_attempt_and_gets_it() {
    let project = project("run = \"plugin:flaky\"").file("in.ndjson", "{\"do\":\"retry\"}\n{\"id\":2}\n");
    let toml = project.read("p.toml");
    let often = "backoff = \"list\", delays = [\"1ms\"], max_attempts = 3";
    project.write("p.toml", toml.replace("max_attempts = 1", often));
    project.run().done();
    assert_eq!(errors(&project), ["retry: plugin `flaky`: busy (all 3 attempts failed)"]);
    assert_eq!(ids(&project.read("out.ndjson")), [2]);
}

#[test]
fn a_plugin_that_finds_a_gate_closed_or_hands_a_job_outside_fails_nothing() {
    for (act, standing) in [("gate_closed", "delayed"), ("pending", "pending")] {
        let project = project("run = \"plugin:flaky\"").file("in.ndjson", format!("{{\"do\":\"{act}\"}}\n"));
        project.tidegate(&["run", ".", "--until-idle"]).done();
        assert_eq!(errors(&project), [""; 0]);
        let listed = project.tidegate(&["store", "export", "-", "."]).done().stdout;
        let row = listed.lines().find(|line| line.contains("{\"delayed\"")).expect("it is in the store");
        assert!(standing == "delayed" || row.contains(standing), "{row}");
    }
}

#[test]
fn the_outputs_of_a_plugin_and_of_scripts_before_it_are_delivered_when_the_job_becomes_pending() {
    for isolate in ["", "\nisolate = \"process\""] {
        let project = fork(&format!("[\"emit.rhai\", \"plugin:flaky\", \"out.rhai\"]{isolate}"))
            .file("in.ndjson", "{\"do\":\"reject\",\"id\":2}\n{\"do\":\"push_pending\",\"id\":4}\n");
        project.tidegate(&["run", ".", "--until-idle"]).done();
        assert_eq!(ids(&project.read("out.ndjson")), [4]);
        assert_eq!(project.read("seen.ndjson"), "4\n");
        assert_eq!(errors(&project), ["rejected: plugin `flaky`: rejected, as asked"]);
        assert_eq!(project.status("p/work", "p/in")["pending"], 1);
    }
}

#[test]
fn a_handle_that_is_too_long_is_told_and_no_job_is_lost() {
    for isolate in ["", "\nisolate = \"process\""] {
        let project = project(&format!("run = \"plugin:flaky\"{isolate}"))
            .file("in.ndjson", "{\"do\":\"pending\",\"mib\":10}\n{\"id\":2}\n");
        project.run().done();
        let why = "limit: plugin `flaky`: the handle of the pending job has 10.0 MiB, which exceeds 64.0 KiB";
        assert_eq!(errors(&project), [why]);
        assert_eq!(ids(&project.read("out.ndjson")), [2]);
    }
}

#[test]
fn a_panic_has_its_place_in_the_plugin() {
    let project = project("run = \"plugin:flaky\"").file("in.ndjson", "{\"do\":\"panic\"}\n{\"id\":2}\n");
    let outcome = project.run().done();
    assert!(!outcome.stderr.contains("thread"), "{}", outcome.stderr);
    let shown = project.tidegate(&["errors", "show", "p/failed/1", "."]).done().stdout;
    assert!(shown.contains("plugins/flaky/src/lib.rs:"), "{shown}");
    assert_eq!(ids(&project.read("out.ndjson")), [2]);
}

#[test]
fn an_attempt_that_comes_back_late_has_failed() {
    let project = project("run = \"plugin:flaky\"")
        .file("in.ndjson", "{\"id\":1,\"do\":\"wait\",\"ms\":3000}\n{\"id\":2}\n{\"do\":\"obey\"}\n");
    let toml = project.read("p.toml").replace("\"10s\"", "\"2s\"");
    project.write("p.toml", toml);
    project.run().done();
    assert_eq!(ids(&project.read("out.ndjson")), [2]);
    let told = errors(&project);
    assert_eq!(
        told[0],
        "timeout: plugin `flaky`: it returned after the `timeout` of 2s, so its outputs do not count"
    );
    // An attempt that obeys is treated the same.
    assert_eq!(told[1], "timeout: plugin `flaky`: stopped on request");
}

#[test]
fn a_step_that_cannot_be_set_up_halts_and_says_why() {
    for (config, why) in [
        ("fail_in_create = true", "plugin `flaky` while it was set up: not created, as asked"),
        ("panic_in_create = true", "plugin `flaky` panicked while it was set up: create, as asked"),
    ] {
        let project = project(&format!("run = \"plugin:flaky\"\nconfig = {{ {config} }}"))
            .file("in.ndjson", jobs(1..=1));
        project.run().failed(1).says(why);
    }
}

#[test]
fn a_panic_in_drop_and_a_thread_that_stays_are_told_and_do_no_harm() {
    let project =
        project("run = \"plugin:flaky\"\nconfig = { panic_in_drop = true }").file("in.ndjson", jobs(1..=3));
    project.run().done().says("the plugin did not end as it should: drop, as asked");
    assert_eq!(ids(&project.read("out.ndjson")), [1, 2, 3]);
    let toml = project.read("p.toml").replace("panic_in_drop = true", "leave_thread_ms = 5000");
    project.write("p.toml", toml);
    project.append("in.ndjson", jobs(4..=4));
    project.run().done().says("perhaps a thread, still uses it");
}

#[test]
fn a_job_of_a_plugin_with_effects_is_on_record_before_the_attempt_and_of_one_without_is_not() {
    let effects = project("run = \"plugin:flaky\"").file("in.ndjson", jobs(1..=2) + "{\"do\":\"abort\"}\n");
    assert_eq!(effects.run().code, None);
    assert_eq!(effects.begun("p/work"), 1);
    let listed = effects.tidegate(&["store", "export", "-", "."]).done().stdout;
    assert!(listed.lines().any(|line| line.contains("\"started\"") && line.contains("p/work")), "{listed}");

    let none = Project::pipeline("[step.work]\nfrom = \"in\"\nrun = \"plugin:c-count\"\nto = \"out\"\n")
        .file("in.ndjson", jobs(1..=2));
    let source = c_count().replace("counter->seen++;", "if (++counter->seen == 2) abort();");
    compile(&source, &none.path().join("libc_count.so"), &[]);
    assert_eq!(none.tidegate(&["run", ".", "--plugins", "."]).code, None);
    assert_eq!(none.begun("p/work"), 0);
}

#[test]
fn all_processors_of_a_step_share_its_timeout() {
    let wait = "{\"id\":1,\"do\":\"wait\",\"ms\":1200}\n{\"id\":2}\n";
    for run in ["[\"plugin:flaky\", \"plugin:flaky\"]", "[\"twice.rhai\", \"plugin:flaky\"]"] {
        for isolate in ["none", "process"] {
            let project = project(&format!("run = {run}\nisolate = \"{isolate}\""))
                .file("twice.rhai", "fn process(job) { [job, job] }")
                .file("in.ndjson", wait);
            let toml = project.read("p.toml").replace("\"10s\"", "\"2s\"");
            project.write("p.toml", toml);
            project.run().done();
            assert!(ids(&project.read("out.ndjson")).iter().all(|id| *id == 2), "{run} {isolate}");
            let told = errors(&project);
            assert!(told.len() == 1 && told[0].starts_with("timeout: "), "{run} {isolate} {told:?}");
            assert!(told[0].contains("`timeout` of 2s"), "{run} {isolate} {told:?}");
        }
    }
}

#[test]
fn a_name_that_comes_from_outside_is_shown_nowhere() {
    let project = project("run = \"plugin:${file:NAME}\"").file("in.ndjson", "{\"do\":\"fail\"}\n");
    let name = project.path().join("name");
    let toml = project.read("p.toml").replace("NAME", &name.display().to_string());
    project.write("p.toml", toml);
    project.write("name", "flakky");
    let told = project.tidegate(&["check", "."]).failed(78).says("plugin `…` is unknown");
    assert!(!told.stderr.contains("flak"), "{}", told.stderr);
    project.write("name", "flaky");
    let told = project.run().done();
    assert!(!told.stderr.contains("flaky"), "{}", told.stderr);
    assert_eq!(errors(&project), ["failed: plugin `…`: failed, as asked"]);
}

#[test]
fn the_folder_of_the_configuration_comes_before_that_of_the_command() {
    let project = Project::pipeline("[step.count]\nfrom = \"in\"\nrun = \"plugin:c-count\"\nto = \"out\"\n")
        .file("tidegate.toml", "[runner]\nplugins = \"mine\"\n")
        .file("mine/readme", "")
        .file("other/readme", "")
        .file("in.ndjson", jobs(1..=1));
    compile(&c_count(), &project.path().join("other/libc_count.so"), &["-DVERSION=\"other\""]);
    project.tidegate(&["run", ".", "--plugins", "other"]).done();
    compile(&c_count(), &project.path().join("mine/libc_count.so"), &["-DVERSION=\"mine\""]);
    project.append("in.ndjson", jobs(2..=2));
    project.tidegate(&["run", ".", "--plugins", "other"]).done();
    let lines = project.read("out.ndjson");
    let by: Vec<bool> = lines.lines().map(|line| line.contains("\"by\":\"mine\"")).collect();
    assert_eq!(by, [false, true], "{lines}");
}

#[test]
fn the_plugin_in_c_runs() {
    let project = Project::pipeline("[pipeline]\nerrors = \"failed\"\n[step.count]\nfrom = \"in\"\nrun = \"plugin:c-count\"\nto = \"out\"\n")
        .file("in.ndjson", "{\"id\":12}\n{}\n{\"id\":345}\n");
    compile(&c_count(), &project.path().join("libc_count.so"), &["-pedantic"]);
    project.tidegate(&["run", ".", "--plugins", "."]).done();
    assert_eq!(
        project.read("out.ndjson"),
        "{\"bytes\":9,\"digits\":2,\"seen\":1,\"by\":\"1.0.0\"}\n{\"bytes\":10,\"digits\":3,\"seen\":2,\"by\":\"1.0.0\"}\n"
    );
    let listed = project.tidegate(&["errors", "list", "."]).done().stdout;
    assert!(listed.contains("plugin `c-count`: the job has no digit"), "{listed}");
}

#[test]
fn the_demonstration_names_cities() {
    let config = super::root().join("configs/geo");
    let toml = std::fs::read_to_string(config.join("quakes.toml")).expect("the demonstration is there");
    let toml = toml
        .replace("../quickstart/data", &super::root().join("configs/quickstart/data").display().to_string());
    let project = Project::new().file("quakes.toml", toml);
    let plugins = folder().display().to_string();
    project.tidegate(&["run", ".", "--plugins", &plugins]).done();
    let out = project.read("out/near.ndjson");
    assert_eq!(out.lines().count(), 1707);
    let first: serde_json::Value =
        serde_json::from_str(out.lines().next().expect("there is one")).expect("it is JSON");
    assert_eq!(first["near"]["zone"], "America/Vancouver");
}

#[test]
fn each_piece_of_a_job_is_known_by_itself_wherever_it_runs() {
    let script = "fn process(job, ctx) { [1, 2, 3].map(|n| #{ \"do\": \"identify\", n: n, of: ctx.hash }) }";
    let told = |run: &str| {
        let project = project(&format!("run = {run}"))
            .file("split.rhai", script)
            .file("again.rhai", "fn process(job) { #{ first: job, \"do\": \"identify\" } }")
            .file("same.rhai", "fn process(job, ctx) { job.job_hash = ctx.hash; job }")
            .file("in.ndjson", jobs(1..=2));
        project.run().done();
        project.read("out.ndjson")
    };
    let alone = told("[\"split.rhai\", \"plugin:flaky/calm\", \"same.rhai\"]\nisolate = \"none\"");
    let apart = told("[\"split.rhai\", \"plugin:flaky/calm\", \"same.rhai\"]\nisolate = \"process\"");
    let without_tokens = |lines: &str| -> Vec<serde_json::Value> {
        let read = |line| {
            let mut known: serde_json::Value = serde_json::from_str(line).expect("it is JSON");
            known["token"].take();
            known
        };
        lines.lines().map(read).collect()
    };
    assert_eq!(without_tokens(&alone), without_tokens(&apart));
    let all = without_tokens(&alone);
    let places: Vec<_> = all.iter().map(|known| (known["index"].as_u64(), known["piece"].as_u64())).collect();
    let expected = [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)];
    assert_eq!(places, expected.map(|(index, piece)| (Some(index), Some(piece))));
    let distinct = |of: &str, lines: &str| {
        let values = lines.lines().map(|line| {
            let known: serde_json::Value = serde_json::from_str(line).expect("it is JSON");
            known[of].as_str().expect("a text").to_owned()
        });
        values.collect::<std::collections::BTreeSet<_>>().len()
    };
    assert_eq!((distinct("hash", &alone), distinct("token", &alone), distinct("token", &apart)), (6, 6, 6));
    // The first one has the hash of its job, as before pieces existed.
    for known in all.iter().filter(|known| known["piece"] == 0) {
        assert_eq!(known["hash"], known["job_hash"]);
    }
    // A second use of the same plugin is not a repetition.
    let twice = "[\"split.rhai\", \"plugin:flaky/calm\", \"again.rhai\", \"plugin:flaky/calm\"]";
    let [alone, apart] =
        ["none", "process"].map(|isolate| told(&format!("{twice}\nisolate = \"{isolate}\"")));
    assert_eq!(distinct("hash", &alone), 6);
    assert_eq!(without_tokens(&alone), without_tokens(&apart));
    let first = without_tokens(&told("[\"split.rhai\", \"plugin:flaky/calm\"]\nisolate = \"none\""));
    let second = without_tokens(&alone);
    assert!(
        second.iter().all(|known| first.iter().all(|other| known["hash"] != other["hash"])),
        "{second:?}"
    );
}

#[test]
fn a_retry_policy_knows_what_a_plugin_says_of_its_failure() {
    let causes = ["connection", "http 503", "http 404", "timeout", "exit 3", "nothing"];
    let lines = causes.map(|cause| format!("{{\"do\":\"because\",\"cause\":\"{cause}\"}}\n")).concat();
    for isolate in ["none", "process"] {
        let project = project(&format!("run = \"plugin:flaky\"\nisolate = \"{isolate}\""))
            .file("in.ndjson", lines.clone() + "{\"do\":7}\n");
        let policy = "backoff = \"list\", delays = [\"1ms\"], max_attempts = 2, on = [\"connection\", \"http 5xx\", \"timeout\"]";
        project.change("p.toml", "max_attempts = 1", policy);
        project.run().done();
        let mut told = errors(&project);
        told.sort();
        let failed = |word: &str, often: &str| format!("{word}: plugin `flaky`: failed, as asked{often}");
        let twice = " (all 2 attempts failed)";
        assert_eq!(
            told[..6],
            [
                failed("connection", twice),
                failed("exit 3", ""),
                failed("failed", ""),
                failed("http 404", ""),
                failed("http 503", twice),
                // The job is invalid, and no retry can change that.
                told[5].clone(),
            ],
            "{isolate}"
        );
        assert!(
            told[5].starts_with("payload: plugin `flaky`: the job does not match its type: "),
            "{told:?}"
        );
        assert_eq!(told[6..], [failed("timeout", twice)], "{isolate}");
    }
}

#[test]
fn a_malformed_job_is_not_tried_again_by_the_policy_of_effects() {
    let project = Project::pipeline(
        "[pipeline]\nerrors = \"failed\"\n[step.work]\nfrom = \"in\"\nrun = \"plugin:flaky\"\nto = \"out\"\n",
    )
    .file("in.ndjson", "{\"do\":7}\n");
    project.tidegate(&["run", ".", "--plugins", &folder().display().to_string()]).done();
    let told = errors(&project);
    assert!(told.len() == 1 && told[0].starts_with("payload: "), "{told:?}");
}

#[test]
fn outputs_past_the_limit_of_memory_are_refused_in_the_process_too() {
    let project = project("run = \"plugin:flaky\"\nlimits = { memory = \"1MiB\" }")
        .file("in.ndjson", "{\"do\":\"flood\",\"mib\":64}\n{\"id\":2}\n");
    project.run().done();
    let why = "limit: plugin `flaky`: the outputs of the job together exceed `limits.memory` of 1.0 MiB";
    assert_eq!(errors(&project), [why]);
    assert_eq!(ids(&project.read("out.ndjson")), [2]);
}

#[test]
fn a_plugin_in_c_without_an_output_may_push_all_the_same() {
    let project = Project::pipeline(
        "[pipeline]\nerrors = \"failed\"\n[step.count]\nfrom = \"in\"\nrun = \"plugin:c-count\"\n",
    )
    .file("in.ndjson", "{\"id\":12}\n");
    compile(&c_count(), &project.path().join("libc_count.so"), &["-fvisibility=hidden"]);
    project.tidegate(&["run", ".", "--plugins", "."]).done().says("1 job");
    assert_eq!(project.tidegate(&["errors", "list", "."]).done().stdout.matches("c-count").count(), 0);
}

#[test]
fn a_plugin_gets_the_shared_values_that_its_schema_knows() {
    let project = project("run = \"plugin:uppercase\"").file("in.ndjson", "{\"id\":1,\"name\":\"a\"}\n");
    project.change("p.toml", "[pipeline]", "[pipeline]\nconfig = { field = \"name\", unknown = 1 }");
    project.run().done();
    assert_eq!(project.read("out.ndjson"), "{\"id\":1,\"name\":\"A\"}\n");
    project.change("p.toml", "field = \"name\"", "field = 7");
    let refused = project.tidegate(&["check", "."]).failed(78);
    refused.says("`config.field` must be a text").says("config = { field = 7, unknown = 1 }");
}
