//! Test report: formats the outcome of a `[[test]]`, with the differences from the expected results.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use similar::{ChangeTag, TextDiff};

use super::console::{Paint, painted};
use tidegate_components::redact::Redactor;
use tidegate_config::{Configuration, TestCase};
use tidegate_engine::{Difference, TestOutcome};
use tidegate_model::plain;

/// Maximum characters of a job that is shown on one line.
const ONE_LINE_MAX: usize = 100;

/// Indent of the lines below the title.
const INDENT: &str = "      ";

/// Outcome of a test, for people and for programs.
#[derive(Debug, Serialize)]
pub(crate) struct TestRecord {
    pub(crate) pipeline: String,
    pub(crate) step: Option<String>,
    pub(crate) name: String,
    pub(crate) file: PathBuf,
    pub(crate) line: u64,
    pub(crate) passed: bool,
    pub(crate) took_ms: u64,
    pub(crate) differences: Vec<DifferenceRecord>,
}

/// Difference from an expected result.
#[derive(Debug, Serialize)]
pub(crate) struct DifferenceRecord {
    pub(crate) line: u64,
    pub(crate) message: String,
    /// The jobs, if the difference is in a list of jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expected: Option<Vec<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) actual: Option<Vec<Value>>,
}

impl TestRecord {
    /// `redactor` removes the secrets of the configuration.
    pub(crate) fn new(test: &TestCase, outcome: TestOutcome, redactor: &Redactor) -> Self {
        let difference = |difference| DifferenceRecord::new(test, difference).redacted(redactor);
        Self {
            pipeline: test.pipeline.to_string(),
            step: test.step.as_ref().map(|step| step.name.to_string()),
            name: test.name.clone(),
            file: test.file.clone(),
            line: test.line,
            passed: outcome.differences.is_empty(),
            took_ms: u64::try_from(outcome.took.as_millis()).unwrap_or(u64::MAX),
            differences: outcome.differences.into_iter().map(difference).collect(),
        }
    }

    /// The pipeline, the step and the name.
    pub(crate) fn title(&self) -> String {
        titled(&self.pipeline, self.step.as_deref(), &self.name)
    }
}

impl DifferenceRecord {
    fn new(test: &TestCase, difference: Difference) -> Self {
        match difference {
            Difference::Jobs { name, line, expected, actual } => {
                let message = format!("`{name}` differs");
                Self { line, message, expected: Some(expected), actual: Some(actual) }
            }
            Difference::Value { name, line, expected, actual } => {
                let message = format!("`{name}` is {actual}, but {expected} is expected");
                Self { line, message, expected: None, actual: None }
            }
            Difference::Unexpected { line, message } => {
                Self { line: line.unwrap_or(test.line), message, expected: None, actual: None }
            }
        }
    }
}

impl DifferenceRecord {
    fn redacted(self, redactor: &Redactor) -> Self {
        let job = |job: Value| {
            let text = job.to_string();
            match redactor.clean(&text) {
                clean if clean == text => job,
                clean => serde_json::from_str(&clean).unwrap_or(Value::String(clean)),
            }
        };
        let jobs = |jobs: Vec<Value>| jobs.into_iter().map(job).collect();
        Self {
            message: redactor.clean(&self.message),
            expected: self.expected.map(jobs),
            actual: self.actual.map(jobs),
            ..self
        }
    }
}

/// Removes the secrets of a configuration from the outcomes of its tests.
pub(crate) fn redactor(configuration: &Configuration) -> Redactor {
    let of_steps = configuration.steps.iter().flat_map(|step| &step.secrets);
    Redactor::new(configuration.inserted.iter().chain(of_steps))
}

/// `PIPELINE/STEP: NAME`, or `PIPELINE: NAME` for a test of a whole pipeline.
pub(crate) fn title(test: &TestCase) -> String {
    titled(test.pipeline.as_str(), test.step.as_ref().map(|step| step.name.as_str()), &test.name)
}

fn titled(pipeline: &str, step: Option<&str>, name: &str) -> String {
    match step {
        Some(step) => format!("{pipeline}/{step}: {name}"),
        None => format!("{pipeline}: {name}"),
    }
}

