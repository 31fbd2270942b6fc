//! Digest of a step: its settings, by aspect.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::num::NonZeroU32;

use super::aspect::StepAspect;
use super::processors::{self, ProbeAspects};
use super::setting::{PartDigest, Scope};
use crate::model::{
    AfterInvalid, BatchBy, BeginAt, Configuration, DeliveryGuarantee, FreesAt, Input, InputMode, JoinSide,
    KeyedJoin, KeysMissing, Lane, LaneMissing, Monitor, MonitorLimits, QueueRef, Queuer, Scheduling,
    SinkKind, SourceRef, Step, StepFilter, Strategy, Target,
};
use tidegate_model::{Address, Backoff, FailureClass, Jitter, OnExhausted, Rate, RetryPolicy, format_rate};

type Digest = PartDigest<StepAspect>;

/// Settings of most steps.
const SETTINGS: usize = 40;

impl Digest {
    /// The inputs of the step.
    #[must_use]
    pub fn inputs(&self) -> BTreeSet<Address> {
        self.texts(StepAspect::Inputs).filter_map(Address::parse).collect()
    }
}

pub(super) fn digest(scope: &Scope<'_>, configuration: &Configuration, step: &Step) -> Digest {
    // `address` is the key of the digest, `was` has an effect once, `secrets` and `shared` are parts of `config`, `file` and `line` are for messages.
    // `retry` and `queuer` are in the effective policy and the scheduling; `serves` follows from the targets.
    let Step {
        address: _,
        take,
        inputs: _,
        joins,
        tuple_of,
        begin_at,
        processors,
        filter,
        outputs: _,
        errors,
        drops_errors,
        events,
        limits,
        delivery,
        crash_limit,
        timeout,
        config,
        secrets: _,
        shared: _,
        tables,
        isolate,
        retry: _,
        queuer: _,
        scheduling,
        serves: _,
        gate,
        monitor,
        file: _,
        line: _,
    } = step;
    let mut digest = Digest::with_capacity(SETTINGS);
    inputs(&mut digest, scope, configuration, (step, *take));
    if let Some(join) = joins {
        self::join(&mut digest, scope, step, join);
    }
    if !tuple_of.is_empty() {
        digest.derive(scope, StepAspect::Program, "tuple", |it| {
            it.list(tuple_of.iter(), |it, part| it.text(part));
        });
    }
    digest.add(scope, StepAspect::BeginAt, "begin_at", |it| match begin_at {
        BeginAt::Oldest => it.word("oldest"),
        BeginAt::Newest => it.word("newest"),
        BeginAt::Index(index) => it.number(*index),
    });
    processors::run(&mut digest, scope, (StepAspect::Program, ""), processors);
    processors::tables(&mut digest, scope, (StepAspect::Program, ""), tables);
    self::filter(&mut digest, scope, filter);
    processors::config(&mut digest, scope, (StepAspect::Config, ""), config);
    digest.add(scope, StepAspect::Timeout, "timeout", |it| {
        it.optional(*timeout, "none", super::encoder::Encoder::duration);
    });
    digest.add(scope, StepAspect::Limits, "limits.operations", |it| it.number(limits.operations));
    digest.add(scope, StepAspect::Limits, "limits.memory", |it| it.size(limits.memory));
    digest.add(scope, StepAspect::Limits, "limits.depth", |it| it.number(limits.depth as u64));
    digest
        .add(scope, StepAspect::Isolate, "isolate", |it| it.word(if *isolate { "process" } else { "none" }));
    outputs(&mut digest, scope, configuration, step);
    digest.add(scope, StepAspect::Errors, "errors", |it| {
        let none = if *drops_errors { "drop" } else { "none" };
        it.optional(*errors, none, |it, QueueRef(queue)| it.word(&configuration.queues[queue].address));
    });
    // Steps without events are as in stores that know no events.
    if let Some(QueueRef(queue)) = events {
        digest.add(scope, StepAspect::Events, "events", |it| it.word(&configuration.queues[*queue].address));
    }
    digest.add(scope, StepAspect::Delivery, "delivery", |it| {
        it.word(match delivery {
            DeliveryGuarantee::ExactlyOnce => "exactly-once",
            DeliveryGuarantee::AtLeastOnce => "at-least-once",
            DeliveryGuarantee::AtMostOnce => "at-most-once",
        });
    });
    digest.derive(scope, StepAspect::Dedupe, "dedupe", |it| {
        it.optional(configuration.keeps_records(step), "none", super::encoder::Encoder::duration);
        it.flag(configuration.dedupes(step));
    });
    digest.add(scope, StepAspect::CrashLimit, "crash_limit", |it| {
        it.number(crash_limit.map_or(0, NonZeroU32::get).into());
    });
    retry(&mut digest, scope, (StepAspect::Retry, ""), step.retry_policy());
    self::scheduling(&mut digest, scope, scheduling);
    digest.add(scope, StepAspect::Gate, "gate", |it| {
        it.optional(*gate, "none", |it, gate| it.word(configuration.gates[gate.0].address()));
    });
    self::monitor(&mut digest, scope, monitor.as_ref());
    digest
}

