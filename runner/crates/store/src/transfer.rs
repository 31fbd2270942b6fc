//! Export and import: the whole store as lines of text.

pub(crate) mod export;
pub(crate) mod export_format;
pub(crate) mod import;
pub(crate) mod import_writer;
