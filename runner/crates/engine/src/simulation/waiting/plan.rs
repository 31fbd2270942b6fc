//! Plan: defines a random step that waits for everything possible, its jobs, and the result of each attempt.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::outside::handle;
use super::stored_states::{Outcome, Way};
use crate::simulation::dice::Dice;
use crate::simulation::jobs::{ATTEMPTS_MAX, step_toml};
use tidegate_model::{ExternalStatus, Missed};

/// Script of the step.
const SCRIPT: &str = r#"
fn process(job, ctx) {
    if (ctx.now / 1000) % 10 < job.shut { gate_closed("shut"); }
    if job.rejects { reject("no"); }
    if job.fails >= ctx.attempt {
        if job.fails % 2 == 0 { retry_in("3s", "busy"); }
        throw "not yet";
    }
    if job.pends { pending(`h${job.id}.${ctx.attempt}`); }
    if job.late { emit_in("out", #{ late: job.id }, "5s"); }
    #{ out: job, shown: job.id }
}
"#;

/// Limits of a monitor.
const TTL: &str = ", ttl = \"20s\"";
const TTL_AGAIN: &str = ", ttl = \"30s\", then = \"resubmit\"";
const CHECKS: &str = ", max_checks = 3";
const LIMITS: [&str; 5] = ["", "", TTL, CHECKS, TTL_AGAIN];

/// The gate, its use in the step, and the interval of its checks in milliseconds.
const GATE: &str = "[gate.g]\nrun = \"gate.rhai\"\nevery = \"3s\"\n";
const GATED: &str = "gate = \"g\"\n";
const GATE_EVERY: i64 = 3000;

/// Jobs that run one after the other.
const SERIAL: &str = "strategy = \"serial\"";

/// Number of the first strategies under which a step can claim jobs ahead.
const CLAIMING: usize = 3;

/// Queuers of the step: the settings, the order, whether there are lanes, and the least delay in milliseconds.
const STRATEGIES: [(&str, Order, bool, i64); 20] = [
    ("", Order::Stream, false, 0),
    ("strategy = \"fifo\", max_processing = 3", Order::Fifo, false, 0),
    ("strategy = \"fifo\", max_processing = 1", Order::Fifo, false, 0),
    ("strategy = \"fifo\", max_pending = 2", Order::Fifo, false, 0),
    ("strategy = \"rounds\", pause = \"1s\", max_pending = 1", Order::None, false, 0),
    ("strategy = \"fifo\", max_search_ahead = 4, rate = \"2/s\"", Order::Fifo, false, 0),
    ("strategy = \"fifo\", max_processing = 3, ordered = true", Order::Fifo, false, 0),
    ("strategy = \"fifo\", max_search_ahead = 5, ordered = true", Order::Fifo, false, 0),
    ("strategy = \"one-round-serial\", lane = \"lane\", ordered = true", Order::OfLane, true, 0),
    ("strategy = \"one-round-serial\", lane = \"lane\", free_lane_at = \"valid\"", Order::OfLane, true, 0),
    (
        "strategy = \"one-round-parallel\", lane = \"lane\", writes = \"writes\", ordered = true",
        Order::OfConflicts,
        true,
        0,
    ),
    (
        "strategy = \"rounds\", pause = \"1s\", lane = \"lane\", max_pending = 2, ordered = true",
        Order::None,
        true,
        0,
    ),
    (SERIAL, Order::OfAll, false, 0),
    ("strategy = \"serial\", rate = \"1/s\"", Order::OfAll, false, 0),
    ("strategy = \"one-round-serial\", lane = \"lane\", delay_window = \"2s\"", Order::OfLane, true, 2000),
    ("strategy = \"one-round-serial\", lane = \"lane\", max_processing = 2", Order::OfLane, true, 0),
    ("strategy = \"one-round-parallel\", lane = \"lane\", writes = \"writes\"", Order::OfConflicts, true, 0),
    (
        "strategy = \"one-round-parallel\", lane = \"lane\", writes = \"writes\", max_per_lane = 2",
        Order::OfConflicts,
        true,
        0,
    ),
    ("strategy = \"rounds\", pause = \"2s\", lane = \"lane\", max_per_lane = 1", Order::None, true, 0),
    ("strategy = \"priority\", priority = \"urgency\", aging = \"1s\"", Order::None, false, 0),
];

/// Job that controls its own outcome.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) id: u64,
    pub(crate) lane: String,
    /// Number of attempts that fail.
    fails: u32,
    /// Number of seconds, of every ten, in which it finds its gate closed.
    shut: i64,
    rejects: bool,
    /// Whether an external system finishes it.
    pends: bool,
    /// Whether it has a second output, which is delayed.
    pub(crate) late: bool,
    pub(crate) writes: Vec<String>,
    urgency: u64,
}

/// Order in which jobs block each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The step takes its jobs in order.
    Stream,
    /// Oldest first.
    Fifo,
    None,
    OfAll,
    OfLane,
    OfConflicts,
}

