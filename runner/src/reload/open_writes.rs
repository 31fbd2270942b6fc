//! Open writes: files that a program has begun to write and has not closed. A half-written file may be a valid one.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{Event, EventKind};

/// Time since the last write after which a file counts as written, although its program keeps it open.
const PATIENCE: Duration = Duration::from_secs(5);

/// Whether the system reports that a file was closed.
const HEARS_OF_ENDS: bool = cfg!(any(target_os = "linux", target_os = "android"));

/// Files by path, with the times of their last writes.
#[derive(Debug, Default)]
pub(super) struct OpenWrites(BTreeMap<PathBuf, Instant>);

impl OpenWrites {
    /// Takes an event in. Returns whether it ends the writing of a file.
    pub(super) fn note(&mut self, event: &Event, now: Instant) -> bool {
        match event.kind {
            EventKind::Modify(ModifyKind::Data(_)) if HEARS_OF_ENDS => {
                self.0.extend(event.paths.iter().map(|path| (path.clone(), now)));
                false
            }
            EventKind::Access(AccessKind::Close(AccessMode::Write))
            | EventKind::Remove(_)
            | EventKind::Modify(ModifyKind::Name(_)) => {
                event.paths.iter().filter(|path| self.0.remove(*path).is_some()).count() > 0
            }
            _ => false,
        }
    }

    /// Whether a file is being written.
    pub(super) fn are_open(&mut self, now: Instant) -> bool {
        self.0.retain(|_, last| now.saturating_duration_since(*last) < PATIENCE);
        !self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use notify::event::{CreateKind, DataChange, RenameMode};

    use super::*;

    fn event(kind: EventKind) -> Event {
        Event::new(kind).add_path("p.toml".into())
    }

    #[test]
    fn a_file_is_written_from_its_first_change_until_it_is_closed_moved_or_left_alone() {
        let change = EventKind::Modify(ModifyKind::Data(DataChange::Any));
        let ends = [
            EventKind::Access(AccessKind::Close(AccessMode::Write)),
            EventKind::Modify(ModifyKind::Name(RenameMode::From)),
        ];
        let now = Instant::now();
        for end in ends {
            let mut writes = OpenWrites::default();
            assert!(!writes.note(&event(EventKind::Create(CreateKind::File)), now));
            assert!(!writes.are_open(now));
            writes.note(&event(change), now);
            assert_eq!(writes.are_open(now), HEARS_OF_ENDS);
            assert!(!writes.note(&event(EventKind::Access(AccessKind::Close(AccessMode::Read))), now));
            assert_eq!(writes.are_open(now), HEARS_OF_ENDS);
            assert_eq!(writes.note(&event(end), now), HEARS_OF_ENDS);
            assert!(!writes.are_open(now));
        }
        let mut writes = OpenWrites::default();
        writes.note(&event(change), now);
        assert_eq!(writes.are_open(now + PATIENCE / 2), HEARS_OF_ENDS);
        assert!(!writes.are_open(now + PATIENCE));
    }
}
