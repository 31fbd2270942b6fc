//! From TOML on disk to a checked [`Configuration`], or to every mistake with its place.
//!
//! Knows the grammar and the graph. Does not know what a script is made of, nor the store: paths
//! of scripts are resolved and read, and compiled one floor up.
//!
//! The way of a configuration: `load` finds the files; `syntax` makes a tree of each; `settings`,
//! `pipeline` and a file for each section read it into declarations, with `section` and `field` to
//! read tables and values, and `grammar` to know the keys; `catalog`, `resolve`, `graph` and `paths` check the whole; `assemble`
//! makes the [`Configuration`]. None of them stops at a mistake.

mod assemble;
pub(crate) mod check;
mod diagnostic;
mod load;
mod model;
pub(crate) mod parse;
pub(crate) mod sections;

pub use crate::check::on_disk::check_disk;
pub use crate::check::order::check as check_order;
pub use crate::diagnostic::files::{Files, Position};
pub use crate::diagnostic::files::{ReadError, read_text};
pub use crate::diagnostic::span_of::locate;
pub use crate::model::push_source::{HttpSource, PushSource, ScheduleSource, Token};
pub use crate::parse::absolute_path::{absolute, shown};
pub use crate::parse::interpolate::Lookup;
pub use crate::sections::exec::ExecCommand;
pub use diagnostic::{Diagnostic, Diagnostics, Record, Severity, SourceSpan};
pub use load::{Draft, LoadOptions, load};
pub use model::{
    BeginAt, Body, Configuration, DataFormat, DeliveryGuarantee, FieldPath, FileSink, FileSource, Gate,
    GateRef, HttpRequest, Input, InputMode, InputRef, Invocation, Lane, LaneMissing, Limits, LogFormat,
    LogSettings, Meta, Method, Monitor, OnMismatch, OutputOrder, OutputRef, Pin, Pipeline, PluginStep,
    ProbeConfig, Processor, Queue, QueueRef, Queuer, Response, Retain, Script, Settings, Shape, Sink,
    SinkFormat, SinkKind, SinkRef, Source, SourceKind, SourceRef, Step, StepFilter, Strategy, Target,
};
