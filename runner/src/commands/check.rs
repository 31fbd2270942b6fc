//! `tidegate check`: reports every problem that would keep `run` from starting.

use crate::cli::{Check, Format};
use crate::client;
use crate::output::exit;
use crate::output::exit::Exit;
use tidegate_config::check_disk;
use tidegate_engine::Generation;
use tidegate_model::plain::on_one_line;

pub(crate) fn check(command: &Check) -> Exit {
    let (diagnostics, exit) =
        match Generation::load(&command.config, &client::options(None, &command.plugins)) {
            Ok(mut generation) => {
                check_disk(&generation.configuration, &mut generation.warnings);
                (generation.warnings, Exit::Done)
            }
            Err(diagnostics) => (diagnostics, Exit::Configuration),
        };
    match command.format {
        Format::Json => return client::print_json(&diagnostics.records(), exit),
        Format::Text => exit::show(&diagnostics),
    }
    if exit == Exit::Done {
        client::print_text(&format!("{} is in order", on_one_line(&command.config.display().to_string())));
    }
    exit
}
