//! Tests of logging: texts of jobs, files and arguments cannot forge a line or control the terminal, and the
//! JSON log is valid.

use std::net::TcpListener;

use serde_json::Value;

use crate::project::{Outcome, Project, jobs};

/// Ends a line, begins one like those of the log, and controls the terminal: with C0, C1 and a mark that
/// reverses the text.
const TRICK: &str =
    "x\n2026-01-01T00:00:00.000Z ERROR forged\r\u{1b}[2J\u{7}\u{0}\u{9b}2J\u{202e}gnol\u{2028}y";

fn trick() -> String {
    serde_json::json!({ "t": TRICK }).to_string() + "\n"
}

#[track_caller]
fn assert_plain(what: &str, text: &str) {
    let steers = |c: char| c != '\n' && (c.is_control() || "\u{202e}\u{2028}".contains(c));
    assert!(!text.contains(steers), "{what}: {text:?}");
    assert!(!text.lines().any(|line| line.starts_with("2026-01-01")), "{what}: {text}");
    assert!(text.contains("forged"), "{what}: {text}");
}

#[test]
fn no_job_forges_a_line_of_the_log_or_of_the_summary() {
    let step = "[step.work]\nfrom = \"in\"\nrun = \"work.rhai\"\nto = \"out\"\n";
    let project = Project::pipeline(step).file("in.ndjson", trick()).file(
        "work.rhai",
        "fn process(job) { print(job.t); log_warn(job.t); log_error(#{ a: job.t }); throw job.t }",
    );
    let outcome = project.run().failed(1);
    assert_plain("run", &outcome.stderr);
    assert_eq!(outcome.stderr.matches("forged").count(), 5, "{}", outcome.stderr);
    let summary = outcome.stderr.lines().last().expect("a summary");
    assert!(summary.starts_with("p/work stopped at job 1 ("), "{summary}");
    assert!(summary.contains("in.ndjson:1): x\\n2026-01-01"), "{summary}");
    assert!(summary.ends_with('…') && summary.chars().count() == 100, "{summary}");
    for command in ["status", "job show p/in/1"] {
        let arguments: Vec<&str> = command.split(' ').collect();
        assert_plain(command, &project.tidegate(&arguments).done().stdout);
    }
    project.change("p.toml", "to = \"out\"", "to = \"out\"\nerrors = \"failed\"");
    let outcome = project.run().done();
    assert_plain("run", &outcome.stderr);
    for command in [
        "errors list",
        "errors show p/failed/1",
        "job show p/in/1",
        "queue show p/failed",
        "errors list --format json",
        "errors show p/failed/1 --format json",
        "job show p/in/1 --format json",
        "queue show p/failed --format json",
    ] {
        let arguments: Vec<&str> = command.split(' ').collect();
        assert_plain(command, &project.tidegate(&arguments).done().stdout);
    }
}

#[test]
fn the_reason_of_a_stop_is_told_whole_where_the_log_does_not_tell_it() {
    let reason = "no ".repeat(100);
    let step = "[step.work]\nfrom = \"in\"\nrun = \"work.rhai\"\nto = \"out\"\n";
    let project = Project::pipeline(step)
        .file("in.ndjson", jobs([1]))
        .file("work.rhai", format!("fn process(job) {{ throw \"{reason}\" }}"));
    assert_eq!(project.run().failed(1).stderr.matches(&reason).count(), 1);
    project.write("tidegate.toml", "[log]\nlevel = \"off\"\n");
    let quiet = project.run().failed(1);
    assert_eq!(quiet.stderr.matches(&reason).count(), 1);
    assert!(quiet.stderr.starts_with("ended early"), "{}", quiet.stderr);
}

#[test]
fn no_name_and_no_argument_steers_the_terminal() {
    let name = "\u{9b}31mforged\u{202e}";
    let project =
        Project::new().file(format!("a{name}.toml"), format!("[source.\"{name}\"]\ntype = \"{name}\"\n"));
    assert_plain("check", &project.tidegate(&["check", "."]).failed(78).stderr);
    let argument = "\u{1b}[31m\u{9b}forged\u{202e}";
    for arguments in [
        &[argument][..],
        &["status", argument],
        &["queue", "show", argument],
        &["errors", "show", argument],
        &["status", "--format", argument],
        &["queue", "show", "p/q", "--limit", argument],
        &["step", "pause", argument],
        &["replay", "p/s", "--since", argument],
        &["job", "show", argument],
    ] {
        let outcome = project.tidegate(arguments);
        assert_ne!(outcome.code, Some(0), "{arguments:?}");
        assert_plain(&arguments.join(" "), &outcome.stderr);
    }
}

/// Every line as JSON.
fn lines(outcome: &Outcome) -> Vec<Value> {
    let line = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let lines: Vec<Value> = outcome.stderr.lines().map(line).collect();
    for line in &lines {
        for field in ["timestamp", "level", "target", "message"] {
            assert!(line[field].is_string(), "{field}: {line}");
        }
    }
    lines
}