fn inputs(
    digest: &mut Digest,
    scope: &Scope<'_>,
    configuration: &Configuration,
    (step, take): (&Step, InputMode),
) {
    let mode = match take {
        _ if step.joins.is_some() => "join",
        InputMode::From => "from",
        InputMode::Join => "join",
        InputMode::Alts => "alts",
    };
    for input in &step.inputs {
        let key =
            if input.binding.is_empty() { mode.to_owned() } else { format!("{mode}.{}", input.binding) };
        digest.add(scope, StepAspect::Inputs, key.clone(), |it| it.word(&input.address));
        digest.derive(scope, StepAspect::Inputs, format!("{key} as"), |it| {
            it.text(&input.name());
            match input.input {
                Input::Source(SourceRef(source)) => {
                    let meta = configuration.sources[source].meta;
                    it.word("source");
                    // Without provenance it is as in stores that know none of sources.
                    if !meta.is_empty() {
                        it.flag(meta.index);
                        it.flag(meta.place);
                    }
                }
                Input::Queue(QueueRef(queue)) => {
                    let meta = configuration.queues[queue].meta;
                    it.word("queue");
                    for given in [meta.index, meta.time, meta.transaction] {
                        it.flag(given);
                    }
                }
            }
        });
    }
}

fn join(digest: &mut Digest, scope: &Scope<'_>, step: &Step, join: &KeyedJoin) {
    let KeyedJoin { reader: _, sides, within, max_waiting } = join;
    for (input, JoinSide { on, left }) in step.inputs.iter().zip(sides) {
        let binding = &input.binding;
        digest.add(scope, StepAspect::JoinKey, format!("on.{binding}"), |it| it.text(&on.to_string()));
        if *left {
            digest.add(scope, StepAspect::JoinLimits, format!("left.{binding}"), |it| it.flag(true));
        }
    }
    digest.add(scope, StepAspect::JoinLimits, "within", |it| {
        it.optional(*within, "none", super::encoder::Encoder::duration);
    });
    digest.add(scope, StepAspect::JoinLimits, "max_waiting", |it| it.number(*max_waiting));
}

fn filter(digest: &mut Digest, scope: &Scope<'_>, filter: &StepFilter) {
    let StepFilter { types, topics, when } = filter;
    for (key, words) in [("types", types), ("topics", topics)] {
        // A job passes with any of them, in any order.
        let mut words: Vec<&String> = words.iter().collect();
        words.sort();
        digest.add(scope, StepAspect::Program, key, |it| {
            it.list(words.iter(), |it, word| it.text(word));
            it.between(if words.is_empty() { "any" } else { "" });
        });
    }
    digest.add(scope, StepAspect::Program, "when", |it| {
        it.optional(when.as_ref(), "none", |it, (text, _)| it.text(text));
    });
}

