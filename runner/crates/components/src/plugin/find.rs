//! `Search`: finds the library of a plugin by name.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::path::{Path, PathBuf};

use tidegate_model::suggest::nearest;

/// The folders that are searched, in order.
#[derive(Clone, Debug, Default)]
pub struct Search {
    pub folders: Vec<PathBuf>,
}

impl Search {
    /// The library of the plugin `name`: the first of its [`Self::paths`] that is there.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<PathBuf> {
        self.paths(name).into_iter().find(|path| path.is_file())
    }

    /// The paths that the library of the plugin `name` may have: `libNAME.so` or `NAME.so` in each folder, in their
    /// order. `-` and `_` are equal, as for cargo.
    #[must_use]
    pub fn paths(&self, name: &str) -> Vec<PathBuf> {
        let names = [name.to_owned(), name.replace('-', "_")];
        let files: Vec<String> = names
            .iter()
            .flat_map(|name| [format!("{DLL_PREFIX}{name}{DLL_SUFFIX}"), format!("{name}{DLL_SUFFIX}")])
            .collect();
        self.folders.iter().flat_map(|folder| files.iter().map(|file| folder.join(file))).collect()
    }

    /// The nearest name of a plugin.
    #[must_use]
    pub fn near(&self, name: &str) -> Option<String> {
        let names: Vec<String> = self.folders.iter().flat_map(|folder| near(folder)).collect();
        nearest(name, names.iter().map(String::as_str)).map(str::to_owned)
    }
}

/// The names of all libraries in a folder, in any order.
#[must_use]
pub fn near(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names
        .filter_map(|name| {
            let stem = name.strip_suffix(DLL_SUFFIX)?;
            Some(stem.strip_prefix(DLL_PREFIX).unwrap_or(stem).to_owned())
        })
        .collect()
}
