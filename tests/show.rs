//! Tests of `queue show`: ranges, expressions, following, and details of jobs.

use serde_json::Value;

use crate::project::{Project, jobs};

fn project() -> Project {
    Project::new()
        .file(
            "p.toml",
            "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\nfollow = true\n\
             [step.sort]\nfrom = \"in\"\nto = \"sorted\"\n\
             [queue.sorted]\nretain = \"forever\"\nmeta = [\"index\", \"tx\"]\n\
             [step.give]\nfrom = \"sorted\"\nto = \"given\"\n[queue.given]\nretain = \"forever\"\n",
        )
        .file("in.ndjson", jobs(1..=2500))
}

fn shown(project: &Project, arguments: &[&str]) -> Vec<Value> {
    let arguments = [&["queue", "show", "p/sorted", "--format", "json"], arguments].concat();
    let text = project.tidegate(&arguments).done().stdout;
    serde_json::from_str(&text).expect("it is JSON")
}

fn job_ids(shown: &[Value]) -> Vec<u64> {
    shown.iter().map(|job| job["job"]["id"].as_u64().expect("an id")).collect()
}

#[test]
fn a_range_an_expression_and_a_limit_choose_jobs_over_several_answers() {
    let project = project();
    project.tidegate(&["run", ".", "--until-idle"]).done();
    let ids = |arguments: &[&str]| job_ids(&shown(&project, arguments));
    assert_eq!(ids(&[]), (1..=20).collect::<Vec<_>>());
    assert_eq!(ids(&["--from", "2498"]), [2498, 2499, 2500]);
    assert_eq!(ids(&["--to", "2400"]), (1..=2400).collect::<Vec<_>>());
    assert_eq!(ids(&["--from", "8", "--to", "9"]), [8, 9]);
    assert_eq!(ids(&["--where", "job.id % 1000 == 0"]), [1000, 2000]);
    assert_eq!(ids(&["--where", "job.id > 7", "--limit", "2"]), [8, 9]);
    assert_eq!(ids(&["--from", "2501"]), Vec::<u64>::new());
}

#[test]
fn an_expression_that_does_not_compile_is_marked_and_one_that_cannot_tell_says_so() {
    let project = project();
    project.tidegate(&["run", ".", "--until-idle"]).done();
    let wrong = project.tidegate(&["queue", "show", "p/sorted", "--where", "jo.id > 3"]).failed(64);
    insta::assert_snapshot!(wrong.stderr, @"
    error: the expression of `--where` does not compile: variable `jo` is unknown here
      jo.id > 3
      ^
      help: did you mean `job`?
    ");
    let unsure =
        project.tidegate(&["queue", "show", "p/sorted", "--where", "job.idd > 3", "--to", "5"]).done();
    assert_eq!(unsure.stdout, "no jobs there\n");
    insta::assert_snapshot!(unsure.stderr, @r#"warning: `--where` could not be evaluated for 5 jobs, which were skipped; the first: p/sorted/1: field `idd` is unknown; did you mean `id`? (if it may be absent, `.get("idd")` gives `()`)"#);
}

#[test]
fn json_tells_where_a_job_came_from_and_what_it_passed() {
    let project = project();
    project.tidegate(&["run", ".", "--until-idle"]).done();
    let arguments = ["queue", "show", "p/given", "--from", "7", "--to", "7", "--format", "json"];
    let text = project.tidegate(&arguments).done().stdout;
    let transaction = |job: &Value| job["transaction"].as_u64().expect("a number of a commit");
    let job = &serde_json::from_str::<Value>(&text).expect("it is JSON")[0];
    let before = &shown(&project, &["--from", "7", "--to", "7"])[0];
    assert!(transaction(before) < transaction(job));
    assert_eq!(job["meta"]["p/sorted"]["index"], 7);
    assert_eq!(job["meta"]["p/sorted"]["tx"], transaction(before));
    assert_eq!(job["origin"]["step"], "p/give");
    assert_eq!(job["origin"]["inputs"]["p/sorted"], 7);
    assert_eq!(job["origin"]["hash"].as_str().map(str::len), Some(32));
    assert!(job["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{job}");
}

#[test]
fn following_shows_what_comes_and_ends_with_the_runner() {
    let project = project();
    let stopped = project.tidegate(&["queue", "show", "p/sorted", "--follow"]).failed(1);
    assert!(stopped.stderr.contains("does not exist yet"), "{}", stopped.stderr);
    let mut running = project.start(&["run", "."]);
    let all = |project: &Project| {
        let status = project.tidegate(&["status", "--format", "json"]).stdout;
        serde_json::from_str::<Value>(&status).is_ok_and(|told| told["steps"][1]["watermark"] == 2500)
    };
    running.wait_until("all jobs", || all(&project));
    let follow = ["queue", "show", "p/sorted", "--follow", "--format", "json"];
    let limited = project.start(&[&follow[..], &["--from", "2481", "--limit", "30"]].concat());
    let endless = project.start(&[&follow[..], &["--from", "2490", "--where", "job.id % 2 == 0"]].concat());
    project.append("in.ndjson", jobs(2501..=2540));
    let lines = |text: &str| -> Vec<Value> {
        text.lines().map(|line| serde_json::from_str(line).expect("a job a line")).collect()
    };
    assert_eq!(job_ids(&lines(&limited.outcome().done().stdout)), (2481..=2510).collect::<Vec<_>>());
    running.wait_until("the jobs that came", || {
        let status = project.tidegate(&["status", "--format", "json"]).stdout;
        serde_json::from_str::<Value>(&status).is_ok_and(|told| told["steps"][0]["watermark"] == 2540)
    });
    running.stop().done();
    let endless = endless.outcome().done();
    assert_eq!(job_ids(&lines(&endless.stdout)), (2490..=2540).step_by(2).collect::<Vec<_>>());
    assert!(endless.stderr.contains("no runner is running"), "{}", endless.stderr);
    // Without an option, it begins with the last few.
    let last = project.tidegate(&follow).done();
    assert_eq!(job_ids(&lines(&last.stdout)), (2521..=2540).collect::<Vec<_>>());
}
