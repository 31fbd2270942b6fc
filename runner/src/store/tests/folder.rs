//! Opening a store in a folder: what is made, who is refused, and in which words.

use std::error::Error;
use std::fs;
use std::path::Path;

use super::history::{assert_is_after, commit};
use crate::store::{OpenError, open, open_existing};

fn store_at(folder: &Path) -> u64 {
    let (store, mut writer) = open(folder).unwrap();
    let next = store.transaction().unwrap() + 1;
    writer.commit(commit(next)).unwrap();
    next
}

/// The message with its causes, and without the folder, which is another one every time.
fn message(error: &OpenError, folder: &Path) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text.replace(&folder.display().to_string(), "DATA").replace('\\', "/")
}

fn refusal(file: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("store.redb"), file).unwrap();
    message(&open(folder.path()).unwrap_err(), folder.path())
}

fn good_file() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    store_at(folder.path());
    fs::read(folder.path().join("store.redb")).unwrap()
}

#[test]
fn what_is_missing_is_made_and_what_is_there_is_kept() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("deep/er");
    assert!(open_existing(&folder).unwrap().is_none());
    assert!(!folder.exists());
    store_at(&folder);
    store_at(&folder);
    let (store, _writer) = open_existing(&folder).unwrap().unwrap();
    assert_is_after(&store, 2);
}

#[test]
fn a_store_that_was_being_made_when_the_power_went_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("store.redb.new"), b"redb and then nothing").unwrap();
    assert_eq!(store_at(folder.path()), 1);
    assert!(!folder.path().join("store.redb.new").exists());
}

#[test]
fn a_second_runner_is_refused_and_told_who_has_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(folder.path()).unwrap();
    let error = open(folder.path()).unwrap_err();
    let OpenError::Locked { holder, .. } = &error else { panic!("{error:?}") };
    assert_eq!(holder.pid, Some(std::process::id()));
    let text = message(&error, folder.path())
        .replace(&std::process::id().to_string(), "PID")
        .replace(&holder.command, "COMMAND")
        .replace(&holder.since, "TIME");
    insta::assert_snapshot!(text);
    drop(first);
    store_at(folder.path());
}

#[test]
fn what_is_no_store_is_refused_and_left_alone() {
    let good = good_file();
    let mut half_zeros = good.clone();
    half_zeros[4096..].fill(0);
    let cases: [(&str, &[u8]); 7] = [
        ("empty", b""),
        ("zeros", &[0; 10_000]),
        ("something else", b"{\"id\": 1}\n"),
        ("cut in the header", &good[..50]),
        ("cut after the header", &good[..4096]),
        ("cut in half", &good[..good.len() / 2]),
        ("zeros after the header", &half_zeros),
    ];
    let refusals: Vec<_> = cases.iter().map(|(what, file)| format!("{what}\n  {}", refusal(file))).collect();
    insta::assert_snapshot!(refusals.join("\n"));
}

#[test]
fn a_store_of_a_newer_version_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    store_at(folder.path());
    let database = redb::Database::open(folder.path().join("store.redb")).unwrap();
    let txn = database.begin_write().unwrap();
    txn.open_table(crate::store::format::META).unwrap().insert("format", &7_u32.to_le_bytes()[..]).unwrap();
    txn.commit().unwrap();
    drop(database);
    insta::assert_snapshot!(message(&open(folder.path()).unwrap_err(), folder.path()));
}
