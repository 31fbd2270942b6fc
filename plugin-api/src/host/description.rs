//! Description of a library: is checked once, and offers its steps from then on.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::answer::{Target, call};
use super::instance::{Functions, Instance, Spec};
use super::line::{Host, Keep, Line};
use crate::abi::{
    self, PLUGIN_BYTES_MIN, STEP_BYTES_MIN, TIDEGATE_ABI_VERSION, TidegateBytes, TidegatePlugin,
    TidegateSetup, TidegateStep,
};
use crate::{Checkpoint, Failure, borrowed};

/// A library with a valid description.
#[derive(Clone)]
pub struct Plugin {
    name: String,
    version: String,
    /// At least one. Each keeps the library loaded.
    offers: Vec<Offer>,
}

/// A step of a plugin.
#[derive(Clone)]
pub struct Offer {
    name: String,
    description: String,
    has_effects: bool,
    schema: Option<String>,
    functions: Functions,
    keep: Keep,
}

/// Why a description cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unusable {
    /// There is none.
    Null,
    /// It was built for another version of the interface.
    Version(u32),
    /// It is shorter than this version's.
    Size(usize),
    /// A function or a list is missing; its name.
    Missing(String),
    /// A text is invalid, or two steps share a name; the error.
    Wrong(String),
    /// The plugin itself refuses to start.
    Init(String),
}

