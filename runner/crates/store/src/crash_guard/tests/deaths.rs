//! Random deaths: two workers run jobs that may kill the process, which is also killed at random. The test
//! counts the crashes of each job, and derives the expected decision.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;

const JOBS: u64 = 40;
const WORKERS: usize = 2;

/// More acts than any finite history needs.
const ACTS_MAX: u32 = 20_000;

#[derive(Clone, Copy, Debug)]
enum Act {
    /// A worker continues: it takes a batch of at most `jobs` jobs, starts a job, or ends one.
    Work { worker: usize, jobs: u64 },
    /// Finished jobs are committed, in order.
    Commit,
    /// The process dies, and no job is the cause.
    Kill,
}

/// The state that survives the process, and the model.
#[derive(Debug, Default)]
struct World {
    culprits: BTreeSet<u64>,
    crash_limit: u32,
    /// Number of deaths in a row during a job's attempts.
    crashes: BTreeMap<u64, u32>,
    watermark: u64,
    set_aside: BTreeSet<u64>,
    deaths: usize,
}

/// The state that dies with the process.
struct Life {
    process: Process,
    next: u64,
    workers: Vec<Option<Work>>,
    /// Oldest first, contiguous.
    batches: VecDeque<Batch>,
}

struct Batch {
    first: u64,
    end: u64,
    set_aside: Vec<u64>,
    finished: bool,
}

/// A batch on a worker.
struct Work {
    first: u64,
    end: u64,
    /// The job that is attempted, or comes next.
    at: u64,
    pace: BatchMode<'static>,
    /// The attempt of that job alone.
    attempt: Option<AttemptGuard<'static>>,
}

/// The outcome of an act.
enum Outcome {
    GoesOn,
    SetAside(u64),
    Dies,
}

impl World {
    fn crashes(&self, job: u64) -> u32 {
        self.crashes.get(&job).copied().unwrap_or(0)
    }

    fn survived(&mut self, jobs: std::ops::Range<u64>) {
        self.crashes.retain(|job, _| !jobs.contains(job));
    }

    /// Plays until everything is committed: first the given acts, then all workers in turn.
    fn play(&mut self, acts: &[Act]) {
        let in_turn = (0..).flat_map(|jobs| {
            let work = (0..WORKERS).map(move |worker| Act::Work { worker, jobs: jobs % 7 + 1 });
            work.chain([Act::Commit])
        });
        let mut life = Life::new(Process::first(), 0);
        for (act, number) in acts.iter().copied().chain(in_turn).zip(0..) {
            let dies = match act {
                Act::Work { worker, jobs } => life.work(worker, jobs, self),
                Act::Commit => life.commit(self),
                Act::Kill => true,
            };
            if dies {
                life = life.die(self);
            }
            if self.watermark == JOBS {
                assert!(life.process.attempts.0.is_unsuspicious());
                assert_eq!(life.process.found(), []);
                return;
            }
            assert!(number < ACTS_MAX, "a job kills the process for ever: {self:?}");
        }
    }
}

impl Life {
    fn new(process: Process, watermark: u64) -> Self {
        let workers = (0..WORKERS).map(|_| None).collect();
        Self { process, next: watermark + 1, workers, batches: VecDeque::new() }
    }

    fn die(self, world: &mut World) -> Self {
        world.deaths += 1;
        for work in self.workers.iter().flatten() {
            let attempted = match (&work.pace, &work.attempt) {
                (BatchMode::Together(_), _) => work.first..work.end,
                (BatchMode::OneByOne(_), Some(_)) => work.at..work.at + 1,
                (BatchMode::OneByOne(_), None) => continue,
            };
            attempted.for_each(|job| *world.crashes.entry(job).or_default() += 1);
        }
        let next = self.process.next();
        mem::forget(self.workers);
        Self::new(next, world.watermark)
    }

    fn commit(&mut self, world: &mut World) -> bool {
        while let Some(batch) = self.batches.pop_front_if(|batch| batch.finished) {
            world.watermark = batch.end - 1;
            world.set_aside.extend(batch.set_aside);
            world.survived(batch.first..batch.end);
            self.process.attempts.settle(&span(batch.first, batch.end - batch.first));
        }
        false
    }

