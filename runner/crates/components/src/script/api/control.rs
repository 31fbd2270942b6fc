//! Control functions: let a script end its attempt, or add to its outputs.

use std::time::Duration;

use rhai::{Dynamic, EvalAltResult, ImmutableString, Module, NativeCallContext};
use tidegate_plugin::FailureKind;

use super::decided::{AttemptEnd, Emit};
use super::register::add;
use crate::pending_handle;
use crate::script::attempt::current;
use crate::script::values::thrown;
use crate::script::values::thrown::{as_json, text};
use crate::script::values::type_names;
use tidegate_model::plain::beginning;
use tidegate_model::{Timestamp, parse_duration};

/// Characters of a text in a message.
const SHOWN: usize = 40;

type Answer<T> = Result<T, Box<EvalAltResult>>;
type Call<'a> = NativeCallContext<'a>;

/// `reject`, `retry`, `retry_in`, `halt`, `gate_closed` and `pending`.
pub(crate) fn register_endings(module: &mut Module) {
    add(module, "reject", |call: Call<'_>, why: Dynamic, context: Dynamic| {
        end(&call, FailureKind::Rejected, text(&why), as_json(&context))
    });
    add(module, "retry_in", |call: Call<'_>, delay: Dynamic, why: Dynamic| {
        let kind = retry_in(&call, &delay)?;
        end(&call, kind, text(&why), thrown::context(&why))
    });
    add(module, "retry_in", |call: Call<'_>, delay: Dynamic| {
        end(&call, retry_in(&call, &delay)?, NO_REASON.to_owned(), None)
    });
    add(module, "pending", |call: Call<'_>, handle: Dynamic| {
        end(&call, FailureKind::Pending, self::handle(&call, &handle)?, None)
    });
    for (name, kind) in [
        ("reject", FailureKind::Rejected),
        ("retry", FailureKind::Retry),
        ("halt", FailureKind::Halted),
        ("gate_closed", FailureKind::GateClosed),
    ] {
        add(module, name, move |call: Call<'_>, why: Dynamic| {
            end(&call, kind, text(&why), thrown::context(&why))
        });
        add(module, name, move |call: Call<'_>| end(&call, kind, NO_REASON.to_owned(), None));
    }
}

const NO_REASON: &str = "without a reason";

fn retry_in(call: &Call<'_>, delay: &Dynamic) -> Answer<FailureKind> {
    let delay = duration(call, "retry_in", delay)?;
    after(call, "retry_in", delay)?;
    Ok(FailureKind::RetryIn(delay))
}

/// `emit`, `emit_in` and `emit_at`.
pub(crate) fn register_outputs(module: &mut Module) {
    add(module, "emit", |call: Call<'_>, binding: ImmutableString, job: Dynamic| {
        emit(&call, Emit { binding, job, due: None })
    });
    add(module, "emit_in", |call: Call<'_>, binding: ImmutableString, job: Dynamic, delay: Dynamic| {
        let delay = duration(&call, "emit_in", &delay)?;
        let due = after(&call, "emit_in", delay)?;
        emit(&call, Emit { binding, job, due: Some(due) })
    });
    add(module, "emit_at", |call: Call<'_>, binding: ImmutableString, job: Dynamic, time: Dynamic| {
        let due = self::time(&call, &time)?;
        emit(&call, Emit { binding, job, due: Some(due) })
    });
}

fn emit(call: &Call<'_>, one: Emit) -> Answer<()> {
    let attempt = current();
    // Each output takes memory before it is written, however small it is.
    let most = usize::try_from(attempt.limits().memory / 64).unwrap_or(usize::MAX).max(1);
    if !attempt.emit(one, most) {
        let what = "Number of emitted jobs".to_owned();
        return Err(EvalAltResult::ErrorDataTooLarge(what, call.call_position()).into());
    }
    Ok(())
}

fn end(call: &Call<'_>, kind: FailureKind, why: String, context: Option<Box<str>>) -> Answer<Dynamic> {
    let (at, file) = (call.call_position(), call.call_source().map(str::to_owned));
    let ended = Dynamic::from(AttemptEnd::Called { kind, why, context, at, file });
    Err(EvalAltResult::ErrorTerminated(ended, at).into())
}

