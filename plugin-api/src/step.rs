//! `Step` and `Job`: the trait of a step, and its input.

#[cfg(feature = "json")]
use crate::field;
use crate::{Failure, Outputs};

/// One job in one attempt of a step.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Job<'a> {
    /// The job's place in its source or queue, from 1.
    pub index: u64,
    /// JSON, UTF-8.
    pub payload: &'a [u8],
    /// From 1.
    pub attempt: u32,
    /// The time of the attempt, milliseconds since the Unix epoch.
    pub now_ms: i64,
    /// The delivery hash: the same on every attempt and after every restart. If earlier processors made
    /// several pieces of the job, each piece has its own; the first one has that of the job.
    pub hash: u128,
    /// The number of this piece, from 0.
    pub piece: u32,
}

impl<'a> Job<'a> {
    /// The first attempt at the job at `index`, whose hash is its index, at the time 0.
    #[must_use]
    pub fn new(index: u64, payload: &'a [u8]) -> Self {
        Self { index, payload, attempt: 1, now_ms: 0, hash: u128::from(index), piece: 0 }
    }

    /// Another attempt, at this time in milliseconds since the Unix epoch.
    #[must_use]
    pub fn attempted(self, attempt: u32, now_ms: i64) -> Self {
        Self { attempt, now_ms, ..self }
    }

    /// With this delivery hash.
    #[must_use]
    pub fn hashed(self, hash: u128) -> Self {
        Self { hash, ..self }
    }

    /// A piece of the job, with this payload.
    #[must_use]
    pub fn with_piece(self, piece: u32, payload: &[u8]) -> Job<'_> {
        let Self { index, attempt, now_ms, hash, .. } = self;
        Job { index, payload, attempt, now_ms, hash, piece }
    }
}

#[cfg(feature = "json")]
impl<'a> Job<'a> {
    /// The payload, read as a `T`.
    ///
    /// # Errors
    /// [`FailureKind::Payload`](crate::FailureKind::Payload), which is not retried, if it is not a `T`.
    pub fn parse<T: serde::Deserialize<'a>>(&self) -> Result<T, Failure> {
        // One UTF-8 check of the whole payload is faster than one per text.
        serde_json::from_str(std::str::from_utf8(self.payload)?).map_err(|error| {
            Failure::new(crate::FailureKind::Payload, format!("the job does not match its type: {error}"))
        })
    }

    /// One field of the payload, read as a `T` without parsing the others: a fraction of the time of
    /// [`Self::parse`]. For an optional `T` (`Option`), an absent field is null. The last value of a repeated
    /// key counts.
    ///
    /// # Errors
    /// [`FailureKind::Payload`](crate::FailureKind::Payload), which is not retried, if the payload is not an
    /// object, or the field is not a `T`.
    pub fn field<T: serde::Deserialize<'a>>(&self, name: &str) -> Result<T, Failure> {
        let wrong = |why: String| Failure::new(crate::FailureKind::Payload, why);
        let found = field::find(self.payload, name).map_err(|_| wrong("the job is not an object".into()))?;
        match found {
            Some(value) => serde_json::from_slice(value)
                .map_err(|error| wrong(format!("the job's `{name}` does not match its type: {error}"))),
            None => {
                serde_json::from_slice(b"null").map_err(|_| wrong(format!("the job has no field `{name}`")))
            }
        }
    }
}

/// Turns one job into outputs.
///
/// An instance lives on one thread and receives its jobs one after another. Its results must not depend on
/// state between jobs: after a crash a fresh instance receives the same job again.
pub trait Step {
    /// Runs one attempt. The caller drops outputs that were pushed before a failure.
    ///
    /// # Errors
    /// A [`Failure`] with the reason, and whether the job is rejected permanently.
    fn process(&mut self, job: &Job<'_>, outputs: &mut Outputs) -> Result<(), Failure>;
}

#[cfg(all(test, feature = "json"))]
mod tests {
    use super::Job;
    use crate::{Failure, FailureKind};

    fn job(payload: &str) -> Job<'_> {
        Job::new(1, payload.as_bytes())
    }

    #[test]
    fn a_field_is_read_as_what_it_should_be() {
        let read = job(r#"{"id":7,"name":"a\u0062","at":null}"#);
        assert_eq!(read.field::<u64>("id"), Ok(7));
        assert_eq!(read.field::<String>("name").as_deref(), Ok("ab"));
        assert_eq!((read.field::<Option<u64>>("at"), read.field::<Option<u64>>("no")), (Ok(None), Ok(None)));
    }

    #[test]
    fn a_field_that_is_not_what_it_should_be_is_told() {
        let message = |failure: Failure| {
            assert_eq!(failure.kind, FailureKind::Payload);
            failure.message
        };
        let read = job(r#"{"id":"7"}"#);
        assert_eq!(message(read.field::<u64>("no").unwrap_err()), "the job has no field `no`");
        assert_eq!(
            message(read.field::<u64>("id").unwrap_err()),
            "the job's `id` does not match its type: invalid type: string \"7\", expected u64 at line 1 column 3"
        );
        assert_eq!(message(job("[7]").field::<u64>("id").unwrap_err()), "the job is not an object");
    }
}
