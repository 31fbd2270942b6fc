//! `Wire`: the bytes of a connection, counted at its place. A client that still sends after its last answer
//! gets to read that answer.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::connection_limit::ConnectionPermit;

/// Bytes of an answered request that are still read at most …
const LEFTOVER_BYTES: usize = 64 << 20;
/// … and for how long.
const LEFTOVER_PATIENCE: Duration = Duration::from_secs(5);

pub(crate) struct Wire {
    stream: TcpStream,
    place: Arc<ConnectionPermit>,
    /// The rest of the request is discarded until this limit.
    leftover: Option<Leftover>,
}

struct Leftover {
    bytes: usize,
    end: Pin<Box<Sleep>>,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream, place: Arc<ConnectionPermit>) -> Self {
        Self { stream, place, leftover: None }
    }

    fn noted(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.place.went(written.is_ready());
        written
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        let came = buffer.filled().len() - before;
        if came > 0 {
            self.place.came(came);
        }
        read
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.noted(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.noted(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    /// Closing a connection with unread bytes resets it, and the client may lose the answer with the reason.
    /// So the rest is read first.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.leftover.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(context))?;
            if !this.place.is_sending() {
                return Poll::Ready(Ok(()));
            }
            this.place.end();
            let end = Box::pin(sleep_until(Instant::now() + LEFTOVER_PATIENCE));
            this.leftover = Some(Leftover { bytes: 0, end });
        }
        let Some(leftover) = &mut this.leftover else { return Poll::Ready(Ok(())) };
        let mut room = [0; 16 << 10];
        while leftover.bytes < LEFTOVER_BYTES && leftover.end.as_mut().poll(context).is_pending() {
            let mut buffer = ReadBuf::new(&mut room);
            match ready!(Pin::new(&mut this.stream).poll_read(context, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => leftover.bytes += buffer.filled().len(),
                // The client has sent everything, or has disconnected.
                _ => break,
            }
        }
        Poll::Ready(Ok(()))
    }
}
