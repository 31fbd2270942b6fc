//! Job buffer: keeps jobs of a queued step in memory, and knows the rows of the others.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::claims::claims_ahead;
use super::counts::JobLocation;
use super::job_attributes::AttributeExtractor;
use super::row_index::RowIndex;
use crate::batch::input::{BatchInput, BatchSlice, RedeliveredJob};
use crate::batch::job_builder::JobBuilder;
use crate::commit::request::SourcePositions;
use tidegate_config::{Configuration, Input, Queuer, Step};
use tidegate_dispatch::{JobKey, ReadId};
use tidegate_model::{Address, Batch, Timestamp};
use tidegate_store::{ParkedId, ParkedKey};

/// Maximum bytes of buffered jobs that can be read again.
const KEPT_BYTES: usize = 8 << 20;

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent settings of a step")]
pub(crate) struct JobBuffer {
    step: Address,
    pub(crate) attributes: AttributeExtractor,
    /// Whether each job can be read again: a queue allows that, a source does not.
    from_queue: bool,
    /// Blocks by the index of the first job.
    blocks: BTreeMap<u64, Block>,
    bytes: usize,
    /// Blocks of a source, kept until their read is released.
    reads: HashMap<ReadId, u64>,
    /// Rows of parked jobs.
    rows: RowIndex,
    /// Source positions of the reads that are not in a commit yet.
    pub(crate) places: SourcePositions,
    pub(crate) gatherer: JobBuilder,
    /// Whether its batches run on the blocking pool, because they may block.
    pub(crate) pool: bool,
    /// Whether results are delivered in the order of the input.
    in_order: bool,
    /// Whether its jobs are claimed before they have a place to run.
    pub(crate) claims: bool,
    /// Number of uses of blocks so far.
    uses: u64,
}

/// Jobs of one read.
#[derive(Debug)]
struct Block {
    batch: Arc<Batch>,
    read: Timestamp,
    /// Number of the last use.
    used: u64,
}

/// Jobs to read before a batch can be formed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct MissingJobs {
    /// Indices, ascending.
    pub(crate) fresh: Vec<u64>,
    pub(crate) rows: Vec<ParkedKey>,
}

impl JobBuffer {
    pub(crate) fn new(configuration: &Configuration, step: &Step, queuer: &Queuer) -> Self {
        Self {
            step: step.address.clone(),
            attributes: AttributeExtractor::new(queuer),
            from_queue: step.inputs.iter().all(|input| matches!(input.input, Input::Queue(_))),
            blocks: BTreeMap::new(),
            bytes: 0,
            reads: HashMap::new(),
            rows: RowIndex::default(),
            places: Vec::new(),
            gatherer: JobBuilder::new(configuration, step),
            pool: step.acts_outside(),
            in_order: queuer.ordered,
            claims: claims_ahead(step) > 0,
            uses: 0,
        }
    }

    /// Buffers the jobs of a read, within the limit if they can be read again: the first ones that were read.
    pub(crate) fn insert(&mut self, read: ReadId, batch: &Arc<Batch>, now: Timestamp) {
        if !self.from_queue {
            self.reads.insert(read, batch.first);
        } else if self.bytes + batch.payloads.byte_len() > KEPT_BYTES {
            return;
        }
        self.keep(batch, now);
    }

    /// Buffers the blocks that were read for a batch, in place of those that were used the longest time ago: the jobs
    /// behind those of the batch are likely to go next.
    fn keep_fetched(&mut self, fetched: &[Arc<Batch>], now: Timestamp) {
        if !self.from_queue {
            return;
        }
        for batch in fetched {
            let bytes = batch.payloads.byte_len();
            while self.bytes + bytes > KEPT_BYTES {
                let oldest = self.blocks.iter().min_by_key(|(_, block)| block.used).map(|(&first, _)| first);
                let Some(block) = oldest.and_then(|first| self.blocks.remove(&first)) else { break };
                self.bytes -= block.batch.payloads.byte_len();
            }
            self.keep(batch, now);
        }
    }

    fn keep(&mut self, batch: &Arc<Batch>, read: Timestamp) {
        self.uses += 1;
        let block = Block { batch: Arc::clone(batch), read, used: self.uses };
        self.bytes += batch.payloads.byte_len();
        if let Some(before) = self.blocks.insert(batch.first, block) {
            self.bytes -= before.batch.payloads.byte_len();
        }
    }

