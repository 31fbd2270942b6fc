//! Checks of sources: finds unreachable ones, public ones without a token, queue settings without an effect, and steps
//! that begin at the unknown end of a service.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::diagnostic::Diagnostic;
use crate::model::push_source::PushSource;
use crate::model::{BeginAt, SourceKind};
use crate::sections::pipeline::PipelineDeclaration;
use crate::sections::queue::QueueDeclaration;
use crate::sections::settings::SettingsFile;
use crate::sections::source::{SourceDeclaration, Supply};
use tidegate_model::Address;

pub(crate) fn check(pipelines: &[Arc<PipelineDeclaration>], settings: &SettingsFile) -> Vec<Diagnostic> {
    let mut diagnostics = Vec::new();
    let services: BTreeSet<Address> = pipelines.iter().flat_map(|pipeline| services(pipeline)).collect();
    for pipeline in pipelines {
        let begins = pipeline.written_steps().filter(|step| step.begin_at == BeginAt::Newest);
        for (_, input) in begins.flat_map(|step| &step.inputs) {
            if services.contains(&input.address(&pipeline.name)) {
                let message = "no step can begin at the newest job of a service, which is unknown";
                let help = "write the index of the first job: `begin_at = 1000`, or `first` in the source";
                diagnostics.push(Diagnostic::error_at(&input.place, message).help(help));
            }
        }
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

/// The pull sources behind services.
fn services(pipeline: &PipelineDeclaration) -> impl Iterator<Item = Address> {
    let service = |source: &&SourceDeclaration| {
        matches!(source.supply, Supply::Pull(Some((SourceKind::Service(_), _))))
    };
    let services = pipeline.sources.iter().filter(service);
    services.map(move |source| Address::new(pipeline.name.clone(), source.name.value.clone()))
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
