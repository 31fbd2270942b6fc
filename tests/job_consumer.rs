//! Job consumer: histories of jobs whose workers report in any order, with a command as the worker and with an external
//! worker that reports over HTTP.
//!
//! A worker processes at most three jobs at once. The watermark passes a job once it and all jobs before it are done.

use std::fs;
use std::process::Command;

use crate::http_client::{Client, NDJSON, address};
use crate::outside;
use crate::project::{Project, ids, jobs};
use crate::running::Running;

/// A command that names its job when it begins, and ends when the test writes to the pipe of the job.
const WORKER: &str = "read job; echo \"$job\" >> started.ndjson; read report < \"gate/$1\"; echo \"$job\"\n";

/// Consumer whose worker is a command, with these settings of its queuer.
struct Consumer {
    project: Project,
    running: Running,
    client: Client,
}

impl Consumer {
    fn new(settings: &str) -> Self {
        let toml = format!(
            "[source.in]\ntype = \"http\"\n[queue.in]\nretain = \"forever\"\n\
             [step.work]\nfrom = \"in\"\nrun = \"builtin:exec\"\nto = \"out\"\nerrors = \"failed\"\n\
             exec = {{ command = [\"sh\", \"work.sh\", \"{{id}}\"] }}\ntimeout = \"10m\"\n\
             queuer = {{ strategy = \"fifo\", max_processing = 3{settings} }}\n\
             [sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\n"
        );
        let project = Project::new()
            .file("tidegate.toml", "[runner]\nlisten = \"127.0.0.1:0\"\nshutdown_timeout = \"5s\"\n")
            .file("p.toml", toml)
            .file("work.sh", WORKER)
            .file("started.ndjson", "");
        fs::create_dir(project.path().join("gate")).expect("a folder can be made");
        for id in 1..=9 {
            let pipe = Command::new("mkfifo").arg(project.path().join(format!("gate/{id}"))).status();
            assert!(pipe.is_ok_and(|pipe| pipe.success()), "a pipe can be made");
        }
        let (running, client) = start(&project);
        Self { project, running, client }
    }

    /// Jobs with these ids arrive.
    fn arrive(&mut self, ids: std::ops::RangeInclusive<u64>) {
        assert_eq!(self.client.request("POST /sources/p/in", &[NDJSON], &jobs(ids)).status, 202);
    }

    /// The worker reports a job as done.
    fn report(&self, id: u64) {
        fs::write(self.project.path().join(format!("gate/{id}")), "done\n")
            .expect("the worker reads the pipe");
    }

    /// Waits until exactly these jobs were begun since the last clearing, in any order.
    fn begins(&mut self, wanted: &[u64]) {
        let begun = || {
            let mut begun = self.project.ids_so_far("started.ndjson");
            begun.sort_unstable();
            begun
        };
        self.running.wait_until("the jobs that begin", || begun().len() >= wanted.len());
        assert_eq!(begun(), wanted);
    }

    /// Waits until the watermark is here.
    fn watermark(&mut self, index: u64) {
        let status = || self.project.status("p/work", "p/in")["watermark"] == index;
        self.running.wait_until("the watermark", status);
    }

    fn kill_and_start(self) -> Self {
        let Self { project, running, .. } = self;
        running.kill();
        project.write("started.ndjson", "");
        let (running, client) = start(&project);
        Self { project, running, client }
    }

    fn delivered(&self) -> Vec<u64> {
        ids(&self.project.read_if_there("out.ndjson"))
    }

    fn waits_for_delivery(&mut self, wanted: &[u64]) {
        let out = || self.project.ids_so_far("out.ndjson").len() >= wanted.len();
        self.running.wait_until("the deliveries", out);
        assert_eq!(self.delivered(), wanted);
    }
}

fn start(project: &Project) -> (Running, Client) {
    let mut running = project.started();
    let client = Client::new(&address(&mut running));
    (running, client)
}

#[test]
fn a_command_is_given_three_jobs_at_once_and_the_watermark_passes_what_is_done_in_front() {
    let mut consumer = Consumer::new("");
    consumer.arrive(1..=4);
    consumer.begins(&[1, 2, 3]);
    consumer.report(3);
    consumer.begins(&[1, 2, 3, 4]);
    consumer.report(2);
    consumer.arrive(5..=6);
    consumer.begins(&[1, 2, 3, 4, 5]);
    consumer.watermark(0);
    consumer.report(1);
    consumer.watermark(3);
    consumer.begins(&[1, 2, 3, 4, 5, 6]);
    consumer.report(6);
    consumer.waits_for_delivery(&[3, 2, 1, 6]);
    let project = &consumer.project;
    consumer.running.wait_until("four ends", || project.status("p/work", "p/in")["taken"] == 4);
    // Jobs whose end is durable are not begun again.
    let mut consumer = consumer.kill_and_start();
    consumer.arrive(7..=7);
    consumer.begins(&[4, 5, 7]);
    for id in [7, 4, 5] {
        consumer.report(id);
    }
    consumer.watermark(7);
    assert_eq!(consumer.delivered().len(), 7);
    consumer.running.stop().done();
    consumer.project.assert_sound();
}

