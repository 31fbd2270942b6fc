//! `AcceptThreads`: the threads that run the `accept` scripts of HTTP sources. A script lives on one thread, and may
//! take as long as its `timeout`, so that no other request waits for it.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, OnceLock};
use std::thread;

use tokio::sync::oneshot;

use super::response::HttpRefusal;
use tidegate_components::accept::AcceptCheck;
use tidegate_components::script::STACK;
use tidegate_config::AcceptScript;
use tidegate_model::Address;
use tidegate_model::sync::Mutex;

/// Bodies that are checked at a time.
const THREADS: usize = 2;

type Task = Box<dyn FnOnce(&mut AcceptChecks) + Send>;

/// They start with the first body for a source with a script.
#[derive(Debug, Default)]
pub(crate) struct AcceptThreads(OnceLock<Option<Sender<Task>>>);

/// The compiled scripts of one thread, with their texts.
#[derive(Default)]
pub(crate) struct AcceptChecks(HashMap<Address, (AcceptScript, AcceptCheck)>);

impl AcceptThreads {
    /// Runs `work` on one of the threads with the script of the source at `address`.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        address: Address,
        accept: AcceptScript,
        work: impl FnOnce(&mut AcceptCheck) -> Result<T, HttpRefusal> + Send + 'static,
    ) -> Result<T, HttpRefusal> {
        let (sender, answered) = oneshot::channel();
        let task: Task = Box::new(move |checks| {
            // A client that disconnected needs no answer.
            let _ = sender.send(checks.of(&address, accept).and_then(work));
        });
        let sent = self.0.get_or_init(start).as_ref().is_some_and(|tasks| tasks.send(task).is_ok());
        match answered.await {
            Ok(answer) if sent => answer,
            _ => Err(HttpRefusal::broken("no thread runs the `accept` script of a source")),
        }
    }
}

impl AcceptChecks {
    fn of(&mut self, address: &Address, accept: AcceptScript) -> Result<&mut AcceptCheck, HttpRefusal> {
        if self.0.get(address).is_none_or(|(compiled, _)| *compiled != accept) {
            // It was checked when the configuration was read.
            let check = AcceptCheck::new(address, &accept);
            let check = check.map_err(|error| HttpRefusal::broken(&error.message))?;
            self.0.insert(address.clone(), (accept, check));
        }
        let missing = || HttpRefusal::broken("the `accept` script of a source is missing");
        self.0.get_mut(address).map(|(_, check)| check).ok_or_else(missing)
    }
}

/// `None`: no thread can be started.
fn start() -> Option<Sender<Task>> {
    let (sender, tasks) = mpsc::channel();
    let tasks = Arc::new(Mutex::new(tasks));
    let started = (0..THREADS).filter(|_| {
        let tasks = Arc::clone(&tasks);
        thread::Builder::new().name("accept".into()).stack_size(STACK).spawn(move || work(&tasks)).is_ok()
    });
    (started.count() > 0).then_some(sender)
}

fn work(tasks: &Mutex<Receiver<Task>>) {
    let mut checks = AcceptChecks::default();
    loop {
        let task = tasks.lock().recv();
        let Ok(task) = task else { return };
        // The request of a task that panics is answered by its dropped sender.
        if catch_unwind(AssertUnwindSafe(|| task(&mut checks))).is_err() {
            checks = AcceptChecks::default();
        }
    }
}