/// A text like `15s`, or milliseconds.
fn duration(call: &Call<'_>, function: &str, value: &Dynamic) -> Answer<Duration> {
    if let Ok(millis) = value.as_int() {
        let positive = u64::try_from(millis).map(Duration::from_millis);
        return positive.or_else(|_| {
            mistake(call, format!("the delay of `{function}` must not be negative, and is {millis} ms"))
        });
    }
    match value.as_immutable_string_ref() {
        Ok(text) => parse_duration(&text).or_else(|why| mistake(call, format!("in `{function}`, {why}"))),
        Err(_) => {
            let given = type_names::of(value);
            let wanted = "a delay like \"15s\", or milliseconds as an integer";
            mistake(call, format!("`{function}` takes {wanted}, not {given}"))
        }
    }
}

/// A text like `2024-03-31T01:00:00Z`, or milliseconds since 1970.
fn time(call: &Call<'_>, value: &Dynamic) -> Answer<i64> {
    const WANTED: &str = "a time like \"2024-03-31T01:00:00Z\", or milliseconds since 1970 as an integer";
    if let Ok(millis) = value.as_int() {
        if millis < 0 {
            return mistake(call, format!("`emit_at` takes {WANTED}; {millis} is before that"));
        }
        return in_time(call, "emit_at", millis);
    }
    let Ok(text) = value.as_immutable_string_ref() else {
        return mistake(call, format!("`emit_at` takes {WANTED}, not {}", type_names::of(value)));
    };
    let known = text.parse().ok().map(jiff::Timestamp::as_millisecond);
    match known.or_else(|| last_day(&text)) {
        Some(millis) => in_time(call, "emit_at", millis),
        None => mistake(call, format!("`emit_at` takes {WANTED}, not `{}`", beginning(&text, SHOWN))),
    }
}

/// A time of the last day of the year 9999, of which jiff supports only the first hours.
fn last_day(text: &str) -> Option<i64> {
    let pieces = jiff::fmt::temporal::Pieces::parse(text).ok()?;
    let time = pieces.date().to_datetime(pieces.time()?);
    let local = time.duration_since(jiff::civil::date(1970, 1, 1).to_datetime(jiff::civil::Time::midnight()));
    let offset = pieces.to_numeric_offset()?;
    i64::try_from(local.as_millis()).ok()?.checked_sub(i64::from(offset.seconds()) * 1000)
}

/// The time `delay` from now, in milliseconds since 1970.
fn after(call: &Call<'_>, function: &str, delay: Duration) -> Answer<i64> {
    in_time(call, function, (Timestamp(current().context().now()) + delay).0)
}

/// The time, if it is a possible due time.
fn in_time(call: &Call<'_>, function: &str, millis: i64) -> Answer<i64> {
    /// The last millisecond of the year 9999.
    const END: i64 = 253_402_300_799_999;
    if millis > END {
        let message =
            format!("the time of `{function}` must be before the year 10000 (a number is milliseconds)");
        return mistake(call, message);
    }
    Ok(millis.min(Timestamp::LATEST.0))
}

/// A text unchanged, any other value as JSON.
fn handle(call: &Call<'_>, value: &Dynamic) -> Answer<String> {
    if value.is_unit() {
        let message = "`pending` takes the handle by which the monitor asks for the job, not `()`";
        return mistake(call, message.to_owned());
    }
    let handle = match value.as_immutable_string_ref() {
        Ok(text) => text.to_string(),
        Err(_) => match as_json(value) {
            Some(json) => json.into_string(),
            None => {
                let given = type_names::of(value);
                return mistake(call, format!("{given} cannot be the handle of a pending job"));
            }
        },
    };
    match pending_handle::fault(&handle) {
        Some(fault) => mistake(call, fault),
        None => Ok(handle),
    }
}

/// An error of the script, at the position of the call.
fn mistake<T>(call: &Call<'_>, message: String) -> Answer<T> {
    Err(EvalAltResult::ErrorRuntime(message.into(), call.call_position()).into())
}
