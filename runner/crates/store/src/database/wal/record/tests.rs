//! Tests of records: changes are the same after their record, and a damaged record is an error.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use proptest::prelude::*;
use tidegate_plugin::Payloads;

use super::*;
use crate::api::delivery::{DeliveredJob, DeliveredJobs, DeliveryOutcome, DeliveryTimes};
use crate::api::late_job::{LateChanges, LateJob, LateKey, NewLateJob};
use crate::api::parked_job::{NewParkedJob, ParkedId, ParkedJob, ParkedKey};
use crate::codec::block::Block;
use crate::codec::job_metadata::Details;
use crate::database::bindings::FirstInput;
use crate::database::changes::Append;
use crate::database::dedupe::{DedupeOutcome, DedupeRecord, IngestedKey};
use crate::database::retention::{Trim, TrimWhen};
use crate::database::snapshots::{Snapshot, SnapshotInput, SnapshotKey};
use crate::{
    CompletionRecord, FinishedEnd, FinishedOutput, FinishedResult, JobForm, ParkReason, Pause, Renames,
};
use tidegate_model::{
    Address, Counters, DeliveryHash, Due, ExternalStatus, NamedKind, Progress, RenamedPart, Segment,
    SinkPosition, SourceOffset, TailFingerprint, Timestamp,
};

/// Values for tests, drawn from a list of numbers.
struct Draw<'a>(std::slice::Iter<'a, u64>);

