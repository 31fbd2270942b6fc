//! Queue tables: keep the rows of the lookup tables whose rows are the newest jobs of queues.
//!
//! A table is built from the store before the first step that reads it starts. Later the committer adds the jobs of
//! each commit before it reports the commit. So no attempt on a later job misses them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tidegate_components::table_rows::{RowCounts, TableRows};
use tidegate_config::{Configuration, QueueRef, QueueTable};
use tidegate_model::sync::Mutex;
use tidegate_model::{Address, NamedKind, RenamedPart, log_target};
use tidegate_plugin::Payloads;
use tidegate_store::{ReadError, Store};

/// Maximum jobs and bytes of one read while a table is built.
const READ_JOBS: usize = 4096;
const READ_BYTES: usize = 1 << 20;

/// Time between two reports of a table that is being built.
const REPORT_EVERY: Duration = Duration::from_secs(5);

/// All tables of the generations that any step follows.
#[derive(Debug, Default)]
pub(crate) struct QueueTables {
    followed: Mutex<Vec<FollowedTable>>,
    /// A bit for each queue of a table. Others may have the same bit.
    queues: AtomicU64,
}

#[derive(Clone, Debug)]
struct FollowedTable {
    queue: QueueRef,
    rows: Arc<TableRows>,
    /// The last configuration that has the table. Steps of an earlier one may still read it.
    of: Weak<Configuration>,
    /// A later configuration does not have the table. Its queue may have deleted jobs since, so that a configuration
    /// that has the table again builds it anew.
    is_left: bool,
}

/// The tables, for the steps of one configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TablesOf<'c> {
    pub(crate) tables: &'c QueueTables,
    pub(crate) configuration: &'c Configuration,
}

impl TablesOf<'_> {
    pub(crate) fn rows(&self, table: &QueueTable) -> Option<Arc<TableRows>> {
        let queue = queue_of(self.configuration, table)?;
        self.tables.find(queue, table).map(|followed| followed.rows)
    }
}

impl QueueTables {
    /// Builds the tables of `configuration` that are not there yet. `renamed`: parts whose names are still the former
    /// ones in the store. `ending` cancels that.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(crate) fn build(
        &self,
        configuration: &Arc<Configuration>,
        renamed: &[RenamedPart],
        store: &Store,
        ending: &AtomicBool,
    ) -> Result<(), ReadError> {
        for (_, table) in configuration.queue_tables() {
            let Some(queue) = queue_of(configuration, table) else { continue };
            if self.find(queue, table).is_some_and(|followed| !followed.is_left) {
                continue;
            }
            let rows = Arc::new(TableRows::new(table.clone()));
            if let Some(present) = present_name(&table.queue, renamed) {
                catch_up(&rows, present, store, Some(ending))?;
            }
            let of = Arc::downgrade(configuration);
            let followed = FollowedTable { queue, rows, of, is_left: false };
            self.change(|tables| tables.push(followed));
        }
        Ok(())
    }

    /// Follows the tables of the current configuration up to the last commit, and drops those that no step reads.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(crate) fn follow(
        &self,
        configuration: &Arc<Configuration>,
        store: &Store,
        ending: &AtomicBool,
    ) -> Result<(), ReadError> {
        self.build(configuration, &[], store, ending)?;
        for (_, table) in configuration.queue_tables() {
            let Some(queue) = queue_of(configuration, table) else { continue };
            let mut rows = None;
            let mut followed = self.followed.lock();
            for followed in followed.iter_mut().filter(|one| !one.is_left && one.is(queue, table)) {
                followed.of = Arc::downgrade(configuration);
                rows = Some(Arc::clone(&followed.rows));
            }
            drop(followed);
            if let Some(rows) = rows {
                catch_up(&rows, &table.queue, store, None)?;
            }
        }
        let current = Arc::downgrade(configuration);
        self.change(|tables| {
            tables.retain(|followed| followed.of.strong_count() > 0);
            for followed in tables {
                followed.is_left = !followed.of.ptr_eq(&current);
            }
        });
        Ok(())
    }

    /// Whether the queue may have a table; without a lock.
    pub(crate) fn may_follow(&self, queue: QueueRef) -> bool {
        self.queues.load(Ordering::Acquire) & bit(queue) != 0
    }

    /// Adds committed jobs of a queue to its tables. `address`: its present one.
    pub(crate) fn add(
        &self,
        (queue, address): (QueueRef, &Address),
        (first, jobs): (u64, &Payloads),
        store: &Store,
    ) {
        let followed: Vec<Arc<TableRows>> = {
            let tables = self.followed.lock();
            let of_queue = tables.iter().filter(|followed| followed.queue == queue);
            of_queue.map(|followed| Arc::clone(&followed.rows)).collect()
        };
        for rows in followed {
            let before = rows.counts();
            if before.next < first
                && let Err(error) = catch_up(&rows, address, store, None)
            {
                // The next jobs try it again.
                tracing::error!(target: log_target::ENGINE, queue = %address, %error, "a table misses jobs");
                continue;
            }
            rows.add(first, jobs);
            report(&rows, before);
        }
    }

    /// Builds the tables of a queue anew: jobs of it were deleted.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(crate) fn rebuild(
        &self,
        (queue, address): (QueueRef, &Address),
        store: &Store,
    ) -> Result<(), ReadError> {
        let followed = self.followed.lock().clone();
        for FollowedTable { rows, .. } in followed.iter().filter(|followed| followed.queue == queue) {
            let fresh = TableRows::new(rows.table().clone());
            catch_up(&fresh, address, store, None)?;
            rows.replace(&fresh);
        }
        Ok(())
    }

    /// The counts of a table of `configuration`; `None` if it is not built.
    pub(crate) fn counts(&self, configuration: &Configuration, table: &QueueTable) -> Option<RowCounts> {
        TablesOf { tables: self, configuration }.rows(table).map(|rows| rows.counts())
    }

    fn change(&self, change: impl FnOnce(&mut Vec<FollowedTable>)) {
        let mut tables = self.followed.lock();
        change(&mut tables);
        let queues = tables.iter().fold(0, |queues, followed| queues | bit(followed.queue));
        self.queues.store(queues, Ordering::Release);
    }

    /// The table; one that was left only if there is no other.
    fn find(&self, queue: QueueRef, table: &QueueTable) -> Option<FollowedTable> {
        let followed = self.followed.lock();
        followed.iter().filter(|one| one.is(queue, table)).min_by_key(|one| one.is_left).cloned()
    }
}

