//! Checked scripts: remembers which scripts compile, so that a reload compiles only those that have changed, and a
//! script of many steps is compiled once.

use std::collections::HashMap;
use std::path::Path;

use twox_hash::XxHash3_128;

use super::entry::EntryPoint;
use super::mentions::Mentions;
use tidegate_config::{Limits, Script};
use tidegate_model::sync::Mutex;

/// Maximum number of remembered scripts. Above it all are forgotten.
const CHECKED_MAX: usize = 10_000;

/// Mentions of scripts that compile, by the hash of everything that decides about it.
static CHECKED: Mutex<Option<HashMap<u128, Mentions>>> = Mutex::new(None);

/// Hash of a script with its imports, limits and entry function.
pub(crate) fn key(script: &Script, limits: &Limits, entry: EntryPoint) -> u128 {
    let mut content = Vec::with_capacity(script.text.len() + 64);
    let mut add = |bytes: &[u8]| {
        content.extend((bytes.len() as u64).to_le_bytes());
        content.extend(bytes);
    };
    add(path(&script.path));
    add(script.text.as_bytes());
    for import in &script.imports {
        add(path(&import.path));
        add(import.text.as_bytes());
    }
    let Limits { operations, memory, depth } = *limits;
    for number in [operations, memory, depth as u64, entry as u64] {
        add(&number.to_le_bytes());
    }
    XxHash3_128::oneshot(&content)
}

fn path(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}

pub(crate) fn get(key: u128) -> Option<Mentions> {
    CHECKED.lock().as_ref()?.get(&key).cloned()
}

pub(crate) fn remember(key: u128, mentions: Mentions) {
    let mut checked = CHECKED.lock();
    let checked = checked.get_or_insert_default();
    if checked.len() >= CHECKED_MAX {
        checked.clear();
    }
    checked.insert(key, mentions);
}
