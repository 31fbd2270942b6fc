//! Demonstration of ordered submission to a ledger: checks its description sentence by sentence, against a
//! ledger that the test controls.

mod fake;
mod toy;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use self::fake::Fake;
use crate::http_client::{Client, address};
use crate::project::Project;

/// Delay after a failed attempt in the test of it, instead of 15 seconds.
const WINDOW: Duration = Duration::from_secs(1);
const STEP: (&str, &str) = ("grid/submit", "grid/batches");

/// Batches of these services, numbered from 1, each of which touches a key of its own.
fn batches<'a>(services: impl IntoIterator<Item = &'a str>) -> String {
    let mut lines = String::new();
    for (id, service) in (1..).zip(services) {
        let own = [format!("{service}/{id}")];
        let batch = json!({ "id": id, "service": service, "quantity": 1, "inputs": own, "outputs": own });
        let _ = writeln!(lines, "{batch}"); // into a text
    }
    lines
}

/// The demonstration with these batches, in front of a controlled ledger, with short waits.
fn in_front_of(ledger: &Fake, batches: &str) -> Project {
    let project = Project::demonstration("ledger");
    for other in ["ledger.toml", "transfers.toml"] {
        std::fs::remove_file(project.path().join(other)).expect("it is there");
    }
    std::fs::remove_file(project.path().join("tidegate.toml")).expect("it is there");
    project.write("data/batches.ndjson", batches);
    project.write("status.rhai", "fn status(answers) { answers }");
    project.change("grid.toml", "${LEDGER:-127.0.0.1:8484}", &ledger.address());
    let hosts =
        ["a", "b", "c", "d", "e", "f"].map(|name| format!("{name} = \"http://{}\"\n", ledger.address()));
    project.change("grid.toml", "http.hosts]\n", &format!("http.hosts]\n{}", hosts.concat()));
    // A request that the ledger holds must not run into a timeout.
    project.change("grid.toml", "queuer = \"services\"", "queuer = \"services\"\ntimeout = \"10m\"");
    hasten(&project);
    project
}

fn hasten(project: &Project) {
    project.change("grid.toml", "every = \"1s\"", "every = \"10ms\"");
    project.change("grid.toml", "delay_window = \"15s\"", "delay_window = \"40ms\"");
    let retry = "max_attempts = 10, initial = \"1ms\", max = \"2ms\"";
    project.change("grid.toml", "max_attempts = 10, quick = 3, quick_delay = \"1s\"", retry);
}

/// The monitor asks for several batches at once.
fn asking_for_many(project: &Project, batch: usize) {
    let toml = project.read("grid.toml");
    let one =
        toml.lines().find(|line| line.contains("/jobs/ledger/submissions/{0.handle}")).expect("it is there");
    let url = one.replace("/jobs/ledger/submissions/{0.handle}\"", "/statuses\", method = \"POST\"");
    project.change("grid.toml", one, &url);
    project.change("grid.toml", "batch = 1\n", &format!("batch = {batch}\n"));
}

fn in_parallel(project: &Project) {
    let to = "strategy = \"one-round-parallel\"\nreads = \"inputs\"\nwrites = \"outputs\"";
    project.change("grid.toml", "strategy = \"one-round-serial\"", to);
}

fn committed(project: &Project) -> Vec<u64> {
    let committed = project.read_if_there("out/committed.ndjson");
    committed.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()?["id"].as_u64()).collect()
}

/// The batches that failed, with their reasons.
fn invalid(project: &Project) -> Vec<(u64, String)> {
    let told = |error: &Value| Some((error["job"]["id"].as_u64()?, error["message"].as_str()?.to_owned()));
    project.queue("grid/invalid").iter().filter_map(told).collect()
}

fn status(project: &Project) -> Value {
    project.status(STEP.0, STEP.1)
}

fn place(all: &[u64], id: u64) -> usize {
    all.iter().position(|other| *other == id).unwrap_or_else(|| panic!("no {id} in {all:?}"))
}

