//! One TCP connection and its options.

use std::io::{self, IoSlice, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use socket2::{SockRef, TcpKeepalive};

use crate::limits::{
    MARK_LEAST, MARK_MOST, MARK_TIME, PROBE_INTERVAL, SILENCE_LIMIT, UNSENT_BYTES,
};
use crate::lock;
use crate::low_water::LowWater;
use crate::splice::wait_until;

/// A connected socket with a lane's options.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: TcpStream,
    local: SocketAddr,
    peer: SocketAddr,
    /// Until when everything has to be done, while there is such a time.
    deadline: Mutex<Option<Instant>>,
    low_water: LowWater,
}

impl Socket {
    /// Takes a connected socket over and sets its options.
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(false)?;
        let socket = SockRef::from(&stream);
        socket.set_tcp_user_timeout(Some(SILENCE_LIMIT))?;
        socket.set_tcp_notsent_lowat(UNSENT_BYTES)?;
        let keepalive = TcpKeepalive::new()
            .with_time(PROBE_INTERVAL)
            .with_interval(PROBE_INTERVAL);
        socket.set_tcp_keepalive(&keepalive)?;
        Ok(Self {
            local: stream.local_addr()?,
            peer: stream.peer_addr()?,
            low_water: LowWater::of(stream.as_fd())?,
            stream,
            deadline: Mutex::new(None),
        })
    }

    pub(crate) fn local(&self) -> SocketAddr {
        self.local
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Bounds everything from here on by one time, however many calls it takes: a peer that sends
    /// a byte now and then gains nothing by it. `None` takes the bound away.
    pub(crate) fn set_deadline(&self, deadline: Option<Instant>) -> io::Result<()> {
        *lock(&self.deadline) = deadline;
        if deadline.is_none() {
            self.stream.set_read_timeout(None)?;
            self.stream.set_write_timeout(None)?;
        }
        Ok(())
    }

    /// Has the next call end in time, by `set`.
    fn bound(&self, set: fn(&TcpStream, Option<Duration>) -> io::Result<()>) -> io::Result<()> {
        let Some(deadline) = *lock(&self.deadline) else {
            return Ok(());
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        set(&self.stream, Some(left))
    }

    /// A socket's own timeout is told as if it were non-blocking.
    fn in_time(&self, error: io::Error) -> io::Error {
        match error.kind() {
            io::ErrorKind::WouldBlock if self.is_bounded() => io::ErrorKind::TimedOut.into(),
            _ => error,
        }
    }

    fn is_bounded(&self) -> bool {
        lock(&self.deadline).is_some()
    }

    /// Sends `header` and then `payload`, whole.
    pub(crate) fn send(&self, header: &[u8], payload: &[u8]) -> io::Result<()> {
        let mut slices = [IoSlice::new(header), IoSlice::new(payload)];
        let mut left = &mut slices[..];
        IoSlice::advance_slices(&mut left, 0); // drops an empty payload
        while !left.is_empty() {
            self.bound(TcpStream::set_write_timeout)?;
            match (&self.stream).write_vectored(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => IoSlice::advance_slices(&mut left, count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.in_time(error)),
            }
        }
        Ok(())
    }

    /// Sends what can be sent without waiting.
    pub(crate) fn send_at_once(&self, bytes: &[u8]) {
        // A socket that takes nothing more is closed all the same.
        let _ = rustix::net::send(
            &self.stream,
            bytes,
            SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
        );
    }

    /// Fills `buffer` whole, also where the socket never waits by itself.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.receive_some(&mut buffer[filled..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => filled += count,
            }
        }
        Ok(())
    }

    /// Fills a part of `buffer`, and waits for it: how much; zero at the connection's end.
    fn receive_some(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.receive_ready(buffer)? {
            Some(count) => Ok(count),
            None => self.receive_later(buffer),
        }
    }

    /// Waits until much of `buffer` can be filled, the connection ends or time is up: how much was
    /// filled.
    pub(crate) fn receive_later(&self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.len() < MARK_LEAST || self.is_bounded() {
            return self.receive_first(buffer);
        }
        self.wait_for(buffer.len())?;
        match self.receive_ready(buffer)? {
            Some(count) => Ok(count),
            None => self.receive_first(buffer),
        }
    }

    /// Waits for the first byte, and fills what is there then: how much; zero at the connection's
    /// end.
    fn receive_first(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.take_first(buffer, RecvFlags::empty())
    }

    /// The same, but the bytes are not looked at: the kernel drops them, and leaves the buffer as it is (tcp(7), `MSG_TRUNC`).
    pub(crate) fn discard(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.take_first(buffer, RecvFlags::TRUNC)
    }

    fn take_first(&self, buffer: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
        self.wake_at_once()?;
        loop {
            self.bound(TcpStream::set_read_timeout)?;
            match rustix::net::recv(&self.stream, &mut *buffer, flags) {
                Ok((_, count)) => return Ok(count),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if !self.is_bounded() => {
                    wait_until(&self.stream, PollFlags::IN, None)?;
                }
                Err(error) => return Err(self.in_time(error.into())),
            }
        }
    }

    /// Waits until so many bytes are there, or as many as is worth waiting for; fewer after a while,
    /// and at the connection's end.
    pub(crate) fn wait_for(&self, bytes: usize) -> io::Result<()> {
        self.low_water.set(self.fd(), bytes.min(MARK_MOST))?;
        if !wait_until(&self.stream, PollFlags::IN, Some(MARK_TIME))? {
            self.wake_at_once()?;
            wait_until(&self.stream, PollFlags::IN, None)?;
        }
        Ok(())
    }

    /// Whoever waits for this socket is woken by the first byte.
    pub(crate) fn wake_at_once(&self) -> io::Result<()> {
        self.low_water.set(self.fd(), 1)
    }

    /// What is there already, as far as it fits; `None` when there is nothing yet.
    pub(crate) fn receive_ready(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match rustix::net::recv(&self.stream, &mut *buffer, RecvFlags::DONTWAIT) {
                Ok((_, count)) => return Ok(Some(count)),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(crate) fn finish_sending(&self) {
        // An error means that it was disconnected already.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    pub(crate) fn shut_down(&self) {
        // An error means that it was disconnected already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}
