//! Tests of the command line: exit codes, and commands that must not change anything.

use std::fs;

use crate::project::{Project, jobs};

fn files(project: &Project) -> Vec<String> {
    let entries = fs::read_dir(project.path()).expect("it can be listed");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("it can be listed").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn check_touches_nothing() {
    let project =
        Project::pipeline("[step.same]\nfrom = \"in\"\nto = \"out\"\n").file("in.ndjson", jobs(1..=3));
    let before = files(&project);
    let outcome = project.tidegate(&["check", "."]).done();
    assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), (". is in order\n", ""));
    assert_eq!(files(&project), before);
}

#[test]
fn check_and_run_tell_all_mistakes_of_all_files_and_touch_nothing() {
    let project = Project::new()
        .file("a.toml", "[source.in]\ntype = \"file\"\npth = \"in.ndjson\"\nformat = \"json\"\n[step.drop]\nfrom = \"in\"\n")
        .file("b.toml", "[step.work]\nfrom = \"a/given\"\nrun = [\"work.rhai\", \"none.rhai\"]\ntimeout = \"5 parsecs\"\n")
        .file("work.rhai", "fn process(job) {\n    job +\n}");
    let before = files(&project);
    let checked = project.tidegate(&["check", "."]).failed(78);
    for part in ["pth", "json", "5 parsecs", "none.rhai", "work.rhai:3", "a.toml:3", "b.toml:4"] {
        assert!(checked.stderr.contains(part), "`{part}` is missing in\n{}", checked.stderr);
    }
    assert_eq!(project.run().failed(78).stderr, checked.stderr);
    assert_eq!(files(&project), before);
    let json = project.tidegate(&["check", ".", "--format", "json"]).failed(78);
    let records: serde_json::Value = serde_json::from_str(&json.stdout).expect("it is JSON");
    assert!(records.as_array().is_some_and(|records| records.len() >= 6), "{records}");
}

#[test]
fn misuse_ends_with_64_and_help_with_0() {
    let project = Project::pipeline("[step.same]\nfrom = \"in\"\nto = \"out\"\n");
    for misuse in [
        &["no-such-command"][..],
        &["run"],
        &["run", ".", "--no-such-option"],
        &["status", "--format", "yaml"],
        &["errors", "show", "nonsense"],
        &[],
    ] {
        project.tidegate(misuse).failed(64);
    }
    project.tidegate(&["--help"]).done();
    project.tidegate(&["run", "--help"]).done();
    project.tidegate(&["--version"]).done();
}

#[test]
fn a_missing_configuration_or_input_is_named() {
    let project = Project::pipeline("[step.same]\nfrom = \"in\"\nto = \"out\"\n");
    project.tidegate(&["run", "nowhere"]).failed(78).says("nowhere");
    project.run().failed(1).says("in.ndjson");
}

#[test]
fn a_configuration_is_the_last_argument_or_an_option_of_every_command() {
    let project = Project::new()
        .file(
            "here/p.toml",
            "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n\
             [sink.out]\nfrom = \"in\"\ntype = \"null\"\n",
        )
        .file("here/in.ndjson", jobs(1..=3));
    for command in [
        "run",
        "check",
        "plan",
        "status",
        "graph",
        "queue list",
        "errors list",
        "delayed list",
        "store verify",
    ] {
        let words: Vec<&str> = command.split(' ').collect();
        let last = project.tidegate(&[&words, &["here"][..]].concat()).done();
        let option = project.tidegate(&[&words, &["--config", "here"][..]].concat()).done();
        assert_eq!(last.stdout, option.stdout, "{command}");
        project.tidegate(&[&words, &["here", "--config", "here"][..]].concat()).failed(64);
    }
}

#[test]
fn the_log_tells_times_as_lists_do() {
    let project = Project::pipeline(
        "[step.work]\nfrom = \"in\"\nrun = \"work.rhai\"\nto = \"out\"\nerrors = \"failed\"\n",
    )
    .file("in.ndjson", jobs(1..=1))
    .file("work.rhai", "fn process(job) { log_warn(\"here\"); reject(\"no\") }");
    let run = project.run().done();
    let line = run.stderr.lines().find(|line| line.contains("here")).expect("it is logged");
    let errors = project.tidegate(&["errors", "list"]).done().stdout;
    let line_of_it = errors.lines().find(|line| line.contains("p/failed/1")).expect("it is listed");
    let width = |line: &str| line.split_whitespace().find(|word| word.ends_with('Z')).map(str::len);
    assert_eq!(width(line), Some("2026-01-31T12:00:00.123Z".len()), "{line}");
    assert_eq!(width(line_of_it), width(line), "{errors}");
}

#[test]
fn a_mistyped_argument_is_answered_with_the_one_that_was_meant() {
    let project =
        Project::pipeline("[step.same]\nfrom = \"in\"\nto = \"out\"\n").file("in.ndjson", jobs(1..=3));
    project.run().done();
    let lanes = project.tidegate(&["status", "--lanes", "50"]).failed(64);
    assert_eq!(lanes.stderr, "error: `50` is not a configuration: write `--lanes=50`\n");
    project.tidegate(&["status", "--lanes=50"]).done();
    project.tidegate(&["status", "--lanes"]).done();
    for command in
        [&["status", "--json"][..], &["errors", "list", "--json"], &["queue", "show", "p/q", "--json"]]
    {
        project.tidegate(command).failed(64).says("did you mean `--format json`?");
    }
    let queue = project.tidegate(&["errors", "list", "p/failed"]).failed(64);
    assert_eq!(
        queue.stderr,
        "error: `p/failed` is not a configuration: for a queue, write `--queue p/failed`\n"
    );
    project.tidegate(&["replay", "same", "--from", "1"]).failed(1).says("did you mean `p/same`?");
    project.tidegate(&["replay", "p/same", "--from", "abc"]).failed(64).says("an index is a number, from 1");
}

#[test]
fn a_run_says_that_nothing_reads_what_it_has() {
    let source = "[source.events]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n";
    let unread = Project::new()
        .file("p.toml", format!("{source}[sink.out]\nfrom = \"event\"\ntype = \"null\"\n"))
        .file("in.ndjson", jobs(1..=3));
    unread.run().done().says("\nnothing to do: no step reads the source `p/events`\n");
    let filled = Project::new()
        .file("p.toml", format!("{source}[step.same]\nfrom = \"events\"\nto = \"made\"\n"))
        .file("in.ndjson", jobs(1..=3));
    let told = "\np/made → a queue that no step reads (see `tidegate queue show p/made`)\n";
    filled.run().done().says(told);
    let job = filled.tidegate(&["errors", "show", "p/made/1"]).failed(1);
    assert_eq!(job.stderr, "error: `p/made/1` is a job, not an error record: use `queue show`\n");
    filled.run().done().says("nothing to do: everything is delivered\n");
}

#[test]
fn a_configuration_where_another_argument_stands_is_named_by_its_option() {
    let project = Project::pipeline("[step.same]\nfrom = \"in\"\nto = \"out\"\n");
    for command in [&["history", "shop"][..], &["rollback", "shop"]] {
        let help = "a generation is a number, and a configuration is named by `--config=shop`";
        project.tidegate(command).failed(64).says(help);
    }
    let wrong = project.tidegate(&["errors", "retry", "p/failed", "p.toml"]).failed(64);
    wrong.says("`p.toml` does not name errors: write PIPELINE/QUEUE, PIPELINE/QUEUE/INDEX or PIPELINE/QUEUE/FROM-TO; \
                a configuration is named by `--config=p.toml`");
}
