//! The threads of one channel: one reads from QEMU's socket, one writes to it.

use std::io::{self, Read};
use std::net::Shutdown;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use drover_lanes::Patience;
use drover_reduce::Wrong;
use drover_session::{ChannelId, Input, Piece};
use rustix::net::sockopt::set_socket_send_buffer_size_force;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::chunk::Chunk;
use crate::errands::Errands;
use crate::limits::{
    ACCEPT_PAUSE, BETWEEN_DISKS, DRAIN_BYTES, DRAIN_SILENCE, HELP_JOBS, QEMU_SOCKET_BYTES,
};
use crate::local::{Listening, Local};
use crate::reduction::{Expander, Glance, Reducer, Shared as Reduction, Taken};
use crate::report::{BrokenBy, Event};
use crate::shared::{ChannelPort, Reading, Shared, spawn};
use crate::turns::{Bringer, Turns};

/// Takes QEMU's connections until the relay ends; before those for memory one of whoever drives it, and those for disks, where there are
/// sockets for that. Both ends go by their numbers.
pub(crate) fn accept(shared: &Arc<Shared>) {
    let Local::Listening {
        memory,
        control,
        disks,
    } = &*shared.local
    else {
        return;
    };
    let control = control.iter().map(|control| (control, 1));
    let disks = disks.iter().map(|(disks, count)| (disks, *count));
    for (socket, count) in control.chain(disks) {
        if !(0..count).all(|_| accept_one(shared, socket)) {
            return;
        }
        socket.close();
    }
    while accept_one(shared, memory) {}
}

/// Takes one connection; false once the relay has ended.
fn accept_one(shared: &Arc<Shared>, socket: &Listening) -> bool {
    while let Some(accepted) = shared.accept_at(socket) {
        match accepted.map(|stream| shared.channel_accepted(stream)) {
            Ok(Ok(())) => return true,
            // The socket is closed by now, so that its other end sees the connection fail.
            Ok(Err(error)) => tracing::warn!(%error, "turned a connection of QEMU away"),
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection of QEMU");
                std::thread::sleep(ACCEPT_PAUSE);
            }
        }
    }
    false
}

/// Starts the threads of a channel that QEMU opened.
pub(crate) fn start_accepted(
    shared: &Arc<Shared>,
    channel_id: ChannelId,
    stream: Arc<UnixStream>,
) -> ChannelPort {
    let (read, reads) = channel();
    let writes = start_threads(shared, channel_id, Some(stream.clone()), reads);
    ChannelPort {
        read,
        write: Bringer::new(writes),
        stream: Some(stream),
        shut_down: false,
    }
}

/// Starts the threads of a channel that is to be connected to QEMU at `path`.
pub(crate) fn start_connecting(
    shared: &Arc<Shared>,
    channel_id: ChannelId,
    path: PathBuf,
) -> ChannelPort {
    let (read, reads) = channel();
    // It happens here, in order, since QEMU 7.2 takes the first connection for the main channel.
    let stream = connect(&path, never_waits(shared)).map(Arc::new);
    let connected = stream.as_ref().ok().cloned();
    if let Err(error) = stream {
        let reason = format!(
            "QEMU does not accept a connection at {}: {error}",
            path.display()
        );
        break_later(shared, channel_id, reason);
    }
    let writes = start_threads(shared, channel_id, connected.clone(), reads);
    ChannelPort {
        read,
        write: Bringer::new(writes),
        stream: connected,
        shut_down: false,
    }
}

/// Starts the threads of the channel on which stored pages are told, between the session and this end's part in it.
pub(crate) fn start_telling(
    shared: &Arc<Shared>,
    channel_id: ChannelId,
    stream: io::Result<UnixStream>,
) -> ChannelPort {
    let stream = stream.map(Arc::new);
    let made = stream.as_ref().ok().cloned();
    if let Err(error) = stream {
        let reason = format!("stored pages cannot be told: {error}");
        break_later(shared, channel_id, reason);
    }
    let (read, reads) = channel();
    let writes = start_threads(shared, channel_id, made.clone(), reads);
    ChannelPort {
        read,
        write: Bringer::new(writes),
        stream: made,
        shut_down: false,
    }
}

