//! `Inside`: the plugin whose code this thread runs, for the message if that code ends the process.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;

use tidegate_model::sync::Mutex;

thread_local! {
    /// Without a destructor, so that it can still be read when the process ends.
    static INSIDE: Cell<Option<Inside>> = const { Cell::new(None) };
}

/// Running code of a plugin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inside {
    whose: Label,
    act: Act,
}

/// The name of a plugin, and the step that it runs for, if any.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Label {
    plugin: &'static str,
    step: Option<&'static str>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    Load,
    Create,
    Run { index: u64 },
    End,
}

/// Until this is dropped the thread runs that code.
#[must_use = "it ends when this is dropped"]
pub(crate) struct Stay(Option<Inside>);

impl Label {
    pub(crate) fn of(plugin: &str, step: Option<&str>) -> Self {
        Self { plugin: kept(plugin), step: step.map(kept) }
    }

    /// The running code, as a sentence fragment.
    pub(crate) fn at(self, act: Act) -> String {
        Inside { whose: self, act }.to_string()
    }
}

/// Each text is kept once, for ever.
fn kept(text: &str) -> &'static str {
    static KEPT: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut kept = KEPT.lock();
    if let Some(known) = kept.get(text) {
        return known;
    }
    let text: &'static str = text.to_owned().leak();
    kept.insert(text);
    text
}

#[inline]
pub(crate) fn enter(whose: Label, act: Act) -> Stay {
    Stay(INSIDE.replace(Some(Inside { whose, act })))
}

/// The code that this thread runs.
pub(crate) fn now() -> Option<Inside> {
    INSIDE.get()
}

impl Drop for Stay {
    #[inline]
    fn drop(&mut self) {
        INSIDE.set(self.0);
    }
}

impl fmt::Display for Inside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { whose: Label { plugin, step }, act } = self;
        match act {
            Act::Load => write!(f, "{plugin} was being loaded")?,
            Act::Create => write!(f, "{plugin} was being created")?,
            Act::Run { index } => write!(f, "{plugin} ran job {index}")?,
            Act::End => write!(f, "{plugin} was being ended")?,
        }
        step.map_or(Ok(()), |step| write!(f, " for step `{step}`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_knows_whose_code_it_runs_and_then_that_of_before() {
        let (outer, inner) = (Label::of("plugin `a`", None), Label::of("plugin `b`", Some("p/s")));
        assert!(now().is_none());
        let stay = enter(outer, Act::Load);
        let within = enter(inner, Act::Run { index: 7 });
        assert_eq!(
            now().map(|inside| inside.to_string()).as_deref(),
            Some("plugin `b` ran job 7 for step `p/s`")
        );
        drop(within);
        assert_eq!(now().map(|inside| inside.to_string()), Some(outer.at(Act::Load)));
        drop(stay);
        assert!(now().is_none());
    }
}
