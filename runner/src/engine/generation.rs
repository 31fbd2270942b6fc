//! One immutable configuration, checked through and through.

use std::path::Path;
use std::sync::Arc;

use crate::config::{
    self, Configuration, Diagnostic, Diagnostics, LoadOptions, Place, Position, Processor, Script, Step,
};
use crate::hands::script::{self, CompileError};

/// A configuration whose scripts compile.
#[derive(Clone, Debug)]
pub struct Generation {
    pub configuration: Arc<Configuration>,
    /// What a person should look at, though it runs.
    pub warnings: Diagnostics,
}

impl Generation {
    /// Reads and checks everything that a run needs, without touching any state.
    ///
    /// # Errors
    /// All mistakes of all files.
    pub fn load(path: &Path, options: &LoadOptions) -> Result<Self, Diagnostics> {
        let mut draft = config::load(path, options);
        let steps = draft.steps().to_vec();
        for step in &steps {
            check_step(step, &mut draft.diagnostics);
        }
        let (configuration, warnings) = draft.finish()?;
        Ok(Self { configuration: Arc::new(configuration), warnings })
    }
}

fn check_step(step: &Step, diagnostics: &mut Diagnostics) {
    for Processor::Script(script) in &step.processors {
        if let Err(error) = script::check_script(script, &step.limits) {
            let diagnostic = in_script(script, &error, diagnostics);
            diagnostics.push(diagnostic);
        }
    }
    if let Some((text, span)) = &step.filter.when
        && let Err(error) = script::check_expression(text, &step.limits)
    {
        let message = format!("the expression of `when` does not compile: {}", error.message);
        diagnostics.push(Diagnostic::error(&step.file, span.clone(), message).help_if(error.help));
    }
}

fn in_script(script: &Script, error: &CompileError, diagnostics: &mut Diagnostics) -> Diagnostic {
    let file = error.file.as_ref().map_or_else(|| script.path.clone(), Into::into);
    if file == script.path {
        diagnostics.add_file(&file, script.text.as_str());
    } else if let Ok(text) = std::fs::read_to_string(&file) {
        diagnostics.add_file(&file, text);
    }
    let position = error.line.map(|line| Position { line, column: error.column.unwrap_or(1) });
    let span = position.and_then(|position| diagnostics.files().span_at(&file, position));
    let named = Place { file: script.named_in.as_path().into(), span: script.named_at.clone() };
    Diagnostic::error(file, span, error.message.clone())
        .related(named, "named here")
        .help_if(error.help.clone())
}
