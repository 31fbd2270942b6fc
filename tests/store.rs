//! Looking after the store.

use std::fs;

use crate::project::{Project, jobs};

fn project() -> Project {
    let project = Project::new()
        .file(
            "p.toml",
            "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\nfollow = true\n\
             [step.give]\nfrom = \"in\"\nto = \"given\"\n[queue.given]\nretain = \"forever\"\n\
             [sink.out]\nfrom = \"given\"\ntype = \"null\"\n",
        )
        .file("in.ndjson", "{\"id\":1,\"name\":\"a job that can be found\"}\n");
    project.tidegate(&["run", ".", "--until-idle"]).done();
    project
}

#[test]
fn verify_says_what_is_wrong_with_a_damaged_copy() {
    let project = project();
    let whole = project.tidegate(&["store", "verify"]).done();
    assert!(whole.stdout.ends_with("everything is in order\n"), "{}", whole.stdout);
    let mut bytes = fs::read(project.path().join(".tidegate/store.redb")).expect("the store can be read");
    let name = b"a job that can be found";
    let mut damaged = 0;
    for at in 0..bytes.len() - name.len() {
        if bytes[at..].starts_with(name) {
            bytes[at] ^= 1;
            damaged += 1;
        }
    }
    assert!(damaged > 0, "the job stands in the file as it is");
    project.write("copy/store.redb", bytes);
    let broken = project.tidegate(&["store", "verify", "--data", "copy"]).failed(1);
    assert!(
        broken.stderr.contains("queue `p/given`: the jobs from 1 on cannot be read"),
        "{}",
        broken.stderr
    );
    let json = project.tidegate(&["store", "verify", "--data", "copy", "--format", "json"]).failed(1).stdout;
    let report: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
    assert!(report["problems"].as_array().is_some_and(|problems| !problems.is_empty()), "{report}");
    project.tidegate(&["store", "verify"]).done();
}

#[test]
fn verify_says_the_same_of_a_running_runner() {
    let project = project();
    project.append("in.ndjson", jobs(2..=1000));
    project.tidegate(&["run", ".", "--until-idle"]).done();
    let stopped = project.tidegate(&["store", "verify"]).done().stdout;
    let mut running = project.start(&["run", "."]);
    running.wait_until("its socket", || project.path().join(".tidegate/control.sock").exists());
    assert_eq!(project.tidegate(&["store", "verify"]).done().stdout, stopped);
    running.stop().done();
    assert!(stopped.starts_with("1,000 jobs on 1 queue"), "{stopped}");
}
