//! `tidegate store`: verifies, compacts, exports and imports the store.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::cli::{Format, QueryOptions, StoreExport, StoreFile};
use crate::client::{CommandTarget, ask, no_state, open_patiently, other_question, print_json, print_text};
use crate::output::console;
use crate::output::exit;
use crate::output::exit::Exit;
use crate::output::table::{grouped, jobs};
use crate::query::{Answer, Query};
use tidegate_config::shown;
use tidegate_engine::Chain;
use tidegate_model::{create_private, format_size};
use tidegate_store::{Inventory, OpenError};

pub(crate) fn verify(command: &QueryOptions) -> Exit {
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

pub(crate) fn compact(command: &QueryOptions) -> Exit {
    #[derive(Serialize)]
    struct Sizes {
        before: u64,
        after: u64,
    }
    let place = match CommandTarget::of(&command.config, command.data.clone()) {
        Ok(place) => place,
        Err(exit) => return exit,
    };
    let data = &place.configuration.data;
    let sizes = match open_patiently(|| tidegate_store::compact(data)) {
        Ok(Some(compacted)) => Sizes { before: compacted.before, after: compacted.after },
        Ok(None) => return exit::fail(no_state(&place.configuration)),
        Err(error @ OpenError::Locked { .. }) => {
            return exit::fail(format_args!("{}; only a stopped store can be compacted", Chain(&error)));
        }
        Err(error) => return exit::fail(Chain(&error)),
    };
    if command.format == Format::Json {
        return print_json(&sizes, Exit::Done);
    }
    print_text(&format!("{} before, {} now", format_size(sizes.before), format_size(sizes.after)));
    Exit::Done
}

pub(crate) fn export(command: &StoreExport) -> Exit {
    let written = target(command).and_then(|target| write_export(&command.file, target.as_deref()));
    match written {
        Ok(exit) | Err(exit) => exit,
    }
}

/// The file to write; `None`: standard output. Only an older export is overwritten, so that a slip of the keyboard costs
/// no store, configuration or source.
fn target(command: &StoreExport) -> Result<Option<PathBuf>, Exit> {
    let file = &command.file.file;
    if file == Path::new("-") {
        return Ok(None);
    }
    if file.symlink_metadata().is_err() {
        return Ok(Some(file.clone()));
    }
    let shown = file.display();
    let cannot = |error: io::Error| exit::fail(format_args!("cannot write the export to `{shown}`: {error}"));
    // A link stays, and its file is replaced.
    let target = file.canonicalize().map_err(cannot)?;
    let metadata = target.metadata().map_err(cannot)?;
    if !metadata.is_file() {
        return Err(exit::fail(format_args!(
            "`{shown}` is not a regular file: name another one, or `-` for standard output"
        )));
    }
    if !command.force {
        return Err(exit::fail(format_args!(
            "`{shown}` already exists: name another file, or overwrite an older export with `--force`"
        )));
    }
    if metadata.len() > 0 && !tidegate_store::is_export(&target).map_err(cannot)? {
        return Err(exit::fail(format_args!(
            "`{shown}` is not an export, so it is not overwritten: name another file"
        )));
    }
    Ok(Some(target))
}

/// Writes the export. The file gets its name when it is complete; standard output also receives only a
/// complete export.
fn write_export(command: &StoreFile, target: Option<&Path>) -> Result<Exit, Exit> {
    let place = CommandTarget::of(&command.look.config, command.look.data.clone())?;
    let data = &place.configuration.data;
    if !data.exists() {
        return Err(exit::fail(no_state(&place.configuration)));
    }
    let unfinished = Unfinished::create(target.unwrap_or(&data.join("export")))?;
    let query = Query::Export { file: unfinished.0.clone() };
    let inventory = match place.ask(query)? {
        Answer::Exported(inventory) => inventory,
        Answer::Missing(what) => return Err(exit::fail(what)),
        _ => return Err(other_question()),
    };
    let cannot = |error: io::Error| exit::fail(format_args!("cannot write the export: {error}"));
    let Some(target) = target else {
        let copied = File::open(&unfinished.0).and_then(|mut file| console::copy(&mut file));
        copied.map_err(cannot)?;
        return Ok(Exit::Done);
    };
    fs::rename(&unfinished.0, target).map_err(cannot)?;
    if command.look.format == Format::Json {
        return Ok(print_json(&inventory, Exit::Done));
    }
    print_text(&format!("{} → {}", words(&inventory), command.file.display()));
    Ok(Exit::Done)
}

/// A file that is being written. It is removed on drop, unless it was renamed.
struct Unfinished(PathBuf);

impl Unfinished {
    fn create(target: &Path) -> Result<Self, Exit> {
        let cannot = |error: io::Error| {
            exit::fail(format_args!("cannot write the export to `{}`: {error}", target.display()))
        };
        let target = std::path::absolute(target).map_err(cannot)?;
        let mut name = target.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.new", std::process::id()));
        let path = target.with_file_name(name);
        // It holds all jobs, and the key of the completion tokens.
        create_private(&path).map_err(cannot)?;
        Ok(Self(path))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

pub(crate) fn import(command: &StoreFile) -> Exit {
    let place = match CommandTarget::of(&command.look.config, command.look.data.clone()) {
        Ok(place) => place,
        Err(exit) => return exit,
    };
    let data = &place.configuration.data;
    let imported = if command.file == Path::new("-") {
        tidegate_store::import(data, BufReader::new(io::stdin()))
    } else {
        match File::open(&command.file) {
            Ok(file) => tidegate_store::import(data, BufReader::new(file)),
            Err(error) => {
                return exit::fail(format_args!("cannot read `{}`: {error}", command.file.display()));
            }
        }
    };
    match imported {
        Ok(inventory) if command.look.format == Format::Json => print_json(&inventory, Exit::Done),
        Ok(inventory) => {
            print_text(&format!("{} → {}", words(&inventory), shown(data)));
            Exit::Done
        }
        Err(error) => exit::fail(format_args!("cannot import {}: {}", source(command), Chain(&error))),
    }
}

fn source(command: &StoreFile) -> String {
    if command.file == Path::new("-") {
        "standard input".to_owned()
    } else {
        format!("`{}`", command.file.display())
    }
}

fn words(inventory: &Inventory) -> String {
    let queues = if inventory.queues == 1 { "queue" } else { "queues" };
    format!("{} on {} {queues}, with all their records", jobs(inventory.jobs), grouped(inventory.queues))
}
