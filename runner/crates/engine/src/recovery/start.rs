//! Start: recovers all steps of a configuration for a new run.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rustix::rand::{GetRandomFlags, getrandom};

use super::source_kinds;
use super::sources::OpenSources;
use super::start_position;
use super::step::{InstalledStep, StepRecovery};
use crate::commit::committed_state::CommittedState;
use crate::commit::sinks::{Sinks, last_of_others};
use crate::error::EngineError;
use crate::generation::bindings;
use crate::generation::current::NumberedGeneration;
use crate::generation::history;
use crate::generation::renames;
use crate::step::declared::DeclaredStep;
use tidegate_components::sink::cut_back;
use tidegate_config::{Configuration, PushSource, QueueRef, SinkKind, Step, Target};
use tidegate_dispatch::Ticker;
use tidegate_model::log_target;
use tidegate_model::{Address, SinkPosition, Timestamp, TokenKey};
use tidegate_store::{Changes, GenerationRecord, Renames, Store, Writer};

/// Recovered state of a run.
pub(crate) struct RecoveredState {
    pub(crate) committed: CommittedState,
    /// Steps in the order of the configuration.
    pub(crate) steps: Vec<InstalledStep>,
    pub(crate) sources: OpenSources,
    pub(crate) sinks: Sinks,
    /// Schedule sources, by the queues that they fill.
    pub(crate) tickers: Vec<(QueueRef, Ticker)>,
    /// Due time of the first late job of each queue that has one.
    pub(crate) late: Vec<(QueueRef, Timestamp)>,
    /// Key of the completion tokens.
    pub(crate) token_key: TokenKey,
    /// Changes to commit before all others.
    pub(crate) opening: Option<Changes>,
}

/// Recovers the state. Returns `None` if the run was `stopped` before.
pub(crate) fn start(
    generation: &Arc<NumberedGeneration>,
    mut sinks: Sinks,
    store: &Store,
    now: Timestamp,
    stopped: &AtomicBool,
) -> Result<Option<RecoveredState>, EngineError> {
    let configuration = &generation.configuration;
    let mut changes = Changes { now, ..Changes::default() };
    let mut committed = CommittedState::new(Arc::clone(generation));
    let mut kept_now = Vec::new();
    for (position, queue) in configuration.queues.entries() {
        let state = store.queue(&queue.address)?;
        kept_now.extend(state.iter().filter(|state| state.jobs() > 0).map(|_| queue.address.clone()));
        committed.set_head(position, state.map_or(0, |state| state.head));
    }
    cut_back_sinks(configuration, store, &mut changes)?;
    let (mut sources, mut steps) = (OpenSources::default(), Vec::with_capacity(configuration.steps.len()));
    for &position in configuration.steps.order() {
        let declared = DeclaredStep::new(generation, position);
        let (sources, sinks, committed) = (&mut sources, &mut sinks, &mut committed);
        let mut recovery = StepRecovery { store, sources, sinks, committed, stopped };
        let Some(step) = recovery.recover(&declared, &mut changes)? else { return Ok(None) };
        steps.push(step);
    }
    warn_of_orphans(configuration, store)?;
    record_generation(generation, store, &mut changes)?;
    // Retention by age must catch up on the time without a run.
    changes.trims = committed.trims_by_age(now);
    changes.trims.retain(|trim| kept_now.contains(&trim.queue));
    let tickers = tickers(configuration, None, store, &mut changes)?;
    let late = first_late(configuration, store)?;
    changes.bindings = bindings::new(configuration, &[], store)?;
    let token_key = token_key(store, &mut changes)?;
    changes.history.extend(history::at_start(generation, store));
    // A marker that cannot be read is replaced.
    changes.begins_run = store.stops().map_or(true, |stops| !stops.is_empty());
    let opening = has_news(&changes).then_some(changes);
    Ok(Some(RecoveredState { committed, steps, sources, sinks, tickers, late, token_key, opening }))
}

