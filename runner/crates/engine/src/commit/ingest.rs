//! Ingestion: checks the idempotency keys of a group of pushes, collects the changes of pushes and ticks, and
//! answers them once they are durable.

use std::collections::{BTreeMap, HashMap};

use tidegate_plugin::Payloads;

use super::committed_state::CommittedState;
use super::inbox::{IdempotencyKey, KeyConflict, Push, PushReply, Pushed};
use crate::coordinator::schedules::FiredTicks;
use tidegate_config::{Configuration, PushSource, QueueRef, Retain};
use tidegate_model::{DeliveryHash, Timestamp};
use tidegate_store::{Append, Block, Changes, DedupeOutcome, DedupeRecord, Details, ReadError, Store};

/// Maximum jobs of a piece that is kept in memory for readers …
const PIECE_JOBS: usize = 1024;
/// … and its maximum bytes.
const PIECE_BYTES: usize = 128 << 10;

/// Changes of the pushes and ticks of a group.
#[derive(Default)]
pub(crate) struct IngestGroup {
    /// New jobs by queue.
    jobs: BTreeMap<QueueRef, Payloads>,
    /// Keys to record, with their queues.
    keys: Vec<(QueueRef, DeliveryHash, DedupeOutcome)>,
    answers: Vec<(PushReply, Result<Pushed, KeyConflict>)>,
    /// Schedules with the number of their jobs and the time up to which their ticks are handled.
    ticked: Vec<(QueueRef, usize, Timestamp)>,
}

/// Record of a key.
#[derive(Clone, Copy)]
struct KnownKey {
    first: u64,
    jobs: u32,
    content: u64,
}

impl IngestGroup {
    /// # Errors
    /// The store cannot be read.
    pub(crate) fn of(
        pushes: Vec<Push>,
        committed_state: &CommittedState,
        store: &Store,
    ) -> Result<Self, ReadError> {
        let mut known = look_up(&pushes, store)?;
        let mut ingest = Self::default();
        for push in pushes {
            // A reload has removed the queue. Without an answer the client learns that the outcome is unknown.
            if committed_state.configuration().queues.get(push.queue.0).is_none() {
                continue;
            }
            ingest.add(push, committed_state, &mut known);
        }
        Ok(ingest)
    }

    /// Adds a push. Later pushes of a group see the keys of earlier ones.
    fn add(
        &mut self,
        push: Push,
        committed_state: &CommittedState,
        known: &mut HashMap<DeliveryHash, KnownKey>,
    ) {
        let Push { queue, jobs, whole, each, answer } = push;
        let outcome = match before(whole.as_ref(), &each, known) {
            DuplicateCheck::All(KnownKey { first, jobs, .. }) => {
                Ok(Pushed::Known { first, jobs: u64::from(jobs) })
            }
            DuplicateCheck::Other(conflict) => Err(conflict),
            DuplicateCheck::Some(before) => {
                let all = self.jobs.entry(queue).or_default();
                let first = committed_state.head(queue) + 1 + all.len() as u64;
                let mut remember = |IdempotencyKey { hash, content, .. }: IdempotencyKey, first, jobs| {
                    known.insert(hash, KnownKey { first, jobs, content });
                    self.keys.push((queue, hash, DedupeOutcome::Ingested { first, jobs, content }));
                };
                let start = all.len();
                if before.is_empty() {
                    all.append(&jobs);
                    each.iter().zip(first..).for_each(|(&key, index)| remember(key, index, 1));
                } else {
                    let mut skip = before.iter().map(|&(position, _)| position).peekable();
                    for (position, job) in jobs.iter().enumerate() {
                        if skip.next_if_eq(&position).is_some() {
                            continue;
                        }
                        let index = first + (all.len() - start) as u64;
                        all.push(job);
                        each.get(position).iter().for_each(|&&key| remember(key, index, 1));
                    }
                }
                let new = all.len() - start;
                if let Some(key) = whole.filter(|_| new > 0) {
                    remember(key, first, u32::try_from(new).unwrap_or(u32::MAX));
                }
                Ok(Pushed::Appended { first, jobs: new as u64, known: resolved(before, &each, known) })
            }
        };
        self.answers.push((answer, outcome));
    }

    pub(crate) fn with_ticks(mut self, ticked: Vec<FiredTicks>) -> Self {
        for FiredTicks { queue, jobs, handled } in ticked {
            self.jobs.entry(queue).or_default().append(&jobs);
            self.ticked.push((queue, jobs.len(), handled));
        }
        self
    }

    /// Schedules with the number of jobs of their ticks.
    pub(crate) fn ticked(&self) -> Vec<(QueueRef, usize)> {
        self.ticked.iter().map(|&(queue, jobs, _)| (queue, jobs)).collect()
    }

    /// Whether nothing must be made durable; there may be answers.
    pub(crate) fn is_empty(&self) -> bool {
        self.ticked.is_empty() && self.jobs.values().all(Payloads::is_empty)
    }