#[test]
fn nothing_begins_past_search_ahead_until_the_first_job_is_done() {
    let mut consumer = Consumer::new(", max_search_ahead = 5");
    consumer.arrive(1..=6);
    consumer.begins(&[1, 2, 3]);
    consumer.report(2);
    consumer.begins(&[1, 2, 3, 4]);
    consumer.report(3);
    consumer.begins(&[1, 2, 3, 4, 5]);
    consumer.report(4);
    consumer.waits_for_delivery(&[2, 3, 4]);
    consumer.report(5);
    consumer.waits_for_delivery(&[2, 3, 4, 5]);
    consumer.begins(&[1, 2, 3, 4, 5]);
    let shown = consumer.project.tidegate(&["job", "show", "p/in/6"]).done();
    assert!(shown.stdout.contains("past search-ahead"), "{}", shown.stdout);
    consumer.arrive(7..=7);
    consumer.report(1);
    consumer.begins(&[1, 2, 3, 4, 5, 6, 7]);
    consumer.watermark(5);
}

#[test]
fn results_in_order_survive_a_kill_and_their_commands_do_not_run_again() {
    let mut consumer = Consumer::new(", ordered = true");
    consumer.arrive(1..=6);
    consumer.begins(&[1, 2, 3]);
    consumer.report(3);
    consumer.begins(&[1, 2, 3, 4]);
    consumer.report(2);
    consumer.begins(&[1, 2, 3, 4, 5]);
    let shown = |consumer: &Consumer| consumer.project.tidegate(&["job", "show", "p/in/3"]).done().stdout;
    let waits = "it is finished, and delivered in the order of the input: after job 1";
    let project = &consumer.project;
    let is_told = || project.tidegate(&["job", "show", "p/in/3"]).done().stdout.contains(waits);
    consumer.running.wait_until("the result in the store", is_told);
    assert!(consumer.delivered().is_empty());
    let stored = |job: &serde_json::Value| job["waits_for"] == "order";
    let page = |project: &Project| project.json(&["delayed", "list"]);
    let project = &consumer.project;
    let both =
        || page(project)["jobs"].as_array().expect("a list").iter().filter(|job| stored(job)).count() == 2;
    consumer.running.wait_until("both results in the store", both);
    let mut consumer = consumer.kill_and_start();
    consumer.begins(&[1, 4, 5]);
    assert!(shown(&consumer).contains(waits), "{}", shown(&consumer));
    // It cannot be cancelled: its result is known.
    let refused = consumer.project.tidegate(&["job", "cancel", "p/in/3", "--yes"]).failed(1);
    refused.says("has finished it, and delivers its result after those of the jobs before it");
    consumer.report(1);
    consumer.waits_for_delivery(&[1, 2, 3]);
    consumer.begins(&[1, 4, 5, 6]);
    for id in [6, 5, 4] {
        consumer.report(id);
    }
    consumer.waits_for_delivery(&[1, 2, 3, 4, 5, 6]);
    consumer.running.stop().done();
    consumer.project.assert_sound();
}

#[test]
fn an_external_worker_holds_three_jobs_and_reports_them_late_twice_and_in_any_order() {
    for ordered in ["", ", ordered = true"] {
        let settings = format!("queuer = {{ strategy = \"fifo\", max_pending = 3{ordered} }}");
        let project = outside::project(&settings);
        let (mut running, mut client, _) = outside::started(&project);
        outside::push(&mut client, 1..=7);
        let mut tokens: Vec<String> =
            (1..=3).map(|index| outside::token(&mut running, &mut client, index)).collect();
        let watermark = |index: u64| project.status("p/submit", "p/in")["watermark"] == index;
        // The worker takes job 4 when it has reported another job.
        assert_eq!(outside::outcome(&mut client, 4)["status"], "waiting");
        let report = |client: &mut Client, index: usize, token: &str| {
            assert_eq!(outside::say(client, index as u64, token, "").status, 200);
        };
        report(&mut client, 3, &tokens[2]);
        tokens.push(outside::token(&mut running, &mut client, 4));
        report(&mut client, 2, &tokens[1]);
        tokens.push(outside::token(&mut running, &mut client, 5));
        // A second report has no effect.
        report(&mut client, 2, &tokens[1]);
        assert!(watermark(0));
        report(&mut client, 1, &tokens[0]);
        running.wait_until("the watermark", || watermark(3));
        tokens.push(outside::token(&mut running, &mut client, 6));
        report(&mut client, 6, &tokens[5]);
        tokens.push(outside::token(&mut running, &mut client, 7));
        running.kill();
        // The worker keeps its jobs, and none is submitted again.
        let (mut running, mut client, _) = outside::started(&project);
        for index in [7, 4, 5] {
            assert_eq!(outside::outcome(&mut client, index as u64)["attempts"], 1);
            report(&mut client, index, &tokens[index - 1]);
        }
        running.wait_until("the watermark", || watermark(7));
        running.stop().done();
        let mut out = ids(&project.read("out.ndjson"));
        if ordered.is_empty() {
            out.sort_unstable();
        }
        assert_eq!(out, [1, 2, 3, 4, 5, 6, 7]);
        project.assert_sound();
    }
}
