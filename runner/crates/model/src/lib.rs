//! `tidegate-model`: the values that all crates share. They are names, indices, batches, durations, rates,
//! progress, retry policies, schedules, delivery hashes and the clock.
//!
//! Two modules use the operating system, since the store and the components both need them: `private_file`
//! and `lock_holder`.

mod external_status;
mod field_path;
pub(crate) mod job;
mod json;
mod lock_holder;
pub mod log_target;
mod name;
pub mod plain;
mod private_file;
mod rate;
mod retry_policy;
mod secret;
mod shortened;
pub mod suggest;
pub mod sync;
pub mod template;
pub(crate) mod time;
mod units;

pub use crate::job::batch::{Batch, Fault, Form, LineNumbers, LineRun, Stamp};
pub use crate::job::delivery_hash::{
    DeliveryHash, HashPrefix, content_hash, delivery_hash, key_hash, piece_hash,
};
pub use crate::job::origin::{Origin, Origins};
pub use crate::job::progress::{Counters, Progress};
pub use crate::job::source_position::{Segment, SourceOffset, TailFingerprint};
pub use crate::time::clock::{Clock, ManualClock, SystemClock, Timestamp, millis, rfc3339};
pub use external_status::{ExternalStatus, NextPoll};
pub use field_path::{FieldPath, elements, scalar};
pub use json::{on_one_line, value_hash};
pub use lock_holder::{LockHolder, is_alive, lock_owner};
pub use name::{Address, Name};
pub use private_file::{FILE_MODE, OTHERS, create_private, open_or_create_private, read_at_most};

pub use crate::job::completion_token::TokenKey;
pub use crate::job::sink_position::SinkPosition;
pub use crate::time::schedule::{Cron, LATE, Missed, Schedule};
pub use crate::units::{format_duration, format_size, grouped, parse_duration, parse_size};
pub use rate::{Rate, format_rate, parse_rate};
pub use retry_policy::{
    Backoff, Decision, Exhausted, FailedTry, FailureClass, Jitter, OnExhausted, RetryPolicy,
};
pub use secret::Secret;
pub use shortened::{leave_out, shortened};