/// The session's end of that channel, at whose other end somebody tells or listens.
pub(crate) fn make_telling(shared: &Shared) -> io::Result<UnixStream> {
    let reduction = shared.reduction.as_ref();
    let take_part = reduction.map(|reduction| reduction.take_part_in_telling());
    let take_part = take_part.ok_or(io::ErrorKind::Unsupported)?;
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(never_waits(shared))?;
    if shared.is_source() {
        // It only listens.
        theirs.shutdown(Shutdown::Write)?;
    }
    spawn("telling", move || take_part(theirs))?;
    Ok(ours)
}

/// Whether QEMU's sockets wait only where somebody asks for it. That is so at the end that writes
/// much, where chunks in pipes are tried first; at the other one system call less reads them.
fn never_waits(shared: &Shared) -> bool {
    shared.pool.pipes().is_some() && !shared.is_source()
}

/// Connects without waiting: the session's lock is held, and a QEMU that hangs with a full queue of
/// connections would hold up everything.
fn connect(path: &Path, never_waits: bool) -> io::Result<UnixStream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    // More than an administrator allows everybody takes a privilege.
    if set_socket_send_buffer_size_force(&socket, QEMU_SOCKET_BYTES).is_err() {
        socket.set_send_buffer_size(QEMU_SOCKET_BYTES)?;
    }
    socket.connect(&SockAddr::unix(path)?)?;
    socket.set_nonblocking(never_waits)?;
    Ok(OwnedFd::from(socket).into())
}

/// Reports a channel as broken from a thread of its own: the caller holds the session's lock.
fn break_later(shared: &Arc<Shared>, channel: ChannelId, reason: String) {
    let shared = shared.clone();
    let result = spawn("break", move || {
        lost(&shared, channel, BrokenBy::Socket, reason);
    });
    if let Err(error) = result {
        tracing::error!(%error, channel, "cannot start a thread");
    }
}

fn broke(shared: &Arc<Shared>, channel: ChannelId, by: BrokenBy, reason: String) {
    if !shared.was_shut_down(channel) {
        shared.tell(Event::ChannelBroke {
            channel,
            by,
            reason,
        });
    }
    shared.step_or_end(Input::LocalBroke { channel });
}

/// The same, and bytes are lost that the source's QEMU sent. The other one takes the end of a channel of multifd for an orderly one,
/// and waits for its bytes for ever, its guest stopped: so the main channel breaks as well, by which both fail the migration.
fn lost(shared: &Arc<Shared>, channel: ChannelId, by: BrokenBy, reason: String) {
    let main = shared.local.main();
    broke(shared, channel, by, reason);
    // Without the other end of whoever drives it QEMU's migration comes to nothing, too.
    if channel != main && !shared.is_telling(channel) && shared.shut_down(main) {
        shared.step_or_end(Input::LocalBroke { channel: main });
    }
}

fn start_threads(
    shared: &Arc<Shared>,
    channel: ChannelId,
    stream: Option<Arc<UnixStream>>,
    reads: Receiver<Reading>,
) -> Arc<Writes> {
    let (reader, writer) = (shared.clone(), shared.clone());
    let from = stream.clone();
    let chunk_bytes = shared.chunk_bytes;
    let expander = shared.reduction_of(channel);
    let tool = Tool {
        channel,
        stream,
        never_waits: never_waits(shared),
        expander: expander.map(|reduction| Expander::new(reduction, chunk_bytes)),
    };
    let writes = Turns::new(tool);
    let own = writes.clone();
    let started = spawn(&format!("read-{channel}"), move || {
        read(&reader, channel, from, &reads)
    })
    .and_then(|()| spawn(&format!("write-{channel}"), move || write(&writer, &own)));
    if let Err(error) = started {
        break_later(shared, channel, format!("cannot start a thread: {error}"));
    }
    writes
}

