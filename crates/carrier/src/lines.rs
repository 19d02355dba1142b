//! Lines over a UNIX socket, with the descriptors that come with them.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use drover_types::in_short;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;

use crate::limits::{LANES_OPENING, LINE_BYTES};

/// Read at once.
const PIECE_BYTES: usize = 16 << 10;

/// What was received and not yet taken.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    bytes: Vec<u8>,
    /// Up to here there is no end of a line.
    searched: usize,
    descriptors: VecDeque<OwnedFd>,
}

impl Lines {
    /// Receives what is there, or the first that comes if the socket blocks; false at the end.
    ///
    /// # Errors
    /// The socket's, or that the other end does not keep to the bounds.
    pub(crate) fn fill(&mut self, socket: &UnixStream) -> io::Result<bool> {
        let mut piece = [0; PIECE_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let pieces = &mut [IoSliceMut::new(&mut piece)];
            match recvmsg(socket, pieces, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(rustix::io::Errno::INTR) => {}
                other => break other?,
            }
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors);
            }
        }
        if self.descriptors.len() > LANES_OPENING {
            return Err(io::Error::other("more descriptors than are asked for"));
        }
        self.bytes.extend_from_slice(&piece[..received.bytes]);
        Ok(received.bytes > 0)
    }

    /// The next whole line, without its end.
    ///
    /// # Errors
    /// It has no end within [`LINE_BYTES`].
    pub(crate) fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let found = self.bytes[self.searched..].iter().position(|b| *b == b'\n');
        let Some(end) = found.map(|at| self.searched + at) else {
            self.searched = self.bytes.len();
            if self.searched > LINE_BYTES {
                let reason = format!("a line is longer than {LINE_BYTES} bytes");
                return Err(io::Error::other(reason));
            }
            return Ok(None);
        };
        let mut line: Vec<u8> = self.bytes.drain(..=end).collect();
        line.pop();
        self.searched = 0;
        Ok(Some(line))
    }

    /// The oldest descriptor that came.
    pub(crate) fn descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptors.pop_front()
    }
}

/// What a line says.
///
/// # Errors
/// It says nothing of the kind, in words of sensible length.
pub(crate) fn decode<T: DeserializeOwned>(line: &[u8]) -> io::Result<T> {
    serde_json::from_slice(line).map_err(|error| io::Error::other(in_short(error)))
}

/// Sends a line, whole, with a descriptor if there is one.
///
/// # Errors
/// The socket's; how much was sent is then unknown.
pub(crate) fn send(
    mut socket: &UnixStream,
    line: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut sent = 0;
    if let Some(descriptor) = descriptor {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [descriptor];
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        sent = loop {
            let pieces = &[IoSlice::new(line)];
            match sendmsg(socket, pieces, &mut control, SendFlags::NOSIGNAL) {
                Err(rustix::io::Errno::INTR) => {}
                other => break other?,
            }
        };
    }
    socket.write_all(&line[sent..])
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn lines_come_whole_however_they_are_cut_and_descriptors_in_their_order() {
        let (near, far) = UnixStream::pair().unwrap();
        let (one, two) = UnixStream::pair().unwrap();
        send(&near, b"first\nsec", Some(one.as_fd())).unwrap();
        send(&near, b"ond\n", Some(two.as_fd())).unwrap();
        drop(near);
        let mut lines = Lines::default();
        let mut taken = Vec::new();
        while lines.fill(&far).unwrap() {
            while let Some(line) = lines.next().unwrap() {
                taken.push(String::from_utf8(line).unwrap());
            }
        }
        assert_eq!(taken, ["first", "second"]);
        // The first that came is `one`: what is written to it arrives at `two`.
        let first = UnixStream::from(lines.descriptor().unwrap());
        send(&first, b"x", None).unwrap();
        let mut at_two = Lines::default();
        assert!(at_two.fill(&two).unwrap());
        assert_eq!(at_two.bytes, b"x");
        assert!(lines.descriptor().is_some());
        assert!(lines.descriptor().is_none());
    }

    #[test]
    fn a_line_without_end_is_refused_at_the_bound() {
        let (near, far) = UnixStream::pair().unwrap();
        let writer = std::thread::spawn(move || {
            // The reader hangs up.
            let _ = send(&near, &vec![b'x'; 2 * LINE_BYTES], None);
        });
        let mut lines = Lines::default();
        let error = loop {
            assert!(lines.fill(&far).unwrap());
            match lines.next() {
                Ok(line) => assert_eq!(line, None),
                Err(error) => break error,
            }
        };
        assert!(error.to_string().contains("longer than"), "{error}");
        drop(far);
        writer.join().unwrap();
    }

    #[test]
    fn more_descriptors_than_lanes_can_be_opening_are_refused() {
        let (near, far) = UnixStream::pair().unwrap();
        let (one, _two) = UnixStream::pair().unwrap();
        let mut lines = Lines::default();
        let mut refused = false;
        for _ in 0..=LANES_OPENING {
            send(&near, b"x", Some(one.as_fd())).unwrap();
            refused |= lines.fill(&far).is_err();
        }
        assert!(refused);
    }
}
