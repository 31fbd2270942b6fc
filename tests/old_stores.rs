//! Stores that older versions wrote: this version opens each one, shows what is in it, and finishes its work. Every
//! job is delivered once: none is lost and none is repeated. `stores/README.md` describes how the files were made.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::http_client::{Client, JSON, address};
use crate::project::{Project, ids, jobs};

/// All jobs but the rejected ones, 5 and 7, and the filtered one, 3.
const KEPT: [u64; 12] = [1, 2, 4, 6, 8, 9, 10, 11, 13, 15, 17, 18];

/// A folder with the configuration, the inputs and the state that a runner of this version left.
fn project(version: u32) -> Project {
    let stores = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/stores");
    let project = Project::new();
    for folder in [stores.join("pipeline"), stores.join(format!("v{version}"))] {
        for file in files(&folder) {
            let name = file.file_name().expect("a file has a name").to_string_lossy().into_owned();
            match name.strip_suffix(".gz") {
                Some(name) => project.write(format!("state/{name}"), unpacked(&file)),
                // With its permissions.
                None => drop(fs::copy(&file, project.path().join(name)).expect("files can be copied")),
            }
        }
    }
    project
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder is there");
    entries.map(|entry| entry.expect("it can be listed").path()).collect()
}

fn unpacked(file: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    let packed = fs::File::open(file).expect("the file is there");
    flate2::read::GzDecoder::new(packed).read_to_end(&mut bytes).expect("it is gzip");
    bytes
}

/// The answers of the commands that show what is in a store.
fn view(project: &Project) -> String {
    let mut view = String::new();
    let mut show = |arguments: &[&str], answer: String| {
        let answer = without_ages(&project.stable(&answer));
        writeln!(view, "$ tidegate {}\n{answer}", arguments.join(" ")).expect("a text takes every line");
    };
    let counts: Vec<String> = rows(&project.json(&["status"])["steps"]).iter().map(counts).collect();
    show(&["status"], counts.join("\n") + "\n");
    for arguments in [&["delayed", "list"][..], &["errors", "list", "--all"], &["queue", "list"]] {
        show(arguments, project.tidegate(arguments).done().stdout);
    }
    for job in ["in/1", "in/5", "in/7", "in/9", "kept/1", "kept/2", "kept/3", "kept/5", "kept/10", "http/1"] {
        let arguments = ["job", "show", &format!("p/{job}")];
        let outcome = project.tidegate(&arguments);
        show(&arguments, format!("{}{}", outcome.stdout, outcome.stderr));
    }
    view
}

/// Durations since or until a fixed time as `AGE`: they change from run to run.
fn without_ages(text: &str) -> String {
    let mut stable = String::new();
    for (position, piece) in text.split_inclusive(' ').enumerate() {
        let follows = position > 0 && (stable.ends_with("since ") || stable.ends_with("due in "));
        let age = piece.find(|c: char| !c.is_ascii_alphanumeric()).filter(|_| follows);
        match age {
            Some(end) if piece.starts_with(|c: char| c.is_ascii_digit()) => {
                stable.push_str("AGE");
                stable.push_str(&piece[end..]);
            }
            _ => stable.push_str(piece),
        }
    }
    stable
}

fn rows(list: &Value) -> Vec<Value> {
    list.as_array().expect("a list").clone()
}