fn read(
    shared: &Arc<Shared>,
    channel: ChannelId,
    stream: Option<Arc<UnixStream>>,
    reads: &Receiver<Reading>,
) {
    let mut reducer = reducer(shared, channel);
    while let Some(reading) = next(reads, reducer.as_mut()) {
        let buffer = reading.buffer;
        let result = match &stream {
            Some(stream) => shared.pool.fill(buffer, |chunk| {
                take(shared, reducer.as_mut(), stream, &reading, chunk)
            }),
            None => Ok(Taken::NOTHING),
        };
        let input = match result {
            Ok(Taken { length: 0, .. }) => Input::ReadEnded { channel, buffer },
            Ok(Taken { length, reduced }) => Input::Read {
                channel,
                buffer,
                length: length as u32,
                reduced,
            },
            Err(error) => {
                let reason = format!("reading from QEMU failed: {error}");
                if shared.is_source() {
                    lost(shared, channel, BrokenBy::Socket, reason);
                } else {
                    // But for the main channel there is nothing to be read.
                    broke(shared, channel, BrokenBy::Socket, reason);
                }
                Input::ReadEnded { channel, buffer }
            }
        };
        shared.step_and_help(input);
    }
    if let Some(stream) = &stream
        && channel > shared.local.main()
    {
        drain(stream);
    }
}

/// What is to be read next, once there is room for it.
fn next(reads: &Receiver<Reading>, reducer: Option<&mut Reducer>) -> Option<Reading> {
    match reducer {
        Some(reducer) => reducer.wait(reads),
        None => reads.recv().ok(),
    }
}

/// What makes fewer bytes of what the source's QEMU sends on that channel, if that was agreed on.
fn reducer(shared: &Shared, channel: ChannelId) -> Option<Reducer> {
    let reduction = shared
        .reduction_of(channel)
        .filter(|_| shared.is_source())?;
    let glance = shared.pool.pipes().map(Glance::new).transpose();
    let glance = glance.unwrap_or_else(|error| {
        tracing::warn!(%error, channel, "bytes are copied through memory");
        None
    });
    Some(Reducer::new(reduction, channel, glance))
}

/// Fills a chunk with what QEMU has sent.
fn take(
    shared: &Shared,
    reducer: Option<&mut Reducer>,
    stream: &UnixStream,
    reading: &Reading,
    chunk: &mut Chunk,
) -> io::Result<Taken> {
    if let (Some(reducer), Some(reduction)) = (reducer, &shared.reduction) {
        return reducer.take(reduction, stream, reading, chunk);
    }
    let length = chunk.take_from(stream, reading.most as usize)?;
    Ok(Taken {
        length,
        reduced: false,
    })
}

/// Reads what QEMU still sends, and throws it away, until QEMU closes.
///
/// A QEMU that cancels a migration can wait for ever when its multifd channels are closed under it
/// (docs/measurements/qemu-cancel.md); one whose channels are read to their end does not. Nothing
/// is lost by it: the main channel is closed, so that this migration can only fail.
fn drain(mut stream: &UnixStream) {
    let mut scratch = vec![0; DRAIN_BYTES];
    let waits = stream.set_nonblocking(false);
    if waits
        .and_then(|()| stream.set_read_timeout(Some(DRAIN_SILENCE)))
        .is_ok()
    {
        while matches!(stream.read(&mut scratch), Ok(count) if count > 0) {}
    }
}

/// How much of a channel's socket is closed when its migration has failed.
pub(crate) fn closing(shared: &Shared, channel: ChannelId) -> Shutdown {
    // Without the main channel QEMU fails the migration at once.
    match channel <= shared.local.main() {
        true => Shutdown::Both,
        false => Shutdown::Write,
    }
}

