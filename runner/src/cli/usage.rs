//! What the command line says of its arguments: help, and what is wrong with them.

use clap::Error;

use crate::client::print;
use crate::output::console;
use crate::output::exit::Exit;
use tidegate_model::plain;

/// Tells it where it belongs. `--help` and `--version` come this way too, and are no errors.
pub(crate) fn tell(error: &Error) -> Exit {
    let said = error.render();
    // What was typed may steer the terminal; then all of it is told without colours.
    let steers = std::env::args_os().any(|argument| !argument.to_string_lossy().chars().all(plain::is_plain));
    let text = |colours: bool| match (steers, colours) {
        (true, _) => plain::lines(&said.to_string()),
        (false, true) => said.ansi().to_string(),
        (false, false) => said.to_string(),
    };
    if error.use_stderr() {
        console::write(&text(console::colours()));
        return Exit::Usage;
    }
    print(&text(console::prints_colours()));
    Exit::Done
}
