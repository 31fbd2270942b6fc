//! Tests of `was`: queues, sources and pipelines keep what they have under a new name.

use crate::http_client::{Client, JSON, address};
use crate::project::{Project, jobs};
use crate::running::Running;

/// Jobs go from `in` over the queue `middle` to the sink. Job 2 waits on the way for another attempt tomorrow, and job 3
/// is on an error queue.
fn project() -> Project {
    Project::pipeline(
        "follow = true\n[pipeline]\nerrors = \"failed\"\n[step.first]\nfrom = \"in\"\nto = \"middle\"\n\
         [queue.middle]\nretain = \"forever\"\n[queue.failed]\nretain = \"forever\"\n\
         [step.work]\nfrom = \"middle\"\nrun = \"work.rhai\"\nto = \"out\"\nqueuer = { strategy = \"fifo\" }\n\
         retry = { backoff = \"fixed\", initial = \"1d\", jitter = \"none\" }\n",
    )
    .file(
        "work.rhai",
        "fn process(job) { if job.id == 2 { throw \"not today\" } if job.id == 3 { reject(\"never\") } job }",
    )
    .file("in.ndjson", jobs(1..=4))
}

/// In the order of their numbers: picked jobs run side by side.
fn written(project: &Project) -> Vec<u64> {
    let mut ids = project.ids_so_far("out.ndjson");
    ids.sort_unstable();
    ids
}

fn until_idle(project: &Project) {
    project.tidegate(&["run", ".", "--until-idle"]).done();
}

/// A runner that reloads on request only: a test that changes a file several times has states in between.
fn started(project: &Project) -> Running {
    let mut running = project.start(&["run", ".", "--no-watch"]);
    running.wait_until("its socket", || project.is_answered());
    running
}

/// Gives all inputs, queues and sources other names.
fn rename_parts(project: &Project) {
    project.change("p.toml", "\"middle\"", "\"between\"");
    project.change("p.toml", "[queue.middle]", "[queue.between]\nwas = \"middle\"");
    project.change("p.toml", "\"failed\"", "\"lost\"");
    project.change("p.toml", "[queue.failed]", "[queue.lost]\nwas = \"failed\"");
    project.change("p.toml", "\"in\"", "\"orders\"");
    project.change("p.toml", "[source.in]", "[source.orders]\nwas = \"in\"");
}

#[test]
fn renamed_queues_and_sources_keep_their_jobs_and_their_readers() {
    let project = project();
    until_idle(&project);
    assert_eq!(written(&project), [1, 4]);
    rename_parts(&project);
    insta::assert_snapshot!(project.tidegate(&["plan"]).failed(2).stdout);
    project.append("in.ndjson", jobs([5]));
    until_idle(&project);
    assert_eq!(written(&project), [1, 4, 5]);
    let ids: Vec<_> = project.queue("p/between").iter().map(|job| job["id"].as_u64()).collect();
    assert_eq!(ids, (1..=5).map(Some).collect::<Vec<_>>());
    assert_eq!(project.status("p/work", "p/between")["delayed"], 1);
    // Errors can be put back, also those of a renamed queue.
    project.write("work.rhai", "fn process(job) { if job.id == 2 { throw \"not today\" } job }");
    project.tidegate(&["errors", "retry", "p/lost", "--yes"]).done();
    // The lines have no effect any more.
    let plan = project.tidegate(&["plan"]).failed(2).stdout;
    let notes = [("middle", "queue `p/between`"), ("failed", "queue `p/lost`"), ("in", "source `p/orders`")].map(
        |(was, part)| {
            format!("note: `was = \"{was}\"` of {part} has no effect: the {} is known by its name already; remove `was`\n", part.split(' ').next().unwrap_or_default())
        },
    );
    assert!(notes.iter().all(|note| plan.contains(note.as_str())), "{plan}");
    for line in ["was = \"middle\"\n", "was = \"failed\"\n", "was = \"in\"\n"] {
        project.change("p.toml", line, "");
    }
    until_idle(&project);
    assert_eq!(written(&project), [1, 3, 4, 5]);
    project.tidegate(&["delayed", "now", "p/work", "--yes"]).done();
    project.write("work.rhai", "fn process(job) { job }");
    until_idle(&project);
    assert_eq!(written(&project), [1, 2, 3, 4, 5]);
    project.assert_sound();
}

