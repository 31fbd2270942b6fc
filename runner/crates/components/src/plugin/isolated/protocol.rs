//! Frames: the protocol between the runner and a process that runs a plugin.
//!
//! Three channels connect them. The runner sends batches of jobs over a socket, and the process answers with
//! one word when a batch is done. The process writes the outcome of each job into a shared file in memory at
//! once. So no outcome is lost when the process dies, and no wakeup is needed. It sends the lines of its log
//! over a second socket, at any time. All its data is sealed (see `seal`). Both ends are the same executable,
//! so the format needs no version.

use std::io::{self, Read, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_plugin::{Cause, Failure, FailureKind, Job, Level, Outputs, Payloads, Place};

use super::seal::Seals;
use crate::plugin::description::Description;
use tidegate_model::TokenKey;

/// The streams of frames: words on the socket, lines of the log, and one stream per batch.
pub(crate) const WORDS: u64 = 0;
pub(crate) const LINES: u64 = 1;
pub(crate) const BATCHES: u64 = 2;

/// The task of a process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ChildRole {
    /// To describe the library at this path.
    Describe { path: PathBuf, seal: u64 },
    /// To run a step of it.
    Run(Box<StepSetup>),
}

impl ChildRole {
    /// The seal of the frames of the process.
    pub(crate) fn seal(&self) -> u64 {
        match self {
            Self::Describe { seal, .. } => *seal,
            Self::Run(setup) => setup.seal,
        }
    }
}

/// The first message to a process that runs a step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StepSetup {
    pub(crate) path: PathBuf,
    pub(crate) offer: String,
    pub(crate) named: String,
    pub(crate) pipeline: String,
    pub(crate) step: String,
    pub(crate) config: serde_json::Value,
    pub(crate) bindings: Vec<String>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) memory: u64,
    pub(crate) earlier: u32,
    /// The seal of the frames of the process.
    pub(crate) seal: u64,
    /// The process creates the tokens of jobs that ask for one.
    #[serde(skip, default = "no_key")]
    pub(crate) token_key: TokenKey,
}

fn no_key() -> TokenKey {
    TokenKey::NONE
}

/// A batch is done, the step is set up, or the library is described.
pub(crate) const DONE: u8 = 1;
/// A batch ended early, after at least one job.
pub(crate) const CUT: u8 = 3;
/// The order failed; the failure is in the shared file.
pub(crate) const REFUSED: u8 = 2;

pub(crate) fn send_order(to: &mut impl Write, order: &ChildRole, image: &[u8]) -> io::Result<()> {
    let text = serde_json::to_vec(order).map_err(io::Error::other)?;
    let token_key = match order {
        ChildRole::Describe { .. } => &[][..],
        ChildRole::Run(setup) => setup.token_key.reveal(),
    };
    for part in [&text, token_key, image] {
        to.write_all(&(part.len() as u64).to_le_bytes())?;
        to.write_all(part)?;
    }
    to.flush()
}

pub(crate) fn receive_order(from: &mut impl Read) -> io::Result<(ChildRole, Vec<u8>)> {
    let text = receive_part(from)?;
    let mut order = serde_json::from_slice(&text).map_err(io::Error::other)?;
    let token_key = receive_part(from)?;
    if let ChildRole::Run(setup) = &mut order {
        setup.token_key = TokenKey::new(&token_key).unwrap_or(TokenKey::NONE);
    }
    Ok((order, receive_part(from)?))
}

fn receive_part(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 8];
    from.read_exact(&mut length)?;
    let mut part = Vec::new();
    from.take(u64::from_le_bytes(length)).read_to_end(&mut part)?;
    Ok(part)
}

/// The jobs of a batch.
#[derive(Debug, Default)]
pub(crate) struct BatchFrame {
    heads: Vec<Head>,
    payloads: Payloads,
}

#[derive(Clone, Copy, Debug)]
struct Head {
    index: u64,
    attempt: u32,
    now_ms: i64,
    hash: u128,
    piece: u32,
    /// Time of the attempt that was used before.
    spent_nanos: u64,
}

const HEAD: usize = 8 + 4 + 8 + 16 + 4 + 8 + 8;

impl BatchFrame {
    pub(crate) fn len(&self) -> usize {
        self.heads.len()
    }

    /// Adds a job, or a piece of one that earlier processors made; the attempt has used `spent` so far.
    pub(crate) fn push(&mut self, job: &Job<'_>, spent: Duration) {
        let Job { index, payload, attempt, now_ms, hash, piece, .. } = *job;
        self.heads.push(Head { index, attempt, now_ms, hash, piece, spent_nanos: nanos(spent) });
        self.payloads.push(payload);
    }