/// The counts of `status`, except those that depend on the time of day.
fn counts(row: &Value) -> String {
    let counted = row.as_object().expect("a map").iter();
    let kept = counted.filter(|(name, value)| {
        !["oldest", "per_second", "since", "time"].contains(&name.as_str())
            && **value != Value::Null
            && **value != 0
    });
    kept.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

/// Lets what was held back go on, and runs everything to its end. Answers standard output.
fn finish(project: &Project, version: u32) -> String {
    project.write("p.toml", project.read("p.toml").replace("mended = false", "mended = true"));
    project.write("go", "");
    // The file that the old runner read is gone, as after a rotation.
    project.write("in.ndjson", if version == 1 { jobs([11, 13, 15, 17, 18]) } else { jobs([18]) });
    if version < 3 {
        project.tidegate(&["errors", "drop", "p/failed/2", "--yes"]).done();
        project.tidegate(&["errors", "retry", "p/failed/3", "--yes"]).done();
    } else {
        project.tidegate(&["delayed", "now", "p/again", "--yes"]).done();
        project.tidegate(&["delayed", "now", "p/late", "--yes"]).done();
    }
    if version >= 4 {
        project.tidegate(&["step", "resume", "p/told"]).done();
    }
    project.tidegate(&["run", ".", "--until-idle"]).done().stdout
}

/// The ids on a queue, of which none comes twice.
fn once(project: &Project, queue: &str) -> BTreeSet<u64> {
    let jobs = project.queue(queue);
    let ids: BTreeSet<u64> = jobs.iter().map(|job| job["id"].as_u64().expect("an id")).collect();
    assert_eq!(ids.len(), jobs.len(), "{queue}: {jobs:?}");
    ids
}

fn assert_everything_is_there_once(project: &Project, version: u32, printed: &str) {
    let kept = BTreeSet::from(KEPT);
    assert_eq!(once(project, "p/kept"), kept);
    assert_eq!(once(project, "p/stuck"), kept);
    let mut even = ids(&project.read("even.ndjson"));
    even.sort_unstable();
    assert_eq!(even, [2, 4, 6, 8, 10, 18]);
    let failed: Vec<u64> =
        project.queue("p/failed").iter().filter_map(|record| record["index"].as_u64()).collect();
    assert_eq!(failed, [5, 7, 9], "the records stay, also of what was retried");
    if version >= 2 {
        let pairs = project.queue("p/pairs");
        let part = |name: &str| -> BTreeSet<u64> {
            pairs.iter().map(|pair| pair[name]["id"].as_u64().expect("an id")).collect()
        };
        let later: BTreeSet<u64> = KEPT.into_iter().filter(|id| *id > 6).collect();
        assert_eq!((part("b"), part("a").len()), (later.clone(), later.len()));
        let printed: BTreeSet<u64> = ids(printed).into_iter().collect();
        assert_eq!(
            printed,
            BTreeSet::from([9, 11, 13, 15, 17, 18]),
            "jobs with a begun attempt are printed again"
        );
    }
    if version >= 3 {
        for queue in ["p/again", "p/due", "p/begun"] {
            assert_eq!(once(project, queue), kept, "{queue}");
        }
        assert_eq!(once(project, "p/took"), BTreeSet::from([1, 2]));
        let asked = project.queue("p/asked");
        let by_the_monitor: Vec<_> = asked.iter().filter(|job| job.is_string()).collect();
        assert_eq!(
            (asked.len(), by_the_monitor),
            (KEPT.len(), vec![&json!("the external system has the handle of 1")])
        );
    }
    if version >= 4 {
        assert_eq!(once(project, "p/told"), kept);
        assert!(
            project.queue("p/told").contains(&json!({ "id": 8, "by": "us" })),
            "it was completed by an external system"
        );
    }
}

/// A key that an older version took is known.
fn assert_keys_are_known(project: &Project) {
    let mut running = project.start(&["run", "."]);
    let mut client = Client::new(&address(&mut running));
    let answer = client.request("POST /sources/p/http", &[JSON], "{\"id\":2}");
    assert_eq!((answer.status, &answer.body), (200, &json!({ "job": "p/http/2", "known": true })));
    running.stop().done();
}

fn goes_on(version: u32) -> String {
    let project = project(version);
    let view = view(&project);
    let printed = finish(&project, version);
    assert_everything_is_there_once(&project, version, &printed);
    if version >= 3 {
        assert_keys_are_known(&project);
    }
    let again = project.tidegate(&["run", ".", "--until-idle"]).done();
    assert_eq!(again.stdout, "", "nothing is left to do");
    assert_everything_is_there_once(&project, version, &printed);
    let verified = project.tidegate(&["store", "verify"]).done().stdout;
    assert!(verified.ends_with("everything is in order\n"), "{verified}");
    view
}

#[test]
fn a_store_of_version_1_goes_on_where_it_was() {
    assert_snapshot!(goes_on(1));
}

#[test]
fn a_store_of_version_2_goes_on_where_it_was() {
    assert_snapshot!(goes_on(2));
}

#[test]
fn a_store_of_version_3_goes_on_where_it_was() {
    assert_snapshot!(goes_on(3));
}

#[test]
fn a_store_of_version_4_goes_on_where_it_was() {
    assert_snapshot!(goes_on(4));
}

#[test]
fn a_store_of_version_5_goes_on_where_it_was() {
    assert_snapshot!(goes_on(5));
}

#[test]
fn a_store_of_version_6_goes_on_where_it_was() {
    assert_snapshot!(goes_on(6));
}

#[test]
fn a_store_of_version_7_goes_on_where_it_was() {
    assert_snapshot!(goes_on(7));
}

#[test]
fn a_store_of_version_8_goes_on_where_it_was() {
    assert_snapshot!(goes_on(8));
}

#[test]
fn a_store_of_version_9_goes_on_where_it_was() {
    assert_snapshot!(goes_on(9));
}

#[test]
fn a_store_of_version_10_goes_on_where_it_was() {
    assert_snapshot!(goes_on(10));
}

#[test]
fn a_store_of_version_11_goes_on_where_it_was() {
    assert_snapshot!(goes_on(11));
}

#[test]
fn a_store_of_version_12_goes_on_where_it_was_with_the_commits_in_its_log() {
    assert_snapshot!(goes_on(12));
}