/// Closes disks' sockets in libvirt's order, with time for QEMU to end the copy of one before the next. Where that of a later disk ends first,
/// libvirt 9.0 may miss the end of an earlier one, and waits for it until its daemon is started again.
fn shut_down_in_order(shared: &Shared, disks: Range<ChannelId>) {
    for disk in disks.clone() {
        if disk != disks.start {
            std::thread::sleep(BETWEEN_DISKS);
        }
        shared.shut_down(disk);
    }
}

/// What is needed to write to a channel's socket. Without one, what arrives is taken and thrown
/// away, as the session expects.
#[derive(Debug)]
pub(crate) struct Tool {
    channel: ChannelId,
    stream: Option<Arc<UnixStream>>,
    /// The socket never waits by itself, so that even a chunk in a pipe can be tried.
    never_waits: bool,
    expander: Option<Expander>,
}

pub(crate) type Writes = Turns<Tool, Piece>;

impl Tool {
    /// Writes a piece, or what is left of it: whether it is done with. It always is with patience.
    fn write(&mut self, shared: &Arc<Shared>, piece: Piece, patience: Patience) -> bool {
        if matches!(piece, Piece::End | Piece::Reset) {
            self.main_channel_ended(shared);
            self.control_ended(shared);
        }
        let Some(open) = self.stream.clone() else {
            return true;
        };
        let has_bytes = matches!(piece, Piece::Bytes { .. });
        let error = match self.write_to(shared, &open, piece, patience) {
            Ok(()) => return true,
            Err(error) => error,
        };
        if patience == Patience::Hurry && error.kind() == io::ErrorKind::WouldBlock {
            return false;
        }
        self.stream = None;
        let by = by(&error);
        let reason = format!("writing to QEMU failed: {error}");
        if has_bytes && !shared.is_source() {
            lost(shared, self.channel, by, reason);
        } else {
            broke(shared, self.channel, by, reason);
        }
        // Once it was told why: QEMU may end by it.
        let _ = open.shutdown(closing(shared, self.channel));
        true
    }

    fn write_to(
        &mut self,
        shared: &Shared,
        stream: &UnixStream,
        piece: Piece,
        patience: Patience,
    ) -> io::Result<()> {
        match piece {
            Piece::Begin => Ok(()),
            Piece::Bytes {
                buffer,
                length,
                reduced,
            } => {
                // Anything but the peer's bytes would be written into the guest's memory.
                let lost = || io::Error::other("the bytes of a chunk are not in their buffer");
                let give = |chunk: &mut Chunk| {
                    if patience == Patience::Hurry && self.would_wait(shared, chunk, reduced) {
                        return Err(io::ErrorKind::WouldBlock.into());
                    }
                    let raw = if reduced {
                        self.expand(shared, chunk)?
                    } else {
                        length
                    };
                    self.record(shared, chunk);
                    chunk.give_to(stream, patience)?;
                    self.gave(shared, raw, length, reduced);
                    Ok(())
                };
                shared.pool.empty(buffer, give).ok_or_else(lost)?
            }
            Piece::End => close(stream, Shutdown::Write),
            Piece::Reset => close(stream, closing(shared, self.channel)),
        }
    }

    /// The source's QEMU says nothing more, if this was its main channel.
    fn main_channel_ended(&self, shared: &Shared) {
        if let Some(reduction) = &shared.reduction
            && self.channel == shared.local.main()
        {
            reduction.stop_telling();
        }
    }

    /// Whoever drives QEMU on the destination says nothing more: where QEMU's channels are open still, it has gone, and a
    /// libvirtd waits for their end before it has the guest run on.
    fn control_ended(&self, shared: &Arc<Shared>) {
        if !shared.is_source() || !shared.local.is_control(self.channel) {
            return;
        }
        shared.shut_down(shared.local.main());
        let disks = self.channel + 1..shared.local.main();
        if disks.is_empty() {
            return;
        }
        let (theirs, each) = (Arc::clone(shared), disks.clone());
        let started = spawn("close", move || shut_down_in_order(&theirs, each));
        if started.is_err() {
            for disk in disks {
                shared.shut_down(disk);
            }
        }
    }

