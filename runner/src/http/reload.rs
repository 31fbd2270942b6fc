//! `POST /reload`: reads the configuration again. The request has no effect but that of saving the files.

use hyper::StatusCode;
use serde_json::json;

use super::response::{HttpRefusal, Response, json};
use crate::client::ipc::RunnerContext;
use crate::reload::{Reloaded, reload};
use tidegate_store::Trigger;

pub(crate) fn post(context: &RunnerContext) -> Result<Response, HttpRefusal> {
    match reload(&context.handle, Trigger::Reload) {
        Reloaded::Installed { generation, lingering, restart } => {
            let body = json!({ "generation": generation, "lingering": lingering, "restart": restart });
            Ok(json(StatusCode::OK, &body))
        }
        Reloaded::Unchanged { generation } => Ok(json(StatusCode::OK, &json!({ "generation": generation }))),
        // The files may have secrets in their lines, so the answer has no text of them.
        Reloaded::Mistakes { .. } => {
            let generation = context.handle.generation().number;
            let error = format!(
                "the files have mistakes, which `tidegate reload` shows: generation {generation} stays in force"
            );
            Err(HttpRefusal::new(StatusCode::UNPROCESSABLE_ENTITY, error))
        }
        Reloaded::Ending => Err(HttpRefusal::ending()),
    }
}
