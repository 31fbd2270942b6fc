//! Tests of late jobs: their order, their keys, and their queue after a rename.

use super::*;
use crate::verify;
use crate::{
    DedupeOutcome, DeliveryKey, IngestedKey, LateChanges, LateJob, LateKey, NewLateJob, NewParkedJob,
    ParkedId, ParkedJob, Renames,
};
use tidegate_model::{DeliveryHash, Due, NamedKind, RenamedPart};

fn late(queue: &str, due: i64, text: &str) -> NewLateJob {
    let job = LateJob { due: Due::At(Timestamp(due)), payload: text.into() };
    NewLateJob { queue: address(queue), job }
}

fn commit(writer: &mut Writer, late: LateChanges) -> Vec<LateKey> {
    writer.commit(&Changes { late, ..Changes::default() }).unwrap().late
}

/// The texts of the late jobs that are due.
fn due(store: &Store, queue: &str, until: i64) -> Vec<String> {
    assert_eq!(verify(store).unwrap().problems, Vec::<String>::new());
    let until = Due::At(Timestamp(until));
    let rows = store.late_due(&address(queue), until, None, 99, 999).unwrap();
    rows.into_iter().map(|(_, job)| String::from_utf8(job.payload).unwrap()).collect()
}

#[test]
fn late_jobs_come_in_order_of_their_due_time() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    let new = vec![late("a/in", 9, "nine"), late("a/in", 5, "five"), late("a/other", 1, "other")];
    let keys = commit(&mut writer, LateChanges { new, ..LateChanges::default() });
    assert!(keys.iter().map(|key| key.id).eq([1, 2, 3].map(ParkedId)));
    assert_eq!(due(&store, "a/in", 9), ["five", "nine"]);
    assert_eq!(due(&store, "a/in", 8), ["five"]);
    assert_eq!(store.next_late(&address("a/in")).unwrap(), Some(Timestamp(5)));
    assert_eq!(store.late_count(&address("a/in")).unwrap(), 2);
    let hastened = LateJob { due: Due::At(Timestamp(9)).hastened(), payload: "nine".into() };
    commit(
        &mut writer,
        LateChanges {
            done: vec![keys[1].clone()],
            moved: vec![(keys[0].clone(), hastened.clone()), (keys[1].clone(), hastened)],
            new: Vec::new(),
        },
    );
    assert_eq!(due(&store, "a/in", 0), ["nine"]);
    assert!(store.late(&keys).unwrap().iter().map(Option::is_some).eq([true, false, true]));
    assert_eq!(store.next_late(&address("a/none")).unwrap(), None);
}

#[test]
fn a_step_with_the_name_of_the_queue_has_none_of_its_late_jobs() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    let parked = vec![NewParkedJob { step: address("a/in"), job: ParkedJob::default() }];
    let late = LateChanges { new: vec![late("a/in", 5, "late")], ..LateChanges::default() };
    let committed = writer.commit(&Changes { parked, late, ..Changes::default() }).unwrap();
    assert_eq!((committed.parked[0].id, committed.late[0].id), (ParkedId(1), ParkedId(2)));
    assert_eq!(
        store.all_parked(&address("a/in")).map(|row| row.unwrap().0.id).collect::<Vec<_>>(),
        [ParkedId(1)]
    );
    assert_eq!(due(&store, "a/in", 5), ["late"]);
}

#[test]
fn the_key_of_late_jobs_is_remembered_with_their_numbers() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    let key = |hash, jobs, late_position, late| IngestedKey {
        hash: DeliveryHash(hash),
        append: 0,
        position: 0,
        jobs,
        late_position,
        late,
        content: 7,
        keep_until: None,
    };
    let changes = Changes {
        appends: vec![append("a/in", ["1"])],
        ingested: vec![key(1, 1, 0, 2), key(2, 0, 1, 1), key(3, 0, 5, 1)],
        late: LateChanges {
            new: vec![late("a/in", 5, "one"), late("a/in", 5, "two")],
            ..LateChanges::default()
        },
        ..Changes::default()
    };
    writer.commit(&changes).unwrap();
    let at = |first, jobs, id, late| {
        let (content, late_first) = (7, ParkedId(id));
        Some(DedupeOutcome::IngestedLate { first, jobs, content, late_first, late })
    };
    let found = store.deliveries(&[1, 2, 3].map(|hash| DeliveryKey::Hash(DeliveryHash(hash)))).unwrap();
    assert_eq!(found, [at(1, 1, 1, 2), at(0, 0, 2, 1), None], "the last one names a job that does not exist");
}

#[test]
fn a_renamed_queue_takes_its_late_jobs_along() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    let new = vec![late("a/old", 5, "late")];
    let keys = commit(&mut writer, LateChanges { new, ..LateChanges::default() });
    let part = RenamedPart { kind: NamedKind::Endpoint, from: address("a/old"), to: address("a/new") };
    assert!(store.known_parts().unwrap().queues.contains(&address("a/old")));
    let renamed = Renames { generation: 2, parts: vec![part] };
    writer.commit(&Changes { renamed, ..Changes::default() }).unwrap();
    assert_eq!(due(&store, "a/new", 5), ["late"]);
    assert_eq!(due(&store, "a/old", 5), [""; 0]);
    assert!(store.late(&keys).unwrap()[0].is_some(), "a reader may still use the former name");
}
