//! `ConnectionLimit`: limits the clients of a socket at one time, and chooses the client that is closed for a new one.
//!
//! A client that keeps the runner waiting is closed, idle ones first: between two requests after [`IDLE`],
//! within one after [`SILENCE`], or if it sends less than [`PACE`]. A client whose request is in work is
//! never closed. While places are free, no client is closed.
//!
//! Fewer requests are worked on at a time than places exist, so that a request that needs no work is always
//! answered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_model::sync::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// How long a client may be silent within a request, or take for a head, when places are scarce.
const SILENCE: Duration = Duration::from_secs(2);
/// How long an idle client keeps its place when places are scarce.
const IDLE: Duration = Duration::from_millis(100);
/// Minimum rate of a body when places are scarce, in bytes per second …
const PACE: u64 = 1024;
/// … after this time.
const PACE_AFTER: Duration = Duration::from_secs(5);

/// The places of one socket. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionLimit(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    table: Mutex<Table>,
    /// A place may be free, or another client may be closed now.
    changed: Notify,
}

/// The place of a client. Dropping it frees the place.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    shared: Arc<Shared>,
    id: u64,
    leave: Arc<Notify>,
}

/// The phase of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It sends no request.
    Idle,
    /// It sends the head of a request, or is about to.
    Head,
    /// It sends the body of a request.
    Body,
    /// Its request is worked on.
    Work,
    /// Its last answer is sent.
    Over,
}

#[derive(Debug)]
struct Table {
    places_max: usize,
    works_max: usize,
    seats: BTreeMap<u64, Seat>,
    next: u64,
    /// Number of requests in work.
    works: usize,
}

#[derive(Debug)]
struct Seat {
    phase: Phase,
    since: Instant,
    /// When the last byte was received or sent.
    moved: Instant,
    /// Bytes received in this phase.
    bytes: u64,
    /// It has not read its answer yet.
    unsent: bool,
    works: bool,
    leave: Arc<Notify>,
}

impl ConnectionLimit {
    /// Room for `places` clients, of which `works` may have requests in work at a time.
    pub(crate) fn new(places: usize, works: usize) -> Self {
        let table = Table { places_max: places, works_max: works, seats: BTreeMap::new(), next: 0, works: 0 };
        Self(Arc::new(Shared { table: Mutex::new(table), changed: Notify::new() }))
    }

    /// A place for a new client. Waits until one is free, or until another client is closed.
    pub(crate) async fn take(&self) -> ConnectionPermit {
        loop {
            let taken = self.0.table().take(Instant::now());
            match taken {
                Ok((id, leave)) => return ConnectionPermit { shared: Arc::clone(&self.0), id, leave },
                Err(Some(at)) => drop(timeout_at(at, self.0.changed.notified()).await),
                Err(None) => self.0.changed.notified().await,
            }
        }
    }

    /// Another resource is scarce, such as open files: closes one client, if one may be closed.
    pub(crate) fn make_room(&self) {
        self.0.table().evict(Instant::now(), |_| true);
    }

    /// Waits until all places are free.
    pub(crate) async fn empty(&self) {
        while !self.0.table().seats.is_empty() {
            self.0.changed.notified().await;
        }
    }
}

impl ConnectionPermit {
    /// The client has connected: its time starts.
    pub(crate) fn accepted(&self) {
        self.change(|seat, now| seat.enter(Phase::Head, now));
    }

    /// Waits until another client needs the place.
    pub(crate) async fn has_to_leave(&self) {
        self.leave.notified().await;
    }

    /// Bytes were received from the client.
    pub(crate) fn came(&self, bytes: usize) {
        self.change(|seat, now| {
            if seat.phase == Phase::Idle {
                seat.enter(Phase::Head, now);
            }
            seat.moved = now;
            seat.bytes += bytes as u64;
        });
    }

    /// Bytes were sent to the client, or (`all` is false) could not be sent yet.
    pub(crate) fn went(&self, all: bool) {
        self.change(|seat, now| {
            if all || !seat.unsent {
                seat.moved = now;
            }
            seat.unsent = !all;
        });
    }

    /// The head of a request was received. The body follows, if it has one.
    pub(crate) fn asks(&self, has_body: bool) {
        self.change(|seat, now| seat.enter(if has_body { Phase::Body } else { Phase::Work }, now));
    }

