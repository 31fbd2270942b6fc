//! Ingestion: checks the idempotency keys of a group of pushes, and collects the changes of pushes, ticks and late
//! jobs that are due. It answers the pushes once they are durable.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crossbeam_channel::Sender;
use tidegate_plugin::Payloads;

use super::committed_state::CommittedState;
use super::inbox::{IdempotencyKey, KeyConflict, Push, PushReply, Pushed, PushedPlace};
use super::printed::{self, PrintedCommit};
use crate::coordinator::schedules::FiredTicks;
use crate::operator::late;
use tidegate_config::{Configuration, PushSource, QueueRef, Retain};
use tidegate_model::{DeliveryHash, Due, Timestamp};
use tidegate_store::{
    Append, Block, Changes, DedupeOutcome, Details, IngestedKey, LateJob, LateKey, NewLateJob, ParkedId,
    ReadError, Store,
};

/// Maximum jobs of a piece that is kept in memory for readers …
const PIECE_JOBS: usize = 1024;
/// … and its maximum bytes.
const PIECE_BYTES: usize = 128 << 10;
/// Maximum late jobs of one queue that one commit appends …
const DUE_JOBS_MAX: usize = 1024;
/// … and their maximum bytes.
const DUE_BYTES_MAX: usize = 1 << 20;

/// Changes of the pushes and ticks of a group.
#[derive(Default)]
pub(crate) struct IngestGroup {
    /// New jobs by queue.
    jobs: BTreeMap<QueueRef, Payloads>,
    /// Keys to record, with their queues.
    keys: Vec<(QueueRef, DeliveryHash, NewKey)>,
    /// New jobs that are due later.
    late: Vec<(QueueRef, LateJob)>,
    /// Numbers of these jobs, once they are durable.
    late_ids: Vec<ParkedId>,
    /// Late jobs that are appended now.
    due: Vec<LateKey>,
    /// Queues whose late jobs change, or were asked for.
    late_queues: BTreeSet<QueueRef>,
    answers: Vec<(QueueRef, PushReply, PushOutcome)>,
    /// Indices of the first new job of each queue, once they are durable.
    firsts: BTreeMap<QueueRef, u64>,
    /// Schedules with the number of their jobs and the time up to which their ticks are handled.
    ticked: Vec<(QueueRef, usize, Timestamp)>,
    /// Cursors of commands.
    cursors: Vec<(QueueRef, String)>,
    /// Receivers of the news that the lines of commands are durable, or that their source is removed.
    printed: Vec<(Sender<bool>, bool)>,
}

/// Record of a key.
#[derive(Clone, Copy)]
struct KnownKey {
    span: KeySpan,
    content: u64,
}

/// The jobs of a key: the appended ones, and the late ones.
#[derive(Clone, Copy)]
struct KeySpan {
    /// Without meaning if `jobs` is 0.
    first: JobPlace,
    jobs: u32,
    /// Without meaning if `late` is 0.
    late_first: JobPlace,
    late: u32,
}

/// Key of new jobs, by their positions among those of the queue and among the late ones.
#[derive(Clone, Copy)]
struct NewKey {
    position: u64,
    jobs: u32,
    late_position: usize,
    late: u32,
    content: u64,
}

/// Place of a pushed job.
#[derive(Clone, Copy)]
enum JobPlace {
    Index(u64),
    /// Position among the new jobs of its queue, whose indices the store gives.
    New(u64),
    Late(ParkedId),
    /// Position among the new late jobs of the group, whose numbers the store gives.
    NewLate(usize),
}

/// Outcome of a push, before the indices of the new jobs are known.
enum PushOutcome {
    Appended {
        position: u64,
        jobs: u64,
        known: Vec<(usize, JobPlace)>,
        /// Positions in the push, and among the new late jobs of the group.
        late: Vec<(usize, usize)>,
    },
    Known(KeySpan),
    Conflict {
        position: Option<usize>,
        earlier: Option<JobPlace>,
    },
}

