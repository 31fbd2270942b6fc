//! `Counted`: the values of a job for the validator, with a limit for the number of visits to them.
//!
//! A schema that refers to itself in branches can take exponential time and memory for a small job, and the validator
//! has no limit. Each visit to a value is counted, and the one past the limit unwinds up to [`within`].

use std::borrow::Cow;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use jsonschema::JsonType;
use jsonschema::json::{Array, Json, Node, NodeIdentity, Object, SerdeJson};
use serde_json::{Map, Number, Value};

thread_local! {
    /// Visits that are left.
    static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// The payload of the unwinding.
struct OutOfVisits;

/// Runs `work` with at most `visits` visits; `None` if they were too few.
pub(super) fn within<T>(visits: u64, work: impl FnOnce() -> T) -> Option<T> {
    let before = LEFT.replace(visits);
    let done = catch_unwind(AssertUnwindSafe(work));
    LEFT.set(before);
    match done {
        Ok(done) => Some(done),
        Err(panic) if panic.is::<OutOfVisits>() => None,
        Err(panic) => resume_unwind(panic),
    }
}

fn visit() {
    match LEFT.get().checked_sub(1) {
        Some(left) => LEFT.set(left),
        // No message: it is no panic.
        None => resume_unwind(Box::new(OutOfVisits)),
    }
}

/// A value of a job.
#[derive(Clone, Copy)]
pub(super) struct Counted<'a>(pub(super) &'a Value);

/// Jobs as [`Counted`].
pub(super) struct CountedJson;

impl Json for CountedJson {
    type Node<'a> = Counted<'a>;
    type PreparedKey = String;
    type StringBuffer = ();

    const KEYS_PER_LOOKUP: usize = SerdeJson::KEYS_PER_LOOKUP;
    const ACYCLIC: bool = true;

    fn prepare_key(key: &str) -> String {
        key.to_owned()
    }

    fn with_string_node<T>(buffer: &mut (), string: &str, f: impl FnOnce(Counted<'_>) -> T) -> T {
        SerdeJson::with_string_node(buffer, string, |value| f(Counted(value)))
    }
}

impl<'a> Node<'a, CountedJson> for Counted<'a> {
    type Object = CountedObject<'a>;
    type Array = CountedArray<'a>;
    type Number = &'a Number;

    fn as_object(&self) -> Option<CountedObject<'a>> {
        visit();
        self.0.as_object().map(CountedObject)
    }

    fn as_array(&self) -> Option<CountedArray<'a>> {
        visit();
        self.0.as_array().map(|values| CountedArray(values))
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        visit();
        self.0.as_str().map(Cow::Borrowed)
    }

    fn as_number(&self) -> Option<&'a Number> {
        visit();
        self.0.as_number()
    }

    fn as_boolean(&self) -> Option<bool> {
        visit();
        self.0.as_bool()
    }

    fn is_null(&self) -> bool {
        visit();
        self.0.is_null()
    }

    fn json_type(&self) -> JsonType {
        visit();
        Node::<SerdeJson>::json_type(&self.0)
    }

    fn string_length(&self) -> Option<u64> {
        visit();
        Node::<SerdeJson>::string_length(&self.0)
    }

    fn string_length_within(&self, min: u64, max: u64) -> Option<bool> {
        visit();
        Node::<SerdeJson>::string_length_within(&self.0, min, max)
    }

    fn equals_value(&self, expected: &Value) -> bool {
        visit();
        Node::<SerdeJson>::equals_value(&self.0, expected)
    }

    fn to_value(&self) -> Cow<'a, Value> {
        visit();
        Cow::Borrowed(self.0)
    }

    fn identity(&self) -> Option<NodeIdentity> {
        Node::<SerdeJson>::identity(&self.0)
    }
}

/// An object of a job.
pub(super) struct CountedObject<'a>(&'a Map<String, Value>);

impl<'a> Object<'a, CountedJson> for CountedObject<'a> {
    type Node = Counted<'a>;
    type MemberName = &'a str;
    type MembersIter = Members<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, key: &String) -> Option<Counted<'a>> {
        visit();
        self.0.get(key).map(Counted)
    }

    fn members(&self) -> Members<'a> {
        Members(self.0.iter())
    }
}

/// The members of an object.
pub(super) struct Members<'a>(serde_json::map::Iter<'a>);

impl<'a> Iterator for Members<'a> {
    type Item = (&'a str, Counted<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        visit();
        self.0.next().map(|(name, value)| (name.as_str(), Counted(value)))
    }
}

/// An array of a job.
pub(super) struct CountedArray<'a>(&'a [Value]);

impl<'a> Array<'a, CountedJson> for CountedArray<'a> {
    type Node = Counted<'a>;
    type ElementsIter = Elements<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn elements(&self) -> Elements<'a> {
        Elements(self.0.iter())
    }

    fn is_unique(&self) -> bool {
        visit();
        Array::<SerdeJson>::is_unique(&self.0)
    }
}

/// The elements of an array.
pub(super) struct Elements<'a>(std::slice::Iter<'a, Value>);

impl<'a> Iterator for Elements<'a> {
    type Item = Counted<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        visit();
        self.0.next().map(Counted)
    }
}