#[test]
fn open_errors_of_a_renamed_step_count_for_its_present_name() {
    let project = project();
    until_idle(&project);
    let open = |step: &str, input: &str| project.status(step, input)["errors"].clone();
    assert_eq!(open("p/work", "p/middle"), 1);
    project.change("p.toml", "[step.work]", "[step.labour]\nwas = \"work\"");
    until_idle(&project);
    assert_eq!(open("p/labour", "p/middle"), 1);
    // Another step of the earlier name has its own.
    project.change(
        "p.toml",
        "[step.labour]",
        "[step.work]\nfrom = \"in\"\nrun = \"no.rhai\"\nto = \"side\"\n[queue.side]\n[step.labour]",
    );
    project.change("p.toml", "was = \"work\"\n", "");
    project.write("no.rhai", "fn process(job) { reject(\"never\") }");
    until_idle(&project);
    assert_eq!((open("p/labour", "p/middle"), open("p/work", "p/in")), (1.into(), 4.into()));
}

#[test]
fn a_name_that_was_renamed_away_can_be_used_again() {
    let project = project();
    until_idle(&project);
    project.change("p.toml", "\"middle\"", "\"between\"");
    project.change("p.toml", "[queue.middle]", "[queue.between]\nwas = \"middle\"");
    until_idle(&project);
    project.change("p.toml", "was = \"middle\"\n", "");
    project.change("p.toml", "[step.work]", "[step.side]\nfrom = \"between\"\nto = \"middle\"\n[step.work]");
    until_idle(&project);
    assert_eq!(project.queue("p/middle").len(), 4);
    assert_eq!((project.queue("p/between").len(), written(&project)), (4, vec![1, 4]));
    project.assert_sound();
}

#[test]
fn a_part_with_jobs_of_its_own_takes_over_nothing() {
    let project = project();
    until_idle(&project);
    project.change("p.toml", "\"middle\"", "\"between\"");
    project.change("p.toml", "[queue.middle]", "[queue.between]");
    project.append("in.ndjson", jobs([5]));
    until_idle(&project);
    project.change("p.toml", "[queue.between]", "[queue.between]\nwas = \"middle\"");
    until_idle(&project);
    assert_eq!((project.queue("p/between").len(), project.queue("p/middle").len()), (1, 4));
    assert_eq!(written(&project), [1, 4, 5]);
    project.assert_sound();
}

#[test]
fn a_queue_with_jobs_gets_no_name_under_which_other_jobs_had_its_indices() {
    // Nine jobs had the name: the next jobs would have indices of these, or those that are there have them.
    for kept in [2, 12] {
        refuses_to_rename(kept);
    }
}

