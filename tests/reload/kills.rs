//! Reloads under load: the files change at random moments, and the executable is killed in between.
//!
//! Jobs flow all the time. A change is a script, a queue, a sink, a queuer with its lanes, a retry policy or a whole
//! pipeline. It may also be a plugin, the name of a part, or a mistake. It is carried out by a command, a signal, the
//! watch, or the next start after a kill. Some are rolled back, to any earlier generation.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::files::{Change, Files, LANES, QUEUES, REJECTED};
use crate::project::{Project, ids, jobs};
use crate::random::Random;
use crate::running::Running;

const RELOADS: u64 = 40;
/// The most jobs that come with a change.
const JOBS: u64 = 300;
/// One of this many changes ends with a kill.
const KILLS: u64 = 4;
/// One of this many changes is rolled back.
const ROLLBACKS: u64 = 5;
/// Longest wait for jobs between two changes.
const PACE: Duration = Duration::from_millis(300);

#[test]
fn reloads_under_load_with_kills_in_between_lose_and_repeat_nothing_and_keep_the_order() {
    let seed = Random::seed();
    println!("again with TIDEGATE_TEST_SEED={seed}");
    let mut play = Play::new(seed);
    let mut running = play.start();
    for number in 1..=reloads() {
        play.feed();
        let change = play.files.change(&mut play.random);
        play.files.write(&play.project);
        let kills = play.random.below(KILLS) == 0;
        println!(
            "change {number}: {change:?}, {} jobs{}",
            play.fed,
            if kills { ", then a kill" } else { "" }
        );
        running = if kills { play.kill(running, change) } else { play.reload(running, change) };
    }
    let generations = play.generation();
    running.stop().done().says("stopped");
    play.files.finish(&play.project);
    play.project.run().done();
    println!("{} jobs, {generations} generations", play.fed);
    assert!(generations > reloads() / 3, "only {generations} generations ran");
    play.check();
}

fn reloads() -> u64 {
    match std::env::var("TIDEGATE_TEST_RELOADS") {
        Ok(text) => text.parse().expect("TIDEGATE_TEST_RELOADS is a number"),
        Err(_) => RELOADS,
    }
}

/// One run of the test.
struct Play {
    seed: u64,
    random: Random,
    project: Project,
    files: Files,
    /// Jobs that each source has.
    fed: u64,
    /// Number of rollbacks. Each may let versions go back once.
    rollbacks: usize,
}

impl Play {
    fn new(seed: u64) -> Self {
        let (project, files) = (Project::new(), Files::new());
        project.write("tidegate.toml", "[runner]\nplugins = \"plugins\"\n");
        fs::create_dir(project.path().join("out")).expect("folders can be made");
        files.write(&project);
        let mut play = Self { seed, random: Random::new(seed), project, files, fed: 0, rollbacks: 0 };
        play.feed();
        play
    }

    /// Adds jobs to both sources.
    fn feed(&mut self) {
        let more = 1 + self.random.below(JOBS);
        let text = jobs(self.fed + 1..=self.fed + more);
        self.project.append("in.ndjson", &text);
        self.project.append("extra.ndjson", &text);
        self.fed += more;
    }

    /// Starts a runner, which follows its files or waits to be asked.
    fn start(&mut self) -> Running {
        if self.files.have_a_mistake() {
            // A generation that was rolled back to would go on.
            self.project.tidegate(&["run", ".", "--from-files"]).failed(78);
            self.files.mend(&self.project);
        }
        let watches = self.random.below(2) == 0;
        let arguments: &[&str] = if watches { &["run", "."] } else { &["run", ".", "--no-watch"] };
        let mut running = self.project.start(arguments);
        let project = &self.project;
        // Other commands are answered without a runner, too.
        running.wait_until("its answer", || project.tidegate(&["reload", "."]).code == Some(0));
        self.files.note_run(true);
        running
    }

    /// Has a change carried out, and lets some jobs pass.
    fn reload(&mut self, running: Running, change: Change) -> Running {
        let mut running = running;
        let mistake = change == Change::Mistake;
        match self.random.below(3) {
            0 => {
                let outcome = self.project.tidegate(&["reload", "."]);
                let expected = if mistake { 78 } else { 0 };
                assert_eq!(outcome.code, Some(expected), "seed {}: {change:?}, {outcome:?}", self.seed);
                self.files.note_run(!mistake);
            }
            1 => running.signal("HUP"),
            // The watch, or a later change.
            _ => {}
        }
        if self.random.below(ROLLBACKS) == 0 {
            self.roll_back();
        }
        let grown = self.project.len("out/seen.ndjson") + self.random.below(20 * JOBS);
        let began = Instant::now();
        let project = &self.project;
        running.wait_until("jobs", || project.len("out/seen.ndjson") > grown || began.elapsed() > PACE);
        running
    }

    /// Goes back to the generation before, or to any earlier one. The files stay as they are.
    fn roll_back(&mut self) {
        let current = self.generation();
        let to = if self.random.below(3) == 0 { 1 + self.random.below(current) } else { current };
        let to = to.to_string();
        let arguments: &[&str] =
            if to == current.to_string() { &["rollback"] } else { &["rollback", to.as_str()] };
        let outcome = self.project.tidegate(arguments);
        // A plugin cannot go back to a library that is gone, nor can it go back to what the watch has just replaced.
        let said = &outcome.stderr;
        let reasons =
            ["the library of plugin", "no earlier generation", "has no generation", "is in force already"];
        let is_refused = reasons.iter().any(|reason| said.contains(reason));
        assert!(outcome.code == Some(0) || is_refused, "seed {}: {outcome:?}", self.seed);
        self.rollbacks += usize::from(outcome.code == Some(0));
        self.files.note_run(false);
    }