/// Origin of the jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feed {
    File,
    /// Clients push them, each under its own key …
    Keyed,
    /// … or several under one key.
    Together,
}

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent settings of a step")]
pub(crate) struct Plan {
    /// Files by name.
    pub(crate) files: Vec<(&'static str, String)>,
    /// Jobs of a file source, or of the pushing clients.
    pub(crate) jobs: Vec<String>,
    pub(crate) feed: Feed,
    /// Whether the step reads a queue.
    pub(crate) from_queue: bool,
    /// Settings of the queuer.
    queuer: &'static str,
    pub(crate) order: Order,
    pub(crate) has_lanes: bool,
    /// Whether results are delivered in the order of the input.
    pub(crate) ordered: bool,
    /// Whether a valid job frees its lane.
    pub(crate) frees_when_valid: bool,
    /// Maximum number of jobs that run or are pending, in all and in one lane.
    pub(crate) held_max: [usize; 2],
    /// Maximum number of jobs that run.
    pub(crate) at_once: usize,
    /// Whether attempts are begun durably, one by one.
    pub(crate) begins: bool,
    /// Interval of gate checks in milliseconds.
    pub(crate) gate: Option<i64>,
    /// Minimum delay of a failed job.
    window: i64,
    pub(crate) ticks: Option<(i64, Missed)>,
    /// Whether lanes halt at invalid jobs, and operators pause lanes.
    pub(crate) holds_lanes: bool,
    /// Statuses of jobs at the limits of its earlier monitors.
    earlier_limits: Vec<ExternalStatus>,
}

impl Plan {
    pub(crate) fn random(dice: &mut Dice) -> Self {
        // Some seeds are about claims, and their step claims its jobs ahead.
        let claims = dice.chance(25);
        let strategies = if claims { &STRATEGIES[..CLAIMING] } else { &STRATEGIES };
        let (queuer, order, has_lanes, window) = *dice.pick(strategies);
        let (monitored, gated, shown) =
            (claims || dice.chance(60), !claims && dice.chance(50), dice.chance(40));
        let picks = !queuer.is_empty() || monitored || gated;
        let order = if order == Order::Stream && picks { Order::Fifo } else { order };
        let mut plan = Self {
            files: Vec::new(),
            jobs: jobs(dice, monitored),
            feed: *dice.pick(&[Feed::File, Feed::Keyed, Feed::Together]),
            from_queue: true,
            queuer,
            order,
            has_lanes,
            ordered: queuer.contains("ordered = true"),
            frees_when_valid: queuer.contains("free_lane_at"),
            held_max: held_max(queuer),
            at_once: at_once(queuer),
            begins: picks && (monitored || shown),
            gate: gated.then_some(GATE_EVERY),
            window,
            ticks: dice.chance(40).then(|| ticks(dice)),
            holds_lanes: false,
            earlier_limits: Vec::new(),
        };
        let between = dice.chance(40);
        plan.from_queue = plan.is_pushed() || between;
        let mut toml = plan.around(dice, between);
        let from = if between { "q0" } else { "s0" };
        let step = step_toml(from, queuer, shown);
        let drops = dice.chance(20);
        toml += &if drops { step.replace("errors = \"failed\"", "errors = \"drop\"") } else { step };
        if gated {
            toml += GATED;
        }
        if !claims && dice.chance(50) {
            toml += "events = \"events\"\n";
        }
        if monitored {
            let batch_by = if has_lanes && dice.chance(50) { "lane" } else { "any" };
            let concurrency = *dice.pick(&["1", "2", "4"]);
            let monitor = "monitor = { run = \"status.rhai\", every = \"2s\", batch = 3";
            let limits = *dice.pick(&LIMITS);
            let more =
                [monitor, ", batch_by = \"", batch_by, "\", concurrency = ", concurrency, limits, " }\n"];
            toml += &more.concat();
        }
        plan.files = vec![
            ("tidegate.toml", "[runner]\nlisten = \"127.0.0.1:8484\"\n".into()),
            ("p.toml", toml),
            ("job.rhai", SCRIPT.into()),
            // These scripts are answered by `outside`.
            ("gate.rhai", "fn open(answer) { true }\n".into()),
            ("status.rhai", "fn status(jobs) { [] }\n".into()),
        ];
        plan
    }

