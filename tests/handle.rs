//! Tests of `errors retry` and `errors drop`: each error is handled once.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::project::{Project, ids, jobs};
use crate::random::Random;

const PIPELINE: &str = "[pipeline]\nerrors = \"failed\"\n\
                        [source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\nfollow = true\n\
                        [step.sort]\nfrom = \"in\"\nrun = \"sort.rhai\"\nto = \"sorted\"\n\
                        [sink.out]\nfrom = \"sorted\"\ntype = \"file\"\npath = \"out.ndjson\"\n";
const BROKEN: &str =
    "fn process(job) { if job.id == 2 { reject(\"two\") } if job.id % 2 == 0 { throw \"even\" } job }";
const MENDED: &str = "fn process(job) { job }";

/// A run that has left errors of the even jobs, whose script was fixed since.
fn project(count: u64) -> Project {
    let project =
        Project::new().file("p.toml", PIPELINE).file("sort.rhai", BROKEN).file("in.ndjson", jobs(1..=count));
    project.tidegate(&["run", ".", "--until-idle"]).done();
    project.write("sort.rhai", MENDED);
    project
}

fn errors(project: &Project, arguments: &[&str]) -> Vec<Value> {
    let arguments = [&["errors", "list", "--format", "json"], arguments].concat();
    serde_json::from_str(&project.tidegate(&arguments).done().stdout).expect("it is JSON")
}

#[test]
fn a_retry_runs_the_job_once_through_the_mended_step() {
    let project = project(9);
    let retried = project.tidegate(&["errors", "retry", "p/failed/2", "--yes"]).done();
    assert_eq!(retried.stdout, "1 error retried: the jobs run again with the next `tidegate run`\n");
    // It waits for its turn, without a due time. The number of further jobs in the source is unknown.
    let status = project.status("p/sort", "p/in");
    assert_eq!((&status["read"], &status["delayed"]), (&1.into(), &0.into()), "{status}");
    project.tidegate(&["run", ".", "--until-idle"]).done();
    assert_eq!(ids(&project.read("out.ndjson")), [1, 3, 5, 7, 9, 4]);
    let again = project.tidegate(&["errors", "retry", "p/failed/2", "--yes"]).failed(1);
    assert!(again.stderr.contains("p/failed/2 is already retried or dropped"), "{}", again.stderr);
    project.tidegate(&["run", ".", "--until-idle"]).done();
    assert_eq!(ids(&project.read("out.ndjson")).len(), 6);
    let left: Vec<u64> = errors(&project, &[]).iter().filter_map(|error| error["index"].as_u64()).collect();
    assert_eq!(left, [1, 3, 4]);
    let all = errors(&project, &["--all"]);
    let handled: Vec<bool> = all.iter().map(|error| error["handled"] == true).collect();
    assert_eq!(handled, [false, true, false, false]);
    let shown = project.tidegate(&["errors", "show", "p/failed/2"]).done().stdout;
    assert!(shown.contains("it was retried or dropped"), "{shown}");
}

#[test]
fn a_running_runner_takes_a_retry_and_delivers_at_once() {
    let project = project(9);
    let mut running = project.started();
    let retried = project.tidegate(&["errors", "retry", "p/failed", "--yes"]).done();
    assert_eq!(retried.stdout, "4 errors retried: the jobs run again now\n");
    running.wait_until("the output", || ids(&project.read("out.ndjson")) == [1, 3, 5, 7, 9, 2, 4, 6, 8]);
    let none = project.tidegate(&["errors", "retry", "p/failed", "--yes"]).done();
    assert_eq!(none.stdout, "no open errors\n");
    assert!(errors(&project, &[]).is_empty());
    running.stop().done();
    assert_eq!(ids(&project.read("out.ndjson")).len(), 9);
}

