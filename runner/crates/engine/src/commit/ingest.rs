//! Ingestion: checks the idempotency keys of a group of pushes, collects the changes of pushes and ticks, and
//! answers them once they are durable.

use std::collections::{BTreeMap, HashMap};

use tidegate_plugin::Payloads;

use super::committed_state::CommittedState;
use super::inbox::{IdempotencyKey, KeyConflict, Push, PushReply, Pushed};
use crate::coordinator::schedules::FiredTicks;
use tidegate_config::{Configuration, PushSource, QueueRef, Retain};
use tidegate_model::{DeliveryHash, Timestamp};
use tidegate_store::{Append, Block, Changes, DedupeOutcome, Details, IngestedKey, ReadError, Store};

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
    keys: Vec<(QueueRef, DeliveryHash, NewKey)>,
    answers: Vec<(QueueRef, PushReply, PushOutcome)>,
    /// Indices of the first new job of each queue, once they are durable.
    firsts: BTreeMap<QueueRef, u64>,
    /// Schedules with the number of their jobs and the time up to which their ticks are handled.
    ticked: Vec<(QueueRef, usize, Timestamp)>,
}

/// Record of a key.
#[derive(Clone, Copy)]
struct KnownKey {
    first: JobPlace,
    jobs: u32,
    content: u64,
}

/// Key of new jobs: their position among those of the queue, their number, and their content.
#[derive(Clone, Copy)]
struct NewKey {
    position: u64,
    jobs: u32,
    content: u64,
}

/// Place of a pushed job.
#[derive(Clone, Copy)]
enum JobPlace {
    Index(u64),
    /// Position among the new jobs of its queue, whose indices the store gives.
    New(u64),
}

/// Outcome of a push, before the indices of the new jobs are known.
enum PushOutcome {
    Appended { position: u64, jobs: u64, known: Vec<(usize, JobPlace)> },
    Known { first: JobPlace, jobs: u64 },
    Conflict { position: Option<usize>, earlier: Option<JobPlace> },
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
            ingest.add(push, &mut known);
        }
        Ok(ingest)
    }

    /// Adds a push. Later pushes of a group see the keys of earlier ones.
    fn add(&mut self, push: Push, known: &mut HashMap<DeliveryHash, KnownKey>) {
        let Push { queue, jobs, whole, each, answer } = push;
        let outcome = match before(whole.as_ref(), &each, known) {
            DuplicateCheck::All(KnownKey { first, jobs, .. }) => {
                PushOutcome::Known { first, jobs: u64::from(jobs) }
            }
            DuplicateCheck::Other { position, earlier } => PushOutcome::Conflict { position, earlier },
            DuplicateCheck::Some(before) => {
                let all = self.jobs.entry(queue).or_default();
                let start = all.len() as u64;
                let mut remember = |IdempotencyKey { hash, content, .. }: IdempotencyKey, position, jobs| {
                    known.insert(hash, KnownKey { first: JobPlace::New(position), jobs, content });
                    self.keys.push((queue, hash, NewKey { position, jobs, content }));
                };
                if before.is_empty() {
                    all.append(&jobs);
                    each.iter().zip(start..).for_each(|(&key, position)| remember(key, position, 1));
                } else {
                    let mut skip = before.iter().map(|&(position, _)| position).peekable();
                    for (position, job) in jobs.iter().enumerate() {
                        if skip.next_if_eq(&position).is_some() {
                            continue;
                        }
                        let place = all.len() as u64;
                        all.push(job);
                        each.get(position).iter().for_each(|&&key| remember(key, place, 1));
                    }
                }
                let new = all.len() as u64 - start;
                if let Some(key) = whole.filter(|_| new > 0) {
                    remember(key, start, u32::try_from(new).unwrap_or(u32::MAX));
                }
                PushOutcome::Appended { position: start, jobs: new, known: resolved(before, &each, known) }
            }
        };
        self.answers.push((queue, answer, outcome));
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
        let mut appends = BTreeMap::new();
        for (&queue, jobs) in self.jobs.iter().filter(|(_, jobs)| !jobs.is_empty()) {
            appends.insert(queue, changes.appends.len());
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
        changes.ingested.extend(self.keys.iter().filter_map(|&(queue, hash, key)| {
            let NewKey { position, jobs, content } = key;
            let keep_until = keep_until(configuration, queue, now);
            Some(IngestedKey { hash, append: *appends.get(&queue)?, position, jobs, content, keep_until })
        }));
    }

    /// Records the indices of the first new job of each queue, in the order of [`Self::add_to`].
    pub(crate) fn committed(&mut self, firsts: impl Iterator<Item = u64>) {
        let queues = self.jobs.iter().filter(|(_, jobs)| !jobs.is_empty()).map(|(&queue, _)| queue);
        self.firsts = queues.zip(firsts).collect();
    }

    /// Removes the new jobs, by queue, in pieces, each with the index of its first job.
    pub(crate) fn take_pieces(&mut self) -> Vec<(QueueRef, u64, Payloads)> {
        let mut pieces = Vec::new();
        for (queue, jobs) in std::mem::take(&mut self.jobs) {
            let Some(&(mut first)) = self.firsts.get(&queue) else { continue };
            let mut piece = Payloads::new();
            for job in jobs.iter() {
                if piece.len() >= PIECE_JOBS || piece.byte_len() >= PIECE_BYTES {
                    let next = first + piece.len() as u64;
                    pieces.push((queue, first, std::mem::take(&mut piece)));
                    first = next;
                }
                piece.push(job);
            }
            if !piece.is_empty() {
                pieces.push((queue, first, piece));
            }
        }
        pieces
    }

    /// Answers all pushes; their changes are durable.
    pub(crate) fn answer(self) {
        for (queue, answer, outcome) in self.answers {
            // Without new jobs, no place of the outcome needs their index.
            answer(outcome.resolve(self.firsts.get(&queue).copied().unwrap_or(0)));
        }
    }
}

