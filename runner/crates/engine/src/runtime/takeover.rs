//! Takeover: lets a run carry out another generation, on request or because too many attempts fail.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use crossbeam_channel::{Receiver, Sender};

use super::message::{Message, ReloadRequest};
use crate::coordinator::error_watch::RollBackRequest;
use crate::generation::Generation;
use crate::generation::bindings;
use crate::generation::current::{CurrentGeneration, NumberedGeneration};
use crate::generation::history;
use crate::generation::obstacles;
use crate::generation::renames;
use crate::report::{RefusedReload, ReloadOutcome, ReplacedGenerations, RolledBack};
use tidegate_config::Configuration;
use tidegate_model::log_target;
use tidegate_model::{Clock as _, SystemClock};
use tidegate_store::{ReadError, Store, Trigger};

/// Carries out another generation, and waits for the outcome. `None`: the run ends or has ended. `back`: the generation
/// is an earlier one, with the configurations between it and the current one.
pub(crate) fn swap(
    current: &CurrentGeneration,
    messages: &Sender<Message>,
    store: &Store,
    next: &Generation,
    trigger: Trigger,
    back: Option<(RolledBack, &[Arc<Configuration>])>,
) -> Option<ReloadOutcome> {
    // A store that cannot be read ends the run.
    let (request, answer) = request(current, store, next, trigger, back).ok()?;
    messages.send(Message::Reload(request)).ok()?;
    answer.recv().ok()
}

/// The request of [`swap`], with the channel of its answer. The next request comes after the answer.
pub(crate) fn request(
    current: &CurrentGeneration,
    store: &Store,
    next: &Generation,
    trigger: Trigger,
    back: Option<(RolledBack, &[Arc<Configuration>])>,
) -> Result<(ReloadRequest, Receiver<ReloadOutcome>), ReadError> {
    let before = current.get();
    let between = back.as_ref().map(|(_, between)| *between);
    let (configuration, renamed) =
        renames::of_takeover(&next.configuration, &before.configuration, between, store)?;
    let mut configuration = current.placed(configuration.into_owned(), &renamed);
    bindings::mark(&mut configuration, &renamed, store)?;
    // The store stays open where it is until the runner restarts.
    let is_same_folder = configuration.data == before.configuration.data;
    configuration.data.clone_from(&before.configuration.data);
    // Neither places nor marks are part of it. A rollback has names of its own.
    let digest = (is_same_folder && back.is_none()).then(|| Arc::clone(next.digest_like(&before.digest)));
    let digest = digest.unwrap_or_else(|| Arc::new(configuration.digest_like(&before.digest)));
    let configuration = Arc::new(configuration);
    // The committer adds what is committed until the swap.
    current.tables.build(&configuration, &renamed, store, &AtomicBool::new(false))?;
    let (plugins, files) = (Arc::clone(&next.plugins), Arc::clone(&next.files));
    files.recognize(&before.files);
    let number = before.number + 1;
    let rolls_back = back.as_ref().map(|(back, _)| {
        // No generation since the last proven one is proven. An operator judges only the current one.
        let is_judged = back.trigger == Trigger::WatchErrors;
        let first = if is_judged { back.to + 1 } else { back.from };
        ReplacedGenerations { first, why: back.why.clone() }
    });
    if let Some((back, _)) = back {
        // Before the swap, so that the watch of the files does not undo it.
        current.set_back_to(number, back);
    }
    let generation = Arc::new(NumberedGeneration { number, configuration, digest, plugins, files });
    // Here, and not on the committer: other steps need its time.
    let entry = history::of_takeover(&generation, next.digest(), trigger);
    let (reply, answer) = crossbeam_channel::bounded(1);
    Ok((ReloadRequest { generation, entry, rolls_back, renamed, reply }, answer))
}

/// Goes back to the last proven generation, on a thread of its own: it waits for a reload under way.
pub(crate) fn roll_back(
    current: &Arc<CurrentGeneration>,
    messages: &Sender<Message>,
    store: &Store,
    request: RollBackRequest,
) -> std::io::Result<()> {
    let (current, messages, store) = (Arc::clone(current), messages.clone(), store.clone());
    let generation = request.from;
    let roll_back = move || {
        if !goes_back(&current, &messages, &store, request) {
            // A run that is over receives no messages.
            let _ = messages.send(Message::NotRolledBack { generation });
        }
    };
    thread::Builder::new().name("rollback".into()).spawn(roll_back)?;
    Ok(())
}

fn goes_back(
    current: &CurrentGeneration,
    messages: &Sender<Message>,
    store: &Store,
    RollBackRequest { from, to, between, why }: RollBackRequest,
) -> bool {
    let _turn = current.turn.lock();
    let now = current.get();
    if now.number != from {
        // A later change of the files has replaced it.
        return false;
    }
    let earlier = Generation::of_current(&to);
    // A store that is closed now waits for room on the disk; the takeover waits, too.
    let obstacles = obstacles::find(&earlier.configuration, &now, Some(&between), store).unwrap_or_default();
    if let Some((address, obstacle)) = obstacles.first() {
        let why = format!("{why}, but `{address}` cannot be opened: {obstacle}");
        tracing::error!(target: log_target::ENGINE, generation = from, "the reload cannot be rolled back: {why}");
        let trigger = Trigger::WatchErrors;
        current.health.refuse(RefusedReload::new(SystemClock.now(), trigger, why.clone(), &why));
        return false;
    }
    let (to, since, trigger) = (to.number, SystemClock.now(), Trigger::WatchErrors);
    let back = RolledBack { to, from, since, trigger, why: why.clone() };
    let Some(outcome) = swap(current, messages, store, &earlier, trigger, Some((back, &between))) else {
        return false;
    };
    let generation = outcome.number;
    tracing::error!(
        target: log_target::ENGINE,
        generation,
        "generation {from} is rolled back: {why}; generation {to} is in force again, until the files change"
    );
    true
}
