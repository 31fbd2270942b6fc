//! `QueueInTheMaking`: a queue that is being imported, with the commits of its jobs as in the original log.

use redb::WriteTransaction;
use tidegate_plugin::Payloads;

use super::{Stop, put, wrong};
use crate::codec::block::{Block, VALUE_RAW_BYTES_MAX};
use crate::codec::job_metadata::Details;
use crate::database::changes::write_values;
use crate::database::format;
use crate::database::format::{CommitRecord, QUEUES, QueueRecord};
use crate::error::StoreCause;
use crate::transfer::export_format::{JobLine, OriginLine, QueueLine};
use tidegate_model::{Address, Origins, Timestamp};

/// Bytes of one commit's jobs that are collected.
const GROUP_BYTES: usize = 4 * VALUE_RAW_BYTES_MAX;

/// A queue whose jobs are being imported.
#[derive(Debug)]
pub(crate) struct QueueInTheMaking {
    address: Address,
    id: u32,
    /// The record of the written jobs.
    record: QueueRecord,
    /// The index of the next job, and of the last one.
    next: u64,
    head: u64,
    /// The commit of the unwritten jobs.
    commit: CommitRecord,
    blocks: Vec<Block>,
    blocks_bytes: usize,
    run: Run,
}

/// Jobs that one step made, or no step.
#[derive(Debug, Default)]
struct Run {
    step: Option<Address>,
    /// The inputs of each job, in order of name.
    inputs: Vec<Vec<(String, u64)>>,
    payloads: Payloads,
    carried: Payloads,
}

impl QueueInTheMaking {
    pub(crate) fn new(txn: &WriteTransaction, line: &QueueLine) -> Result<Self, Stop> {
        let QueueLine { queue, first, head } = line;
        if *first == 0 || *first - 1 > *head || *head == u64::MAX {
            return wrong(format!("queue `{queue}` cannot go from {first} to {head}"));
        }
        let id = format::intern(txn, queue)?;
        let record = QueueRecord { head: first - 1, first: *first, bytes: 0 };
        // A second line of this queue is then refused.
        put(txn, QUEUES, id, &record.seal(id))?;
        Ok(Self {
            address: queue.clone(),
            id,
            record,
            next: *first,
            head: *head,
            commit: CommitRecord { number: 0, time: Timestamp(0) },
            blocks: Vec::new(),
            blocks_bytes: 0,
            run: Run::default(),
        })
    }

    pub(crate) fn take(&mut self, txn: &WriteTransaction, job: &JobLine<'_>) -> Result<(), Stop> {
        let Self { address, next, head, .. } = self;
        if *job.queue != *address {
            return wrong(format!("a job of `{}` is among those of `{address}`", job.queue));
        }
        if job.index != *next || *next > *head {
            return wrong(if *next > *head {
                format!("queue `{address}` must end at {head}, but job {} follows", job.index)
            } else {
                format!("queue `{address}`: job {next} must follow, but job {} does", job.index)
            });
        }
        let commit = CommitRecord { number: job.transaction, time: Timestamp(job.time) };
        if commit != self.commit || self.blocks_bytes >= GROUP_BYTES {
            self.write(txn)?;
            self.commit = commit;
        }
        let step = job.origin.as_ref().map(|origin| &origin.step);
        if step != self.run.step.as_ref() || self.run.byte_len() >= VALUE_RAW_BYTES_MAX {
            self.end_run();
            self.run.step = step.cloned();
        }
        self.run.take(job)?;
        self.next += 1;
        Ok(())
    }

    fn end_run(&mut self) {
        let run = std::mem::take(&mut self.run);
        if !run.payloads.is_empty() {
            self.blocks_bytes += run.byte_len();
            self.blocks.push(run.encode());
        }
    }

    /// Writes the jobs of one commit.
    fn write(&mut self, txn: &WriteTransaction) -> Result<(), StoreCause> {
        // Jobs of the same step may follow it.
        let step = self.run.step.clone();
        self.end_run();
        self.run.step = step;
        let sections: Vec<_> = self.blocks.iter().flat_map(Block::sections).collect();
        write_values(txn, self.id, &mut self.record, &sections, self.commit)?;
        self.blocks.clear();
        self.blocks_bytes = 0;
        Ok(())
    }

    pub(crate) fn finish(mut self, txn: &WriteTransaction) -> Result<(), Stop> {
        let Self { address, next, head, .. } = &self;
        if *next != *head + 1 {
            let last = next - 1;
            return wrong(format!("queue `{address}` must end at {head}, but ended at {last}"));
        }
        self.write(txn)?;
        txn.open_table(QUEUES)?.insert(self.id, &*self.record.seal(self.id))?;
        Ok(())
    }
}

impl Run {
    fn byte_len(&self) -> usize {
        self.payloads.byte_len() + self.carried.byte_len()
    }

    fn take(&mut self, job: &JobLine<'_>) -> Result<(), Stop> {
        if let Some(OriginLine { inputs, .. }) = &job.origin {
            let in_order = inputs.windows(2).all(|pair| pair[0].0 < pair[1].0);
            if inputs.is_empty() || !in_order || inputs.iter().any(|(_, index)| *index == 0) {
                return wrong("the inputs of the origin are not in order of name, or have no index");
            }
            self.inputs.push(inputs.clone());
        }
        self.payloads.push(job.payload.bytes());
        self.carried.push(job.carried.as_ref().map_or(b"", |carried| carried.bytes()));
        Ok(())
    }

    fn encode(self) -> Block {
        let origins = self.step.map(|step| {
            let mut names: Vec<_> = self.inputs.iter().flatten().map(|(name, _)| name.as_str()).collect();
            names.sort_unstable();
            names.dedup();
            let mut origins = Origins::new(step, names.iter().map(ToString::to_string).collect());
            for inputs in &self.inputs {
                let index = |name: &&str| {
                    let given = inputs.iter().find(|(given, _)| given == name);
                    given.map_or(0, |(_, index)| *index)
                };
                origins.push(&names.iter().map(index).collect::<Vec<_>>());
            }
            origins
        });
        Block::encode(&self.payloads, Details { origins: origins.as_ref(), carried: Some(&self.carried) })
    }
}
