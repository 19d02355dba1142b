//! Bytes that stay in the kernel: a pipe holds references to them, and a lane sends from it and
//! receives into it without anybody copying them.
//!
//! ```text
//! socket --fill--> pipe --tee--> pipe --drain--> socket
//! ```
//!
//! A pipe has slots, and a slot holds a piece of one page of the kernel's, or of a few that lie
//! beside each other, however small that piece is. So a pipe can be full long before its bytes say
//! so, and everything here tells how far it came.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, ioctl_fionread};
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice, tee};

use crate::Lane;

/// A pipe to keep bytes in.
#[derive(Debug)]
pub struct Pipe {
    output: OwnedFd,
    input: OwnedFd,
}

/// Whether a call may wait for its socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// It waits until something can be done.
    Wait,
    /// It fails with `WouldBlock` instead.
    Hurry,
}

impl Pipe {
    /// An empty pipe with at least this many slots.
    ///
    /// # Errors
    /// The kernel's: no descriptor is left, or the user may not have so many slots
    /// (`/proc/sys/fs/pipe-user-pages-soft`).
    pub fn new(slots: usize) -> io::Result<Self> {
        let (output, input) = pipe_with(PipeFlags::CLOEXEC)?;
        // To read more than is there is a mistake, and shall not wait for ever.
        fcntl_setfl(&output, OFlags::NONBLOCK)?;
        let wanted = slots * rustix::param::page_size();
        let granted = fcntl_setpipe_size(&input, wanted)?;
        if granted < wanted {
            return Err(io::Error::other(format!(
                "the kernel makes a pipe of {granted} bytes where {wanted} are needed"
            )));
        }
        Ok(Self { output, input })
    }

    /// Moves up to `most` bytes that a socket has received into the pipe: how many; zero when the
    /// socket is at its end. To wait for the first of them is for an empty pipe only: for a slot it
    /// would wait as well.
    ///
    /// # Errors
    /// The socket's error; `WouldBlock` when it has nothing, or the pipe no slot.
    pub fn fill(&self, socket: impl AsFd, most: usize, patience: Patience) -> io::Result<usize> {
        let flags = match patience {
            Patience::Wait => SpliceFlags::empty(),
            Patience::Hurry => SpliceFlags::NONBLOCK,
        };
        let fill = || splice(&socket, None, &self.input, None, most, flags);
        match patience {
            Patience::Wait => waiting(&socket, PollFlags::IN, fill),
            Patience::Hurry => retry(fill),
        }
    }

    /// Moves up to `count` of the pipe's first bytes, at least one, to a socket or file: how many.
    /// Without patience only to a socket that never waits ([`never_wait`]).
    ///
    /// # Errors
    /// The error of `to`; `WouldBlock` when it is full; `UnexpectedEof` when the pipe is empty.
    pub fn drain(&self, to: impl AsFd, count: usize, patience: Patience) -> io::Result<usize> {
        let flags = SpliceFlags::NONBLOCK; // of the pipe: a socket waits, or not, as it always does
        loop {
            match retry(|| splice(&self.output, None, &to, None, count, flags)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if ioctl_fionread(&self.output)? == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    if patience == Patience::Hurry {
                        return Err(error);
                    }
                    wait_until(&to, PollFlags::OUT, None)?;
                }
                other => return other,
            }
        }
    }

    /// Copies the pipe's first bytes out of it: how many.
    ///
    /// # Errors
    /// `WouldBlock` when it is empty.
    pub fn read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        retry(|| rustix::io::read(&self.output, &mut *bytes))
    }

    /// Puts the first `count` bytes of this pipe into `copy` as well, which is empty and has as
    /// many slots. Nobody copies a byte: both pipes hold references to them.
    ///
    /// # Errors
    /// The kernel's; `UnexpectedEof` when fewer are there, or `copy` has too few slots.
    pub fn tee(&self, copy: &Pipe, count: usize) -> io::Result<()> {
        let teed = retry(|| tee(&self.output, &copy.input, count, SpliceFlags::NONBLOCK))?;
        if teed < count {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }
}

impl Lane {
    /// The socket, for what only a plain lane can do.
    fn socket(&self) -> io::Result<BorrowedFd<'_>> {
        self.plain_fd()
            .ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// From now on no call waits for this lane's socket unless it says so. Only for a plain lane,
    /// as everything here.
    ///
    /// # Errors
    /// The socket's error.
    pub fn never_wait(&self) -> io::Result<()> {
        never_wait(self.socket()?)
    }