#[test]
fn one_batch_of_each_service_goes_a_round_so_that_a_thousand_of_one_starve_nobody() {
    let ledger = Fake::answering("committed");
    let others = ["b", "c", "d", "e", "f", "b", "c", "d", "e", "f"];
    let project = in_front_of(&ledger, &batches(std::iter::repeat_n("a", 1000).chain(others)));
    let mut running = project.start(&["run", "."]);
    running.wait_until("the others", || ledger.posted().iter().filter(|id| **id > 1000).count() == 10);
    let posted = ledger.posted();
    assert!(running.kill());
    let before = posted[..=place(&posted, 1010)].iter().filter(|id| **id <= 1000).count();
    assert!(before < 20, "{before} of the thousand went first");
    // The first round has one batch of each service.
    assert_eq!(
        posted[..6].iter().collect::<BTreeSet<_>>(),
        [1, 1001, 1002, 1003, 1004, 1005].iter().collect()
    );
}

#[test]
fn what_is_in_the_submitters_hands_is_not_queued_again_meanwhile() {
    let ledger = Fake::answering("committed");
    ledger.state().holds = vec![1];
    let project = in_front_of(&ledger, &batches(["a", "a", "b", "b", "b"]));
    let mut running = project.start(&["run", "."]);
    running.wait_until("the other service", || committed(&project).len() == 3);
    assert_eq!((ledger.times(1), ledger.times(2)), (1, 0));
    ledger.release();
    running.outcome().done();
    assert_eq!(ledger.times(1), 1);
    assert_eq!(committed(&project)[3..], [1, 2]);
}

#[test]
fn a_batch_is_pending_then_valid_and_what_is_committed_or_invalid_is_never_submitted_again() {
    let ledger = Fake::answering("pending");
    let project = in_front_of(&ledger, &batches(["a", "b", "a", "b"]));
    let mut running = project.started();
    running.wait_until("both", || status(&project)["pending"] == 2);
    // After a kill it is still polled, and is not submitted again.
    assert!(running.kill());
    let first =
        |id| ledger.state().posted.iter().find(|posted| posted.id == id).and_then(|posted| posted.number);
    let (a, b) = (first(1).expect("taken"), first(2).expect("taken"));
    ledger.state().statuses.extend([(a, "valid"), (b, "invalid")]);
    let mut running = project.started();
    running.wait_until("the first is valid", || status(&project)["valid"] == 1);
    // A valid batch never becomes pending again.
    ledger.state().statuses.insert(a, "pending");
    running.wait_until_it_says("a job that is valid cannot become pending");
    ledger.state().statuses.insert(a, "committed");
    running.wait_until("the next ones", || ledger.posted().len() == 4);
    ledger.state().otherwise = "committed";
    running.outcome().done();
    project.run().done().says("nothing to do");
    assert_eq!(invalid(&project).iter().map(|(id, _)| *id).collect::<Vec<_>>(), [2]);
    assert_eq!(committed(&project).into_iter().collect::<BTreeSet<_>>(), BTreeSet::from([1, 3, 4]));
    assert_eq!([1, 2, 3, 4].map(|id| ledger.times(id)), [1; 4]);
}

#[test]
fn what_is_unknown_is_submitted_again_before_anything_else_of_its_service() {
    let ledger = Fake::answering("pending");
    let project = in_front_of(&ledger, &batches(["a", "a", "b"]));
    let mut running = project.start(&["run", "."]);
    running.wait_until("both", || ledger.state().asked.len() > 4);
    let number = ledger.state().posted.iter().find(|posted| posted.id == 1).and_then(|posted| posted.number);
    ledger.state().statuses.insert(number.expect("taken"), "unknown");
    running.wait_until("the second submission", || ledger.times(1) == 2);
    // It is submitted again, under another key, and the first one is not polled any more.
    let keys: BTreeSet<_> =
        ledger.state().posted.iter().filter(|one| one.id == 1).map(|one| one.key.clone()).collect();
    assert_eq!(keys.len(), 2, "{keys:?}");
    let asked = ledger.state().asked.len();
    running.wait_until("more questions", || ledger.state().asked.len() > asked + 6);
    assert!(!ledger.state().asked[asked + 2..].contains(&vec![number.expect("taken")]));
    ledger.state().otherwise = "committed";
    running.outcome().done();
    let posted = ledger.posted();
    assert_eq!(posted.iter().filter(|id| **id < 3).collect::<Vec<_>>(), [&1, &1, &2]);
    assert_eq!(committed(&project).len(), 3);
}

