//! `tidegate-config`: reads TOML from disk into a checked [`Configuration`], or reports every error with its
//! place.
//!
//! It knows the grammar and the graph, not scripts or the store. Paths of scripts are resolved and read here,
//! and compiled in a higher crate. `request_schema` compiles the schemas of pushed jobs, and checks the jobs.
//!
//! `load` finds the files, and `syntax` parses each. `settings`, `pipeline` and one file per section turn the
//! trees into declarations. They read tables and values with `section` and `field`, and keys with `grammar`.
//! `readings` keeps the declarations of files that have not changed.
//! `catalog`, `resolve`, `graph` and `paths` check the whole; `assemble` builds the [`Configuration`]. No
//! stage stops at an error.

mod assemble;
pub(crate) mod check;
mod diagnostic;
mod digest;
mod file_stamp;
mod load;
mod model;
pub(crate) mod parse;
mod plan;
mod readings;
mod request_schema;
pub(crate) mod sections;

pub use crate::check::on_disk::check_disk;
pub use crate::check::order::check as check_order;
pub use crate::diagnostic::files::{Files, Position};
pub use crate::diagnostic::files::{TextReadError, read_text};
pub use crate::diagnostic::span_of::locate;
pub use crate::model::push_source::{
    AcceptScript, BadLines, CommandSource, CursorRule, HttpSource, PushSource, ScheduleSource, SchemaFile,
    Token,
};
pub use crate::model::test_case::{
    Expectations, Expected, ExpectedJobs, LaterJobs, Mock, MockAnswer, MockAnswers, MockPlace, TestCase,
};
pub use crate::parse::absolute_path::{absolute, shown};
pub use crate::parse::interpolate::Lookup;
pub use crate::sections::exec::ExecCommand;
pub use diagnostic::{Diagnostic, DiagnosticRecord, Diagnostics, Severity, SourceSpan};
pub use digest::{
    ConfigurationDigest, GateAddress, GateAspect, GateDigest, PartDigest, PartDigests, QueueAspect,
    QueueDigest, RunnerAspect, RunnerDigest, SettingChange, SinkAspect, SinkDigest, SourceAspect,
    SourceDigest, StepAspect, StepDigest,
};
pub use file_stamp::FileStamp;
pub use load::{Draft, LoadOptions, load, load_again};
pub use model::{
    AfterInvalid, BatchBy, BeginAt, Body, Configuration, DataFormat, DeliveryGuarantee, FileSink, FileSource,
    FileTable, FormerNames, FreesAt, Gate, GateRef, Hosts, HttpRequest, ImportedScript, Input, InputMode,
    InputRef, Invocation, JoinSide, KeyedJoin, KeysMissing, Lane, LaneMissing, Limits, LineFormat, LogFormat,
    LogSettings, LookupTable, LookupTables, Meta, Method, Monitor, MonitorLimits, OnMismatch, OutputOrder,
    OutputRef, Pin, Pipeline, PluginStepConfig, Positions, ProbeConfig, Processor, PullSource, Queue,
    QueueRef, QueueTable, Queuer, ReloadSettings, Response, Retain, Scheduling, Script, Settings, Shape,
    Sink, SinkFormat, SinkKind, SinkRef, SinkStep, Source, SourceKind, SourceRef, Step, StepFilter, Strategy,
    Target, WatchErrors, all_processors,
};
pub use plan::{PartChange, PartKind, Plan, PlanAction, PlanState, PlannedSetting, StepRemains};
pub use readings::Readings;
pub use request_schema::{RequestSchema, SchemaError, SchemaFault};
