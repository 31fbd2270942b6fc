//! Native plugins: run as steps, in this process or in one of their own.
//!
//! A library is found by name, read as a whole, and checked before the system's loader maps it. It is opened
//! from a private copy. It is closed after the last instance of its steps and the last thread that had one
//! are gone.
//!
//! Architecture Invariant: `unsafe` is in `library` and `isolated::child_process` alone; the boundary itself is in `tidegate-plugin`.

pub(crate) mod copy;
pub(crate) mod describe;
pub(crate) mod description;
pub(crate) mod find;
pub(crate) mod image;
pub(crate) mod in_process;
pub(crate) mod inside;
pub(crate) mod isolated;
#[expect(unsafe_code, reason = "opens libraries, whose code cannot be verified")]
pub(crate) mod library;
pub(crate) mod loaded;
pub(crate) mod setups;

pub use self::in_process::{PluginRunner, PluginSpec};
pub use self::isolated::child::serve;
pub use self::isolated::child_process::{ExitGuard, leave};
pub use self::isolated::deaths::Deaths;
pub use self::isolated::parent::COMMAND;
pub use crate::coarse_clock::{BATCH_BYTES, BATCH_TIME, CoarseClock};
pub use describe::Undescribed;
pub use description::{Description, Offered};
pub use find::{Search, near};
pub use image::{Image, ImageError};
pub use isolated::{AfterDeath, Custody, Isolated};
pub use library::{LibraryError, open};
pub use loaded::{LoadError, Loaded, Pins, Plugins};
pub use setups::{Died, Setup, Setups};