fn refuses_to_rename(kept: u64) {
    let project = Project::pipeline(
        "[step.first]\nfrom = \"in\"\nto = \"middle\"\n[step.work]\nfrom = \"middle\"\nto = \"out\"\n\
         [source.few]\ntype = \"file\"\npath = \"few.ndjson\"\nformat = \"ndjson\"\n\
         [step.keep]\nfrom = \"few\"\nto = \"kept\"\n[queue.kept]\nretain = \"forever\"\n",
    )
    .file("in.ndjson", jobs(1..=9))
    .file("few.ndjson", jobs(1..=kept));
    project.run().done();
    project.change("p.toml", "[step.first]\nfrom = \"in\"\nto = \"middle\"\n", "");
    project.change("p.toml", "[step.work]\nfrom = \"middle\"\nto = \"out\"\n", "");
    project.change("p.toml", "[source.in]", "[step.pass]\nfrom = \"in\"\nto = \"out\"\n[source.in]");
    project.tidegate(&["queue", "drop", "p/work", "--yes"]).done();
    let before = project.read("p.toml");
    project.change("p.toml", "to = \"kept\"", "to = \"middle\"");
    project.change("p.toml", "[queue.kept]", "[queue.middle]\nwas = \"kept\"");
    let plan = project.tidegate(&["plan"]).failed(1).stdout;
    assert!(plan.contains("refused: `p/middle` cannot take over the jobs of `p/kept`"), "{plan}");
    let refused = project.run().failed(1);
    let why = "`p/middle` cannot take over the jobs of `p/kept`: other jobs had the indices up to 9 under this name";
    assert!(refused.stderr.contains(why), "{}", refused.stderr);
    // A running one refuses it, too.
    let renamed = project.read("p.toml");
    project.write("p.toml", before.replace("format = \"ndjson\"", "format = \"ndjson\"\nfollow = true"));
    let running = started(&project);
    project.write("p.toml", renamed.replace("format = \"ndjson\"", "format = \"ndjson\"\nfollow = true"));
    let refused = project.tidegate(&["reload"]).failed(1);
    assert!(refused.stderr.contains(why), "{}", refused.stderr);
    running.stop().done();
    assert_eq!(project.queue("p/kept").len() as u64, kept);
}

/// A pipeline `p` under load, whose steps have no delays.
fn busy() -> Project {
    Project::pipeline(
        "follow = true\n[step.first]\nfrom = \"in\"\nto = \"a\"\n[queue.a]\nretain = \"1d\"\n\
         [step.work]\nfrom = \"a\"\nto = \"out\"\n",
    )
    .file("in.ndjson", jobs(1..=2000))
}

/// Reloads this many times under load, with a rename each, and then compares the sink with the source.
fn rename_under_load(project: &Project, mut rename: impl FnMut(usize)) {
    let mut running = started(project);
    running.wait_until("the first jobs", || !written(project).is_empty());
    let mut last = 2000;
    for round in 0..6 {
        rename(round);
        project.append("in.ndjson", jobs(last + 1..=last + 500));
        last += 500;
        project.tidegate(&["reload"]).done();
    }
    running.wait_until("all jobs", || written(project).len() as u64 >= last);
    running.stop().done();
    // These steps pick nothing, so the order is that of the source.
    assert_eq!(project.ids_so_far("out.ndjson"), (1..=last).collect::<Vec<_>>());
    project.assert_sound();
}

#[test]
fn running_queues_and_sources_are_renamed_without_losing_or_repeating_a_job() {
    let project = busy();
    let names = ["a", "b", "c", "a"];
    rename_under_load(&project, |round| {
        let [from, to] = [names[round % 3], names[round % 3 + 1]];
        let [input, output] = if round % 2 == 0 { ["in", "orders"] } else { ["orders", "in"] };
        let text = project.read("p.toml");
        let lines = text.lines().filter(|line| !line.starts_with("was = "));
        let text = lines.collect::<Vec<_>>().join("\n") + "\n";
        let text = text
            .replace(&format!("\"{from}\""), &format!("\"{to}\""))
            .replace(&format!("[queue.{from}]"), &format!("[queue.{to}]\nwas = \"{from}\""))
            .replace(&format!("\"{input}\""), &format!("\"{output}\""))
            .replace(&format!("[source.{input}]"), &format!("[source.{output}]\nwas = \"{input}\""));
        project.write("p.toml", text);
    });
    assert_eq!(project.queue("p/a").len(), 5000);
}

