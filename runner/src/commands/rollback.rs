//! `tidegate rollback`: lets the runner go back to an earlier generation, and restores its files with `--write`.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use super::plan::described;
use super::reload::print_outcome;
use crate::cli::{Format, RollbackCommand};
use crate::client::{CommandTarget, options, other_question, print_json, print_painted, print_text};
use crate::output::console;
use crate::output::exit;
use crate::output::exit::Exit;
use crate::output::terminal::{confirm, width};
use crate::query::{Answer, HistoryFiles, Planned, Query};
use crate::reload::Reloaded;
use tidegate_config::{absolute, shown};

/// It belongs to no pipeline.
const SETTINGS: &str = "tidegate.toml";
/// Added to the names of pipelines that the earlier generation does not have.
const SET_ASIDE: &str = "rolled-back";
/// Maximum number of such files of one pipeline.
const ASIDE_MAX: usize = 1_000;

pub(crate) fn rollback(command: &RollbackCommand) -> Exit {
    go_back(command).unwrap_or_else(|exit| exit)
}

fn go_back(command: &RollbackCommand) -> Result<Exit, Exit> {
    let place = CommandTarget::with_mistakes(&command.config, &options(command.data.clone(), &[]))?;
    if let (true, Some(path)) = (command.write, place.other_configuration()) {
        return Err(exit::fail(format_args!(
            "the runner reads `{path}`: give this path to restore its files"
        )));
    }
    if command.write {
        let what =
            command.generation.map_or("the earlier generation".to_owned(), |it| format!("generation {it}"));
        let folder = shown(&place.configuration.root);
        confirm(&format!("The files of {what} will overwrite those in `{folder}`."), command.yes)?;
    }
    if let (true, Some(generation)) = (command.write, command.generation)
        && in_force(&place)? == Some(generation)
    {
        restore(&place, generation)?;
        compare(&place, generation);
        if command.format == Format::Json {
            return print_outcome(Reloaded::Unchanged { generation }, command.format);
        }
        print_text(&format!("generation {generation} stays in force, and its files are restored"));
        return Ok(Exit::Done);
    }
    let Some(outcome) = place.roll_back(command.generation)? else {
        return without_runner(&place, command);
    };
    let installed =
        if let Reloaded::Installed { generation, .. } = &outcome { Some(*generation) } else { None };
    let exit = print_outcome(outcome, command.format)?;
    if let (Some(generation), true) = (installed, command.write) {
        restore(&place, generation)?;
        compare(&place, generation);
    }
    Ok(exit)
}

/// Lets the runner compare the restored files with the generation in force at once. Its watch would do so later, and
/// take them for a change if a further rollback comes first.
fn compare(place: &CommandTarget, generation: u64) {
    if place.compare() == Some(false) {
        let plan = place.configuration.command("plan");
        exit::warn(format_args!(
            "the restored files differ from generation {generation}: `{plan}` shows how"
        ));
    }
}

/// The generation that a runner carries out. Its files may have changed since.
fn in_force(place: &CommandTarget) -> Result<Option<u64>, Exit> {
    match place.ask_runner(Query::Status { lanes: 0 })? {
        Some(Answer::Status(status)) => Ok(status.reload.map(|reload| reload.generation)),
        Some(_) => Err(other_question()),
        None => Ok(None),
    }
}

/// Only the files can go back.
fn without_runner(place: &CommandTarget, command: &RollbackCommand) -> Result<Exit, Exit> {
    if !command.write {
        return Err(exit::fail("no runner is running: `--write` restores the files for the next run"));
    }
    let generation = match command.generation {
        Some(generation) => generation,
        None => previous(place)?,
    };
    let files = files_of(place, generation)?;
    if command.data.is_some() {
        refuse_other_folder(place, &files)?;
    }
    write_back(place, &files)?;
    // Only a runner gives renamed parts their earlier names back, so a step may begin anew.
    let plan = match place.ask(Query::Plan) {
        Ok(Answer::Plan(Planned::Plan(plan))) => Some(plan),
        Ok(Answer::Plan(Planned::Mistakes { .. })) => {
            exit::warn("the restored files have mistakes, which `tidegate check` shows");
            None
        }
        // The files are restored, whether the plan can be made or not.
        Ok(_) | Err(_) => None,
    };
    if command.format == Format::Json {
        return Ok(print_json(&serde_json::json!({ "generation": generation, "plan": plan }), Exit::Done));
    }
    print_text(&format!("the files are those of generation {generation}: the next `tidegate run` uses them"));
    if let Some(plan) = plan.filter(|plan| !plan.is_empty()) {
        print_text("\nchanges by that run:");
        print_painted(&described(&plan, width(), console::prints_colours()));
    }
    Ok(Exit::Done)
}

/// The generation that was in force before the last one. One that came by a rollback has the place of the one that it
/// repeats.
fn previous(place: &CommandTarget) -> Result<u64, Exit> {
    match place.ask(Query::Previous)? {
        Answer::Previous(generation) => Ok(generation),
        Answer::Missing(why) => Err(exit::fail(why)),
        _ => Err(other_question()),
    }
}