impl IngestGroup {
    /// # Errors
    /// The store cannot be read.
    pub(crate) fn of(
        pushes: Vec<Push>,
        committed_state: &CommittedState,
        store: &Store,
        now: Timestamp,
    ) -> Result<Self, ReadError> {
        let mut known = look_up(&pushes, store, now)?;
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
        let Push { queue, jobs, whole, each, late: due, answer } = push;
        let outcome = match before(whole.as_ref(), &each, known) {
            DuplicateCheck::All(KnownKey { span, .. }) => PushOutcome::Known(span),
            DuplicateCheck::Other { position, earlier } => PushOutcome::Conflict { position, earlier },
            DuplicateCheck::Some(before) => {
                let all = self.jobs.entry(queue).or_default();
                let (start, late_start, mut late) = (all.len() as u64, self.late.len(), Vec::new());
                let mut remember = |IdempotencyKey { hash, content, .. }: IdempotencyKey, span: NewSpan| {
                    known.insert(hash, KnownKey { span: span.into(), content });
                    let NewSpan { position, jobs, late_position, late } = span;
                    self.keys.push((queue, hash, NewKey { position, jobs, late_position, late, content }));
                };
                if before.is_empty() && due.is_empty() {
                    all.append(&jobs);
                    each.iter()
                        .zip(start..)
                        .for_each(|(&key, position)| remember(key, NewSpan::job(position)));
                } else {
                    let mut skip = before.iter().map(|&(position, _)| position).peekable();
                    for (position, job) in jobs.iter().enumerate() {
                        if skip.next_if_eq(&position).is_some() {
                            continue;
                        }
                        let span = if let Some(&due) = due.get(&position) {
                            let span = NewSpan::late(self.late.len());
                            late.push((position, self.late.len()));
                            self.late.push((queue, LateJob { due: Due::At(due), payload: job.to_vec() }));
                            span
                        } else {
                            all.push(job);
                            NewSpan::job(all.len() as u64 - 1)
                        };
                        each.get(position).iter().for_each(|&&key| remember(key, span));
                    }
                }
                let new = all.len() as u64 - start;
                if let Some(key) = whole.filter(|_| new > 0 || !late.is_empty()) {
                    let count = |jobs| u32::try_from(jobs).unwrap_or(u32::MAX);
                    let (jobs, late) = (count(new), count(late.len() as u64));
                    remember(key, NewSpan { position: start, jobs, late_position: late_start, late });
                }
                if !late.is_empty() {
                    self.late_queues.insert(queue);
                }
                let known = resolved(before, &each, known);
                PushOutcome::Appended { position: start, jobs: new, known, late }
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

    /// Appends the lines of commands. Lines that are no jobs become error records.
    pub(crate) fn with_printed(
        mut self,
        printed: Vec<PrintedCommit>,
        committed_state: &CommittedState,
        now: Timestamp,
    ) -> Self {
        let configuration = committed_state.configuration();
        for PrintedCommit { queue, lines, errors, epoch, durable } in printed {
            let Some(source) = configuration.queues.get(queue.0) else {
                // A reload has removed the source.
                self.printed.push((durable, false));
                continue;
            };
            self.jobs.entry(queue).or_default().append(&lines.jobs);
            if let Some(errors) = errors.and_then(|errors| printed::queue_at(configuration, &errors)) {
                let generation = committed_state.generation.number;
                let records = printed::error_records(&source.address, generation, epoch, &lines.bad, now);
                self.jobs.entry(errors).or_default().append(&records);
            }
            self.cursors.extend(lines.cursor.map(|cursor| (queue, cursor)));
            self.printed.push((durable, true));
        }
        self
    }

    /// Appends the late jobs of these queues that are due, up to a limit for each. A queue may occur twice: it was asked
    /// for again before this commit.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(crate) fn with_due(
        mut self,
        queues: Vec<QueueRef>,
        committed_state: &CommittedState,
        store: &Store,
        now: Timestamp,
    ) -> Result<Self, ReadError> {
        let queues: BTreeSet<QueueRef> = queues.into_iter().collect();
        for queue in queues {
            self.late_queues.insert(queue);
            // A reload has removed the queue; its late jobs are kept.
            let Some(declared) = committed_state.configuration().queues.get(queue.0) else { continue };
            let due = store.late_due(&declared.address, Due::At(now), None, DUE_JOBS_MAX, DUE_BYTES_MAX)?;
            let all = self.jobs.entry(queue).or_default();
            for (key, job) in due {
                let (position, jobs, late_position, late) = (all.len() as u64, 1, 0, 0);
                let hash = late::appended_hash(key.id);
                self.keys.push((queue, hash, NewKey { position, jobs, late_position, late, content: 0 }));
                all.push(&job.payload);
                self.due.push(key);
            }
        }
        Ok(self)
    }

    /// Queues whose late jobs change, or were asked for.
    pub(crate) fn late_queues(&self) -> &BTreeSet<QueueRef> {
        &self.late_queues
    }

    /// Schedules with the number of jobs of their ticks.
    pub(crate) fn ticked(&self) -> Vec<(QueueRef, usize)> {
        self.ticked.iter().map(|&(queue, jobs, _)| (queue, jobs)).collect()
    }

    /// Whether nothing must be made durable; there may be answers.
    pub(crate) fn is_empty(&self) -> bool {
        let Self { ticked, cursors, late, jobs, .. } = self;
        ticked.is_empty() && cursors.is_empty() && late.is_empty() && jobs.values().all(Payloads::is_empty)
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
        let cursors = self.cursors.iter();
        changes.cursors.extend(
            cursors.map(|(queue, cursor)| (configuration.queues[queue.0].address.clone(), cursor.clone())),
        );
        changes.late.done.extend(self.due.iter().cloned());
        // No other part of a commit has late jobs, so that their positions are those of the group.
        changes.late.new.extend(self.late.iter().map(|(queue, job)| NewLateJob {
            queue: configuration.queues[queue.0].address.clone(),
            job: job.clone(),
        }));
        let now = changes.now;
        changes.ingested.extend(self.keys.iter().filter_map(|&(queue, hash, key)| {
            let NewKey { position, jobs, late_position, late, content } = key;
            let keep_until = keep_until(configuration, queue, now);
            let append = if jobs == 0 { 0 } else { *appends.get(&queue)? };
            Some(IngestedKey { hash, append, position, jobs, late_position, late, content, keep_until })
        }));
    }

    /// Records the indices of the first new job of each queue, and the numbers of the late jobs, in the order of
    /// [`Self::add_to`].
    pub(crate) fn committed(&mut self, firsts: impl Iterator<Item = u64>, late_ids: Vec<ParkedId>) {
        self.late_ids = late_ids;
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

    /// Answers all pushes and commands; their changes are durable.
    pub(crate) fn answer(self) {
        for (durable, is_durable) in self.printed {
            // The thread of the command may have ended.
            let _ = durable.send(is_durable);
        }
        for (queue, answer, outcome) in self.answers {
            // Without new jobs, no place of the outcome needs their index.
            let committed = CommittedPlaces {
                first: self.firsts.get(&queue).copied().unwrap_or(0),
                late_ids: &self.late_ids,
            };
            answer(outcome.resolve(&committed));
        }
    }
}

/// A part of [`NewKey`].
#[derive(Clone, Copy)]
struct NewSpan {
    position: u64,
    jobs: u32,
    late_position: usize,
    late: u32,
}

impl NewSpan {
    fn job(position: u64) -> Self {
        Self { position, jobs: 1, late_position: 0, late: 0 }
    }

    fn late(late_position: usize) -> Self {
        Self { position: 0, jobs: 0, late_position, late: 1 }
    }
}

impl From<NewSpan> for KeySpan {
    fn from(NewSpan { position, jobs, late_position, late }: NewSpan) -> Self {
        let (first, late_first) = (JobPlace::New(position), JobPlace::NewLate(late_position));
        Self { first, jobs, late_first, late }
    }
}

impl KeySpan {
    /// Place of the first job.
    fn place(&self) -> JobPlace {
        if self.jobs > 0 { self.first } else { self.late_first }
    }
}

/// Places of the new jobs of a queue: the index of the first one, and the numbers of all late jobs of the group.
struct CommittedPlaces<'a> {
    first: u64,
    late_ids: &'a [ParkedId],
}

impl CommittedPlaces<'_> {
    fn of(&self, place: JobPlace) -> PushedPlace {
        match place {
            JobPlace::Index(index) => PushedPlace::Index(index),
            JobPlace::New(position) => PushedPlace::Index(self.first + position),
            JobPlace::Late(id) => PushedPlace::Late(id),
            JobPlace::NewLate(position) => PushedPlace::Late(self.id(position)),
        }
    }

    /// The commit returns a number for each late job.
    fn id(&self, position: usize) -> ParkedId {
        self.late_ids.get(position).copied().unwrap_or(ParkedId(0))
    }
}

impl PushOutcome {
    /// Outcome for the client.
    fn resolve(self, committed: &CommittedPlaces<'_>) -> Result<Pushed, KeyConflict> {
        match self {
            Self::Appended { position, jobs, known, late } => {
                let known = known.into_iter().map(|(position, place)| (position, committed.of(place)));
                let late = late.into_iter().map(|(position, of_group)| (position, committed.id(of_group)));
                let first = if jobs == 0 { 0 } else { committed.first + position };
                Ok(Pushed::Appended { first, jobs, known: known.collect(), late: late.collect() })
            }
            Self::Known(KeySpan { first, jobs, late_first, late }) => {
                let (jobs, late) = (u64::from(jobs), u64::from(late));
                let first = match committed.of(first) {
                    PushedPlace::Index(index) if jobs > 0 => index,
                    _ => 0,
                };
                let late_first = match committed.of(late_first) {
                    PushedPlace::Late(id) if late > 0 => id,
                    _ => ParkedId(0),
                };
                Ok(Pushed::Known { first, jobs, late_first, late })
            }
            Self::Conflict { position, earlier } => {
                Err(KeyConflict { position, earlier: earlier.map(|place| committed.of(place)) })
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
            DuplicateCheck::Other { position: None, earlier: Some(found.span.place()) }
        };
    }
    let mut before = Vec::new();
    let mut here: HashMap<DeliveryHash, (usize, u64)> = HashMap::new();
    for (position, key) in each.iter().enumerate() {
        let found = known.get(&key.hash).map(|known| (FirstSeen::At(known.span.place()), known.content));
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
        FirstSeen::Here(position) => known.get(&each[position].hash).map(|known| known.span.place()),
    };
    before.into_iter().filter_map(|(position, earlier)| Some((position, place(earlier)?))).collect()
}

/// Stored records of the keys of all pushes.
fn look_up(
    pushes: &[Push],
    store: &Store,
    now: Timestamp,
) -> Result<HashMap<DeliveryHash, KnownKey>, ReadError> {
    let keys = pushes.iter().flat_map(|push| push.whole.iter().chain(&push.each));
    let hashes: Vec<DeliveryHash> = keys.map(|key| key.hash).collect();
    if hashes.is_empty() {
        return Ok(HashMap::new());
    }
    let found = store.known_keys(&hashes, now)?;
    let mut known = HashMap::new();
    for (hash, outcome) in hashes.into_iter().zip(found) {
        let (span, content) = match outcome {
            Some(DedupeOutcome::Ingested { first, jobs, content }) => {
                let (first, late_first) = (JobPlace::Index(first), JobPlace::Late(ParkedId(0)));
                (KeySpan { first, jobs, late_first, late: 0 }, content)
            }
            Some(DedupeOutcome::IngestedLate { first, jobs, content, late_first, late }) => {
                let span = KeySpan {
                    first: JobPlace::Index(first),
                    jobs,
                    late_first: JobPlace::Late(late_first),
                    late,
                };
                (now_appended(span, late_first, store)?, content)
            }
            _ => continue,
        };
        known.insert(hash, KnownKey { span, content });
    }
    Ok(known)
}

/// The span of a single late job that is on its queue by now; any other span unchanged.
fn now_appended(span: KeySpan, id: ParkedId, store: &Store) -> Result<KeySpan, ReadError> {
    if (span.jobs, span.late) != (0, 1) {
        return Ok(span);
    }
    let appended = late::appended_at(store, id)?;
    Ok(appended.map_or(span, |index| KeySpan { first: JobPlace::Index(index), jobs: 1, late: 0, ..span }))
}

/// The time from which a key of the queue may be forgotten; `None`: never.
fn keep_until(configuration: &Configuration, queue: QueueRef, now: Timestamp) -> Option<Timestamp> {
    match &configuration.queues[queue.0].source {
        Some(PushSource::Http(http)) => http.dedupe.map(|dedupe| now + dedupe),
        // Only the records of late jobs.
        Some(PushSource::Schedule(_) | PushSource::Exec(_)) | None => Some(now + late::REMEMBERED),
    }
}

#[cfg(test)]
mod tests;
