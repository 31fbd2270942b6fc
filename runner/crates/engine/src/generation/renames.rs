//! Renames: the parts that a takeover moves to their new names. A rollback gives renamed parts their earlier names back.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use tidegate_config::{Configuration, FormerNames, SinkStep};
use tidegate_model::{Address, Name, NameHistory, NamedKind, PartNames, RenamedPart};
use tidegate_store::{ReadError, Store};

/// Renames by a configuration that takes over from `before`, or that starts on a store.
pub(crate) fn of(
    next: &Configuration,
    before: Option<&Configuration>,
    store: &Store,
) -> Result<Vec<RenamedPart>, ReadError> {
    let has_renamed = !store.name_history()?.since(0).are_the_same();
    if !next.former.is_written() && !has_renamed && !has_new_sink_step(next, before, store)? {
        return Ok(Vec::new());
    }
    let before = before.map(Configuration::part_names).unwrap_or_default();
    Ok(next.former.renames(&next.part_names(), &before, &store.known_parts()?))
}

/// Whether a sink has a step that may take over from another one of the same sink.
fn has_new_sink_step(
    next: &Configuration,
    before: Option<&Configuration>,
    store: &Store,
) -> Result<bool, ReadError> {
    let steps = next.former.sink_steps.iter();
    if let Some(before) = before {
        let before: BTreeSet<&Address> = before.steps.iter().map(|step| &step.address).collect();
        return Ok(steps.into_iter().any(|(step, _)| !before.contains(step)));
    }
    for (step, SinkStep { input, .. }) in steps {
        if store.progress(step, input)?.is_none() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A queue that must not get a name: other jobs had the next indices under it, so that delivery hashes would repeat.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{to}` cannot take over the jobs of `{from}`: other jobs had the indices up to {head} under this name, and delivery \
     hashes must not repeat; give the queue a name that no queue had, or let the jobs of `{from}` end first"
)]
pub struct RepeatedIndices {
    from: Address,
    pub(crate) to: Address,
    head: u64,
}

/// The first of these renames that would give indices twice. The indices of a queue without jobs go on behind those of
/// its new name instead. A queue that had that name before has its own indices under it.
pub(crate) fn repeated(renamed: &[RenamedPart], store: &Store) -> Result<Option<RepeatedIndices>, ReadError> {
    let history = store.name_history()?;
    for RenamedPart { kind, from, to } in renamed {
        if *kind != NamedKind::Endpoint {
            continue;
        }
        if let (Some(queue), Some(other)) = (store.queue(from)?, store.queue(to)?)
            && queue.jobs() > 0
            && (other.head > queue.head || other.head >= queue.first && !history.had_name(from, to))
        {
            let (from, to) = (from.clone(), to.clone());
            return Ok(Some(RepeatedIndices { from, to, head: other.head }));
        }
    }
    Ok(None)
}

/// A configuration that takes over from the current one, and the renames that it carries out. `between`: for a rollback,
/// the configurations that ran between it and the current one.
pub(crate) fn of_takeover<'c>(
    next: &'c Configuration,
    current: &Configuration,
    between: Option<&[Arc<Configuration>]>,
    store: &Store,
) -> Result<(Cow<'c, Configuration>, Vec<RenamedPart>), ReadError> {
    // Without a rollback it is copied only if a name is added: a configuration may have thousands of parts.
    let mut next = Cow::Borrowed(next);
    if let Some(between) = between {
        let later = between.iter().map(|later| &**later).chain([current]);
        turn_back(next.to_mut(), &later.collect::<Vec<_>>(), &*store.name_history()?);
    }
    let renamed = of(&next, Some(current), store)?;
    // Later rollbacks find the names that the files do not have.
    for RenamedPart { kind, from, to } in &renamed {
        let is_written = next.former.candidates(*kind, to).next().is_some();
        if !is_written && !next.former.sink_steps.contains_key(to) {
            next.to_mut().former.set(*kind, to.clone(), from.clone());
        }
    }
    Ok((next, renamed))
}

/// Lets the parts of an earlier configuration take over from those that they became in the later ones, in the order of
/// time. The last one is the current one.
fn turn_back(earlier: &mut Configuration, later: &[&Configuration], history: &NameHistory) {
    let Some(current) = later.last() else { return };
    let (names, now) = (earlier.part_names(), current.part_names());
    let later: Vec<(PartNames, &Configuration)> =
        later.iter().map(|configuration| (configuration.part_names(), *configuration)).collect();
    for (kind, address) in names.all() {
        let name = later.iter().fold(address.clone(), |name, (parts, configuration)| {
            let became = successor(kind, &name, parts, &configuration.former);
            let back = || parts.has(kind, address).then(|| address.clone());
            became.or_else(back).unwrap_or(name)
        });
        // A start renames parts whose `was` was left out.
        let name = if now.has(kind, &name) { name } else { history.since(0).now(kind, address) };
        if name != *address && now.has(kind, &name) {
            earlier.former.set(kind, address.clone(), name);
        }
    }
    for pipeline in &earlier.pipelines {
        let name = later.iter().fold(pipeline.name.clone(), |name, (_, configuration)| {
            pipeline_successor(&name, &configuration.former).cloned().unwrap_or(name)
        });
        if name != pipeline.name {
            earlier.former.pipelines.insert(pipeline.name.clone(), name);
        }
    }
}

/// The part of a configuration that took over from the part with this name.
fn successor(kind: NamedKind, name: &Address, parts: &PartNames, former: &FormerNames) -> Option<Address> {
    if parts.has(kind, name) {
        return None;
    }
    let mut parts = parts.all().filter(|(other, _)| *other == kind).map(|(_, part)| part);
    parts.find(|part| former.candidates(kind, part).any(|was| was == *name)).cloned()
}

fn pipeline_successor<'f>(name: &Name, former: &'f FormerNames) -> Option<&'f Name> {
    former.pipelines.iter().find(|(_, was)| *was == name).map(|(now, _)| now)
}
