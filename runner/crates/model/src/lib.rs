//! `tidegate-model`: the values that all crates share. They are names, indices, batches, durations, rates,
//! progress, retry policies, schedules, delivery hashes and the clock.
//!
//! Two modules use the operating system, since the store and the components both need them: `private_file`
//! and `lock_holder`.
//!
//! # Glossary
//!
//! Each word has one meaning in all crates, in the manual and in messages.
//!
//! | word | meaning | type or module |
//! | --- | --- | --- |
//! | job | one payload at one index of a source or a queue | [`Batch`] |
//! | index | the number of a job in its source or queue, from 1 without gaps | [`Batch`] |
//! | address | `pipeline/name` of a source, queue, step or sink | [`Address`] |
//! | step | reads inputs, runs processors on jobs, delivers the results | `config::Step` |
//! | ordered step | a step without a queuer: it delivers in the order of its inputs | `dispatch::ordered` |
//! | queued step | a step with a queuer: it chooses among its waiting jobs | `dispatch::queued` |
//! | waiting room | the jobs of a queued step that are not accounted for | `dispatch::waiting_room` |
//! | lane | the jobs of one step that share a key | `config::Lane` |
//! | processor | a script, plugin, HTTP request or command of a step | `config::Processor` |
//! | probe | the processors of a gate or of a monitor | `engine::processor::probe` |
//! | gate | a condition that holds a step back | `config::Gate` |
//! | monitor | asks an external system for the state of pending jobs | `dispatch::poller` |
//! | external system | the system that finishes pending jobs, outside the runner | [`ExternalStatus`] |
//! | attempt | one numbered run of a step on a job | `engine::batch` |
//! | delivery | the commit of an attempt: outputs, an error or nothing, with progress | `engine::commit` |
//! | delivery hash | the name of a delivery, the same on every attempt | [`DeliveryHash`] |
//! | dedupe record | the stored outcome of a delivery or of a pushed key | `store::DedupeRecord` |
//! | completion | the report of an external system that a pending job is finished | `store::CompletionRecord` |
//! | parked job | a job that is in the store by itself, with the reason for which it waits | `store::ParkedJob` |
//! | due time | the time at which a parked job continues | [`Due`] |
//! | redelivery | a parked job on its way to another attempt | `engine::batch::input` |
//! | progress | the jobs of an input that a step has accounted for | [`Progress`] |
//! | position | the highest index up to which every job is accounted for | [`Progress`] |
//! | watermark | the highest index up to which every job is finished | `engine::watermark` |
//! | snapshot | the inputs of a batch with external effects, durable before its attempts | `store::Snapshot` |
//! | offset | the place in a file at which the job of an index begins | [`SourceOffset`] |
//! | retention | the rules by which a queue deletes its oldest jobs | `store::Trim` |
//! | backlog | the jobs of a queue that a step has not read | `engine::step` |
//! | in flight | between the forming of a batch and its commit | `engine::step::in_flight` |
//! | dispatcher | decides what is read, run and committed: events in, commands out | `dispatch::Dispatcher` |
//! | coordinator | translates messages of threads to events, and commands to actions | `engine::coordinator` |
//! | runtime | the threads of a run, with the event loop of the coordinator | `engine::runtime` |
//! | worker pool | the threads that run batches; each has set up its own steps | `engine::runtime::workers` |
//! | blocking pool | the elastic threads for calls that wait: commands, HTTP, plugins with effects | `engine::runtime::workers` |
//! | committer | the thread that writes sinks and the store | `engine::commit::committer` |
//! | committed state | the durable positions of a run, kept in memory | `engine::commit::committed_state` |
//! | crash guard | the file of running attempts, from which suspects of a crash are found | `store::CrashGuard` |
//! | epoch | the number in the store by which a second writer is noticed | `store::database::disk` |
//! | position | the number of a part of the configuration, which it keeps in every generation | [`Parts`] |
//! | test | jobs for a step or a pipeline, with the expected results | `config::TestCase` |
//! | mock | answers in the place of a plugin or a built-in in a test | `config::Mock` |
//! | test bed | the run of a test on one thread, under a virtual clock | `engine::test_run` |
//! | generation | one checked configuration with its scripts and plugins | `engine::Generation` |
//!
//! Two public types share a name only across the plugin boundary. `Step`, `Settings` and `ReadError` of
//! `tidegate-plugin` are the words of plugin authors. Their namesakes are the words of configuration and store.

mod external_status;
mod field_path;
pub(crate) mod job;
mod json;
mod lock_holder;
pub mod log_target;
mod name;
mod name_history;
mod part_names;
mod parts;
pub mod plain;
mod private_file;
mod rate;
mod restart;
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
pub use crate::time::clock::{Clock, ManualClock, SystemClock, Timestamp, from_rfc3339, millis, rfc3339};
pub use crate::time::due::Due;
pub use external_status::{ExternalStatus, NextPoll};
pub use field_path::{FieldPath, elements, scalar};
pub use json::{on_one_line, present, value_hash};
pub use lock_holder::{LockHolder, is_alive, lock_owner};
pub use name::{Address, Name};
pub use name_history::{NameHistory, NamesSince};
pub use part_names::{NamedKind, PartNames, RenamedPart};
pub use parts::Parts;
pub use private_file::{FILE_MODE, OTHERS, create_private, open_or_create_private, read_at_most};

pub use crate::job::completion_token::TokenKey;
pub use crate::job::sink_position::SinkPosition;
pub use crate::time::schedule::{Cron, LATE, Missed, Schedule};
pub use crate::units::{format_duration, format_size, grouped, parse_duration, parse_size};
pub use rate::{Rate, format_rate, parse_rate};
pub use restart::Restart;
pub use retry_policy::{
    Backoff, Decision, Exhausted, FailedTry, FailureClass, Jitter, OnExhausted, QuickRow, RetryPolicy,
};
pub use secret::Secret;
pub use shortened::{leave_out, shortened};
