//! Kinds of sources: a name whose jobs came from elsewhere before, or were counted otherwise. The position of a step in an
//! input is an index, and no index may mean two jobs.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_config::{Configuration, ConfigurationDigest, Source, SourceKind};
use tidegate_model::{Address, NamedKind, RenamedPart, Segment, log_target};
use tidegate_store::{HistoryEntry, ReadError, Store, TakeoverOutcome};

/// Queues whose next jobs would get indices that steps have passed, because a pull source had their names. Each has the
/// index behind which its jobs must come. `before`: the configuration from which a running runner goes on; its queues are
/// right.
pub(crate) fn heads(
    configuration: &Configuration,
    before: Option<&Configuration>,
    store: &Store,
) -> Result<Vec<(Address, u64)>, ReadError> {
    let known: BTreeSet<&Address> =
        before.into_iter().flat_map(|before| before.queues.iter().map(|queue| &queue.address)).collect();
    let names = configuration.queues.iter().map(|queue| &queue.address);
    heads_of(&names.filter(|name| !known.contains(name)).collect(), store)
}

/// The same of a queue that gets a job now. A queue that has had jobs was right then, unless a file had its name since.
pub(crate) fn heads_before_a_push(queue: &Address, store: &Store) -> Result<Vec<(Address, u64)>, ReadError> {
    let is_new = store.queue(queue)?.is_none_or(|state| state.head == 0);
    if is_new || !store.segments(queue)?.is_empty() {
        return heads_of(&BTreeSet::from([queue]), store);
    }
    Ok(Vec::new())
}

fn heads_of(names: &BTreeSet<&Address>, store: &Store) -> Result<Vec<(Address, u64)>, ReadError> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let mut last: BTreeMap<Address, u64> = BTreeMap::new();
    for (_, input, progress) in store.all_progress()? {
        if !names.contains(&input) {
            continue;
        }
        // `begin_at` may name a job that a queue does not have yet.
        if !progress.is_untouched() || !store.segments(&input)?.is_empty() {
            let last = last.entry(input).or_default();
            *last = progress.position().max(*last);
        }
    }
    let mut heads = Vec::new();
    for (queue, last) in last {
        let state = store.queue(&queue)?;
        if state.as_ref().map_or(0, |state| state.head) < last {
            let deleted = state.map_or(0, |state| state.jobs());
            tracing::info!(
                target: log_target::ENGINE,
                source = %queue, index = last + 1, deleted,
                "the source was of another kind before: its jobs begin at this index, and older ones that were kept are deleted"
            );
            heads.push((queue, last));
        }
    }
    Ok(heads)
}

/// Reason for which a pull source cannot have a name that had another kind of source before. `segments`: its files, as the
/// store knows them.
pub(crate) fn why_not(
    source: &Source,
    segments: &[Segment],
    store: &Store,
) -> Result<Option<String>, ReadError> {
    let address = &source.address;
    let queue = store.queue(address)?;
    let passed = match source.kind {
        // The numbers of its jobs have a fixed meaning.
        SourceKind::Service(_) => queue.is_some() || !segments.is_empty(),
        // The place of its next line is known by the index of a job, which later jobs of the queue have passed.
        SourceKind::File(_) => {
            let head = queue.as_ref().map_or(0, |queue| queue.head);
            segments.last().is_some_and(|segment| head >= segment.first)
        }
    };
    if passed {
        return Ok(Some(
            "it was a source of another kind meanwhile, and steps would skip jobs: give it another name, with \
             `begin_at` in its steps if they are not to take all of it"
                .to_owned(),
        ));
    }
    let Some(queue) = queue.filter(|queue| queue.jobs() > 0) else { return Ok(None) };
    let progress = store.all_progress()?.into_iter().filter(|(_, input, _)| input == address);
    let least = progress.map(|(step, _, progress)| (progress.position(), step)).min();
    let (position, step) = least.map_or((0, None), |(position, step)| (position, Some(step)));
    let jobs = queue.head - position.clamp(queue.first - 1, queue.head);
    if jobs == 0 {
        return Ok(None);
    }
    let jobs = if jobs == 1 { "1 job waits".to_owned() } else { format!("{jobs} jobs wait") };
    let whom = step.map_or_else(String::new, |step| format!(" for `{step}`"));
    Ok(Some(format!(
        "it was a source of another kind before, and {jobs} there{whom}: give it another name, or let a run with the \
         earlier kind take them first"
    )))
}

