//! Outlets: compare the lines of sinks with the deliveries of the steps that feed them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::compare::{Expected, Seen, compare, without_versions};
use super::model::Carried;
use super::pass::Pass;
use tidegate_config::{DeliveryGuarantee, InputMode, SinkKind, SinkRef, Target};
use tidegate_model::Address;

/// Place where lines leave. A sink has another file if its path changes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outlet {
    File(PathBuf),
    Printed(Address),
}

/// Deliveries of a step to one outlet.
#[derive(Debug)]
pub(crate) struct Feed {
    pub(crate) lines: Vec<Expected>,
    /// Whether the lines are in the order of the deliveries.
    pub(crate) in_order: bool,
    pub(crate) never_twice: bool,
}

impl Outlet {
    /// Place of an output; `None` for a queue, or for a sink without a place. `address`: the present name of the sink.
    pub(crate) fn of(pass: &Pass, target: Target, address: &Address) -> Option<Self> {
        let Target::Sink(SinkRef(sink)) = target else { return None };
        match &pass.configuration.sinks[sink].kind {
            SinkKind::File(file) => Some(Self::File(file.path.clone())),
            SinkKind::Stdout(_) => Some(Self::Printed(address.clone())),
            SinkKind::Http(_) | SinkKind::Null => None,
        }
    }
}

impl Feed {
    pub(crate) fn new() -> Self {
        Self { lines: Vec::new(), in_order: true, never_twice: true }
    }

    /// Adds the properties of a pass.
    pub(crate) fn add(&mut self, pass: &Pass) {
        let into_sinks = pass.step.outputs.iter().filter(|output| matches!(output.target, Target::Sink(_)));
        self.in_order &= pass.step.take != InputMode::Alts && into_sinks.count() == 1;
        self.never_twice &= pass.step.delivery == DeliveryGuarantee::AtMostOnce;
    }
}

pub(crate) fn lines(bytes: &[u8]) -> Vec<String> {
    let text = std::str::from_utf8(bytes).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "a line is cut: {text:?}");
    text.lines().map(|line| without_versions(serde_json::from_str(line).unwrap()).to_string()).collect()
}

fn plain(payload: &str) -> Seen {
    Seen { origin: Vec::new(), payload: payload.to_owned(), carried: Carried::new() }
}

fn all_lines(feeds: &[Feed]) -> Vec<Expected> {
    let lines = feeds.iter().flat_map(|feed| &feed.lines);
    lines.map(|line| Expected { seen: plain(&line.seen.payload), ..line.clone() }).collect()
}

/// Checks a file, which has each line exactly once.
pub(crate) fn check_file(file: &str, lines: &[String], feeds: &[Feed]) {
    let expected = all_lines(feeds);
    let actual: Vec<Seen> = lines.iter().map(|line| plain(line)).collect();
    compare(file, &expected, &actual, false);
    let [feed] = feeds else { return };
    if feed.in_order && expected.iter().all(|line| !line.retried) {
        let mut wanted = expected.iter().map(|line| &line.seen);
        assert!(actual.iter().all(|line| wanted.any(|one| one == line)), "{file} is out of order");
    }
}

/// Checks standard output: a crash may print lines again, unless they are printed at most once.
pub(crate) fn check_printed(sink: &Address, lines: &[String], feeds: &[Feed], crashes: u64) {
    let expected = all_lines(feeds);
    let actual: Vec<Seen> = lines.iter().map(|line| plain(line)).collect();
    if crashes == 0 || feeds.iter().all(|feed| feed.never_twice) {
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