    /// A plan whose jobs are claimed ahead, and run one after the other.
    pub(crate) fn of_claims_in_turn(dice: &mut Dice) -> Self {
        loop {
            let mut plan = Self::random(dice);
            let is_free = plan.has_monitor() && plan.gate.is_none() && !plan.has_events();
            if !is_free || !STRATEGIES[1..CLAIMING].iter().any(|(queuer, ..)| *queuer == plan.queuer) {
                continue;
            }
            let before = plan.queuer;
            plan.edit(|toml| toml.replace(before, SERIAL));
            // A job that is not finished ends the claims behind it.
            for job in plan.jobs.iter_mut().filter(|_| !dice.chance(20)) {
                *job = job.replace("\"pends\":true", "\"pends\":false");
            }
            return Self { queuer: SERIAL, order: Order::OfAll, at_once: at_once(SERIAL), ..plan };
        }
    }

    /// A plan whose lanes can be held. Its runs do not end on their own, so that each halted lane is resumed.
    pub(crate) fn of_held_lanes(dice: &mut Dice) -> Self {
        loop {
            let mut plan = Self::random(dice);
            if !plan.has_lanes || plan.ordered || !plan.is_pushed() && plan.ticks.is_none() {
                continue;
            }
            for (_, text) in &mut plan.files {
                *text = text.replace("queuer = { ", "queuer = { on_invalid = \"halt-lane\", ");
            }
            return Self { holds_lanes: true, ..plan };
        }
    }

    /// A plan whose queuer, gate and monitor may change, each time the step begins anew.
    pub(crate) fn of_changing_rules(dice: &mut Dice) -> Self {
        loop {
            let plan = Self::random(dice);
            if !plan.queuer.is_empty() && !plan.frees_when_valid {
                return plan;
            }
        }
    }

    /// The same step with another queuer, with other limits of its monitor, or with or without a gate. Results are still delivered in the same order: it
    /// is checked over all jobs.
    pub(crate) fn with_other_rules(&self, dice: &mut Dice) -> Self {
        let mut plan = self.clone();
        if dice.chance(30) {
            plan.gate = if self.gate.is_some() { None } else { Some(GATE_EVERY) };
            plan.edit(|toml| match self.gate {
                Some(_) => toml.replace(GATE, "").replace(GATED, ""),
                None => [toml, GATED, GATE].concat(),
            });
            return plan;
        }
        if self.has_monitor() && dice.chance(30) {
            return self.with_another_monitor(dice);
        }
        let by_lane = self.files.iter().any(|(_, text)| text.contains("batch_by = \"lane\""));
        let fits = |&&(queuer, _, has_lanes, _): &&(&str, Order, bool, i64)| {
            !queuer.is_empty()
                && !queuer.contains("free_lane_at")
                && queuer.contains("ordered = true") == self.ordered
                && (has_lanes || !by_lane)
        };
        let fitting: Vec<_> = STRATEGIES.iter().filter(fits).collect();
        let (queuer, order, has_lanes, window) = **dice.pick(&fitting);
        plan.edit(|toml| {
            toml.replace(&format!("queuer = {{ {} }}", self.queuer), &format!("queuer = {{ {queuer} }}"))
        });
        (plan.queuer, plan.order, plan.has_lanes, plan.window) = (queuer, order, has_lanes, window);
        plan.held_max = held_max(queuer);
        plan.at_once = at_once(queuer);
        plan
    }

