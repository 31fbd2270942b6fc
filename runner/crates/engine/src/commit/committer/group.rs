//! Commit group: collects the requests that are committed together, and puts their commits in order.
//!
//! The same policy serves the committer thread, which takes requests from a channel, and the simulation, which
//! draws them at random.

use super::completions::Completions;
use crate::commit::inbox::{Inbox, Push};
use crate::commit::printed::PrintedCommit;
use crate::commit::request::{CommitRequest, ReloadChange, StepChange};
use crate::coordinator::schedules::FiredTicks;
use crate::operator::request::PendingRequest;
use tidegate_config::QueueRef;
use tidegate_store::StepStop;

/// Maximum bytes of a group.
const GROUP_BYTES: usize = 4 << 20;

/// Requests behind the first one of a group.
pub(crate) trait MoreRequests {
    /// Next request; `None` closes the group. Whether a client or a schedule waits for the group decides how
    /// long the call may wait.
    fn next(&mut self, is_waited_for: bool) -> Option<CommitRequest>;
}

/// Requests that are committed together.
#[derive(Default)]
pub(crate) struct CommitGroup {
    entries: Vec<StepChange>,
    pushes: Vec<Push>,
    ticked: Vec<FiredTicks>,
    printed: Vec<PrintedCommit>,
    /// Queues with late jobs that are due.
    late: Vec<QueueRef>,
    /// Whether a retention sweep follows.
    lets_go: bool,
    stopped: Vec<StepStop>,
    /// External completions, in a separate commit: they are independent of the deliveries.
    completions: Completions,
    /// Operator's request, in a commit of its own at the end.
    asked: Option<PendingRequest>,
    /// Part of a reload, likewise.
    reload: Option<ReloadChange>,
}

/// Changes of a group that are committed in one transaction.
#[derive(Default)]
pub(crate) struct GroupChanges {
    pub(crate) entries: Vec<StepChange>,
    pub(crate) pushes: Vec<Push>,
    pub(crate) ticked: Vec<FiredTicks>,
    pub(crate) printed: Vec<PrintedCommit>,
    pub(crate) late: Vec<QueueRef>,
}

/// Part of a group that is committed on its own.
pub(crate) enum GroupPart {
    Changes(GroupChanges),
    Stops(Vec<StepStop>),
    Retention,
    Completions(Completions),
    Operator(PendingRequest),
    Reload(ReloadChange),
}

impl CommitGroup {
    /// Collects a group until it has enough bytes or `more` is exhausted. An operator's request closes the
    /// group, and so does a part of a reload; external completions do not.
    pub(crate) fn collect(first: CommitRequest, inbox: &Inbox, more: &mut impl MoreRequests) -> Self {
        let (mut group, mut bytes, mut next) = (Self::default(), 0, first);
        loop {
            match next {
                CommitRequest::Amend(asked) => {
                    bytes += asked.byte_len();
                    if let Some(asked) = group.completions.add(asked) {
                        group.asked = Some(asked);
                        return group;
                    }
                }
                CommitRequest::InboxReady => {
                    let pushes = inbox.take(GROUP_BYTES.saturating_sub(bytes));
                    bytes += pushes.iter().map(Push::byte_len).sum::<usize>();
                    group.pushes.extend(pushes);
                }
                CommitRequest::Ticked(ticked) => {
                    bytes += ticked.jobs.byte_len();
                    group.ticked.push(ticked);
                }
                CommitRequest::Printed(printed) => {
                    bytes += printed.byte_len();
                    group.printed.push(printed);
                }
                CommitRequest::LateDue(queue) => group.late.push(queue),
                CommitRequest::ApplyRetention => group.lets_go = true,
                CommitRequest::Stopped(stop) => group.stopped.push(stop),
                CommitRequest::Reload(change) => {
                    group.reload = Some(change);
                    return group;
                }
                CommitRequest::Enter(entry) => {
                    bytes += entry.byte_len();
                    group.entries.push(entry);
                }
            }
            if bytes >= GROUP_BYTES {
                return group;
            }
            next = match more.next(group.is_waited_for()) {
                Some(more) => more,
                None => return group,
            };
        }
    }

    /// Parts of the group, in the order of their commits.
    pub(crate) fn parts(self) -> impl Iterator<Item = GroupPart> {
        let Self { entries, pushes, ticked, printed, late, lets_go, stopped, completions, asked, reload } =
            self;
        let ingests = !(pushes.is_empty() && ticked.is_empty() && printed.is_empty() && late.is_empty());
        let changes = ingests || !entries.is_empty();
        let parts = [
            changes.then(|| GroupPart::Changes(GroupChanges { entries, pushes, ticked, printed, late })),
            (!stopped.is_empty()).then(|| GroupPart::Stops(stopped)),
            lets_go.then_some(GroupPart::Retention),
            (!completions.is_empty()).then(|| GroupPart::Completions(completions)),
            asked.map(GroupPart::Operator),
            reload.map(GroupPart::Reload),
        ];
        parts.into_iter().flatten()
    }