#[test]
fn a_renamed_pipeline_takes_everything_along() {
    let project = project();
    until_idle(&project);
    project.tidegate(&["step", "pause", "p/work"]).done();
    // A queue without a configuration follows, too.
    project.write("more.toml", "[step.copy]\nfrom = \"p/middle\"\nto = \"p/kept\"\n");
    until_idle(&project);
    std::fs::remove_file(project.path().join("more.toml")).expect("it is there");
    project.change("p.toml", "[pipeline]\n", "[pipeline]\nname = \"q\"\nwas = \"p\"\n");
    insta::assert_snapshot!(project.tidegate(&["plan"]).failed(2).stdout);
    project.append("in.ndjson", jobs([5]));
    until_idle(&project);
    assert_eq!(written(&project), [1, 4]);
    project.tidegate(&["step", "resume", "q/work"]).done();
    until_idle(&project);
    assert_eq!(written(&project), [1, 4, 5]);
    assert_eq!((project.queue("q/kept").len(), project.queue("q/failed").len()), (4, 1));
    assert_eq!(project.status("q/work", "q/middle")["delayed"], 1);
    project.write("work.rhai", "fn process(job) { job }");
    project.tidegate(&["errors", "retry", "q/failed", "--yes"]).done();
    project.tidegate(&["delayed", "now", "q/work", "--yes"]).done();
    project.change("p.toml", "was = \"p\"\n", "");
    until_idle(&project);
    assert_eq!(written(&project), [1, 2, 3, 4, 5]);
    let queues = project.json(&["queue", "list"]).to_string();
    assert!(!queues.contains("p/"), "{queues}");
    project.assert_sound();
}

#[test]
fn a_running_pipeline_is_renamed_without_losing_or_repeating_a_job() {
    let project = busy();
    project.write("p.toml", project.read("p.toml") + "[pipeline]\nname = \"p\"\n");
    let names = ["p", "q", "r", "p"];
    rename_under_load(&project, |round| {
        let [from, to] = [names[round % 3], names[round % 3 + 1]];
        let text = project.read("p.toml");
        let end = text.find("[pipeline]").expect("a header");
        project.write("p.toml", format!("{}[pipeline]\nname = \"{to}\"\nwas = \"{from}\"\n", &text[..end]));
    });
    assert_eq!(project.queue("p/a").len(), 5000);
}

#[test]
fn a_rollback_gives_all_parts_their_names_back() {
    let project = project();
    let mut running = started(&project);
    running.wait_until("the first jobs", || written(&project) == [1, 4]);
    rename_parts(&project);
    project.tidegate(&["reload"]).done();
    // Without its own `was` lines, so that the rollback must know the one before.
    for line in ["was = \"middle\"\n", "was = \"failed\"\n", "was = \"in\"\n"] {
        project.change("p.toml", line, "");
    }
    project.change("p.toml", "[pipeline]\n", "[pipeline]\nname = \"q\"\nwas = \"p\"\n");
    project.tidegate(&["reload"]).done();
    project.append("in.ndjson", jobs([5]));
    running.wait_until("the next job", || written(&project) == [1, 4, 5]);
    assert_eq!(project.queue("q/between").len(), 5);
    project.tidegate(&["rollback", "1"]).done();
    project.append("in.ndjson", jobs([6]));
    running.wait_until("the last job", || written(&project) == [1, 4, 5, 6]);
    assert_eq!((project.queue("p/middle").len(), project.queue("p/failed").len()), (6, 1));
    assert_eq!(project.status("p/work", "p/middle")["delayed"], 1);
    running.stop().done();
    project.assert_sound();
}

#[test]
fn a_rollback_knows_a_rename_whose_line_was_left_out_before_a_restart() {
    let project = project();
    until_idle(&project);
    rename_parts(&project);
    until_idle(&project);
    assert_eq!(written(&project), [1, 4]);
    for line in ["was = \"middle\"\n", "was = \"failed\"\n", "was = \"in\"\n"] {
        project.change("p.toml", line, "");
    }
    let mut running = project.started();
    project.tidegate(&["rollback", "1"]).done();
    project.append("in.ndjson", jobs([5]));
    running.wait_until("the next job", || written(&project).contains(&5));
    assert_eq!(written(&project), [1, 4, 5]);
    assert_eq!((project.queue("p/middle").len(), project.queue("p/failed").len()), (5, 1));
    running.stop().done();
    project.assert_sound();
}

