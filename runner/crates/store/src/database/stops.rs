//! `StepStop`: a step that stopped in the last run, with the reason, for commands that read a stopped store. All
//! stops are one record.
//!
//! The record is only for display: older versions leave it unchanged, unknown fields of newer versions are
//! ignored, and an export omits it.

use redb::{ReadableTable, WriteTransaction};
use serde::{Deserialize, Serialize};

use super::format::{Bytes, META, RecordKey};
use super::read::Store;
use crate::error::{ReadError, StoreCause};
use tidegate_model::{Address, Timestamp, shortened};

/// Their key in `meta`.
const KEY: &str = "stopped";
/// The longest reason, in bytes.
const WHY_MAX: usize = 4 << 10;

/// A step that stopped before the end of its run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepStop {
    pub step: Address,
    pub since: Timestamp,
    /// The job that stopped it, as shown to operators: `job 52 (in.ndjson:52)`; `None` if no job did.
    pub at: Option<String>,
    /// Input and index of this job, if the step has one input.
    pub job: Option<(Address, u64)>,
    pub why: String,
}

impl Store {
    /// The steps that stopped in the last run, in order of time.
    pub fn stops(&self) -> Result<Vec<StepStop>, ReadError> {
        self.view(|txn| read(&txn.open_table(META)?))
    }
}

/// Moves the stop of a step to its new address.
pub(crate) fn rename(txn: &WriteTransaction, from: &Address, to: &Address) -> Result<(), StoreCause> {
    let mut meta = txn.open_table(META)?;
    // An unreadable record must not fail the commit.
    let mut all = read(&meta).unwrap_or_default();
    let mut moved = false;
    for stop in all.iter_mut().filter(|stop| stop.step == *from) {
        stop.step = to.clone();
        moved = true;
    }
    if moved {
        meta.insert(KEY, &*RecordKey::Meta(KEY).seal_json(&all)?)?;
    }
    Ok(())
}

pub(crate) fn read(meta: &impl ReadableTable<&'static str, Bytes>) -> Result<Vec<StepStop>, StoreCause> {
    let Some(stored) = meta.get(KEY)? else { return Ok(Vec::new()) };
    RecordKey::Meta(KEY).unseal_json(stored.value())
}

/// `anew`: removes those of the run before. The last reason of a step is kept.
pub(crate) fn write(txn: &WriteTransaction, anew: bool, stops: &[StepStop]) -> Result<(), StoreCause> {
    if stops.is_empty() && !anew {
        return Ok(());
    }
    let mut meta = txn.open_table(META)?;
    // An unreadable record must not fail the commit.
    let mut all = if anew { Vec::new() } else { read(&meta).unwrap_or_default() };
    for stop in stops {
        all.retain(|known| known.step != stop.step);
        all.push(StepStop { why: shortened(stop.why.clone(), WHY_MAX), ..stop.clone() });
    }
    meta.insert(KEY, &*RecordKey::Meta(KEY).seal_json(&all)?)?;
    Ok(())
}
