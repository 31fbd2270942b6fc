//! Tests of commands: they give outputs, fail, exceed limits, and are killed with their groups.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tidegate_plugin::{Failure, FailureKind, Job, Outputs};

use super::{ExecSpec, ExecStep};
use crate::calls::Calls;
use tidegate_config::ExecCommand;
use tidegate_model::TokenKey;
use tidegate_model::template::Template;

/// Longer than any test, unless a command hangs.
const LONG: Duration = Duration::from_mins(1);

fn shell(script: &str, arguments: &[&str]) -> ExecCommand {
    let script = script.replace('{', "{{").replace('}', "}}");
    let arguments = [&["-c", script.as_str(), "sh"], arguments].concat();
    let template = |text: &&str| Template::parse(text, &[]).unwrap();
    ExecCommand {
        program: PathBuf::from("sh"),
        arguments: arguments.iter().map(template).collect(),
        environment: Vec::new(),
        folder: PathBuf::from("."),
        timeout: None,
    }
}

fn run_with(command: &ExecCommand, payload: &str, timeout: Duration) -> Result<Vec<String>, Failure> {
    let timeout = Some(timeout);
    let spec = ExecSpec {
        pipeline: "shop",
        step: "charge",
        command,
        timeout,
        memory: 2 << 20,
        token_key: &TokenKey::NONE,
        running_commands: &Arc::default(),
        calls: &Calls::default(),
    };
    let job = Job::new(3, payload.as_bytes()).attempted(2, 0).hashed(0xab);
    let mut outputs = Outputs::new([""]);
    ExecStep::new(&spec).process(&job, 1, &mut outputs)?;
    let given = outputs.get(0).unwrap();
    Ok(given.iter().map(|output| String::from_utf8(output.to_vec()).unwrap()).collect())
}