/// Cuts back the files of sinks that a dead runner wrote, and that no sink of the configuration writes now. Their
/// steps deliver the same jobs again to another file.
fn cut_back_sinks(
    configuration: &Configuration,
    store: &Store,
    changes: &mut Changes,
) -> Result<(), EngineError> {
    let outputs = configuration.steps.iter().flat_map(|step| &step.outputs);
    let written: BTreeSet<(&Address, PathBuf)> = outputs
        .filter_map(|output| {
            let Target::Sink(sink) = output.target else { return None };
            let sink = &configuration.sinks[sink.0];
            let SinkKind::File(file) = &sink.kind else { return None };
            Some((&sink.address, std::path::absolute(&file.path).ok()?))
        })
        .collect();
    for (address, position) in store.all_sinks()?.into_iter().filter(|(_, position)| position.open) {
        let Some(path) = &position.path else { continue };
        if written.contains(&(&address, path.into())) {
            continue;
        }
        // The lines of a sink that wrote there later stay.
        let has_others = last_of_others(&address, Some(&position), Path::new(path), store)?.is_some();
        match if has_others { Ok(Some(0)) } else { cut_back(&position) } {
            Ok(None) => continue,
            Ok(Some(0)) => {}
            Ok(Some(bytes)) => {
                tracing::info!(target: log_target::ENGINE, sink = %address, path, bytes, "cuts off uncommitted bytes");
            }
            Err(error) => {
                tracing::error!(target: log_target::ENGINE, sink = %address, path, %error,
                    "uncommitted lines cannot be cut off: they are delivered a second time to another file");
                continue;
            }
        }
        changes.sinks.push((address, SinkPosition { open: false, ..position }));
    }
    Ok(())
}

/// Whether these changes are worth a commit.
pub(crate) fn has_news(changes: &Changes) -> bool {
    changes.generation.is_some()
        || changes.begins_run
        || changes.token_key.is_some()
        || !changes.done_snapshots.is_empty()
        || !changes.progress.is_empty()
        || !changes.reparked.is_empty()
        || !changes.trims.is_empty()
        || !changes.schedule_positions.is_empty()
        || !changes.sinks.is_empty()
        || !changes.renamed.parts.is_empty()
        || !changes.heads.is_empty()
        || !changes.bindings.is_empty()
        || !changes.history.is_empty()
}

/// Moves the state of renamed parts before it is read.
pub(crate) fn rename_all(
    generation: &NumberedGeneration,
    store: &Store,
    writer: &mut Writer,
    now: Timestamp,
) -> Result<(), EngineError> {
    let parts = renames::of(&generation.configuration, None, store)?;
    if let Some(repeated) = renames::repeated(&parts, store)? {
        return Err(repeated.into());
    }
    // The sources of the last run are the same if its configuration is.
    if history::at_start(generation, store).is_some()
        && let Some(changed) =
            source_kinds::changed_framings(&generation.configuration, None, &parts, store)?.into_iter().next()
    {
        return Err(changed.into());
    }
    if !parts.is_empty() {
        let renamed = Renames { generation: generation.number, parts };
        let mut changes = Changes { now, renamed, ..Changes::default() };
        // A rollback finds the former names in the history, also if this run ends before its first commit.
        record_generation(generation, store, &mut changes)?;
        changes.history.extend(history::at_start(generation, store));
        writer.commit(&changes)?;
    }
    let heads = source_kinds::heads(&generation.configuration, None, store)?;
    if !heads.is_empty() {
        writer.commit(&Changes { now, heads, ..Changes::default() })?;
    }
    Ok(())
}

/// Schedules, each from its last tick on. The start of a schedule that never ticked is recorded, so that
/// later ticks without a running engine count as missed. `before`: the configuration from which a running runner goes on;
/// schedules that are the same in it are left out.
pub(crate) fn tickers(
    configuration: &Configuration,
    before: Option<&Configuration>,
    store: &Store,
    changes: &mut Changes,
) -> Result<Vec<(QueueRef, Ticker)>, EngineError> {
    let mut tickers = Vec::new();
    for (position, queue) in configuration.queues.entries() {
        let Some(PushSource::Schedule(source)) = &queue.source else { continue };
        let earlier = before.and_then(|before| before.queues.get(position)?.source.as_ref());
        if matches!(earlier, Some(PushSource::Schedule(earlier)) if earlier == source) {
            continue;
        }
        // A rename is part of the same commit.
        let former =
            changes.renamed.parts.iter().find(|part| part.to == queue.address).map(|part| &part.from);
        let mut last = store.ticked(former.unwrap_or(&queue.address))?;
        if before.is_some() {
            let (now, old) = (changes.now, earlier.and_then(PushSource::schedule));
            // The runner has missed nothing: the new schedule has no tick from before it was in force. But one that both
            // have, that is due, and that was not taken yet, is not left out.
            let due = last.zip(old).and_then(|(last, old)| old.next(last)).filter(|due| *due <= now);
            let from = due.map_or(now, |due| due - Duration::from_millis(1));
            last = last.map(|last| last.max(from));
        }
        let ticker = Ticker::new(source.schedule.clone(), source.missed, last, changes.now);
        if last != Some(ticker.handled()) {
            changes.schedule_positions.push((queue.address.clone(), ticker.handled()));
        }
        tickers.push((QueueRef(position), ticker));
    }
    Ok(tickers)
}

