//! `tidegate queuer preview`: what the next rounds of a step would start.

use super::cli::{Format, QueuerPreview};
use super::exit::{self, Exit};
use super::find::{ask, other_question, print_json, print_text};
use super::look::{Answer, Preview, PreviewedRound, Query};
use super::table::grouped;

/// The width of a line of jobs, in characters.
const WIDTH: usize = 96;

pub(super) fn preview(command: &QueuerPreview) -> Exit {
    let query = Query::Preview { step: command.step.clone(), rounds: command.rounds };
    let preview = match ask(&command.look, query) {
        Ok(Answer::Preview(preview)) => preview,
        Ok(Answer::Missing(what)) => return exit::fail(what),
        Ok(_) => return other_question(),
        Err(exit) => return exit,
    };
    if command.look.format == Format::Json {
        return print_json(&preview, Exit::Done);
    }
    print_text(&describe(&preview));
    Exit::Done
}

fn describe(preview: &Preview) -> String {
    let counts = [
        (preview.waiting, "waiting"),
        (preview.running, "running"),
        (preview.delayed, "delayed"),
        (preview.pending, "pending"),
    ];
    let mut counts: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{} {word}", grouped(*count)))
        .collect();
    if preview.lanes > 1 {
        counts.push(format!("{} lanes", grouped(preview.lanes)));
    }
    let counts = if counts.is_empty() { "nothing waits".to_owned() } else { counts.join(", ") };
    let mut lines = vec![format!("{}: {counts}", preview.step)];
    if preview.paused {
        lines.push(format!("  it is paused; `tidegate step resume {}` has it go on", preview.step));
    }
    if preview.rounds.is_empty() {
        lines.push("  nothing would start".to_owned());
    }
    for (number, round) in preview.rounds.iter().enumerate() {
        add_round(number + 1, round, &mut lines);
    }
    lines.join("\n")
}

fn add_round(number: usize, round: &PreviewedRound, lines: &mut Vec<String>) {
    let at = round.at.as_ref().map_or_else(|| "now".to_owned(), Clone::clone);
    let count = grouped(round.jobs.len() as u64 + round.more);
    lines.push(format!("  round {number}, {at}: {count}"));
    let mut line = String::from("   ");
    for job in &round.jobs {
        if line.len() + 1 + job.len() > WIDTH && !line.trim().is_empty() {
            lines.push(std::mem::replace(&mut line, String::from("   ")));
        }
        line.push(' ');
        line.push_str(job);
    }
    if round.more > 0 {
        line.push_str(&format!(" and {} more", grouped(round.more)));
    }
    lines.push(line);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_told_in_lines_that_fit() {
        let round = |jobs: u64, more, at: Option<&str>| PreviewedRound {
            at: at.map(str::to_owned),
            jobs: (1..=jobs).map(|index| format!("withdrawals/requests/{index}")).collect(),
            more,
        };
        let mut preview = Preview {
            step: "withdrawals/pay".into(),
            waiting: 1234,
            running: 0,
            delayed: 3,
            pending: 0,
            lanes: 7,
            paused: true,
            rounds: vec![round(6, 1200, None), round(1, 0, Some("2026-01-31T12:00:00.000Z"))],
        };
        insta::assert_snapshot!(describe(&preview), @r"
        withdrawals/pay: 1,234 waiting, 3 delayed, 7 lanes
          it is paused; `tidegate step resume withdrawals/pay` has it go on
          round 1, now: 1,206
            withdrawals/requests/1 withdrawals/requests/2 withdrawals/requests/3 withdrawals/requests/4
            withdrawals/requests/5 withdrawals/requests/6 and 1,200 more
          round 2, 2026-01-31T12:00:00.000Z: 1
            withdrawals/requests/1
        ");
        preview = Preview { waiting: 0, delayed: 0, lanes: 0, paused: false, rounds: Vec::new(), ..preview };
        insta::assert_snapshot!(describe(&preview), @r"
        withdrawals/pay: nothing waits
          nothing would start
        ");
    }
}
