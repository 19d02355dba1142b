//! The threads of one channel: one reads from QEMU's socket, one writes to it.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use drover_session::{BufferId, ChannelId, Input, Piece};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::limits::{ACCEPT_PAUSE, DRAIN_BYTES, DRAIN_SILENCE};
use crate::report::Event;
use crate::shared::{ChannelPort, Shared, spawn};

/// Takes QEMU's connections until the relay ends.
pub(crate) fn accept(shared: &Arc<Shared>) {
    while let Some(accepted) = shared.accept_local() {
        match accepted.map(|stream| shared.channel_accepted(stream)) {
            Ok(Ok(())) => {}
            // The socket is closed by now, so that QEMU sees its connection fail.
            Ok(Err(refused)) => tracing::warn!(%refused, "turned a connection of QEMU away"),
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection of QEMU");
                std::thread::sleep(ACCEPT_PAUSE);
            }
        }
    }
}

/// Starts the threads of a channel that QEMU opened.
pub(crate) fn start_accepted(
    shared: &Arc<Shared>,
    channel_id: ChannelId,
    stream: Arc<UnixStream>,
) -> ChannelPort {
    let (read, reads) = channel();
    let (write, writes) = channel();
    start_threads(shared, channel_id, Some(stream.clone()), reads, writes);
    ChannelPort {
        read,
        write,
        stream: Some(stream),
    }
}

/// Starts the threads of a channel that is to be connected to QEMU at `path`.
pub(crate) fn start_connecting(
    shared: &Arc<Shared>,
    channel_id: ChannelId,
    path: PathBuf,
) -> ChannelPort {
    let (read, reads) = channel();
    let (write, writes) = channel();
    // It happens here, in order, since QEMU 7.2 takes the first connection for the main channel.
    let stream = connect(&path).map(Arc::new);
    let connected = stream.as_ref().ok().cloned();
    if let Err(error) = stream {
        let reason = format!(
            "QEMU does not accept a connection at {}: {error}",
            path.display()
        );
        break_later(shared, channel_id, reason);
    }
    start_threads(shared, channel_id, connected.clone(), reads, writes);
    ChannelPort {
        read,
        write,
        stream: connected,
    }
}

/// Connects without waiting: the session's lock is held, and a QEMU that hangs with a full queue of
/// connections would hold up everything.
fn connect(path: &Path) -> io::Result<UnixStream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&SockAddr::unix(path)?)?;
    socket.set_nonblocking(false)?;
    Ok(OwnedFd::from(socket).into())
}

/// Reports a channel as broken from a thread of its own: the caller holds the session's lock.
fn break_later(shared: &Arc<Shared>, channel: ChannelId, reason: String) {
    let shared = shared.clone();
    let result = spawn("break", move || broke(&shared, channel, reason));
    if let Err(error) = result {
        tracing::error!(%error, channel, "cannot start a thread");
    }
}

fn broke(shared: &Arc<Shared>, channel: ChannelId, reason: String) {
    shared.tell(Event::ChannelBroke { channel, reason });
    shared.step_or_end(Input::LocalBroke { channel });
}

fn start_threads(
    shared: &Arc<Shared>,
    channel: ChannelId,
    stream: Option<Arc<UnixStream>>,
    reads: Receiver<BufferId>,
    writes: Receiver<Piece>,
) {
    let (reader, writer) = (shared.clone(), shared.clone());
    let (from, to) = (stream.clone(), stream);
    let started = spawn(&format!("read-{channel}"), move || {
        read(&reader, channel, from, &reads)
    })
    .and_then(|()| {
        spawn(&format!("write-{channel}"), move || {
            write(&writer, channel, to, &writes)
        })
    });
    if let Err(error) = started {
        break_later(shared, channel, format!("cannot start a thread: {error}"));
    }
}

fn read(
    shared: &Arc<Shared>,
    channel: ChannelId,
    stream: Option<Arc<UnixStream>>,
    reads: &Receiver<BufferId>,
) {
    while let Ok(buffer) = reads.recv() {
        let result = match &stream {
            Some(stream) => shared.pool.fill(buffer, |bytes| read_some(stream, bytes)),
            None => Ok(0),
        };
        let input = match result {
            Ok(0) => Input::ReadEnded { channel, buffer },
            Ok(length) => Input::Read {
                channel,
                buffer,
                length: length as u32,
            },
            Err(error) => {
                broke(
                    shared,
                    channel,
                    format!("reading from QEMU failed: {error}"),
                );
                Input::ReadEnded { channel, buffer }
            }
        };
        shared.step_or_end(input);
    }
    if let Some(stream) = &stream
        && channel > 0
    {
        drain(stream);
    }
}

fn read_some(mut stream: &UnixStream, bytes: &mut [u8]) -> io::Result<usize> {
    loop {
        match stream.read(bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Reads what QEMU still sends, and throws it away, until QEMU closes.
///
/// A QEMU that cancels a migration can wait for ever when its multifd channels are closed under it
/// (docs/measurements/qemu-cancel.md); one whose channels are read to their end does not. Nothing
/// is lost by it: the main channel is closed, so that this migration can only fail.
fn drain(mut stream: &UnixStream) {
    let mut scratch = vec![0; DRAIN_BYTES];
    if stream.set_read_timeout(Some(DRAIN_SILENCE)).is_ok() {
        while matches!(stream.read(&mut scratch), Ok(count) if count > 0) {}
    }
}

/// How much of a channel's socket is closed when its migration has failed.
pub(crate) fn closing(channel: ChannelId) -> Shutdown {
    match channel {
        // Without the main channel QEMU fails the migration at once.
        0 => Shutdown::Both,
        _ => Shutdown::Write,
    }
}

/// Writes what arrives, in order. Once the socket broke, the rest is taken and thrown away, as the
/// session expects.
fn write(
    shared: &Arc<Shared>,
    channel: ChannelId,
    mut stream: Option<Arc<UnixStream>>,
    writes: &Receiver<Piece>,
) {
    while let Ok(piece) = writes.recv() {
        if let Some(open) = &stream
            && let Err(error) = write_piece(shared, open, channel, piece)
        {
            let _ = open.shutdown(closing(channel));
            stream = None;
            broke(shared, channel, format!("writing to QEMU failed: {error}"));
        }
        shared.step_or_end(Input::Written { channel });
    }
}

fn write_piece(
    shared: &Shared,
    mut stream: &UnixStream,
    channel: ChannelId,
    piece: Piece,
) -> io::Result<()> {
    match piece {
        Piece::Begin => Ok(()),
        Piece::Bytes { buffer, length } => {
            let held = shared.pool.share(buffer);
            let bytes = held.as_ref().and_then(|held| held.get(..length as usize));
            // Anything but the peer's bytes would be written into the guest's memory.
            let lost = || io::Error::other("the bytes of a chunk are not in their buffer");
            stream.write_all(bytes.ok_or_else(lost)?)
        }
        Piece::End => close(stream, Shutdown::Write),
        Piece::Reset => close(stream, closing(channel)),
    }
}

/// QEMU may have closed its end already: then there is nothing left to close.
fn close(stream: &UnixStream, how: Shutdown) -> io::Result<()> {
    match stream.shutdown(how) {
        Err(error) if error.kind() != io::ErrorKind::NotConnected => Err(error),
        _ => Ok(()),
    }
}