#[test]
fn a_failed_attempt_is_delayed_for_the_window_and_holds_its_service_only() {
    let ledger = Fake::answering("committed");
    ledger.state().busy.insert(1, 3);
    let project = in_front_of(&ledger, &batches(["a", "a", "b", "b", "b"]));
    project.change("grid.toml", "delay_window = \"40ms\"", "delay_window = \"1s\"");
    let ran = project.run().done();
    let times: Vec<_> = ledger.state().posted.iter().filter(|one| one.id == 1).map(|one| one.at).collect();
    assert_eq!(times.len(), 4);
    // The window counts from the beginning of an attempt, some time before its request is here. But an attempt begins
    // when the one before it was answered.
    assert!(times.windows(3).all(|some| some[2] - some[0] >= WINDOW * 9 / 10), "{times:?}");
    assert!(times[3] - times[0] >= WINDOW * 18 / 10, "{times:?}");
    assert!(place(&ledger.posted(), 2) == 7, "{:?}", ledger.posted());
    // Every start, answer and error is reported.
    for attempt in 1..=4 {
        assert!(ran.stderr.contains(&format!("batch 1 of a: attempt {attempt}")), "{}", ran.stderr);
    }
    assert_eq!(ran.stderr.matches("batch 1: the ledger is busy (429)").count(), 3, "{}", ran.stderr);
    assert_eq!(ran.stderr.matches(": submission ").count(), 5, "{}", ran.stderr);
    // The window of the demonstration.
    let toml = Project::demonstration("ledger").read("grid.toml");
    assert!(toml.contains("delay_window = \"15s\"") && toml.contains("max_attempts = 10"), "{toml}");
}

#[test]
fn the_window_begins_with_the_attempt_however_long_that_takes() {
    let ledger = Fake::answering("committed");
    ledger.state().holds = vec![1];
    ledger.state().busy.insert(1, 1);
    let project = in_front_of(&ledger, &batches(["a"]));
    project.change("grid.toml", "delay_window = \"40ms\"", "delay_window = \"1h\"");
    let mut running = project.start(&["run", "."]);
    running.wait_until("the attempt", || ledger.state().held == 1);
    let began = Timestamp::now();
    running.pause();
    let released = Timestamp::now();
    ledger.release();
    let due = || project.json(&["delayed", "list"])["jobs"][0]["due"].as_str().map(str::to_owned);
    running.wait_until("the delay", || due().is_some());
    let due: Timestamp = due().and_then(|due| due.parse().ok()).expect("a time");
    let hour = SignedDuration::from_hours(1);
    assert!(due <= began + hour && due < released + hour, "{due} after {began}");
    running.stop().done();
}

#[test]
fn a_busy_ledger_is_asked_ten_times_and_then_the_service_goes_on_without_the_batch() {
    let ledger = Fake::answering("committed");
    ledger.state().busy.insert(1, 1000);
    let project = in_front_of(&ledger, &batches(["a", "a"]));
    project.change("grid.toml", "delay_window = \"40ms\"", "delay_window = \"1ms\"");
    project.run().done();
    assert_eq!((ledger.times(1), ledger.times(2)), (10, 1));
    let (id, why) = &invalid(&project)[0];
    assert!(*id == 1 && why.contains("the ledger is busy"), "{why}");
    // It is kept: an operator can retry it.
    ledger.state().busy.clear();
    project.tidegate(&["errors", "retry", "grid/invalid", "--yes"]).done();
    project.run().done();
    assert_eq!(committed(&project), [2, 1]);
}

