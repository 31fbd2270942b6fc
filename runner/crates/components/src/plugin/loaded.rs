//! `Plugins`: the libraries of a generation. Each library is read once, for all steps that use it. It is
//! described by a process of its own, and opened in this one only when a step runs in it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use tidegate_plugin::host::Plugin;

use super::describe::{Undescribed, describe};
use super::description::Description;
use super::find::Search;
use super::image::{Image, ImageError};
use super::library::{self, LibraryError};
use tidegate_config::shown;
use tidegate_model::suggest::listed;
use tidegate_model::sync::Mutex;

/// The pins of `[plugin.NAME] sha256`, by name of the plugin.
pub type Pins = BTreeMap<String, String>;

/// All libraries of a generation.
#[derive(Debug, Default)]
pub struct Plugins {
    loaded: BTreeMap<String, Result<Loaded, LoadError>>,
}

/// A library that is described, and open in this process once a step needs it.
#[derive(Clone, Debug)]
pub struct Loaded {
    image: Arc<Image>,
    description: Arc<Description>,
    /// Its output while it was described.
    printed: Arc<str>,
    plugin: Arc<Mutex<Option<Arc<Plugin>>>>,
}

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("plugin `{name}` is unknown")]
    Missing { name: String, folders: Vec<PathBuf>, near: Option<String> },
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error(
        "the sha256 of `{}` is {found}, which does not match the one pinned in `[plugin.{name}]`",
        shown(path)
    )]
    Pinned { name: String, path: PathBuf, found: String },
    #[error(transparent)]
    Undescribed(#[from] Undescribed),
    #[error(transparent)]
    Library(#[from] LibraryError),
}

impl Plugins {
    /// Describes all these plugins in parallel.
    #[must_use]
    pub fn load(names: &[&str], search: &Search, pins: &Pins) -> Self {
        let loaded = thread::scope(|scope| {
            let threads: Vec<_> = names
                .iter()
                .map(|&name| {
                    (
                        name,
                        thread::Builder::new().spawn_scoped(scope, move || Loaded::find(name, search, pins)),
                    )
                })
                .collect();
            let loaded = threads.into_iter().map(|(name, thread)| {
                let loaded = thread.ok().and_then(|thread| thread.join().ok());
                // If no thread can be started, it is described here.
                (name.to_owned(), loaded.unwrap_or_else(|| Loaded::find(name, search, pins)))
            });
            loaded.collect()
        });
        Self { loaded }
    }

    /// # Errors
    /// The error that prevents its use.
    pub fn find(&self, name: &str) -> Option<Result<&Loaded, &LoadError>> {
        self.loaded.get(name).map(Result::as_ref)
    }

    /// The plugin of this name, if it can be used.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Loaded> {
        self.find(name)?.ok()
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
            _ => Self::describe(image),
        }
    }

    /// A library that was read; its code runs in a process of its own.
    pub fn describe(image: Image) -> Result<Self, LoadError> {
        let (description, printed) = describe(&image)?;
        Ok(Self::new(image, description, printed, None))
    }

    /// A library that was read and is opened in this process at once.
    pub fn open(image: Image) -> Result<Self, LoadError> {
        let plugin = library::open(&image)?;
        Ok(Self::new(image, Description::from(&plugin), String::new(), Some(Arc::new(plugin))))
    }

    fn new(image: Image, description: Description, printed: String, plugin: Option<Arc<Plugin>>) -> Self {
        Self {
            image: Arc::new(image),
            description: Arc::new(description),
            printed: printed.into(),
            plugin: Arc::new(Mutex::new(plugin)),
        }
    }

    /// The library, opened in this process.
    pub fn plugin(&self) -> Result<Arc<Plugin>, LibraryError> {
        let mut plugin = self.plugin.lock();
        if let Some(plugin) = &*plugin {
            return Ok(Arc::clone(plugin));
        }
        let opened = Arc::new(library::open(&self.image)?);
        Ok(Arc::clone(plugin.insert(opened)))
    }

    /// Its description.
    #[must_use]
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Its output while it was described, escaped for a message; it should be empty.
    #[must_use]
    pub fn printed(&self) -> &str {
        &self.printed
    }

    #[must_use]
    pub fn image(&self) -> &Arc<Image> {
        &self.image
    }
}

impl LoadError {
    /// The fix for the operator.
    #[must_use]
    pub fn help(&self) -> Option<String> {
        match self {
            Self::Missing { near: Some(near), .. } => Some(format!("did you mean `plugin:{near}`?")),
            Self::Missing { folders, .. } if folders.is_empty() => Some(
                "name the folders of plugins: `[runner] plugins = \"folder\"` in tidegate.toml, or `--plugins FOLDER`"
                    .to_owned(),
            ),
            Self::Missing { name, folders, .. } => {
                let folders: Vec<String> = folders.iter().map(|folder| shown(folder).to_string()).collect();
                let folders = listed(folders.iter().map(String::as_str), "and");
                let file = format!("{}{name}{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
                Some(format!("`{file}` was searched in {folders}"))
            }
            Self::Pinned { .. } => {
                Some("if you trust this file, pin its sha256; otherwise restore the right file".into())
            }
            Self::Image(ImageError::Short { .. }) => Some("build or copy it again".into()),
            Self::Undescribed(error) => error.help(),
            _ => None,
        }
    }
}
