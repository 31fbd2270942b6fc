//! Possession of a store: no second runner opens it, no other user reads it, and a run whose store is removed
//! ends at once.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::http_client::{Client, JSON, address};
use crate::project::Project;
use crate::running::Running;

fn project() -> Project {
    let settings = "[runner]\nlisten = \"127.0.0.1:0\"\n";
    let toml = "[source.in]\ntype = \"http\"\n[queue.in]\nretain = \"forever\"\n\
                [sink.out]\nfrom = \"in\"\ntype = \"file\"\npath = \"out.ndjson\"\n";
    Project::new().file("tidegate.toml", settings).file("p.toml", toml)
}

fn started(project: &Project) -> (Running, Client) {
    let mut running = project.start(&["run", "."]);
    let client = Client::new(&address(&mut running));
    (running, client)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o7777
}

#[test]
fn a_second_runner_is_refused_though_the_lock_file_was_removed_under_the_first() {
    let project = project();
    let (running, mut client) = started(&project);
    client.push("p/in", r#"{"id":1}"#);
    fs::remove_file(project.path().join(".tidegate/lock")).expect("the lock file can be removed");
    let refused = project.run().failed(1).says("is in use by");
    let holder = format!("process {}", running.pid());
    assert!(
        refused.stderr.contains(&holder) || refused.stderr.contains("another process"),
        "{}",
        refused.stderr
    );
    // Commands reach the working runner.
    project.tidegate(&["status"]).done();
    client.push("p/in", r#"{"id":2}"#);
    running.stop().done();
    project.assert_sound();
    assert_eq!(project.queue("p/in").len(), 2);
}

#[test]
fn a_job_is_not_taken_when_the_data_folder_is_gone_and_the_run_ends() {
    let project = project();
    let (running, mut client) = started(&project);
    client.push("p/in", r#"{"id":1}"#);
    fs::remove_dir_all(project.path().join(".tidegate")).expect("the folder can be deleted");
    let answer = client.try_request("POST /sources/p/in", &[JSON], br#"{"id":2}"#);
    assert!(answer.as_ref().map_or(true, |answer| answer.status == 503), "{answer:?}");
    let outcome = running.outcome().failed(1);
    assert!(outcome.stderr.contains("store.redb` is missing: it or its folder was deleted"), "{outcome:?}");
}

#[test]
fn a_runner_whose_data_folder_was_replaced_leaves_the_new_one_alone() {
    let project = project();
    let (first, mut client) = started(&project);
    client.push("p/in", r#"{"id":1}"#);
    fs::rename(project.path().join(".tidegate"), project.path().join("moved")).expect("it can be moved");
    project.change("p.toml", "out.ndjson", "other.ndjson");
    let (second, mut other) = started(&project);
    other.push("p/in", r#"{"id":3}"#);
    let answer = client.try_request("POST /sources/p/in", &[JSON], br#"{"id":2}"#);
    assert!(answer.as_ref().map_or(true, |answer| answer.status == 503), "{answer:?}");
    first.outcome().failed(1).says("store.redb` is missing");
    // Its socket is still that of the second one.
    assert!(project.path().join(".tidegate/control.sock").exists());
    assert_eq!(project.queue("p/in").len(), 1);
    second.stop().done();
    project.assert_sound();
}

#[test]
fn a_data_folder_that_was_moved_away_and_back_is_the_same() {
    let project = project();
    let (running, mut client) = started(&project);
    client.push("p/in", r#"{"id":1}"#);
    let (data, elsewhere) = (project.path().join(".tidegate"), project.path().join("elsewhere"));
    fs::rename(&data, &elsewhere).expect("it can be moved away");
    fs::rename(&elsewhere, &data).expect("it can be moved back");
    client.push("p/in", r#"{"id":2}"#);
    running.stop().done();
    project.assert_sound();
    assert_eq!(project.queue("p/in").len(), 2);
}

#[test]
fn an_export_and_the_data_folder_are_closed_to_other_users_and_a_wider_folder_is_narrowed() {
    let project = project();
    let (running, mut client) = started(&project);
    client.push("p/in", r#"{"id":1}"#);
    let data = project.path().join(".tidegate");
    assert_eq!(mode(&data), 0o700);
    for name in ["store.redb", "attempts", "begun", "lock", "control.sock"] {
        assert_eq!(mode(&data.join(name)), 0o600, "{name}");
    }
    project.tidegate(&["store", "export", "all.ndjson"]).done();
    assert_eq!(mode(&project.path().join("all.ndjson")), 0o600);
    running.stop().done();
    fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).expect("it is our own");
    let (running, _) = started(&project);
    assert!(
        running.stderr().contains("access of other users to the data folder was removed"),
        "{}",
        running.stderr()
    );
    assert_eq!(mode(&data), 0o700);
    running.stop().done();
}
