//! Monitor protocol: encodes pending jobs for a monitor, and decodes its answers.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidegate_plugin::{Failure, FailureKind, Outputs};

use crate::step::declared::DeclaredStep;
use tidegate_components::outputs_from_json::outputs_from_json;
use tidegate_dispatch::JobKey;
use tidegate_model::ExternalStatus;
use tidegate_store::{CompletionRecord, ParkedJob, ParkedKey};

/// Pending jobs of a step to poll.
#[derive(Debug)]
pub(crate) struct StatusQuery {
    pub(crate) step: DeclaredStep,
    /// Installation of the step that asks.
    pub(crate) epoch: u64,
    pub(crate) ask: u64,
    pub(crate) jobs: Vec<(JobKey, ParkedKey)>,
}

/// Decoded answer.
#[derive(Debug, Default)]
pub(crate) struct StatusReport {
    pub(crate) answers: Vec<(JobKey, JobVerdict)>,
    /// Number of answers for jobs that were not polled.
    pub(crate) unexpected: usize,
    /// Number of malformed answers, with the last error.
    pub(crate) malformed: Option<(usize, String)>,
}

/// Verdict of an external system about a job.
#[derive(Clone, Debug)]
pub(crate) struct JobVerdict {
    pub(crate) status: ExternalStatus,
    /// Result as JSON; `None`: the job itself.
    pub(crate) result: Option<Box<RawValue>>,
    pub(crate) reason: Option<String>,
}

#[derive(Serialize)]
struct Question<'a> {
    handle: &'a str,
    job: Job<'a>,
    index: u64,
    /// Milliseconds since 1970.
    since: i64,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Job<'a> {
    Json(&'a RawValue),
    Text(std::borrow::Cow<'a, str>),
}

/// Encodes jobs for a monitor, as JSON. Jobs that are no longer pending are left out.
pub(crate) fn encode_query(jobs: &[(JobKey, ParkedJob)]) -> serde_json::Result<Vec<u8>> {
    let question = |(_, job): &'_ (JobKey, ParkedJob)| {
        let (handle, since, _) = job.reason.outside()?;
        let text = String::from_utf8_lossy(&job.payload);
        let index = job.inputs.first().map_or(0, |&(_, index)| index);
        Some((handle.to_owned(), text.into_owned(), index, since.0))
    };
    let fields: Vec<_> = jobs.iter().filter_map(question).collect();
    let questions: Vec<Question<'_>> = fields
        .iter()
        .map(|(handle, text, index, since)| {
            let job = match serde_json::from_str(text) {
                Ok(json) => Job::Json(json),
                Err(_) => Job::Text(text.into()),
            };
            Question { handle, job, index: *index, since: *since }
        })
        .collect();
    serde_json::to_vec(&questions)
}

/// Decodes the answer of a monitor for `jobs`: a list in their order, or a map by handle.
///
/// # Errors
/// The reason for which it is malformed, as a sentence fragment.
pub(crate) fn read(answer: &[u8], jobs: &[(JobKey, ParkedJob)]) -> Result<StatusReport, String> {
    let mut seen = StatusReport::default();
    if let Ok(list) = serde_json::from_slice::<Vec<&RawValue>>(answer) {
        if list.len() != jobs.len() {
            // A list of another length cannot be matched with the jobs.
            let (answered, asked) = (list.len(), jobs.len());
            let noun = if answered == 1 { "job" } else { "jobs" };
            return Err(format!("it answered for {answered} {noun} instead of {asked}"));
        }
        for (raw, (key, _)) in list.iter().zip(jobs) {
            seen.take(*key, raw);
        }
        return Ok(seen);
    }
    let Ok(map) = serde_json::from_slice::<BTreeMap<String, Box<RawValue>>>(answer) else {
        let wanted = "a list with the status of each job, in their order, or a map of handles to them";
        return Err(format!("the answer must be {wanted}"));
    };
    let mut by_handle: HashMap<&str, Vec<JobKey>> = HashMap::new();
    for (key, job) in jobs {
        if let Some((handle, ..)) = job.reason.outside() {
            by_handle.entry(handle).or_default().push(*key);
        }
    }
    for (handle, raw) in &map {
        match by_handle.get(handle.as_str()) {
            Some(keys) => keys.iter().for_each(|&key| seen.take(key, raw)),
            None => seen.unexpected += 1,
        }
    }
    Ok(seen)
}

impl StatusReport {
    fn take(&mut self, key: JobKey, raw: &RawValue) {
        match JobVerdict::read(raw) {
            Ok(Some(word)) => self.answers.push((key, word)),
            Ok(None) => {}
            Err(why) => self.malformed.get_or_insert((0, why)).0 += 1,
        }
    }
}

#[derive(Deserialize)]
struct JobReport {
    status: String,
    result: Option<Box<RawValue>>,
    reason: Option<serde_json::Value>,
}

