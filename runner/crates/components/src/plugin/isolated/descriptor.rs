//! Passing of descriptors: sends a descriptor to another process, over a socket.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// The byte that is sent with it, since a message must not be empty.
const ALONG: [u8; 1] = [0];

pub(crate) fn send(over: impl AsFd, passed: impl AsFd) -> io::Result<()> {
    let passed = [passed.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut message = SendAncillaryBuffer::new(&mut space);
    message.push(SendAncillaryMessage::ScmRights(&passed));
    sendmsg(over, &[IoSlice::new(&ALONG)], &mut message, SendFlags::NOSIGNAL)?;
    Ok(())
}

pub(crate) fn receive(over: impl AsFd) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut message = RecvAncillaryBuffer::new(&mut space);
    let mut along = ALONG;
    recvmsg(over, &mut [IoSliceMut::new(&mut along)], &mut message, RecvFlags::CMSG_CLOEXEC)?;
    let passed = message.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut passed) => passed.next(),
        _ => None,
    });
    passed.ok_or_else(|| ErrorKind::UnexpectedEof.into())
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn what_is_passed_is_the_same_file() {
        let (here, there) = UnixStream::pair().unwrap();
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        send(&here, theirs).unwrap();
        let mut received = UnixStream::from(receive(&there).unwrap());
        received.write_all(b"hello").unwrap();
        drop(received);
        let mut text = String::new();
        ours.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
    }

    #[test]
    fn a_message_without_a_descriptor_is_an_error() {
        let (here, there) = UnixStream::pair().unwrap();
        drop(here);
        assert_eq!(receive(&there).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }
}