#[test]
fn errors_are_chosen_by_range_kind_step_and_expression() {
    let project = project(20);
    let drop = |arguments: &[&str]| {
        let arguments = [&["errors", "drop", "--yes", "--format", "json"], arguments].concat();
        let done: Value =
            serde_json::from_str(&project.tidegate(&arguments).done().stdout).expect("it is JSON");
        done["errors"].as_u64().expect("a count")
    };
    assert_eq!(drop(&["--kind", "rejected"]), 1);
    assert_eq!(drop(&["p/failed/1-3", "p/failed/3"]), 2);
    assert_eq!(drop(&["--where", "error.job.id >= 18"]), 2);
    assert_eq!(drop(&["p/failed", "--step", "p/sort", "--where", "error.index == 8"]), 1);
    assert_eq!(drop(&["p/failed/8-", "--step", "sort"]), 1);
    let left: Vec<u64> = errors(&project, &[]).iter().filter_map(|error| error["index"].as_u64()).collect();
    assert_eq!(left, [5, 6, 7]);
    assert_eq!(drop(&["p/failed"]), 3);
    project.tidegate(&["run", ".", "--until-idle"]).done();
    assert_eq!(ids(&project.read("out.ndjson")), (1..=20).step_by(2).collect::<Vec<_>>());
}

#[test]
fn nothing_is_dealt_with_unless_it_is_said_what_and_somebody_agrees() {
    let project = project(9);
    for (arguments, code, answer) in [
        (&["errors", "retry", "--yes"][..], 64, "name the errors: "),
        (
            &["errors", "retry", "p/failed"],
            64,
            "4 errors of p/failed will run again. Without a terminal this needs",
        ),
        (&["errors", "drop", "p/failed/1"], 64, "1 error will be removed from p/failed"),
        (&["errors", "drop", "nonsense", "--yes"], 64, "does not name errors"),
        (&["errors", "drop", "p/failed", "--where", "error.", "--yes"], 64, "does not compile"),
        (
            &["errors", "drop", "--step", "p/srt", "--yes"],
            1,
            "step `p/srt` is unknown and has no errors; did you mean `p/sort`?",
        ),
        (&["errors", "drop", "p/failed/3-1", "--yes"], 64, "the range is reversed; write `p/failed/1-3`"),
        (&["errors", "retry", "p/failed/0", "--yes"], 64, "the first is `p/failed/1`"),
        (&["errors", "drop", "p/failed/7", "--yes"], 1, "queue `p/failed` has no job 7"),
        (&["errors", "drop", "p/sorted", "--yes"], 1, "`p/sorted` is not an error queue"),
        (&["errors", "retry", "p/faild", "--yes"], 1, "did you mean `p/failed`?"),
    ] {
        let said = project.tidegate(arguments).failed(code).stderr;
        let answer = answer.replace(
            "1 error will be removed from p/failed",
            "1 error will be removed from p/failed for good",
        );
        assert!(said.contains(&answer), "{arguments:?}: {said}");
    }
    assert_eq!(errors(&project, &[]).len(), 4);
}

#[test]
fn the_tuple_of_a_join_is_retried_as_it_was_with_what_its_author_said() {
    let project = Project::new()
        .file(
            "p.toml",
            "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n\
             [source.other]\ntype = \"file\"\npath = \"other.ndjson\"\nformat = \"ndjson\"\n\
             [queue.left]\nmeta = [\"index\"]\n[step.give]\nfrom = \"in\"\nto = \"left\"\n\
             [step.pair]\njoin = { a = \"left\", b = \"other\" }\nrun = \"pair.rhai\"\nto = \"out\"\nerrors = \"failed\"\n\
             [sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\n",
        )
        .file("pair.rhai", "fn process(job) { reject(\"no\", #{ sum: job.a.id + job.b.id }) }")
        .file("in.ndjson", jobs(1..=2))
        .file("other.ndjson", jobs(11..=12));
    project.run().done();
    let shown = project.tidegate(&["errors", "show", "p/failed/2"]).done().stdout;
    insta::assert_snapshot!(project.stable(&shown));
    project.write(
        "pair.rhai",
        "fn process(job, ctx) { #{ id: job.a.id * 100 + job.b.id, attempt: ctx.attempt } }",
    );
    project.tidegate(&["errors", "retry", "--where", "error.context.sum == 14", "--yes"]).done();
    project.run().done();
    assert_eq!(project.read("out.ndjson"), "{\"attempt\":2,\"id\":212}\n");
}

