//! `Subject`: the job that a question names, with its commit time and payload.

use serde_json::value::RawValue;

use super::{Answer, queue_jobs};
use tidegate_components::pull_source::PullLog;
use tidegate_components::source::{BatchLimit, Read, SourceError, SourceLog};
use tidegate_config::{Configuration, Source as Declared, SourceKind};
use tidegate_engine::Chain;
use tidegate_model::{Address, SourceOffset, Timestamp};
use tidegate_store::{ReadError, Store};

/// Why the payload of a job of a queue cannot be shown.
const GONE: &str = "no longer kept (retain)";
/// Jobs of a source that are read to find one that no run has reached.
const READ_ON_MAX: u64 = 100_000;
/// Jobs and bytes per read.
const LIMIT: BatchLimit = BatchLimit { jobs: 1_000, bytes: 1 << 20 };

#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) address: Address,
    /// The index of the oldest job that is kept.
    pub(crate) first: u64,
    /// Its commit time, if known.
    pub(crate) time: Option<Timestamp>,
    /// The payload: JSON, or a text.
    pub(crate) payload: Option<Box<RawValue>>,
    /// Why it cannot be shown; a sentence fragment.
    pub(crate) note: Option<String>,
}

impl Subject {
    /// The job at `index` of `queue`, or the answer if it does not exist. `whole`: also its payload; the
    /// files of a source that is never copied are then read for it.
    pub(crate) fn find(
        store: &Store,
        configuration: &Configuration,
        (queue, index): (&str, u64),
        whole: bool,
    ) -> Result<Result<Self, Answer>, ReadError> {
        let missing = |what: String| Ok(Err(Answer::Missing(what)));
        let pulled = configuration.sources.iter().find(|source| source.address.to_string() == queue);
        if let (Some(declared), true) = (pulled, whole) {
            return Self::of_source(store, configuration, declared, index);
        }
        let Some((address, state)) = queue_jobs::find(store, queue)? else {
            let declared = configuration.queues.iter().any(|declared| declared.address.to_string() == queue);
            if declared {
                return missing(format!("queue `{queue}` has had no job yet"));
            }
            return queue_jobs::missing(store, configuration, queue).map(Err);
        };
        if index == 0 || index > state.head {
            return missing(format!("queue `{queue}` has no job {index}; its last one is {}", state.head));
        }
        let batch = match store.read(&address, index, 1, 0) {
            Ok(batch) => batch.filter(|batch| batch.first == index),
            Err(ReadError::Gone { .. }) => None,
            Err(error) => return Err(error),
        };
        let payload = batch.as_ref().and_then(|batch| batch.payloads.get(0)).filter(|_| whole).map(raw);
        let time = batch.and_then(|batch| batch.stamp(0).map(|stamp| stamp.time));
        let note = time.is_none().then(|| GONE.to_owned());
        Ok(Ok(Self { address, first: state.first, time, payload, note }))
    }

    fn of_source(
        store: &Store,
        configuration: &Configuration,
        declared: &Declared,
        index: u64,
    ) -> Result<Result<Self, Answer>, ReadError> {
        let address = declared.address.clone();
        let file = match &declared.kind {
            SourceKind::File(file) => file,
            SourceKind::Service(service) => {
                let note =
                    Some(format!("at the service: {}", PullLog::new(&address, service).describe(index)));
                return Ok(Ok(Self { address, first: 1, time: None, payload: None, note }));
            }
        };
        let mark = store.mark(&address, index)?;
        let opened = SourceLog::open(&address, file, store.segments(&address)?);
        let (payload, note) = match opened.and_then(|source| look(&source, mark, index)) {
            Ok(PayloadLookup::Job(payload)) => (Some(payload), None),
            Ok(PayloadLookup::Far) => (None, Some("not read yet".to_owned())),
            Ok(PayloadLookup::Nothing) if is_known(store, configuration, &address, index)? => {
                (None, Some("no longer in the files of the source".to_owned()))
            }
            Ok(PayloadLookup::Nothing) => {
                let what = format!("source `{address}` has no job {index}, as far as its files go now");
                return Ok(Err(Answer::Missing(what)));
            }
            Err(error) => (None, Some(format!("unreadable: {}", Chain(&error)))),
        };
        Ok(Ok(Self { address, first: 1, time: None, payload, note }))
    }
}

/// The result of reading a source.
enum PayloadLookup {
    Job(Box<RawValue>),
    Nothing,
    /// It is too far behind the last job that any run has read.
    Far,
}

fn look(source: &SourceLog, mark: Option<SourceOffset>, index: u64) -> Result<PayloadLookup, SourceError> {
    if index == 0 {
        return Ok(PayloadLookup::Nothing);
    }
    if let Some(batch) = source.at(index, mark)? {
        return Ok(batch.payloads.get(0).map_or(PayloadLookup::Nothing, |job| PayloadLookup::Job(raw(job))));
    }
    // No run has read it: the read continues from the last position of a run.
    let from = mark.map_or(1, |mark| mark.index);
    if index - from > READ_ON_MAX {
        return Ok(PayloadLookup::Far);
    }
    let mut reader = source.reader(from, mark);
    while let Read::Batch(read) = reader.read(LIMIT)? {
        if index < read.batch.end() {
            let place = index.checked_sub(read.batch.first).and_then(|place| usize::try_from(place).ok());
            let job = place.and_then(|place| read.batch.payloads.get(place));
            return Ok(job.map_or(PayloadLookup::Nothing, |job| PayloadLookup::Job(raw(job))));
        }
    }
    Ok(PayloadLookup::Nothing)
}

/// Whether any step has accounted for it.
fn is_known(
    store: &Store,
    configuration: &Configuration,
    source: &Address,
    index: u64,
) -> Result<bool, ReadError> {
    for step in &configuration.steps {
        if index > 0 && store.progress(&step.address, source)?.is_some_and(|progress| progress.is_done(index))
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The job as JSON; other content as a text.
pub(crate) fn raw(job: &[u8]) -> Box<RawValue> {
    let text = String::from_utf8_lossy(job).into_owned();
    RawValue::from_string(text.clone()).unwrap_or_else(|_| {
        // Any text can be written as JSON.
        serde_json::value::to_raw_value(&text).unwrap_or_default()
    })
}