    /// Kills the runner while it follows a change or goes back, and starts it again. Sometimes the files change in
    /// between.
    fn kill(&mut self, running: Running, change: Change) -> Running {
        let mut rollback = None;
        match self.random.below(4) {
            0 => {}
            1 => {
                rollback = Some(self.project.start(&["rollback"]));
                self.rollbacks += 1;
            }
            _ => running.signal("HUP"),
        }
        let (began, until) = (Instant::now(), Duration::from_micros(self.random.below(80_000)));
        while began.elapsed() < until {
            std::thread::yield_now();
        }
        let said = running.stderr();
        assert!(running.kill(), "seed {}: it ended before a kill, {change:?}:\n{said}", self.seed);
        assert!(
            !said.contains("panic") && !said.contains("the step stops"),
            "seed {}: {change:?}:\n{said}",
            self.seed
        );
        if rollback.is_some() {
            self.files.note_run(false);
        }
        // It may have been answered or not.
        drop(rollback.map(Running::outcome));
        if self.random.below(3) == 0 {
            self.files.change(&mut self.random);
            self.files.write(&self.project);
        }
        self.start()
    }

    /// Number of the current generation.
    fn generation(&self) -> u64 {
        let history = self.project.json(&["history"]);
        let entries = history["entries"].as_array().expect("a list");
        entries.iter().filter_map(|entry| entry["generation"].as_u64()).max().unwrap_or(0)
    }

    fn check(&self) {
        let seed = self.seed;
        self.project.assert_sound();
        let delivered: Vec<u64> = (1..=self.fed).filter(|id| id % REJECTED != 0).collect();
        let seen = lines(&self.project.read("out/seen.ndjson"));
        assert_each_once(&seen, &delivered, &format!("seed {seed}: an ordered step"));
        self.assert_grows(&seen, "second");
        for queue in QUEUES {
            let of_queue: Vec<Value> = seen.iter().filter(|job| job["queue"] == queue).cloned().collect();
            assert!(numbers(&of_queue, "id").is_sorted(), "seed {seed}: {queue}");
            self.assert_grows(&of_queue, "first");
        }
        // A rollback lets the sink return to an earlier file, so that only each file has an order.
        let files: Vec<Vec<Value>> =
            self.files.sinks().map(|sink| lines(&self.project.read_if_there(sink))).collect();
        assert_each_once(&files.concat(), &delivered, &format!("seed {seed}: a step that picks its jobs"));
        let places: BTreeMap<u64, usize> = numbers(&seen, "id").into_iter().zip(0..).collect();
        for (file, lane) in files.iter().flat_map(|file| (0..LANES).map(move |lane| (file, lane))) {
            let of_lane: Vec<Value> = file.iter().filter(|job| job["lane"] == lane).cloned().collect();
            let order = numbers(&of_lane, "id").into_iter().map(|id| places.get(&id));
            assert!(order.is_sorted(), "seed {seed}: lane {lane}");
            self.assert_grows(&of_lane, "third");
        }
        let native = lines(&self.project.read("out/native.ndjson"));
        assert_eq!(native.len() as u64, self.fed, "seed {seed}: a step with a plugin");
        let by = |job: &Value| job["by"].as_str().and_then(|by| by.parse::<u64>().ok());
        let by: Vec<Option<u64>> = native.iter().map(by).collect();
        assert!(by.is_sorted() && by.iter().all(Option::is_some), "seed {seed}: {by:?}");
        let copied = ids(&self.project.read("out/extra.ndjson"));
        assert_eq!(copied, (1..=self.fed).collect::<Vec<_>>(), "seed {seed}: a pipeline that was removed");
        let failed = self.project.queue("p/failed");
        let failed: Vec<u64> = failed.iter().filter_map(|record| record["job"]["id"].as_u64()).collect();
        let rejected: Vec<u64> = (1..=self.fed).filter(|id| id % REJECTED == 0).collect();
        assert_eq!(failed, rejected, "seed {seed}: the error queue");
    }

    /// Asserts that a version goes back from one job to the next only by a rollback.
    fn assert_grows(&self, jobs: &[Value], field: &str) {
        let goes_back = |pair: &&[Value]| pair[0][field].as_u64() > pair[1][field].as_u64();
        let back: Vec<&[Value]> = jobs.windows(2).filter(goes_back).collect();
        let (seed, rollbacks) = (self.seed, self.rollbacks);
        assert!(
            back.len() <= rollbacks,
            "seed {seed}: {rollbacks} rollbacks, and `{field}` goes back in {back:?}"
        );
    }
}

fn lines(text: &str) -> Vec<Value> {
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    text.lines().map(parse).collect()
}

fn numbers(jobs: &[Value], field: &str) -> Vec<u64> {
    jobs.iter().filter_map(|job| job[field].as_u64()).collect()
}

/// Asserts that these are the jobs, in any order. A failure names those that are missing or doubled.
fn assert_each_once(jobs: &[Value], expected: &[u64], what: &str) {
    let mut times: BTreeMap<u64, i64> = expected.iter().map(|&id| (id, -1)).collect();
    for id in numbers(jobs, "id") {
        *times.entry(id).or_default() += 1;
    }
    let wrong: Vec<(u64, i64)> = times.into_iter().filter(|&(_, times)| times != 0).collect();
    assert!(wrong.is_empty(), "{what}: jobs, and how often too much (-1: lost): {wrong:?}");
}
