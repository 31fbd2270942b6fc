//! Which configuration a command is about: one convention for all of them.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};

/// The configuration that a command is about, as its last argument, or as an option like in commands that take
/// any number of jobs or errors.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Config {
    /// A folder with TOML files, or one TOML file [default: the folder here, but for `run` and `check`]
    config: Option<PathBuf>,
    /// The same as an option, which every command takes
    #[arg(id = "option", long = "config", value_name = "CONFIG", conflicts_with = "config")]
    option: Option<PathBuf>,
}

impl Deref for Config {
    type Target = Path;

    fn deref(&self) -> &Path {
        self.config.as_deref().or(self.option.as_deref()).unwrap_or(Path::new("."))
    }
}

/// One of the two has to be there.
pub(crate) fn needed() -> ArgGroup {
    ArgGroup::new("one configuration").args(["config", "option"]).required(true)
}
