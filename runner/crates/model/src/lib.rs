//! Values that all of Tidegate shares: names, indices, batches, durations, rates, progress, retry policies,
//! schedules, delivery hashes, the clock.
//!
//! Two modules ask the operating system, since the store and the components both need them: `private_file` and
//! `lock_holder`.

pub mod base64;
pub mod log_target;
pub mod plain;
pub mod suggest;

mod batch;
mod clock;
mod external_status;
mod hash;
mod json;
mod lock_holder;
mod mark;
mod name;
mod origin;
mod private_file;
mod progress;
mod quantity;
mod rate;
mod retry_policy;
mod schedule;
mod secret;
mod sink_position;
mod token;

pub mod template;

pub use batch::{Batch, Fault, Form, LineRun, Places, Stamp};
pub use clock::{Clock, ManualClock, SystemClock, Timestamp, rfc3339};
pub use external_status::{Soon, Status};
pub use hash::{DeliveryHash, HashPrefix, content_hash, delivery_hash, key_hash, piece_hash};
pub use json::{on_one_line, value_hash};
pub use lock_holder::{Holder, is_alive, lock_owner};
pub use mark::{Mark, Segment, Tail};
pub use name::{Address, Name};
pub use origin::{Origin, Origins};
pub use private_file::{FILE_MODE, OTHERS, create_private, open_or_create_private, read_at_most};
pub use progress::{Counters, Progress};

pub use quantity::{format_duration, format_size, grouped, parse_duration, parse_size};
pub use rate::{Rate, format_rate, parse_rate};
pub use retry_policy::{Backoff, Decision, Exhausted, Jitter, RetryPolicy, Then, Tried, Trouble};
pub use schedule::{Cron, LATE, Missed, Schedule};
pub use secret::Secret;
pub use sink_position::SinkPosition;
pub use token::TokenKey;
