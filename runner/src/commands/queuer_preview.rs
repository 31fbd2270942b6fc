//! `tidegate queuer preview`: prints the next rounds of jobs that a step would start.

use crate::cli::{Format, QueuerPreview};
use crate::client::{ask, other_question, print_json, print_text};
use crate::output::exit;
use crate::output::exit::Exit;
use crate::output::hint::with_command;
use crate::output::table::{grouped, jobs};
use crate::output::times;
use crate::query::{Answer, Preview, PreviewedRound, Query};
use tidegate_config::Invocation;
use tidegate_model::{Clock as _, SystemClock, Timestamp};

/// The width of a line of jobs, in characters.
const WIDTH: usize = 80;
/// Jobs of a round in text output, and in JSON.
const JOBS_OF_A_ROUND_AS_TEXT: usize = 40;
const JOBS_OF_A_ROUND: usize = 1000;

pub(crate) fn preview(command: &QueuerPreview) -> Exit {
    let listed = if command.look.format == Format::Json { JOBS_OF_A_ROUND } else { JOBS_OF_A_ROUND_AS_TEXT };
    let query = Query::Preview { step: command.step.clone(), rounds: command.rounds, listed };
    let preview = match ask(&command.look, query) {
        Ok(Answer::Preview(preview)) => preview,
        Ok(Answer::Missing(what)) => return exit::fail(what),
        Ok(_) => return other_question(),
        Err(exit) => return exit,
    };
    if command.look.format == Format::Json {
        return print_json(&preview, Exit::Done);
    }
    print_text(&describe(&preview, &command.look.given(), SystemClock.now()));
    Exit::Done
}

fn describe(preview: &Preview, given: &Invocation, now: Timestamp) -> String {
    let counts = [
        (preview.waiting, "waiting"),
        (preview.running, "running"),
        (preview.delayed, "delayed"),
        (preview.pending, "pending"),
    ];
    let counts: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{} {word}", grouped(*count)))
        .collect();
    let counts = if counts.is_empty() { "nothing waits".to_owned() } else { counts.join(", ") };
    let lanes = match preview.lanes {
        0 | 1 => String::new(),
        lanes => format!(", in {} lanes", grouped(lanes)),
    };
    let mut lines = vec![format!("{} reads {}: {counts}{lanes}", preview.step, preview.input)];
    lines.extend(preview.why.iter().map(|why| format!("  {}", with_command(why, &preview.step, given))));
    if preview.rounds.is_empty() {
        lines.push("  nothing would start".to_owned());
    }
    for (position, round) in preview.rounds.iter().enumerate() {
        let cut = preview.cut && position + 1 == preview.rounds.len();
        add_round(position + 1, round, cut, now, &mut lines);
    }
    lines.extend(preview.unseen.as_ref().map(|unseen| match unseen.jobs {
        Some(count) => format!("  not scanned: {}; {}", jobs(count), unseen.why),
        None => format!("  {}", unseen.why),
    }));
    lines.join("\n")
}

fn add_round(number: usize, round: &PreviewedRound, cut: bool, now: Timestamp, lines: &mut Vec<String>) {
    let at = match round.at.as_deref().map(|at| (at, times::read(at))) {
        None => "now".to_owned(),
        Some((_, Some(at))) => format!("in {}", times::until(at, now)),
        Some((at, None)) => at.to_owned(),
    };
    let count = jobs(round.jobs.len() as u64 + round.more);
    let least = if cut { "at least " } else { "" };
    lines.push(format!("  round {number}, {at}: {least}{count}"));
    let mut words: Vec<String> = round.jobs.iter().map(u64::to_string).collect();
    if round.more > 0 {
        words.push(format!("and {} more", grouped(round.more)));
    }
    let mut line = String::from("   ");
    for word in words {
        if line.len() + 1 + word.len() > WIDTH {
            lines.push(std::mem::replace(&mut line, String::from("   ")));
        }
        line.push(' ');
        line.push_str(&word);
    }
    lines.push(line);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::{PAUSED, Unseen};

    #[test]
    fn rounds_are_told_in_lines_that_fit() {
        let round = |jobs: std::ops::Range<u64>, more, at: Option<&str>| PreviewedRound {
            at: at.map(str::to_owned),
            jobs: jobs.collect(),
            more,
        };
        let mut preview = Preview {
            step: "withdrawals/pay".into(),
            input: "withdrawals/requests".into(),
            waiting: 1234,
            running: 0,
            delayed: 3,
            pending: 0,
            lanes: 7,
            why: vec![PAUSED.into()],
            rounds: vec![round(10_000..10_020, 1200, None), round(1..2, 0, Some("1970-01-01T00:00:12.500Z"))],
            cut: true,
            unseen: Some(Unseen { jobs: Some(1), why: "past search-ahead".into() }),
        };
        let now = Timestamp(10_000);
        let given = Invocation { config: "configs/pay".into(), ..Invocation::default() };
        insta::assert_snapshot!(describe(&preview, &given, now), @r"
        withdrawals/pay reads withdrawals/requests: 1,234 waiting, 3 delayed, in 7 lanes
          the step is paused; `tidegate step resume withdrawals/pay configs/pay` resumes it
          round 1, now: 1,220 jobs
            10000 10001 10002 10003 10004 10005 10006 10007 10008 10009 10010 10011
            10012 10013 10014 10015 10016 10017 10018 10019 and 1,200 more
          round 2, in 3s: at least 1 job
            1
          not scanned: 1 job; past search-ahead
        ");
        let why = Vec::new();
        preview = Preview { waiting: 0, delayed: 0, lanes: 0, why, rounds: Vec::new(), ..preview };
        preview.unseen = Some(Unseen { jobs: None, why: "the jobs of its source are not known".into() });
        insta::assert_snapshot!(describe(&preview, &given, now), @r"
        withdrawals/pay reads withdrawals/requests: nothing waits
          nothing would start
          the jobs of its source are not known
        ");
    }
}