#[test]
fn files_that_are_in_force_again_after_a_rollback_need_no_was() {
    for restarts in [false, true] {
        let project = project();
        until_idle(&project);
        rename_parts(&project);
        until_idle(&project);
        for line in ["was = \"middle\"\n", "was = \"failed\"\n", "was = \"in\"\n"] {
            project.change("p.toml", line, "");
        }
        let mut running = project.start(&["run", ".", "--no-watch"]);
        running.wait_until("its socket", || project.is_answered());
        project.tidegate(&["rollback", "1"]).done();
        project.append("in.ndjson", jobs([5]));
        running.wait_until("the next job", || written(&project).contains(&5));
        if restarts {
            running.stop().done();
            running = project.start(&["run", ".", "--no-watch", "--from-files"]);
            running.wait_until("its socket", || project.is_answered());
        } else {
            // The plan names the renames, although the files have no `was`.
            let plan = project.tidegate(&["plan"]).failed(2).stdout;
            assert!(
                plan.contains("takes over 5 jobs and the progress of the readers of `p/middle`"),
                "{plan}"
            );
            project.tidegate(&["reload"]).done();
        }
        project.append("in.ndjson", jobs([6]));
        running.wait_until("another job", || written(&project).contains(&6));
        // No job was read again.
        assert_eq!(written(&project), [1, 4, 5, 6], "{restarts}");
        assert_eq!((project.queue("p/between").len(), project.queue("p/lost").len()), (6, 1));
        // And back once more.
        project.tidegate(&["rollback", "1"]).done();
        project.append("in.ndjson", jobs([7]));
        running.wait_until("the last job", || written(&project).contains(&7));
        running.stop().done();
        assert_eq!((project.queue("p/middle").len(), written(&project).len()), (7, 5));
        project.assert_sound();
    }
}

#[test]
fn keys_of_a_renamed_source_stay_known_and_its_former_name_has_none() {
    const SOURCE: &str = "type = \"http\"\nkey = \"id\"\n";
    let sink = |from: &str| format!("[sink.{from}-out]\nfrom = \"{from}\"\ntype = \"null\"\n");
    let project = Project::new()
        .file("tidegate.toml", "[runner]\nlisten = \"127.0.0.1:0\"\n")
        .file("p.toml", format!("[source.a]\n{SOURCE}{}", sink("a")));
    let mut running = project.start(&["run", ".", "--no-watch"]);
    let mut client = Client::new(&address(&mut running));
    let mut push = |to: &str| client.request(&format!("POST /sources/p/{to}"), &[JSON], "{\"id\":1}");
    assert_eq!(push("a").status, 202);
    project.write("p.toml", format!("[source.b]\nwas = \"a\"\n{SOURCE}{}", sink("b")));
    project.tidegate(&["reload"]).done();
    let known = push("b");
    assert_eq!((known.status, &known.body["job"]), (200, &"p/b/1".into()));
    let both = [format!("[source.b]\n{SOURCE}[source.a]\n{SOURCE}"), sink("a"), sink("b")].concat();
    project.write("p.toml", both);
    project.tidegate(&["reload"]).done();
    assert_eq!((push("a").status, push("a").status, push("b").status), (202, 200, 200));
    let found = client.request("GET /jobs/p/b?key=1", &[], "");
    assert_eq!((found.status, &found.body["job"]), (200, &"p/b/1".into()));
    running.stop().done();
    project.assert_sound();
}

