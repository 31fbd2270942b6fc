//! Command tests: shells print lines, cursors and failures.

use std::time::Duration;

use super::*;
use tidegate_config::{CursorRule, DataFormat, ExecCommand, LineFormat};
use tidegate_model::{Restart, RetryPolicy};

fn source(script: &str) -> CommandSource {
    let fixed = |text: &str| Template::fixed(text, &[]);
    CommandSource {
        command: ExecCommand {
            program: "sh".into(),
            arguments: vec![fixed("-c"), fixed(script)],
            environment: vec![("GREETING".into(), fixed("hello"))],
            folder: "/".into(),
            timeout: None,
        },
        lines: LineFormat { format: DataFormat::Lines, max_line: 1000, headers: true, delimiter: b',' },
        cursor: Some(CursorRule::Prefix("AT=".into())),
        restart: Restart::OnFailure,
        retry: RetryPolicy::DEFAULT,
        max_waiting: None,
        bad_lines: BadLines::Stop,
    }
}

fn start(script: &str, cursor: Option<&str>) -> CommandRun {
    let (source, running_commands) = (source(script), Arc::default());
    let address = &Address::parse("p/in").unwrap();
    let start =
        CommandStart { address, source: &source, cursor, running_commands: &running_commands, hosted: false };
    CommandRun::start(&start, &Arc::new(CommandWaker::new().unwrap())).unwrap()
}

fn texts(lines: &PrintedLines) -> Vec<String> {
    lines.jobs.iter().map(|job| String::from_utf8_lossy(job).into_owned()).collect()
}

/// All lines, the last cursor, and the end.
fn all(mut run: CommandRun) -> (Vec<String>, Option<String>, Result<(), String>) {
    let (mut jobs, mut cursor) = (Vec::new(), None);
    loop {
        let (lines, end) = match run.read(true, None) {
            CommandRead::Lines(lines) => (lines, None),
            CommandRead::Woken => continue,
            CommandRead::Ended(CommandEnd::Done(lines)) => (lines, Some(Ok(()))),
            CommandRead::Ended(CommandEnd::Failed(lines, failure)) => (lines, Some(Err(failure.why))),
        };
        jobs.extend(texts(&lines));
        cursor = lines.cursor.or(cursor);
        if let Some(end) = end {
            return (jobs, cursor, end);
        }
    }
}

#[test]
fn a_command_knows_its_source_and_its_cursor() {
    let script = "echo $GREETING $TIDEGATE_PIPELINE/$TIDEGATE_SOURCE ${TIDEGATE_CURSOR-none}";
    assert_eq!(all(start(script, None)).0, ["\"hello p/in none\""]);
    assert_eq!(all(start(script, Some("a b"))).0, ["\"hello p/in a b\""]);
}

#[test]
fn the_last_lines_count_if_the_command_succeeds() {
    let (jobs, cursor, end) = all(start("echo a; echo AT=1; echo b; printf c", None));
    assert_eq!((jobs, cursor), (vec!["\"a\"".into(), "\"b\"".into(), "\"c\"".into()], Some("1".into())));
    assert_eq!(end, Ok(()));
}

#[test]
fn lines_without_a_cursor_do_not_count_if_the_command_fails() {
    let (jobs, cursor, end) = all(start("echo a; echo AT=1; echo b; echo 'no disk' >&2; exit 3", None));
    assert_eq!((jobs, cursor), (vec!["\"a\"".to_owned()], Some("1".into())));
    assert_eq!(end.unwrap_err(), "the command `sh` ended with exit code 3: no disk");
}

#[test]
fn a_command_that_is_asked_to_end_ends_and_is_read_to_its_last_cursor() {
    let script =
        "trap 'echo b; echo AT=2; echo c; exit 0' TERM; echo a; echo AT=1; while :; do sleep 0.01; done";
    let mut run = start(script, None);
    let CommandRead::Lines(lines) = run.read(true, None) else { panic!("it prints a line") };
    assert_eq!((texts(&lines), lines.cursor.as_deref()), (vec!["\"a\"".to_owned()], Some("1")));
    run.terminate();
    let (jobs, cursor, end) = all(run);
    assert_eq!((jobs, cursor.as_deref(), end), (vec!["\"b\"".to_owned()], Some("2"), Ok(())));
}

#[test]
fn output_that_is_not_read_stays_in_the_pipe() {
    let mut run = start("echo a; echo AT=1", None);
    run.waker.wake();
    assert!(matches!(run.read(false, None), CommandRead::Woken));
    // The end of the command ends the wait; its output is read then.
    assert!(
        matches!(run.read(false, None), CommandRead::Ended(CommandEnd::Done(lines)) if lines.jobs.len() == 1)
    );
}

#[test]
fn a_wait_is_over_in_time() {
    let mut run = start("sleep 60", None);
    assert!(matches!(run.read(true, Some(Duration::from_millis(1))), CommandRead::Woken));
    run.kill();
}

#[test]
fn a_missing_command_is_named() {
    let mut source = source("");
    source.command.program = "/nowhere/watch".into();
    let address = &Address::parse("p/in").unwrap();
    let running_commands = &Arc::default();
    let start = CommandStart { address, source: &source, cursor: None, running_commands, hosted: false };
    let error = CommandRun::start(&start, &Arc::new(CommandWaker::new().unwrap())).unwrap_err();
    assert!(error.starts_with("the command `watch` cannot be started: No such file"), "{error}");
}
