//! Tests of frames: every frame that is sent is received unchanged.

use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn jobs_arrive_as_they_were_sent(
        jobs in proptest::collection::vec((any::<(u64, u32, i64, u128, u32, u64)>(), proptest::collection::vec(any::<u8>(), 0..50)), 0..20),
        from in 0_usize..20,
        stops: bool,
    ) {
        let mut sent = BatchFrame::default();
        for &((index, attempt, now_ms, hash, piece, spent), ref payload) in &jobs {
            let job = Job::new(index, payload).attempted(attempt, now_ms).hashed(hash);
            sent.push(&job.with_piece(piece, payload), Duration::from_nanos(spent));
        }
        let mut wire = Vec::new();
        sent.send(from..sent.len(), stops, &mut wire).unwrap();
        let (mut received, mut wire) = (BatchFrame::default(), &wire[..]);
        prop_assert_eq!(received.receive(&mut wire).unwrap(), Some(stops));
        prop_assert_eq!(BatchFrame::default().receive(&mut wire).unwrap(), None);
        for position in from..jobs.len() {
            let (mut left, mut right) = (sent.get(position), received.get(position - from));
            let (left, right) = (left.take().unwrap(), right.take().unwrap());
            prop_assert_eq!(format!("{left:?}"), format!("{right:?}"));
            prop_assert_eq!(sent.spent(position), received.spent(position - from));
        }
    }

    #[test]
    fn frames_arrive_as_they_were_written(
        outputs in proptest::collection::vec(proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 0..5), 1..4),
        message in "\\PC{0,30}",
        took in any::<u64>().prop_map(Duration::from_nanos),
    ) {
        let names: Vec<String> = (0..outputs.len()).map(|number| number.to_string()).collect();
        let mut all = Outputs::new(names.iter().map(String::as_str));
        for (position, payloads) in outputs.iter().enumerate() {
            for payload in payloads {
                all.get_mut(position).unwrap().push(payload);
            }
        }
        let (mut bytes, mut ours, mut theirs) = (Vec::new(), Seals::new(1, BATCHES), Seals::new(1, BATCHES));
        write_made(&all, took, &mut theirs, &mut bytes);
        let first = bytes.len();
        write_failed(&Failure::reject(&message).with_context("{}"), &all, &mut theirs, &mut bytes);
        let second = bytes.len();
        write_failed(&Failure::pending(&message), &all, &mut theirs, &mut bytes);
        let (frame, length) = read(&bytes, &mut ours).unwrap().unwrap();
        prop_assert_eq!(length, first);
        let ChildAnswer::Made(made, as_long) = frame else { panic!("{frame:?}") };
        let all = all.into_payloads();
        prop_assert_eq!((&made, as_long), (&all, took));
        let (frame, _) = read(&bytes[first..], &mut ours).unwrap().unwrap();
        let ChildAnswer::Failed(failure, made) = frame else { panic!("{frame:?}") };
        prop_assert_eq!((failure, made.len()), (Failure::reject(&message).with_context("{}"), 0));
        let (frame, _) = read(&bytes[second..], &mut ours).unwrap().unwrap();
        let ChildAnswer::Failed(failure, made) = frame else { panic!("{frame:?}") };
        prop_assert_eq!((failure, made), (Failure::pending(&message), all));
    }

    #[test]
    fn lines_arrive_as_they_were_written(lines in proptest::collection::vec("\\PC{0,30}", 0..5)) {
        let (mut bytes, mut ours, mut theirs) = (Vec::new(), Seals::new(1, LINES), Seals::new(1, LINES));
        for line in &lines {
            write_line(Level::Debug, line, &mut theirs, &mut bytes);
        }
        let mut from = &bytes[..];
        for line in lines {
            prop_assert_eq!(receive_line(&mut from, &mut ours).unwrap(), Some((Level::Debug, line)));
        }
        prop_assert_eq!(receive_line(&mut from, &mut ours).unwrap(), None);
    }
}

#[test]
fn every_ending_arrives_as_it_was_sent() {
    let delay = Duration::from_millis(1500);
    for kind in [
        FailureKind::Payload,
        FailureKind::Failed,
        FailureKind::Rejected,
        FailureKind::Limit,
        FailureKind::Output,
        FailureKind::Retry,
        FailureKind::RetryIn(delay),
        FailureKind::Halted,
        FailureKind::GateClosed,
        FailureKind::Pending,
        FailureKind::Panicked,
    ] {
        let place = Place { file: "lib.rs".into(), line: 7, column: None };
        let sent = Failure::new(kind, "why").at(place);
        let mut bytes = Vec::new();
        write_failed(&sent, &Outputs::default(), &mut Seals::new(1, BATCHES), &mut bytes);
        let (frame, _) = read(&bytes, &mut Seals::new(1, BATCHES)).unwrap().unwrap();
        let ChildAnswer::Failed(arrived, _) = frame else { panic!("{frame:?}") };
        assert_eq!(arrived, sent);
    }
}
