//! Tests of opening a folder: the files it creates, and the errors of its refusals.

use std::error::Error;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use super::history::{assert_is_after, commit};
use super::open_on;
use crate::import;
use crate::testing::FaultyDisk;
use crate::{CommitError, CrashGuard, OpenError, open_existing};
use crate::{open, verify};

fn store_at(folder: &Path) -> u64 {
    let (store, mut writer) = open(folder).unwrap();
    let next = store.transaction().unwrap() + 1;
    writer.commit(commit(next)).unwrap();
    next
}

/// The message with its causes, without the folder, whose name varies.
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
    insta::assert_snapshot!(text, @"the store `DATA/store.redb` is in use by process PID, `COMMAND`, since TIME; only one runner can open it");
    drop(first);
    store_at(folder.path());
}

#[test]
fn a_second_runner_is_refused_though_the_lock_file_was_removed() {
    let folder = tempfile::tempdir().unwrap();
    let (store, mut writer) = open(folder.path()).unwrap();
    fs::remove_file(folder.path().join("lock")).unwrap();
    for error in [open(folder.path()).map(drop), open_existing(folder.path()).map(drop)] {
        let error = error.unwrap_err();
        let OpenError::Locked { holder, .. } = &error else { panic!("{error:?}") };
        assert!(holder.pid.is_none_or(|pid| pid == std::process::id()), "{holder:?}");
    }
    writer.commit(commit(1)).unwrap();
    assert_is_after(&store, 1);
    drop(writer);
    store_at(folder.path());
}

#[test]
fn a_writer_that_finds_the_commit_of_another_one_stops_and_the_store_stays_sound() {
    let disk = FaultyDisk::new();
    let (_, mut first) = open_on(&disk);
    first.commit(commit(1)).unwrap();
    // As two processes would, on a file system without locks.
    let (second_store, mut second) = open_on(&disk);
    second.commit(commit(2)).unwrap();
    assert!(matches!(first.commit(commit(2)), Err(CommitError::Taken { .. })));
    assert!(matches!(first.commit(commit(2)), Err(CommitError::MustReopen)));
    assert!(matches!(first.reopen(), Err(OpenError::Taken { .. })));
    // Its close does not write either.
    drop(first);
    second.commit(commit(3)).unwrap();
    assert_is_after(&second_store, 3);
    assert_eq!(verify(&second_store).unwrap().problems, [""; 0]);
    drop(second);
    let (store, _writer) = open_on(&disk);
    assert_is_after(&store, 3);
}

#[test]
fn a_writer_that_only_closes_writes_nothing_over_the_commits_of_another_one() {
    let disk = FaultyDisk::new();
    let (_, mut first) = open_on(&disk);
    first.commit(commit(1)).unwrap();
    let (_, mut second) = open_on(&disk);
    second.commit(commit(2)).unwrap();
    drop(first);
    second.commit(commit(3)).unwrap();
    drop(second);
    let (store, _writer) = open_on(&disk);
    assert_is_after(&store, 3);
    assert_eq!(verify(&store).unwrap().problems, [""; 0]);
}

#[test]
fn a_commit_is_not_answered_when_the_store_is_no_longer_in_its_place() {
    type Harm = (&'static str, fn(&Path));
    let harms: [Harm; 4] = [
        ("the file is deleted", |data| fs::remove_file(data.join("store.redb")).unwrap()),
        ("the folder is deleted", |data| fs::remove_dir_all(data).unwrap()),
        ("the folder is moved", |data| fs::rename(data, data.with_file_name("moved")).unwrap()),
        ("another one is put in its place", |data| {
            fs::rename(data, data.with_file_name("moved")).unwrap();
            store_at(data);
        }),
    ];
    for (what, harm) in harms {
        let parent = tempfile::tempdir().unwrap();
        let data = parent.path().join("data");
        let (_, mut writer) = open(&data).unwrap();
        writer.commit(commit(1)).unwrap();
        harm(&data);
        let error = writer.commit(commit(2)).unwrap_err();
        let CommitError::Missing { .. } = &error else { panic!("{what}: {error:?}") };
        let text = error.to_string();
        assert!(text.contains("is missing: it or its folder was deleted, moved or replaced"), "{text}");
        assert!(matches!(writer.commit(commit(3)), Err(CommitError::MustReopen)), "{what}");
    }
}

#[test]
fn a_store_that_was_moved_away_and_back_goes_on() {
    let parent = tempfile::tempdir().unwrap();
    let (data, elsewhere) = (parent.path().join("data"), parent.path().join("elsewhere"));
    let (store, mut writer) = open(&data).unwrap();
    writer.commit(commit(1)).unwrap();
    fs::rename(&data, &elsewhere).unwrap();
    fs::rename(&elsewhere, &data).unwrap();
    writer.commit(commit(2)).unwrap();
    assert_is_after(&store, 2);
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn only_the_owner_reaches_the_data_folder_and_what_is_in_it() {
    let parent = tempfile::tempdir().unwrap();
    let data = parent.path().join("deep/data");
    store_at(&data);
    drop(CrashGuard::open(&data, []));
    let files = ["store.redb", "lock", "attempts"].map(|name| data.join(name));
    assert_eq!(mode(&data), 0o700);
    assert_eq!(files.each_ref().map(|file| mode(file)), [0o600; 3]);
    // As an earlier version has left them.
    set_mode(&data, 0o755);
    for file in &files {
        set_mode(file, 0o664);
    }
    store_at(&data);
    drop(CrashGuard::open(&data, []));
    assert_eq!(mode(&data), 0o700);
    assert_eq!(files.each_ref().map(|file| mode(file)), [0o600; 3]);
}

#[test]
fn a_folder_that_holds_other_things_keeps_its_mode_and_the_store_in_it_does_not() {
    let folder = tempfile::tempdir().unwrap();
    store_at(folder.path());
    set_mode(folder.path(), 0o755);
    set_mode(&folder.path().join("store.redb"), 0o644);
    fs::write(folder.path().join("tidegate.toml"), "").unwrap();
    store_at(folder.path());
    assert_eq!(mode(folder.path()), 0o755);
    assert_eq!(mode(&folder.path().join("store.redb")), 0o600);
}

#[test]
fn links_in_the_data_folder_are_not_followed() {
    let parent = tempfile::tempdir().unwrap();
    let (data, target) = (parent.path().join("data"), parent.path().join("precious"));
    fs::create_dir(&data).unwrap();
    fs::write(&target, "precious").unwrap();
    for name in ["store.redb.new", "attempts.new"] {
        symlink(&target, data.join(name)).unwrap();
    }
    store_at(&data);
    drop(CrashGuard::open(&data, []));
    assert_eq!(mode(&data.join("attempts")), 0o600);
    fs::remove_file(data.join("store.redb")).unwrap();
    symlink(&target, data.join("store.redb.new")).unwrap();
    assert!(import(&data, &b"no export"[..]).is_err());
    fs::remove_file(data.join("lock")).unwrap();
    symlink(&target, data.join("lock")).unwrap();
    assert!(matches!(open(&data), Err(OpenError::Io { .. })));
    assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
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
    txn.open_table(crate::database::format::META)
        .unwrap()
        .insert("format", &14_u32.to_le_bytes()[..])
        .unwrap();
    txn.commit().unwrap();
    drop(database);
    insta::assert_snapshot!(message(&open(folder.path()).unwrap_err(), folder.path()), @"the store `DATA/store.redb` was written by a newer Tidegate: its format is version 14, and this version reads up to version 13; use the newer Tidegate");
}