    /// Sends some of these bytes: how many. `more` holds back what fills no packet, as more follows
    /// at once.
    ///
    /// # Errors
    /// The socket's error.
    pub fn send_some(
        &self,
        slices: &[IoSlice<'_>],
        more: bool,
        patience: Patience,
    ) -> io::Result<usize> {
        send_some(self.socket()?, slices, more, patience)
    }

    /// Sends some of the first `count` bytes of `pipe`, which leave it: how many.
    ///
    /// # Errors
    /// The socket's error.
    pub fn send_from(&self, pipe: &Pipe, count: usize, patience: Patience) -> io::Result<usize> {
        pipe.drain(self.socket()?, count, patience)
    }

    /// Moves the next `count` bytes into `pipe`, which is empty: how many, fewer than `count` only
    /// when the pipe has no slot left.
    ///
    /// # Errors
    /// The socket's error, or `UnexpectedEof` when the peer closed.
    pub fn receive_into(&self, pipe: &Pipe, count: usize) -> io::Result<usize> {
        let socket = self.socket()?;
        self.wake_at_once()?; // or a small chunk would be waited for as for the last one
        let mut moved = 0;
        while moved < count {
            let patience = match moved {
                0 => Patience::Wait,
                _ => Patience::Hurry,
            };
            match pipe.fill(socket, count - moved, patience) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(more) => moved += more,
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                Err(_) => break, // something is there, so it is the pipe that is full
            }
            if moved < count {
                self.wait_for(count - moved)?;
            }
        }
        Ok(moved)
    }
}

