//! Tests of source kinds: a source becomes one of another kind under the same name.

use crate::project::{Project, ids, jobs};

const FILE: &str = "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n";
const HTTP: &str = "[source.in]\ntype = \"http\"\n";
const QUEUE: &str = "[source.up]\ntype = \"file\"\npath = \"up.ndjson\"\nformat = \"ndjson\"\n\
                     [step.pre]\nfrom = \"up\"\nto = \"in\"\n";
const STEP: &str = "[step.pass]\nfrom = \"in\"\nto = \"out\"\n\
                    [sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\n";

fn project() -> Project {
    let settings = "[runner]\nlisten = \"127.0.0.1:0\"\n";
    Project::new().file("tidegate.toml", settings).file("p.toml", FILE.to_owned() + STEP)
}

fn set(project: &Project, source: &str) {
    project.write("p.toml", source.to_owned() + STEP);
}

fn run(project: &Project) {
    project.tidegate(&["run", ".", "--until-idle"]).done();
}

fn push(project: &Project, ids: impl IntoIterator<Item = u64>) {
    project.tidegate_given(&["queue", "push", "p/in"], jobs(ids)).done();
}

#[test]
fn jobs_of_a_source_that_was_another_one_while_the_runner_was_stopped_are_all_delivered() {
    let project = project().file("in.ndjson", jobs(1..=5));
    run(&project);
    set(&project, HTTP);
    // Before a run has read the files, and after it.
    push(&project, 6..=8);
    run(&project);
    push(&project, 9..=9);
    run(&project);
    assert_eq!(ids(&project.read("out.ndjson")), (1..=9).collect::<Vec<_>>());
    // The file cannot return: the lines behind the fifth would have the indices of the jobs since.
    set(&project, FILE);
    project.append("in.ndjson", jobs(20..=24));
    let stopped = project.tidegate(&["run", ".", "--until-idle"]).failed(1);
    let why = "source `p/in`: it was a source of another kind meanwhile, and steps would skip jobs: give it another name";
    assert!(stopped.stderr.contains(why), "{}", stopped.stderr);
    set(&project, QUEUE);
    project.write("up.ndjson", jobs(10..=12));
    run(&project);
    assert_eq!(ids(&project.read("out.ndjson")), (1..=12).collect::<Vec<_>>());
    project.assert_sound();
}

#[test]
fn a_source_with_waiting_jobs_cannot_become_one_that_is_read() {
    let project = project().file("in.ndjson", jobs(1..=3));
    set(&project, HTTP);
    push(&project, 7..=8);
    for taken in [false, true] {
        if taken {
            run(&project);
            project.tidegate(&["step", "pause", "p/pass"]).done();
            push(&project, 9..=9);
        }
        let whom = if taken { "1 job waits there for `p/pass`" } else { "2 jobs wait there" };
        set(&project, FILE);
        let stopped = project.tidegate(&["run", ".", "--until-idle"]).failed(1);
        let why = format!(
            "source `p/in`: it was a source of another kind before, and {whom}: give it another name"
        );
        assert!(stopped.stderr.contains(&why), "{}", stopped.stderr);
        set(&project, HTTP);
    }
    project.tidegate(&["step", "resume", "p/pass"]).done();
    run(&project);
    assert_eq!(ids(&project.read("out.ndjson")), [7, 8, 9]);
    // Nothing waits any more.
    set(&project, FILE);
    run(&project);
    assert_eq!(ids(&project.read("out.ndjson")), [7, 8, 9, 1, 2, 3]);
    project.append("in.ndjson", jobs([4]));
    run(&project);
    assert_eq!(ids(&project.read("out.ndjson")), [7, 8, 9, 1, 2, 3, 4]);
}

