//! `tidegate status`: how far each step is.

use super::cli::{Format, Look};
use super::exit::Exit;
use super::find::{ask, other_question, print_json, print_text};
use super::look::{Answer, Query};
use super::table::{grouped, table};

pub(super) fn status(command: &Look) -> Exit {
    let steps = match ask(command, Query::Status) {
        Ok(Answer::Status(steps)) => steps,
        Ok(_) => return other_question(),
        Err(exit) => return exit,
    };
    if command.format == Format::Json {
        return print_json(&steps, Exit::Done);
    }
    // What is most often nowhere is a column only where it is something.
    let delayed = steps.iter().any(|step| step.delayed > 0);
    let begun = steps.iter().any(|step| step.begun > 0);
    let rows: Vec<Vec<String>> = steps
        .iter()
        .map(|step| {
            let count = &step.counters;
            let mut row = vec![step.step.clone(), step.input.clone()];
            row.push(step.waiting.map_or_else(|| "-".to_owned(), grouped));
            row.extend(delayed.then(|| grouped(step.delayed)));
            row.extend(begun.then(|| grouped(step.begun)));
            row.extend([count.taken, count.given, count.filtered, count.failed].map(grouped));
            row.push(match &step.paused {
                _ if !step.configured => "not in the configuration".to_owned(),
                Some(since) => format!("paused since {since}"),
                None => String::new(),
            });
            row
        })
        .collect();
    let mut head = vec!["step", "reads", "waiting"];
    head.extend(delayed.then_some("delayed"));
    head.extend(begun.then_some("begun"));
    head.extend(["in", "out", "filtered", "failed", ""]);
    let numbers: Vec<usize> = (2..head.len() - 1).collect();
    print_text(&table(&head, &numbers, &rows));
    Exit::Done
}
