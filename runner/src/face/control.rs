//! The local socket of a running runner: one question a line, one answer a line, both JSON.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;

use super::look::{Answer, Query, answer};
use crate::config::Configuration;
use crate::engine::Chain;
use crate::store::{ReadError, Store};

const NAME: &str = "control.sock";
/// The longest path that fits a socket's address everywhere.
const PATH_MAX: usize = 100;
/// The longest question, in bytes.
const QUESTION_MAX: u64 = 64 << 10;
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Reply {
    Answer(Answer),
    Refusal(Refusal),
}

/// Why a question has no answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Refusal {
    /// The store is closed just now: the runner is ending, or waits for room.
    Closed(String),
    Other(String),
}

/// Answers questions until the runtime ends. The caller holds the lock of the store, so a socket that
/// is there belongs to nobody.
pub(super) fn serve(
    data: &Path,
    store: Store,
    configuration: Arc<Configuration>,
) -> io::Result<impl Future<Output = ()> + use<>> {
    let path = data.join(NAME);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let address = Short::of(data)?;
    let listener = UnixListener::bind(&address.path)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    Ok(async move {
        let _address = address;
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                // Out of file handles, most likely; those who wait will ask again.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let (store, configuration) = (store.clone(), Arc::clone(&configuration));
            tokio::spawn(async move {
                if let Err(error) = converse(stream, store, configuration).await {
                    tracing::debug!(%error, "a conversation on the local socket broke off");
                }
            });
        }
    })
}

async fn converse(
    mut stream: tokio::net::UnixStream,
    store: Store,
    configuration: Arc<Configuration>,
) -> io::Result<()> {
    let (reading, mut writing) = stream.split();
    let mut question = String::new();
    tokio::io::BufReader::new(reading.take(QUESTION_MAX)).read_line(&mut question).await?;
    // The store is never read on a thread that carries I/O.
    let reply = tokio::task::spawn_blocking(move || reply(&question, &store, &configuration)).await;
    let reply = reply.unwrap_or_else(|error| Reply::Refusal(Refusal::Other(error.to_string())));
    let mut text = serde_json::to_vec(&reply)?;
    text.push(b'\n');
    writing.write_all(&text).await
}

fn reply(question: &str, store: &Store, configuration: &Configuration) -> Reply {
    let query: Query = match serde_json::from_str(question) {
        Ok(query) => query,
        Err(error) => {
            let what = format!("not a question that this version understands: {error}");
            return Reply::Refusal(Refusal::Other(what));
        }
    };
    match answer(store, configuration, &query) {
        Ok(answer) => Reply::Answer(answer),
        Err(error @ ReadError::Interrupted) => Reply::Refusal(Refusal::Closed(error.to_string())),
        Err(error) => Reply::Refusal(Refusal::Other(Chain(&error).to_string())),
    }
}

/// Asks the runner that has `data`; `None` where none is running.
///
/// # Errors
/// Where something listens and does not answer sensibly.
pub(super) fn ask(data: &Path, query: &Query) -> io::Result<Option<Result<Answer, Refusal>>> {
    match converse_with(data, query) {
        // It was just ending; its store is free in a moment.
        Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => {
            Ok(None)
        }
        outcome => outcome,
    }
}

fn converse_with(data: &Path, query: &Query) -> io::Result<Option<Result<Answer, Refusal>>> {
    let Ok(address) = Short::of(data) else { return Ok(None) };
    let Ok(mut stream) = UnixStream::connect(&address.path) else { return Ok(None) };
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut question = serde_json::to_vec(query)?;
    question.push(b'\n');
    stream.write_all(&question)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    Ok(Some(match serde_json::from_str(&line)? {
        Reply::Answer(answer) => Ok(answer),
        Reply::Refusal(refusal) => Err(refusal),
    }))
}

/// The socket's path in a form that fits a socket's address.
struct Short {
    path: PathBuf,
    /// Keeps the short form alive.
    _folder: Option<std::fs::File>,
}

impl Short {
    fn of(data: &Path) -> io::Result<Self> {
        let path = data.join(NAME);
        if path.as_os_str().len() <= PATH_MAX {
            return Ok(Self { path, _folder: None });
        }
        let folder = std::fs::File::open(data)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(NAME);
        Ok(Self { path, _folder: Some(folder) })
    }
}

/// Takes the socket away, so that nobody knocks at a closed door.
pub(super) fn remove(data: &Path) {
    let _ = std::fs::remove_file(data.join(NAME));
}
