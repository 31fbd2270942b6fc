//! Requests about waiting jobs that meet each other on the floor of a run whose threads do nothing.

use std::sync::Arc;

use super::*;
use crate::config::{LoadOptions, load};
use crate::engine::delivery::Order;
use crate::engine::floor::{Action, Plan};
use crate::engine::message::{Durable, Message};
use crate::engine::start::{self, Started};
use crate::engine::stats::Stats;
use crate::engine::tail::Tails;
use crate::hands::source::BatchLimit;
use crate::store::testing::FaultyDisk;
use crate::store::{Changes, Delayed, DelayedJob, Store, Writer, open_disk};
use crate::words::Address;

const NOW: Timestamp = Timestamp(1000);

/// A floor of one step, and a row of a job of it that is due later.
struct Play {
    floor: Floor,
    store: Store,
    /// Without it the store is closed.
    _writer: Writer,
}

impl Play {
    /// `queuer` as it stands in the step.
    fn new(queuer: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let toml = format!(
            "[pipeline]\nname = \"p\"\nerrors = \"failed\"\n\
             [source.in]\ntype = \"file\"\npath = \"in\"\nformat = \"lines\"\n\
             [step.first]\nfrom = \"in\"\nto = \"q\"\n\
             [step.t]\nfrom = \"q\"\nto = \"out\"\n{queuer}\n"
        );
        std::fs::write(folder.path().join("p.toml"), toml).unwrap();
        std::fs::write(folder.path().join("in"), "").unwrap();
        let configuration = Arc::new(load(folder.path(), &LoadOptions::default()).finish().unwrap().0);
        let (store, mut writer) = open_disk(Box::new(FaultyDisk::new())).unwrap();
        let job =
            DelayedJob { inputs: vec![("p/q".into(), 1)], payload: b"1".to_vec(), ..DelayedJob::default() };
        let delayed = vec![Delayed { step: step(), due: Timestamp(5000), job }];
        writer.commit(&Changes { delayed, ..Changes::default() }).unwrap();
        let Started { flows, tickers, heads, .. } = start::start(&configuration, &store, NOW).unwrap();
        let mut floor = Floor::new(Plan {
            flows,
            tickers,
            heads,
            tails: Arc::new(Tails::new(configuration.queues.len())),
            workers: 1,
            batch: BatchLimit { jobs: 10, bytes: 1000 },
            until_idle: false,
            stats: Arc::new(Stats::new(configuration.steps.len(), NOW)),
            configuration: Arc::clone(&configuration),
        });
        start::recall(&mut floor, &configuration, &store, NOW).unwrap();
        floor.start(NOW, &mut Vec::new());
        Self { floor, store, _writer: writer }
    }

    fn row(&self) -> DelayedKey {
        self.store.due(&step(), crate::store::NEVER, None, 9, 999).unwrap().remove(0).0
    }

    /// What of a request reaches the store, and how many jobs it leaves alone.
    fn ask(&mut self, request: Request) -> (Request, u64) {
        let (reply, _) = crossbeam_channel::bounded(1);
        let mut actions = Vec::new();
        self.floor.take_in(Message::Asked(Asked::new(request, reply)), NOW, &mut actions).unwrap();
        let asked = actions.into_iter().find_map(|action| match action {
            Action::Commit(Order::Amend(asked)) => Some((asked.request, asked.moved.busy + asked.moved.gone)),
            _ => None,
        });
        asked.unwrap()
    }

    fn hasten(&mut self) -> (Request, u64) {
        let rows = vec![Row::of(&self.row())];
        self.ask(Request::Hasten { step: step(), rows })
    }

    fn cancel(&mut self, rows: Vec<Row>, jobs: Vec<u64>) -> (Request, u64) {
        self.ask(Request::Cancel { step: step(), rows, jobs, drop: false })
    }

    /// The job was left as it stands.
    fn is_left(&mut self) {
        let row = self.row();
        let job = self.store.delayed(std::slice::from_ref(&row)).unwrap().remove(0).unwrap();
        let rows = vec![(row.clone(), Some((row, job)))];
        let position = 1;
        let moves = Moves { step: position, rows, jobs: Vec::new(), left: Vec::new() };
        let durable = Durable { moved: Some(moves), ..Durable::default() };
        self.floor.take_in(Message::Committed(durable), NOW, &mut Vec::new()).unwrap();
    }
}

fn step() -> Address {
    Address::parse("p/t").unwrap()
}

const QUEUERS: [&str; 2] = ["", "queuer = { strategy = \"serial\" }"];

#[test]
fn a_job_that_somebody_moves_is_left_alone_by_others_until_that_is_durable() {
    for queuer in QUEUERS {
        let mut play = Play::new(queuer);
        let row = Row::of(&play.row());
        let hastened = play.hasten();
        assert!(matches!(hastened, (Request::Hasten { rows, .. }, 0) if rows == [row]), "{queuer}");
        // What is taken out now would stand again when the answer to the first comes.
        let cancelled = play.cancel(vec![row], Vec::new());
        assert!(matches!(cancelled, (Request::Cancel { rows, .. }, 1) if rows.is_empty()), "{queuer}");
        play.is_left();
        let cancelled = play.cancel(vec![row], Vec::new());
        assert!(matches!(cancelled, (Request::Cancel { rows, .. }, 0) if rows == [row]), "{queuer}");
    }
}

#[test]
fn a_job_that_somebody_takes_out_is_left_alone_by_others_though_it_was_not_read_yet() {
    let mut play = Play::new(QUEUERS[1]);
    let first = play.cancel(Vec::new(), vec![7]);
    assert!(matches!(first, (Request::Cancel { jobs, .. }, 0) if jobs == [7]));
    let second = play.cancel(Vec::new(), vec![7, 8]);
    assert!(matches!(second, (Request::Cancel { jobs, .. }, 1) if jobs == [8]));
}