fn outputs(digest: &mut Digest, scope: &Scope<'_>, configuration: &Configuration, step: &Step) {
    for output in &step.outputs {
        let key = if output.binding.is_empty() { "to".to_owned() } else { format!("to.{}", output.binding) };
        let (address, kind, drops) = match output.target {
            Target::Queue(queue) => {
                let queue = &configuration.queues[queue.0];
                (&queue.address, None, queue.meta.dropped)
            }
            Target::Sink(sink) => {
                let sink = &configuration.sinks[sink.0];
                (&sink.address, Some(&sink.kind), false)
            }
        };
        digest.add(scope, StepAspect::Outputs, key.clone(), |it| it.word(address));
        digest.derive(scope, StepAspect::Outputs, format!("{key} as"), |it| {
            it.word(match kind {
                None if drops => "queue without meta",
                None => "queue",
                Some(SinkKind::File(_)) => "file",
                Some(SinkKind::Stdout(_)) => "stdout",
                Some(SinkKind::Http(_)) => "http",
                Some(SinkKind::Null) => "null",
            });
        });
        if let Some(SinkKind::Http(request)) = kind {
            let mut own = Digest::new();
            processors::request(&mut own, scope, (StepAspect::Program, ""), request);
            let key = format!("{key} request");
            digest.derive(scope, StepAspect::Program, key, |it| it.digest(own.whole()));
        }
    }
}

/// `table`: begins each key.
pub(super) fn retry<A: Copy + Ord>(
    digest: &mut PartDigest<A>,
    scope: &Scope<'_>,
    (aspect, table): (A, &str),
    policy: Option<&RetryPolicy>,
) {
    let Some(policy) = policy else {
        return digest.add(scope, aspect, format!("{table}retry"), |it| it.word("none"));
    };
    let RetryPolicy {
        backoff,
        initial,
        factor,
        max,
        jitter,
        quick,
        max_attempts,
        ttl,
        ttl_field,
        then,
        on,
        halt_on,
    } = policy;
    let mut add = |key: &'static str, encode: &dyn Fn(&mut super::encoder::Encoder<'_>)| {
        let key = if table.is_empty() { Cow::Borrowed(key) } else { format!("{table}{key}").into() };
        digest.add(scope, aspect, key, |it| encode(it));
    };
    add("retry.backoff", &|it| {
        it.word(match backoff {
            Backoff::Fixed => "fixed",
            Backoff::Linear => "linear",
            Backoff::Exponential => "exponential",
            Backoff::Fibonacci => "fibonacci",
            Backoff::List(_) => "list",
        });
    });
    // Only those that have an effect.
    match backoff {
        Backoff::List(delays) => {
            add("retry.delays", &|it| it.list(delays.iter(), |it, delay| it.duration(*delay)));
        }
        _ => add("retry.initial", &|it| it.duration(*initial)),
    }
    if *backoff == Backoff::Exponential {
        add("retry.factor", &|it| it.float(*factor));
    }
    if !matches!(backoff, Backoff::Fixed | Backoff::List(_)) {
        add("retry.max", &|it| it.duration(*max));
    }
    add("retry.jitter", &|it| {
        it.word(match jitter {
            Jitter::None => "none",
            Jitter::Full => "full",
            Jitter::Equal => "equal",
        });
    });
    // Policies without these keys are as in stores that know none of them.
    if let Some(row) = quick {
        add("retry.quick", &|it| it.number(row.attempts.into()));
        add("retry.quick_delay", &|it| it.duration(row.delay));
    }
    if let Some(path) = ttl_field {
        add("retry.ttl_field", &|it| it.text(&path.to_string()));
    }
    add("retry.max_attempts", &|it| it.number((*max_attempts).into()));
    add("retry.ttl", &|it| it.optional(*ttl, "none", super::encoder::Encoder::duration));
    add("retry.then", &|it| {
        it.word(match then {
            OnExhausted::ErrorQueue => "error-queue",
            OnExhausted::Drop => "drop",
            OnExhausted::Halt => "halt",
        });
    });
    let words = |classes: &[FailureClass]| {
        let mut words: Vec<&str> = classes.iter().map(|class| self::class(*class)).collect();
        words.sort_unstable();
        words
    };
    let (classes, halting) = (words(on), words(halt_on));
    if !halting.is_empty() {
        add("retry.halt_on", &|it| it.list(halting.iter(), super::encoder::Encoder::word));
    }
    add("retry.on", &|it| {
        it.list(classes.iter(), super::encoder::Encoder::word);
        it.between(if classes.is_empty() { "all" } else { "" });
    });
}

