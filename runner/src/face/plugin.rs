//! `tidegate plugin`, and the process that runs plugins apart.

use super::exit::{self, Exit};
use crate::hands::plugin;

/// `tidegate plugin-host`
pub(super) fn host() -> Exit {
    match plugin::serve() {
        Ok(()) => Exit::Done,
        Err(error) => {
            exit::fail(format_args!("this command is for runners to start, not for people: {error}"))
        }
    }
}