/// Due time of the first late job of each queue that has one.
pub(crate) fn first_late(
    configuration: &Configuration,
    store: &Store,
) -> Result<Vec<(QueueRef, Timestamp)>, EngineError> {
    let mut late = Vec::new();
    for (position, queue) in configuration.queues.entries() {
        late.extend(store.next_late(&queue.address)?.map(|due| (QueueRef(position), due)));
    }
    Ok(late)
}

/// Key of the store; it is created if there is none yet.
fn token_key(store: &Store, changes: &mut Changes) -> Result<TokenKey, EngineError> {
    if let Some(key) = store.token_key()? {
        return Ok(key);
    }
    let mut bytes = [0; 32];
    // The call needs no open file, and always fills 256 bytes or less.
    getrandom(&mut bytes, GetRandomFlags::empty()).map_err(std::io::Error::from)?;
    // Random bytes are not all zero.
    let key = TokenKey::new(&bytes).unwrap_or(TokenKey::NONE);
    changes.token_key = Some(key.clone());
    Ok(key)
}

/// Number of a configuration: the last one, or the next if the configuration has changed.
pub(crate) fn number(configuration: &Configuration, store: &Store) -> Result<u64, EngineError> {
    let last = store.generation()?;
    Ok(match last {
        Some(last) if last.fingerprint == configuration.fingerprint() => last.number,
        Some(last) => last.number + 1,
        None => 1,
    })
}

/// Records a generation, unless it is the last one already.
pub(crate) fn record_generation(
    generation: &NumberedGeneration,
    store: &Store,
    changes: &mut Changes,
) -> Result<(), EngineError> {
    let NumberedGeneration { number, ref digest, .. } = *generation;
    if store.generation()?.is_none_or(|last| last.number != number) {
        let fingerprint = digest.fingerprint();
        changes.generation = Some(GenerationRecord { number, fingerprint, time: changes.now });
    }
    Ok(())
}

/// Warns of progress and snapshots without a step: the step was renamed or removed, or has other inputs now.
fn warn_of_orphans(configuration: &Configuration, store: &Store) -> Result<(), EngineError> {
    for (step, input, progress) in store.all_progress()? {
        let claims = |claimant: &Step| {
            claimant.address == step && claimant.inputs.iter().any(|one| one.address == input)
        };
        if !configuration.steps.iter().any(claims) {
            tracing::warn!(
                target: log_target::ENGINE,
                step = %step,
                input = %input,
                watermark = start_position::watermark_below(store, &step, &input.to_string(), progress.position())?,
                "no step of the configuration claims this progress; it is kept (a step with another name \
                 starts at the oldest job)"
            );
        }
    }
    for snapshot in store.all_snapshots()? {
        if !configuration.steps.iter().any(|step| step.address == snapshot.step) {
            let inputs =
                snapshot.inputs.iter().map(|input| format!("{} from {}", input.address, input.first));
            tracing::warn!(
                target: log_target::ENGINE,
                step = %snapshot.step,
                jobs = snapshot.jobs,
                "the step is not in the configuration, and an attempt of it was interrupted ({}). The attempt may \
                 have had effects. Its record is kept, and the attempt is repeated if the step returns before \
                 retention deletes the jobs.",
                inputs.collect::<Vec<_>>().join(", ")
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generation::source_files::SourceFiles;
    use tidegate_config::{LoadOptions, load};
    use tidegate_model::Progress;
    use tidegate_store::open_in_memory;

    #[test]
    fn a_rename_at_a_start_is_in_the_history_from_its_commit_on() {
        let folder = tempfile::tempdir().unwrap();
        let toml = "[step.new]\nwas = \"old\"\nfrom = \"in\"\nto = \"out\"\n";
        std::fs::write(folder.path().join("p.toml"), toml).unwrap();
        let draft = load(folder.path(), &LoadOptions::default());
        let files = draft.diagnostics.files().clone();
        let (configuration, _) = draft.finish().unwrap();
        let (store, mut writer) = open_in_memory().unwrap();
        let [old, new, input] = ["p/old", "p/new", "p/in"].map(|name| Address::parse(name).unwrap());
        let progress = vec![(old, input.clone(), Progress::default())];
        writer.commit(&Changes { progress, ..Changes::default() }).unwrap();
        let files = Arc::new(SourceFiles::new(&configuration, &files));
        let generation = NumberedGeneration::new(2, Arc::new(configuration), Arc::default(), files);
        rename_all(&generation, &store, &mut writer, Timestamp(1)).unwrap();
        assert!(store.progress(&new, &input).unwrap().is_some());
        assert_eq!(store.generation().unwrap().map(|record| record.number), Some(2));
        let (entries, _) = store.history().unwrap();
        assert_eq!(entries.iter().map(|entry| entry.generation).collect::<Vec<_>>(), [Some(2)]);
        assert!(history::at_start(&generation, &store).is_none());
    }
}