    /// Whether a client or a schedule waits for this group.
    fn is_waited_for(&self) -> bool {
        let Self { pushes, ticked, printed, late, completions, .. } = self;
        !(pushes.is_empty()
            && ticked.is_empty()
            && printed.is_empty()
            && late.is_empty()
            && completions.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use tidegate_model::{Address, ExternalStatus, Timestamp};
    use tidegate_plugin::Payloads;
    use tidegate_store::CompletionRecord;

    use super::*;
    use crate::operator::request::Request;

    /// Requests that have all come, and whether a client waited for the group at each call.
    #[derive(Default)]
    struct Queued(VecDeque<CommitRequest>, Vec<bool>);

    impl MoreRequests for Queued {
        fn next(&mut self, is_waited_for: bool) -> Option<CommitRequest> {
            self.1.push(is_waited_for);
            self.0.pop_front()
        }
    }

    fn asked(request: Request) -> CommitRequest {
        CommitRequest::Amend(PendingRequest::new(request, crossbeam_channel::unbounded().0))
    }

    fn step() -> Address {
        Address::parse("p/step").unwrap()
    }

    fn completion(token: &str) -> CommitRequest {
        let completion = CompletionRecord { status: ExternalStatus::Valid, result: None, reason: None };
        asked(Request::Complete { step: step(), index: 1, token: token.into(), completion, row: None })
    }

    fn pause() -> CommitRequest {
        asked(Request::Pause { step: step(), paused: true })
    }

    fn ticked(bytes: usize) -> CommitRequest {
        let mut jobs = Payloads::new();
        jobs.push(&vec![b'0'; bytes]);
        CommitRequest::Ticked(FiredTicks { queue: QueueRef(0), jobs, handled: Timestamp(0) })
    }

    fn stopped() -> CommitRequest {
        CommitRequest::Stopped(StepStop {
            step: step(),
            since: Timestamp(0),
            at: None,
            job: None,
            why: "no".into(),
        })
    }

    /// The parts of the first group of these requests, and the requests that it leaves.
    fn parts(requests: impl IntoIterator<Item = CommitRequest>) -> (Vec<&'static str>, Queued) {
        let mut queued = Queued(requests.into_iter().collect(), Vec::new());
        let first = queued.0.pop_front().unwrap();
        let parts = CommitGroup::collect(first, &Inbox::default(), &mut queued).parts();
        let names = parts.map(|part| match part {
            GroupPart::Changes { .. } => "changes",
            GroupPart::Stops(_) => "stops",
            GroupPart::Retention => "retention",
            GroupPart::Completions(_) => "completions",
            GroupPart::Operator(_) => "operator",
            GroupPart::Reload(_) => "reload",
        });
        (names.collect(), queued)
    }

    #[test]
    fn the_parts_of_a_group_are_committed_in_one_order_whatever_came_first() {
        let (parts, left) =
            parts([completion("a"), CommitRequest::ApplyRetention, stopped(), ticked(1), pause()]);
        assert_eq!(parts, ["changes", "stops", "retention", "completions", "operator"]);
        assert!(left.0.is_empty());
    }

    #[test]
    fn a_request_of_an_operator_closes_the_group() {
        let (parts, left) = parts([ticked(1), pause(), ticked(1)]);
        assert_eq!((parts, left.0.len()), (vec!["changes", "operator"], 1));
    }

    #[test]
    fn a_part_of_a_reload_closes_the_group() {
        let removed = CommitRequest::Reload(ReloadChange::Remove { step: 0 });
        let (parts, left) = parts([ticked(1), removed, ticked(1)]);
        assert_eq!((parts, left.0.len()), (vec!["changes", "reload"], 1));
    }

    #[test]
    fn a_second_completion_of_a_job_closes_the_group_and_one_of_another_job_does_not() {
        let (parts, left) = parts([completion("a"), completion("b"), completion("a"), completion("c")]);
        assert_eq!((parts, left.0.len()), (vec!["completions", "operator"], 1));
    }

    #[test]
    fn a_group_is_closed_when_it_has_four_mebibytes() {
        let (_, left) = parts([ticked(1), ticked(GROUP_BYTES - 2), ticked(1), ticked(1)]);
        assert_eq!(left.0.len(), 1);
    }

    #[test]
    fn a_group_waits_for_more_only_while_no_client_and_no_schedule_waits_for_it() {
        let (_, asked) =
            parts([CommitRequest::ApplyRetention, stopped(), completion("a"), CommitRequest::ApplyRetention]);
        assert_eq!(asked.1, [false, false, true, true]);
        let (_, asked) = parts([ticked(1)]);
        assert_eq!(asked.1, [true]);
    }
}