#[test]
fn a_sink_with_several_inputs_goes_on_after_they_and_their_pipeline_were_renamed() {
    let project = Project::new()
        .file(
            "p.toml",
            "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n\
             [step.fork]\nfrom = \"in\"\nrun = \"fork.rhai\"\nto = { even = \"even\", odd = \"odd\" }\n\
             [queue.odd]\nretain = \"forever\"\n[queue.even]\nretain = \"forever\"\n\
             [sink.out]\nfrom = [\"even\", \"p/odd\"]\ntype = \"file\"\npath = \"out.ndjson\"\n",
        )
        .file("fork.rhai", "fn process(job) { if job.id % 2 == 0 { #{ even: job } } else { #{ odd: job } } }")
        .file("in.ndjson", jobs(1..=4));
    until_idle(&project);
    assert_eq!(written(&project), [1, 2, 3, 4]);
    project.change("p.toml", "\"even\"", "\"straight\"");
    project.change("p.toml", "[queue.even]", "[queue.straight]\nwas = \"even\"");
    project.append("in.ndjson", jobs([5, 6]));
    until_idle(&project);
    assert_eq!(written(&project), [1, 2, 3, 4, 5, 6]);
    project.change("p.toml", "was = \"even\"\n", "");
    project.change("p.toml", "p/odd", "q/odd");
    project.change("p.toml", "[source.in]", "[pipeline]\nname = \"q\"\nwas = \"p\"\n[source.in]");
    project.append("in.ndjson", jobs([7, 8]));
    until_idle(&project);
    assert_eq!(written(&project), [1, 2, 3, 4, 5, 6, 7, 8]);
    project.assert_sound();
}

#[test]
fn the_steps_of_a_sink_keep_their_progress_when_it_gets_further_inputs_and_loses_them() {
    let project = project();
    until_idle(&project);
    assert_eq!(written(&project), [1, 4]);
    let sink = |from: &str| {
        let head = "[sink.both]\ntype = \"file\"\npath = \"both.ndjson\"\nfrom = ";
        project.change("p.toml", &project.read("p.toml"), &format!("{}{head}{from}\n", before(&project)));
    };
    let written = || {
        let mut ids = project.ids_so_far("both.ndjson");
        ids.sort_unstable();
        ids
    };
    sink("\"middle\"");
    until_idle(&project);
    assert_eq!(written(), [1, 2, 3, 4]);
    // The other input has the jobs 1 to 4 too.
    project.append("in.ndjson", jobs([5]));
    sink("[\"in\", \"middle\"]");
    let plan = project.tidegate(&["plan"]).failed(2).stdout;
    assert!(plan.contains("takes over the progress of `p/both`"), "{plan}");
    let mut running = started(&project);
    running.wait_until("both inputs", || written() == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]);
    for from in ["[\"p/in\", \"middle\"]", "\"in\"", "[\"p/middle\", \"p/in\"]"] {
        sink(from);
        project.tidegate(&["reload"]).done();
    }
    // The step of the queue that was left out has kept its progress under its name.
    project.append("in.ndjson", jobs([6]));
    running.wait_until("the last job", || written() == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]);
    project.tidegate(&["rollback", "3"]).done();
    project.append("in.ndjson", jobs([7]));
    running.wait_until("the job after the rollback", || written().ends_with(&[6, 7, 7]));
    running.stop().done();
    project.assert_sound();
}

/// The pipeline without the sink `both`.
fn before(project: &Project) -> String {
    let text = project.read("p.toml");
    text.split("[sink.both]").next().unwrap_or_default().to_owned()
}

#[test]
fn a_misspelt_was_is_a_warning_with_the_part_that_may_be_meant() {
    let project = Project::pipeline("follow = true\n[step.mark]\nfrom = \"in\"\nto = \"out\"\n")
        .file("in.ndjson", jobs([1]));
    let mut running = project.start(&["run", ".", "--no-watch"]);
    running.wait_until("the job", || project.ids_so_far("out.ndjson") == [1]);
    project.change("p.toml", "[step.mark]\n", "[step.sign]\nwas = \"marc\"\n");
    let note = "`was = \"marc\"` of step `p/sign` has no effect: nothing of `p/marc` is left to move, so it begins \
                anew; did you mean `p/mark`?";
    let plan = project.tidegate(&["plan"]).failed(2).stdout;
    assert!(plan.contains(note), "{plan}");
    project.tidegate(&["reload"]).done();
    running.wait_until_it_says(note);
    running.stop().done();
}