/// The outcome as text, with colours or without. Control characters of jobs are escaped.
pub(crate) fn text(record: &TestRecord, colours: bool) -> String {
    let paint = |text: &str, paint| if colours { painted(text, paint) } else { text.to_owned() };
    let title = plain::on_one_line(&record.title());
    if record.passed {
        return format!("{}  {title}", paint("ok  ", Paint::Green));
    }
    let mut lines = vec![format!("{}  {title}", paint("FAIL", Paint::Red))];
    for difference in &record.differences {
        let place = format!("{}:{}", record.file.display(), difference.line);
        let message = plain::on_one_line(&difference.message);
        lines.push(format!("{INDENT}{}: {message}", paint(&plain::on_one_line(&place), Paint::Dim)));
        for (sign, line) in diff(difference) {
            let line = format!("{INDENT}  {sign} {}", plain::on_one_line(&line));
            lines.push(match sign {
                '-' => paint(&line, Paint::Red),
                '+' => paint(&line, Paint::Green),
                _ => line,
            });
        }
    }
    lines.join("\n")
}

/// The differences as text without colours, for the file of the results.
pub(crate) fn plain_differences(record: &TestRecord) -> String {
    let text = text(record, false);
    let indented = text.lines().skip(1).map(|line| line.strip_prefix(INDENT).unwrap_or(line));
    indented.collect::<Vec<_>>().join("\n")
}

/// The lines of both lists of jobs: `-` is only expected, `+` is only in the results.
fn diff(difference: &DifferenceRecord) -> Vec<(char, String)> {
    let (Some(expected), Some(actual)) = (&difference.expected, &difference.actual) else {
        return Vec::new();
    };
    let is_short = |job: &Value| job.to_string().chars().count() <= ONE_LINE_MAX;
    let short = expected.iter().chain(actual).all(is_short);
    let written = |jobs: &[Value]| {
        let line = |job: &Value| if short { job.to_string() } else { format!("{job:#}") };
        jobs.iter().map(|job| line(job) + "\n").collect::<String>()
    };
    let (expected, actual) = (written(expected), written(actual));
    let diff = TextDiff::from_lines(&expected, &actual);
    let lines = diff.iter_all_changes().map(|change| {
        let sign = match change.tag() {
            ChangeTag::Delete => '-',
            ChangeTag::Insert => '+',
            ChangeTag::Equal => ' ',
        };
        (sign, change.value().trim_end().to_owned())
    });
    lines.collect()
}

/// The last line of a report.
pub(crate) fn summary(tests: usize, failed: usize, took: Duration) -> String {
    let noun = if tests == 1 { "test" } else { "tests" };
    let seconds = took.as_secs_f64();
    match (tests, failed) {
        (0, _) => "the configuration has no tests".to_owned(),
        (_, 0) => format!("{tests} {noun} passed in {seconds:.2} s"),
        _ => format!("{failed} of {tests} {noun} failed in {seconds:.2} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn failed(expected: Vec<Value>, actual: Vec<Value>) -> TestRecord {
        let message = "`done` differs".to_owned();
        TestRecord {
            pipeline: "orders".to_owned(),
            step: None,
            name: "a test".to_owned(),
            file: "orders.toml".into(),
            line: 3,
            passed: false,
            took_ms: 1,
            differences: vec![DifferenceRecord {
                line: 7,
                message,
                expected: Some(expected),
                actual: Some(actual),
            }],
        }
    }

    #[test]
    fn a_difference_is_red_and_green_on_a_terminal() {
        let shown = text(&failed(vec![json!(1), json!(2)], vec![json!(1), json!("\u{1b}[0m")]), true);
        insta::assert_snapshot!(shown.replace('\u{1b}', "ESC"));
    }

    #[test]
    fn long_jobs_are_shown_line_by_line() {
        let job = |id: u64| json!({ "id": id, "note": "x".repeat(100) });
        insta::assert_snapshot!(text(&failed(vec![job(1)], vec![job(2)]), false));
    }
}
