//! Comparison: checks the jobs of one target against the expected ones.

use std::collections::{BTreeMap, BTreeSet};

use super::model::Carried;
use serde_json::Value;

/// Job of a queue or line of a sink, reduced to the fields that are compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seen {
    /// Inputs as the origin names them.
    pub(crate) origin: Vec<(String, u64)>,
    pub(crate) payload: String,
    pub(crate) carried: Carried,
}

/// Expected jobs of one step on one target, in order.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    pub(crate) seen: Seen,
    pub(crate) retried: bool,
    /// Whether the jobs may be missing.
    pub(crate) lost: bool,
}

/// Removes the versions of scripts, which a reload changes at any moment.
pub(crate) fn without_versions(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            fields.remove("version");
            // The row depends on the time of the attempt, and is checked there.
            fields.remove("seen");
            fields.values_mut().for_each(|field| *field = without_versions(field.take()));
        }
        Value::Array(values) => values.iter_mut().for_each(|one| *one = without_versions(one.take())),
        _ => {}
    }
    value
}

/// Checks that the jobs of a step on a queue were made by its scripts in the order in which these were in force.
pub(crate) fn versions_follow(what: &str, versions: &[u64], in_force: &[u64]) {
    let mut scripts = in_force.iter().peekable();
    for version in versions {
        while scripts.peek().is_some_and(|script| *script != version) {
            scripts.next();
        }
        assert!(
            scripts.peek().is_some(),
            "{what}: an earlier script follows a later one: {versions:?} of {in_force:?}"
        );
    }
}

/// Checks that no job is unexpected, and that no job is missing unless it may be lost.
pub(crate) fn compare(what: &str, expected: &[Expected], actual: &[Seen], unseen: bool) {
    let mut wanted: BTreeMap<&Seen, i64> = BTreeMap::new();
    for one in expected {
        *wanted.entry(&one.seen).or_default() += 1;
    }
    for one in actual {
        let count = wanted.entry(one).or_default();
        *count -= 1;
        assert!(*count >= 0, "{what}: this is there once too often: {one:?}\nexpected {expected:#?}");
    }
    for (one, count) in wanted {
        let may_lack = expected.iter().filter(|wanted| wanted.seen == *one && wanted.lost).count();
        let lacks = usize::try_from(count).unwrap();
        assert!(unseen || lacks <= may_lack, "{what}: this is missing: {one:?}\nthere is {actual:#?}");
    }
}

/// Checks that the jobs of one input are in its order, except those that ran again. A job that `at-most-once`
/// lost and a replay delivers comes behind the jobs that were delivered before (`late`), and is not delivered twice.
pub(crate) fn in_order(what: &str, expected: &[Expected], actual: &[Seen], late: bool) {
    let again: BTreeSet<_> =
        expected.iter().filter(|one| one.retried || late && one.lost).map(|one| &one.seen.origin).collect();
    let inputs: BTreeSet<&String> =
        expected.iter().flat_map(|one| one.seen.origin.iter().map(|(name, _)| name)).collect();
    for input in inputs {
        let of =
            |seen: &&Seen| seen.origin.iter().any(|(name, _)| name == input) && !again.contains(&seen.origin);
        let mut wanted = expected.iter().map(|one| &one.seen).filter(of);
        for one in actual.iter().filter(of) {
            assert!(
                wanted.any(|wanted| wanted == one),
                "{what}: out of order: {one:?}\nexpected {expected:#?}\nthere is {actual:#?}"
            );
        }
    }
}
