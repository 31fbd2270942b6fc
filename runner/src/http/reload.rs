//! `/reload`: `POST` reads the configuration again, which has no effect but that of saving the files. `GET` reports
//! the generation in force.

use hyper::StatusCode;
use serde_json::json;

use super::response::{HttpRefusal, Response, json};
use crate::client::ipc::RunnerContext;
use crate::query::ReloadStatus;
use crate::reload::{Reloaded, reload};
use tidegate_store::Trigger;

pub(crate) fn get(context: &RunnerContext) -> Response {
    let ReloadStatus {
        generation,
        files_differ,
        refused,
        rolled_back,
        rolled_back_before,
        lingering,
        restart,
    } = ReloadStatus::of(&context.handle);
    // As in the answer to `POST`, no text of the files.
    let refused = refused
        .map(|refused| json!({ "since": refused.since, "trigger": refused.trigger, "place": refused.place }));
    let body = json!({
        "generation": generation, "files_differ": files_differ, "refused": refused, "rolled_back": rolled_back,
        "rolled_back_before": rolled_back_before, "lingering": lingering, "restart": restart,
    });
    json(StatusCode::OK, &body)
}

pub(crate) fn post(context: &RunnerContext) -> Result<Response, HttpRefusal> {
    match reload(&context.handle, Trigger::Reload) {
        Reloaded::Installed { generation, repeats: _, lingering, restart } => {
            let body = json!({ "generation": generation, "lingering": lingering, "restart": restart });
            Ok(json(StatusCode::OK, &body))
        }
        Reloaded::Unchanged { generation } => Ok(json(StatusCode::OK, &json!({ "generation": generation }))),
        // The files may have secrets in their lines, so the answer has no text of them.
        Reloaded::Mistakes { .. } => {
            Err(refused(context, "the files have mistakes, which `tidegate reload` shows"))
        }
        Reloaded::Refused { .. } => {
            let why = "a test fails, a source or sink cannot be opened, or a plugin cannot be set up, which `tidegate reload` shows";
            Err(refused(context, why))
        }
        Reloaded::Ending => Err(HttpRefusal::ending()),
    }
}

fn refused(context: &RunnerContext, why: &str) -> HttpRefusal {
    let generation = context.handle.generation().number;
    let error = format!("{why}: generation {generation} stays in force");
    HttpRefusal::new(StatusCode::UNPROCESSABLE_ENTITY, error)
}