#[test]
fn what_cannot_be_retried_is_told_and_the_others_are() {
    let project = project(9);
    // The step has another name now, starts from the beginning, and has its errors on the same queue.
    project.write("p.toml", PIPELINE.replace("[step.sort]", "[step.other]"));
    project.write("sort.rhai", BROKEN);
    project.tidegate(&["run", ".", "--until-idle"]).done();
    let refused = project.tidegate(&["errors", "retry", "p/failed", "--yes"]).failed(1);
    assert_eq!(
        refused.stderr.matches("its step `p/sort` is not in the configuration").count(),
        4,
        "{}",
        refused.stderr
    );
    assert!(refused.stdout.starts_with("4 errors retried"), "{}", refused.stdout);
    assert_eq!(errors(&project, &[]).len(), 4);
}

#[test]
fn a_kill_between_retry_and_delivery_loses_and_repeats_nothing() {
    const JOBS: u64 = 4000;
    let project = project(JOBS);
    let retried = project.tidegate(&["errors", "retry", "p/failed", "--yes"]).done();
    assert!(retried.stdout.starts_with("2,000 errors retried"), "{}", retried.stdout);
    let mut random = Random::new(Random::seed());
    for _ in 0..20 {
        let running = project.start(&["run", "."]);
        let (started, moment) = (Instant::now(), Duration::from_micros(random.below(20_000)));
        while started.elapsed() < moment {
            std::thread::yield_now();
        }
        running.kill();
    }
    project.tidegate(&["run", ".", "--until-idle"]).done();
    let delivered = ids(&project.read("out.ndjson"));
    let expected: Vec<u64> = (1..=JOBS).step_by(2).chain((2..=JOBS).step_by(2)).collect();
    assert_eq!(delivered, expected);
}

#[test]
fn a_list_of_errors_says_how_many_more_there_are() {
    let project = project(50);
    let listed = project.tidegate(&["errors", "list"]).done().stdout;
    assert_eq!(listed.lines().count(), 22, "{listed}");
    assert!(listed.ends_with("\nthe newest 20 of 25: `--limit 25` shows all\n"), "{listed}");
    let all = project.tidegate(&["errors", "list", "--limit", "25"]).done().stdout;
    assert!(all.lines().count() == 26 && !all.contains("newest"), "{all}");
    let json = project.tidegate(&["errors", "list", "--format", "json", "--limit", "3"]).done();
    assert_eq!(json.stderr, "warning: the newest 3 of 25: `--limit 25` shows all\n");
    // Handled errors are counted only if they are shown.
    project.tidegate(&["errors", "drop", "p/failed/1", "--yes"]).done();
    let listed = project.tidegate(&["errors", "list"]).done().stdout;
    assert!(listed.ends_with("\nthe newest 20 of 24: `--limit 24` shows all\n"), "{listed}");
}

