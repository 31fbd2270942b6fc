//! `Processor`: the scripts, plugins and built-ins of a step, with their limits.

use std::path::PathBuf;
use std::sync::Arc;

use super::HttpRequest;
use crate::diagnostic::SourceSpan;
use crate::sections::exec::ExecCommand;

#[derive(Clone, Debug)]
pub enum Processor {
    Script(Script),
    Plugin(PluginStepConfig),
    /// `builtin:http`
    Http(Box<HttpRequest>),
    /// `builtin:exec`
    Exec(Box<ExecCommand>),
}

impl Processor {
    /// The script, if it is one.
    #[must_use]
    pub fn script(&self) -> Option<&Script> {
        match self {
            Self::Script(script) => Some(script),
            _ => None,
        }
    }

    /// Whether it may pass on the token with which an external system completes a job; a script's text
    /// determines that. Commands have it in their environment, and plugins can ask for it.
    #[must_use]
    pub fn passes_token(&self) -> bool {
        match self {
            Self::Script(_) => false,
            Self::Http(request) => request.passes_token(),
            Self::Plugin(_) | Self::Exec(_) => true,
        }
    }

    /// Its name in a mock of a test. Scripts have no mock, and neither has a plugin whose name must not be shown.
    #[must_use]
    pub fn mock_name(&self) -> Option<String> {
        match self {
            Self::Script(_) => None,
            Self::Plugin(plugin) => (!plugin.secret).then(|| format!("plugin:{}", plugin.named())),
            Self::Http(_) => Some("builtin:http".to_owned()),
            Self::Exec(_) => Some("builtin:exec".to_owned()),
        }
    }

    /// The step of a plugin, if it is one.
    #[must_use]
    pub fn plugin(&self) -> Option<&PluginStepConfig> {
        match self {
            Self::Plugin(plugin) => Some(plugin),
            _ => None,
        }
    }

    /// The step of a plugin, if it is one.
    #[must_use]
    pub fn plugin_mut(&mut self) -> Option<&mut PluginStepConfig> {
        match self {
            Self::Plugin(plugin) => Some(plugin),
            _ => None,
        }
    }
}

impl PluginStepConfig {
    /// `NAME/STEP`, or `NAME`, secrets included.
    #[must_use]
    pub(crate) fn full_name(&self) -> String {
        match &self.step {
            Some(step) => format!("{}/{step}", self.plugin),
            None => self.plugin.clone(),
        }
    }

    /// Its name in messages: `NAME/STEP`, or `NAME`.
    #[must_use]
    pub fn named(&self) -> String {
        if self.secret { "…".to_owned() } else { self.full_name() }
    }

    /// A message about it, without secrets.
    #[must_use]
    pub fn masked(&self, message: String) -> String {
        if !self.secret {
            return message;
        }
        let file = self.plugin.replace('-', "_");
        let words = [Some(&self.plugin), Some(&file), self.step.as_ref()];
        words.into_iter().flatten().fold(message, |message, word| message.replace(word.as_str(), "…"))
    }
}

/// A step of a native plugin: `plugin:NAME/STEP`.
#[derive(Clone, Debug)]
pub struct PluginStepConfig {
    pub plugin: String,
    /// `None`: the only one, or the one of the plugin's name.
    pub step: Option<String>,
    /// A part of the name is an inserted value, so it must not be shown.
    pub secret: bool,
    /// The file of the `run` that names it.
    pub named_in: PathBuf,
    pub named_at: std::ops::Range<usize>,
    /// Whether attempts have external effects. Known when the library is loaded; until then `false`.
    pub has_effects: bool,
    /// Hash of the library. Known when it is loaded; until then empty.
    pub sha256: String,
}

/// `[plugin.NAME] sha256`
#[derive(Clone, Debug)]
pub struct Pin {
    /// 64 lowercase hex digits.
    pub sha256: String,
    pub place: SourceSpan,
}

/// A script as it was on disk when the configuration was read.
#[derive(Clone, Debug)]
pub struct Script {
    /// Resolved, for reading.
    pub path: PathBuf,
    /// Steps with the same script share it.
    pub text: Arc<str>,
    /// The scripts that it imports, directly and indirectly.
    pub imports: Vec<ImportedScript>,
    /// The file of the `run` that names it, and the byte range of the name, for diagnostics.
    pub named_in: PathBuf,
    pub named_at: std::ops::Range<usize>,
}

/// A script that another one imports, as it was on disk when the configuration was read.
#[derive(Clone, Debug)]
pub struct ImportedScript {
    pub path: PathBuf,
    pub text: Arc<str>,
}

/// `types`, `topics` and `when`; a job passes if all given ones hold.
#[derive(Clone, Debug, Default)]
pub struct StepFilter {
    /// The job's `type` is one of these.
    pub types: Vec<String>,
    /// One of the job's `topics` (or its `topic`) is one of these.
    pub topics: Vec<String>,
    /// A Rhai expression over `job`, with the byte range of its text in `Step::file`.
    pub when: Option<(String, std::ops::Range<usize>)>,
}

impl StepFilter {
    /// Whether every job passes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.types.is_empty() && self.topics.is_empty() && self.when.is_none()
    }
}

/// `limits = { … }` of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Rhai operations.
    pub operations: u64,
    /// Maximum bytes that an attempt may hold at one time, and of its outputs.
    pub memory: u64,
    /// Nesting of values and calls.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { operations: 10_000_000, memory: 64 << 20, depth: 64 }
    }
}
