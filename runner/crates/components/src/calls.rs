//! `Calls`: awaits requests and commands on few threads, any number of them at a time.
//!
//! The threads start with the first call. All calls of a runner share them, and one pool of connections.

use std::sync::mpsc::sync_channel;
use std::sync::{Arc, OnceLock};
use std::thread::available_parallelism;

use tidegate_plugin::{Cause, Failure, FailureKind};
use tokio::runtime::{Builder, Runtime};

use crate::exec::child::{AwaitedCommand, EndedCommand};
use crate::http::client::HttpClient;
use crate::http::exchange::{HttpAnswer, HttpCall};

/// Most threads that await calls.
const THREADS_MAX: usize = 4;
/// Most threads that look up hosts.
const LOOKUPS_MAX: usize = 8;

/// The threads that await calls. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Calls(Arc<OnceLock<Result<Threads, String>>>);

/// A request or a command that is ready to be awaited.
#[derive(Debug)]
pub enum Call {
    Http(HttpCall),
    Command(AwaitedCommand),
}

/// The answer to a [`Call`] of the same kind.
#[derive(Debug)]
pub enum Answer {
    Http(HttpAnswer),
    Command(EndedCommand),
}

#[derive(Debug)]
struct Threads {
    /// Taken at the end.
    runtime: Option<Runtime>,
    http: Arc<HttpClient>,
}

impl Calls {
    /// Starts a call. `done` gets its answer on a thread that must not block.
    pub fn start(&self, call: Call, done: impl FnOnce(Result<Answer, Failure>) + Send + 'static) {
        let threads = match self.threads() {
            Ok(threads) => threads,
            Err(failure) => return done(Err(failure)),
        };
        let Some(runtime) = &threads.runtime else { return };
        let (http, asker) = (Arc::clone(&threads.http), Asker(Some(done)));
        runtime.spawn(async move { asker.answer(call.run(&http).await) });
    }

    /// Waits for the answer to a call, on a thread that may block.
    ///
    /// # Errors
    /// The failure of the call.
    pub fn wait(&self, call: Call) -> Result<Answer, Failure> {
        let (answers, answer) = sync_channel(1);
        // This thread receives it.
        self.start(call, move |answer| _ = answers.send(answer));
        let ended = |_| Err(Failure::new(FailureKind::Failed, "the runner ends"));
        answer.recv().unwrap_or_else(ended)
    }

    fn threads(&self) -> Result<&Threads, Failure> {
        let threads = self.0.get_or_init(|| Threads::start().map_err(|error| error.to_string())).as_ref();
        threads.map_err(|error| {
            let why = format!("the threads for requests and commands cannot be started: {error}");
            Failure::new(FailureKind::Failed, why).because(Cause::Connection)
        })
    }
}

/// The receiver of an answer.
struct Asker<D: FnOnce(Result<Answer, Failure>)>(Option<D>);

impl<D: FnOnce(Result<Answer, Failure>)> Asker<D> {
    fn answer(mut self, answer: Result<Answer, Failure>) {
        if let Some(done) = self.0.take() {
            done(answer);
        }
    }
}

impl<D: FnOnce(Result<Answer, Failure>)> Drop for Asker<D> {
    /// A call that panics fails alone, instead of being awaited for ever. At the end of the runner nothing
    /// waits for it any more.
    fn drop(&mut self) {
        if let Some(done) = self.0.take().filter(|_| std::thread::panicking()) {
            let why = "the call has panicked, which is a defect of Tidegate; the log has the place";
            done(Err(Failure::new(FailureKind::Failed, why)));
        }
    }
}

impl Call {
    async fn run(self, http: &HttpClient) -> Result<Answer, Failure> {
        match self {
            Self::Http(call) => call.run(http).await.map(Answer::Http),
            Self::Command(command) => Ok(Answer::Command(command.run().await)),
        }
    }
}

impl Threads {
    fn start() -> std::io::Result<Self> {
        let threads = available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(threads).max_blocking_threads(LOOKUPS_MAX).thread_name("calls").enable_all();
        Ok(Self { runtime: Some(builder.build()?), http: Arc::new(HttpClient::new()) })
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // A look-up of a host may take any time.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_panics_fails_alone() {
        let threads = Threads::start().unwrap();
        let (answers, answer) = sync_channel(1);
        let asker =
            Asker(Some(move |answer: Result<Answer, Failure>| answers.send(answer.map(drop)).unwrap()));
        let panics = async move {
            let _asker = asker;
            panic!("a defect");
        };
        threads.runtime.as_ref().unwrap().spawn(panics);
        let failure = answer.recv().unwrap().unwrap_err();
        assert!(failure.to_string().contains("the call has panicked"), "{failure}");
        // The thread goes on.
        let answered = threads.runtime.as_ref().unwrap().spawn(async { 7 });
        assert_eq!(threads.runtime.as_ref().unwrap().block_on(answered).unwrap(), 7);
    }
}
