//! Tests of refused stores: an unusable store is refused before any change, with the fix.

use std::fs;

use redb::TableDefinition;

use crate::project::{Project, jobs};

const PIPELINE: &str = "[sink.out]\nfrom = \"in\"\ntype = \"file\"\npath = \"out.ndjson\"\n\
                        [source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n";
const STORE: &str = ".tidegate/store.redb";

/// A project that has run.
fn project() -> Project {
    let project = Project::new().file("p.toml", PIPELINE).file("in.ndjson", jobs(1..=100));
    project.run().done();
    project.append("in.ndjson", jobs(101..=200));
    project
}

/// Runs with these bytes as the store, and returns the message.
fn refusal(project: &Project, store: &[u8]) -> String {
    project.write(STORE, store);
    let outcome = project.run().failed(1);
    assert_eq!(fs::read(project.path().join(STORE)).expect("it is there"), store, "it is left as it is");
    assert_eq!(project.read("out.ndjson"), jobs(1..=100), "nothing is touched");
    project.stable(&outcome.stderr)
}

#[test]
fn a_file_that_is_no_store_is_refused_with_what_to_do() {
    let project = project();
    let good = fs::read(project.path().join(STORE)).expect("it is there");
    let cases: [(&str, &[u8]); 5] = [
        ("zeros", &[0; 10_000]),
        ("empty", b""),
        ("cut short", &good[..good.len() / 2]),
        ("cut in the header", &good[..100]),
        ("another file", b"PRAGMA foreign_keys;"),
    ];
    // How large a store of these jobs is depends on how its commits fell.
    let half = format!("file_len={}, layout_len={}", good.len() / 2, good.len());
    let refused = |store| refusal(&project, store).replace(&half, "file_len=HALF, layout_len=WHOLE");
    let refusals: Vec<String> =
        cases.iter().map(|(what, store)| format!("{what}:\n{}", refused(store))).collect();
    insta::assert_snapshot!(refusals.join("\n"));
    project.write(STORE, good);
    project.run().done();
    assert_eq!(project.read("out.ndjson"), jobs(1..=200));
}

#[test]
fn a_store_of_a_newer_version_is_refused_and_left_to_it() {
    let project = project();
    let database = redb::Database::open(project.path().join(STORE)).expect("it opens");
    let change = database.begin_write().expect("it can be written");
    let table: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
    change
        .open_table(table)
        .and_then(|mut it| Ok(it.insert("format", &14_u32.to_le_bytes()[..]).map(drop)?))
        .expect("it can be changed");
    change.commit().expect("it can be committed");
    drop(database);
    let outcome = project.run().failed(1);
    insta::assert_snapshot!(project.stable(&outcome.stderr), @"error: the store `FOLDER/.tidegate/store.redb` was written by a newer Tidegate: its format is version 14, and this version reads up to version 13; use the newer Tidegate");
    assert_eq!(project.read("out.ndjson"), jobs(1..=100));
}

#[test]
fn a_second_runner_is_refused_and_told_who_the_first_one_is() {
    let following = format!("{PIPELINE}follow = true\n");
    let project = Project::new().file("p.toml", following).file("in.ndjson", jobs(1..=100));
    let mut first = project.start(&["run", "."]);
    first.wait_until("the output", || project.len("out.ndjson") == jobs(1..=100).len() as u64);
    let second = project.run().failed(1);
    let holder: serde_json::Value = serde_json::from_str(&project.read(".tidegate/lock")).expect("JSON");
    assert_eq!(holder["pid"], first.pid());
    let said = second.stderr.replace(env!("CARGO_BIN_EXE_tidegate"), "tidegate");
    assert!(said.contains(holder["since"].as_str().expect("a time")), "{said}");
    insta::assert_snapshot!(project.stable(&said.replace(&first.pid().to_string(), "PID")), @"error: the store `FOLDER/.tidegate/store.redb` is in use by process PID, `tidegate run .`, since TIME; only one runner can open it");
    // The first one was not affected.
    project.append("in.ndjson", jobs(101..=101));
    first.wait_until("more output", || project.len("out.ndjson") == jobs(1..=101).len() as u64);
    first.stop().done().says("stopped: 101 jobs");
}