    /// Releases a read.
    pub(crate) fn release(&mut self, read: ReadId) {
        let Some(first) = self.reads.remove(&read) else { return };
        if let Some(block) = self.blocks.remove(&first) {
            self.bytes -= block.batch.payloads.byte_len();
        }
    }

    /// Releases the jobs up to here, which are finished.
    pub(crate) fn forget_up_to(&mut self, position: u64) {
        while let Some(entry) =
            self.blocks.first_entry().filter(|entry| entry.get().batch.end() <= position + 1)
        {
            if !self.from_queue {
                return;
            }
            self.bytes -= entry.remove().batch.payloads.byte_len();
        }
    }

    pub(crate) fn row(&self, key: JobKey) -> Option<ParkedKey> {
        Some(self.rows.get(key)?.of(&self.step))
    }

    /// Records the row of a parked job.
    pub(crate) fn set_row(&mut self, key: JobKey, row: ParkedId) {
        self.rows.insert(key, row);
    }

    /// Location of a job. A queue records the time of arrival itself.
    pub(crate) fn locate(&self, key: JobKey) -> JobLocation {
        let row = self.rows.get(key);
        let block = if self.from_queue || !key.is_fresh() { None } else { self.block(key.0) };
        JobLocation { key, row, read: block.map(|block| block.read) }
    }

    /// Rows of all parked jobs.
    pub(crate) fn all_rows(&self) -> HashMap<JobKey, ParkedId> {
        self.rows.iter().collect()
    }

    /// Jobs in these rows. Walks all parked jobs.
    pub(crate) fn find(&self, rows: &[ParkedId]) -> HashMap<ParkedId, JobKey> {
        let wanted: HashSet<&ParkedId> = rows.iter().collect();
        let all = self.rows.iter().map(|(key, row)| (row, key));
        all.filter(|(row, _)| wanted.contains(row)).collect()
    }

    /// Removes a finished job.
    pub(crate) fn leaves(&mut self, key: JobKey) {
        self.rows.remove(key);
    }

    /// Jobs to read for a batch of these jobs.
    pub(crate) fn missing(&self, jobs: &[JobKey]) -> MissingJobs {
        let mut missing = MissingJobs::default();
        for &key in jobs {
            match self.row(key) {
                Some(row) => missing.rows.push(row),
                None if self.block(key.0).is_none() => missing.fresh.push(key.0),
                None => {}
            }
        }
        missing.fresh.sort_unstable();
        missing
    }

    /// The blocks of these jobs. Until the missing jobs of their batch are read, the buffer may drop them for others.
    pub(crate) fn blocks_of(&self, jobs: &[JobKey]) -> Vec<Arc<Batch>> {
        let fresh = jobs.iter().filter(|&&key| self.rows.get(key).is_none());
        let blocks: BTreeMap<u64, &Block> =
            fresh.filter_map(|key| self.block(key.0)).map(|block| (block.batch.first, block)).collect();
        blocks.into_values().map(|block| Arc::clone(&block.batch)).collect()
    }

    /// Builds a batch of these jobs with the ones that were read for it, and keeps the blocks of those. `held`: the
    /// blocks of the other jobs, as [`Self::blocks_of`]. Returns `None` if a job is missing.
    pub(crate) fn build_batch(
        &mut self,
        jobs: &[JobKey],
        gathered: FetchedJobs,
        held: &[Arc<Batch>],
        now: Timestamp,
    ) -> Option<BatchInput> {
        let FetchedJobs { blocks, rows } = gathered;
        let work = self.join(jobs, [&blocks, held], rows)?;
        self.keep_fetched(&blocks, now);
        Some(work)
    }

    fn join(
        &mut self,
        jobs: &[JobKey],
        blocks: [&[Arc<Batch>]; 2],
        rows: Vec<RedeliveredJob>,
    ) -> Option<BatchInput> {
        let places: HashMap<ParkedId, usize> =
            rows.iter().enumerate().map(|(at, row)| (row.key.id, at)).collect();
        let returned: Arc<[RedeliveredJob]> = rows.into();
        let payloads = returned.iter().map(|returned| &*returned.job.payload).collect();
        let of_rows = Arc::new(Batch::json(1, payloads));
        let mut work = BatchInput { is_picked: true, in_order: self.in_order, ..BatchInput::default() };
        for &key in jobs {
            let portion = if let Some(row) = self.rows.get(key) {
                let skip = *places.get(&row)?;
                let (batch, returned) = (Arc::clone(&of_rows), Some(Arc::clone(&returned)));
                BatchSlice { input: None, batch, skip, jobs: 1, returned }
            } else {
                let found =
                    blocks.into_iter().flatten().find(|batch| (batch.first..batch.end()).contains(&key.0));
                let batch = match found {
                    Some(found) => Arc::clone(found),
                    None => self.use_block(key.0)?,
                };
                let skip = usize::try_from(key.0 - batch.first).ok()?;
                BatchSlice { input: Some(0), batch, skip, jobs: 1, returned: None }
            };
            work.jobs += 1;
            work.add(portion);
        }
        Some(work)
    }

