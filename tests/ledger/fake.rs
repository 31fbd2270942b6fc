//! `Fake`: a ledger that the test controls, and that records its requests.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Instant;

use serde_json::{Value, json};

use crate::outward::service::{Act, Asked, Service, answer};

/// A batch that was posted.
#[derive(Clone, Debug)]
pub(crate) struct Posted {
    pub(crate) id: u64,
    pub(crate) key: String,
    pub(crate) at: Instant,
    /// Its number as a submission, from 1; `None` if the ledger was busy.
    pub(crate) number: Option<u64>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) posted: Vec<Posted>,
    /// The numbers of each question, in order.
    pub(crate) asked: Vec<Vec<u64>>,
    /// The status of a submission; of others it returns `otherwise`.
    pub(crate) statuses: HashMap<u64, &'static str>,
    pub(crate) otherwise: &'static str,
    /// By batch: the number of times that it is busy.
    pub(crate) busy: HashMap<u64, usize>,
    /// By batch: it does not answer until this is empty.
    pub(crate) holds: Vec<u64>,
    /// Number of requests that wait for an answer.
    pub(crate) held: usize,
    taken: u64,
}

pub(crate) struct Fake {
    service: Service,
    state: Arc<(Mutex<State>, Condvar)>,
}

impl Fake {
    /// A ledger that returns this status for every submission without its own.
    pub(crate) fn answering(otherwise: &'static str) -> Self {
        let state = Arc::new((Mutex::new(State { otherwise, ..State::default() }), Condvar::new()));
        let shared = Arc::clone(&state);
        let service = Service::start(move |asked, _| {
            let (status, body) = act(asked, &shared);
            Act::Say(answer(status, "content-type: application/json\r\n", &body.to_string()))
        });
        Self { service, state }
    }

    pub(crate) fn address(&self) -> String {
        self.service.address.to_string()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.0.lock().expect("no thread panics with it")
    }

    /// Answers the waiting requests.
    pub(crate) fn release(&self) {
        self.state().holds.clear();
        self.state.1.notify_all();
    }

    /// The batches in the order in which they were posted.
    pub(crate) fn posted(&self) -> Vec<u64> {
        self.state().posted.iter().map(|posted| posted.id).collect()
    }

    /// Number of times that the batch was posted.
    pub(crate) fn times(&self, id: u64) -> usize {
        self.posted().iter().filter(|posted| **posted == id).count()
    }
}

fn act(asked: &Asked, shared: &(Mutex<State>, Condvar)) -> (&'static str, Value) {
    let mut state = shared.0.lock().expect("no thread panics with it");
    if asked.line == "POST /sources/ledger/submissions" {
        let batch: Value = serde_json::from_str(&asked.body).expect("it is JSON");
        let id = batch["id"].as_u64().expect("a number");
        let left = state.busy.get_mut(&id).filter(|left| **left > 0);
        let busy = left.map(|left| *left -= 1).is_some();
        state.taken += u64::from(!busy);
        let number = state.taken;
        state.posted.push(Posted {
            id,
            key: asked.header("idempotency-key").to_owned(),
            at: Instant::now(),
            number: (!busy).then_some(number),
        });
        state.held += 1;
        let mut state = shared.1.wait_while(state, |state| state.holds.contains(&id)).expect("as above");
        state.held -= 1;
        if busy {
            return ("429 Too Many Requests", json!({ "error": "busy" }));
        }
        return ("202 Accepted", json!({ "job": format!("ledger/submissions/{number}") }));
    }
    let numbers: Vec<u64> = match asked.line.strip_prefix("GET /jobs/ledger/submissions/") {
        Some(number) => number.parse().into_iter().collect(),
        None => {
            let list: Vec<Value> = serde_json::from_str(&asked.body).expect("it is a list");
            list.iter().filter_map(|one| one["handle"].as_str()?.parse().ok()).collect()
        }
    };
    let status = |number: &u64| state.statuses.get(number).copied().unwrap_or(state.otherwise);
    let answers = numbers.iter().map(|number| (number.to_string(), json!(status(number)))).collect();
    state.asked.push(numbers);
    ("200 OK", Value::Object(answers))
}
