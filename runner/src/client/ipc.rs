//! Local socket of a runner: answers one question per line with one answer per line, both JSON.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, OnceLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWriteExt as _};
use tokio::net::UnixListener;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::connection_limit::{ConnectionLimit, ConnectionPermit};
use crate::query::{Answer, Query, answer};
use crate::reload::{Reloaded, compare, mend_stopped_step, reload};
use crate::rollback::roll_back;
use tidegate_config::Configuration;
use tidegate_engine::{Chain, Handle, Request, RequestOutcome};
use tidegate_model::log_target;
use tidegate_model::sync::Mutex;
use tidegate_store::{ReadError, Store, Trigger};

const NAME: &str = "control.sock";
/// Its name until it accepts connections.
const NEW_NAME: &str = "control.sock.new";
/// The longest path, in bytes, that fits a socket address on every platform.
const PATH_MAX: usize = 100;
/// The longest question, in bytes: the longest job that can be pushed, escaped as a JSON text.
const QUESTION_MAX: usize = 40 << 20;
/// Total bytes of questions in memory at one time …
const QUESTIONS_BYTES: u32 = 80 << 20;
/// … without counting questions up to this size.
const QUESTION_FREE_BYTES: usize = 64 << 10;
/// How long the next piece of a question may take to arrive.
const PIECE_PATIENCE: Duration = Duration::from_secs(10);
/// Connections at a time. The limit is lower if few files may be open.
const CONVERSATIONS_MAX: u64 = 256;
const CONVERSATIONS_MIN: u64 = 8;
/// One connection per this many open files.
const FILES_PER_CONVERSATION: u64 = 16;
/// How long an answer may take: to a query, to a query of the whole store, and to a change, which waits for
/// running attempts.
const PATIENCE: Duration = Duration::from_secs(10);
const PATIENCE_WITH_EVERYTHING: Duration = Duration::from_mins(10);
const PATIENCE_WITH_CHANGES: Duration = Duration::from_mins(1);
/// How long the end of a run waits for answers in progress.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A question to a runner.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Question {
    Look(Query),
    Change(Request),
    /// Read the files again, and carry them out.
    Reload,
    /// Compare the files with the generation in force.
    Compare,
    /// Go back to this generation, or to the one before the current one.
    Rollback {
        generation: Option<u64>,
    },
}

/// The runner's answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum IpcAnswer {
    Answer(Answer),
    /// A change: its result, or the reason for its refusal.
    Change(Result<RequestOutcome, String>),
    Reload(Reloaded),
    /// Whether the files are those of the generation in force.
    Compared(bool),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Reply {
    // A runner of an earlier version answers so.
    #[serde(rename = "told")]
    Answer(Box<IpcAnswer>),
    Refusal(IpcRefusal),
}

/// Why a question has no answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum IpcRefusal {
    /// The store is closed at the moment: the runner is ending, or waits for disk space.
    Closed(String),
    Other(String),
}

/// The context that answers questions.
#[derive(Clone, Debug)]
pub(crate) struct RunnerContext {
    pub(crate) store: Store,
    pub(crate) handle: Handle,
}

impl RunnerContext {
    /// The configuration that the run carries out now.
    pub(crate) fn configuration(&self) -> Arc<Configuration> {
        Arc::clone(&self.handle.generation().configuration)
    }
}

/// The open connections, and the socket that accepts them.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenConnections(Arc<Open>);

#[derive(Debug, Default)]
struct Open {
    count: Mutex<usize>,
    over: Condvar,
    /// The device and the inode of the socket, once it exists.
    socket: OnceLock<(u64, u64)>,
}

impl OpenConnections {
    /// Waits up to a second for all of them to finish, so that each client learns the outcome of its change.
    pub(crate) fn finish(&self) {
        let Open { count, over, .. } = &*self.0;
        let open = count.lock();
        drop(over.wait_timeout_while(open, LAST_WORDS, |open| *open > 0));
    }

    /// Removes the socket, so that no client connects to a runner that ended. A socket that another runner
    /// created after the data folder was replaced stays.
    pub(crate) fn remove_socket(&self, data: &Path) {
        let path = data.join(NAME);
        if socket_id(&path).is_some_and(|found| self.0.socket.get() == Some(&found)) {
            let _ = std::fs::remove_file(path);
        }
    }

