//! The one file that holds what must outlive a crash: logs of queues, progress, delivery hashes,
//! places in sources and sinks.
//!
//! [`open`] gives two handles. A [`Store`] reads, from any thread; the [`Writer`] writes, from the
//! one thread that owns it, and what [`Writer::commit`] has answered `Ok` to is durable as a whole.
//!
//! | room | what it knows |
//! | --- | --- |
//! | `disk` | the bytes under the store, and how redb is given them |
//! | `overlay` | reading a disk that cannot be written |
//! | `guard` | what happens when redb panics |
//! | `bytes` | numbers and texts in bytes |
//! | `column` | what is known of jobs besides their payloads, as bytes |
//! | `block` | jobs as bytes: lengths, compression, checksums |
//! | `value` | the jobs of a commit, as the log holds them |
//! | `format` | the tables and their records |
//! | `private` | the data folder, which only its owner reaches |
//! | `lock` | one process at a time |
//! | `read` | the reading handle: queues, progress, sources, sinks, and which jobs a step made of a job |
//! | `snapshot`, `delayed`, `delivered`, `generation`, `ticks` | a table each: its records, reading, writing |
//! | `delayed_job` | what waits, for what, and how it is called |
//! | `walk` | the delayed jobs of a step one by one, however many |
//! | `completion` | what the outside has said of a pending job |
//! | `pause`, `stop`, `token_key` | records that stand alone |
//! | `trim`, `write` | the writing handle |
//! | `migrate` | the format's version, and older ones |
//! | `origin` | where a store can be opened again |
//! | `open` | from a folder to the handles, or to what is wrong with the file |
//! | `verify` | the walk over everything |
//! | `compact` | gives unused room back |
//! | `lines`, `export`, `fill`, `import` | everything as lines of text, and back |
//! | `attempts` | the file beside it that says what was attempted when the process died |
//! | `faulty` | a disk that fails on demand, for tests |
//!
//! Architecture Invariant: only this crate knows redb, and none of redb's types is in its API.

mod error;

mod disk;

mod overlay;

mod bytes;

mod column;

mod block;

mod value;

mod guard;

mod format;

mod private;

mod lock;

mod read;

mod snapshot;

mod completion;

mod delayed_job;

mod delayed;

mod walk;

mod delivered;

mod generation;

mod ticks;

mod pause;

mod stop;

mod token_key;

mod trim;

mod write;

mod migrate;

mod origin;

mod open;

mod verify;

mod compact;

mod lines;

mod export;

mod fill;

mod import;

mod attempts;

#[cfg(any(test, feature = "testing"))]
mod faulty;

pub use attempts::{Attempt, Attempts, Careful, Pace, Slot, Span, Verdict};
pub use block::Block;
pub use column::Details;
pub use compact::{Compacted, compact};
pub use completion::Completion;
pub use delayed_job::{Delayed, DelayedJob, DelayedKey, JobForm, NEVER, Standing};
pub use delivered::{Delivered, Outcome};
pub use disk::Disk;
pub use error::{CommitError, ExportError, ImportError, OpenError, ReadError};
pub use export::export;
pub use generation::Generation;
pub use guard::answers_panics;
pub use import::import;
pub use lines::Inventory;
pub use open::{open, open_disk, open_existing};
pub use pause::Pause;
pub use read::{DetailedBatch, Made, MadeOf, QueueState, Store};
pub use snapshot::{Snapshot, SnapshotInput, SnapshotKey};
pub use stop::Stop;
pub use trim::{Trim, TrimWhen, Trimmed};
pub use verify::{Report, verify};
pub use walk::DelayedJobs;
pub use write::{Append, Appended, Changes, Committed, Reopened, Writer};

/// A disk that fails on demand, for the tests of the crates above.
#[cfg(any(test, feature = "testing"))]
pub mod testing {
    pub use super::faulty::{Failure, FaultyDisk};
}

#[cfg(test)]
mod tests;
