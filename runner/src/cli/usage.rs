//! Usage of the command line: prints help, and errors in the arguments.

use clap::Error;

use crate::client::print;
use crate::output::console;
use crate::output::exit::Exit;
use tidegate_model::plain;

/// Prints an error or a help text to its stream. `--help` and `--version` are reported as errors too.
pub(crate) fn report(error: &Error) -> Exit {
    let message = error.render();
    // Arguments may hold control characters; then the whole text is printed without colours.
    let steers = std::env::args_os().any(|argument| !argument.to_string_lossy().chars().all(plain::is_plain));
    let text = |colours: bool| match (steers, colours) {
        (true, _) => plain::lines(&message.to_string()),
        (false, true) => message.ansi().to_string(),
        (false, false) => message.to_string(),
    };
    if error.use_stderr() {
        console::write(&text(console::colours()));
        return Exit::Usage;
    }
    print(&text(console::prints_colours()));
    Exit::Done
}
