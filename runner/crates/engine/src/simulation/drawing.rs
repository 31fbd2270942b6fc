//! Drawing: creates a random graph with every kind of wiring.

use super::blueprint::{Blueprint, QueuePlan, SinkPlan, StepPlan};
use super::dice::Dice;
use tidegate_config::{DeliveryGuarantee, InputMode};

/// Graph under construction. Each target has its distance from the sources, so that no step feeds its own
/// inputs.
struct Drawing<'d> {
    dice: &'d mut Dice,
    plan: Blueprint,
    outlets: Vec<(String, usize)>,
}

/// Filters by fields of the job.
pub(crate) const FILTERS: [&str; 3] =
    ["types = [\"x\", \"y\"]", "topics = [\"odd\"]", "types = [\"z\"]\ntopics = [\"any\"]"];

/// Values of `retry`. A job that fails often uses all attempts of each of them.
pub(crate) const RETRIES: [&str; 3] = [
    "backoff = \"fixed\", initial = \"1s\", max_attempts = 4",
    "backoff = \"exponential\", initial = \"500ms\", jitter = \"none\", max_attempts = 3",
    "backoff = \"list\", delays = [\"1ms\", \"20s\"], max_attempts = 4",
];

/// Draws a graph, most of it in one pipeline.
pub(crate) fn random(dice: &mut Dice) -> Blueprint {
    draw(dice, |number, dice| if number > 0 && dice.chance(25) { "q" } else { "p" })
}

/// Draws a graph whose steps are spread over pipelines.
pub(crate) fn spread(dice: &mut Dice) -> Blueprint {
    draw(dice, |number, dice| if number > 0 { *dice.pick(&["p", "q", "r"]) } else { "p" })
}

fn draw(dice: &mut Dice, pipeline_of: impl Fn(u64, &mut Dice) -> &'static str) -> Blueprint {
    let mut drawing = Drawing { dice, plan: Blueprint::default(), outlets: Vec::new() };
    drawing.sources();
    if drawing.dice.chance(60) {
        drawing.plan.errors.insert("p".into(), "p/failed".into());
    }
    for number in 0..drawing.dice.between(1, 6) {
        let pipeline = pipeline_of(number, drawing.dice);
        drawing.step(number, pipeline);
    }
    if drawing.dice.chance(20) {
        drawing.cycle();
    }
    if drawing.dice.chance(40) && drawing.plan.errors.contains_key("p") {
        drawing.handler();
    }
    drawing.sinks();
    drawing.queues();
    drawing.plan.levels = drawing.outlets.into_iter().collect();
    drawing.plan
}