/// Sends some of these bytes: how many. `more` holds back what fills no packet, as more follows at
/// once.
///
/// # Errors
/// The socket's error; `WouldBlock` without patience.
pub fn send_some(
    socket: impl AsFd,
    slices: &[IoSlice<'_>],
    more: bool,
    patience: Patience,
) -> io::Result<usize> {
    let mut flags = SendFlags::NOSIGNAL;
    flags.set(SendFlags::MORE, more);
    flags.set(SendFlags::DONTWAIT, patience == Patience::Hurry);
    let send = || sendmsg(&socket, slices, &mut SendAncillaryBuffer::default(), flags);
    match patience {
        Patience::Wait => waiting(&socket, PollFlags::OUT, send),
        Patience::Hurry => retry(send),
    }
}

/// Reads what the socket has, and waits for it: how many bytes; zero at its end.
///
/// # Errors
/// The socket's error.
pub fn read_some(socket: impl AsFd, bytes: &mut [u8]) -> io::Result<usize> {
    let read = || rustix::io::read(&socket, &mut *bytes);
    waiting(&socket, PollFlags::IN, read)
}

/// From now on no call waits for this socket by itself.
///
/// # Errors
/// The socket's error.
pub fn never_wait(socket: impl AsFd) -> io::Result<()> {
    let flags = fcntl_getfl(&socket)?;
    Ok(fcntl_setfl(&socket, flags | OFlags::NONBLOCK)?)
}

/// Waits until the socket can do that, or has failed; with a bound no longer than that. Whether it
/// came about.
///
/// # Errors
/// The kernel's.
pub(crate) fn wait_until(
    socket: impl AsFd,
    can: PollFlags,
    bound: Option<Duration>,
) -> io::Result<bool> {
    let mut fds = [PollFd::new(&socket, can)];
    let bound = bound.map(Timespec::try_from).transpose();
    let bound = bound.map_err(|_| io::ErrorKind::InvalidInput)?;
    retry(|| poll(&mut fds, bound.as_ref())).map(|ready| ready > 0)
}

/// Does it again as long as the socket would have to be waited for.
fn waiting<T>(
    socket: impl AsFd,
    can: PollFlags,
    mut call: impl FnMut() -> Result<T, Errno>,
) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::AGAIN) => drop(wait_until(&socket, can, None)?),
            Err(Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

/// Does it again as long as a signal interrupts it.
fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;
    use crate::Connection;

    const SLOTS: usize = 16;

    fn lanes() -> (Lane, Lane) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        let plain = |stream| Connection::adopt(stream).unwrap().into_plain();
        (plain(near), plain(far))
    }

    fn content(count: usize) -> Vec<u8> {
        (0..count as u32)
            .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect()
    }

    fn filled(bytes: &[u8]) -> Pipe {
        let pipe = Pipe::new(SLOTS).unwrap();
        let (mut from, to) = UnixStream::pair().unwrap();
        from.write_all(bytes).unwrap();
        let count = pipe.fill(&to, bytes.len(), Patience::Wait).unwrap();
        assert_eq!(count, bytes.len());
        pipe
    }

    fn taken(pipe: &Pipe, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        assert_eq!(rustix::io::read(&pipe.output, &mut bytes), Ok(count));
        bytes
    }

    #[test]
    fn a_pipe_keeps_what_was_teed_from_it() {
        let bytes = content(20_000);
        let (pipe, copy) = (filled(&bytes), Pipe::new(SLOTS).unwrap());
        pipe.tee(&copy, bytes.len()).unwrap();
        drop(taken(&copy, bytes.len()));
        pipe.tee(&copy, bytes.len()).unwrap();
        assert!(taken(&pipe, bytes.len()) == bytes && taken(&copy, bytes.len()) == bytes);
    }

    #[test]
    fn more_than_a_pipe_holds_is_an_error_and_no_wait() {
        let pipe = filled(b"abc");
        let copy = Pipe::new(SLOTS).unwrap();
        let error = pipe.tee(&copy, 4).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        let (_from, to) = UnixStream::pair().unwrap();
        assert_eq!(pipe.drain(&to, 4, Patience::Wait).unwrap(), 3);
        let error = pipe.drain(&to, 1, Patience::Wait).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn in_a_hurry_nobody_waits_for_a_socket() {
        let (from, to) = UnixStream::pair().unwrap();
        let pipe = Pipe::new(SLOTS).unwrap();
        let error = pipe.fill(&to, 10, Patience::Hurry).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        never_wait(&from).unwrap();
        let pipe = filled(&content(40_000));
        let full = [IoSlice::new(&[0; 4096])];
        while send_some(&from, &full, false, Patience::Hurry).is_ok() {}
        let error = pipe.drain(&from, 40_000, Patience::Hurry).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(taken(&pipe, 40_000), content(40_000));
    }

    #[test]
    fn a_lane_that_never_waits_carries_everything_where_it_is_waited_for() {
        let (near, far) = lanes();
        near.never_wait().unwrap();
        far.never_wait().unwrap();
        let bytes = content(3_000_000);
        thread::scope(|scope| {
            scope.spawn(|| {
                for part in bytes.chunks(50_000) {
                    let (pipe, mut sent) = (filled(part), 0);
                    while sent < part.len() {
                        let left = part.len() - sent;
                        sent += near.send_from(&pipe, left, Patience::Wait).unwrap();
                    }
                }
            });
            let mut seen = vec![0; bytes.len()];
            far.receive(&mut seen).unwrap();
            assert!(seen == bytes, "bytes differ");
        });
    }

    #[test]
    fn what_finds_no_slot_in_the_pipe_stays_in_the_socket() {
        let (near, far) = lanes();
        let bytes = content(500_000);
        thread::scope(|scope| {
            scope.spawn(|| near.send(&[], &bytes).unwrap());
            let pipe = Pipe::new(2).unwrap();
            let moved = far.receive_into(&pipe, bytes.len()).unwrap();
            assert!((1..bytes.len()).contains(&moved), "{moved}");
            let mut seen = taken(&pipe, moved);
            seen.resize(bytes.len(), 0);
            far.receive(&mut seen[moved..]).unwrap();
            assert!(seen == bytes, "bytes differ");
        });
    }

    #[test]
    fn a_peer_that_closes_in_the_middle_is_an_error() {
        let (near, far) = lanes();
        near.send(b"half", b"").unwrap();
        near.shut_down();
        let pipe = Pipe::new(SLOTS).unwrap();
        let error = far.receive_into(&pipe, 8).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_socket_at_its_end_fills_nothing() {
        let (from, mut to) = UnixStream::pair().unwrap();
        drop(from);
        assert_eq!(
            Pipe::new(SLOTS)
                .unwrap()
                .fill(&to, 8, Patience::Wait)
                .unwrap(),
            0
        );
        assert_eq!(to.read(&mut [0; 1]).unwrap(), 0);
    }
}