#[test]
fn batches_of_several_services_are_posted_at_the_same_time() {
    let ledger = Fake::answering("committed");
    ledger.state().holds = (1..=5).collect();
    let project = in_front_of(&ledger, &batches(["a", "b", "c", "d", "e"]));
    let mut running = project.start(&["run", "."]);
    running.wait_until("five at once", || ledger.state().held == 5);
    ledger.release();
    running.outcome().done();
}

#[test]
fn the_ledger_has_no_more_batches_in_hand_than_it_may() {
    let ledger = Fake::answering("pending");
    let project = in_front_of(&ledger, &batches(["a", "b", "c", "d", "e"]));
    project.change("grid.toml", "max_pending = 100", "max_pending = 2");
    let mut running = project.started();
    running.wait_until("the reason", || {
        let third = project.tidegate(&["job", "show", "grid/batches/3"]).stdout;
        status(&project)["pending"] == 2
            && third.contains("2 of 2 jobs run or are pending, as `max_pending` allows")
    });
    assert_eq!(ledger.posted().len(), 2);
    // A new process counts what the ledger has from the one before.
    assert!(running.kill());
    let mut running = project.started();
    running.wait_until("a poll", || !ledger.state().asked.is_empty());
    let number = ledger.state().posted[0].number.expect("taken");
    ledger.state().statuses.insert(number, "committed");
    running.wait_until("the third", || ledger.posted().len() == 3);
    running.wait_until("it is pending", || status(&project)["pending"] == 2);
    assert_eq!(ledger.posted().len(), 3);
    ledger.state().otherwise = "committed";
    running.outcome().done();
    assert_eq!((1..=5).map(|id| ledger.times(id)).collect::<Vec<_>>(), [1; 5]);
}

#[test]
fn a_stop_lets_submissions_finish_that_run_and_starts_no_others() {
    let ledger = Fake::answering("committed");
    ledger.state().holds = vec![1];
    let project = in_front_of(&ledger, &batches(["a", "b", "c", "a"]));
    project.change("grid.toml", "max_processing = 16", "max_processing = 1");
    let mut running = project.start(&["run", "."]);
    running.wait_until("the first", || ledger.state().held == 1);
    running.terminate();
    running.wait_until_it_says("stopping");
    ledger.release();
    running.outcome().done();
    assert_eq!(ledger.posted(), [1]);
    // Its completion was recorded.
    project.run().done();
    assert_eq!([1, 2, 3, 4].map(|id| ledger.times(id)), [1; 4]);
    assert_eq!(committed(&project).len(), 4);
}

#[test]
fn all_pending_batches_are_asked_for_by_service_the_oldest_check_first() {
    let ledger = Fake::answering("pending");
    // It answers when it has all of them, so that they become pending long before the first poll.
    ledger.state().holds = (1..=9).collect();
    let project = in_front_of(&ledger, &batches(["a", "b", "a", "c", "b", "a", "c", "b", "c"]));
    project.change("grid.toml", "every = \"10ms\"", "every = \"2s\"");
    project.change("grid.toml", "concurrency = 4", "concurrency = 1");
    in_parallel(&project);
    asking_for_many(&project, 3);
    let mut running = project.start(&["run", "."]);
    running.wait_until("all submissions", || ledger.state().held == 9);
    ledger.release();
    let services = || {
        let state = ledger.state();
        let of = |number: &u64| state.posted.iter().find(|one| one.number == Some(*number)).map(|one| one.id);
        state
            .asked
            .iter()
            .map(|asked| asked.iter().filter_map(of).collect::<BTreeSet<u64>>())
            .collect::<Vec<_>>()
    };
    running.wait_until("two polls", || services().len() >= 6);
    let by_service: BTreeSet<BTreeSet<u64>> = [vec![1, 3, 6], vec![2, 5, 8], vec![4, 7, 9]]
        .into_iter()
        .map(|ids| ids.into_iter().collect())
        .collect();
    let asked = services();
    assert_eq!(asked[..3].iter().cloned().collect::<BTreeSet<_>>(), by_service, "{asked:?}");
    // The submissions of the first poll are polled first again.
    assert_eq!(asked[..3], asked[3..6]);
    ledger.state().otherwise = "committed";
    running.outcome().done();
}