    fn use_block(&mut self, index: u64) -> Option<Arc<Batch>> {
        let (_, block) = self.blocks.range_mut(..=index).next_back()?;
        self.uses += 1;
        block.used = self.uses;
        (index < block.batch.end()).then(|| Arc::clone(&block.batch))
    }

    fn block(&self, index: u64) -> Option<&Block> {
        let (_, block) = self.blocks.range(..=index).next_back()?;
        (index < block.batch.end()).then_some(block)
    }
}

/// Jobs that were fetched for a batch.
#[derive(Debug, Default)]
pub(crate) struct FetchedJobs {
    pub(crate) blocks: Vec<Arc<Batch>>,
    pub(crate) rows: Vec<RedeliveredJob>,
}

impl MissingJobs {
    pub(crate) fn is_empty(&self) -> bool {
        self.fresh.is_empty() && self.rows.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_config::{LoadOptions, load};
    use tidegate_plugin::Payloads;

    const PIPELINE: &str = "[pipeline]\nname = \"p\"\n[queue.in]\n[sink.out]\ntype = \"null\"\n\
        [step.act]\nfrom = \"in\"\nrun = \"builtin:http\"\nto = \"out\"\nhttp = { url = \"http://localhost/\" }\n";

    fn buffer() -> JobBuffer {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("p.toml"), PIPELINE).unwrap();
        let configuration = load(folder.path(), &LoadOptions::default()).finish().unwrap().0;
        let step = &configuration.steps[0];
        JobBuffer::new(&configuration, step, step.picks().unwrap())
    }

    /// Block of ten jobs with a mebibyte together.
    fn block(first: u64) -> Arc<Batch> {
        let payload = vec![b'7'; (1 << 20) / 10];
        let payloads: Payloads = std::iter::repeat_n(payload.as_slice(), 10).collect();
        Arc::new(Batch::json(first, payloads))
    }

    #[test]
    fn a_batch_whose_other_jobs_are_being_read_keeps_its_blocks() {
        let mut buffer = buffer();
        buffer.insert(ReadId(0), &block(1), Timestamp(0));
        let jobs = [JobKey::fresh(5), JobKey::fresh(205)];
        assert_eq!(buffer.missing(&jobs).fresh, [205]);
        let held = buffer.blocks_of(&jobs);
        // Meanwhile other batches need all the room of the buffer.
        for first in (11..200).step_by(10) {
            let fetched = FetchedJobs { blocks: vec![block(first)], rows: Vec::new() };
            assert!(buffer.build_batch(&[JobKey::fresh(first)], fetched, &[], Timestamp(0)).is_some());
        }
        assert_eq!(buffer.missing(&jobs).fresh, [5, 205]);
        let fetched = FetchedJobs { blocks: vec![block(201)], rows: Vec::new() };
        assert_eq!(buffer.build_batch(&jobs, fetched, &held, Timestamp(0)).unwrap().jobs, 2);
    }

    #[test]
    fn a_block_of_a_deep_backlog_is_read_once_for_all_its_jobs() {
        let mut buffer = buffer();
        for read in 0..20 {
            buffer.insert(ReadId(read), &block(1 + 10 * read), Timestamp(0));
        }
        let mut fetched = 0;
        for index in 1..=200 {
            let jobs = [JobKey::fresh(index)];
            let missing = buffer.missing(&jobs);
            fetched += missing.fresh.len();
            let blocks = missing.fresh.iter().map(|index| block(index - (index - 1) % 10)).collect();
            let fetched = FetchedJobs { blocks, rows: Vec::new() };
            assert_eq!(buffer.build_batch(&jobs, fetched, &[], Timestamp(0)).unwrap().jobs, 1);
            buffer.forget_up_to(index);
            assert!(buffer.bytes <= KEPT_BYTES);
        }
        // Eight blocks fit into the buffer at the beginning.
        assert!(fetched <= 13, "{fetched} blocks were read");
    }
}