    fn work(&mut self, worker: usize, jobs: u64, world: &mut World) -> bool {
        let Some(work) = &mut self.workers[worker] else {
            self.workers[worker] = self.begin(jobs, world.crash_limit);
            return false;
        };
        let batch = self.batches.iter_mut().find(|batch| batch.first == work.first).unwrap();
        match work.go_on(world) {
            Outcome::GoesOn => {}
            Outcome::SetAside(job) => batch.set_aside.push(job),
            Outcome::Dies => return true,
        }
        if work.at == work.end {
            if let BatchMode::Together(_) = work.pace {
                world.survived(work.first..work.end);
            }
            batch.finished = true;
            self.workers[worker] = None;
        }
        false
    }

    fn begin(&mut self, jobs: u64, crash_limit: u32) -> Option<Work> {
        let (first, end) = (self.next, (self.next + jobs).min(JOBS + 1));
        let batch = span(first, end - first);
        // The test has one thread: a worker that would wait retries later.
        if first == end || self.would_wait(&batch) {
            return None;
        }
        // The slot must outlive its attempts, whose lifetime is unknown.
        let slot = Box::leak(Box::new(self.process.attempts.slot()));
        let pace = slot.begin(&[batch], crash_limit);
        self.next = end;
        self.batches.push_back(Batch { first, end, set_aside: Vec::new(), finished: false });
        Some(Work { first, end, at: first, pace, attempt: None })
    }

    fn would_wait(&self, batch: &AttemptSpan) -> bool {
        let shared = &self.process.attempts.0;
        shared.concerns(&[*batch]) && shared.turn.try_lock().is_none()
    }
}

impl Work {
    fn go_on(&mut self, world: &mut World) -> Outcome {
        let job = self.at;
        if let BatchMode::OneByOne(careful) = &mut self.pace
            && self.attempt.is_none()
        {
            let crashes = world.crashes(job);
            match careful.attempt(&span(job, 1)) {
                SuspectVerdict::Run(attempt) => {
                    assert!(crashes < world.crash_limit, "job {job} runs after {crashes} crashes");
                    self.attempt = Some(attempt);
                    return Outcome::GoesOn;
                }
                SuspectVerdict::SetAside { crashes: counted } => {
                    assert!(counted >= world.crash_limit, "job {job} is set aside after {counted} crashes");
                    assert_eq!(counted, crashes, "job {job}");
                    self.at += 1;
                    return Outcome::SetAside(job);
                }
            }
        }
        if world.culprits.contains(&job) {
            return Outcome::Dies;
        }
        if self.attempt.take().is_some() {
            world.survived(job..job + 1);
        }
        self.at += 1;
        Outcome::GoesOn
    }
}

fn acts(kills: u32) -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        40 => (0..WORKERS, 1_u64..9).prop_map(|(worker, jobs)| Act::Work { worker, jobs }),
        4 => Just(Act::Commit),
        kills => Just(Act::Kill),
    ];
    prop::collection::vec(act, 0..300)
}

fn culprits() -> impl Strategy<Value = BTreeSet<u64>> {
    prop::collection::btree_set(1..=JOBS, 0..5)
}

proptest! {
    #[test]
    fn a_job_is_set_aside_exactly_when_the_process_died_so_often_while_it_was_attempted(
        culprits in culprits(),
        crash_limit in 1_u32..5,
        acts in acts(2),
    ) {
        let mut world = World { culprits, crash_limit, ..World::default() };
        world.play(&acts);
        prop_assert!(world.set_aside.is_superset(&world.culprits));
    }

    /// One crash may hit a batch on the other worker: with a limit of 1 that is enough. Several culprits may
    /// kill the process while the same suspect runs beside them.
    #[test]
    fn where_only_one_job_kills_the_process_no_innocent_one_is_set_aside(
        culprits in prop::collection::btree_set(1..=JOBS, 0..=1),
        crash_limit in 2_u32..5,
        acts in acts(0),
    ) {
        let mut world = World { culprits, crash_limit, ..World::default() };
        world.play(&acts);
        prop_assert_eq!(&world.set_aside, &world.culprits);
        prop_assert!(world.deaths <= world.culprits.len() * usize::try_from(crash_limit).unwrap());
    }
}