impl FollowedTable {
    /// Whether it has the rows of `table`. The queue may have had another name.
    fn is(&self, queue: QueueRef, table: &QueueTable) -> bool {
        let QueueTable { queue: _, key, tombstone, max_size } = table;
        let own = self.rows.table();
        self.queue == queue && (&own.key, &own.tombstone, &own.max_size) == (key, tombstone, max_size)
    }
}

fn bit(QueueRef(queue): QueueRef) -> u64 {
    1 << (queue % 64)
}

fn queue_of(configuration: &Configuration, table: &QueueTable) -> Option<QueueRef> {
    configuration.queues.position(|queue| queue.address == table.queue).map(QueueRef)
}

/// The name that a queue has in the store until it is renamed; `None` if the queue that has its name now is another one.
fn present_name<'n>(queue: &'n Address, renamed: &'n [RenamedPart]) -> Option<&'n Address> {
    let mut queues = renamed.iter().filter(|part| part.kind == NamedKind::Endpoint);
    match queues.clone().find(|part| part.to == *queue) {
        Some(part) => Some(&part.from),
        None => queues.all(|part| part.from != *queue).then_some(queue),
    }
}

/// Adds the jobs of the store that the table does not have.
fn catch_up(
    rows: &TableRows,
    queue: &Address,
    store: &Store,
    ending: Option<&AtomicBool>,
) -> Result<(), ReadError> {
    let (before, mut reported) = (rows.counts(), Instant::now());
    if let Some(state) = store.queue(queue)? {
        if before.next == 1 && state.first > 1 && state.jobs() > 0 {
            tracing::info!(target: log_target::ENGINE, queue = %queue, first = state.first,
                "the queue has deleted its earlier jobs, so the table begins with this one");
        }
        rows.skip_to(state.first);
    }
    while !ending.is_some_and(|ending| ending.load(Ordering::Acquire)) {
        let next = rows.counts().next;
        let Some(batch) = store.read(queue, next, READ_JOBS, READ_BYTES)? else { break };
        rows.add(next, &batch.payloads);
        if reported.elapsed() >= REPORT_EVERY {
            reported = Instant::now();
            let counts = rows.counts();
            tracing::info!(target: log_target::ENGINE, queue = %queue, jobs = counts.next - 1, rows = counts.rows,
                "building a table");
        }
    }
    report(rows, before);
    Ok(())
}

/// Logs the first jobs that are no rows, and a table that has become too large.
fn report(rows: &TableRows, before: RowCounts) {
    let (now, table) = (rows.counts(), rows.table());
    if before.ignored == 0 && now.ignored > 0 {
        tracing::warn!(target: log_target::ENGINE, queue = %table.queue, key = %table.key, jobs = now.ignored,
            "jobs without the key are no rows of the table; `status` counts them");
    }
    if now.is_full && !before.is_full {
        tracing::error!(target: log_target::ENGINE, queue = %table.queue, key = %table.key, max_size = table.max_size,
            "the table exceeds its `max_size`: attempts that read it fail until it is built again with a larger one");
    }
}

#[cfg(test)]
mod tests;
