//! `tidegate history`: lists the configurations that were taken over, and prints the files of one.

use std::fmt::Write as _;

use crate::cli::{Format, HistoryCommand};
use crate::client::{CommandTarget, options, other_question, print_json, print_text};
use crate::output::exit;
use crate::output::exit::Exit;
use crate::output::table::{Column, columns};
use crate::output::terminal::width;
use crate::query::{Answer, HistoryFiles, HistoryPage, HistoryRow, Query};

/// Number of digits of a hash that are shown.
const DIGITS: usize = 12;

pub(crate) fn history(command: &HistoryCommand) -> Exit {
    show(command).unwrap_or_else(|exit| exit)
}

fn show(command: &HistoryCommand) -> Result<Exit, Exit> {
    let place = CommandTarget::with_mistakes(&command.config, &options(command.data.clone(), &[]))?;
    let is_json = command.format == Format::Json;
    match place.ask(Query::History { generation: command.generation })? {
        Answer::History(page) if is_json => Ok(print_json(&page, Exit::Done)),
        Answer::HistoryFiles(files) if is_json => Ok(print_json(&files, Exit::Done)),
        Answer::History(page) => {
            list(&page);
            Ok(Exit::Done)
        }
        Answer::HistoryFiles(files) => {
            print_text(&described(&files));
            Ok(Exit::Done)
        }
        Answer::Missing(what) => Err(exit::fail(what)),
        _ => Err(other_question()),
    }
}

fn list(page: &HistoryPage) {
    let HistoryPage { entries, damaged } = page;
    if *damaged > 0 {
        exit::warn(format_args!("{damaged} entries of the history are damaged, and left out"));
    }
    if entries.is_empty() {
        return print_text("no configuration has run yet");
    }
    let cells = |of: &dyn Fn(&HistoryRow) -> String| entries.iter().map(of).collect();
    let number =
        |row: &HistoryRow| row.generation.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let outcome = |row: &HistoryRow| match &row.why {
        Some(why) => format!("{}: {why}", row.outcome),
        None => row.outcome.clone(),
    };
    let shown = [
        Column::right("generation", cells(&number)),
        Column::left("time", cells(&|row| row.time.clone())).drops(2),
        Column::left("trigger", cells(&|row| row.trigger.as_str().to_owned())),
        Column::left("outcome", cells(&outcome)).cuts(12),
        Column::right("files", cells(&|row| row.files.to_string())).drops(1),
        Column::left("changed", cells(&|row| row.changed.join(", "))).cuts(20),
    ];
    print_text(&columns(&shown, width()).join("\n"));
}

fn described(HistoryFiles { entry, files }: &HistoryFiles) -> String {
    let number = entry.generation.map(|number| number.to_string()).unwrap_or_default();
    let mut text =
        format!("generation {number}, {}, by {}: {}\n", entry.time, entry.trigger.as_str(), entry.outcome);
    for (name, sha256) in &entry.plugins {
        let _ = writeln!(text, "plugin {name} {}", sha256.get(..DIGITS).unwrap_or(sha256));
    }
    for file in files {
        let _ = writeln!(text, "\n--- {}", file.path);
        text.push_str(file.text.as_deref().unwrap_or("(the text is damaged)"));
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    text
}