#[test]
fn a_runner_that_has_read_another_script_runs_no_retry_until_it_has_reloaded() {
    let project = Project::pipeline(
        "follow = true\n[pipeline]\nerrors = \"failed\"\n\
         [step.sort]\nfrom = \"in\"\nrun = \"sort.rhai\"\nto = \"out\"\n",
    )
    .file("sort.rhai", "import \"rule\" as rule;\nfn process(job) { rule::check(job) }")
    .file("rule.rhai", "fn check(job) { throw \"no\" }")
    .file("in.ndjson", jobs(1..=2));
    let mut running = project.start(&["run", ".", "--no-watch"]);
    running.wait_until("its socket", || project.is_answered());
    running.wait_until("the errors", || project.queue("p/failed").len() == 2);
    let retry = || project.tidegate(&["errors", "retry", "p/failed/1", "--yes"]);
    // Unchanged content, though it was written again.
    project.write("sort.rhai", project.read("sort.rhai"));
    retry().done();
    running.wait_until("the error to come again", || project.queue("p/failed").len() == 3);
    project.write("rule.rhai", "fn check(job) { job }");
    let refused = project.tidegate(&["errors", "retry", "p/failed", "--yes"]).failed(1);
    refused.says("error: `rule.rhai` has changed since the runner read the configuration: run `tidegate reload` first\n");
    project.write("p.toml", project.read("p.toml") + "\n");
    let both = "error: `p.toml` and `rule.rhai` have changed since the runner read the configuration: run `tidegate \
                reload` first\n";
    project.tidegate(&["errors", "retry", "--step", "sort", "--yes"]).failed(1).says(both);
    project.tidegate(&["errors", "drop", "p/failed/2", "--yes"]).done();
    // The first two were handled, and need not be kept.
    assert_eq!(project.queue("p/failed").len(), 1);
    running.stop().done();
    let mut running = project.started();
    project.tidegate(&["errors", "retry", "p/failed", "--yes"]).done();
    running.wait_until("the output", || project.ids_so_far("out.ndjson") == [1]);
    running.stop().done();
}

#[test]
fn a_job_with_a_bad_payload_is_put_back_with_a_good_one() {
    let project = project(4);
    let replace = |error: &str, payload: &str| {
        project.tidegate_given(&["errors", "retry", error, "--payload", "-", "--yes"], payload)
    };
    replace("p/failed/1", "{\"id\": 2").failed(1).says("error: standard input is not JSON: ");
    replace("p/failed", "{}")
        .failed(64)
        .says("`--payload` applies to one error only: name it as PIPELINE/QUEUE/INDEX");
    project.write("fixed.json", "{\n  \"id\": 5,\n  \"note\": \"as it should be\"\n}\n");
    let replaced =
        project.tidegate(&["errors", "retry", "p/failed/1", "--payload", "fixed.json", "--yes"]).done();
    assert_eq!(replaced.stdout, "1 error retried: the jobs run again with the next `tidegate run`\n");
    project.tidegate(&["run", ".", "--until-idle"]).done();
    assert!(project.read("out.ndjson").ends_with("{\"id\":5,\"note\":\"as it should be\"}\n"));
    assert_eq!(ids(&project.read("out.ndjson")), [1, 3, 5]);
    replace("p/failed/1", "{}").failed(1).says("p/failed/1 is already retried or dropped");
    project.assert_sound();
}

#[test]
fn a_line_of_which_only_the_beginning_is_kept_does_not_run_as_if_it_were_the_job() {
    let long = format!("{{\"id\":2,\"text\":\"{}\"}}\n", "x".repeat(3000));
    let project = Project::new()
        .file("p.toml", PIPELINE.replace("follow = true", "max_line = \"2KiB\""))
        .file("sort.rhai", MENDED)
        .file("in.ndjson", [&*jobs([1]), &long, "{\"id\":3,\n", &jobs([4])].concat());
    project.tidegate(&["run", ".", "--until-idle"]).done();
    let cannot = "p/failed/1 cannot be retried: its job is not JSON, so it would fail again; `--payload FILE` gives it \
                  another one\n";
    project.tidegate(&["errors", "retry", "p/failed", "--yes"]).failed(1).says(cannot);
    assert_eq!(errors(&project, &[]).len(), 2);
    project
        .tidegate_given(&["errors", "retry", "p/failed/1", "--payload", "-", "--yes"], "{\"id\":2}")
        .done();
    project.tidegate(&["run", ".", "--until-idle"]).done();
    assert_eq!(ids(&project.read("out.ndjson")), [1, 4, 2]);
    project.assert_sound();
}