impl Draw<'_> {
    fn number(&mut self) -> u64 {
        self.0.next().copied().unwrap_or(3)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.number() % end
    }

    fn small(&mut self) -> u32 {
        u32::try_from(self.number() >> 32).unwrap()
    }

    fn flag(&mut self) -> bool {
        self.number() & 1 == 1
    }

    fn time(&mut self) -> Timestamp {
        Timestamp(self.number().cast_signed())
    }

    fn text(&mut self) -> String {
        ["", "a", "ä/\u{1f600}", "a longer text of some words"][usize::try_from(self.below(4)).unwrap()]
            .to_owned()
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = usize::try_from(self.below(40)).unwrap();
        (0..len).map(|_| self.number().to_le_bytes()[0]).collect()
    }

    fn address(&mut self) -> Address {
        let name = ["a/b", "a/c", "another/name", "x/y"][usize::try_from(self.below(4)).unwrap()];
        Address::parse(name).unwrap()
    }

    fn maybe<T>(&mut self, draw: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.flag().then(|| draw(self))
    }

    fn list<T>(&mut self, mut draw: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.below(3)).map(|_| draw(self)).collect()
    }

    fn block(&mut self) -> Block {
        let jobs = self.list(Self::bytes);
        let carried = self.list(Self::bytes);
        let payloads: Payloads = jobs.iter().map(|job| &job[..]).collect();
        let carried: Payloads = carried.iter().map(|text| &text[..]).collect();
        let details =
            Details { origins: None, carried: Some(&carried).filter(|all| all.len() == payloads.len()) };
        Block::encode(&payloads, details)
    }

    fn progress(&mut self) -> Progress {
        let mut progress = Progress::default();
        if self.flag() {
            progress.start_after(self.below(100));
        }
        for _ in 0..self.below(4) {
            let first = 1 + self.below(300);
            progress.finish(first, first + self.below(9));
        }
        progress.counters = Counters {
            taken: self.number(),
            given: self.number(),
            filtered: self.number(),
            failed: self.number(),
            lost: self.number(),
        };
        progress
    }

    fn offset(&mut self) -> SourceOffset {
        let (index, segment) = (self.number(), self.small());
        SourceOffset { index, segment, offset: self.number(), line: self.number() }
    }

    fn sink(&mut self) -> SinkPosition {
        SinkPosition {
            offset: self.number(),
            tail_len: self.small(),
            tail_hash: self.number(),
            device: self.number(),
            inode: self.number(),
            path_hash: self.number(),
            path: self.maybe(Self::text),
            open: self.flag(),
        }
    }

    fn segment(&mut self) -> Segment {
        Segment {
            ordinal: self.small(),
            first: self.number(),
            path: PathBuf::from(OsStr::from_bytes(&self.bytes())),
            device: self.number(),
            inode: self.number(),
            fingerprint: self.number(),
            fingerprint_len: self.small(),
            offset: self.number(),
            line: self.number(),
            tail: self.maybe(|draw| TailFingerprint {
                at: draw.offset(),
                hash: draw.number(),
                len: draw.small(),
            }),
            siblings_known: self.flag(),
            end: self.maybe(Self::offset),
        }
    }

    fn delivered(&mut self) -> DeliveredJobs {
        let outcome = |draw: &mut Self| match draw.below(3) {
            0 => DeliveryOutcome::Error,
            1 => DeliveryOutcome::Nothing,
            _ => DeliveryOutcome::Output { jobs: draw.small() },
        };
        DeliveredJobs {
            step: self.address(),
            input: self.text(),
            jobs: self.list(|draw| DeliveredJob {
                index: draw.number(),
                outcome: outcome(draw),
                times: draw.times(),
            }),
            keep_until: self.maybe(Self::time),
        }
    }

    fn times(&mut self) -> DeliveryTimes {
        DeliveryTimes {
            attempts: self.small(),
            created: self.maybe(Self::time),
            first_attempt: self.maybe(Self::time),
            submitted: self.maybe(Self::time),
        }
    }

    fn hash(&mut self) -> DeliveryHash {
        DeliveryHash(u128::from(self.number()) << 64 | u128::from(self.number()))
    }

    fn outcome(&mut self) -> DedupeOutcome {
        let (first, jobs, content) = (self.number(), self.small(), self.number());
        match self.below(6) {
            0 => DedupeOutcome::Output { jobs },
            1 => DedupeOutcome::Error,
            2 => DedupeOutcome::Nothing,
            3 => DedupeOutcome::Ingested { first, jobs, content },
            4 => DedupeOutcome::CompletedExternally { status: ExternalStatus::Invalid, content },
            _ => {
                let (late_first, late) = (ParkedId(self.number()), self.small());
                DedupeOutcome::IngestedLate { first, jobs, content, late_first, late }
            }
        }
    }

    fn ingested(&mut self) -> IngestedKey {
        IngestedKey {
            hash: self.hash(),
            append: usize::try_from(self.small()).unwrap(),
            position: self.number(),
            jobs: self.small(),
            late_position: usize::try_from(self.small()).unwrap(),
            late: self.small(),
            content: self.number(),
            keep_until: self.maybe(Self::time),
        }
    }

    fn snapshot(&mut self) -> Snapshot {
        Snapshot {
            step: self.address(),
            number: self.number(),
            inputs: self.list(|draw| SnapshotInput {
                name: draw.text(),
                address: draw.address(),
                first: draw.number(),
                jobs: draw.number(),
            }),
            jobs: self.number(),
            time: self.time(),
        }
    }

    fn due(&mut self) -> Due {
        match self.below(4) {
            0 => Due::Now,
            1 => Due::Hastened(self.time()),
            2 => Due::At(self.time()),
            _ => Due::Never,
        }
    }

    fn reason(&mut self) -> ParkReason {
        let (handle, since) = (self.text(), self.time());
        match self.below(6) {
            0 => ParkReason::Delayed,
            1 => ParkReason::Output { to: handle },
            2 => ParkReason::Started { since },
            3 => ParkReason::Pending { handle, since },
            4 => {
                let (result, reason) = (self.maybe(Self::text), self.maybe(Self::text));
                let completion = CompletionRecord { status: ExternalStatus::Valid, result, reason };
                ParkReason::Completed { handle, since, completion }
            }
            _ => {
                let output =
                    FinishedOutput { to: handle, due: self.maybe(Self::time), payload: self.bytes() };
                let end = FinishedEnd::SetAside { record: self.bytes() };
                ParkReason::Finished {
                    result: FinishedResult { end, outputs: vec![output], events: Vec::new() },
                }
            }
        }
    }

    fn parked(&mut self) -> ParkedJob {
        ParkedJob {
            due: self.due(),
            inputs: self.list(|draw| (draw.text(), draw.number())),
            attempt: self.small(),
            first_attempt: self.maybe(Self::time),
            created: self.maybe(Self::time),
            last_submitted: self.maybe(Self::time),
            last_error: self.maybe(Self::text),
            from_error: self.maybe(|draw| (draw.address(), draw.number())),
            reason: self.reason(),
            form: [JobForm::Json, JobForm::Text, JobForm::Bytes][usize::try_from(self.below(3)).unwrap()],
            payload: self.bytes(),
            carried: self.maybe(Self::text),
        }
    }

    fn parked_key(&mut self) -> ParkedKey {
        ParkedId(self.number()).of(&self.address())
    }

    fn late_key(&mut self) -> LateKey {
        LateKey { queue: self.address(), id: ParkedId(self.number()) }
    }

    fn late(&mut self) -> LateJob {
        LateJob { due: self.due(), payload: self.bytes() }
    }

    fn trim(&mut self) -> Trim {
        let when = match self.below(3) {
            0 => TrimWhen::Always,
            1 => TrimWhen::OlderThan(self.time()),
            _ => TrimWhen::Never,
        };
        Trim { queue: self.address(), up_to: self.number(), when, max_bytes: self.maybe(Self::number) }
    }

    fn changes(&mut self) -> Changes {
        Changes {
            now: self.time(),
            appends: self.list(|draw| Append { queue: draw.address(), block: draw.block() }),
            progress: self.list(|draw| (draw.address(), draw.address(), draw.progress())),
            handled_errors: self.list(|draw| (draw.address(), draw.progress())),
            sinks: self.list(|draw| (draw.address(), draw.sink())),
            marks: self.list(|draw| (draw.address(), draw.offset())),
            segments: self.list(|draw| (draw.address(), draw.segment())),
            delivered: self.list(Self::delivered),
            dedupe_records: self.list(|draw| DedupeRecord {
                hash: draw.hash(),
                outcome: draw.outcome(),
                times: draw.maybe(Self::times),
                keep_until: draw.maybe(Self::time),
            }),
            ingested: self.list(Self::ingested),
            done_snapshots: self.list(|draw| SnapshotKey { step: draw.address(), number: draw.number() }),
            snapshots: self.list(Self::snapshot),
            unparked: self.list(Self::parked_key),
            reparked: self.list(|draw| (draw.parked_key(), draw.parked())),
            parked: self.list(|draw| NewParkedJob { step: draw.address(), job: draw.parked() }),
            late: LateChanges {
                done: self.list(Self::late_key),
                moved: self.list(|draw| (draw.late_key(), draw.late())),
                new: self.list(|draw| NewLateJob { queue: draw.address(), job: draw.late() }),
            },
            bindings: self.list(|draw| FirstInput {
                step: draw.address(),
                binding: draw.text(),
                input: draw.address(),
            }),
            schedule_positions: self.list(|draw| (draw.address(), draw.time())),
            cursors: self.list(|draw| (draw.address(), draw.text())),
            trims: self.list(Self::trim),
            ..Changes::default()
        }
    }
}

