//! `tidegate store`: looking after the file that holds everything.

use super::cli::{Format, Look};
use super::exit::{self, Exit};
use super::find::{ask, other_question, print_json, print_text};
use super::look::{Answer, Query};
use super::table::{grouped, jobs};
use crate::words::format_size;

pub(super) fn verify(command: &Look) -> Exit {
    let report = match ask(command, Query::Verify) {
        Ok(Answer::Verify(report)) => report,
        Ok(_) => return other_question(),
        Err(exit) => return exit,
    };
    let exit = if report.problems.is_empty() { Exit::Done } else { Exit::Failed };
    if command.format == Format::Json {
        return print_json(&report, exit);
    }
    let queues = if report.queues == 1 { "queue" } else { "queues" };
    let (count, size) = (grouped(report.queues), format_size(report.bytes));
    print_text(&format!("{} on {count} {queues}, {size}", jobs(report.jobs)));
    match &report.problems[..] {
        [] => print_text("everything is in order"),
        problems => {
            for problem in problems {
                exit::fail(problem);
            }
        }
    }
    exit
}