#[test]
fn a_kind_that_no_error_has_is_named_beside_those_that_there_are() {
    let project = project(4);
    let drop = |kind: &str| project.tidegate(&["errors", "drop", "--kind", kind, "--yes"]).done().stdout;
    assert_eq!(
        drop("TYPO"),
        "no open errors of the kind `TYPO`: the open ones are `failed` and `rejected`\n"
    );
    let both =
        project.tidegate(&["errors", "drop", "--kind", "failed", "--where", "error.index > 9", "--yes"]);
    assert_eq!(both.done().stdout, "no open errors match\n");
    let filter = ["errors", "drop", "--where", "error.index > 1000", "--yes"];
    assert_eq!(project.tidegate(&filter).done().stdout, "no open errors match\n");
    assert_eq!(drop("rejected"), "1 error dropped\n");
    assert_eq!(drop("failed"), "1 error dropped\n");
    assert_eq!(drop("failed"), "no open errors\n");
}

#[test]
fn a_job_that_is_null_is_put_back_like_any_other() {
    let project = Project::new()
        .file("p.toml", PIPELINE)
        .file("sort.rhai", "fn process(job) { if job == () { throw \"null\" } job }")
        .file("in.ndjson", "null\nnull\n");
    project.tidegate(&["run", ".", "--until-idle"]).done();
    let shown = project.tidegate(&["errors", "show", "p/failed/1"]).done().stdout;
    assert!(shown.ends_with("\n\nnull\n"), "{shown}");
    let shown = project.tidegate(&["job", "show", "p/in/1", "--format", "json"]).done().stdout;
    assert!(shown.contains("\"payload\": null"), "{shown}");
    project.write("sort.rhai", MENDED);
    project.tidegate(&["errors", "retry", "p/failed/1", "--yes"]).done();
    project
        .tidegate_given(&["errors", "retry", "p/failed/2", "--payload", "-", "--yes"], "{\"id\":1}")
        .done();
    project.tidegate(&["run", ".", "--until-idle"]).done();
    // The script returns the first one, which is no output.
    assert_eq!(project.read("out.ndjson"), "{\"id\":1}\n");
    assert!(errors(&project, &[]).is_empty());
}

#[test]
fn an_output_that_was_due_later_and_lost_its_place_is_delivered_by_a_retry_that_runs_nothing() {
    let to = "to = { now = \"now\", later = \"later\" }";
    let project = Project::new()
        .file(
            "p.toml",
            format!(
                "[pipeline]\nerrors = \"failed\"\n[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\n\
                 format = \"ndjson\"\nfollow = true\n[step.a]\nfrom = \"in\"\nrun = \"a.rhai\"\n{to}\n\
                 [sink.now]\ntype = \"file\"\npath = \"now.ndjson\"\n\
                 [sink.later]\ntype = \"file\"\npath = \"later.ndjson\"\n"
            ),
        )
        .file(
            "a.rhai",
            "fn process(job) { emit_in(\"later\", #{ id: job.id, late: true }, \"1h\"); #{ now: job } }",
        )
        .file("in.ndjson", jobs(1..=2));
    let mut running = project.start(&["run", ".", "--no-watch"]);
    running.wait_until("the jobs", || project.ids_so_far("now.ndjson") == [1, 2]);
    project.change("p.toml", to, "to = { now = \"now\" }");
    project.tidegate(&["reload"]).done();
    project.tidegate(&["delayed", "now", "p/a", "--yes"]).done();
    running.wait_until("the errors", || errors(&project, &[]).len() == 2);
    project.change("p.toml", "to = { now = \"now\" }", to);
    project.tidegate(&["reload"]).done();
    project.tidegate(&["errors", "retry", "p/failed", "--yes"]).done();
    running.wait_until("the outputs", || project.ids_so_far("later.ndjson").len() == 2);
    running.stop().done();
    assert_eq!(ids(&project.read("now.ndjson")), [1, 2]);
    let mut later: Vec<&str> = Vec::new();
    let text = project.read("later.ndjson");
    later.extend(text.lines());
    later.sort_unstable();
    assert_eq!(later, ["{\"id\":1,\"late\":true}", "{\"id\":2,\"late\":true}"]);
    project.assert_sound();
}

