//! Outlets: compare the lines of sinks with the deliveries of the steps that feed them.

use std::collections::BTreeMap;

use super::compare::{Expected, Seen, compare, without_versions};
use super::history::Known;
use super::model::Carried;
use tidegate_config::{DeliveryGuarantee, InputMode, Target};
use tidegate_model::Address;

/// Deliveries of a step to one sink.
pub(crate) struct Feed<'k> {
    pub(crate) known: &'k Known,
    pub(crate) lines: Vec<Expected>,
}

pub(crate) fn lines(bytes: &[u8]) -> Vec<String> {
    let text = std::str::from_utf8(bytes).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "a line is cut: {text:?}");
    text.lines().map(|line| without_versions(serde_json::from_str(line).unwrap()).to_string()).collect()
}

fn plain(payload: &str) -> Seen {
    Seen { indices: Vec::new(), payload: payload.to_owned(), carried: Carried::new() }
}

fn all_lines(feeds: &[Feed<'_>]) -> Vec<Expected> {
    let lines = feeds.iter().flat_map(|feed| &feed.lines);
    lines.map(|line| Expected { seen: plain(&line.seen.payload), ..line.clone() }).collect()
}

/// Checks a file, which has each line exactly once.
pub(crate) fn check_file(sink: &Address, lines: &[String], feeds: &[Feed<'_>]) {
    let expected = all_lines(feeds);
    let actual: Vec<Seen> = lines.iter().map(|line| plain(line)).collect();
    compare(&sink.to_string(), &expected, &actual, false);
    let [Feed { known, .. }] = feeds else { return };
    let into_it = known.step.outputs.iter().filter(|output| matches!(output.target, Target::Sink(_)));
    if known.step.take != InputMode::Alts && into_it.count() == 1 && expected.iter().all(|line| !line.retried)
    {
        let mut wanted = expected.iter().map(|line| &line.seen);
        assert!(actual.iter().all(|line| wanted.any(|one| one == line)), "{sink} is out of order");
    }
}

/// Checks standard output: a crash may print lines again, unless they are printed at most once.
pub(crate) fn check_printed(sink: &Address, lines: &[String], feeds: &[Feed<'_>], crashes: u64) {
    let expected = all_lines(feeds);
    let actual: Vec<Seen> = lines.iter().map(|line| plain(line)).collect();
    let never_twice = feeds.iter().all(|feed| feed.known.step.delivery == DeliveryGuarantee::AtMostOnce);
    if crashes == 0 || never_twice {
        compare(&sink.to_string(), &expected, &actual, false);
        return;
    }
    // The last lines may not be accounted for yet.
    let mut counts: BTreeMap<&Seen, i64> = BTreeMap::new();
    for line in &actual {
        *counts.entry(line).or_default() += 1;
    }
    for line in expected.iter().filter(|line| !line.lost) {
        let count = counts.entry(&line.seen).or_default();
        *count -= 1;
        assert!(*count >= 0, "{sink}: this was not printed: {line:?}");
    }
}