impl JobPlace {
    /// Index of the job, if the new jobs of its queue begin at `first`.
    fn index(self, first: u64) -> u64 {
        match self {
            Self::Index(index) => index,
            Self::New(position) => first + position,
        }
    }
}

impl PushOutcome {
    /// Outcome for the client, if the new jobs of the queue begin at `first`.
    fn resolve(self, first: u64) -> Result<Pushed, KeyConflict> {
        match self {
            Self::Appended { position, jobs, known } => {
                let known = known.into_iter().map(|(position, place)| (position, place.index(first)));
                let first = if jobs == 0 { 0 } else { first + position };
                Ok(Pushed::Appended { first, jobs, known: known.collect() })
            }
            Self::Known { first: place, jobs } => Ok(Pushed::Known { first: place.index(first), jobs }),
            Self::Conflict { position, earlier } => {
                Err(KeyConflict { position, index: earlier.map(|place| place.index(first)) })
            }
        }
    }
}

/// Result of the duplicate check of a push.
enum DuplicateCheck {
    /// The whole push is a duplicate.
    All(KnownKey),
    /// These jobs are duplicates, by position.
    Some(Vec<(usize, FirstSeen)>),
    /// A key was used for other content, by the earlier job.
    Other { position: Option<usize>, earlier: Option<JobPlace> },
}

/// Earlier job with the same key and content.
#[derive(Clone, Copy)]
enum FirstSeen {
    At(JobPlace),
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
        return if key.is_of(found.content) {
            DuplicateCheck::All(found)
        } else {
            DuplicateCheck::Other { position: None, earlier: Some(found.first) }
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
                let earlier = if let FirstSeen::At(place) = earlier { Some(place) } else { None };
                return DuplicateCheck::Other { position: Some(position), earlier };
            }
            None => _ = here.insert(key.hash, (position, key.content)),
        }
    }
    DuplicateCheck::Some(before)
}

/// Places of the duplicates by position, including those within the push.
fn resolved(
    before: Vec<(usize, FirstSeen)>,
    each: &[IdempotencyKey],
    known: &HashMap<DeliveryHash, KnownKey>,
) -> Vec<(usize, JobPlace)> {
    let place = |earlier| match earlier {
        FirstSeen::At(place) => Some(place),
        FirstSeen::Here(position) => known.get(&each[position].hash).map(|known| known.first),
    };
    before.into_iter().filter_map(|(position, earlier)| Some((position, place(earlier)?))).collect()
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
            Some((hash, KnownKey { first: JobPlace::Index(first), jobs, content }))
        }
        _ => None,
    };
    Ok(hashes.into_iter().zip(found).filter_map(arrived).collect())
}

/// The time from which a key of the queue may be forgotten; `None`: never.
fn keep_until(configuration: &Configuration, queue: QueueRef, now: Timestamp) -> Option<Timestamp> {
    match &configuration.queues[queue.0].source {
        Some(PushSource::Http(http)) => http.dedupe.map(|dedupe| now + dedupe),
        Some(PushSource::Schedule(_)) | None => None,
    }
}

#[cfg(test)]
mod tests;
