//! Steps that stopped in the last run, and why, for the commands that look into a store at rest. They are
//! few, and stand in one record.
//!
//! Nothing depends on them but what people read: an older version leaves the record as it is, a field that a
//! newer one adds is passed over, and an export leaves them out.

use redb::{ReadableTable, WriteTransaction};
use serde::{Deserialize, Serialize};

use super::format::{Bytes, META, RecordKey};
use super::read::Store;
use crate::error::{Cause, ReadError};
use tidegate_model::{Address, Timestamp, shortened};

/// Where they stand in `meta`.
const KEY: &str = "stopped";
/// The longest reason, in bytes.
const WHY_MAX: usize = 4 << 10;

/// A step that stopped before the end of its run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepStop {
    pub step: Address,
    pub since: Timestamp,
    /// The job that stopped it, as people know it: `job 52 (in.ndjson:52)`; `None` where it was none.
    pub at: Option<String>,
    /// Input and index of this job, where the step has one input.
    pub job: Option<(Address, u64)>,
    pub why: String,
}

impl Store {
    /// The steps that stopped in the last run, in the order in which they did.
    pub fn stops(&self) -> Result<Vec<StepStop>, ReadError> {
        self.view(|txn| read(&txn.open_table(META)?))
    }
}

pub(crate) fn read(meta: &impl ReadableTable<&'static str, Bytes>) -> Result<Vec<StepStop>, Cause> {
    let Some(stored) = meta.get(KEY)? else { return Ok(Vec::new()) };
    RecordKey::Meta(KEY).unseal_json(stored.value())
}

/// `anew`: forgets those of the run before. Of one step the first reason stays.
pub(crate) fn write(txn: &WriteTransaction, anew: bool, stops: &[StepStop]) -> Result<(), Cause> {
    if stops.is_empty() && !anew {
        return Ok(());
    }
    let mut meta = txn.open_table(META)?;
    // A note that cannot be read is no reason to fail the commit.
    let mut all = if anew { Vec::new() } else { read(&meta).unwrap_or_default() };
    for stop in stops {
        if all.iter().all(|known| known.step != stop.step) {
            all.push(StepStop { why: shortened(stop.why.clone(), WHY_MAX), ..stop.clone() });
        }
    }
    meta.insert(KEY, &*RecordKey::Meta(KEY).seal_json(&all)?)?;
    Ok(())
}
