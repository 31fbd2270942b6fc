//! `Invocation`: the configuration as the operator named it, so that commands in messages can be copied.

use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Default)]
pub struct Invocation {
    pub config: PathBuf,
    /// `--data`
    pub data: Option<PathBuf>,
    /// `--plugins`
    pub plugins: Vec<PathBuf>,
}

impl Invocation {
    /// A command of Tidegate for the configuration. Only `run` and `check` name the current folder.
    #[must_use]
    pub fn command(&self, command: &str) -> String {
        let Self { config, data, plugins: _ } = self;
        let mut words = format!("tidegate {command}");
        let is_here = config.as_os_str().is_empty() || config == Path::new(".");
        if !is_here {
            words.extend([" ", &quoted(config)]);
        } else if matches!(command, "run" | "check") {
            words.push_str(" .");
        }
        if let Some(data) = data {
            words.extend([" --data ", &quoted(data)]);
        }
        words
    }
}

/// A path, quoted for a shell.
fn quoted(path: &Path) -> String {
    let path = path.display().to_string();
    let plain = |character: char| character.is_alphanumeric() || "/._-+:@%=,".contains(character);
    if path.chars().all(plain) { path } else { format!("'{}'", path.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_names_the_configuration_as_the_operator_did() {
        let hint = |config: &str, data: Option<&str>| {
            Invocation { config: config.into(), data: data.map(PathBuf::from), plugins: Vec::new() }
                .command("errors list")
        };
        assert_eq!(hint("", None), "tidegate errors list");
        assert_eq!(hint(".", None), "tidegate errors list");
        assert_eq!(Invocation::default().command("run"), "tidegate run .");
        assert_eq!(hint("configs/graph", None), "tidegate errors list configs/graph");
        assert_eq!(hint("my configs", Some("it's")), "tidegate errors list 'my configs' --data 'it'\\''s'");
    }
}