    pub(crate) fn get(&self, position: usize) -> Option<Job<'_>> {
        let Head { index, attempt, now_ms, hash, piece, .. } = *self.heads.get(position)?;
        let payload = self.payloads.get(position)?;
        Some(Job::new(index, payload).attempted(attempt, now_ms).hashed(hash).with_piece(piece, payload))
    }

    /// Time of the attempt on the job at `position` that was used before.
    pub(crate) fn spent(&self, position: usize) -> Duration {
        self.heads.get(position).map_or(Duration::ZERO, |head| Duration::from_nanos(head.spent_nanos))
    }

    /// Whether both positions are pieces of one job: they share the time of its attempt.
    pub(crate) fn are_one(&self, left: usize, right: usize) -> bool {
        match (self.heads.get(left), self.heads.get(right)) {
            (Some(left), Some(right)) => (left.hash, left.index) == (right.hash, right.index),
            _ => false,
        }
    }

    pub(crate) fn clear(&mut self) {
        self.heads.clear();
        self.payloads.clear();
    }

    /// Sends the jobs in `range`.
    pub(crate) fn send(&self, range: Range<usize>, stops: bool, to: &mut impl Write) -> io::Result<()> {
        let mut message = Vec::with_capacity(self.payloads.byte_len() + self.len() * HEAD + 13);
        message.extend_from_slice(&[0; 8]);
        message.push(u8::from(stops));
        for position in range {
            let Some(job) = self.get(position) else { continue };
            message.extend_from_slice(&job.index.to_le_bytes());
            message.extend_from_slice(&job.attempt.to_le_bytes());
            message.extend_from_slice(&job.now_ms.to_le_bytes());
            message.extend_from_slice(&job.hash.to_le_bytes());
            message.extend_from_slice(&job.piece.to_le_bytes());
            message.extend_from_slice(&nanos(self.spent(position)).to_le_bytes());
            message.extend_from_slice(&(job.payload.len() as u64).to_le_bytes());
            message.extend_from_slice(job.payload);
        }
        let length = (message.len() - 8) as u64;
        message[..8].copy_from_slice(&length.to_le_bytes());
        to.write_all(&message)
    }

    /// Receives the next batch, and whether it ends at the first failure. `None` if the stream has ended.
    pub(crate) fn receive(&mut self, from: &mut impl Read) -> io::Result<Option<bool>> {
        self.clear();
        let mut length = [0; 8];
        match from.read_exact(&mut length) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        let mut message = Vec::new();
        from.take(u64::from_le_bytes(length)).read_to_end(&mut message)?;
        let mut bytes = Bytes(&message);
        let stops = bytes.array::<1>()? != [0];
        while !bytes.0.is_empty() {
            let index = u64::from_le_bytes(bytes.array()?);
            let attempt = u32::from_le_bytes(bytes.array()?);
            let now_ms = i64::from_le_bytes(bytes.array()?);
            let hash = u128::from_le_bytes(bytes.array()?);
            let piece = u32::from_le_bytes(bytes.array()?);
            let spent = Duration::from_nanos(u64::from_le_bytes(bytes.array()?));
            let length = u64::from_le_bytes(bytes.array()?);
            let payload = bytes.take(length)?;
            let job = Job::new(index, payload).attempted(attempt, now_ms).hashed(hash);
            self.push(&job.with_piece(piece, payload), spent);
        }
        Ok(Some(stops))
    }
}

/// A frame in the shared file.
#[derive(Debug)]
pub(crate) enum ChildAnswer {
    /// The result of the next job: its outputs by binding, and its duration.
    Made(Vec<Payloads>, Duration),
    /// The failure of the next job. A job that becomes pending has outputs.
    Failed(Failure, Vec<Payloads>),
    Described(Description),
}

/// The form of a failure in a frame.
#[derive(Serialize, Deserialize)]
struct FailureFrame {
    /// Its word.
    kind: String,
    /// Set for a failure that requests another attempt at a time.
    delay: Option<Duration>,
    message: String,
    context: Option<Box<str>>,
    place: Option<(String, u64, Option<u64>)>,
    /// Its cause, as one word.
    cause: Option<String>,
    of_setup: bool,
}

const MADE: u8 = 1;
const FAILED: u8 = 2;
const DESCRIBED: u8 = 3;

/// Writes a frame with the content of `outputs`.
pub(crate) fn write_made(outputs: &Outputs, took: Duration, seals: &mut Seals, to: &mut Vec<u8>) {
    seals.frame(to, |to| {
        to.push(MADE);
        to.extend_from_slice(&nanos(took).to_le_bytes());
        write_outputs(outputs, to);
    });
}

fn write_outputs(outputs: &Outputs, to: &mut Vec<u8>) {
    for position in 0..outputs.bindings() {
        let Some(payloads) = outputs.get(position) else { continue };
        to.extend_from_slice(&(payloads.len() as u64).to_le_bytes());
        for payload in payloads.iter() {
            to.extend_from_slice(&(payload.len() as u64).to_le_bytes());
            to.extend_from_slice(payload);
        }
    }
}