/// The word of a class; only classes with a word can be configured.
fn class(class: FailureClass) -> &'static str {
    FailureClass::HALTING_WORDS.iter().find(|(_, other)| *other == class).map_or("", |(word, _)| word)
}

fn scheduling(digest: &mut Digest, scope: &Scope<'_>, scheduling: &Scheduling) {
    let queuer = match scheduling {
        Scheduling::InOrder => {
            return digest.add(scope, StepAspect::Queuer, "queuer", |it| it.word("none"));
        }
        Scheduling::Queued(queuer) => &**queuer,
    };
    let Queuer { strategy, lane, max_processing, max_pending, max_search_ahead, rate, ordered, age, id } =
        queuer;
    self::strategy(digest, scope, strategy);
    self::lane(digest, scope, lane.as_ref());
    digest.add(scope, StepAspect::Queuer, "queuer.ordered", |it| it.flag(*ordered));
    for (key, path) in [("queuer.age", age), ("queuer.id", id)] {
        digest.add(scope, StepAspect::Queuer, key, |it| {
            it.optional(path.as_ref(), "none", |it, path| it.text(&path.to_string()));
        });
    }
    digest.add(scope, StepAspect::QueuerLimits, "queuer.max_processing", |it| {
        it.optional(*max_processing, "workers", |it, most| it.number(most.get().into()));
    });
    digest.add(scope, StepAspect::QueuerLimits, "queuer.max_pending", |it| {
        it.optional(*max_pending, "unlimited", |it, most| it.number(most.get().into()));
    });
    digest.add(scope, StepAspect::QueuerLimits, "queuer.max_search_ahead", |it| {
        it.optional(*max_search_ahead, "unlimited", super::encoder::Encoder::number);
    });
    self::rate(digest, scope, "queuer.rate", *rate);
}

fn strategy(digest: &mut Digest, scope: &Scope<'_>, strategy: &Strategy) {
    let (word, window) = match strategy {
        Strategy::Fifo => ("fifo", None),
        Strategy::Serial => ("serial", None),
        Strategy::OneRoundSerial { delay_window } => ("one-round-serial", Some(*delay_window)),
        Strategy::OneRoundParallel { delay_window, .. } => ("one-round-parallel", Some(*delay_window)),
        Strategy::Priority { .. } => ("priority", None),
        Strategy::Rounds { .. } => ("rounds", None),
    };
    digest.add(scope, StepAspect::Queuer, "queuer.strategy", |it| it.word(word));
    if let Some(window) = window {
        digest.add(scope, StepAspect::QueuerLimits, "queuer.delay_window", |it| {
            it.optional(window, "none", super::encoder::Encoder::duration);
        });
    }
    match strategy {
        Strategy::Fifo | Strategy::Serial | Strategy::OneRoundSerial { .. } => {}
        Strategy::OneRoundParallel { delay_window: _, reads, writes, missing } => {
            for (key, path) in [("queuer.reads", reads), ("queuer.writes", writes)] {
                digest.add(scope, StepAspect::Queuer, key, |it| {
                    it.optional(path.as_ref(), "none", |it, path| it.text(&path.to_string()));
                });
            }
            digest.add(scope, StepAspect::Queuer, "queuer.keys_missing", |it| {
                it.word(match missing {
                    KeysMissing::Error => "error",
                    KeysMissing::None => "none",
                });
            });
        }
        Strategy::Priority { priority, aging } => {
            digest.add(scope, StepAspect::Queuer, "queuer.priority", |it| it.text(&priority.to_string()));
            digest.add(scope, StepAspect::Queuer, "queuer.aging", |it| {
                it.optional(*aging, "none", super::encoder::Encoder::duration);
            });
        }
        Strategy::Rounds { pause } => {
            digest.add(scope, StepAspect::QueuerLimits, "queuer.pause", |it| it.duration(*pause));
        }
    }
}

