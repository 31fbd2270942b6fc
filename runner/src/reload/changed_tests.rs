//! Tests of changes: runs the tests of all changed steps before a reload, and reports those that fail.

use crate::output::test_report::{TestRecord, redactor};
use tidegate_config::{
    Configuration, ConfigurationDigest, Diagnostic, Diagnostics, Files, Position, Step, TestCase, read_text,
};
use tidegate_engine::{Generation, run_tests};

/// The failed tests as mistakes of their files. Tests without a changed step do not run.
pub(crate) fn failures(
    old: &ConfigurationDigest,
    new: &ConfigurationDigest,
    generation: &Generation,
) -> Diagnostics {
    let configuration = &generation.configuration;
    let changed: Vec<&Step> =
        configuration.steps.iter().filter(|step| old.is_changed(step, configuration, new)).collect();
    let concerned = |test: &&TestCase| changed.iter().any(|step| test.runs(step));
    let tests: Vec<&TestCase> = configuration.tests.iter().filter(concerned).collect();
    let mut diagnostics = Diagnostics::new(configuration.given.config.clone(), files(&tests));
    let redactor = redactor(configuration);
    let ran = run_tests(generation, &tests, |position, outcome| {
        let record = TestRecord::new(tests[position], outcome, &redactor);
        if !record.passed {
            let failed = failure(&record, configuration, diagnostics.files());
            diagnostics.push(failed);
        }
    });
    if let Err(error) = ran {
        let message = format!("no thread can be started for the tests: {error}");
        diagnostics.push(Diagnostic::error(configuration.given.config.clone(), None, message));
    }
    diagnostics
}

/// The texts of the files with these tests. A file that cannot be read now is left out.
fn files(tests: &[&TestCase]) -> Files {
    let mut files = Files::default();
    for test in tests {
        if files.get(&test.file).is_none()
            && let Ok(text) = read_text(&test.file)
        {
            files.add(test.file.clone(), text);
        }
    }
    files
}

fn failure(record: &TestRecord, configuration: &Configuration, files: &Files) -> Diagnostic {
    let line = usize::try_from(record.line).unwrap_or(usize::MAX);
    let at = |column| files.span_at(&record.file, Position { line, column });
    let header = at(1).zip(at(usize::MAX)).map(|(start, end)| start.start..end.start);
    let message = format!("the test `{}` fails", record.title());
    let mut diagnostic = Diagnostic::error(record.file.clone(), header, message);
    for difference in &record.differences {
        diagnostic = diagnostic.note(format!("line {}: {}", difference.line, difference.message));
    }
    diagnostic.help(format!("see the differences: `{}`", configuration.command("test")))
}