impl JobVerdict {
    /// Decodes the verdict of one job; `None`: no verdict.
    ///
    /// # Errors
    /// The reason for which it is malformed, as a sentence fragment.
    pub(crate) fn read(raw: &RawValue) -> Result<Option<Self>, String> {
        let report = match raw.get().as_bytes().first() {
            Some(b'n') => return Ok(None),
            Some(b'"') => {
                let status = serde_json::from_str(raw.get()).map_err(|error| error.to_string())?;
                JobReport { status, result: None, reason: None }
            }
            Some(b'{') => serde_json::from_str(raw.get())
                .map_err(|error| format!("`{}` has no `status` that is a text: {error}", beginning(raw)))?,
            _ => return Err(format!("`{}` is neither a status nor a map with one", beginning(raw))),
        };
        let Some(status) = ExternalStatus::parse(&report.status) else {
            let words = ExternalStatus::ALL.map(|status| format!("`{}`", status.as_str())).join(", ");
            return Err(format!("`{}` is an unknown status; use one of {words}", beginning(raw)));
        };
        let reason = report.reason.map(|reason| match reason {
            serde_json::Value::String(text) => text,
            other => other.to_string(),
        });
        Ok(Some(Self { status, result: report.result, reason }))
    }

    /// Verdict of an external completion.
    pub(crate) fn of(completion: &CompletionRecord) -> Self {
        let CompletionRecord { status, result, reason } = completion.clone();
        // The completion was checked when it was accepted.
        let result = result.and_then(|result| RawValue::from_string(result).ok());
        Self { status, result, reason }
    }

    /// Adds the outputs of the completed `job` to `outputs`.
    ///
    /// # Errors
    /// The job was rejected.
    pub(crate) fn settle(&self, job: &[u8], outputs: &mut Outputs) -> Result<(), Failure> {
        if self.status == ExternalStatus::Invalid {
            let reason = self
                .reason
                .as_deref()
                .unwrap_or("the external system reported it as invalid, without a reason");
            return Err(Failure::new(FailureKind::Rejected, reason));
        }
        if let Some(result) = &self.result {
            let given = outputs_from_json(result.get().as_bytes(), outputs, "the `result`");
            // The external system has finished the job, so it must not be submitted again.
            return given.map_err(|failure| Failure::new(FailureKind::Rejected, failure.message));
        }
        outputs.push_to_all(job);
        Ok(())
    }
}

/// Beginning of an answer, short enough for a message.
fn beginning(raw: &RawValue) -> &str {
    const SHOWN: usize = 60;
    raw.get().char_indices().nth(SHOWN).map_or(raw.get(), |(end, _)| &raw.get()[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_model::Timestamp;
    use tidegate_store::ParkReason;

    fn pending(handles: &[&str]) -> Vec<(JobKey, ParkedJob)> {
        let job = |(at, handle): (u64, &&str)| {
            let reason = ParkReason::Pending { handle: (*handle).to_owned(), since: Timestamp(7) };
            let payload = format!("{{\"id\":{at}}}").into_bytes();
            let inputs = vec![("p/in".to_owned(), at)];
            (JobKey(at), ParkedJob { inputs, reason, payload, ..ParkedJob::default() })
        };
        (1..).zip(handles).map(job).collect()
    }

    fn rendered(answer: &str, handles: &[&str]) -> String {
        match read(answer.as_bytes(), &pending(handles)) {
            Err(why) => why,
            Ok(StatusReport { answers, unexpected: unasked, malformed: nonsense }) => {
                let answer = |(key, word): &(JobKey, JobVerdict)| {
                    let result = word.result.as_ref().map_or("-", |raw| raw.get());
                    let reason = word.reason.as_deref().unwrap_or("-");
                    format!("{} {} {result} {reason}", key.0, word.status.as_str())
                };
                let answers: Vec<String> = answers.iter().map(answer).collect();
                format!("{} | {unasked} | {nonsense:?}", answers.join(", "))
            }
        }
    }

    #[test]
    fn a_monitor_is_asked_with_the_jobs_and_their_handles() {
        let asked = String::from_utf8(encode_query(&pending(&["a", "b"])).unwrap()).unwrap();
        assert_eq!(
            asked,
            r#"[{"handle":"a","job":{"id":1},"index":1,"since":7},{"handle":"b","job":{"id":2},"index":2,"since":7}]"#
        );
    }

    #[test]
    fn answers_come_in_order_or_by_handle() {
        let list =
            r#"["valid", {"status": "committed", "result": [1]}, null, {"status":"invalid","reason":"no"}]"#;
        let words = "1 valid - -, 2 committed [1] -, 4 invalid - no";
        assert_eq!(rendered(list, &["a", "b", "c", "d"]), format!("{words} | 0 | None"));
        let map = r#"{"b": "unknown", "x": "valid", "y": "valid"}"#;
        assert_eq!(rendered(map, &["a", "b"]), "2 unknown - - | 2 | None");
        assert_eq!(rendered("[]", &[]), " | 0 | None");
    }

    #[test]
    fn a_malformed_answer_of_a_monitor_is_named() {
        let list = "the answer must be a list with the status of each job, in their order, or a map of handles to them";
        assert_eq!(rendered("7", &["a"]), list);
        assert_eq!(rendered("[\"valid\"]", &["a", "b"]), "it answered for 1 job instead of 2");
        let unknown = r#"`\"vaild\"` is an unknown status; use one of `pending`, `valid`, `committed`, `invalid`, `unknown`"#;
        assert_eq!(
            rendered("[\"vaild\", 3, {\"state\": \"valid\"}, \"valid\"]", &["a", "b", "c", "d"]),
            format!("4 valid - - | 0 | Some((3, \"{unknown}\"))")
        );
    }
}
