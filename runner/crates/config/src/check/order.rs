//! Order of outputs: finds joins that depend on an order that steps do not guarantee, and policies whose
//! waits hold ordered steps for long.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use crate::diagnostic::span_of::locate;
use crate::diagnostic::{Diagnostic, Diagnostics, SourceSpan};
use crate::model::{Configuration, Input, InputMode, OutputOrder, Step, Target};
use tidegate_model::format_duration;

/// A longer wait of an ordered step causes a warning.
const LONG_WAIT: Duration = Duration::from_mins(1);

/// Reports joins that would pair the wrong jobs, and policies that hold all later jobs for long. It needs a
/// configuration with loaded plugins, since a plugin declares its effects.
pub fn check(configuration: &Configuration, diagnostics: &mut Diagnostics) {
    for step in &configuration.steps {
        if let Some((input, behind)) = misjoined(configuration, step) {
            let diagnostic = misjoin(step, input, behind, diagnostics);
            diagnostics.push(diagnostic);
        }
        let wait = step.retry_policy().map(tidegate_model::RetryPolicy::longest_wait);
        let holds_others = step.picks().is_none_or(|queuer| queuer.ordered);
        if let Some(wait) = wait.filter(|wait| holds_others && *wait > LONG_WAIT) {
            let diagnostic = long_wait(step, wait, diagnostics);
            diagnostics.push(diagnostic);
        }
    }
}

/// The input of a join whose jobs have lost their order, and the step that loses it.
fn misjoined<'c>(configuration: &'c Configuration, join: &Step) -> Option<(usize, &'c Step)> {
    if join.take != InputMode::Join {
        return None;
    }
    let mut lines = join.inputs.iter().map(|input| line(configuration, input.input));
    let first = lines.next()?;
    // Branches of one queue or source are paired by their order in it.
    if !lines.fold(first, |common, line| common.intersection(&line).copied().collect()).is_empty() {
        return None;
    }
    let inputs = join.inputs.iter().enumerate();
    let mut behind = inputs.map(|(at, input)| Some((at, unordered(configuration, input.input)?)));
    behind.find_map(|found| found)
}

/// The input, and everything whose order its jobs keep.
fn line(configuration: &Configuration, input: Input) -> BTreeSet<Input> {
    let (mut line, mut waiting) = (BTreeSet::new(), vec![input]);
    while let Some(input) = waiting.pop().filter(|input| line.insert(*input)) {
        // Several producers of one queue mix their jobs, and so do alternatives.
        if let [filler] = fillers(configuration, input)[..]
            && filler.order() == OutputOrder::AsInputs
            && filler.take != InputMode::Alts
        {
            waiting.extend(filler.inputs.iter().map(|input| input.input));
        }
    }
    line
}

/// The nearest step before `input` whose outputs are in the order in which jobs finish.
fn unordered(configuration: &Configuration, input: Input) -> Option<&Step> {
    let (mut seen, mut waiting) = (BTreeSet::new(), VecDeque::from([input]));
    while let Some(input) = waiting.pop_front() {
        if !seen.insert(input) {
            continue;
        }
        for filler in fillers(configuration, input) {
            if filler.order() == OutputOrder::AsFinished {
                return Some(filler);
            }
            waiting.extend(filler.inputs.iter().map(|input| input.input));
        }
    }
    None
}

fn fillers(configuration: &Configuration, input: Input) -> Vec<&Step> {
    let Input::Queue(queue) = input else { return Vec::new() };
    let fills = |step: &&Step| {
        step.errors == Some(queue) || step.outputs.iter().any(|output| output.target == Target::Queue(queue))
    };
    configuration.steps.iter().filter(fills).collect()
}

fn misjoin(join: &Step, input: usize, behind: &Step, diagnostics: &Diagnostics) -> Diagnostic {
    let (name, input) = (join.address.name.as_str(), &join.inputs[input]);
    let span = |step: &Step, keys: &[&str]| {
        let mut way = vec!["step", step.address.name.as_str()];
        way.extend(keys);
        let text = diagnostics.files().get(&step.file)?;
        locate(text, &way, keys.is_empty())
    };
    let other = &behind.address;
    let shown =
        if other.pipeline == join.address.pipeline { other.name.to_string() } else { other.to_string() };
    let message = format!(
        "the join `{name}` cannot pair jobs in order: the step `{shown}` delivers them as they finish"
    );
    let by_key = "join what comes before it, or pair the jobs by a field with `on`";
    let help = if behind.joins.is_some() {
        by_key.to_owned()
    } else {
        let ordered = "with `queuer = { strategy = \"fifo\", ordered = true }`";
        format!("have `{shown}` deliver in order, {ordered}, {by_key}")
    };
    let diagnostic = Diagnostic::error(&join.file, span(join, &["join", &input.binding]), message).help(help);
    match span(behind, &[]) {
        Some(span) => {
            let place = SourceSpan { file: behind.file.as_path().into(), span };
            diagnostic.related(place, "order ends here")
        }
        None => diagnostic,
    }
}

fn long_wait(step: &Step, wait: Duration, diagnostics: &Diagnostics) -> Diagnostic {
    let name = step.address.name.as_str();
    let text = diagnostics.files().get(&step.file);
    let span = text.and_then(|text| {
        locate(text, &["step", name, "retry"], false).or_else(|| locate(text, &["step", name], true))
    });
    let wait = format_duration(wait);
    let message =
        format!("the step `{name}` delivers in order, so a failed job holds all later ones for up to {wait}");
    let help = if step.picks().is_some() {
        "leave out `ordered` to let failed jobs step aside, or write a shorter `max` in `retry`"
    } else if step.take == InputMode::From {
        "write `queuer = { strategy = \"fifo\" }` to let failed jobs step aside, or a shorter `max` in `retry`"
    } else {
        "write a shorter `max` in `retry`"
    };
    Diagnostic::warning(&step.file, span, message).help(help)
}