fn numbers() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(prop_oneof![0_u64..10, any::<u64>()], 0..1500)
}

proptest! {
    #[test]
    fn changes_are_the_same_after_their_record(numbers in numbers()) {
        let changes = Draw(numbers.iter()).changes();
        let record = encode(&changes).unwrap();
        prop_assert_eq!(format!("{:?}", decode(&record).unwrap()), format!("{changes:?}"));
    }

    #[test]
    fn a_record_that_is_cut_short_or_changed_never_panics(
        numbers in numbers(), at in any::<prop::sample::Index>(), change in any::<u8>(),
    ) {
        let mut record = encode(&Draw(numbers.iter()).changes()).unwrap();
        let at = at.index(record.len());
        prop_assert!(decode(&record[..at]).is_err());
        record[at] ^= change;
        let _ = decode(&record);
    }
}

#[test]
fn rare_changes_and_large_ones_have_no_record() {
    let step = Address::parse("a/step").unwrap();
    assert!(encode(&Changes::default()).is_some());
    let pause = Pause { step: step.clone(), since: Timestamp(1) };
    assert!(encode(&Changes { pauses: vec![(pause.step, true)], ..Changes::default() }).is_none());
    assert!(encode(&Changes { begins_run: true, ..Changes::default() }).is_none());
    assert!(encode(&Changes { dropped_steps: vec![step.clone()], ..Changes::default() }).is_none());
    let part = RenamedPart { kind: NamedKind::Step, from: step.clone(), to: step.clone() };
    let renamed = Renames { generation: 1, parts: vec![part] };
    assert!(encode(&Changes { renamed, ..Changes::default() }).is_none());
    let parked = |bytes| {
        let job = ParkedJob { payload: vec![7; bytes], ..ParkedJob::default() };
        Changes { parked: vec![NewParkedJob { step: step.clone(), job }], ..Changes::default() }
    };
    assert!(encode(&parked(RECORD_BYTES_MAX - 100)).is_some());
    assert!(encode(&parked(RECORD_BYTES_MAX)).is_none());
    let appended = |bytes: usize| {
        let noise =
            (0..bytes as u64).map(|at| tidegate_model::content_hash(&at.to_le_bytes()).to_le_bytes()[0]);
        let noise: Vec<u8> = noise.collect();
        let block = Block::encode(&[&noise[..]].into_iter().collect(), Details::default());
        Changes { appends: vec![Append { queue: step.clone(), block }], ..Changes::default() }
    };
    assert!(encode(&appended(APPENDED_BYTES_MAX - 100)).is_some());
    assert!(encode(&appended(APPENDED_BYTES_MAX)).is_none());
}
