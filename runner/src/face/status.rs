//! `tidegate status`: how far each step is.

use super::cli::{Format, Look};
use super::exit::Exit;
use super::find::{ask, other_question, print_json, print_text};
use super::look::{Answer, Query, StepStatus};
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
    let lost = steps.iter().any(|step| step.counters.lost > 0);
    let rows: Vec<Vec<String>> = steps
        .iter()
        .enumerate()
        .map(|(at, step)| {
            let count = &step.counters;
            let mut row = vec![step.step.clone(), step.input.clone()];
            row.push(step.waiting.map_or_else(|| "-".to_owned(), grouped));
            row.extend(delayed.then(|| grouped(step.delayed)));
            row.extend(begun.then(|| grouped(step.begun)));
            row.push(grouped(count.taken));
            let counts = [count.given, count.filtered, count.failed];
            // A join gives once for all its inputs.
            let again = step.joins && at > 0 && steps[at - 1].step == step.step;
            row.extend(counts.map(|count| if again { String::new() } else { grouped(count) }));
            row.extend(lost.then(|| grouped(count.lost)));
            row.push(remark(step));
            row
        })
        .collect();
    let mut head = vec!["step", "reads", "waiting"];
    head.extend(delayed.then_some("delayed"));
    head.extend(begun.then_some("begun"));
    head.extend(["in", "out", "filtered", "failed"]);
    head.extend(lost.then_some("lost"));
    head.push("");
    let numbers: Vec<usize> = (2..head.len() - 1).collect();
    print_text(&table(&head, &numbers, &rows));
    Exit::Done
}

fn remark(step: &StepStatus) -> String {
    let mut remarks = Vec::new();
    if !step.configured {
        remarks.push("not in the configuration".to_owned());
    }
    remarks.extend(step.paused.as_ref().map(|since| format!("paused since {since}")));
    remarks.extend(step.closed.as_ref().map(|closed| match &*closed.why {
        "" => format!("closed since {}", closed.since),
        why => format!("closed since {}: {why}", closed.since),
    }));
    match (step.pending, step.valid) {
        (0, _) => {}
        (pending, 0) => remarks.push(format!("{} pending", grouped(pending))),
        (pending, valid) => {
            remarks.push(format!("{} pending, {} of them valid", grouped(pending), grouped(valid)));
        }
    }
    remarks.join("; ")
}
