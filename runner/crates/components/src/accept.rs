//! `AcceptCheck`: the `accept` script of an HTTP source, which accepts or refuses pushed jobs. It is pure, and lives on
//! one thread.

use serde_json::{Map, Value};
use tidegate_plugin::{Failure, FailureKind, Job, Outputs, Step as _};

use crate::script::{CompileError, EntryPoint, ScriptOutlet, ScriptStep, ScriptStepSpec, ScriptTables};
use tidegate_config::{AcceptScript, InputMode, StepFilter};
use tidegate_model::{Address, Clock as _, SystemClock, TokenKey, shortened};

/// Reasons of one refusal that are reported.
const REASONS_MAX: usize = 20;
/// Bytes of a reason.
const REASON_BYTES_MAX: usize = 300;

/// The script of one source, ready for use.
#[derive(Debug)]
pub struct AcceptCheck {
    script: ScriptStep,
    outputs: Outputs,
}

/// Why a job is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusalReason {
    /// A JSON pointer, like `/items/0/price`; empty for the whole job.
    pub at: String,
    pub reason: String,
}

impl AcceptCheck {
    /// # Errors
    /// The script does not compile; `check` has found that before.
    pub fn new(source: &Address, accept: &AcceptScript) -> Result<Self, CompileError> {
        let script = ScriptStep::new(&ScriptStepSpec {
            pipeline: source.pipeline.as_str(),
            step: source.name.as_str(),
            scripts: std::slice::from_ref(&accept.script),
            filter: &StepFilter::default(),
            limits: &accept.limits,
            timeout: Some(accept.timeout),
            config: &Value::Null,
            secrets: &[],
            file: "",
            take: InputMode::From,
            outlet: ScriptOutlet::Next,
            entry: EntryPoint::Accept,
            inputs: &[],
            parts: &[],
            outputs: &[],
            token_key: &TokenKey::NONE,
            tables: &ScriptTables::default(),
        })?;
        Ok(Self { script, outputs: Outputs::new([""]) })
    }

    /// The reasons for which a job is refused, at most 20; none if it is accepted.
    ///
    /// # Errors
    /// The script fails, or returns something else.
    pub fn reasons(&mut self, job: &[u8]) -> Result<Vec<RefusalReason>, Failure> {
        self.outputs.clear();
        let job = Job::new(0, job).attempted(1, SystemClock.now().0);
        match self.script.process(&job, &mut self.outputs) {
            Ok(()) => {}
            Err(failure) if failure.kind == FailureKind::Rejected => {
                return Ok(vec![RefusalReason::of("", &failure.message)]);
            }
            Err(failure) => return Err(failure),
        }
        let answer = self.outputs.get(0).and_then(|answers| answers.get(0)).unwrap_or(b"null");
        let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
        match &answer {
            Value::Null | Value::Bool(true) => Ok(Vec::new()),
            Value::Bool(false) => Ok(vec![RefusalReason::of("", "the source does not accept the job")]),
            Value::Array(reasons) => {
                let reasons = reasons.iter().take(REASONS_MAX).map(reason);
                reasons.collect::<Option<_>>().ok_or_else(wrong)
            }
            one => reason(one).map(|one| vec![one]).ok_or_else(wrong),
        }
    }
}

impl RefusalReason {
    /// `path`: `items.0.price`, or a JSON pointer.
    fn of(path: &str, reason: &str) -> Self {
        let at = if path.is_empty() || path.starts_with('/') {
            path.to_owned()
        } else {
            let names = path.split('.').map(|name| name.replace('~', "~0").replace('/', "~1"));
            names.flat_map(|name| ["/".to_owned(), name]).collect()
        };
        let bounded = |text: String| shortened(text, REASON_BYTES_MAX);
        Self { at: bounded(at), reason: bounded(reason.to_owned()) }
    }
}

/// A text, or a map with `reason` and `path`.
fn reason(value: &Value) -> Option<RefusalReason> {
    let text = |map: &Map<String, Value>, key: &str| map.get(key).and_then(Value::as_str).map(str::to_owned);
    match value {
        Value::String(reason) => Some(RefusalReason::of("", reason)),
        Value::Object(map) => {
            Some(RefusalReason::of(&text(map, "path").unwrap_or_default(), &text(map, "reason")?))
        }
        _ => None,
    }
}

fn wrong() -> Failure {
    let message = "`accept` must return `true`, `()`, a reason, or a list of reasons, each a text or a map with \
                   `path` and `reason`";
    Failure::new(FailureKind::Output, message)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use super::*;
    use tidegate_config::{Limits, Script};

    fn check(body: &str) -> AcceptCheck {
        let script = Script {
            path: PathBuf::from("accept.rhai"),
            text: format!("fn accept(job) {{ {body} }}").into(),
            imports: Vec::new(),
            named_in: PathBuf::new(),
            named_at: 0..0,
        };
        let limits = Limits { operations: 10_000, ..Limits::default() };
        let accept = AcceptScript { script, limits, timeout: Duration::from_secs(5) };
        AcceptCheck::new(&Address::parse("p/requests").unwrap(), &accept).unwrap()
    }

    fn reasons(body: &str) -> Vec<(String, String)> {
        let reasons = check(body).reasons(br#"{"id":7,"amount":5}"#).unwrap();
        reasons.into_iter().map(|reason| (reason.at, reason.reason)).collect()
    }

    fn of(at: &str, reason: &str) -> (String, String) {
        (at.to_owned(), reason.to_owned())
    }

    #[test]
    fn a_job_is_accepted_without_a_reason() {
        for body in ["", "true", "()", "[]", "if job.amount > 9 { \"too much\" }"] {
            assert_eq!(reasons(body), [], "{body}");
        }
    }

    #[test]
    fn reasons_are_texts_maps_and_lists_of_them() {
        assert_eq!(reasons("\"no\""), [of("", "no")]);
        assert_eq!(reasons("false"), [of("", "the source does not accept the job")]);
        assert_eq!(reasons("reject(\"no\")"), [of("", "no")]);
        assert_eq!(reasons("#{ path: \"items.0.a/b\", reason: \"no\" }"), [of("/items/0/a~1b", "no")]);
        let list = "[\"no\", #{ path: \"/amount\", reason: \"more\" }]";
        assert_eq!(reasons(list), [of("", "no"), of("/amount", "more")]);
        assert_eq!(reasons("let all = []; for i in 0..30 { all.push(\"no\"); } all").len(), REASONS_MAX);
    }

    #[test]
    fn a_script_that_fails_or_returns_something_else_decides_nothing() {
        let failed = |body: &str| check(body).reasons(b"{}").unwrap_err().kind;
        assert_eq!(failed("7"), FailureKind::Output);
        assert_eq!(failed("#{ path: \"id\" }"), FailureKind::Output);
        assert_eq!(failed("loop {}"), FailureKind::Limit);
        assert_ne!(failed("throw \"no\""), FailureKind::Rejected);
        let mut check = check("if job == 1 { throw \"no\" }");
        assert!(check.reasons(b"1").is_err());
        assert_eq!(check.reasons(b"2").unwrap(), [], "the next job is not affected");
    }
}