    fn count(&self, change: impl FnOnce(&mut usize)) {
        let Open { count, over, .. } = &*self.0;
        change(&mut count.lock());
        over.notify_all();
    }
}

/// Answers questions until the runtime ends. The caller holds the lock of the store, so an existing socket
/// belongs to no other runner. The socket gets its name when it accepts connections. `files` is the limit of
/// open files.
pub(crate) fn serve(
    data: &Path,
    context: RunnerContext,
    conversations: OpenConnections,
    files: u64,
) -> io::Result<impl Future<Output = ()> + use<>> {
    let (path, new) = (data.join(NAME), data.join(NEW_NAME));
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&SocketPath::of(data, NEW_NAME)?.path)?;
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(&new, &path)?;
    if let Some(id) = socket_id(&path) {
        let _ = conversations.0.socket.set(id);
    }
    let count = (files / FILES_PER_CONVERSATION).clamp(CONVERSATIONS_MIN, CONVERSATIONS_MAX);
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let (places, room) =
        (ConnectionLimit::new(count, count), Arc::new(Semaphore::new(QUESTIONS_BYTES as usize)));
    Ok(async move {
        loop {
            let place = places.take().await;
            let Ok((stream, _)) = listener.accept().await else {
                // Out of file handles, most likely; the clients retry.
                drop(place);
                places.make_room();
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            place.accepted();
            let (context, conversations, room) = (context.clone(), conversations.clone(), Arc::clone(&room));
            conversations.count(|open| *open += 1);
            tokio::spawn(async move {
                let outcome = tokio::select! {
                    outcome = converse(stream, context, &place, &room) => outcome,
                    () = place.has_to_leave() => Err(io::ErrorKind::TimedOut.into()),
                };
                if let Err(error) = outcome {
                    tracing::debug!(target: log_target::RUNNER, %error, "a connection on the local socket broke off");
                }
                conversations.count(|open| *open -= 1);
            });
        }
    })
}

async fn converse(
    mut stream: tokio::net::UnixStream,
    context: RunnerContext,
    place: &ConnectionPermit,
    room: &Semaphore,
) -> io::Result<()> {
    let (reading, mut writing) = stream.split();
    let (question, _room) = listen(reading, place, room).await?;
    place.asks(false);
    // A thread for blocking calls waits for the store and the run, since this one carries I/O.
    let reply = tokio::task::spawn_blocking(move || reply(&question, &context)).await;
    let reply = reply.unwrap_or_else(|error| Reply::Refusal(IpcRefusal::Other(error.to_string())));
    let mut text = serde_json::to_vec(&reply)?;
    text.push(b'\n');
    writing.write_all(&text).await
}

