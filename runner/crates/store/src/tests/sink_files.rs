//! Tests of the files that sinks have left: their positions stay.

use super::*;
use crate::{Renames, export, import, open};
use tidegate_model::{NamedKind, RenamedPart, SinkPosition};

fn position(path: &str, offset: u64) -> SinkPosition {
    let path = Some(path.to_owned());
    SinkPosition { offset, tail_len: 0, tail_hash: 0, device: 1, inode: 2, path_hash: 3, path, open: true }
}

/// The sink has written up to `offset` of the file.
fn write(writer: &mut Writer, sink: &str, file: &str, offset: u64) {
    let sinks = vec![(address(sink), position(file, offset))];
    writer.commit(&Changes { sinks, ..Changes::default() }).unwrap();
}

fn found(store: &Store, sink: &str, file: &str) -> Option<(String, u64, bool)> {
    let position = store.sink_in(&address(sink), Some(file)).unwrap()?;
    Some((position.path?, position.offset, position.open))
}

#[test]
fn a_sink_returns_to_the_end_of_a_file_that_it_has_left() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    write(&mut writer, "p/out", "/a", 10);
    assert_eq!(found(&store, "p/out", "/b"), Some(("/a".into(), 10, true)));
    write(&mut writer, "p/out", "/b", 5);
    assert_eq!(found(&store, "p/out", "/a"), Some(("/a".into(), 10, false)));
    assert_eq!(found(&store, "p/out", "/b"), Some(("/b".into(), 5, true)));
    write(&mut writer, "p/out", "/a", 12);
    let left: Vec<_> =
        store.sink_files().unwrap().into_iter().map(|(_, left)| (left.path, left.offset)).collect();
    assert_eq!(left, [(Some("/b".to_owned()), 5)]);
    assert_eq!(crate::verify(&store).unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_renamed_sink_returns_to_its_files_and_another_sink_does_not() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    write(&mut writer, "p/out", "/a", 10);
    write(&mut writer, "p/out", "/b", 20);
    assert_eq!(found(&store, "p/other", "/a"), None);
    let (kind, from, to) = (NamedKind::Endpoint, address("p/out"), address("q/out"));
    let renamed = Renames { generation: 2, parts: vec![RenamedPart { kind, from, to }] };
    writer.commit(&Changes { renamed, ..Changes::default() }).unwrap();
    assert_eq!(found(&store, "q/out", "/a"), Some(("/a".into(), 10, false)));
    assert_eq!(found(&store, "p/out", "/a"), None);
}

#[test]
fn an_export_has_the_renames_and_the_files_that_sinks_have_left() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    write(&mut writer, "p/out", "/a", 10);
    write(&mut writer, "p/out", "/b", 5);
    writer.commit(&appends([append("p/queue", ["1"])])).unwrap();
    let (kind, from, to) = (NamedKind::Endpoint, address("p/queue"), address("p/other"));
    let renamed = Renames { generation: 7, parts: vec![RenamedPart { kind, from, to }] };
    writer.commit(&Changes { renamed, ..Changes::default() }).unwrap();
    let mut lines = Vec::new();
    let inventory = export(&store, &mut lines).unwrap();
    assert_eq!((inventory.renames, inventory.sink_files, inventory.sinks), (1, 1, 1));
    let folder = tempfile::tempdir().unwrap();
    import(folder.path(), &lines[..]).unwrap();
    let (again, _writer) = open(folder.path()).unwrap();
    assert_eq!(again.name_history().unwrap(), store.name_history().unwrap());
    assert_eq!(again.sink_files().unwrap(), store.sink_files().unwrap());
}