fn json(pipeline: &str, settings: &str) -> Project {
    let settings = format!("[log]\nformat = \"json\"\n{settings}");
    Project::pipeline(pipeline).file("tidegate.toml", settings).file("in.ndjson", jobs(1..=3))
}

#[test]
fn a_json_log_holds_nothing_else_from_the_first_line_to_the_summary() {
    let project = json(
        "[step.work]\nfrom = \"in\"\nrun = \"work.rhai\"\nto = \"out\"\n[step.idle]\nfrom = \"none\"\n",
        "",
    )
    .file("work.rhai", "fn process(job) { print(\"\u{9b}\\n\"); if job.id == 2 { throw \"no\" } job }");
    let outcome = project.run().failed(1);
    assert!(!outcome.stderr.contains('\u{9b}'), "{}", outcome.stderr);
    let lines = lines(&outcome);
    let summary = lines.last().expect("a summary");
    assert_eq!(summary["target"], "tidegate::summary");
    let work = serde_json::json!({ "step": "p/work", "in": 1, "out": 1, "filtered": 0, "failed": 0 });
    let steps = summary["steps"].as_array().expect("a list");
    assert!(steps.contains(&work), "{summary}");
    assert_eq!(summary["stopped"][0]["step"], "p/work");
    assert!(lines.iter().any(|line| line["level"] == "WARN" && line["target"] == "tidegate::config"));
    project.write("work.rhai", "fn process(job) { job }");
    let last = self::lines(&project.run().done()).pop().expect("a summary");
    assert_eq!((&last["jobs"], &last["stopped"]), (&2.into(), &serde_json::json!([])));
    let nothing = self::lines(&project.run().done()).pop().expect("a summary");
    assert!(
        nothing["message"].as_str().is_some_and(|message| message.starts_with("nothing to do")),
        "{nothing}"
    );
}

#[test]
fn what_keeps_a_run_from_starting_is_json_where_its_log_is() {
    let port = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = port.local_addr().expect("it has one");
    let project =
        json("[step.same]\nfrom = \"in\"\nto = \"out\"\n", &format!("[runner]\nlisten = \"{address}\"\n"));
    let taken = lines(&project.run().failed(1)).pop().expect("it has a reason");
    let message = taken["message"].as_str().unwrap_or_default();
    for part in ["cannot listen on", "in use", "choose another port", &format!("sport = :{}", address.port())]
    {
        assert!(message.contains(part), "`{part}` is missing in {message}");
    }
    project.change("p.toml", "from = \"in\"", "form = \"in\"");
    let mistakes = lines(&project.run().failed(78));
    let mistake = mistakes.iter().find(|line| line["line"].is_u64()).expect("a place");
    assert_eq!((&mistake["level"], &mistake["target"]), (&"ERROR".into(), &"tidegate::config".into()));
    assert!(mistake["help"][0].as_str().is_some_and(|help| help.contains("from")), "{mistake}");
    // For an operator who checks a configuration, it is no log.
    assert!(project.tidegate(&["check", "."]).failed(78).stderr.contains("error: "));
}

#[test]
fn no_script_and_no_command_shows_a_secret_of_the_configuration() {
    let secret = "s3cr3t \"ä/+\\end";
    let project = Project::pipeline(
        "[step.say]\nfrom = \"in\"\nrun = \"say.rhai\"\nconfig = { key = \"${file:key}\" }\nerrors = \"failed\"\n\
         [step.do]\nfrom = \"in\"\nrun = \"builtin:exec\"\nerrors = \"failed\"\n\
         exec = { command = [\"sh\", \"-c\", \"printf %s \\\"$KEY\\\" | base64 >&2; exit 1\"], env = { KEY = \"user:${file:key}\" } }\n\
         retry = { max_attempts = 1 }\n",
    )
    .file("key", secret)
    .file("in.ndjson", jobs(1..=3))
    .file(
        "say.rhai",
        "fn process(job, ctx) {\n\
            let key = ctx.config.key;\n\
            print(`the key is ${key}`);\n\
            log_warn(ctx.config);\n\
            if job.id == 1 { throw `no door for ${key}`; }\n\
            if job.id == 2 { throw #{ message: \"no door\", tried: [key] }; }\n\
            reject(key, #{ tried: key });\n\
        }",
    );
    let mut command = project.command(&["run", "."]);
    let run: Outcome = command.env("PATH", "/usr/bin:/bin").output().expect("it starts").into();
    let run = run.done();
    assert_eq!(run.stderr.matches("the key is …").count(), 3, "{}", run.stderr);
    assert_eq!(run.stderr.matches("{\"key\":\"…\"}").count(), 3, "{}", run.stderr);
    let exported = project.tidegate(&["store", "export", "-"]).done().stdout;
    assert_eq!(exported.matches("no door for …").count(), 1, "{exported}");
    let listed = project.tidegate(&["errors", "list"]).done().stdout;
    assert_eq!(listed.lines().count(), 7, "{listed}");
    for text in [&run.stderr, &exported, &listed] {
        for shown in ["s3cr3t", "czNjcjN0", "MzY3IzdC", "zM2NyM3Q"] {
            assert!(!text.contains(shown), "{shown} is in\n{text}");
        }
    }
}
