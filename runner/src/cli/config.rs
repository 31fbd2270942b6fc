//! `Config`: names the configuration of a command, by one convention for all commands.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};

/// The configuration of a command: its last argument, or an option, as in commands that take any number of
/// jobs or errors.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Config {
    /// A folder with TOML files, or one TOML file [default: the current folder, except for `run` and `check`]
    config: Option<PathBuf>,
    /// The configuration as an option, which every command takes
    #[arg(id = "option", long = "config", value_name = "CONFIG", conflicts_with = "config")]
    option: Option<PathBuf>,
}

impl Deref for Config {
    type Target = Path;

    fn deref(&self) -> &Path {
        self.config.as_deref().or(self.option.as_deref()).unwrap_or(Path::new("."))
    }
}

/// Requires one of the two.
pub(crate) fn needed() -> ArgGroup {
    ArgGroup::new("one configuration").args(["config", "option"]).required(true)
}
