//! The plugins of a generation: each library is opened once, whatever number of steps use it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use tidegate_plugin::host::{Offer, Plugin};

use super::find::Search;
use super::image::{Image, ImageError};
use super::library::{self, LibraryError};
use crate::words::suggest::{listed, nearest};

/// What `[plugin.NAME] sha256` says, by name of the plugin.
pub type Pins = BTreeMap<String, String>;

/// All libraries of a generation.
#[derive(Debug, Default)]
pub struct Plugins {
    loaded: BTreeMap<String, Loaded>,
}

/// A library that is open.
#[derive(Clone, Debug)]
pub struct Loaded {
    plugin: Arc<Plugin>,
    image: Arc<Image>,
}

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("there is no plugin `{name}`")]
    Missing { name: String, folders: Vec<PathBuf>, near: Option<String> },
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error("`{path}` has another content than `[plugin.{name}]` pins: its sha256 is {found}")]
    Pinned { name: String, path: PathBuf, found: String },
    #[error(transparent)]
    Library(#[from] LibraryError),
}

impl Plugins {
    /// Opens the plugin `name`, unless it is open already.
    pub fn load(&mut self, name: &str, search: &Search, pins: &Pins) -> Result<&Loaded, LoadError> {
        if !self.loaded.contains_key(name) {
            let loaded = Loaded::find(name, search, pins)?;
            self.loaded.insert(name.to_owned(), loaded);
        }
        Ok(&self.loaded[name])
    }

    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Loaded> {
        self.loaded.get(name)
    }
}

impl Loaded {
    fn find(name: &str, search: &Search, pins: &Pins) -> Result<Self, LoadError> {
        let Some(path) = search.find(name) else {
            let (folders, near) = (search.folders.clone(), search.near(name));
            return Err(LoadError::Missing { name: name.to_owned(), folders, near });
        };
        let image = Image::read(&path)?;
        match pins.get(name) {
            Some(pinned) if !pinned.eq_ignore_ascii_case(image.sha256()) => {
                let found = image.sha256().to_owned();
                Err(LoadError::Pinned { name: name.to_owned(), path, found })
            }
            _ => Self::open(image),
        }
    }

    /// Opens a library that has been read.
    pub fn open(image: Image) -> Result<Self, LoadError> {
        let plugin = Arc::new(library::open(&image)?);
        Ok(Self { plugin, image: Arc::new(image) })
    }

    #[must_use]
    pub fn plugin(&self) -> &Plugin {
        &self.plugin
    }

    #[must_use]
    pub fn image(&self) -> &Arc<Image> {
        &self.image
    }

    /// The step that `plugin:NAME/STEP` means, or `plugin:NAME` where there is one alone or one with
    /// the plugin's own name.
    ///
    /// # Errors
    /// What is wrong, and what to write instead.
    pub fn offer(&self, name: &str, step: Option<&str>) -> Result<&Offer, (String, String)> {
        let offers = self.plugin.offers();
        let names = || offers.iter().map(Offer::name);
        match (step, offers) {
            (Some(step), _) => self.plugin.offer(step).ok_or_else(|| {
                let help = match nearest(step, names()) {
                    Some(near) => format!("did you mean `plugin:{name}/{near}`?"),
                    None => format!("it offers {}", listed(names(), "and")),
                };
                (format!("the plugin `{name}` offers no step `{step}`"), help)
            }),
            (None, [only]) => Ok(only),
            (None, _) => self.plugin.offer(name).ok_or_else(|| {
                let help = format!(
                    "name one: {}",
                    listed(
                        names()
                            .map(|step| format!("plugin:{name}/{step}"))
                            .collect::<Vec<_>>()
                            .iter()
                            .map(String::as_str),
                        "or"
                    )
                );
                (format!("the plugin `{name}` offers several steps"), help)
            }),
        }
    }
}

impl LoadError {
    /// What to do about it.
    #[must_use]
    pub fn help(&self) -> Option<String> {
        match self {
            Self::Missing { near: Some(near), .. } => Some(format!("did you mean `plugin:{near}`?")),
            Self::Missing { folders, .. } if folders.is_empty() => Some(
                "say where plugins are: `[runner] plugins = \"folder\"` in tidegate.toml, or `--plugins FOLDER`"
                    .to_owned(),
            ),
            Self::Missing { name, folders, .. } => {
                let folders: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
                let folders = listed(folders.iter().map(String::as_str), "and");
                let file = format!("{}{name}{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
                Some(format!("`{file}` was looked for in {folders}"))
            }
            Self::Pinned { .. } => {
                Some("if you trust this file, put its sha256 there; otherwise bring the right one back".into())
            }
            Self::Image(ImageError::Short { .. }) => Some("build or copy it again".into()),
            Self::Library(LibraryError::Open { reason, .. }) if reason.contains("failed to map") => Some(
                "nothing may be run from the temporary folder: set TMPDIR to one that is not mounted `noexec`"
                    .into(),
            ),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_folder_that_nothing_may_run_from_is_told() {
        let reason = "it: failed to map segment from shared object".to_owned();
        let error = LoadError::from(LibraryError::Open { path: "libgeo.so".into(), reason });
        assert!(error.help().is_some_and(|help| help.contains("TMPDIR")), "{error}");
    }
}
