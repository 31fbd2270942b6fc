//! From text to values: syntax, tables and their keys, interpolation, templates and references.

pub(crate) mod absolute_path;
pub(crate) mod context;
pub(crate) mod field;
pub(crate) mod instance;
pub(crate) mod interpolate;
pub(crate) mod json;
pub(crate) mod keys;
pub(crate) mod named_table;
pub(crate) mod reference;
pub(crate) mod syntax;
pub(crate) mod table;
pub(crate) mod template;
pub(crate) mod text_reader;