impl Plugin {
    /// Reads a description, and initializes the plugin.
    ///
    /// # Errors
    /// Why it cannot be used; no function was called, except for `Init`.
    ///
    /// # Safety
    /// `description` is null, or the result of a plugin's entry, and its library stays loaded while `keep`
    /// lives.
    pub unsafe fn attach(description: *const TidegatePlugin, keep: &Keep) -> Result<Self, Unusable> {
        if description.is_null() {
            return Err(Unusable::Null);
        }
        if !description.is_aligned() {
            return Err(Unusable::Wrong("its address is not a multiple of 8".into()));
        }
        // SAFETY: these two come first in every version. They are read alone, since no other field is known
        // to exist yet.
        let (version, size) = unsafe {
            ((&raw const (*description).abi_version).read(), (&raw const (*description).size).read())
        };
        if version != TIDEGATE_ABI_VERSION {
            return Err(Unusable::Version(version));
        }
        if (size as usize) < PLUGIN_BYTES_MIN {
            return Err(Unusable::Size(size as usize));
        }
        // SAFETY: it has `size` bytes.
        let about = unsafe { borrowed::prefix(description, size as usize) };
        if about.step_size < STEP_BYTES_MIN || about.step_size % align_of::<TidegateStep>() != 0 {
            return Err(Unusable::Size(about.step_size));
        }
        if about.step_count == 0 || about.steps.is_null() {
            return Err(Unusable::Missing("steps".into()));
        }
        if about.step_count > STEPS_MAX {
            let count = about.step_count;
            return Err(Unusable::Wrong(format!("it has {count} steps, which exceeds {STEPS_MAX}")));
        }
        if !about.steps.is_aligned() {
            let wrong = "the address of its steps is not a multiple of 8";
            return Err(Unusable::Wrong(wrong.into()));
        }
        // SAFETY: texts of a description live as long as the library.
        let (name, version) = unsafe { (line(about.name, "name")?, line(about.version, "version")?) };
        if name.is_empty() {
            return Err(Unusable::Wrong("its name is empty".into()));
        }
        let steps: Vec<TidegateStep> = (0..about.step_count)
            .map(|position| {
                // SAFETY: `step_count` steps of `step_size` bytes are in an array.
                unsafe { borrowed::prefix(about.steps.byte_add(position * about.step_size), about.step_size) }
            })
            .collect();
        if let Some(init) = about.init {
            // SAFETY: as the ABI asks: once, before anything else is used.
            call(None, |answer| unsafe { init(answer) })
                .map_err(|failure| Unusable::Init(failure.message))?;
        }
        let mut offers: Vec<Offer> = Vec::with_capacity(steps.len());
        for step in steps {
            // SAFETY: the step is of a description that lives as long as `keep`.
            let offer = unsafe { Offer::of(&step, keep) }?;
            if offers.iter().any(|other| other.name == offer.name) {
                return Err(Unusable::Wrong(format!("its step `{}` occurs twice", offer.name)));
            }
            offers.push(offer);
        }
        Ok(Self { name, version, offers })
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// In the plugin's order.
    #[must_use]
    pub fn offers(&self) -> &[Offer] {
        &self.offers
    }

    #[must_use]
    pub fn offer(&self, name: &str) -> Option<&Offer> {
        self.offers.iter().find(|offer| offer.name == name)
    }
}

/// More steps than this are an error.
const STEPS_MAX: usize = 4096;

/// Maximum bytes of a name, version or description.
const LINE_BYTES_MAX: usize = 64 << 10;

/// A text of a description, which messages show: one line.
///
/// # Safety
/// As [`borrowed::slice`].
unsafe fn line(bytes: TidegateBytes, what: &str) -> Result<String, Unusable> {
    if bytes.len > LINE_BYTES_MAX {
        let len = bytes.len;
        return Err(Unusable::Wrong(format!("the {what} has {len} bytes, which exceeds {LINE_BYTES_MAX}")));
    }
    // SAFETY: the caller vouches for it.
    let text = unsafe { borrowed::text(bytes) };
    if text.contains(char::is_control) {
        return Err(Unusable::Wrong(format!(
            "the {what} holds a control character, perhaps the end of a line"
        )));
    }
    Ok(text)
}

impl Offer {
    /// # Safety
    /// As [`Plugin::attach`].
    unsafe fn of(step: &TidegateStep, keep: &Keep) -> Result<Self, Unusable> {
        // SAFETY: texts of a description live as long as the library.
        let (name, description) =
            unsafe { (line(step.name, "name of a step")?, line(step.description, "description of a step")?) };
        if name.is_empty() || name.contains(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_') {
            return Err(Unusable::Wrong(format!("`{name}` is not a valid name of a step")));
        }
        let missing = |function| Unusable::Missing(format!("function `{function}` of its step `{name}`"));
        let functions = Functions {
            create: step.create.ok_or_else(|| missing("create"))?,
            process: step.process.ok_or_else(|| missing("process"))?,
            destroy: step.destroy.ok_or_else(|| missing("destroy"))?,
        };
        let mut schema = None;
        if let Some(ask) = step.schema {
            let mut target = Target::new(None);
            // SAFETY: as the ABI asks: after `init`, with an answer of its own.
            let asked = target.call(|answer| unsafe { ask(answer) });
            asked.map_err(|failure| Unusable::Wrong(format!("the schema of `{name}`: {failure}")))?;
            schema = Some(target.message).filter(|message| !message.is_empty());
        }
        let unknown = step.flags & !abi::TIDEGATE_HAS_EFFECTS;
        if unknown != 0 {
            let wrong =
                format!("its step `{name}` has flags that are unknown to this version ({unknown:#x})");
            return Err(Unusable::Wrong(wrong));
        }
        let has_effects = step.flags & abi::TIDEGATE_HAS_EFFECTS != 0;
        Ok(Self { name, description, has_effects, schema, functions, keep: Arc::clone(keep) })
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Whether attempts have external effects.
    #[must_use]
    pub fn has_effects(&self) -> bool {
        self.has_effects
    }

    /// The JSON Schema of the step's config, as the plugin returns it.
    #[must_use]
    pub fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// Creates an instance for this thread.
    ///
    /// # Errors
    /// The failure of the plugin.
    pub fn create(&self, spec: &Spec<'_>, host: Box<dyn Host>) -> Result<Instance, Failure> {
        self.keep.entered();
        let line = Line::open(host);
        let bindings: Vec<TidegateBytes> =
            spec.bindings.iter().map(|binding| TidegateBytes::of(binding.as_bytes())).collect();
        let setup = TidegateSetup {
            size: size_of::<TidegateSetup>(),
            host: &raw const line.host,
            pipeline: TidegateBytes::of(spec.pipeline.as_bytes()),
            step: TidegateBytes::of(spec.step.as_bytes()),
            config: TidegateBytes::of(spec.config.as_bytes()),
            bindings: bindings.as_ptr(),
            binding_count: bindings.len(),
            timeout_ms: spec
                .timeout
                .map_or(0, |timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).max(1)),
        };
        let mut raw = std::ptr::null_mut();
        // SAFETY: the contract of the ABI; all data of `setup` outlive the call.
        let created =
            call(None, |answer| unsafe { (self.functions.create)(&raw const setup, answer, &raw mut raw) });
        if let Err(failure) = created {
            line.end(&self.keep);
            return Err(failure);
        }
        let (functions, keep) = (self.functions, Arc::clone(&self.keep));
        let before = Checkpoint::default();
        Ok(Instance { raw, functions, line: Some(line), keep, before, _thread: PhantomData })
    }
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("its description is missing"),
            Self::Version(version) => write!(
                f,
                "it was built for version {version} of the plugin interface; this Tidegate has version \
                 {TIDEGATE_ABI_VERSION}"
            ),
            Self::Size(size) => {
                write!(f, "its description has {size} bytes, which does not match this version")
            }
            Self::Missing(what) => write!(f, "its description lacks {what}"),
            Self::Wrong(what) => write!(f, "its description is wrong: {what}"),
            Self::Init(why) => write!(f, "it cannot be initialized: {why}"),
        }
    }
}

impl std::error::Error for Unusable {}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, version, offers, .. } = self;
        f.debug_struct("Plugin")
            .field("name", name)
            .field("version", version)
            .field("offers", offers)
            .finish()
    }
}

impl fmt::Debug for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offer").field("name", &self.name).finish_non_exhaustive()
    }
}
