//! From TOML on disk to a checked [`Configuration`], or to every mistake with its place.
//!
//! Knows the grammar and the graph. Does not know what a script is made of, nor the store: paths
//! of scripts are resolved and read, and compiled one floor up.

mod model;

mod files;

mod diagnostic;

mod render;

mod suggest;

mod grammar;

mod later;

mod interpolate;

mod reading;

mod field;

mod section;

mod syntax;

mod json;

pub use diagnostic::{Diagnostic, Diagnostics, Place, Record, Severity};
pub use files::{Files, Position};
pub use interpolate::Lookup;
pub use model::{
    Configuration, DataFormat, FileSink, FileSource, Input, InputRef, Limits, LogFormat, LogSettings,
    OnMismatch, OutputRef, Pipeline, Processor, Queue, QueueRef, Retain, Script, Settings, Sink, SinkFormat,
    SinkKind, SinkRef, Source, SourceKind, SourceRef, Step, StepFilter, Target,
};
