//! Player: runs histories written as words on a waiting room.
//!
//! - `+a1` adds a job on lane a with age 1; `+a1!3` has priority 3; `+a1r5w6` reads key 5 and writes key 6.
//! - `?a1` adds it as unknown, `=a1` as running, `~a1@15` as delayed until second 15.
//! - `go` starts all jobs that may start, `go2` at most two.
//! - `a1✓` is finished, `a1✗15` is delayed by 15 s, `a1…` is pending.
//! - `a1?` is forgotten, `a1↩` is put back, `a1×` is cancelled.
//! - `5s` advances the time.

use super::*;

pub(crate) struct Play {
    pub(crate) room: WaitingRoom,
    pub(crate) now: Timestamp,
}

impl Play {
    pub(crate) fn new(rules: QueuePolicy) -> Self {
        Self { room: WaitingRoom::new(rules), now: Timestamp(0) }
    }

    /// Runs the words and returns the jobs that the last one started.
    pub(crate) fn on(&mut self, words: &str) -> String {
        words.split(' ').map(|word| self.word(word)).last().unwrap()
    }

    pub(crate) fn why(&self, job: &str) -> WaitReason {
        self.room.explain(key(job), self.now).unwrap()
    }

    pub(crate) fn preview(&self, rounds: usize) -> String {
        let round = |round: Round| {
            let more = if round.more > 0 { format!(" +{}", round.more) } else { String::new() };
            format!("{}s: {}{more}", round.at.0 / 1000, names(&round.jobs))
        };
        let (previewed, cut) =
            self.room.clone().preview(self.now, PreviewHorizon { rounds, listed: 3, jobs: 9 });
        let texts: Vec<String> = previewed.into_iter().map(round).collect();
        texts.join(", ") + if cut { " …" } else { "" }
    }

    fn word(&mut self, word: &str) -> String {
        let now = self.now;
        if let Some(most) = word.strip_prefix("go") {
            let mut started = Vec::new();
            self.room.start(now, most.parse().unwrap_or(usize::MAX), &mut started);
            return names(&started);
        }
        if let Some(seconds) = word.strip_suffix('s') {
            self.now.0 += seconds.parse::<i64>().unwrap() * 1000;
            return String::new();
        }
        if let Some(attributes) = word.strip_prefix(['+', '?', '=', '~']) {
            self.add(&word[..1], attributes);
            return String::new();
        }
        let at = word.find(|letter: char| !letter.is_ascii_alphanumeric()).unwrap();
        let (key, sign) = (key(&word[..at]), &word[at..]);
        let outcome = match sign {
            "✓" => self.room.finished(key, now),
            "↩" => self.room.put_back(key),
            "…" => self.room.set_pending(key, now),
            "?" => self.room.set_unknown(key),
            "×" => self.room.cancel(key, now),
            _ => {
                let seconds: i64 = sign.strip_prefix('✗').unwrap().parse().unwrap();
                self.room.delay(key, Timestamp(now.0 + seconds * 1000), now)
            }
        };
        outcome.err().map(|refusal| refusal.to_string()).unwrap_or_default()
    }

    fn add(&mut self, kind: &str, attributes: &str) {
        let (job, rest) =
            attributes.split_at(attributes.find(['@', '!', 'r', 'w']).unwrap_or(attributes.len()));
        let numbers = |mark: char| {
            let number = |part: &str| {
                let digits = part.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(part.len());
                part[..digits].parse::<u64>().unwrap()
            };
            rest.split(mark).skip(1).map(number).collect::<Vec<_>>()
        };
        let number = |mark: char| numbers(mark).first().map_or(0, |&number| i64::try_from(number).unwrap());
        let state = match kind {
            "+" => WaitingState::Waiting,
            "?" => WaitingState::Unknown,
            "=" => WaitingState::Running,
            _ => WaitingState::Delayed { until: Timestamp(number('@') * 1000) },
        };
        let attributes = JobAttributes {
            lane: &job.as_bytes()[..1],
            priority: number('!'),
            since: self.now,
            reads: &numbers('r'),
            writes: &numbers('w'),
            ..JobAttributes::new(key(job), job[1..].parse().unwrap())
        };
        self.room.add(attributes, state).unwrap();
    }
}

/// Key of a job: the lane in the highest byte, the age in the others.
pub(crate) fn key(job: &str) -> JobKey {
    JobKey(u64::from(job.as_bytes()[0]) << 32 | job[1..].parse::<u64>().unwrap())
}

pub(crate) fn names(jobs: &[JobKey]) -> String {
    let name = |job: &JobKey| format!("{}{}", char::from(job.0.to_be_bytes()[3]), job.0 & 0xffff_ffff);
    jobs.iter().map(name).collect::<Vec<_>>().join(" ")
}
