//! `TextReader`: reads the texts of a configuration, each of them once, and records what it was asked for.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::diagnostic::files::{Files, TextReadError, read_text};

/// A file and its text; `None`: it could not be read.
pub(crate) type FileRead = (PathBuf, Option<Arc<str>>);

/// The reading of texts during one load.
#[derive(Debug, Default)]
pub(crate) struct TextReader {
    files: Files,
    /// The texts that are read instead of those on disk.
    recorded: Option<BTreeMap<PathBuf, String>>,
    /// The files that were asked for since [`Self::take_read`], in order, with repetitions.
    read: Vec<FileRead>,
}

impl TextReader {
    /// Reads these texts by path, and none from disk.
    pub(crate) fn recorded(texts: BTreeMap<PathBuf, String>) -> Self {
        Self { recorded: Some(texts), ..Self::default() }
    }

    /// Reads a text of bounded length, and adds it. A text that several parts name is read once, so that all of them
    /// have the same one.
    pub(crate) fn read(&mut self, path: &Path) -> Result<Arc<str>, TextReadError> {
        let text = self.find(path);
        self.read.push((path.to_owned(), text.as_ref().ok().cloned()));
        text
    }

    fn find(&mut self, path: &Path) -> Result<Arc<str>, TextReadError> {
        if let Some(text) = self.files.shared(path) {
            return Ok(Arc::clone(text));
        }
        let text = self.text_of(path)?;
        Ok(self.files.add(path, text))
    }

    /// Records that another file than a text was looked for.
    pub(crate) fn seek(&mut self, path: PathBuf) {
        self.files.seek(path);
    }

    fn text_of(&mut self, path: &Path) -> Result<String, TextReadError> {
        self.files.seek(path);
        match &self.recorded {
            Some(recorded) => recorded.get(path).cloned().ok_or(TextReadError::Missing),
            None => read_text(path),
        }
    }

    /// Whether [`Self::read`] gives the same as in an earlier load, whose text is shared then. It is not recorded.
    pub(crate) fn is_as_before(&mut self, (path, before): &FileRead) -> bool {
        if let Some(text) = self.files.shared(path) {
            return before.as_ref() == Some(text);
        }
        let text = self.text_of(path).ok();
        let is_same = text.as_deref() == before.as_deref();
        if let Some(text) = text {
            let shared = before.clone().filter(|_| is_same);
            self.files.add(path, shared.unwrap_or_else(|| text.into()));
        }
        is_same
    }

    /// The files that were asked for since the last call, in order.
    pub(crate) fn take_read(&mut self) -> Vec<FileRead> {
        std::mem::take(&mut self.read)
    }

    pub(crate) fn into_files(self) -> Files {
        self.files
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_that_changes_during_a_load_has_one_text_without_its_mark() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.rhai");
        let mut reader = TextReader::default();
        assert!(matches!(reader.read(&path), Err(TextReadError::Missing)));
        fs::write(&path, "\u{feff}first").unwrap();
        assert_eq!(&*reader.read(&path).unwrap(), "first");
        fs::write(&path, "second").unwrap();
        assert_eq!(&*reader.read(&path).unwrap(), "first");
        assert_eq!(reader.into_files().get(&path), Some("first"));
    }
}
