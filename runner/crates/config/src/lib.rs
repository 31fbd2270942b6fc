//! From TOML on disk to a checked [`Configuration`], or to every mistake with its place.
//!
//! Knows the grammar and the graph. Does not know what a script is made of, nor the store: paths
//! of scripts are resolved and read, and compiled one floor up.
//!
//! The way of a configuration: `load` finds the files; `syntax` makes a tree of each; `settings`,
//! `pipeline` and a file for each section read it into declarations, with `section` and `field` to
//! read tables and values, and `grammar` to know the keys; `catalog`, `resolve`, `graph` and `paths` check the whole; `assemble`
//! makes the [`Configuration`]. None of them stops at a mistake.

mod absolute;

mod push;

mod model;

mod files;

mod diagnostic;

mod render;

mod grammar;

mod later;

mod interpolate;

mod reading;

mod field;

mod section;

mod syntax;

mod json;

mod reference;

mod bindings;

mod begin_at;

mod shelf;

mod retry;

mod queuer;

mod http_source;

mod schedule_source;

mod on_disk;

mod source;

mod queue;

mod plugin;

mod template;

mod http;

mod exec;

mod builtin;

mod run;

mod inquiry;

mod shelves;

mod settings;

mod step;

mod sink;

mod pipeline;

mod catalog;

mod resolve;

mod graph;

mod paths;

mod pushed;

mod shared;

mod assemble;

mod load;

mod locate;

mod order;

pub use absolute::{absolute, shown};
pub use diagnostic::{Diagnostic, Diagnostics, Place, Record, Severity};
pub use exec::ExecCommand;
pub use files::{Files, Position};
pub use files::{ReadError, read_text};
pub use interpolate::Lookup;
pub use load::{Draft, LoadOptions, load};
pub use locate::locate;
pub use model::{
    BeginAt, Body, Configuration, DataFormat, FieldPath, FileSink, FileSource, Gate, GateRef, HttpRequest,
    Input, InputRef, Inquiry, Invocation, Lane, LaneMissing, Limits, LogFormat, LogSettings, Meta, Method,
    Monitor, OnMismatch, OutputOrder, OutputRef, Pin, Pipeline, PluginStep, Processor, Promise, Queue,
    QueueRef, Queuer, Response, Retain, Script, Settings, Shape, Sink, SinkFormat, SinkKind, SinkRef, Source,
    SourceKind, SourceRef, Step, StepFilter, Strategy, Take, Target,
};
pub use on_disk::check_disk;
pub use order::check as check_order;
pub use push::{HttpSource, PushSource, ScheduleSource, Token};
