//! Tests of `tidegate store`: verification, compaction, export and import.

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
    assert!(damaged > 0, "the job is unchanged in the file");
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
fn an_export_makes_the_same_store_again_elsewhere() {
    let project = project();
    project.append("in.ndjson", jobs(2..=3000));
    project.tidegate(&["run", ".", "--until-idle"]).done();
    let exported = project.tidegate(&["store", "export", "all.ndjson"]).done();
    assert_eq!(exported.stdout, "3,000 jobs on 1 queue, with all their records → all.ndjson\n");
    let streamed = project.tidegate(&["store", "export", "-"]).done().stdout;
    assert!(streamed == project.read("all.ndjson"), "a file and standard output get the same");
    let imported = project.tidegate(&["store", "import", "all.ndjson", "--data", "copy"]).done();
    assert_eq!(imported.stdout, "3,000 jobs on 1 queue, with all their records → copy\n");
    let again = project.tidegate(&["store", "export", "-", "--data", "copy"]).done().stdout;
    assert!(again == streamed, "an export of an import is the same");
    project.tidegate(&["store", "verify", "--data", "copy"]).done();
    let nothing_new = project.tidegate(&["run", ".", "--until-idle", "--data", "copy"]).done();
    assert!(nothing_new.stderr.contains("nothing to do"), "{}", nothing_new.stderr);
    project
        .tidegate(&["store", "import", "all.ndjson"])
        .failed(1)
        .says("is not empty, and an import would replace it");
    let cut =
        project.tidegate_given(&["store", "import", "-", "--data", "third"], &streamed[..streamed.len() / 2]);
    cut.failed(1).says("line ");
    assert!(!project.path().join("third/store.redb").exists());
    let left = fs::read_dir(project.path().join(".tidegate")).expect("it can be listed");
    let names: Vec<_> = left.map(|entry| entry.expect("it can be listed").file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().contains("export")), "{names:?}");
}

#[test]
fn a_running_runner_is_exported_but_not_compacted() {
    let project = project();
    let running = project.started();
    let exported = project.tidegate(&["store", "export", "all.ndjson", "--format", "json"]).done().stdout;
    let inventory: serde_json::Value = serde_json::from_str(&exported).expect("it is JSON");
    assert_eq!(inventory["jobs"], 1);
    project.tidegate(&["store", "compact"]).failed(1).says("only a stopped store can be compacted");
    running.stop().done();
    let compacted = project.tidegate(&["store", "compact", "--format", "json"]).done().stdout;
    let sizes: serde_json::Value = serde_json::from_str(&compacted).expect("it is JSON");
    assert!(sizes["after"].as_u64() <= sizes["before"].as_u64() && sizes["after"] != 0, "{sizes}");
    project.tidegate(&["store", "verify"]).done();
    project.tidegate(&["store", "compact", "--data", "none"]).failed(1).says("does not exist yet");
}

#[test]
fn verify_says_the_same_of_a_running_runner() {
    let project = project();
    project.append("in.ndjson", jobs(2..=1000));
    project.tidegate(&["run", ".", "--until-idle"]).done();
    let stopped = project.tidegate(&["store", "verify"]).done().stdout;
    let running = project.started();
    assert_eq!(project.tidegate(&["store", "verify"]).done().stdout, stopped);
    running.stop().done();
    assert!(stopped.starts_with("1,000 jobs on 1 queue"), "{stopped}");
}
