//! Tests of `Arguments`: the help of every command is in a snapshot.

use clap::{Command, CommandFactory as _};

use super::Arguments;

#[test]
fn every_command_has_the_help_of_the_snapshot() {
    let mut shown = Vec::new();
    show(&Arguments::command(), &["tidegate"], &mut shown);
    insta::assert_snapshot!(shown.join("\n"));
}

/// The help of the command at `path`, and of every command below it, as the parser answers `--help`.
fn show(command: &Command, path: &[&str], shown: &mut Vec<String>) {
    let asked = [path, &["--help"]].concat();
    let help = Arguments::command().try_get_matches_from(&asked).unwrap_err();
    shown.push(format!("$ {}\n{help}", asked.join(" ")));
    for inner in command.get_subcommands() {
        show(inner, &[path, &[inner.get_name()]].concat(), shown);
    }
}