fn lane(digest: &mut Digest, scope: &Scope<'_>, lane: Option<&Lane>) {
    let Some(Lane { path, missing, frees_at, after_invalid, max_per_lane, rate }) = lane else {
        return digest.add(scope, StepAspect::Queuer, "queuer.lane", |it| it.word("none"));
    };
    digest.add(scope, StepAspect::Queuer, "queuer.lane", |it| it.text(&path.to_string()));
    digest.add(scope, StepAspect::Queuer, "queuer.lane_missing", |it| {
        it.word(match missing {
            LaneMissing::Error => "error",
            LaneMissing::Default => "default",
        });
    });
    digest.add(scope, StepAspect::Queuer, "queuer.free_lane_at", |it| {
        it.word(match frees_at {
            FreesAt::End => "end",
            FreesAt::Valid => "valid",
        });
    });
    // Lanes that go on are as in stores that know no halted lanes.
    if *after_invalid == AfterInvalid::HaltsLane {
        digest.add(scope, StepAspect::Queuer, "queuer.on_invalid", |it| it.word("halt-lane"));
    }
    digest.add(scope, StepAspect::QueuerLimits, "queuer.max_per_lane", |it| {
        it.optional(*max_per_lane, "unlimited", |it, most| it.number(most.get().into()));
    });
    self::rate(digest, scope, "queuer.lane_rate", *rate);
}

fn rate(digest: &mut Digest, scope: &Scope<'_>, key: &'static str, rate: Option<Rate>) {
    digest.add(scope, StepAspect::QueuerLimits, key, |it| {
        it.optional(rate, "unlimited", |it, rate| it.word(format_rate(rate)));
    });
}

fn monitor(digest: &mut Digest, scope: &Scope<'_>, monitor: Option<&Monitor>) {
    let Some(Monitor { inquiry, batch, batch_by, concurrency, limits }) = monitor else {
        return digest.add(scope, StepAspect::Monitor, "monitor", |it| it.word("none"));
    };
    let aspects = ProbeAspects {
        program: StepAspect::Monitor,
        config: StepAspect::Monitor,
        every: StepAspect::Monitor,
        timeout: StepAspect::Monitor,
    };
    processors::probe(digest, scope, (&aspects, "monitor."), inquiry);
    digest.add(scope, StepAspect::Monitor, "monitor.batch", |it| it.number(*batch as u64));
    digest.add(scope, StepAspect::Monitor, "monitor.batch_by", |it| {
        it.word(match batch_by {
            BatchBy::Any => "any",
            BatchBy::Lane => "lane",
        });
    });
    digest.add(scope, StepAspect::Monitor, "monitor.concurrency", |it| it.number(*concurrency as u64));
    let MonitorLimits { ttl, max_checks, resubmits } = limits;
    if let Some(ttl) = ttl {
        digest.add(scope, StepAspect::Monitor, "monitor.ttl", |it| it.duration(*ttl));
    }
    if let Some(most) = max_checks {
        digest.add(scope, StepAspect::Monitor, "monitor.max_checks", |it| it.number(most.get().into()));
    }
    if *resubmits {
        digest.add(scope, StepAspect::Monitor, "monitor.then", |it| it.word("resubmit"));
    }
}