#[test]
fn a_result_that_lost_an_output_before_its_delivery_is_delivered_by_a_retry_that_runs_nothing() {
    let to = "to = { x = \"x\", y = \"y\" }";
    let project = Project::new()
        .file(
            "p.toml",
            format!(
                "[pipeline]\nerrors = \"failed\"\n[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\n\
                 format = \"ndjson\"\nfollow = true\n[step.a]\nfrom = \"in\"\n\
                 run = [\"builtin:exec\", \"split.rhai\"]\ntimeout = \"1h\"\n{to}\n\
                 exec = {{ command = [\"sh\", \"-c\", \"read job; echo $job >> ran; case $job in *:1?) read line < gate;; esac; echo $job\"] }}\n\
                 queuer = {{ strategy = \"fifo\", max_processing = 8, ordered = true }}\n\
                 [sink.x]\ntype = \"file\"\npath = \"x.ndjson\"\n[sink.y]\ntype = \"file\"\npath = \"y.ndjson\"\n"
            ),
        )
        .file("split.rhai", "fn process(job) { #{ x: job, y: job } }")
        .file("in.ndjson", jobs(1..=4));
    let made = std::process::Command::new("mkfifo").arg(project.path().join("gate")).status();
    assert!(made.expect("mkfifo can be started").success());
    let mut running = project.start(&["run", ".", "--no-watch"]);
    for job in ["p/in/2", "p/in/3", "p/in/4"] {
        running.wait_until("the end of a job behind the first one", || {
            project
                .tidegate(&["job", "show", job])
                .stdout
                .contains("it is finished, and delivered in the order")
        });
    }
    project.change("p.toml", to, "to = { x = \"x\" }");
    project.write("split.rhai", "fn process(job) { #{ x: job } }");
    project.tidegate(&["reload"]).done();
    std::fs::write(project.path().join("gate"), "go\n").expect("the command reads it");
    running.wait_until("the errors", || errors(&project, &[]).len() == 3);
    // A request to a service is made by an attempt only, so the output cannot go there.
    project.change("p.toml", "to = { x = \"x\" }", to);
    project.write("split.rhai", "fn process(job) { #{ x: job, y: job } }");
    let (file, service) =
        ("type = \"file\"\npath = \"y.ndjson\"", "type = \"http\"\nurl = \"http://127.0.0.1:9/{id}\"");
    project.change("p.toml", file, service);
    project.tidegate(&["reload"]).done();
    project.tidegate(&["errors", "retry", "p/failed", "--yes"]).done();
    running.wait_until("the same errors", || {
        let open = errors(&project, &[]);
        open.len() == 3 && open.iter().all(|error| error["index"].as_u64() > Some(3))
    });
    let listed = project.tidegate(&["errors", "list"]).done().stdout;
    assert!(listed.contains("because it goes to an HTTP sink"), "{listed}");
    project.change("p.toml", service, file);
    project.tidegate(&["reload"]).done();
    project.tidegate(&["errors", "retry", "p/failed", "--yes"]).done();
    running.wait_until("the outputs", || project.ids_so_far("y.ndjson").len() == 4);
    running.stop().done();
    for file in ["ran", "x.ndjson", "y.ndjson"] {
        let mut seen = ids(&project.read(file));
        seen.sort_unstable();
        assert_eq!(seen, [1, 2, 3, 4], "{file}");
    }
    project.assert_sound();
}
