//! Tests of the boundary: both sides call each other.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use serde::Deserialize;

use super::answer::{Target, call, push};
use super::line::Line;
use super::*;
use crate::abi::{
    TIDEGATE_FAILED, TIDEGATE_OK, TIDEGATE_TOKEN_LEN, TidegateAnswer, TidegateBytes, TidegateJob,
    TidegatePlugin, TidegateSetup, TidegateStep,
};
use crate::export::{self, Exported};
use crate::testing::{self, Harness};
use crate::{Cause, Context, Failure, FailureKind, Job, Level, Outlet, Outputs, PluginStep, borrowed};

/// Behaves as its config requests.
struct Puppet {
    config: Config,
    context: Context,
}

#[derive(Clone, Deserialize)]
struct Config {
    act: String,
}

const SCHEMA: &str = r#"{"type":"object","properties":{"act":{"type":"string"},"time":{"type":"integer"}},
    "additionalProperties":false}"#;

/// Index, attempt, time, hash, piece and payload.
type Seen = (u64, u32, i64, u128, u32, Vec<u8>);

thread_local! {
    /// The last job, as the step received it.
    static SEEN: Cell<Option<Seen>> = const { Cell::new(None) };
}

impl PluginStep for Puppet {
    const NAME: &'static str = "puppet";
    const EFFECTS: bool = true;
    type Config = Config;

    fn schema() -> Option<String> {
        Some(SCHEMA.to_owned())
    }

    fn create(config: Config, context: &Context) -> Result<Self, Failure> {
        match &*config.act {
            "panic in create" => panic!("create {}", 1),
            "fail in create" => Err(Failure::failed("no luck")),
            _ => Ok(Self { config, context: context.clone() }),
        }
    }