#[test]
fn what_a_job_came_to_is_known_after_its_step_and_its_source_were_renamed() {
    let project = Project::pipeline(
        "[pipeline]\nerrors = \"failed\"\n[queue.failed]\nretain = \"forever\"\n[source.web]\ntype = \"http\"\n\
         [step.a]\nfrom = \"web\"\nrun = \"a.rhai\"\nto = \"now\"\n[queue.now]\nretain = \"forever\"\n",
    )
    .file("tidegate.toml", "[runner]\nlisten = \"127.0.0.1:0\"\n")
    .file("a.rhai", "fn process(job) { if job.id == 2 { reject(\"bad two\") } job }")
    .file("in.ndjson", "");
    let mut running = project.start(&["run", ".", "--no-watch"]);
    let place = address(&mut running);
    let request = |what: &str, body: &str| Client::new(&place).request(what, &[JSON], body);
    for id in 1..=3 {
        assert_eq!(request("POST /sources/p/web", &format!("{{\"id\":{id}}}")).status, 202);
    }
    let outcome = |queue: &str, index: u64| {
        let answer = request(&format!("GET /jobs/p/{queue}/{index}"), "").body;
        let step = &answer["steps"][0];
        let outputs = step["outputs"].as_array().map_or(0, Vec::len);
        (step["step"].clone(), step["status"].clone(), step["reason"].clone(), outputs)
    };
    running.wait_until("the jobs", || outcome("web", 3).1 == "done");
    let failed = outcome("web", 2);
    assert_eq!((&failed.0, &failed.1), (&"p/a".into(), &"failed".into()), "{failed:?}");
    let done = outcome("web", 1);
    assert_eq!((&done.1, done.3), (&"done".into(), 1), "{done:?}");
    for (from, to, step, queue) in [
        ("[step.a]\n", "[step.b]\nwas = \"a\"\n", "p/b", "web"),
        ("[source.web]\n", "[source.net]\nwas = \"web\"\n", "p/b", "net"),
    ] {
        project.change("p.toml", from, to);
        project.change("p.toml", "from = \"web\"", &format!("from = \"{queue}\""));
        project.tidegate(&["reload"]).done();
        assert_eq!(outcome(queue, 2), (step.into(), failed.1.clone(), failed.2.clone(), failed.3));
        assert_eq!(outcome(queue, 1), (step.into(), done.1.clone(), done.2.clone(), done.3));
    }
    // Both names of the step find its errors.
    let kept = project.tidegate(&["errors", "retry", "--step", "other", "--yes"]).failed(1);
    assert!(kept.stderr.contains("step `other` is unknown"), "{}", kept.stderr);
    project.write("a.rhai", "fn process(job) { job }");
    project.tidegate(&["reload"]).done();
    assert_eq!(
        project.tidegate(&["errors", "retry", "--step", "p/b", "--yes"]).done().stdout,
        "1 error retried: the jobs run again now\n"
    );
    running.wait_until("the job", || outcome("net", 2).1 == "done");
    running.stop().done();
}

#[test]
fn a_pipeline_becomes_an_instance_and_an_instance_gets_another_name() {
    let steps = "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n\
                 [step.copy]\nfrom = \"in\"\nto = \"out\"\n[sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\n";
    let project = Project::new().file("shop.toml", steps).file("in.ndjson", jobs(1..=2));
    let run = || {
        let run = project.tidegate(&["run", ".", "--until-idle"]).done();
        project.append("in.ndjson", jobs([project.ids_so_far("out.ndjson").len() as u64 + 1]));
        run
    };
    run();
    for (instance, old) in [("eu", "shop"), ("europe", "shop-eu")] {
        let header = format!(
            "[pipeline]\nwas = \"${{each.old}}\"\n[pipeline.each]\n{instance} = {{ old = \"{old}\" }}\n"
        );
        project.write("shop.toml", header + steps);
        run();
        assert_eq!(
            project.status(&format!("shop-{instance}/copy"), &format!("shop-{instance}/in"))["configured"],
            true
        );
    }
    assert_eq!(project.ids_so_far("out.ndjson"), [1, 2, 3, 4]);
    project.assert_sound();
}
