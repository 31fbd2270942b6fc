//! The one file that holds what must outlive a crash: logs of queues, progress, delivery hashes,
//! places in sources and sinks.
//!
//! [`open`] gives two handles. A [`Store`] reads, from any thread; the [`Writer`] writes, from the
//! one thread that owns it, and what [`Writer::commit`] has answered `Ok` to is durable as a whole.
//!
//! | room | what it knows |
//! | --- | --- |
//! | `disk` | the bytes under the store, and how redb is given them |
//! | `guard` | what happens when redb panics |
//! | `block` | jobs as bytes: lengths, compression, checksums |
//! | `format` | the tables, their records, the format's version |
//! | `lock` | one process at a time |
//! | `read`, `write`, `trim` | what the handles do |
//! | `open` | from a folder to the handles, or to what is wrong with the file |
//! | `verify` | the walk over everything |
//! | `attempts` | the file beside it that says what was attempted when the process died |
//! | `faulty` | a disk that fails on demand, for tests |
//!
//! Architecture Invariant: only this floor knows redb, and none of redb's types is in its API.

mod error;

mod disk;

mod block;

mod guard;

mod format;

mod lock;

mod read;

mod trim;

mod write;

mod open;

mod verify;

mod attempts;

mod faulty;

pub use attempts::{Attempt, Attempts, Careful, Pace, Slot, Span, Verdict};
pub use block::Block;
pub use disk::Disk;
pub use error::{CommitError, OpenError, ReadError};
pub use format::Outcome;
pub use lock::Holder;
pub use open::{open, open_disk, open_existing};
pub use read::{QueueState, Store};
pub use trim::{Trim, Trimmed};
pub use verify::{Report, verify};
pub use write::{Append, Appended, Changes, Committed, Reopened, Writer};

/// What tests of the floors above need to break the store.
#[doc(hidden)]
pub mod testing {
    pub use super::faulty::{Failure, FaultyDisk};
}

#[cfg(test)]
mod tests;
