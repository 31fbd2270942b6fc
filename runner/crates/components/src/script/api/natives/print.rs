//! Printing: formats arrays, maps, blobs and texts within the memory limit. A text that an array holds
//! several times is written as many times, so a small array can have a large text.

use rhai::{
    Array, Blob, Dynamic, EvalAltResult, FUNC_TO_DEBUG, ImmutableString, Map, Module, NativeCallContext,
};
use std::fmt::{self, Write};

use super::{Answer, reads};
use crate::script::attempt::{ScriptAttempt, current};

/// Maximum nesting of printed values.
const DEPTH_MAX: usize = 1000;

pub(crate) fn register(module: &mut Module) {
    for name in ["to_string", "to_debug"] {
        reads(module, name, |call: NativeCallContext<'_>, array: &mut Array| {
            Text::of(&current(), |text| text.array(&call, array, 0))
        });
        reads(module, name, |call: NativeCallContext<'_>, map: &mut Map| {
            Text::of(&current(), |text| text.map(&call, map, 0))
        });
    }
    for name in ["to_string", "to_debug", "print", "debug"] {
        reads(module, name, |blob: Blob| {
            Text::of(&current(), |text| text.write(format_args!("{}", Dynamic::from_blob(blob))))
        });
    }
    for name in ["to_debug", "debug"] {
        reads(module, name, |quoted: &str| {
            Text::of(&current(), |text| text.write(format_args!("{quoted:?}")))
        });
    }
}

/// A text that grows within the memory limit.
struct Text<'a> {
    attempt: &'a ScriptAttempt,
    text: String,
    /// The error that stopped it.
    failure: Option<Box<EvalAltResult>>,
}

impl<'a> Text<'a> {
    /// The text that `write` produces. Rhai would treat an error as a reason to use another function.
    fn of(attempt: &'a ScriptAttempt, write: impl FnOnce(&mut Self) -> Answer<()>) -> ImmutableString {
        let mut text = Self { attempt, text: String::new(), failure: None };
        let written = attempt.or_strike(|| write(&mut text));
        written.map_or_else(ImmutableString::new, |()| text.text.into())
    }

    fn write(&mut self, what: fmt::Arguments<'_>) -> Answer<()> {
        let written = self.write_fmt(what);
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => written.map_err(|error| error.to_string().into()),
        }
    }

    fn array(&mut self, call: &NativeCallContext<'_>, array: &mut Array, depth: usize) -> Answer<()> {
        self.write(format_args!("["))?;
        for (position, element) in array.iter_mut().enumerate() {
            self.write(format_args!("{}", if position == 0 { "" } else { ", " }))?;
            self.value(call, element, depth + 1)?;
        }
        self.write(format_args!("]"))
    }

    fn map(&mut self, call: &NativeCallContext<'_>, map: &mut Map, depth: usize) -> Answer<()> {
        self.write(format_args!("#{{"))?;
        for (position, (key, value)) in map.iter_mut().enumerate() {
            self.write(format_args!("{}{key:?}: ", if position == 0 { "" } else { ", " }))?;
            self.value(call, value, depth + 1)?;
        }
        self.write(format_args!("}}"))
    }

    fn value(&mut self, call: &NativeCallContext<'_>, value: &mut Dynamic, depth: usize) -> Answer<()> {
        if depth > DEPTH_MAX {
            return self.write(format_args!("…"));
        }
        if let Ok(text) = value.as_immutable_string_ref() {
            return self.write(format_args!("{:?}", text.as_str()));
        }
        if let Some(mut array) = value.write_lock::<Array>() {
            return self.array(call, &mut array, depth);
        }
        if let Some(mut map) = value.write_lock::<Map>() {
            return self.map(call, &mut map, depth);
        }
        match call.call_native_fn_raw(FUNC_TO_DEBUG, true, &mut [value]) {
            Ok(text) => self.write(format_args!("{text}")),
            Err(error) if error.is_catchable() => self.write(format_args!("{value}")),
            Err(error) => Err(error),
        }
    }
}

impl Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.attempt.go_on("to_string").and_then(|()| self.attempt.room("to_string", text.len()));
        room.map_err(|failure| {
            self.failure = Some(failure);
            fmt::Error
        })?;
        self.text.push_str(text);
        Ok(())
    }
}
