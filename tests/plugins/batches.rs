//! Batches that end early: tests of slow jobs, and of jobs with large outputs.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::RangeInclusive;

use serde_json::Value;

use super::{folder, project};
use crate::project::{Project, ids, jobs};

/// A step of the plugin without effects, with `workers` workers.
fn calm(run: &str, workers: usize) -> Project {
    let step = format!("run = {run}\ntimeout = \"1m\"");
    let settings = format!("[runner]\nworkers = {workers}\nplugins = \"{}\"\n", folder().display());
    let project = project("").file("tidegate.toml", settings);
    project.change("p.toml", "timeout = \"10s\"\n", &step);
    project
}

/// Jobs with this request.
fn asking(ids: RangeInclusive<u64>, what: &str) -> String {
    ids.fold(String::new(), |mut text, id| {
        writeln!(text, "{{\"id\":{id},{what}}}").expect("texts take everything");
        text
    })
}

#[test]
fn what_a_batch_gives_is_bounded_together_and_comes_once() {
    const QUICK: u64 = 3_000;
    const WIDE: u64 = 32;
    for isolate in ["", "\nisolate = \"process\""] {
        // The fast ones make the batches large, so that all wide ones are in one.
        let project = calm(&format!("\"plugin:flaky/calm\"{isolate}"), 1).file(
            "in.ndjson",
            jobs(1..=QUICK) + asking(QUICK + 1..=QUICK + WIDE, "\"do\":\"spread\",\"mib\":4").as_str(),
        );
        let mut running = project.start(&["run", "."]);
        let peak = running.peak_mib();
        running.outcome().done();
        let wide = (QUICK + 1..=QUICK + WIDE).flat_map(|id| [id; 4]);
        let expected: Vec<u64> = (1..=QUICK).chain(wide).collect();
        assert_eq!(ids(&project.read("out.ndjson")), expected, "{isolate}");
        println!("peak{isolate}: {peak} MiB");
        assert!(peak < WIDE * 4, "{isolate}: all outputs were held at one time, or more: {peak} MiB");
    }
}

#[test]
fn a_process_that_ends_a_batch_early_is_given_the_rest_of_it() {
    // A script after the plugin reduces the outputs, so that only the process knows their size.
    let ways = [("\"do\":\"spread\",\"mib\":3", 6), ("\"do\":\"wait\",\"ms\":30", 40)];
    for (what, count) in ways {
        let project = calm("[\"plugin:flaky/calm\", \"narrow.rhai\"]\nisolate = \"process\"", 1)
            .file("in.ndjson", jobs(1..=3_000) + asking(3_001..=3_000 + count, what).as_str())
            .file("narrow.rhai", "fn process(job) { if job.id > 3000 { #{ id: job.id } } }");
        let run = project.run().done();
        assert!(!run.stderr.contains("process"), "{what}: {}", run.stderr);
        let each = if what.contains("spread") { 3 } else { 1 };
        let expected: Vec<u64> = (3_001..=3_000 + count).flat_map(|id| vec![id; each]).collect();
        assert_eq!(ids(&project.read("out.ndjson")), expected, "{what}");
    }
}

#[test]
fn slow_jobs_of_a_pure_step_run_on_as_many_threads_as_there_are_workers() {
    const WORKERS: usize = 4;
    let slow = "fn process(job) { let n = 0; while n < 20000 { n += 1; } job }";
    let ways = [
        ("\"plugin:flaky/calm\"", 20),
        ("\"plugin:flaky/calm\"\nisolate = \"process\"", 20),
        // Here the script is slow.
        ("[\"slow.rhai\", \"plugin:flaky/calm\"]", 0),
    ];
    for (run, ms) in ways {
        let project = calm(run, WORKERS)
            .file("slow.rhai", slow)
            .file("in.ndjson", asking(1..=120, &format!("\"do\":\"place\",\"ms\":{ms}")));
        project.run().done();
        let out = project.read("out.ndjson");
        assert_eq!(ids(&out), (1..=120).collect::<Vec<_>>(), "{run}");
        let place =
            |line: &str| serde_json::from_str::<Value>(line).expect("it is JSON")["place"].to_string();
        let places: BTreeSet<String> = out.lines().map(place).collect();
        // Slow ones run beside the workers.
        assert!(places.len() >= WORKERS, "{run}: {places:?}");
    }
}