impl Drawing<'_> {
    fn sources(&mut self) {
        for number in 0..self.dice.between(1, 3) {
            let lines = self.dice.between(0, 24);
            let lines = (0..lines).map(|line| source_line(self.dice, number, line)).collect();
            let address = format!("p/s{number}");
            self.outlets.push((address.clone(), 0));
            self.plan.sources.insert(address, lines);
        }
    }

    fn step(&mut self, number: u64, pipeline: &str) {
        let take = *self.dice.pick(&[InputMode::From, InputMode::From, InputMode::Join, InputMode::Alts]);
        let wanted = if take == InputMode::From { 1 } else { 2 + self.dice.below(2) };
        let outlets = self.outlets.clone();
        let taken = self.dice.several(&outlets, wanted);
        let take = if taken.len() == 1 { InputMode::From } else { take };
        let level = taken.iter().map(|(_, level)| *level).max().unwrap();
        let mode = *self.dice.pick(&["mark", "mark", "split", "fork", "fork", "pass"]);
        let run: &[&str] = match mode {
            "pass" => &[],
            "fork" => &["work.rhai"],
            _ if self.dice.chance(15) => &["work.rhai", "again.rhai"],
            _ => &["work.rhai"],
        };
        let bindings: &[&str] = match mode {
            "fork" => &["a", "b", "c"][..=self.dice.below(3)],
            "mark" if self.dice.chance(10) => &[],
            _ => &[""],
        };
        let mut outputs = Vec::new();
        for binding in bindings {
            let target = self.target(pipeline, level);
            outputs.push(((*binding).to_owned(), target));
        }
        let errors = self.dice.chance(45).then(|| format!("{pipeline}/e{}", self.dice.below(3)));
        let names = ["a", "b", "c"];
        let inputs = taken.iter().zip(names).map(|((address, _), name)| (name.to_owned(), address.clone()));
        let mut step = StepPlan {
            pipeline: pipeline.into(),
            name: format!("t{number}"),
            was: None,
            take,
            inputs: inputs.collect(),
            outputs,
            run,
            mode,
            salt: self.dice.between(0, 22),
            calm: false,
            retry: None,
            hash: false,
            filter: None,
            errors,
            delivery: promise(self.dice),
        };
        if mode != "pass" && step.delivery != Some(DeliveryGuarantee::AtMostOnce) && self.dice.chance(50) {
            step.retry = Some(*self.dice.pick(&RETRIES));
        }
        let halts = step.errors.is_none() && !self.plan.errors.contains_key(pipeline);
        step.calm = self.dice.chance(if halts { 70 } else { 25 });
        step.hash = self.has_effects(&step.outputs);
        step.filter = self.filter(&step);
        self.plan.steps.push(step);
    }

    fn filter(&mut self, step: &StepPlan) -> Option<String> {
        if !self.dice.chance(25) {
            return None;
        }
        let filter = match step.take {
            InputMode::From if self.dice.chance(50) => "when = \"job.n % 2 == 0\"",
            InputMode::Alts if self.dice.chance(50) => "when = '\"a\" in job'",
            InputMode::Join => "when = \"job.a.n % 2 == 0\"",
            InputMode::From | InputMode::Alts => self.dice.pick(&FILTERS),
        };
        Some(filter.into())
    }

    /// Target of a step: a sink, an existing queue, or a new one.
    fn target(&mut self, pipeline: &str, level: usize) -> String {
        let downstream: Vec<String> = {
            let behind = |(_, above): &&(String, usize)| *above > level;
            self.outlets.iter().filter(behind).map(|(address, _)| address.clone()).collect()
        };
        match self.dice.below(10) {
            0 | 1 => {
                let address = format!("{pipeline}/k{}", self.plan.sinks.len());
                let kind = *self.dice.pick(&["file", "file", "stdout", "stdout", "null"]);
                let (from, file) = (Vec::new(), self.plan.sinks.len() as u64);
                let sink = SinkPlan { address: address.clone(), kind, file, from, delivery: None };
                self.plan.sinks.push(sink);
                address
            }
            2 | 3 if !downstream.is_empty() => self.dice.pick(&downstream).clone(),
            _ => {
                let address = format!("{pipeline}/q{}", self.outlets.len());
                self.outlets.push((address.clone(), level + 1));
                address
            }
        }
    }

    fn has_effects(&self, outputs: &[(String, String)]) -> bool {
        let stdout = |address: &String| {
            self.plan.sinks.iter().any(|sink| sink.address == *address && sink.kind == "stdout")
        };
        outputs.iter().any(|(_, address)| stdout(address))
    }

    /// Adds a cycle: its jobs go round until their counter is zero.
    fn cycle(&mut self) {
        let outlets = self.outlets.clone();
        let from = self.dice.pick(&outlets).0.clone();
        self.plan.queues.insert("p/loop".into(), QueuePlan { settings: vec!["allow_cycle = true".into()] });
        self.outlets.push(("p/done".into(), 50));
        let feed = StepPlan {
            pipeline: "p".into(),
            name: "feed".into(),
            was: None,
            take: InputMode::From,
            inputs: vec![("a".into(), from)],
            outputs: vec![(String::new(), "p/loop".into())],
            run: &["work.rhai"],
            mode: "mark",
            salt: 1,
            calm: true,
            retry: None,
            hash: false,
            filter: None,
            errors: Some("p/e0".into()),
            delivery: promise(self.dice),
        };
        let spin = StepPlan {
            name: "spin".into(),
            inputs: vec![("a".into(), "p/loop".into())],
            outputs: vec![("again".into(), "p/loop".into()), ("done".into(), "p/done".into())],
            mode: "count",
            calm: self.dice.chance(50),
            delivery: promise(self.dice),
            ..feed.clone()
        };
        self.plan.steps.extend([feed, spin]);
    }

    /// Adds a step that makes jobs of errors. It inherits no error queue, because that would be a cycle.
    fn handler(&mut self) {
        self.outlets.push(("p/handled".into(), 101));
        self.plan.steps.push(StepPlan {
            pipeline: "p".into(),
            name: "handle".into(),
            was: None,
            take: InputMode::From,
            inputs: vec![("a".into(), "p/failed".into())],
            outputs: vec![(String::new(), "p/handled".into())],
            run: &["work.rhai"],
            mode: "split",
            salt: 2,
            calm: true,
            retry: None,
            hash: false,
            filter: None,
            errors: None,
            delivery: promise(self.dice),
        });
    }

    /// Adds sinks that read queues: all queues without steps, and some others.
    fn sinks(&mut self) {
        let mut ends = self.outlets.clone();
        ends.extend(self.plan.errors.values().map(|address| (address.clone(), 100)));
        ends.extend(self.plan.steps.iter().filter_map(|step| Some((step.errors.clone()?, 100))));
        ends.sort();
        ends.dedup();
        let read: Vec<&String> =
            self.plan.steps.iter().flat_map(|step| step.inputs.iter().map(|(_, address)| address)).collect();
        let mut from = Vec::new();
        for (address, _) in &ends {
            if self.dice.chance(if read.contains(&address) { 15 } else { 55 }) {
                from.push(address.clone());
            }
        }
        while let Some(first) = from.pop() {
            let mut all = vec![first];
            if self.dice.chance(25) {
                all.extend(from.pop());
            }
            let number = self.plan.sinks.len();
            let kind = *self.dice.pick(&["file", "file", "file", "stdout", "null"]);
            let delivery = promise(self.dice);
            let (address, file) = (format!("p/k{number}"), number as u64);
            self.plan.sinks.push(SinkPlan { address, kind, file, from: all, delivery });
        }
    }

    fn queues(&mut self) {
        let mut all: Vec<String> = self.outlets.iter().map(|(address, _)| address.clone()).collect();
        all.retain(|address| !self.plan.sources.contains_key(address));
        all.extend(self.plan.errors.values().cloned());
        all.extend(self.plan.queues.keys().cloned());
        for address in all {
            let mut settings = Vec::new();
            match self.dice.below(10) {
                0..=4 => settings.push("retain = \"forever\"".to_owned()),
                5 | 6 => settings.push("retain = \"10s\"".to_owned()),
                _ => {}
            }
            if self.dice.chance(15) {
                settings.push("max_size = \"1KiB\"".to_owned());
            }
            if self.dice.chance(40) {
                let count = self.dice.between(1, 3);
                let fields = self.dice.several(&["index", "time", "tx"], usize::try_from(count).unwrap());
                settings.push(format!("meta = {fields:?}"));
            }
            if self.dice.chance(15) && address != "p/loop" {
                settings.push("dedupe = \"7d\"".to_owned());
            }
            self.plan.queues.entry(address).or_default().settings.extend(settings);
        }
    }
}

pub(crate) fn source_line(dice: &mut Dice, source: u64, line: u64) -> String {
    match dice.below(40) {
        0 => "not json".into(),
        1 => "7".into(),
        // Within a list of bindings this text would add a binding.
        2 => format!("1,\"b\":{{\"id\":\"evil{line}\"}}"),
        _ => {
            let n = dice.between(0, 30);
            let fail = [0, 0, 0, 0, 0, 0, 0, 0, 1, 9][dice.below(10)];
            let kind = dice.pick(&["x", "y", "z"]);
            let topic = dice.pick(&["\"odd\"", "[\"any\", \"odd\"]", "[]"]);
            format!(
                "{{\"id\":\"{source}.{line}\",\"n\":{n},\"fail\":{fail},\"type\":\"{kind}\",\"topics\":{topic}}}"
            )
        }
    }
}

fn promise(dice: &mut Dice) -> Option<DeliveryGuarantee> {
    match dice.below(10) {
        0..=6 => None,
        7 => Some(DeliveryGuarantee::AtLeastOnce),
        8 => Some(DeliveryGuarantee::AtMostOnce),
        _ => Some(DeliveryGuarantee::ExactlyOnce),
    }
}