/// Names whose jobs come from elsewhere in `next`, with the reason for which a running runner refuses them: its steps
/// may take more jobs under these names.
pub(crate) fn changed(
    next: &Configuration,
    before: &Configuration,
    renamed: &[RenamedPart],
    store: &Store,
) -> Result<Vec<(Address, String)>, ReadError> {
    let pulled = |configuration: &Configuration| -> BTreeSet<Address> {
        configuration.sources.iter().map(|source| source.address.clone()).collect()
    };
    let queued = |configuration: &Configuration| -> BTreeSet<Address> {
        configuration.queues.iter().map(|queue| queue.address.clone()).collect()
    };
    let mut names: BTreeSet<Address> = pulled(before).intersection(&queued(next)).cloned().collect();
    names.extend(queued(before).intersection(&pulled(next)).cloned());
    let moves =
        |name: &Address| renamed.iter().any(|part| part.kind == NamedKind::Endpoint && part.from == *name);
    let mut found = Vec::new();
    for name in names.into_iter().filter(|name| !moves(name)) {
        let is_taken = || -> Result<bool, ReadError> {
            Ok(store.all_progress()?.iter().any(|(_, input, _)| *input == name))
        };
        if store.queue(&name)?.is_some() || !store.segments(&name)?.is_empty() || is_taken()? {
            let why = "its jobs would come from a source of another kind; give it another name, or stop the runner, \
                       change the files, and start it again";
            found.push((name, why.to_owned()));
        }
    }
    Ok(found)
}

/// A file source whose jobs would get other indices than those that steps have taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("source `{source_name}` cannot go on: {}", self.why())]
pub struct ChangedFraming {
    pub(crate) source_name: Address,
    before: String,
    now: String,
}

/// Sources of files that are divided into jobs otherwise than when jobs of them were read: the store knows the files by the
/// indices of that time. `before`: the configuration from which a running runner goes on. Its steps may have jobs in flight.
/// Sources that it does not have are compared with the last configuration that had them.
pub(crate) fn changed_framings(
    next: &Configuration,
    before: Option<&Configuration>,
    renamed: &[RenamedPart],
    store: &Store,
) -> Result<Vec<ChangedFraming>, ReadError> {
    let (mut found, mut unknown) = (Vec::new(), Vec::new());
    for source in next.sources.iter().filter(|source| matches!(source.kind, SourceKind::File(_))) {
        let is_its = |part: &&RenamedPart| part.kind == NamedKind::Endpoint && part.to == source.address;
        let former = renamed.iter().find(is_its).map_or(&source.address, |part| &part.from);
        let Some(now) = next.source_digest(source).framing() else { continue };
        let earlier = before.and_then(|before| {
            let earlier = before.sources.iter().find(|earlier| earlier.address == *former)?;
            Some((before.source_digest(earlier).framing()?, is_read(former, before)))
        });
        match earlier {
            Some((earlier, _)) if earlier == now => {}
            Some((earlier, is_read)) => {
                if is_read || !store.segments(former)?.is_empty() {
                    found.push(ChangedFraming::new(source, earlier, now));
                }
            }
            None if store.segments(former)?.is_empty() => {}
            None => unknown.push((former, source, now)),
        }
    }
    if unknown.is_empty() {
        return Ok(found);
    }
    // Damage of the history stops no start.
    let (entries, _) = store.history().unwrap_or_default();
    let ran = |entry: &&HistoryEntry| !matches!(entry.outcome, TakeoverOutcome::Failed(_));
    for entry in entries.iter().rev().filter(ran) {
        if unknown.is_empty() {
            break;
        }
        let text = store.history_text(&entry.digest).unwrap_or_default();
        let Some(digest) = text.and_then(|text| ConfigurationDigest::from_recorded(&text)) else { continue };
        unknown.retain(|(former, source, now)| {
            let Some(earlier) = digest.sources.get(*former).and_then(|source| source.framing()) else {
                return true;
            };
            if earlier != *now {
                found.push(ChangedFraming::new(source, earlier, now.clone()));
            }
            false
        });
    }
    Ok(found)
}

/// Whether a step reads the source.
fn is_read(source: &Address, configuration: &Configuration) -> bool {
    configuration.steps.iter().flat_map(|step| &step.inputs).any(|input| input.address == *source)
}

impl ChangedFraming {
    fn new(source: &Source, before: String, now: String) -> Self {
        Self { source_name: source.address.clone(), before, now }
    }

    /// The reason without the name.
    pub(crate) fn why(&self) -> String {
        let Self { before, now, .. } = self;
        format!(
            "its files would be divided into other jobs ({now}; before: {before}), and steps would repeat or skip some: give \
             it another name, with `begin_at` in its steps if they are not to take all of it"
        )
    }
}