/// Reads a question up to the end of its line, and reserves memory for a long one.
async fn listen<'r>(
    reading: impl AsyncRead + Unpin,
    place: &ConnectionPermit,
    room: &'r Semaphore,
) -> io::Result<(Vec<u8>, Option<SemaphorePermit<'r>>)> {
    let (mut reading, mut question, mut taken) =
        (tokio::io::BufReader::new(reading), Vec::new(), None::<SemaphorePermit<'r>>);
    loop {
        let piece = timeout(PIECE_PATIENCE, reading.fill_buf()).await??;
        let end = memchr::memchr(b'\n', piece);
        let len = end.map_or(piece.len(), |end| end + 1);
        question.extend_from_slice(&piece[..len]);
        reading.consume(len);
        place.came(len);
        if end.is_some() || len == 0 || question.len() >= QUESTION_MAX {
            return Ok((question, taken));
        }
        if question.len() > QUESTION_FREE_BYTES && taken.is_none() {
            // A client that stops sending does not hold the memory for long.
            let permits = u32::try_from(QUESTION_MAX).unwrap_or(QUESTIONS_BYTES);
            taken = Some(room.acquire_many(permits).await.map_err(io::Error::other)?);
        }
    }
}

fn reply(question: &[u8], context: &RunnerContext) -> Reply {
    match serde_json::from_slice(question) {
        Ok(Question::Look(query)) => {
            match answer(&context.store, &context.configuration(), Some(&context.handle), &query) {
                Ok(answer) => Reply::Answer(Box::new(IpcAnswer::Answer(answer))),
                Err(error @ ReadError::Interrupted) => Reply::Refusal(IpcRefusal::Closed(error.to_string())),
                Err(error) => Reply::Refusal(IpcRefusal::Other(Chain(&error).to_string())),
            }
        }
        Ok(Question::Change(request)) => change(request, &context.handle),
        Ok(Question::Reload) => taken_over(reload(&context.handle, Trigger::Reload)),
        Ok(Question::Compare) => Reply::Answer(Box::new(IpcAnswer::Compared(compare(&context.handle)))),
        Ok(Question::Rollback { generation }) => {
            match roll_back(&context.handle, &context.store, generation) {
                Ok(reloaded) => taken_over(reloaded),
                Err(why) => Reply::Refusal(IpcRefusal::Other(why)),
            }
        }
        Err(error) => {
            let what = format!("the question is unknown to this version: {error}");
            Reply::Refusal(IpcRefusal::Other(what))
        }
    }
}

fn taken_over(reloaded: Reloaded) -> Reply {
    match reloaded {
        Reloaded::Ending => Reply::Refusal(IpcRefusal::Closed("the runner is ending".to_owned())),
        reloaded => Reply::Answer(Box::new(IpcAnswer::Reload(reloaded))),
    }
}

fn change(request: Request, run: &Handle) -> Reply {
    if let Some(why) = run.stats().full() {
        let what = format!("the disk is full, so nothing was changed: {why}");
        return Reply::Refusal(IpcRefusal::Other(what));
    }
    let mended = match &request {
        Request::Pause { step, paused: false } => mend_stopped_step(run, step),
        _ => false,
    };
    let outcome = run.ask_unless_it_ends(request).map(|outcome| match outcome {
        Ok(RequestOutcome::Paused { changed, restarted, .. }) => {
            let restarted = restarted || mended;
            Ok(RequestOutcome::Paused { changed, restarted, behind: restarted && run.files_differ() })
        }
        other => other,
    });
    match outcome {
        Some(outcome) => Reply::Answer(Box::new(IpcAnswer::Change(outcome))),
        None => Reply::Refusal(IpcRefusal::Closed("the runner is ending".to_owned())),
    }
}

/// Whether a runner accepts questions there.
pub(crate) fn is_answered(data: &Path) -> bool {
    SocketPath::of(data, NAME).is_ok_and(|address| UnixStream::connect(&address.path).is_ok())
}

/// Asks the runner that holds `data`. `None` if no runner is running and the question is a query.
///
/// # Errors
/// A process accepts connections there and does not answer as a runner does.
pub(crate) fn ask(data: &Path, question: &Question) -> io::Result<Option<Result<IpcAnswer, IpcRefusal>>> {
    let Ok(address) = SocketPath::of(data, NAME) else { return Ok(None) };
    let Ok(stream) = UnixStream::connect(&address.path) else { return Ok(None) };
    match converse_with(stream, question) {
        // The runner was ending; its store is released within milliseconds.
        Err(error) if matches!(question, Question::Look(_)) && is_gone(&error) => Ok(None),
        Err(error) => Err(error),
        Ok(outcome) => Ok(Some(outcome)),
    }
}

fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), ConnectionReset | BrokenPipe | UnexpectedEof)
}

fn converse_with(mut stream: UnixStream, question: &Question) -> io::Result<Result<IpcAnswer, IpcRefusal>> {
    let patience = match question {
        Question::Look(Query::Verify | Query::Export { .. } | Query::Plan) => PATIENCE_WITH_EVERYTHING,
        Question::Look(_) => PATIENCE,
        Question::Change(_) | Question::Reload | Question::Compare | Question::Rollback { .. } => {
            PATIENCE_WITH_CHANGES
        }
    };
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut text = serde_json::to_vec(question)?;
    text.push(b'\n');
    stream.write_all(&text)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    if line.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(match serde_json::from_str(&line)? {
        Reply::Answer(answer) => Ok(*answer),
        Reply::Refusal(refusal) => Err(refusal),
    })
}

/// The socket's path in a form that fits a socket's address.
struct SocketPath {
    path: PathBuf,
    /// Keeps the short form alive.
    _folder: Option<std::fs::File>,
}

impl SocketPath {
    fn of(data: &Path, name: &str) -> io::Result<Self> {
        let path = data.join(name);
        if path.as_os_str().len() <= PATH_MAX {
            return Ok(Self { path, _folder: None });
        }
        let folder = std::fs::File::open(data)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name);
        Ok(Self { path, _folder: Some(folder) })
    }
}

/// The device and the inode of the file at `path`.
fn socket_id(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}