#[test]
fn a_file_whose_lines_would_be_counted_otherwise_needs_another_name() {
    let csv = "[source.in]\ntype = \"file\"\npath = \"in.csv\"\nformat = \"csv\"\nfollow = true\n";
    let project = project().file("in.csv", "id,of\n1,a\n2,b\n");
    set(&project, csv);
    let mut running = project.started_with(&["--no-watch"]);
    running.wait_until("two jobs", || project.read_if_there("out.ndjson").lines().count() == 2);
    let why = "its files would be divided into other jobs (csv, headers = false, delimiter = ,; before: csv, headers = \
               true, delimiter = ,), and steps would repeat or skip some: give it another name";
    set(&project, &(csv.to_owned() + "headers = false\n"));
    let plan = project.tidegate(&["plan"]).failed(1).stdout;
    let refused = project.tidegate(&["reload", "."]).failed(1).stderr;
    assert!(plan.contains(why) && refused.contains(why), "{plan}\n{refused}");
    assert!(refused.contains("p.toml:1:"), "{refused}");
    running.stop().done();
    // A start, and each one after it, also if the source was away meanwhile.
    for away in [false, true] {
        if away {
            project.write(
                "p.toml",
                (HTTP.to_owned() + STEP).replace("in\"", "other\"").replace(".in", ".other"),
            );
            run(&project);
            set(&project, &(csv.to_owned() + "headers = false\n"));
        }
        let plan = project.tidegate(&["plan"]).failed(1).stdout;
        assert!(plan.contains(why), "{plan}");
        for _ in 0..2 {
            let stopped = project.tidegate(&["run", ".", "--until-idle"]).failed(1).stderr;
            assert!(stopped.contains(&format!("source `p/in` cannot go on: {why}")), "{stopped}");
        }
    }
    // A replay changes nothing of what the store knows of the file.
    set(&project, csv);
    project.tidegate(&["replay", "p/pass", "--from", "1", "--yes"]).done();
    set(&project, &(csv.to_owned() + "headers = false\n"));
    project.tidegate(&["run", ".", "--until-idle"]).failed(1).says(why);
    set(&project, csv);
    project.append("in.csv", "3,c\n");
    run(&project);
    let two = "{\"id\":\"1\",\"of\":\"a\"}\n{\"id\":\"2\",\"of\":\"b\"}\n";
    let out = &*format!("{two}{two}{{\"id\":\"3\",\"of\":\"c\"}}\n");
    assert_eq!(project.read("out.ndjson"), out);
    set(&project, &csv.replace("source.in", "source.again").replace("follow = true", "headers = false"));
    project.change("p.toml", "from = \"in\"", "from = \"again\"\nbegin_at = 4");
    run(&project);
    assert_eq!(project.read("out.ndjson"), out.to_owned() + "[\"3\",\"c\"]\n");
    project.assert_sound();
}

#[test]
fn a_file_of_which_no_job_was_taken_can_be_divided_otherwise() {
    let ndjson = FILE.replace("in.ndjson", "in.csv");
    let project = project().file("in.csv", "id;of\n");
    set(&project, &ndjson.replace("\"ndjson\"", "\"csv\""));
    run(&project);
    project.append("in.csv", "1;a\n");
    set(&project, &ndjson.replace("\"ndjson\"", "\"csv\"\ndelimiter = \";\""));
    run(&project);
    assert_eq!(project.read("out.ndjson"), "{\"id\":\"1\",\"of\":\"a\"}\n");
    // The same lines are the same jobs.
    set(&project, &FILE.replace("\"ndjson\"", "\"lines\"").replace("source.in", "source.text"));
    project.change("p.toml", "from = \"in\"", "from = \"text\"");
    project.write("in.ndjson", jobs(1..=1));
    run(&project);
    set(&project, &FILE.replace("source.in", "source.text"));
    project.change("p.toml", "from = \"in\"", "from = \"text\"");
    project.append("in.ndjson", jobs(2..=2));
    run(&project);
    assert!(project.read("out.ndjson").ends_with("{\"id\":2}\n"), "{}", project.read("out.ndjson"));
}

#[test]
fn a_running_runner_refuses_a_source_of_another_kind() {
    let project = project().file("in.ndjson", jobs(1..=2)).file("up.ndjson", "");
    project.change("p.toml", "format = \"ndjson\"", "format = \"ndjson\"\nfollow = true");
    let mut running = project.started_with(&["--no-watch"]);
    running.wait_until("two jobs", || project.ids_so_far("out.ndjson").len() == 2);
    for source in [HTTP, QUEUE] {
        set(&project, source);
        let plan = project.tidegate(&["plan"]).failed(1).stdout;
        assert!(plan.contains("refused: "), "{plan}");
        let refused = project.tidegate(&["reload", "."]).failed(1).stderr;
        let why = "its jobs would come from a source of another kind; give it another name";
        assert!(plan.contains(why) && refused.contains(why), "{plan}\n{refused}");
        // The queue of a step has no section, and no place.
        assert_eq!(refused.contains("p.toml:1:"), source == HTTP, "{refused}");
    }
    running.stop().done();
    assert_eq!(ids(&project.read("out.ndjson")), [1, 2]);
}
