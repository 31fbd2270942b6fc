//! Tests of command sources: histories of starts, ends, reloads and stops.

use tidegate_config::{LoadOptions, load};

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp(seconds * 1000)
}

/// A configuration with these exec sources, each with its settings.
fn configuration(sources: &[(&str, &str)]) -> Configuration {
    let folder = tempfile::tempdir().unwrap();
    let section = |(name, settings): &(&str, &str)| {
        format!(
            "[source.{name}]\ntype = \"exec\"\ncommand = [\"true\"]\ncwd = \"/\"\n{settings}\n\
             [step.of-{name}]\nfrom = \"{name}\"\nto = \"out\"\n"
        )
    };
    let mut sections: Vec<String> = sources.iter().map(section).collect();
    let other = "[source.other]\ntype = \"schedule\"\nevery = \"1h\"\n[step.of-other]\nfrom = \"other\"\nto = \"out\"\n";
    sections.push(other.to_owned());
    let text = sections.concat();
    let path = folder.path().join("p.toml");
    std::fs::write(&path, text).unwrap();
    load(&path, &LoadOptions::default()).finish().unwrap_or_else(|mistakes| panic!("{mistakes}")).0
}

const RETRY: &str = "retry = { backoff = \"fixed\", initial = \"5s\", jitter = \"none\", max_attempts = 2 }";

/// The orders as text: `+1` starts the first process, `stop` ends one.
fn shown(orders: &[CommandOrder]) -> Vec<String> {
    let text = |order: &CommandOrder| match order {
        CommandOrder::Start(start) => format!("{}+{}", start.address.name, start.epoch),
        CommandOrder::Stop(_) => "stop".to_owned(),
    };
    orders.iter().map(text).collect()
}

fn queue(configuration: &Configuration, name: &str) -> QueueRef {
    QueueRef(configuration.queues.position(|queue| queue.address.name.as_str() == name).unwrap())
}

fn failure(why: &str) -> Result<(), CommandFailure> {
    Err(CommandFailure { why: why.into(), is_final: false })
}

fn ended(queue: QueueRef, epoch: u64, printed: bool, end: Result<(), CommandFailure>) -> EndedCommand {
    EndedCommand { queue, epoch, printed, end }
}

#[test]
fn a_command_starts_once_and_its_success_ends_the_source() {
    let configuration = configuration(&[("in", "")]);
    let mut commands = CommandSources::new(&configuration, false, at(0));
    assert_eq!(commands.wakes(), Some(at(0)));
    assert_eq!(shown(&commands.take(1, at(0))), ["in+1"]);
    assert_eq!(shown(&commands.take(1, at(9))), [""; 0]);
    let queue = queue(&configuration, "in");
    assert_eq!(commands.ended(&ended(queue, 1, true, Ok(())), at(9)), EndNote::Nothing);
    assert!(!commands.are_active() && commands.wakes().is_none());
}

#[test]
fn a_failure_is_retried_by_the_policy_and_then_the_source_stops() {
    let configuration = configuration(&[("in", RETRY)]);
    let queue = queue(&configuration, "in");
    let mut commands = CommandSources::new(&configuration, false, at(0));
    commands.take(1, at(0));
    assert_eq!(commands.ended(&ended(queue, 1, false, failure("no")), at(1)), EndNote::Again(at(6)));
    assert_eq!(shown(&commands.take(1, at(5))), [""; 0]);
    assert_eq!(shown(&commands.take(1, at(6))), ["in+2"]);
    // A line is durable, so this failure is the first one.
    assert_eq!(commands.ended(&ended(queue, 2, true, failure("no")), at(6)), EndNote::Again(at(11)));
    commands.take(1, at(11));
    let note = commands.ended(&ended(queue, 3, false, failure("no")), at(11));
    assert_eq!(note, EndNote::GivenUp("no (all 2 attempts failed)".into()));
    assert!(!commands.are_active());
    // A reload tries it again.
    assert!(commands.follow(&configuration, at(20)).is_empty());
    assert_eq!(shown(&commands.take(2, at(20))), ["in+4"]);
}

#[test]
fn a_line_that_is_no_job_stops_the_source_at_once() {
    let configuration = configuration(&[("in", RETRY)]);
    let mut commands = CommandSources::new(&configuration, false, at(0));
    commands.take(1, at(0));
    let end = Err(CommandFailure { why: "printed nonsense".into(), is_final: true });
    let note = commands.ended(&ended(queue(&configuration, "in"), 1, true, end), at(1));
    assert_eq!(note, EndNote::GivenUp("printed nonsense".into()));
}

#[test]
fn a_command_that_always_runs_starts_again_unless_the_run_ends_when_idle() {
    let settings = format!("restart = \"always\"\n{RETRY}");
    let configuration = configuration(&[("in", &settings)]);
    let queue = queue(&configuration, "in");
    for (until_idle, note) in [(false, EndNote::Again(at(6))), (true, EndNote::Nothing)] {
        let mut commands = CommandSources::new(&configuration, until_idle, at(0));
        commands.take(1, at(0));
        assert_eq!(commands.ended(&ended(queue, 1, true, Ok(())), at(1)), note);
        assert_eq!(commands.are_active(), !until_idle);
    }
}

#[test]
fn a_reload_restarts_changed_commands_only() {
    let before = configuration(&[("a", ""), ("b", ""), ("c", "")]);
    let mut commands = CommandSources::new(&before, false, at(0));
    commands.take(1, at(0));
    // The position of each queue stays.
    let after = |sources: &[(&str, &str)]| {
        let mut after = configuration(sources);
        let mut positions = tidegate_config::Positions::default();
        before.clone().keep_positions(&mut positions);
        after.keep_positions(&mut positions);
        after
    };
    let changed = after(&[("a", ""), ("b", "restart = \"never\"")]);
    assert_eq!(shown(&commands.follow(&changed, at(1))), ["stop", "stop"]);
    assert_eq!(shown(&commands.take(2, at(1))), [""; 0], "the former processes still run");
    let (b, c) = (queue(&before, "b"), queue(&before, "c"));
    assert_eq!(commands.ended(&ended(b, 2, true, failure("killed")), at(2)), EndNote::Nothing);
    assert_eq!(shown(&commands.take(2, at(2))), ["b+4"]);
    commands.ended(&ended(c, 3, true, Ok(())), at(3));
    assert_eq!(shown(&commands.take(2, at(3))), [""; 0]);
    // Only the running ones are asked to end.
    assert_eq!(shown(&commands.stop(at(4))), ["stop", "stop"]);
    assert_eq!(shown(&commands.stop(at(4))), [""; 0]);
}

#[test]
fn the_end_of_an_earlier_process_means_nothing() {
    let configuration = configuration(&[("in", "")]);
    let mut commands = CommandSources::new(&configuration, false, at(0));
    commands.take(1, at(0));
    let queue = queue(&configuration, "in");
    assert_eq!(commands.ended(&ended(queue, 7, false, Ok(())), at(1)), EndNote::Nothing);
    assert!(commands.are_active());
}