/// Writes a frame with a failure; `outputs` counts only for a job that becomes pending.
pub(crate) fn write_failed(failure: &Failure, outputs: &Outputs, seals: &mut Seals, to: &mut Vec<u8>) {
    let Failure { kind, message, context, place, cause, of_setup, .. } = failure.clone();
    let place = place.map(|Place { file, line, column }| (file, line, column));
    let cause = cause.map(|_| failure.word().into_owned());
    let delay = if let FailureKind::RetryIn(delay) = kind { Some(delay) } else { None };
    let kind = kind.as_str().to_owned();
    let frame = FailureFrame { kind, delay, message, context, place, cause, of_setup };
    // Texts and numbers can always be serialized.
    let text = serde_json::to_vec(&frame).unwrap_or_default();
    seals.frame(to, |to| {
        to.push(FAILED);
        to.extend_from_slice(&(text.len() as u64).to_le_bytes());
        to.extend_from_slice(&text);
        if failure.kind == FailureKind::Pending {
            write_outputs(outputs, to);
        }
    });
}

pub(crate) fn write_described(description: &Description, seals: &mut Seals, to: &mut Vec<u8>) {
    // Texts can always be serialized.
    let text = serde_json::to_vec(description).unwrap_or_default();
    seals.frame(to, |to| {
        to.push(DESCRIBED);
        to.extend_from_slice(&text);
    });
}

/// Writes a line of the log.
pub(crate) fn write_line(level: Level, message: &str, seals: &mut Seals, to: &mut Vec<u8>) {
    seals.frame(to, |to| {
        to.push(LEVELS.iter().position(|other| *other == level).unwrap_or(0).try_into().unwrap_or(0));
        to.extend_from_slice(message.as_bytes());
    });
}

const LEVELS: [Level; 5] = [Level::Error, Level::Warn, Level::Info, Level::Debug, Level::Trace];

/// Waits for the next line of the log; `None` if the stream has ended.
pub(crate) fn receive_line(from: &mut impl Read, seals: &mut Seals) -> io::Result<Option<(Level, String)>> {
    let Some(line) = seals.receive(from)? else { return Ok(None) };
    let mut line = Bytes(&line);
    let [level] = line.array()?;
    let level = LEVELS.get(usize::from(level)).copied().unwrap_or(Level::Error);
    Ok(Some((level, String::from_utf8_lossy(line.0).into_owned())))
}

/// Parses the frame at the start of `bytes`, and returns its length; `None` if it is incomplete.
pub(crate) fn read(bytes: &[u8], seals: &mut Seals) -> io::Result<Option<(ChildAnswer, usize)>> {
    let Some((body, whole)) = seals.open(bytes)? else { return Ok(None) };
    let mut body = Bytes(body);
    let answer = match body.array::<1>()? {
        [MADE] => {
            let took = Duration::from_nanos(u64::from_le_bytes(body.array()?));
            ChildAnswer::Made(body.outputs()?, took)
        }
        [FAILED] => {
            let length = u64::from_le_bytes(body.array()?);
            let FailureFrame { kind, delay, message, context, place, cause, of_setup } =
                serde_json::from_slice(body.take(length)?).map_err(io::Error::other)?;
            let mut failure = Failure::new(kind_of_word(&kind, delay), message);
            failure.place = place.map(|(file, line, column)| Place { file, line, column });
            failure.cause = cause.and_then(|word| Cause::of_word(&word));
            (failure.context, failure.of_setup) = (context, of_setup);
            ChildAnswer::Failed(failure, body.outputs()?)
        }
        [DESCRIBED] => ChildAnswer::Described(serde_json::from_slice(body.0).map_err(io::Error::other)?),
        [other] => return Err(io::Error::other(format!("a frame of kind {other}"))),
    };
    Ok(Some((answer, whole)))
}

/// The kind of a word. A dead process cannot report its death itself.
fn kind_of_word(word: &str, delay: Option<Duration>) -> FailureKind {
    match (FailureKind::of_word(word), delay) {
        (Some(FailureKind::Retry), Some(delay)) => FailureKind::RetryIn(delay),
        (Some(FailureKind::Crashed) | None, _) => FailureKind::Failed,
        (Some(kind), _) => kind,
    }
}

/// A duration that does not fit is longer than five hundred years.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk().ok_or_else(short)?;
        self.0 = rest;
        Ok(*first)
    }

    fn take(&mut self, length: u64) -> io::Result<&'a [u8]> {
        let length =
            usize::try_from(length).ok().filter(|length| *length <= self.0.len()).ok_or_else(short)?;
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        Ok(taken)
    }

    /// The rest, as outputs by binding.
    fn outputs(&mut self) -> io::Result<Vec<Payloads>> {
        let mut outputs = Vec::new();
        while !self.0.is_empty() {
            let mut payloads = Payloads::new();
            for _ in 0..u64::from_le_bytes(self.array()?) {
                let length = u64::from_le_bytes(self.array()?);
                payloads.push(self.take(length)?);
            }
            outputs.push(payloads);
        }
        Ok(outputs)
    }
}

fn short() -> io::Error {
    io::Error::from(io::ErrorKind::UnexpectedEof)
}

#[cfg(test)]
mod tests;
