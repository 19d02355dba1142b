//! When a socket wakes who waits for it (socket(7), `SO_RCVLOWAT`).
//!
//! To be woken for each packet of a chunk costs more than to receive it. So a reader that waits for
//! the rest of a chunk says how much that is, and waits by poll(2): a read that has taken a part would be
//! woken for as many bytes again.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicI32, Ordering};

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::SetStruct;

#[derive(Debug, Clone, Copy)]
struct ReceiveLowWater;

nix::setsockopt_impl!(
    ReceiveLowWater,
    libc::SOL_SOCKET,
    libc::SO_RCVLOWAT,
    i32,
    SetStruct<'_, i32>
);

/// How many bytes have to be there before the reader of one socket is woken.
///
/// The kernel wakes it all the same when the connection ends.
#[derive(Debug)]
pub(crate) struct LowWater(AtomicI32);

impl LowWater {
    /// Whoever had the socket before may have left another mark.
    pub(crate) fn of(socket: BorrowedFd<'_>) -> io::Result<Self> {
        setsockopt(&socket, ReceiveLowWater, &1)?;
        Ok(Self(AtomicI32::new(1)))
    }

    /// From now on its reader is woken for so many bytes, and for no fewer.
    pub(crate) fn set(&self, socket: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
        let mark = i32::try_from(bytes).unwrap_or(i32::MAX).max(1);
        if self.0.load(Ordering::Relaxed) != mark {
            setsockopt(&socket, ReceiveLowWater, &mark)?;
            self.0.store(mark, Ordering::Relaxed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::thread;

    use rustix::event::PollFlags;

    use super::LowWater;
    use crate::limits::{MARK_MOST, MARK_TIME};
    use crate::splice::wait_until;
    use crate::{Connection, Lane, Pipe};

    fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    fn lanes() -> (Lane, Lane) {
        let (near, far) = connected();
        let plain = |stream| Connection::adopt(stream).unwrap().into_plain();
        (plain(near), plain(far))
    }

    #[test]
    fn a_reader_is_woken_by_so_many_bytes_and_by_no_fewer() {
        let (near, far) = lanes();
        let socket = far.plain_fd().unwrap();
        let mark = LowWater::of(socket).unwrap();
        mark.set(socket, 1000).unwrap();
        near.send(&[0; 999], b"").unwrap();
        assert!(!wait_until(socket, PollFlags::IN, Some(MARK_TIME)).unwrap());
        near.send(&[0], b"").unwrap();
        assert!(wait_until(socket, PollFlags::IN, None).unwrap());
    }

    #[test]
    fn a_mark_that_was_left_behind_holds_nobody_up() {
        let (near, far) = connected();
        LowWater::of(far.as_fd())
            .unwrap()
            .set(far.as_fd(), 1000)
            .unwrap();
        let far = Connection::adopt(far).unwrap().into_plain();
        let near = Connection::adopt(near).unwrap().into_plain();
        near.send(b"a", b"").unwrap();
        far.receive(&mut [0]).unwrap();
    }

    #[test]
    fn fewer_bytes_are_waited_for_no_longer_than_that_time() {
        let (near, far) = lanes();
        near.send(&[0; 10], b"").unwrap();
        far.wait_for(MARK_MOST).unwrap();
    }

    #[test]
    fn the_end_of_a_connection_ends_the_wait() {
        let (near, far) = lanes();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| far.receive(&mut vec![0; MARK_MOST]).unwrap_err().kind());
            near.send(b"half", b"").unwrap();
            near.finish_sending();
            let ended = waiting.join().unwrap();
            assert_eq!(ended, std::io::ErrorKind::UnexpectedEof);
        });
    }

    /// Chunks of all sizes one after the other, each received in one way after a header.
    fn carry(far: &Lane, near: &Lane, receive: impl Fn(&Lane, usize) + Sync) {
        let sizes = [
            1,
            200_000,
            1,
            5_000,
            4_096,
            130_000,
            64 << 10,
            3,
            1 << 20,
            20,
        ];
        thread::scope(|scope| {
            scope.spawn(|| {
                for size in sizes.repeat(5) {
                    far.receive(&mut [0; 20]).unwrap();
                    receive(far, size);
                }
            });
            for size in sizes.repeat(5) {
                near.send(&[0; 20], &vec![0; size]).unwrap();
            }
        });
    }

    #[test]
    fn small_chunks_after_large_ones_are_not_waited_for_as_long() {
        let in_memory = |lane: &Lane, size: usize| lane.receive(&mut vec![0; size]).unwrap();
        let in_pipe = |lane: &Lane, size: usize| {
            let pipe = Pipe::new(64).unwrap();
            let moved = lane.receive_into(&pipe, size).unwrap();
            lane.receive(&mut vec![0; size - moved]).unwrap();
        };
        for waits in [true, false] {
            let (near, far) = lanes();
            if !waits {
                far.never_wait().unwrap();
            }
            carry(&far, &near, in_memory);
            carry(&far, &near, in_pipe);
        }
    }

    #[test]
    fn more_than_the_socket_holds_arrives_all_the_same() {
        let (near, far) = lanes();
        thread::scope(|scope| {
            scope.spawn(|| near.send(&vec![7; 64 << 20], b"").unwrap());
            let mut all = vec![0; 64 << 20];
            far.receive(&mut all).unwrap();
            assert!(all.iter().all(|byte| *byte == 7));
        });
    }
}
