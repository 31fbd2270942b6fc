//! Tests of formats: sources read each of them, from a file to the output.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::project::{Project, ids, jobs};

/// A source with these settings, whose jobs are passed on unchanged.
fn source(settings: &str) -> Project {
    Project::new().file(
        "p.toml",
        format!(
            "[pipeline]\nerrors = \"failed\"\n[source.in]\ntype = \"file\"\n{settings}\n\
             [sink.out]\nfrom = \"in\"\ntype = \"file\"\npath = \"out.ndjson\"\n"
        ),
    )
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).expect("it can be compressed");
    encoder.finish().expect("it can be compressed")
}

#[test]
fn lines_become_strings() {
    let project = source("path = \"in.txt\"\nformat = \"lines\"").file("in.txt", "one\r\ntwo \"2\"\nünf");
    project.run().done();
    assert_eq!(project.read("out.ndjson"), "\"one\"\n\"two \\\"2\\\"\"\n\"ünf\"\n");
}

#[test]
fn csv_records_become_objects_by_their_header() {
    let project = source("path = \"in.csv\"\nformat = \"csv\"")
        .file("in.csv", "id,name\n1,\"a, b\"\n2,\"two\nlines\"\n3\n4,d\n");
    project.run().done();
    assert_eq!(
        project.read("out.ndjson"),
        "{\"id\":\"1\",\"name\":\"a, b\"}\n{\"id\":\"2\",\"name\":\"two\\nlines\"}\n{\"id\":\"4\",\"name\":\"d\"}\n"
    );
    // A record that lacks a field is reported with its line.
    let errors = project.tidegate(&["errors", "list"]).done().stdout;
    assert!(errors.contains("p/failed/1"), "{errors}");
    let error = project.tidegate(&["errors", "show", "p/failed/1"]).done().stdout;
    assert!(error.contains("in.csv:5"), "{error}");
}

#[test]
fn files_become_jobs_in_order_of_their_names() {
    let project = source("path = \"files\"\nformat = \"bytes\"")
        .file("files/b.txt", "two")
        .file("files/a.txt", "one")
        .file("files/c.bin", [0xff, 0x00]);
    project.run().done();
    let output = project.read("out.ndjson");
    let texts: Vec<serde_json::Value> =
        output.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect();
    assert_eq!(texts.len(), 3);
    assert_eq!((texts[0]["text"].as_str(), texts[1]["text"].as_str()), (Some("one"), Some("two")));
    assert_eq!((texts[2]["base64"].as_str(), texts[2]["size"].as_u64()), (Some("/wA="), Some(2)));
}

#[test]
fn compressed_files_are_read_by_their_ending() {
    let project =
        source("path = \"in.ndjson.gz\"\nformat = \"ndjson\"").file("in.ndjson.gz", gzip(&jobs(1..=20_000)));
    project.run().done();
    assert_eq!(project.read("out.ndjson"), jobs(1..=20_000));
    project.run().done().says("nothing to do");
}

#[test]
fn a_glob_is_read_in_order_of_name_and_new_files_come_last() {
    let project = source("path = \"day-*.ndjson*\"\nformat = \"ndjson\"")
        .file("day-2.ndjson", jobs(4..=6))
        .file("day-1.ndjson.gz", gzip(&jobs(1..=3)))
        .file("other.ndjson", jobs([99]));
    project.run().done();
    project.write("day-3.ndjson", jobs(7..=8));
    project.run().done().says("done: 2 jobs");
    assert_eq!(project.read("out.ndjson"), jobs(1..=8));
}

#[test]
fn a_line_of_16_mib_goes_through_every_part() {
    let project = Project::pipeline(
        "[step.first]\nfrom = \"in\"\nrun = \"same.rhai\"\ntimeout = \"10m\"\nto = \"between\"\n\
         [step.second]\nfrom = \"between\"\nrun = \"same.rhai\"\ntimeout = \"10m\"\nto = \"out\"\n",
    )
    .file("same.rhai", "fn process(job) { job }");
    let long = format!("{{\"id\":2,\"text\":\"{}\"}}\n", "x".repeat(16 << 20));
    let all = [jobs([1]), long, jobs([3])].concat();
    project.write("in.ndjson", &all);
    project.run().done().says("done: 3 jobs");
    // Without `assert_eq`, which would print it.
    assert!(project.read("out.ndjson") == all);
}

#[test]
fn carriage_returns_and_blank_lines_are_no_part_of_jobs() {
    let project = source("path = \"in.ndjson\"\nformat = \"ndjson\"")
        .file("in.ndjson", "{\"id\":1}\r\n\r\n\n  \n{\"id\":2}\r\n{\"id\":3}");
    project.run().done();
    assert_eq!(project.read("out.ndjson"), jobs(1..=3));
}

#[test]
fn a_last_line_without_newline_is_a_job_and_what_is_appended_later_is_the_next() {
    let project =
        source("path = \"in.ndjson\"\nformat = \"ndjson\"").file("in.ndjson", "{\"id\":1}\n{\"id\":2}");
    project.run().done().says("done: 2 jobs");
    project.run().done().says("nothing to do");
    project.append("in.ndjson", "\n{\"id\":3}\n");
    project.run().done().says("done: 1 job");
    assert_eq!(ids(&project.read("out.ndjson")), [1, 2, 3]);
}

#[test]
fn a_line_that_is_no_json_goes_to_the_error_queue_with_its_number_and_the_run_goes_on() {
    let project = source("path = \"in.ndjson\"\nformat = \"ndjson\"")
        .file("in.ndjson", "{\"id\":1}\n\n{\"id\":oops}\n{\"id\":2}\n");
    project.run().done().says("1 failed → p/failed");
    assert_eq!(project.read("out.ndjson"), jobs(1..=2));
    let error = project.tidegate(&["errors", "show", "p/failed/1"]).done().stdout;
    for part in ["p/failed/1: the job is not JSON", "in.ndjson:3", "p/in/2", "oops"] {
        assert!(error.contains(part), "`{part}` is missing in\n{error}");
    }
}