    fn process(&mut self, job: &Job<'_>, outlet: &mut Outlet<'_>) -> Result<(), Failure> {
        SEEN.set(Some((job.index, job.attempt, job.now_ms, job.hash, job.piece, job.payload.to_vec())));
        for name in self.context.bindings() {
            outlet.push_to(name, job.payload)?;
            outlet.push_to(name, job.payload)?;
        }
        match &*self.config.act {
            "fail" => Err(Failure::failed("failed").with_context(r#"{"tries":3}"#)),
            "retry" => Err(Failure::retry("busy")),
            "retry in" => Err(Failure::retry_in(Duration::from_millis(1500), "later")),
            "reject" => Err(Failure::reject("never")),
            "halt" => Err(Failure::halt("the key is wrong")),
            "gate" => Err(Failure::gate_closed("gas is dear")),
            "pending" => Err(Failure::pending("handle-7")),
            "panic" => panic!("process"),
            "panic with a value" => std::panic::panic_any(7),
            "token" => Err(Failure::pending(self.context.token(job).unwrap_or_default())),
            "payload" => job.field::<u32>("id").map(drop),
            "connection" => Err(Failure::retry("no answer").because(Cause::Connection)),
            "http" => Err(Failure::failed("unwell").because(Cause::Http(503))),
            "exit" => Err(Failure::failed("ended").because(Cause::Exit(-3))),
            "timeout" => Err(Failure::failed("too slow").because(Cause::Timeout)),
            "limit" => Err(Failure::new(FailureKind::Limit, "too long")),
            "reject for a cause" => Err(Failure::reject("never").because(Cause::Timeout)),
            "plain context" => Err(Failure::failed("failed").with_context("not JSON")),
            "garble" => outlet.push(b"{\"a\":"),
            "pretty" => outlet.push(b"{\n\"a\": 1}"),
            "not a number" => {
                outlet.give(&serde_json::json!({"a": null})).and_then(|()| outlet.give(&[f32::NAN]))
            }
            "obey" => {
                while !self.context.stopping() {
                    std::thread::yield_now();
                }
                Err(Failure::failed("stopped on request"))
            }
            "long handle" => Err(Failure::pending("x".repeat(1 << 17))),
            "astray" => outlet.push_to("nowhere", b"1"),
            "unnamed" => outlet.push(b"1"),
            "log" => {
                self.context
                    .log(Level::Warn, format_args!("{}/{}", self.context.pipeline(), self.context.step()));
                self.context.log(Level::Trace, self.context.stopping());
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Puppet {
    fn drop(&mut self) {
        assert!(self.config.act != "panic in drop", "drop");
        if self.config.act == "leave a thread" {
            let context = self.context.clone();
            LEFT.with(|left| left.set(Some(context)));
        }
    }
}

thread_local! {
    static LEFT: Cell<Option<Context>> = const { Cell::new(None) };
}

fn puppet(act: &str) -> Result<Harness<Puppet>, Failure> {
    Harness::new(&format!(r#"{{"act": "{act}"}}"#))
}

fn failure(act: &str) -> Failure {
    puppet(act).unwrap().run("{}").unwrap_err()
}

proptest! {
    #[test]
    fn jobs_and_outputs_cross_unchanged(
        payload in proptest::collection::vec(any::<u8>(), 0..300),
        (index, attempt, now_ms, hash, piece) in any::<(u64, u32, i64, u128, u32)>(),
        bindings in proptest::collection::btree_set("[a-z]{1,8}", 1..5),
    ) {
        let names: Vec<&str> = bindings.iter().map(String::as_str).collect();
        let plugin = plugin();
        let spec = Spec { bindings: &names, ..SPEC };
        let mut instance = plugin.offers()[0].create(&spec, Box::new(Quiet)).unwrap();
        let mut outputs = Outputs::new(names.iter().copied());
        let job = Job { index, payload: &payload, attempt, now_ms, hash, piece };
        instance.process(&job, &mut outputs, u64::MAX).unwrap();
        prop_assert_eq!(SEEN.take().unwrap(), (index, attempt, now_ms, hash, piece, payload.clone()));
        for payloads in outputs.into_payloads() {
            prop_assert_eq!(payloads.iter().collect::<Vec<_>>(), [&payload[..], &payload[..]]);
        }
        prop_assert_eq!(instance.close(), Ok(Ended::Clean));
    }

    #[test]
    fn configs_cross_unchanged(act in "\\PC{0,40}") {
        let config = serde_json::json!({ "act": act }).to_string();
        let made = plugin().offers()[0].create(&Spec { config: &config, ..SPEC }, Box::new(Quiet));
        prop_assert!(made.is_ok());
    }
}

#[test]
fn every_ending_crosses_with_its_reason() {
    let failure_of = |act| {
        let failure = failure(act);
        (failure.kind, failure.message)
    };
    assert_eq!(failure_of("fail"), (FailureKind::Failed, "failed".into()));
    assert_eq!(failure("fail").context.as_deref(), Some(r#"{"tries":3}"#));
    assert_eq!(failure_of("retry"), (FailureKind::Retry, "busy".into()));
    assert_eq!(failure_of("retry in"), (FailureKind::RetryIn(Duration::from_millis(1500)), "later".into()));
    assert_eq!(failure_of("reject"), (FailureKind::Rejected, "never".into()));
    assert_eq!(failure_of("halt"), (FailureKind::Halted, "the key is wrong".into()));
    assert_eq!(failure_of("gate"), (FailureKind::GateClosed, "gas is dear".into()));
    assert_eq!(failure_of("pending"), (FailureKind::Pending, "handle-7".into()));
}

#[test]
fn what_a_failure_came_from_crosses() {
    let failure_of = |act| {
        let failure = failure(act);
        (failure.kind, failure.word().into_owned())
    };
    assert_eq!(failure_of("payload"), (FailureKind::Payload, "payload".into()));
    assert_eq!(failure_of("connection"), (FailureKind::Retry, "connection".into()));
    assert_eq!(failure_of("http"), (FailureKind::Failed, "http 503".into()));
    assert_eq!(failure_of("exit"), (FailureKind::Failed, "exit -3".into()));
    assert_eq!(failure_of("timeout"), (FailureKind::Limit, "timeout".into()));
    assert_eq!(failure_of("limit"), (FailureKind::Limit, "limit".into()));
    assert_eq!(failure_of("astray"), (FailureKind::Output, "output".into()));
    // A rejected job is not retried, for any cause.
    assert_eq!(failure_of("reject for a cause"), (FailureKind::Rejected, "rejected".into()));
    assert_eq!(failure_of("fail"), (FailureKind::Failed, "failed".into()));
}

#[test]
fn a_test_refuses_what_a_runner_refuses() {
    let failure_of = |act| {
        let failure = failure(act);
        (failure.kind, failure.message)
    };
    let output = |why: &str| (FailureKind::Output, why.to_owned());
    assert_eq!(
        failure_of("garble"),
        output("its output is not JSON: the text ends before a value, at column 5")
    );
    assert_eq!(
        failure_of("not a number"),
        output("the output is not JSON: it has no form for `NaN` (in `0`)")
    );
    let handle = "the handle of the pending job has 128.0 KiB, which exceeds 64.0 KiB";
    assert_eq!(failure_of("long handle"), (FailureKind::Limit, handle.to_owned()));
    assert_eq!(failure("plain context").context.as_deref(), Some(r#""not JSON""#));
    assert_eq!(puppet("pretty").unwrap().run("1").unwrap(), ["1", "1", "{ \"a\": 1}"]);
    let job = puppet("").unwrap().run("{nope").unwrap_err();
    assert_eq!(job.kind, FailureKind::Payload);
    assert!(job.message.starts_with("the job is not JSON: "), "{job}");
    let config = Harness::<Puppet>::new(r#"{"act": "", "time": 1.0, "tim": 2}"#).unwrap_err();
    assert_eq!(
        config.message,
        "`config` has an unknown key `tim`; `config.time` must be a whole number, but is 1.0"
    );
}

#[test]
fn outputs_past_the_limit_are_refused_when_they_are_pushed() {
    let settings = testing::Settings::new().memory(10);
    let mut puppet = Harness::<Puppet>::with(settings, r#"{"act": ""}"#).unwrap();
    assert_eq!(puppet.run("[1,2]").unwrap(), ["[1,2]", "[1,2]"]);
    let failure = puppet.run("[1,23]").unwrap_err();
    let why = "the outputs of the job together exceed `limits.memory` of 10 B";
    assert_eq!((failure.kind, &*failure.message), (FailureKind::Limit, why));
    // The refused output is not there.
    let plugin = plugin();
    let mut instance = plugin.offers()[0].create(&SPEC, Box::new(Quiet)).unwrap();
    let mut outputs = Outputs::new([""]);
    instance.process(&Job::new(1, b"[1,23]"), &mut outputs, 10).unwrap_err();
    assert_eq!(outputs.total(), 1);
}

#[test]
fn an_attempt_that_stops_when_it_is_asked_to_is_as_late_as_one_that_does_not() {
    let settings = testing::Settings::new().timeout(Some(Duration::from_millis(1)));
    let failure = Harness::<Puppet>::with(settings, r#"{"act": "obey"}"#).unwrap().run("1").unwrap_err();
    assert_eq!((failure.word().as_ref(), &*failure.message), ("timeout", "stopped on request"));
    let late = ended_late(Ok(()), Some(Duration::from_secs(90))).unwrap_err();
    let why = "it returned after the `timeout` of 1m30s, so its outputs do not count";
    assert_eq!((late.word().as_ref(), &*late.message), ("timeout", why));
    assert_eq!(ended_late(Err(Failure::reject("no")), None), Err(Failure::reject("no")));
}

#[test]
fn a_step_without_outputs_drops_what_it_is_given() {
    let mut none = Target::new(None);
    let mut outputs = Outputs::new([]);
    let mut dropped = Target::new(Some(&mut outputs));
    let push_to = |target: &mut Target<'_>, binding| {
        let target: *mut Target<'_> = &raw mut *target;
        // SAFETY: it is a target, and the bytes live for the call.
        unsafe { push(target.cast(), binding, TidegateBytes::of(b"1")) }
    };
    assert_eq!(push_to(&mut dropped, 0), TIDEGATE_OK);
    assert_eq!(push_to(&mut dropped, 1), TIDEGATE_FAILED);
    assert_eq!(push_to(&mut none, 0), TIDEGATE_FAILED);
    let why = "it gave an output to the unknown binding 1";
    assert_eq!(dropped.failure(TIDEGATE_FAILED).message, why);
}

#[test]
fn a_library_that_was_built_for_more_fields_is_read_as_far_as_they_are_known() {
    #[repr(C)]
    struct Longer<T> {
        known: T,
        more: [usize; 3],
    }
    let step = export::step::<Puppet>();
    let steps = Vec::leak(vec![
        Longer { known: step, more: [usize::MAX; 3] },
        Longer { known: TidegateStep { name: TidegateBytes::of(b"other"), ..step }, more: [usize::MAX; 3] },
    ]);
    let mut known = export::plugin("puppets", "1.2.3", &[]);
    (known.steps, known.step_count) = (steps.as_ptr().cast(), steps.len());
    known.step_size = size_of::<Longer<TidegateStep>>();
    known.size = size_of::<Longer<TidegatePlugin>>().try_into().unwrap();
    let description = Box::leak(Box::new(Longer { known, more: [usize::MAX; 3] }));
    // SAFETY: the description is never freed, and has its declared size.
    let plugin = unsafe { Plugin::attach((&raw const *description).cast(), &(Arc::new(()) as Keep)) };
    let plugin = plugin.unwrap();
    let names: Vec<&str> = plugin.offers().iter().map(Offer::name).collect();
    assert_eq!(names, ["puppet", "other"]);
    assert!(plugin.offers()[1].create(&SPEC, Box::new(Quiet)).is_ok());
}

#[test]
fn a_runner_that_knows_fewer_fields_or_more_is_read_as_far_as_they_are_known() {
    /// An answer of the first version, followed by unrelated memory.
    #[repr(C)]
    struct Before {
        answer: [usize; 7],
        rubbish: usize,
    }
    #[repr(C)]
    struct Longer {
        job: TidegateJob,
        more: [usize; 3],
    }
    unsafe extern "C" fn say(target: *mut c_void, text: TidegateBytes) {
        // SAFETY: the target is a text, and the bytes live for the call.
        unsafe { *target.cast::<String>() = borrowed::text(text) };
    }
    let mut text = String::new();
    let mut answer = Before { answer: [0; 7], rubbish: usize::MAX };
    answer.answer[0] = size_of::<[usize; 7]>();
    answer.answer[1] = (&raw mut text).addr();
    answer.answer[3] = (say as *const ()).addr();
    assert_eq!(answer.answer[0], std::mem::offset_of!(TidegateAnswer, word));
    let host = Line::open(Box::new(Quiet));
    let setup = TidegateSetup {
        size: size_of::<TidegateSetup>(),
        host: &raw const host.host,
        pipeline: TidegateBytes::of(b"shop"),
        step: TidegateBytes::of(b"price"),
        config: TidegateBytes::of(br#"{"act": "payload"}"#),
        bindings: std::ptr::null(),
        binding_count: 0,
        timeout_ms: 0,
    };
    let job = Longer {
        job: TidegateJob {
            size: size_of::<Longer>(),
            payload: TidegateBytes::of(b"{}"),
            index: 1,
            hash_high: 0,
            hash_low: 7,
            now_ms: 0,
            attempt: 1,
            piece: 3,
        },
        more: [usize::MAX; 3],
    };
    let (step, answer) = (export::step::<Puppet>(), (&raw const answer).cast());
    let mut instance = std::ptr::null_mut();
    // SAFETY: as the ABI asks; all of it lives for the calls.
    let statuses = unsafe {
        [
            step.create.unwrap()(&raw const setup, answer, &raw mut instance),
            step.process.unwrap()(instance, (&raw const job).cast(), answer),
            step.destroy.unwrap()(instance, answer),
        ]
    };
    assert_eq!(statuses, [TIDEGATE_OK, TIDEGATE_FAILED, TIDEGATE_OK]);
    assert_eq!(text, "the job has no field `id`");
    assert_eq!(SEEN.take().unwrap(), (1, 1, 0, 7, 3, b"{}".to_vec()));
}

#[test]
fn a_panic_is_a_failure_with_its_place_and_the_next_job_is_served() {
    let mut harness = puppet("panic").unwrap();
    for _ in 0..2 {
        let failure = harness.run("{}").unwrap_err();
        assert_eq!((failure.kind, &*failure.message), (FailureKind::Panicked, "process"));
        assert!(failure.place.unwrap().file.ends_with("host/tests.rs"));
    }
    assert_eq!(failure("panic with a value").message, "without a message");
}

#[test]
fn panics_in_create_and_drop_are_failures() {
    let failure = puppet("panic in create").unwrap_err();
    assert_eq!((failure.kind, &*failure.message), (FailureKind::Panicked, "create 1"));
    let failure = puppet("panic in drop").unwrap().close().unwrap_err();
    assert_eq!((failure.kind, &*failure.message), (FailureKind::Panicked, "drop"));
    assert_eq!(puppet("fail in create").unwrap_err().message, "no luck");
}

#[test]
fn an_output_without_a_binding_fails_the_attempt() {
    assert_eq!(failure("astray").message, "the step has no output `nowhere`");
    let mut two = Harness::<Puppet>::with_outputs(r#"{"act": "unnamed"}"#, &["a", "b"]).unwrap();
    assert_eq!(two.run("{}").unwrap_err().message, "the step has several outputs (a, b); name one");
}

#[test]
fn logs_and_the_wish_to_stop_cross() {
    let mut harness = puppet("log").unwrap();
    harness.run("{}").unwrap();
    harness.stop();
    harness.run("{}").unwrap();
    let texts: Vec<_> = harness.log().into_iter().map(|(level, text)| format!("{level:?} {text}")).collect();
    assert_eq!(texts, ["Warn test/puppet", "Trace false", "Warn test/puppet", "Trace true"]);
}

#[test]
fn a_token_reaches_the_plugin_unchanged() {
    let mut harness = puppet("token").unwrap();
    for hash in [1, 2] {
        let failure = harness.run("{}").unwrap_err();
        assert_eq!((failure.kind, failure.message), (FailureKind::Pending, testing::token(hash)));
    }
    let spec = Spec { config: r#"{"act": "token"}"#, ..SPEC };
    let mut instance = plugin().offers()[0].create(&spec, Box::new(Quiet)).unwrap();
    let job = Job::new(1, b"{}");
    let failure = instance.process(&job, &mut Outputs::new([""]), 1 << 10).unwrap_err();
    assert_eq!(failure.message, "", "there is no token here");
}

#[test]
fn a_context_that_outlives_its_step_is_detected_keeps_the_library_and_is_told_to_stop() {
    let keep: Keep = Arc::new(());
    let plugin = plugin_kept(&keep);
    let spec = Spec { config: r#"{"act": "leave a thread"}"#, ..SPEC };
    let instance = plugin.offers()[0].create(&spec, Box::new(Quiet)).unwrap();
    assert_eq!(instance.close(), Ok(Ended::LeftBehind));
    drop(plugin);
    let context = LEFT.take().unwrap();
    assert!(std::thread::spawn(move || context.stopping()).join().unwrap());
    assert!(Arc::strong_count(&keep) > 1);
}

#[test]
fn a_library_is_let_go_when_its_last_instance_is() {
    let keep: Keep = Arc::new(());
    let plugin = plugin_kept(&keep);
    let instance = plugin.offers()[0].create(&SPEC, Box::new(Quiet)).unwrap();
    drop(plugin);
    assert!(Arc::strong_count(&keep) > 1);
    drop(instance);
    assert_eq!(Arc::strong_count(&keep), 1);
}

#[test]
fn a_description_says_what_is_offered() {
    let plugin = plugin();
    assert_eq!((plugin.name(), plugin.version()), ("puppets", "1.2.3"));
    let offer = plugin.offer("puppet").unwrap();
    assert_eq!((offer.has_effects(), offer.schema()), (true, Some(SCHEMA)));
}

#[test]
fn descriptions_that_are_wrong_are_refused() {
    let right = export::plugin("puppets", "1.2.3", steps());
    let refused = |change: &dyn Fn(&mut TidegatePlugin)| {
        let mut wrong = right;
        change(&mut wrong);
        // SAFETY: changed fields are rejected before any other is read, or are valid.
        unsafe { Plugin::attach(&raw const wrong, &(Arc::new(()) as Keep)) }.unwrap_err().to_string()
    };
    let messages = [
        refused(&|plugin| plugin.abi_version = 9),
        refused(&|plugin| plugin.size = 8),
        refused(&|plugin| plugin.step_size = 71),
        refused(&|plugin| plugin.step_count = 0),
        refused(&|plugin| plugin.name.len = 0),
        refused(&|plugin| plugin.init = Some(refuse)),
        refused(&|plugin| {
            let mut steps = steps().to_vec();
            steps[0].process = None;
            plugin.steps = Vec::leak(steps).as_ptr();
        }),
        refused(&|plugin| {
            plugin.steps = Vec::leak([steps(), steps()].concat()).as_ptr();
            plugin.step_count = 2;
        }),
        refused(&|plugin| plugin.step_count = usize::MAX),
        refused(&|plugin| plugin.name.len = usize::MAX),
        refused(&|plugin| plugin.version = TidegateBytes::of(b"1\n2")),
        refused(&|plugin| plugin.steps = plugin.steps.wrapping_byte_add(4)),
        refused(&|plugin| {
            let mut steps = steps().to_vec();
            steps[0].flags |= 6;
            plugin.steps = Vec::leak(steps).as_ptr();
        }),
        refused(&|plugin| {
            let mut steps = steps().to_vec();
            steps[0].description = TidegateBytes::of(b"\x1b[31mred");
            plugin.steps = Vec::leak(steps).as_ptr();
        }),
        // SAFETY: it is refused before anything is read.
        unsafe { Plugin::attach((&raw const right).wrapping_byte_add(4), &(Arc::new(()) as Keep)) }
            .unwrap_err()
            .to_string(),
        // SAFETY: the test passes null.
        unsafe { Plugin::attach(std::ptr::null(), &(Arc::new(()) as Keep)) }.unwrap_err().to_string(),
    ];
    assert_eq!(
        messages,
        [
            "it was built for version 9 of the plugin interface; this Tidegate has version 1",
            "its description has 8 bytes, which does not match this version",
            "its description has 71 bytes, which does not match this version",
            "its description lacks steps",
            "its description is wrong: its name is empty",
            "it cannot be initialized: not today",
            "its description lacks function `process` of its step `puppet`",
            "its description is wrong: its step `puppet` occurs twice",
            "its description is wrong: it has 18446744073709551615 steps, which exceeds 4096",
            "its description is wrong: the name has 18446744073709551615 bytes, which exceeds 65536",
            "its description is wrong: the version holds a control character, perhaps the end of a line",
            "its description is wrong: the address of its steps is not a multiple of 8",
            "its description is wrong: its step `puppet` has flags that are unknown to this version (0x6)",
            "its description is wrong: the description of a step holds a control character, perhaps the end of a line",
            "its description is wrong: its address is not a multiple of 8",
            "its description is missing",
        ]
    );
}

#[test]
fn texts_that_cannot_be_that_long_are_refused_and_read_nowhere() {
    let bytes = TidegateBytes { bytes: b"1".as_ptr(), len: usize::MAX };
    let text = call(None, |answer| {
        // SAFETY: the answer is that of this call.
        let answer = unsafe { *answer };
        let Some(say) = answer.say else { return TIDEGATE_OK };
        // SAFETY: bytes of such a length are not read.
        unsafe { say(answer.target, bytes) };
        TIDEGATE_FAILED
    });
    assert_eq!(text.unwrap_err().message, "it failed without a reason");
    let mut outputs = Outputs::new([""]);
    let mut target = Target { memory: u64::MAX, room: u64::MAX, ..Target::new(Some(&mut outputs)) };
    let pushed = target.call(|answer| {
        // SAFETY: as above.
        let answer = unsafe { *answer };
        let Some(push) = answer.push else { return TIDEGATE_OK };
        // SAFETY: as above.
        unsafe { push(answer.target, 0, bytes) }
    });
    assert_eq!(pushed.unwrap_err().kind, FailureKind::Limit);
    assert_eq!(outputs.total(), 0);
}

#[test]
fn a_status_that_does_not_exist_is_a_failure() {
    let failure = call(None, |_| 42).unwrap_err();
    assert_eq!((failure.kind, &*failure.message), (FailureKind::Failed, "it returned the unknown status 42"));
    let failure = call(None, |_| TIDEGATE_FAILED).unwrap_err();
    assert_eq!(failure.message, "it failed without a reason");
}

unsafe extern "C" fn refuse(answer: *const TidegateAnswer) -> i32 {
    // SAFETY: the answer is that of this call.
    let answer = unsafe { *answer };
    if let Some(say) = answer.say {
        // SAFETY: the text lives for ever.
        unsafe { say(answer.target, TidegateBytes::of(b"not today")) };
    }
    TIDEGATE_FAILED
}

const SPEC: Spec<'_> =
    Spec { pipeline: "shop", step: "price", config: r#"{"act": ""}"#, bindings: &[""], timeout: None };

struct Quiet;

impl Host for Quiet {
    fn log(&self, _: Level, _: &str) {}

    fn stopping(&self) -> bool {
        false
    }

    fn token(&self, _: u128) -> Option<[u8; TIDEGATE_TOKEN_LEN]> {
        None
    }
}

fn steps() -> &'static [TidegateStep] {
    static STEPS: Exported<&[TidegateStep]> = Exported::new(&[export::step::<Puppet>()]);
    STEPS.get()
}

fn plugin() -> Plugin {
    plugin_kept(&(Arc::new(()) as Keep))
}

fn plugin_kept(keep: &Keep) -> Plugin {
    static PLUGIN: Exported<TidegatePlugin> =
        Exported::new(export::plugin("puppets", "1.2.3", &[export::step::<Puppet>()]));
    // SAFETY: the description and its functions are this program's.
    unsafe { Plugin::attach(PLUGIN.get(), keep) }.unwrap()
}