/// Writes the files of a generation. Pipelines that it does not have are set aside under another name.
fn restore(place: &CommandTarget, generation: u64) -> Result<(), Exit> {
    write_back(place, &files_of(place, generation)?)
}

fn write_back(place: &CommandTarget, files: &HistoryFiles) -> Result<(), Exit> {
    let root = &place.configuration.root;
    // First, so that a runner which reads meanwhile does not take these pipelines for a part of that generation.
    if place.configuration.given.config.is_dir() {
        set_aside(root, files).map_err(|error| exit::fail(format_args!("`{}`: {error}", root.display())))?;
    }
    write(root, files).map_err(|(path, error)| exit::fail(format_args!("`{}`: {error}", path.display())))
}

fn files_of(place: &CommandTarget, generation: u64) -> Result<HistoryFiles, Exit> {
    match place.ask(Query::History { generation: Some(generation) })? {
        Answer::HistoryFiles(files) => Ok(files),
        Answer::Missing(what) => Err(exit::fail(what)),
        _ => Err(other_question()),
    }
}

/// Refuses a folder that has pipelines, of which the history knows none: the data folder that is named is that of another
/// configuration. A runner names its own.
fn refuse_other_folder(place: &CommandTarget, files: &HistoryFiles) -> Result<(), Exit> {
    let Answer::History(page) = place.ask(Query::History { generation: None })? else {
        return Err(other_question());
    };
    let changed = page.entries.iter().flat_map(|entry| &entry.changed);
    let known: BTreeSet<&String> = changed.chain(files.files.iter().map(|file| &file.path)).collect();
    let config = &place.configuration.given.config;
    let present = match config.file_name() {
        Some(name) if config.is_file() => vec![name.to_string_lossy().into_owned()],
        // Nothing is overwritten in a folder that is gone.
        _ => toml_files(config).unwrap_or_default(),
    };
    let mut pipelines = present.iter().filter(|name| *name != SETTINGS).peekable();
    if pipelines.peek().is_none() || pipelines.any(|name| known.contains(name)) {
        return Ok(());
    }
    let (data, folder) = (shown(&place.configuration.data), shown(&place.configuration.root));
    Err(exit::fail(format_args!(
        "the history of `{data}` has none of the pipelines in `{folder}`: name the configuration that ran on it, or move \
         these pipelines away"
    )))
}

/// The names of the TOML files of a configuration in a folder.
fn toml_files(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_read = path.extension().is_some_and(|end| end == "toml") && !name.starts_with('.');
        if is_read && !path.is_dir() {
            names.push(name);
        }
    }
    Ok(names)
}

fn write(root: &Path, files: &HistoryFiles) -> Result<(), (PathBuf, io::Error)> {
    for file in &files.files {
        let relative = Path::new(&file.path);
        let Some(text) = &file.text else {
            exit::warn(format_args!(
                "the text of `{}` is damaged in the history, and was not restored",
                file.path
            ));
            continue;
        };
        if !relative.components().all(|part| matches!(part, Component::Normal(_))) {
            exit::warn(format_args!("`{}` is outside of the configuration, and was not restored", file.path));
            continue;
        }
        let path = root.join(relative);
        if fs::read_to_string(&path).is_ok_and(|present| present == *text) {
            continue;
        }
        replace(&path, text).map_err(|error| (path.clone(), error))?;
        exit::note(format_args!("restored `{}`", shown(&absolute(&path))));
    }
    Ok(())
}

/// Replaces the file as a whole: a reader finds the old text or the new one. A link stays one, and its target is
/// replaced.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let real = fs::canonicalize(path);
    let path = real.as_deref().unwrap_or(path);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    fs::write(&new, text)?;
    if let Ok(present) = fs::metadata(path) {
        fs::set_permissions(&new, present.permissions())?;
    }
    fs::rename(&new, path)
}

fn set_aside(root: &Path, files: &HistoryFiles) -> io::Result<()> {
    for name in toml_files(root)? {
        if files.files.iter().any(|file| file.path == name) {
            continue;
        }
        let path = root.join(&name);
        // One of an earlier rollback stays as it is.
        let names = (1u32..).map(|number| match number {
            1 => format!("{name}.{SET_ASIDE}"),
            number => format!("{name}.{SET_ASIDE}-{number}"),
        });
        let is_free = |aside: &String| !fs::exists(root.join(aside)).unwrap_or(true);
        let Some(aside) = names.take(ASIDE_MAX).find(is_free) else {
            return Err(io::Error::other(format!("`{name}` cannot be renamed: remove its older copies")));
        };
        fs::rename(&path, root.join(&aside))?;
        let path = absolute(&path);
        let shown = shown(&path);
        exit::note(format_args!("`{shown}` is not a file of that generation: renamed to `{aside}`"));
    }
    Ok(())
}
