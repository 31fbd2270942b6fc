//! Native plugins as steps.
//!
//! A library is found by name, read whole and looked at before the system's loader sees it, opened from
//! a private copy, and closed after the last instance of its steps and the last thread that had one are
//! gone.
//!
//! Architecture Invariant: `unsafe` is in `library` and `process` alone; the boundary itself is in `tidegate-plugin`.

mod image;

mod copy;

#[expect(unsafe_code, reason = "opens libraries, whose code nobody can vouch for beforehand")]
mod library;

mod find;

mod clock;

mod inside;

mod setups;

mod step;

mod seal;

mod description;

mod frames;

mod passing;

#[expect(
    unsafe_code,
    reason = "blocks signals and ends the process, which the standard library does in another way"
)]
mod process;

mod serve;

mod server;

mod describe;

mod loaded;

mod deaths;

mod isolated;

pub use clock::{BATCH_BYTES, BATCH_TIME, Ticks};
pub use deaths::Deaths;
pub use describe::Undescribed;
pub use description::{Description, Offered};
pub use find::{Search, near};
pub use image::{Image, ImageError};
pub use isolated::{Custody, Isolated};
pub use library::{LibraryError, open};
pub use loaded::{LoadError, Loaded, Pins, Plugins};
pub use process::{ExitGuard, leave};
pub use serve::serve;
pub use server::COMMAND;
pub use setups::{Died, Setup, Setups};
pub use step::{PluginRunner, PluginSpec};
