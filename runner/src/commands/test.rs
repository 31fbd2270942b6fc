//! `tidegate test`: runs the tests of a configuration, and shows the differences of those that fail.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::cli::{Format, TestArguments};
use crate::client;
use crate::output::console;
use crate::output::exit;
use crate::output::exit::Exit;
use crate::output::junit;
use crate::output::test_report::{self, TestRecord};
use tidegate_config::TestCase;
use tidegate_engine::{Generation, run_tests};

pub(crate) fn test(command: &TestArguments) -> Exit {
    let generation = match Generation::load(&command.config, &client::options(None, &command.plugins)) {
        Ok(generation) => generation,
        Err(diagnostics) => {
            match command.format {
                Format::Json => return client::print_json(&diagnostics.records(), Exit::Configuration),
                Format::Text => exit::show(&diagnostics),
            }
            return Exit::Configuration;
        }
    };
    let all = &generation.configuration.tests;
    let filter = command.filter.as_deref().unwrap_or_default();
    let chosen: Vec<&TestCase> =
        all.iter().filter(|test| test_report::title(test).contains(filter)).collect();
    if chosen.is_empty() && !filter.is_empty() {
        return exit::fail(format_args!("no test matches `{filter}`: {} of them exist", all.len()));
    }
    let redactor = test_report::redactor(&generation.configuration);
    let started = Instant::now();
    let (mut records, colours) = (Vec::new(), console::prints_colours());
    let ran = run_tests(&generation, &chosen, |position, outcome| {
        let record = TestRecord::new(chosen[position], outcome, &redactor);
        if command.format == Format::Text {
            client::print_painted(&test_report::text(&record, colours));
        }
        records.push(record);
    });
    if let Err(error) = ran {
        return exit::fail(format_args!("no thread can be started for the tests: {error}"));
    }
    finish(command, &records, started.elapsed())
}

/// Prints the summary, and writes the file of the results.
fn finish(command: &TestArguments, records: &[TestRecord], took: Duration) -> Exit {
    #[derive(Serialize)]
    struct Results<'a> {
        tests: &'a [TestRecord],
    }
    let failed = records.iter().filter(|record| !record.passed).count();
    let mut end = if failed > 0 { Exit::Failed } else { Exit::Done };
    match command.format {
        Format::Json => end = client::print_json(&Results { tests: records }, end),
        Format::Text => client::print_text(&test_report::summary(records.len(), failed, took)),
    }
    if let Some(file) = &command.junit
        && let Err(error) = std::fs::write(file, junit::xml(records, took))
    {
        return exit::fail(format_args!("`{}` cannot be written: {error}", file.display()));
    }
    end
}