    fn with_another_monitor(&self, dice: &mut Dice) -> Self {
        let mut plan = self.clone();
        plan.earlier_limits.extend(self.limit());
        let (limits, concurrency) = (*dice.pick(&LIMITS), dice.between(1, 4));
        plan.edit(|toml| {
            let before = toml.lines().find(|line| line.starts_with("monitor = ")).unwrap();
            let kept = before.split(", concurrency").next().unwrap();
            toml.replace(before, &format!("{kept}, concurrency = {concurrency}{limits} }}"))
        });
        plan
    }

    /// Changes the text of the pipeline.
    fn edit(&mut self, change: impl Fn(&str) -> String) {
        let pipeline = self.files.iter_mut().filter(|(name, _)| *name == "p.toml");
        pipeline.for_each(|(_, text)| *text = change(text));
    }

    /// Configuration around the simulated step.
    fn around(&self, dice: &mut Dice, between: bool) -> String {
        let mut toml = "[pipeline]\nname = \"p\"\n[queue.out]\nretain = \"forever\"\n\
                        [queue.failed]\nretain = \"forever\"\n[queue.events]\nretain = \"forever\"\n"
            .to_owned();
        if self.is_pushed() {
            toml += "[source.s0]\ntype = \"http\"\n";
            if self.feed == Feed::Keyed {
                toml += "key = \"id\"\n";
            }
            toml += "[queue.s0]\nretain = \"forever\"\n";
        } else {
            toml += "[source.s0]\ntype = \"file\"\npath = \"s0.ndjson\"\nformat = \"ndjson\"\n";
        }
        if between {
            toml += "[step.first]\nfrom = \"s0\"\nto = \"q0\"\n[queue.q0]\nretain = \"forever\"\n";
        }
        if self.gate.is_some() {
            toml += GATE;
        }
        if let Some((every, missed)) = self.ticks {
            let minutes = every / 60_000;
            let when = match minutes {
                15 if dice.chance(50) => "cron = \"*/15 * * * *\"".to_owned(),
                _ => format!("every = \"{minutes}m\""),
            };
            let missed = match missed {
                Missed::Skip => "skip",
                Missed::Once => "once",
                Missed::All => "all",
            };
            write!(
                toml,
                "[source.tick]\ntype = \"schedule\"\n{when}\nmissed = \"{missed}\"\n\
                 [step.tock]\nfrom = \"tick\"\nto = \"ticked\"\n[queue.tick]\nretain = \"forever\"\n\
                 [queue.ticked]\nretain = \"forever\"\n"
            )
            .unwrap();
        }
        toml
    }

    pub(crate) fn is_pushed(&self) -> bool {
        self.feed != Feed::File
    }

    /// Whether jobs that wait for each other share a batch.
    pub(crate) fn runs_in_a_row(&self) -> bool {
        matches!(self.order, Order::OfAll | Order::OfLane)
            && !self.ordered
            && !self.begins
            && !self.holds_lanes
    }

    /// Whether jobs that wait for each other are claimed ahead.
    pub(crate) fn claims_in_turn(&self) -> bool {
        self.queuer == SERIAL && self.has_monitor() && self.gate.is_none() && !self.has_events()
    }