    /// Whether the request may be worked on, until [`Self::rest`].
    #[must_use]
    pub(crate) fn begin(&self) -> bool {
        let mut table = self.shared.table();
        let is_full = table.works >= table.works_max;
        if is_full && !table.evict(Instant::now(), |seat| seat.works && seat.phase == Phase::Body) {
            return false;
        }
        let Some(seat) = table.seats.get_mut(&self.id) else { return false };
        if !std::mem::replace(&mut seat.works, true) {
            table.works += 1;
        }
        true
    }

    /// The whole request was received.
    pub(crate) fn work(&self) {
        self.change(|seat, now| seat.enter(Phase::Work, now));
    }

    /// Whether the client has more of its request to send.
    pub(crate) fn is_sending(&self) -> bool {
        self.shared.table().seats.get(&self.id).is_some_and(|seat| seat.phase == Phase::Body)
    }

    /// The request is answered. Another one may follow, unless this one is still incomplete.
    pub(crate) fn rest(&self) {
        let now = Instant::now();
        let mut table = self.shared.table();
        let Some(seat) = table.seats.get_mut(&self.id) else { return };
        if seat.phase != Phase::Body {
            seat.enter(Phase::Idle, now);
        }
        if std::mem::take(&mut seat.works) {
            table.works -= 1;
        }
        drop(table);
        self.shared.changed.notify_one();
    }

    /// The connection ends, after the client has read the answer.
    pub(crate) fn end(&self) {
        self.change(|seat, now| seat.enter(Phase::Over, now));
        self.shared.changed.notify_one();
    }

    fn change(&self, change: impl FnOnce(&mut Seat, Instant)) {
        if let Some(seat) = self.shared.table().seats.get_mut(&self.id) {
            change(seat, Instant::now());
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.shared.table().remove(self.id);
        self.shared.changed.notify_one();
    }
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }
}

impl Table {
    /// A new seat; or the earliest time of the next one, unless a place becomes free before.
    fn take(&mut self, now: Instant) -> Result<(u64, Arc<Notify>), Option<Instant>> {
        if self.seats.len() >= self.places_max && !self.evict(now, |_| true) {
            return Err(self.seats.values().filter_map(Seat::gives_way).map(|(_, at)| at).min());
        }
        let (id, leave) = (self.next, Arc::default());
        self.next += 1;
        let seat = Seat {
            phase: Phase::Head,
            since: now,
            moved: now,
            bytes: 0,
            unsent: false,
            works: false,
            leave: Arc::clone(&leave),
        };
        self.seats.insert(id, seat);
        Ok((id, leave))
    }

    /// Closes the client that comes first in [`Seat::gives_way`]. Returns whether one was closed.
    fn evict(&mut self, now: Instant, among: impl Fn(&Seat) -> bool) -> bool {
        let seats = self.seats.iter().filter(|(_, seat)| among(seat));
        let due = seats.filter_map(|(&id, seat)| seat.gives_way().map(|(rank, at)| (rank, at, id)));
        let Some((.., id)) = due.filter(|&(_, at, _)| at <= now).min() else { return false };
        if let Some(seat) = self.remove(id) {
            seat.leave.notify_one();
        }
        true
    }

    fn remove(&mut self, id: u64) -> Option<Seat> {
        let seat = self.seats.remove(&id);
        self.works -= usize::from(seat.as_ref().is_some_and(|seat| seat.works));
        seat
    }
}

impl Seat {
    fn enter(&mut self, phase: Phase, now: Instant) {
        (self.phase, self.since, self.moved, self.bytes) = (phase, now, now, 0);
    }

