//! `tidegate reload`: lets the runner read its configuration again, and prints the outcome.

use crate::cli::{Format, QueryOptions};
use crate::client::{CommandTarget, options, other_question, print_json, print_text};
use crate::output::console;
use crate::output::exit;
use crate::output::exit::Exit;
use crate::reload::Reloaded;

pub(crate) fn reload(command: &QueryOptions) -> Exit {
    show(command).unwrap_or_else(|exit| exit)
}

fn show(command: &QueryOptions) -> Result<Exit, Exit> {
    let place = CommandTarget::with_mistakes(&command.config, &options(command.data.clone(), &[]))?;
    place.warn_of_other_configuration();
    print_outcome(place.reload()?, command.format)
}

/// Prints the outcome of a reload or a rollback.
pub(super) fn print_outcome(reloaded: Reloaded, format: Format) -> Result<Exit, Exit> {
    if format == Format::Json {
        let exit = match &reloaded {
            Reloaded::Mistakes { records, .. } => return Ok(print_json(&records, Exit::Configuration)),
            Reloaded::Refused { records, .. } => return Ok(print_json(&records, Exit::Failed)),
            Reloaded::Ending => Exit::Failed,
            Reloaded::Installed { .. } | Reloaded::Unchanged { .. } => Exit::Done,
        };
        return Ok(print_json(&reloaded, exit));
    }
    match reloaded {
        Reloaded::Installed { generation, repeats, lingering, restart } => {
            let repeats =
                repeats.map_or_else(String::new, |earlier| format!(": it repeats generation {earlier}"));
            let mut lines = vec![format!("generation {generation} is in force{repeats}")];
            lines.extend(
                restart.iter().map(|setting| format!("`{setting}` takes effect when the runner restarts")),
            );
            if !lingering.is_empty() {
                let steps = lingering.join(", ");
                lines.push(format!(
                    "these steps follow when they have finished the jobs that they began: {steps}"
                ));
            }
            print_text(&lines.join("\n"));
            Ok(Exit::Done)
        }
        Reloaded::Unchanged { generation } => {
            print_text(&format!("nothing has changed: generation {generation} stays in force"));
            Ok(Exit::Done)
        }
        Reloaded::Mistakes { text, .. } => Ok(refused(&text, Exit::Configuration)),
        Reloaded::Refused { text, .. } => Ok(refused(&text, Exit::Failed)),
        Reloaded::Ending => Err(other_question()),
    }
}

fn refused(text: &str, exit: Exit) -> Exit {
    console::write(text);
    exit::note("the runner goes on with the configuration that it has");
    exit
}