    /// Whether attempts without a durable result may be repeated in the same run.
    pub(crate) fn repeats(&self) -> bool {
        self.order == Order::Stream || self.ordered && !self.begins
    }

    pub(crate) fn has_monitor(&self) -> bool {
        self.files.iter().any(|(_, text)| text.contains("\nmonitor = "))
    }

    /// Whether an output is visible outside before its commit.
    pub(crate) fn is_shown(&self) -> bool {
        self.has_line("type = \"stdout\"")
    }

    /// Whether the step has a queue for its events.
    pub(crate) fn has_events(&self) -> bool {
        self.has_line("events = \"events\"")
    }

    /// Statuses that a job may have at a limit of its monitor, now or under earlier rules.
    pub(crate) fn gives_up_as(&self) -> impl Iterator<Item = ExternalStatus> {
        self.earlier_limits.iter().copied().chain(self.limit())
    }

    /// Status of a job at a limit of its monitor, if there is one.
    fn limit(&self) -> Option<ExternalStatus> {
        let has = |limit: &str| self.files.iter().any(|(_, text)| text.contains(limit));
        match () {
            () if has(TTL_AGAIN) => Some(ExternalStatus::Unknown),
            () if has(TTL) || has(CHECKS) => Some(ExternalStatus::Invalid),
            () => None,
        }
    }

    /// End of a job that is rejected.
    pub(crate) fn refused(&self) -> Way {
        if self.has_line("errors = \"drop\"") { Way::Nothing } else { Way::Error }
    }

    fn has_line(&self, line: &str) -> bool {
        self.files.iter().any(|(_, text)| text.lines().any(|other| other == line))
    }

    /// Result of an attempt.
    pub(crate) fn attempt(&self, job: &Job, number: u32, now: i64) -> Outcome {
        if now / 1000 % 10 < job.shut {
            return Outcome::Held;
        }
        if job.rejects {
            return Outcome::Refused;
        }
        if job.fails >= number {
            let asked = if job.fails.is_multiple_of(2) { 3000 } else { 0 };
            let again = Outcome::Again { from: now + asked.max(self.window) };
            return if number < ATTEMPTS_MAX { again } else { Outcome::Refused };
        }
        if job.pends { Outcome::Pending(handle(job.id, number)) } else { Outcome::Done }
    }

    /// Time for which nothing starts after a job has found its gate closed.
    pub(crate) fn hold(&self) -> i64 {
        self.gate.unwrap_or(5000)
    }
}

fn held_max(queuer: &str) -> [usize; 2] {
    ["max_pending = ", "max_per_lane = "].map(|key| number_after(queuer, key))
}

fn at_once(queuer: &str) -> usize {
    if queuer == SERIAL { 1 } else { number_after(queuer, "max_processing = ") }
}

/// The number that is the value of a key; without the key, the largest number.
fn number_after(toml: &str, key: &str) -> usize {
    let value = toml.split_once(key).map(|(_, rest)| rest.split(',').next().unwrap());
    value.map_or(usize::MAX, |value| value.parse().unwrap())
}

fn jobs(dice: &mut Dice, monitored: bool) -> Vec<String> {
    let job = |dice: &mut Dice, id: u64| Job {
        id,
        lane: format!("l{}", dice.below(4)),
        fails: [0, 0, 0, 0, 0, 1, 2, 9][dice.below(8)],
        shut: [0, 0, 0, 3, 6][dice.below(5)],
        rejects: dice.chance(5),
        pends: monitored && dice.chance(70),
        late: dice.chance(15),
        writes: (0..dice.below(3)).map(|_| format!("k{}", dice.below(3))).collect(),
        urgency: dice.between(0, 2),
    };
    (1..=dice.between(1, 20)).map(|id| serde_json::to_string(&job(dice, id)).unwrap()).collect()
}

fn ticks(dice: &mut Dice) -> (i64, Missed) {
    let minutes = *dice.pick(&[1, 15, 60]);
    (minutes * 60_000, *dice.pick(&[Missed::Skip, Missed::Once, Missed::All]))
}