    /// Whether to write it is not for a thread that only helps.
    fn would_wait(&self, shared: &Shared, chunk: &Chunk, reduced: bool) -> bool {
        reduced || records(shared).is_some() || chunk.is_in_pipe() && !self.never_waits
    }

    /// Has the pages of a chunk recorded, where that is wanted and all before it were.
    fn record(&mut self, shared: &Shared, chunk: &Chunk) {
        let Some((reduction, expander)) = records(shared).zip(self.expander.as_mut()) else {
            return;
        };
        match chunk.all_in_memory() {
            Some(raw) => expander.record(reduction, raw),
            None => expander.record_no_more(),
        }
    }

    /// QEMU has so many bytes more, for so many that arrived.
    fn gave(&mut self, shared: &Shared, raw: u32, wire: u32, reduced: bool) {
        if let (Some(reduction), Some(expander)) = (&shared.reduction, &mut self.expander)
            && !shared.is_source()
        {
            expander.gave(reduction, raw.into(), wire.into(), reduced);
        }
    }

    /// Replaces what the chunk has with what that stands for; how many bytes that is.
    fn expand(&mut self, shared: &Shared, chunk: &mut Chunk) -> io::Result<u32> {
        let not_agreed = || io::Error::other("the peer reduces, which was not agreed on");
        let agreed = shared.reduction.as_ref().zip(self.expander.as_mut());
        let (reduction, expander) = agreed.ok_or_else(not_agreed)?;
        let bytes = chunk.all_in_memory().unwrap_or_default();
        let expanded = expander.expand(reduction, bytes);
        expanded.map_err(|wrong| io::Error::other(Unusable(wrong)))?;
        let memory = chunk.memory_to_fill();
        expander.give(memory);
        let count = memory.len();
        chunk.filled(count);
        Ok(count as u32)
    }
}

/// A chunk that gives QEMU nothing.
#[derive(Debug, thiserror::Error)]
#[error("a chunk cannot be used: {0}")]
struct Unusable(Wrong);

fn by(error: &io::Error) -> BrokenBy {
    match error.get_ref() {
        Some(inner) if inner.is::<Unusable>() => BrokenBy::Chunk,
        _ => BrokenBy::Socket,
    }
}

/// What has arriving pages recorded.
fn records(shared: &Shared) -> Option<&Reduction> {
    let reduction = shared.reduction.as_ref();
    reduction.filter(|reduction| reduction.recording().is_some())
}

/// Writes what arrived, in order, as far as it goes without waiting.
pub(crate) fn help(shared: &Arc<Shared>, writes: &Writes, errands: &mut Errands) {
    let mut work = writes.begin();
    for _ in 0..HELP_JOBS {
        let Some((mut tool, piece)) = work else {
            return;
        };
        if !tool.write(shared, piece, Patience::Hurry) {
            return writes.leave(tool, piece);
        }
        let channel = tool.channel;
        errands.extend(shared.step(Input::Written { channel }));
        work = writes.next(tool);
    }
    if let Some((tool, piece)) = work {
        writes.leave(tool, piece);
    }
}

fn write(shared: &Arc<Shared>, writes: &Writes) {
    let mut work = writes.wait();
    while let Some((mut tool, piece)) = work {
        tool.write(shared, piece, Patience::Wait);
        let channel = tool.channel;
        shared.step_and_help(Input::Written { channel });
        work = writes.next(tool).or_else(|| writes.wait());
    }
}

/// QEMU may have closed its end already: then there is nothing left to close.
fn close(stream: &UnixStream, how: Shutdown) -> io::Result<()> {
    match stream.shutdown(how) {
        Err(error) if error.kind() != io::ErrorKind::NotConnected => Err(error),
        _ => Ok(()),
    }
}
