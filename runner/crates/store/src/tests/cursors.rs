//! Tests of cursors: the last one of a source stays, through renames and exports.

use super::*;
use crate::{Renames, export, import, open, verify};
use tidegate_model::{NamedKind, RenamedPart};

fn print(writer: &mut Writer, source: &str, cursor: &str) {
    let cursors = vec![(address(source), cursor.to_owned())];
    writer.commit(&Changes { cursors, ..Changes::default() }).unwrap();
}

fn rename(writer: &mut Writer, from: &str, to: &str) {
    let (kind, from, to) = (NamedKind::Endpoint, address(from), address(to));
    let renamed = Renames { generation: 2, parts: vec![RenamedPart { kind, from, to }] };
    writer.commit(&Changes { renamed, ..Changes::default() }).unwrap();
}

#[test]
fn the_last_cursor_of_a_source_stays() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    assert_eq!(store.cursor(&address("p/in")).unwrap(), None);
    assert_eq!(store.cursors().unwrap(), []);
    print(&mut writer, "p/in", "1");
    print(&mut writer, "p/other", "ä");
    print(&mut writer, "p/in", "2");
    assert_eq!(store.cursor(&address("p/in")).unwrap().as_deref(), Some("2"));
    assert_eq!(store.cursor(&address("p/none")).unwrap(), None);
    let all = [(address("p/in"), "2".to_owned()), (address("p/other"), "ä".to_owned())];
    assert_eq!(store.cursors().unwrap(), all);
    assert_eq!(verify(&store).unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_cursor_moves_with_its_source_although_no_job_is_kept() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    print(&mut writer, "p/in", "7");
    assert!(store.known_parts().unwrap().has(NamedKind::Endpoint, &address("p/in")));
    rename(&mut writer, "p/in", "p/new");
    assert_eq!(store.cursor(&address("p/new")).unwrap().as_deref(), Some("7"));
    assert_eq!(store.cursor(&address("p/in")).unwrap(), None);
    // It has a cursor of its own, and keeps it.
    print(&mut writer, "p/in", "1");
    rename(&mut writer, "p/in", "p/new");
    assert_eq!(store.cursor(&address("p/new")).unwrap().as_deref(), Some("7"));
}

#[test]
fn an_export_has_the_cursors() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    print(&mut writer, "p/in", "page 3 of \"a\"");
    let mut lines = Vec::new();
    assert_eq!(export(&store, &mut lines).unwrap().cursors, 1);
    let folder = tempfile::tempdir().unwrap();
    import(folder.path(), &lines[..]).unwrap();
    let (again, _writer) = open(folder.path()).unwrap();
    assert_eq!(again.cursors().unwrap(), store.cursors().unwrap());
}