    pub(crate) fn add_to(&self, committed_state: &CommittedState, changes: &mut Changes) {
        let configuration = committed_state.configuration();
        for (&queue, jobs) in self.jobs.iter().filter(|(_, jobs)| !jobs.is_empty()) {
            let settings = &configuration.queues[queue.0];
            let block = Block::encode(jobs, Details::default());
            changes.appends.push(Append { queue: settings.address.clone(), block });
            // A queue with a maximum age or size deletes jobs even without steps.
            if settings.retain != Retain::Consumed || settings.max_size.is_some() {
                changes.trims.extend(committed_state.trim(queue, &BTreeMap::new(), changes.now));
            }
        }
        let ticked = self.ticked.iter();
        let ticked =
            ticked.map(|&(queue, _, handled)| (configuration.queues[queue.0].address.clone(), handled));
        changes.schedule_positions.extend(ticked);
        let now = changes.now;
        changes.dedupe_records.extend(self.keys.iter().map(|&(queue, hash, outcome)| {
            let keep_until = keep_until(configuration, queue, now);
            DedupeRecord { hash, outcome, keep_until }
        }));
    }

    /// Removes the new jobs, by queue, in pieces.
    pub(crate) fn take_pieces(&mut self) -> Vec<(QueueRef, Payloads)> {
        let mut pieces = Vec::new();
        for (queue, jobs) in std::mem::take(&mut self.jobs) {
            let mut piece = Payloads::new();
            for job in jobs.iter() {
                if piece.len() >= PIECE_JOBS || piece.byte_len() >= PIECE_BYTES {
                    pieces.push((queue, std::mem::take(&mut piece)));
                }
                piece.push(job);
            }
            if !piece.is_empty() {
                pieces.push((queue, piece));
            }
        }
        pieces
    }

    /// Answers all pushes; their changes are durable.
    pub(crate) fn answer(self) {
        for (answer, outcome) in self.answers {
            answer(outcome);
        }
    }
}

/// Result of the duplicate check of a push.
enum DuplicateCheck {
    /// The whole push is a duplicate.
    All(KnownKey),
    /// These jobs are duplicates, by position.
    Some(Vec<(usize, FirstSeen)>),
    /// A key was used for other content.
    Other(KeyConflict),
}

/// Earlier job with the same key and content.
#[derive(Clone, Copy)]
enum FirstSeen {
    At(u64),
    /// The job at this position of the same push.
    Here(usize),
}

fn before(
    whole: Option<&IdempotencyKey>,
    each: &[IdempotencyKey],
    known: &HashMap<DeliveryHash, KnownKey>,
) -> DuplicateCheck {
    if let Some(key) = whole
        && let Some(&found) = known.get(&key.hash)
    {
        let conflict = KeyConflict { position: None, index: Some(found.first) };
        return if key.is_of(found.content) {
            DuplicateCheck::All(found)
        } else {
            DuplicateCheck::Other(conflict)
        };
    }
    let mut before = Vec::new();
    let mut here: HashMap<DeliveryHash, (usize, u64)> = HashMap::new();
    for (position, key) in each.iter().enumerate() {
        let found = known.get(&key.hash).map(|known| (FirstSeen::At(known.first), known.content));
        let found = found.or_else(|| {
            let earlier = here.get(&key.hash);
            earlier.map(|&(position, content)| (FirstSeen::Here(position), content))
        });
        match found {
            Some((earlier, content)) if key.is_of(content) => before.push((position, earlier)),
            Some((earlier, _)) => {
                let index = if let FirstSeen::At(index) = earlier { Some(index) } else { None };
                return DuplicateCheck::Other(KeyConflict { position: Some(position), index });
            }
            None => _ = here.insert(key.hash, (position, key.content)),
        }
    }
    DuplicateCheck::Some(before)
}

/// Indices of the duplicates by position, including those within the push.
fn resolved(
    before: Vec<(usize, FirstSeen)>,
    each: &[IdempotencyKey],
    known: &HashMap<DeliveryHash, KnownKey>,
) -> Vec<(usize, u64)> {
    let index = |earlier| match earlier {
        FirstSeen::At(index) => index,
        FirstSeen::Here(position) => known.get(&each[position].hash).map_or(0, |known| known.first),
    };
    before.into_iter().map(|(position, earlier)| (position, index(earlier))).collect()
}

/// Stored records of the keys of all pushes.
fn look_up(pushes: &[Push], store: &Store) -> Result<HashMap<DeliveryHash, KnownKey>, ReadError> {
    let keys = pushes.iter().flat_map(|push| push.whole.iter().chain(&push.each));
    let hashes: Vec<DeliveryHash> = keys.map(|key| key.hash).collect();
    if hashes.is_empty() {
        return Ok(HashMap::new());
    }
    let found = store.deliveries(&hashes)?;
    let arrived = |(hash, outcome)| match outcome {
        Some(DedupeOutcome::Ingested { first, jobs, content }) => {
            Some((hash, KnownKey { first, jobs, content }))
        }
        _ => None,
    };
    Ok(hashes.into_iter().zip(found).filter_map(arrived).collect())
}

fn keep_until(configuration: &Configuration, queue: QueueRef, now: Timestamp) -> Timestamp {
    match &configuration.queues[queue.0].source {
        Some(PushSource::Http(http)) => http.dedupe.map_or(Timestamp(i64::MAX), |dedupe| now + dedupe),
        Some(PushSource::Schedule(_)) | None => Timestamp(i64::MAX),
    }
}

#[cfg(test)]
mod tests;
