//! Tests of bindings that name other inputs: no job has the delivery hash of another one.

use std::collections::BTreeSet;

use crate::project::{Project, jobs};

/// A step takes jobs of two sources. Its queue remembers each delivery by its hash.
fn project() -> Project {
    let sources = ["x", "y", "z"].map(|name| {
        format!("[source.{name}]\ntype = \"file\"\npath = \"{name}.ndjson\"\nformat = \"ndjson\"\n")
    });
    let step = "[step.pick]\nalts = { a = \"x\", b = \"z\" }\nrun = \"pick.rhai\"\nto = \"done\"\n\
                [queue.done]\nretain = \"forever\"\ndedupe = \"7d\"\n\
                [sink.others]\nfrom = [\"y\"]\ntype = \"null\"\n[sink.ends]\nfrom = \"done\"\ntype = \"null\"\n";
    Project::new()
        .file("p.toml", format!("{}{step}", sources.concat()))
        .file("pick.rhai", "fn process(job) { if \"a\" in job { job.a } else { job.b } }")
        .file("x.ndjson", jobs(1..=3))
        .file("y.ndjson", jobs(21..=25))
        .file("z.ndjson", jobs(11..=13))
}

fn until_idle(project: &Project) {
    project.tidegate(&["run", ".", "--until-idle"]).done();
}

/// Ids of the delivered jobs, after a check that no two have the same hash.
fn delivered(project: &Project) -> Vec<u64> {
    let jobs = project.json(&["queue", "show", "p/done", "--limit", "100"]);
    let jobs = jobs.as_array().expect("a list");
    let hashes: BTreeSet<&str> = jobs.iter().filter_map(|job| job["origin"]["hash"].as_str()).collect();
    assert_eq!(hashes.len(), jobs.len(), "{jobs:?}");
    let mut ids: Vec<u64> = jobs.iter().filter_map(|job| job["job"]["id"].as_u64()).collect();
    ids.sort_unstable();
    ids
}

#[test]
fn a_binding_that_is_pointed_at_another_input_repeats_no_hash_of_its_first_one() {
    let project = project();
    until_idle(&project);
    assert_eq!(delivered(&project), [1, 2, 3, 11, 12, 13]);
    project.change("p.toml", "a = \"x\"", "a = \"y\"");
    project.change("p.toml", "from = [\"y\"]", "from = [\"x\"]");
    until_idle(&project);
    assert_eq!(delivered(&project), [1, 2, 3, 11, 12, 13, 21, 22, 23, 24, 25]);
    // Its first input has the hashes that it had, and both exchange their places in a running runner.
    for path in ["x.ndjson", "z.ndjson"] {
        project.change("p.toml", &format!("path = \"{path}\""), &format!("path = \"{path}\"\nfollow = true"));
    }
    let mut running = project.started();
    project.change("p.toml", "{ a = \"y\", b = \"z\" }", "{ a = \"z\", b = \"x\" }");
    project.change("p.toml", "from = [\"x\"]", "from = [\"y\"]");
    project.tidegate(&["reload"]).done();
    project.append("x.ndjson", jobs(4..=9));
    project.append("z.ndjson", jobs(14..=19));
    running.wait_until("all jobs", || delivered(&project).len() == 23);
    project.change("p.toml", "{ a = \"z\", b = \"x\" }", "{ a = \"x\", b = \"z\" }");
    project.tidegate(&["reload"]).done();
    project.append("x.ndjson", jobs([10]));
    running.wait_until("the job of the first input", || delivered(&project).len() == 24);
    running.stop().done();
    project.assert_sound();
}

#[test]
fn the_hash_of_a_job_stays_when_its_input_is_renamed_and_when_the_store_is_moved() {
    let project = project();
    until_idle(&project);
    project.change("p.toml", "a = \"x\"", "a = \"w\"");
    project.change("p.toml", "[source.x]", "[source.w]\nwas = \"x\"");
    until_idle(&project);
    project.tidegate(&["store", "export", "export.ndjson"]).done();
    std::fs::remove_dir_all(project.path().join(".tidegate")).expect("no runner has it");
    project.tidegate(&["store", "import", "export.ndjson"]).done();
    // The other input of the binding is a third one now, which the export has kept.
    project.tidegate(&["replay", "p/pick", "--input", "a", "--from", "1", "--yes"]).done();
    until_idle(&project);
    assert_eq!(delivered(&project), [1, 2, 3, 11, 12, 13]);
    project.change("p.toml", "a = \"w\"", "a = \"y\"");
    project.change("p.toml", "from = [\"y\"]", "from = [\"w\"]");
    until_idle(&project);
    assert_eq!(delivered(&project).len(), 11);
}
