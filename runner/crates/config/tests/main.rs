//! Tests of configurations: operators' files, right and wrong, through the public interface of the crate.

#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod diagnostics;

mod robust;

mod whole;

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tidegate_config::{Configuration, Diagnostics, LoadOptions, load};

/// A folder with a configuration called `configs` in it.
struct Folder {
    temp: TempDir,
}

impl Folder {
    fn of(files: &[(&str, &str)]) -> Self {
        let folder = Self { temp: tempfile::tempdir().unwrap() };
        for (name, text) in files {
            folder.write(name, text.as_bytes());
        }
        folder
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.configs().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    fn configs(&self) -> PathBuf {
        self.temp.path().join("configs")
    }

    fn load(&self) -> Result<(Configuration, Diagnostics), Diagnostics> {
        self.load_at("configs")
    }

    fn load_at(&self, path: &str) -> Result<(Configuration, Diagnostics), Diagnostics> {
        load(&self.temp.path().join(path), &options()).finish()
    }

    /// The diagnostics of `check` for the configuration at `path`.
    fn shown_at(&self, path: &str) -> String {
        let diagnostics = match self.load_at(path) {
            Ok((_, warnings)) => warnings,
            Err(mistakes) => {
                assert!(mistakes.has_errors());
                mistakes
            }
        };
        self.plain(&diagnostics.render(false))
    }

    fn shown(&self) -> String {
        self.shown_at("configs")
    }

    /// `text` without the temporary part of paths.
    fn plain(&self, text: &str) -> String {
        text.replace(&format!("{}/", self.temp.path().display()), "")
    }

    fn relative(&self, path: &Path) -> String {
        self.plain(&path.display().to_string())
    }
}

fn options() -> LoadOptions {
    let env = |name: &str| match name {
        "QUEUE" => Some("priced".to_owned()),
        "SECRET" => Some("hunter2!".to_owned()),
        "SECRET_NAME" => Some("hunter2".to_owned()),
        _ => None,
    };
    LoadOptions { env: Box::new(env), ..LoadOptions::default() }
}
