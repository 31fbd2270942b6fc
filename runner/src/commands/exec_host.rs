//! `tidegate exec-host`: becomes the command of a source; see [`tidegate_components::command_source::host`].

use crate::cli::ExecHost;
use crate::output::exit;
use crate::output::exit::Exit;
use tidegate_components::command_source::host;

/// Returns only if the command cannot be started.
pub(crate) fn become_command(command: &ExecHost) -> Exit {
    let Some((program, arguments)) = command.command.split_first() else {
        return exit::misuse("name the command");
    };
    exit::fail(host::become_command(program, arguments))
}
