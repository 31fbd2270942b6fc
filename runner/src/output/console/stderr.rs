//! `Stderr`: standard error as a file descriptor whose reader can never block the runner for ever.

use std::fmt::{Display, Write as _};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use indicatif::TermLike;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;

use super::{Gravity, log_line, stderr};
use tidegate_model::sync::Mutex;

/// How long one write waits for a reader. After a timeout no write waits, until one succeeds.
const PATIENCE: Duration = Duration::from_secs(1);
/// A write of up to this many bytes never blocks on a pipe that reports room (`PIPE_BUF`).
const PIECE: usize = 4096;

/// Standard error, and the outcome of the last writes.
pub(crate) struct Stderr {
    /// The pipe or terminal, opened a second time. This description is set to non-blocking without an effect
    /// on other processes. `None`: a file, or it cannot be opened.
    own: Option<OwnedFd>,
    /// The reader does not read: no write waits.
    stuck: bool,
    /// The last text was cut off in the middle of a line.
    torn: bool,
    /// Number of texts lost since the last that was written, and the error of the last one.
    lost: u64,
    why: Option<io::Error>,
}

impl Stderr {
    pub(crate) fn open() -> Self {
        let kind = fstat(rustix::stdio::stderr()).map(|stat| FileType::from_raw_mode(stat.st_mode));
        let waits = matches!(kind, Ok(FileType::Fifo | FileType::CharacterDevice));
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let own = waits.then(|| open("/proc/self/fd/2", flags, Mode::empty()).ok()).flatten();
        Self { own, stuck: false, torn: false, lost: 0, why: None }
    }

    /// Writes whole lines, after the count of the lines that were lost before.
    pub(crate) fn write(&mut self, text: &[u8]) {
        if self.lost > 0 {
            let notice = self.notice();
            if !self.pass(notice.as_bytes()) {
                self.lost += 1;
                return;
            }
            self.lost = 0;
        }
        if !self.pass(text) {
            self.lost += 1;
        }
    }

    /// Writes a text that may be lost without a count, and never waits.
    fn draw(&mut self, text: &[u8]) {
        if !self.stuck {
            self.pass(text);
        }
    }

    fn notice(&self) -> String {
        let texts = if self.lost == 1 { "1 message".to_owned() } else { format!("{} messages", self.lost) };
        let why = self.why.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        let message = format!("{texts} before this line could not be written to standard error{why}");
        log_line(Gravity::Warning, "tidegate", &message)
    }

    /// Whether the whole text was written.
    fn pass(&mut self, text: &[u8]) -> bool {
        let outcome = if self.torn {
            self.try_pass(b"\n").and_then(|()| self.try_pass(text))
        } else {
            self.try_pass(text)
        };
        match outcome {
            Ok(()) => {
                (self.stuck, self.torn) = (false, false);
                true
            }
            Err(error) => {
                self.why = Some(error);
                false
            }
        }
    }

    fn try_pass(&mut self, text: &[u8]) -> io::Result<()> {
        let patience = if self.stuck { Duration::ZERO } else { PATIENCE };
        let until = Instant::now() + patience;
        let mut rest = text;
        while !rest.is_empty() {
            match self.write_some(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    rest = &rest[written..];
                    self.torn = !rest.is_empty();
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    if !self.has_room(until.saturating_duration_since(Instant::now()))? {
                        self.stuck = true;
                        return Err(io::Error::new(io::ErrorKind::TimedOut, "its reader does not read"));
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// [`Errno::AGAIN`]: no room at the moment.
    fn write_some(&self, text: &[u8]) -> Result<usize, Errno> {
        if self.own.is_some() {
            return rustix::io::write(self.fd(), text);
        }
        match self.has_room(Duration::ZERO) {
            Ok(true) => rustix::io::write(self.fd(), &text[..text.len().min(PIECE)]),
            Ok(false) => Err(Errno::AGAIN),
            Err(error) => Err(error),
        }
    }

    /// Waits for room. A closed reader counts as room, since the write then fails at once.
    fn has_room(&self, patience: Duration) -> Result<bool, Errno> {
        let mut polled = [PollFd::from_borrowed_fd(self.fd(), PollFlags::OUT)];
        let until = Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let wait = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
            match poll(&mut polled, Some(&wait)) {
                Ok(ready) => return Ok(ready > 0),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match &self.own {
            Some(own) => own.as_fd(),
            None => rustix::stdio::stderr(),
        }
    }
}

/// The terminal of a progress bar: buffers what is drawn until it is flushed.
#[derive(Debug, Default)]
pub(crate) struct Bar(Mutex<String>);

impl Bar {
    fn draw(&self, text: impl Display) {
        // Writing to a String cannot fail.
        let _ = write!(self.0.lock(), "{text}");
    }

    /// Moves the cursor with the sequences of ECMA-48.
    fn go(&self, count: usize, direction: char) {
        if count > 0 {
            self.draw(format_args!("\u{1b}[{count}{direction}"));
        }
    }
}

impl TermLike for Bar {
    fn width(&self) -> u16 {
        console::Term::stderr().size().1
    }

    fn height(&self) -> u16 {
        console::Term::stderr().size().0
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.go(n, 'A');
        Ok(())
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.go(n, 'B');
        Ok(())
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.go(n, 'C');
        Ok(())
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.go(n, 'D');
        Ok(())
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.draw(format_args!("{text}\n"));
        Ok(())
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.draw(text);
        Ok(())
    }

    fn clear_line(&self) -> io::Result<()> {
        self.draw("\r\u{1b}[2K");
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let drawn = std::mem::take(&mut *self.0.lock());
        stderr().draw(drawn.as_bytes());
        Ok(())
    }
}
