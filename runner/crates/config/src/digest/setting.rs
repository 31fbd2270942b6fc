//! `PartDigest`: the settings of one part, each with its aspect, its exact digest and a text for people.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::path::Path;
use std::ptr;

use twox_hash::XxHash3_128;

use super::encoder::{Buffers, Encoder, EncodingContext};
use crate::model::Configuration;
use crate::parse::absolute_path::absolute;

/// The settings of one part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartDigest<A> {
    /// In the order of the grammar; each key once.
    pub(super) settings: Vec<SettingDigest<A>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SettingDigest<A> {
    pub(super) aspect: A,
    pub(super) key: Cow<'static, str>,
    /// `None`: it follows from settings of other parts, which show the change.
    pub(super) shown: Option<String>,
    pub(super) exact: u128,
}

impl<A> Hash for SettingDigest<A> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Most settings of other keys have another digest too. The texts are long.
        state.write_u128(self.exact);
        state.write_usize(self.key.len());
    }
}

/// A setting that differs between two digests of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingChange<A> {
    pub aspect: A,
    /// As in the configuration, with its table: `retry.max_attempts`, `to.done`.
    pub key: String,
    /// `None`: it is new.
    pub old: Option<String>,
    /// `None`: it is gone.
    pub new: Option<String>,
}

impl<A: Copy + Ord> PartDigest<A> {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(super) fn with_capacity(settings: usize) -> Self {
        Self { settings: Vec::with_capacity(settings) }
    }

    /// Adds a setting.
    pub(super) fn add(
        &mut self,
        scope: &Scope<'_>,
        aspect: A,
        key: impl Into<Cow<'static, str>>,
        encode: impl FnOnce(&mut Encoder<'_>),
    ) {
        let (exact, shown) = scope.encode(encode, |exact, shown| (exact, shown.to_owned()));
        self.push(SettingDigest { aspect, key: key.into(), shown: Some(shown), exact });
    }

    /// Adds a setting that follows from settings of other parts.
    pub(super) fn derive(
        &mut self,
        scope: &Scope<'_>,
        aspect: A,
        key: impl Into<Cow<'static, str>>,
        encode: impl FnOnce(&mut Encoder<'_>),
    ) {
        let exact = scope.encode(encode, |exact, _| exact);
        self.push(SettingDigest { aspect, key: key.into(), shown: None, exact });
    }

    /// Keeps keys different: a script may run twice, and two names with inserted values look the same. A fixed key is
    /// added once, and no key with a name in it spells a fixed one.
    fn push(&mut self, mut setting: SettingDigest<A>) {
        if let Cow::Borrowed(key) = setting.key {
            debug_assert!(self.get(key).is_none(), "`{key}` occurs twice");
            return self.settings.push(setting);
        }
        while let Some(same) = self.get(&setting.key) {
            if same.exact == setting.exact {
                return;
            }
            setting.key.to_mut().push('′');
        }
        self.settings.push(setting);
    }

    /// The aspects that differ.
    #[must_use]
    pub fn differing(&self, other: &Self) -> BTreeSet<A> {
        let differ = |(one, other): (Option<&SettingDigest<A>>, Option<&SettingDigest<A>>)| {
            let aspects = [one, other].into_iter().flatten().map(|setting| setting.aspect);
            aspects.collect::<Vec<_>>()
        };
        self.pairs(other).into_iter().flat_map(differ).collect()
    }

    /// The settings that differ, in the order of the grammar; without those that follow from settings of other
    /// parts.
    #[must_use]
    pub fn changes(&self, new: &Self) -> Vec<SettingChange<A>> {
        let mut changes = Vec::new();
        for (old, new) in self.pairs(new) {
            let shown =
                |setting: Option<&SettingDigest<A>>| setting.and_then(|setting| setting.shown.clone());
            let (was, is) = (shown(old), shown(new));
            if let (Some(setting), true) = (new.or(old), was.is_some() || is.is_some()) {
                let (aspect, key) = (setting.aspect, setting.key.to_string());
                changes.push(SettingChange { aspect, key, old: was, new: is });
            }
        }
        changes
    }

    /// The texts of all settings of an aspect.
    pub(crate) fn texts(&self, aspect: A) -> impl Iterator<Item = &str> {
        self.settings
            .iter()
            .filter(move |setting| setting.aspect == aspect)
            .filter_map(|setting| setting.shown.as_deref())
    }

    /// The text of a setting.
    #[must_use]
    pub fn shown(&self, key: &str) -> Option<&str> {
        self.get(key)?.shown.as_deref()
    }

    /// A number that depends on all settings.
    pub(super) fn whole(&self) -> u128 {
        let mut exact = Vec::with_capacity(self.settings.len() * 32);
        for setting in &self.settings {
            exact.extend((setting.key.len() as u64).to_le_bytes());
            exact.extend(setting.key.as_bytes());
            exact.extend(setting.exact.to_le_bytes());
        }
        XxHash3_128::oneshot(&exact)
    }

    fn get(&self, key: &str) -> Option<&SettingDigest<A>> {
        self.settings.iter().find(|setting| setting.key == key)
    }

    /// The settings that differ, old and new.
    #[expect(clippy::type_complexity, reason = "a pair of one kind")]
    fn pairs<'d>(
        &'d self,
        new: &'d Self,
    ) -> Vec<(Option<&'d SettingDigest<A>>, Option<&'d SettingDigest<A>>)> {
        let mut pairs = Vec::new();
        // Most parts are shared by the configurations that are compared.
        if ptr::eq(self, new) || self == new {
            return pairs;
        }
        for old in &self.settings {
            let new = new.get(&old.key);
            if new.is_none_or(|new| new.exact != old.exact || new.aspect != old.aspect) {
                pairs.push((Some(old), new));
            }
        }
        let added = new.settings.iter().filter(|setting| self.get(&setting.key).is_none());
        pairs.extend(added.map(|setting| (None, Some(setting))));
        pairs
    }
}

impl<A> Default for PartDigest<A> {
    fn default() -> Self {
        Self { settings: Vec::new() }
    }
}

/// Encodes the settings of a configuration.
pub(super) struct Scope<'c> {
    context: EncodingContext<'c>,
    /// Keeps its memory from one setting to the next.
    buffers: RefCell<Buffers>,
}

impl<'c> Scope<'c> {
    pub(super) fn of(configuration: &'c Configuration) -> Self {
        let context = EncodingContext::new(absolute(&configuration.root), &configuration.inserted);
        Self { context, buffers: RefCell::default() }
    }

    /// A path for a key; relative to the configuration if it is inside.
    pub(super) fn relative(&self, path: &Path) -> String {
        self.encode(|it| it.path(path), |_, shown| shown.to_owned())
    }

    /// Encodes a setting, and passes on its digest and its text.
    fn encode<T>(&self, encode: impl FnOnce(&mut Encoder<'_>), take: impl FnOnce(u128, &str) -> T) -> T {
        let mut encoder = Encoder::new(&self.context, self.buffers.take());
        encode(&mut encoder);
        let taken = take(encoder.exact(), encoder.shown());
        self.buffers.replace(encoder.into_buffers());
        taken
    }
}
