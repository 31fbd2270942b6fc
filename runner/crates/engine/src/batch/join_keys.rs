//! Join keys: find the key of each job of a join by key, on a worker.
//!
//! The committer pairs the jobs, because it alone knows their order ([`crate::commit::tuples`]). A job that has waited
//! before comes again only when its time is over.

use std::time::Duration;

use tidegate_plugin::{Failure, FailureKind};
use twox_hash::XxHash3_128;

use super::job_builder::JobInput;
use super::keyed_job::{JoinKey, KeyedJob};
use super::retry;
use tidegate_config::Step;
use tidegate_model::suggest::listed;
use tidegate_model::{Address, FieldPath, Timestamp, format_duration, scalar, shortened};
use tidegate_store::{ParkedId, ParkedJob};

/// Maximum bytes of a key in a message.
const SHOWN_MAX: usize = 100;

/// The keys of the jobs of one step.
#[derive(Debug)]
pub(crate) struct JoinKeys {
    sides: Vec<KeyedSide>,
    within: Option<Duration>,
}

#[derive(Debug)]
struct KeyedSide {
    binding: String,
    /// From the map of the binding on.
    path: FieldPath,
    /// As it is written in `on`.
    written: String,
    /// Whether its jobs go on without partners.
    left: bool,
}

/// A job that goes into no tuple.
#[derive(Debug)]
pub(crate) struct UnpairedJob {
    pub(crate) failure: Failure,
    /// Its row, if its time is over.
    pub(crate) row: Option<ParkedId>,
}

impl JoinKeys {
    /// `None` for a step that is no join by key.
    pub(crate) fn new(step: &Step) -> Option<Self> {
        let join = step.joins.as_ref()?;
        let side = |(input, side): (&tidegate_config::InputRef, &tidegate_config::JoinSide)| {
            let written = side.on.to_string();
            let path = FieldPath::parse(&format!("{}.{written}", input.binding))?;
            Some(KeyedSide { binding: input.binding.clone(), path, written, left: side.left })
        };
        let sides = step.inputs.iter().zip(&join.sides).map(side).collect::<Option<_>>()?;
        Some(Self { sides, within: join.within })
    }

    pub(crate) fn sides(&self) -> usize {
        self.sides.len()
    }

    /// The key and the input of a parked job; `None` if it waits for no partner.
    pub(crate) fn of_row(&self, job: &ParkedJob) -> Option<(JoinKey, usize)> {
        let side = self.side_of(job)?;
        let written = self.sides[side].path.find(&job.payload)?;
        Some((hash(&scalar(written)?), side)).filter(|_| has_waited(job))
    }

    /// Whether a parked job waits for a partner without a key: `on` or the inputs have changed since.
    pub(crate) fn is_lost(&self, job: &ParkedJob) -> bool {
        has_waited(job) && self.of_row(job).is_none()
    }

    /// The input of a parked job. One that has waited since its binding named another input is still a job of the binding.
    fn side_of(&self, job: &ParkedJob) -> Option<usize> {
        let [(name, _)] = &job.inputs[..] else { return None };
        let binding = name.split_once('=').map_or(&**name, |(binding, _)| binding);
        self.sides.iter().position(|side| side.binding == binding)
    }

    /// Finds the key of a job. A job whose time is over, and that does not go on alone, fails.
    ///
    /// # Errors
    /// The job has no key, or no partner has come. In the last case it has this row.
    pub(crate) fn find(
        &self,
        step: &Address,
        item: &JobInput<'_>,
        now: Timestamp,
    ) -> Result<KeyedJob, Box<UnpairedJob>> {
        let rejected = |why: String| Failure::new(FailureKind::Rejected, why);
        let refused = |failure: Failure| Box::new(UnpairedJob { failure, row: None });
        if let Some(fault) = &item.fault {
            return Err(refused(Failure::new(FailureKind::Payload, fault.as_ref())));
        }
        let position = match item.returned_row() {
            Some((_, job)) => self.side_of(job),
            None => item.indices.iter().position(|index| *index > 0),
        };
        let Some(position) = position else {
            let name = item.given().next().map_or("", |given| given.name);
            return Err(refused(rejected(format!("the join has no input `{name}` any more"))));
        };
        let side = &self.sides[position];
        let key = match side.path.read(item.payload) {
            Ok(Some(written)) => scalar(written).ok_or_else(|| {
                let written = shortened(written.to_owned(), SHOWN_MAX);
                rejected(format!(
                    "its key `{}` must be a text, a number or a truth value, but is {written}",
                    side.written
                ))
            }),
            Ok(None) => {
                let near = side.path.nearest(item.payload).filter(|near| near.starts_with(&side.binding));
                let near = near.and_then(|near| near.split_once('.').map(|(_, near)| near.to_owned()));
                let near = near.map_or_else(String::new, |near| format!(": did you mean `{near}`?"));
                Err(rejected(format!("it has no key `{}`{near}", side.written)))
            }
            Err(error) => Err(Failure::new(FailureKind::Payload, format!("the job is not JSON: {error}"))),
        };
        let key = key.map_err(refused)?;
        let Some((row, parked)) = item.returned_row().filter(|(_, parked)| has_waited(parked)) else {
            let waits = format!("no partner yet: it waits for {}", self.missing(position, &key));
            let row = retry::unmatched(step, item, &waits, self.within, now);
            return Ok(KeyedJob::Arrived { key: hash(&key), side: position, row: Box::new(row) });
        };
        if side.left {
            let job = Box::new(parked.clone());
            return Ok(KeyedJob::Leaves { key: hash(&key), side: position, row, job });
        }
        let waited = parked.first_attempt.map_or(Duration::ZERO, |since| now.since(since));
        let waited = format_duration(waited);
        let why = format!("no partner within {waited}: it waited for {}", self.missing(position, &key));
        Err(Box::new(UnpairedJob { failure: rejected(why), row: Some(row) }))
    }

    /// ``a job of `payment` with the key `17` ``
    fn missing(&self, side: usize, key: &str) -> String {
        let others = self.sides.iter().enumerate().filter(|(position, _)| *position != side);
        let others = listed(others.map(|(_, side)| side.binding.as_str()), "and");
        let key = shortened(key.to_owned(), SHOWN_MAX);
        format!("a job of {others} with the key `{key}`")
    }
}

/// Whether the job of a row waits for its partners. One that an operator has put back has not arrived yet.
fn has_waited(job: &ParkedJob) -> bool {
    job.attempt > 0 && job.from_error.is_none()
}

fn hash(key: &str) -> JoinKey {
    JoinKey(XxHash3_128::oneshot(key.as_bytes()))
}