#[test]
fn news_from_outside_have_it_ask_at_once_and_at_most_once_a_second() {
    let ledger = Fake::answering("pending");
    let project = in_front_of(&ledger, &batches(["a", "b"]));
    project.change("grid.toml", "every = \"10ms\"", "every = \"1h\"");
    project.write("tidegate.toml", "[runner]\nlisten = \"127.0.0.1:0\"\n");
    asking_for_many(&project, 10);
    project.change("grid.toml", "batch_by = \"lane\"", "batch_by = \"any\"");
    let mut running = project.start(&["run", "."]);
    let mut client = Client::new(&address(&mut running));
    running.wait_until("both", || status(&project)["pending"] == 2);
    assert!(ledger.state().asked.is_empty());
    let begun = Instant::now();
    let mut news = || client.request("POST /monitor/grid/submit", &[], "");
    let answer = news();
    assert_eq!((answer.status, &answer.body["polls"]), (202, &json!("now")), "{answer:?}");
    running.wait_until("the first poll", || ledger.state().asked.len() == 1);
    // Several events cause one poll, after the interval. On a busy machine that may be over before the last event.
    ledger.state().otherwise = "committed";
    for _ in 0..5 {
        let polls = news().body["polls"].clone();
        assert!(polls != "now" || begun.elapsed() >= Duration::from_secs(1), "{polls} {:?}", begun.elapsed());
    }
    let sent = begun.elapsed();
    running.wait_until("the second poll", || ledger.state().asked.len() >= 2);
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    running.wait_until("the end", || committed(&project).len() == 2);
    running.stop().done();
    let asked = ledger.state().asked.len();
    assert!(asked as u64 <= 2 + sent.as_secs(), "{asked} polls, and the events took {sent:?}");
}

#[test]
fn answers_that_nobody_asked_for_are_discarded_and_reported() {
    let ledger = Fake::answering("pending");
    let project = in_front_of(&ledger, &batches(["a", "b"]));
    project.write("status.rhai", "fn status(answers) { answers[\"777\"] = \"committed\"; answers }");
    let mut running = project.started();
    running.wait_until_it_says("the monitor answered for jobs that were not polled");
    running.wait_until("both", || status(&project)["pending"] == 2);
    assert!(committed(&project).is_empty());
    ledger.state().otherwise = "committed";
    running.outcome().done();
    assert_eq!(committed(&project).len(), 2);
}

#[test]
fn batches_of_one_service_that_touch_different_things_go_together() {
    let ledger = Fake::answering("pending");
    let batch = |id: u64, inputs: &[&str], outputs: &[&str]| {
        json!({ "id": id, "service": "a", "quantity": 1, "inputs": inputs, "outputs": outputs }).to_string()
    };
    let all = [
        batch(1, &["x"], &["x"]),
        batch(2, &["y"], &[]),
        batch(3, &["y"], &["z"]),
        // It reads the output of the first one; the next one reads its own output.
        batch(4, &["x"], &["w"]),
        batch(5, &["w"], &[]),
    ];
    let project = in_front_of(&ledger, &all.join("\n"));
    in_parallel(&project);
    let mut running = project.started();
    running.wait_until("three", || status(&project)["pending"] == 3);
    let asked = ledger.state().asked.len();
    running.wait_until("more questions", || ledger.state().asked.len() > asked + 6);
    assert_eq!(ledger.posted().into_iter().collect::<BTreeSet<_>>(), BTreeSet::from([1, 2, 3]));
    ledger.state().otherwise = "committed";
    running.outcome().done();
    assert_eq!(ledger.posted()[3..], [4, 5]);
}