fn run(script: &str, arguments: &[&str]) -> Result<Vec<String>, Failure> {
    run_with(&shell(script, arguments), r#"{"id": "a b; echo $HOME", "n": 7}"#, LONG)
}

fn shown(failure: &Failure) -> String {
    format!("{} ({}): {failure}", failure.word(), failure.kind.as_str())
}

#[test]
fn each_line_that_is_printed_is_an_output() {
    assert_eq!(run("cat", &[]).unwrap(), [r#"{"id": "a b; echo $HOME", "n": 7}"#]);
    assert_eq!(run("echo 1; echo; echo ' [2,3] '; printf '\"x\"'", &[]).unwrap(), ["1", " [2,3] ", "\"x\""]);
    assert_eq!(run("true", &[]).unwrap(), [""; 0]);
    // A line end follows the input, as `read` of a shell requires.
    assert_eq!(run("read -r job && echo 1", &[]).unwrap(), ["1"]);
}

#[test]
fn arguments_are_put_in_one_by_one_and_no_shell_sees_them() {
    let given = run("printf '\"%s|\"\\n' \"$@\"", &["{id}", "x{n}", "{ctx.hash}", "{{n}}"]).unwrap();
    let hash = "000000000000000000000000000000ab";
    assert_eq!(given, ["\"a b; echo $HOME|\"", "\"x7|\"", &format!("\"{hash}|\""), "\"{n}|\""]);
}

#[test]
fn hash_and_attempt_stand_in_the_environment() {
    let mut command = shell(
        "printf '\"%s\"\\n' $TIDEGATE_HASH $TIDEGATE_ATTEMPT $TIDEGATE_INDEX $TIDEGATE_PIPELINE/$TIDEGATE_STEP \"$OWN\"",
        &[],
    );
    command.environment = vec![("OWN".into(), Template::parse("n is {n}", &[]).unwrap())];
    let given = run_with(&command, r#"{"n": 7}"#, LONG).unwrap();
    assert_eq!(
        given,
        ["\"000000000000000000000000000000ab\"", "\"2\"", "\"3\"", "\"shop/charge\"", "\"n is 7\""]
    );
}

#[test]
fn a_command_that_fails_tells_why() {
    let shown = [
        "echo 'no such account' >&2; exit 3",
        "exit 1",
        "kill -9 $$",
        "echo 1; echo oops",
        "i=0; while [ $i -lt 3000 ]; do echo \"line $i\" >&2; i=$((i+1)); done; exit 2",
    ]
    .map(|script| shown(&run(script, &[]).unwrap_err()));
    insta::assert_debug_snapshot!(shown);
}

#[test]
fn what_cannot_be_run_is_told() {
    let mut command = shell("", &[]);
    command.program = "surely-no-such-command".into();
    insta::assert_snapshot!(shown(&run_with(&command, "{}", LONG).unwrap_err()), @"failed (failed): the command `surely-no-such-command` cannot be started: No such file or directory (os error 2)");
    for argument in ["{none}", "{a}"] {
        let failure = run_with(&shell("true", &[argument]), r#"{"a": "\u0000"}"#, LONG).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Payload, "{failure}");
    }
}

#[test]
fn large_inputs_and_outputs_pass_and_larger_ones_do_not() {
    let large = format!("\"{}\"", "x".repeat(1 << 20));
    assert_eq!(run_with(&shell("cat", &[]), &large, LONG).unwrap(), [large.as_str()]);
    // A command need not read its input.
    assert_eq!(run_with(&shell("exec <&-; echo 1", &[]), &large, LONG).unwrap(), ["1"]);
    // It may read a part, and go on without the rest.
    let reads_a_part = shell("head -c 1000 > /dev/null; exec <&-; sleep 0.2; echo 1", &[]);
    assert_eq!(run_with(&reads_a_part, &large, LONG).unwrap(), ["1"]);
    let failure = run("yes", &[]).unwrap_err();
    insta::assert_snapshot!(shown(&failure), @"limit (limit): the command `sh` exceeded `limits.memory` (2.0 MiB) with its output and was killed");
}

#[test]
fn a_command_that_hangs_is_killed_with_all_its_children() {
    // The inner shell keeps its parent and its child waiting; only their group contains all of them.
    let script = "sh -c 'sleep 1000 & echo $! >&2; wait' & echo $! >&2; wait";
    let start = Instant::now();
    // Both begin in that time, also on a busy machine.
    let failure = run_with(&shell(script, &[]), "{}", Duration::from_secs(3)).unwrap_err();
    assert!(start.elapsed() < LONG);
    assert_eq!(failure.word(), "timeout");
    let (text, pids) = failure.message.split_once(": ").unwrap();
    assert_eq!(text, "the command `sh` exceeded its `timeout` of 3s and was killed");
    let pids: Vec<i32> = pids.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(pids.len(), 2);
    for pid in pids {
        assert_gone(pid);
    }
}

#[test]
fn children_of_a_command_that_fails_are_killed_and_nobody_waits_for_those_of_one_that_succeeds() {
    // The child keeps the outputs open.
    let failure = run("sleep 1000 & echo $! >&2; exit 1", &[]).unwrap_err();
    let pid = failure.message.rsplit(' ').next().unwrap().parse().unwrap();
    assert_gone(pid);

    let given = run("sleep 1000 & echo $!", &[]).unwrap();
    let pid = Pid::from_raw(given[0].parse().unwrap()).unwrap();
    kill_process(pid, Signal::KILL).expect("it still runs");
}

#[test]
fn a_command_that_only_complains_is_stopped_too() {
    let failure = run_with(&shell("yes >&2", &[]), "{}", Duration::from_millis(300)).unwrap_err();
    assert_eq!(failure.word(), "timeout");
    assert!(failure.message.len() < 2000, "{}", failure.message.len());
}

#[test]
fn a_secret_is_never_told() {
    let mut command = shell("echo \"$KEY is wrong\" >&2; exit 1", &[]);
    command.environment =
        vec![("KEY".into(), Template::parse("x-hunter2!", std::slice::from_ref(&(2..10))).unwrap())];
    let failure = run_with(&command, "{}", LONG).unwrap_err();
    assert_eq!(shown(&failure), "exit 1 (failed): the command `sh` ended with exit code 1: x-… is wrong");
}

/// Waits until a process is gone, or is a zombie.
fn assert_gone(pid: i32) {
    let start = Instant::now();
    loop {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = state.rsplit(')').next().unwrap_or_default().trim_start().chars().next();
        if matches!(state, None | Some('Z' | 'X')) {
            return;
        }
        assert!(start.elapsed() < LONG, "{pid} is {state:?}");
        std::thread::yield_now();
    }
}
