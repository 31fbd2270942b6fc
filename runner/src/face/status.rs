//! `tidegate status`: how far each step is.

use super::cli::{Format, Look};
use super::exit::{self, Exit};
use super::find::{ask, print_json, print_text};
use super::look::{Answer, Query};
use super::table::{grouped, table};

pub(super) fn status(command: &Look) -> Exit {
    let steps = match ask(command, &Query::Status) {
        Ok(Answer::Status(steps)) => steps,
        Ok(_) => return exit::fail("the runner answered another question; is it of another version?"),
        Err(exit) => return exit,
    };
    if command.format == Format::Json {
        return print_json(&steps, Exit::Done);
    }
    let rows: Vec<Vec<String>> = steps
        .iter()
        .map(|step| {
            let count = &step.counters;
            let mut row = vec![step.step.clone(), step.input.clone()];
            row.push(step.waiting.map_or_else(|| "-".to_owned(), grouped));
            row.extend([count.taken, count.given, count.filtered, count.failed].map(grouped));
            row.push(if step.configured { String::new() } else { "not in the configuration".to_owned() });
            row
        })
        .collect();
    let head = ["step", "reads", "waiting", "in", "out", "filtered", "failed", ""];
    print_text(&table(&head, &[2, 3, 4, 5, 6], &rows));
    Exit::Done
}
