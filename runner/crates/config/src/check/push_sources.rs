//! Checks of pushed sources: finds unreachable ones, public ones without a token, and queue settings without
//! an effect.

use crate::diagnostic::Diagnostic;
use crate::model::push_source::PushSource;
use crate::sections::pipeline::PipelineDeclaration;
use crate::sections::queue::QueueDeclaration;
use crate::sections::settings::SettingsFile;
use crate::sections::source::{SourceDeclaration, Supply};

pub(crate) fn check(pipelines: &[PipelineDeclaration], settings: &SettingsFile) -> Vec<Diagnostic> {
    let mut diagnostics = Vec::new();
    for pipeline in pipelines {
        for source in &pipeline.sources {
            let Supply::Push(push) = &source.supply else { continue };
            if let Some(PushSource::Http(http)) = push {
                diagnostics.extend(reach(source, http.token.is_some(), settings));
            }
            let queue = pipeline.queues.iter().find(|queue| queue.name.value == source.name.value);
            let has_keys = matches!(push, Some(PushSource::Http(_)));
            diagnostics.extend(queue.into_iter().flat_map(|queue| means_nothing(queue, has_keys)));
        }
    }
    diagnostics
}

/// Whether clients can reach the source, and whether it needs a token.
fn reach(source: &SourceDeclaration, has_token: bool, settings: &SettingsFile) -> Option<Diagnostic> {
    let (name, place) = (&source.name.value, &source.name.place);
    if !settings.has_listen {
        let message = format!("the source `{name}` cannot be reached: no port is opened");
        let help = "open one in tidegate.toml, beside the pipelines: `[runner] listen = \"127.0.0.1:8484\"`";
        return Some(Diagnostic::error_at(place, message).help(help));
    }
    let listen = settings.settings.listen?;
    if listen.ip().is_loopback() || has_token {
        return None;
    }
    let message =
        format!("the source `{name}` has no token: every client that can reach {listen} can push jobs");
    let help = "ask for a token: `token = \"${file:…}\"`, or listen on `127.0.0.1` only";
    Some(Diagnostic::warning_at(place, message).help(help))
}

/// Settings of its queue that apply only to jobs of steps.
fn means_nothing(queue: &QueueDeclaration, has_keys: bool) -> impl Iterator<Item = Diagnostic> {
    queue.of_steps.iter().map(move |(key, place)| {
        let message = format!("`{key}` has no effect on the queue of a source, which no step fills");
        let help = match *key {
            "dedupe" if has_keys => {
                "set the time for which keys are remembered in `[source.NAME]`".to_owned()
            }
            _ => format!("leave `{key}` out"),
        };
        Diagnostic::error_at(place, message).help(help)
    })
}
