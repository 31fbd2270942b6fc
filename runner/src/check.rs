//! `tidegate check`: everything that `run` does before it starts.

use super::cli::{Check, Format};
use super::exit::{self, Exit};
use super::find;
use tidegate_config::check_disk;
use tidegate_engine::Generation;
use tidegate_model::plain::on_one_line;

pub(crate) fn check(command: &Check) -> Exit {
    let (diagnostics, exit) = match Generation::load(&command.config, &find::options(None, &command.plugins))
    {
        Ok(mut generation) => {
            check_disk(&generation.configuration, &mut generation.warnings);
            (generation.warnings, Exit::Done)
        }
        Err(diagnostics) => (diagnostics, Exit::Configuration),
    };
    match command.format {
        Format::Json => return find::print_json(&diagnostics.records(), exit),
        Format::Text => exit::show(&diagnostics),
    }
    if exit == Exit::Done {
        find::print_text(&format!("{} is in order", on_one_line(&command.config.display().to_string())));
    }
    exit
}
