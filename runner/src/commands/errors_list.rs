//! `tidegate errors list` and `show`: print the jobs that were rejected or failed.

use std::path::Path;

use crate::cli::{ErrorsList, ErrorsShow, Format};
use crate::client::{ask, other_question, print_json, print_painted, print_text};
use crate::output::console;
use crate::output::console::{Paint, painted};
use crate::output::error_record::ErrorRecordView;
use crate::output::exit;
use crate::output::exit::Exit;
use crate::output::table::{Column, columns, grouped, on_one_line};
use crate::output::terminal::width;
use crate::query::{Answer, Query, QueueJob};
use tidegate_model::Address;

pub(crate) fn list(command: &ErrorsList) -> Exit {
    let config: &Path = &command.look.config;
    if let (None, Some(queue)) =
        (&command.queue, config.to_str().filter(|text| Address::parse(text).is_some()))
        && !config.exists()
    {
        return exit::misuse(format_args!(
            "`{queue}` is not a configuration: for a queue, write `--queue {queue}`"
        ));
    }
    let query = Query::Errors { queue: command.queue.clone(), all: command.all, limit: command.limit };
    let (errors, total) = match ask(&command.look, query) {
        Ok(Answer::Errors { errors, total }) => (errors, total),
        Ok(Answer::Missing(what)) => return exit::fail(what),
        Ok(_) => return other_question(),
        Err(exit) => return exit,
    };
    let shown = errors.len() as u64;
    let (newest, all) = (grouped(shown), grouped(total));
    let more = (shown < total).then(|| format!("the newest {newest} of {all}: `--limit {total}` shows all"));
    if command.look.format == Format::Json {
        if let Some(more) = more {
            exit::warn(more);
        }
        return print_json(&errors, Exit::Done);
    }
    if errors.is_empty() {
        print_text("no errors");
        return Exit::Done;
    }
    print_painted(&describe(&errors, more, width(), console::prints_colours()));
    Exit::Done
}

fn describe(errors: &[QueueJob], more: Option<String>, width: Option<usize>, colours: bool) -> String {
    let lines = columns(&columns_of(errors), width);
    let of_errors = std::iter::once(None).chain(errors.iter().map(Some));
    let paint = |(line, error): (String, Option<&QueueJob>)| match error.filter(|_| colours) {
        None => line,
        Some(error) if error.handled => painted(&line, Paint::Dim),
        Some(error) => {
            // The name is the first column, and is never shortened.
            let name = name(error);
            line.strip_prefix(&name).map_or_else(|| line.clone(), |rest| painted(&name, Paint::Red) + rest)
        }
    };
    let lines = lines.into_iter().zip(of_errors).map(paint);
    lines.chain(more).collect::<Vec<_>>().join("\n")
}

fn name(error: &QueueJob) -> String {
    format!("{}/{}", error.queue, error.index)
}

fn columns_of(errors: &[QueueJob]) -> [Column; 6] {
    let mut cells: [Vec<String>; 6] = Default::default();
    for error in errors {
        for (cells, cell) in cells.iter_mut().zip(row(error)) {
            cells.push(cell);
        }
    }
    let [error, time, step, job, kind, message] = cells;
    [
        Column::left("error", error),
        Column::left("time", time).drops(1),
        Column::left("step", step).drops(3).cuts_front(16),
        Column::left("job", job).drops(4).cuts_front(16),
        Column::left("kind", kind).drops(2),
        Column::left("message", message).cuts(24),
    ]
}

fn row(error: &QueueJob) -> [String; 6] {
    let mark = if error.handled { " (handled)" } else { "" };
    let name = name(error) + mark;
    let Ok(record) = ErrorRecordView::of(error) else {
        let blank = String::new;
        return [name, blank(), blank(), blank(), blank(), "no error record".to_owned()];
    };
    let message = on_one_line(&record.message.replace('\n', " "));
    let (time, job) = (record.time(), record.origin());
    [name, time, record.step, job, record.kind, message]
}

pub(crate) fn show(command: &ErrorsShow) -> Exit {
    let parts = command.error.rsplit_once('/').and_then(|(queue, index)| Some((queue, index.parse().ok()?)));
    let Some((queue, index)) = parts else {
        let what = format!(
            "`{}` does not name an error: write PIPELINE/QUEUE/INDEX, as `errors list` shows it",
            command.error
        );
        return exit::misuse(what);
    };
    let errors = match ask(&command.look, Query::Error { queue: queue.to_owned(), index }) {
        Ok(Answer::Errors { errors, .. }) => errors,
        Ok(Answer::Missing(what)) => return exit::fail(what),
        Ok(_) => return other_question(),
        Err(exit) => return exit,
    };
    let Some(error) = errors.first() else { return exit::fail("no such error") };
    if command.look.format == Format::Json {
        return print_json(error, Exit::Done);
    }
    match ErrorRecordView::of(error) {
        Ok(record) => print_text(&record.describe(error, width())),
        Err(problem) => return exit::fail(problem),
    }
    Exit::Done
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    fn error(index: u64, handled: bool) -> QueueJob {
        let record = r#"{"time":"2026-01-31T12:00:00.123Z","pipeline":"withdrawals","step":"submit",
            "input":"withdrawals/requests","index":1234,"attempt":3,"kind":"rejected","hash":"ab",
            "message":"the account is closed,\nand was so before the order came"}"#;
        QueueJob {
            queue: "withdrawals/failed".into(),
            index,
            time: None,
            transaction: None,
            origin: None,
            meta: None,
            handled,
            present_step: None,
            job: RawValue::from_string(record.into()).unwrap(),
        }
    }

    #[test]
    fn a_narrow_terminal_gets_what_fits() {
        let error = error(7, false);
        let text = |width: usize| {
            let lines = columns(&columns_of(std::slice::from_ref(&error)), Some(width));
            assert!(lines.iter().all(|line| line.chars().count() <= width), "{lines:?}");
            lines.join("\n")
        };
        insta::assert_snapshot!(format!("{}\n\n{}\n\n{}", text(200), text(80), text(60)));
    }

    #[test]
    fn an_open_error_stands_out_and_one_that_was_handled_steps_back() {
        let errors = [error(7, false), error(8, true)];
        let plain = describe(&errors, None, None, false);
        let painted = describe(&errors, None, None, true);
        let lines: Vec<(&str, &str)> = plain.lines().zip(painted.lines()).collect();
        assert_eq!(lines[0].0, lines[0].1);
        let rest = lines[1].0.strip_prefix("withdrawals/failed/7").unwrap();
        assert_eq!(lines[1].1, format!("\u{1b}[31mwithdrawals/failed/7\u{1b}[0m{rest}"));
        assert_eq!(lines[2].1, format!("\u{1b}[2m{}\u{1b}[0m", lines[2].0));
    }
}
