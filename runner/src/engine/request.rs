//! What somebody asks of a run from outside, beside looking.

use crossbeam_channel::Sender;
use serde::{Deserialize, Serialize};

use crate::words::Address;

/// A change that somebody wants.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Append these jobs, JSON each, to a queue; all or none.
    Push { queue: Address, jobs: Vec<String> },
    /// Put the jobs of these errors back through the steps that they failed in.
    Retry { queue: Address, errors: Vec<u64> },
    /// Take these errors off an error queue.
    Drop { queue: Address, errors: Vec<u64> },
    /// Run a step again from here on: by input, the index of the first job. An input that is not
    /// named stays where it is.
    Replay { step: Address, from: Vec<(Address, u64)> },
}

/// What a request has come to. It is durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Granted {
    /// So many jobs stand at the end of the queue.
    Pushed {
        jobs: u64,
    },
    /// So many jobs were put back.
    Retried {
        jobs: u64,
    },
    Dropped {
        jobs: u64,
    },
    /// The step goes on at these indices of its inputs.
    Replayed {
        from: Vec<(Address, u64)>,
    },
}

/// A request, and where the answer goes: why not is a sentence.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) request: Request,
    pub(super) reply: Sender<Result<Granted, String>>,
}

impl Asked {
    pub(super) fn answer(&self, answer: Result<Granted, String>) {
        // Who asked may have gone away.
        let _ = self.reply.send(answer);
    }
}