    /// The rank of the client among those that may be closed, and the time from which it may be.
    fn gives_way(&self) -> Option<(u8, Instant)> {
        match self.phase {
            Phase::Over => Some((0, self.since)),
            Phase::Idle if !self.unsent => Some((0, self.since + IDLE)),
            Phase::Idle => Some((1, self.moved + SILENCE)),
            Phase::Head => Some((1, self.since + SILENCE)),
            Phase::Body => {
                let pace = self.since + PACE_AFTER + Duration::from_secs(self.bytes / PACE);
                Some((1, pace.min(self.moved + SILENCE)))
            }
            Phase::Work => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn table(places: usize, works: usize) -> ConnectionLimit {
        ConnectionLimit::new(places, works)
    }

    fn seat(places: &ConnectionLimit, now: Instant) -> Result<u64, Option<Instant>> {
        places.0.table().take(now).map(|(id, _)| id)
    }

    fn set(places: &ConnectionLimit, id: u64, phase: Phase, since: Instant) {
        places.0.table().seats.get_mut(&id).unwrap().enter(phase, since);
    }

    fn there(places: &ConnectionLimit) -> Vec<u64> {
        places.0.table().seats.keys().copied().collect()
    }

    #[test]
    fn a_silent_client_gives_way_after_seconds_and_only_when_places_are_short() {
        let (places, start) = (table(2, 2), Instant::now());
        assert_eq!(seat(&places, start), Ok(0));
        assert_eq!(seat(&places, start + 1000 * MS), Ok(1));
        assert_eq!(seat(&places, start + 1500 * MS), Err(Some(start + SILENCE)));
        assert_eq!(there(&places), [0, 1]);
        assert_eq!(seat(&places, start + SILENCE), Ok(2));
        assert_eq!(there(&places), [1, 2]);
    }

    #[test]
    fn an_idle_client_gives_way_before_a_silent_one_and_one_in_work_never() {
        let (places, start) = (table(3, 3), Instant::now());
        for id in 0..3 {
            assert_eq!(seat(&places, start), Ok(id));
        }
        let later = start + Duration::from_mins(1);
        set(&places, 0, Phase::Work, start);
        set(&places, 2, Phase::Idle, later - IDLE);
        assert_eq!(seat(&places, later), Ok(3));
        assert_eq!(there(&places), [0, 1, 3]);
        assert_eq!(seat(&places, later), Ok(4));
        set(&places, 3, Phase::Work, later);
        set(&places, 4, Phase::Work, later);
        assert_eq!(seat(&places, later + later.duration_since(start)), Err(None));
        assert_eq!(there(&places), [0, 3, 4]);
    }

    #[test]
    fn half_a_body_gives_way_when_no_more_comes_or_too_little() {
        let (places, start) = (table(1, 1), Instant::now());
        assert_eq!(seat(&places, start), Ok(0));
        set(&places, 0, Phase::Body, start);
        let came = |bytes: u64, at: Instant| {
            let mut table = places.0.table();
            let seat = table.seats.get_mut(&0).unwrap();
            (seat.bytes, seat.moved) = (bytes, at);
            seat.gives_way()
        };
        assert_eq!(came(1, start + 1000 * MS), Some((1, start + 1000 * MS + SILENCE)));
        assert_eq!(came(60, start + 60_000 * MS), Some((1, start + PACE_AFTER)));
        assert_eq!(came(60 * PACE, start + 60_000 * MS), Some((1, start + 60_000 * MS + SILENCE)));
    }

    #[test]
    fn an_answer_that_is_not_read_yet_is_waited_for_like_a_body() {
        let (places, start) = (table(1, 1), Instant::now());
        assert_eq!(seat(&places, start), Ok(0));
        set(&places, 0, Phase::Idle, start);
        places.0.table().seats.get_mut(&0).unwrap().unsent = true;
        assert_eq!(seat(&places, start + IDLE), Err(Some(start + SILENCE)));
    }

    #[test]
    fn fewer_requests_are_worked_on_than_there_are_places() {
        let places = table(4, 2);
        let place = || {
            let (id, leave) = places.0.table().take(Instant::now()).unwrap();
            ConnectionPermit { shared: Arc::clone(&places.0), id, leave }
        };
        let (first, second, third) = (place(), place(), place());
        first.asks(false);
        second.asks(true);
        assert!(first.begin() && second.begin());
        assert!(!third.begin(), "the body of the second is still incomplete");
        first.rest();
        assert!(third.begin());
        assert_eq!(places.0.table().works, 2);
        drop(third);
        second.rest();
        assert!(second.is_sending());
        assert_eq!(places.0.table().works, 0);
        drop((first, second));
        assert!(there(&places).is_empty());
    }

    #[test]
    fn half_a_body_makes_room_for_work() {
        let places = table(2, 1);
        let (half, next) = (seat(&places, Instant::now()).unwrap(), seat(&places, Instant::now()).unwrap());
        let place = |id| ConnectionPermit { shared: Arc::clone(&places.0), id, leave: Arc::default() };
        let (half, next) = (place(half), place(next));
        half.asks(true);
        assert!(half.begin());
        places.0.table().seats.get_mut(&half.id).unwrap().moved -= SILENCE;
        assert!(next.begin());
        assert_eq!(there(&places), [next.id]);
    }
}
