//! The threads of one lane: one sends what nobody else could without waiting, one receives.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use drover_lanes::{Lane, Patience, Pipe};
use drover_session::{BufferId, Input, LaneId};
use drover_wire::{Frame, HEADER_BYTES};

use crate::chunk::{Chunk, Progress};
use crate::errands::Errands;
use crate::limits::HELP_JOBS;
use crate::pipes::Pipes;
use crate::report::LaneEnd;
use crate::shared::{Shared, spawn};
use crate::turns::{Bringer, Turns};

/// One frame to send, and how far that is.
#[derive(Debug)]
pub(crate) struct Sending {
    frame: Frame,
    /// Made when it is first needed: its checksum takes a look at every byte.
    header: Option<[u8; HEADER_BYTES]>,
    chunk: Option<Arc<Chunk>>,
    progress: Progress,
}

impl Sending {
    pub(crate) fn new(frame: Frame, chunk: Option<Arc<Chunk>>) -> Self {
        Self {
            frame,
            header: None,
            chunk,
            progress: Progress::default(),
        }
    }
}

/// What is needed to send on a lane.
#[derive(Debug)]
pub(crate) struct Tool {
    id: LaneId,
    lane: Arc<Lane>,
    /// For the chunks that are in pipes.
    spare: Option<Pipe>,
    /// The lane's socket never waits by itself, so that even a chunk in a pipe can be tried.
    never_waits: bool,
    /// Every chunk is given a checksum.
    verify: bool,
}

pub(crate) type Sends = Turns<Tool, Sending>;
type Ports = (Bringer<Tool, Sending>, Sender<BufferId>);
type Work = Box<dyn FnOnce() + Send>;
type Spawn = dyn Fn(&str, Work) -> io::Result<()>;

impl Tool {
    /// A lane's socket is made to wait only where somebody asks for it if this is the end that
    /// sends much: the other end receives much, and then to wait is one system call less.
    ///
    /// # Errors
    /// The socket's error; `Unsupported` for an encrypted lane of a session whose chunks are in pipes.
    fn new(shared: &Shared, id: LaneId, lane: &Arc<Lane>) -> io::Result<Self> {
        let pipes = shared.pool.pipes();
        if pipes.is_some() && !lane.is_plain() {
            let why = "it is encrypted, and the session keeps its bytes in the kernel";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let never_waits = pipes.is_some() && shared.is_source();
        if never_waits {
            lane.never_wait()?;
        }
        Ok(Self {
            id,
            lane: lane.clone(),
            spare: pipes.map(Pipes::make_spare).transpose()?,
            never_waits,
            verify: shared.verify,
        })
    }

    /// The checksum of a chunk that passes through our memory, where nothing else protects it.
    fn checksum(&self, chunk: &Chunk) -> Option<u32> {
        let bytes = chunk.all_in_memory().filter(|bytes| !bytes.is_empty())?;
        (self.verify || self.lane.is_plain()).then(|| checksum(bytes))
    }

    /// Goes on with a job.
    fn send(&self, job: &mut Sending, patience: Patience) -> io::Result<()> {
        let lane = &self.lane;
        let nothing = Chunk::new(None);
        let chunk = job.chunk.as_deref().unwrap_or(&nothing);
        let would_wait = !lane.is_plain() || chunk.is_in_pipe() && !self.never_waits;
        if patience == Patience::Hurry && would_wait {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let frame = job.frame;
        let encode = || frame.encode(self.checksum(chunk));
        let header = job.header.get_or_insert_with(encode);
        if lane.is_plain() {
            return chunk.send(
                lane,
                header,
                &mut job.progress,
                self.spare.as_ref(),
                patience,
            );
        }
        let bytes = chunk.all_in_memory().ok_or(io::ErrorKind::Unsupported)?;
        lane.send(header, bytes)
    }

    fn failed(&self, error: &io::Error) -> LaneEnd {
        LaneEnd::Lost(format!("sending to {} failed: {error}", self.lane.peer()))
    }
}

/// Starts a lane's threads and returns how they are given work.
pub(crate) fn start(shared: &Arc<Shared>, id: LaneId, lane: &Arc<Lane>) -> io::Result<Ports> {
    start_by(&|name, work| spawn(name, work), shared, id, lane)
}

fn start_by(
    spawn: &Spawn,
    shared: &Arc<Shared>,
    id: LaneId,
    lane: &Arc<Lane>,
) -> io::Result<Ports> {
    let sends = Turns::new(Tool::new(shared, id, lane)?);
    // Before the threads: the first ends by it when the second cannot be started.
    let bringer = Bringer::new(sends.clone());
    let (receive, receives) = channel();
    let ending = Arc::new(AtomicBool::new(false));
    let run = |name: &str, work: Box<dyn FnOnce(&Side<'_>) -> LaneEnd + Send>| {
        let (shared, lane, ending) = (shared.clone(), lane.clone(), ending.clone());
        let run = move || {
            shared.places.enter(lane.local().ip());
            let reason = work(&Side {
                shared: &shared,
                lane: &lane,
                id,
            });
            shared.lane_failed(id, reason);
            // The second thread to end is the one that reports: then nothing uses the lane's
            // buffers any more.
            if ending.swap(true, Ordering::AcqRel) {
                shared.lane_gone(id);
            }
        };
        spawn(&format!("{name}-{id}"), Box::new(run))
    };
    run("send", Box::new(move |on| send_all(on, &sends)))?;
    run("recv", Box::new(move |on| receive_all(on, &receives)))?;
    Ok((bringer, receive))
}

/// What a lane's thread works on.
struct Side<'a> {
    shared: &'a Arc<Shared>,
    lane: &'a Lane,
    id: LaneId,
}

/// Sends what waits for this lane, as far as it goes without waiting.
pub(crate) fn help(shared: &Arc<Shared>, sends: &Sends, errands: &mut Errands) {
    let mut work = sends.begin();
    for _ in 0..HELP_JOBS {
        let Some((tool, mut job)) = work else {
            return;
        };
        let result = tool.send(&mut job, Patience::Hurry);
        if let Err(error) = result {
            if error.kind() != io::ErrorKind::WouldBlock {
                shared.lane_failed(tool.id, tool.failed(&error));
            }
            return sends.leave(tool, job); // its own thread fails, too, and ends
        }
        drop(job);
        errands.extend(shared.step(Input::Sent { lane: tool.id }));
        work = sends.next(tool);
    }
    if let Some((tool, job)) = work {
        sends.leave(tool, job);
    }
}

fn send_all(on: &Side<'_>, sends: &Sends) -> LaneEnd {
    let mut work = sends.wait();
    while let Some((tool, mut job)) = work {
        if let Err(error) = tool.send(&mut job, Patience::Wait) {
            return tool.failed(&error);
        }
        drop(job);
        on.shared.step_or_end(Input::Sent { lane: on.id });
        work = sends.next(tool).or_else(|| sends.wait());
    }
    LaneEnd::Closed
}

fn receive_all(on: &Side<'_>, receives: &Receiver<BufferId>) -> LaneEnd {
    while let Ok(buffer) = receives.recv() {
        match receive(on, buffer) {
            Ok(frame) => {
                let lane = on.id;
                if let (Frame::Checkpoint { channel, sequence }, Some(reduction)) =
                    (frame, &on.shared.reduction)
                {
                    reduction.worked_off(channel, sequence);
                }
                on.shared.step_and_help(Input::Received { lane, frame });
                if matches!(frame, Frame::Bye { .. }) {
                    return LaneEnd::Closed;
                }
            }
            Err(end) => return end,
        }
    }
    LaneEnd::Closed
}

fn receive(on: &Side<'_>, buffer: BufferId) -> Result<Frame, LaneEnd> {
    let peer = on.lane.peer();
    let failed = |error: io::Error| {
        LaneEnd::Lost(match error.kind() {
            io::ErrorKind::UnexpectedEof => format!("{peer} closed the connection"),
            _ => format!("receiving from {peer} failed: {error}"),
        })
    };
    let mut header = [0; HEADER_BYTES];
    on.lane.receive(&mut header).map_err(failed)?;
    let (frame, checksum) = Frame::decode(&header)
        .map_err(|error| LaneEnd::Lost(format!("{peer} sent no frame: {error}")))?;
    let (length, limit) = (frame.payload_length(), on.shared.chunk_bytes);
    if length > limit {
        return Err(LaneEnd::Lost(format!(
            "{peer} sent a chunk of {length} bytes, {limit} are agreed on"
        )));
    }
    if length > 0 {
        let length = length as usize;
        if checksum.is_none() && on.shared.verify {
            let reason = format!("{peer} sent a chunk without the checksum agreed on");
            return Err(LaneEnd::Lost(reason));
        }
        let fill = |chunk: &mut Chunk| match checksum {
            None => chunk.receive(on.lane, length),
            Some(expected) => {
                let bytes = chunk.receive_in_memory(on.lane, length)?;
                check(bytes, expected)
            }
        };
        on.shared.pool.fill(buffer, fill).map_err(failed)?;
    }
    Ok(frame)
}

/// CRC-32C: what the processor has an instruction for.
fn checksum(bytes: &[u8]) -> u32 {
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes);
    sum as u32 // 32 bits wide, as the algorithm's name says
}

fn check(bytes: &[u8], expected: u32) -> io::Result<()> {
    let found = checksum(bytes);
    if found == expected {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "a chunk of {} bytes came damaged (CRC-32C {found:08x}, sent with {expected:08x}); it is \
         sent again over another lane",
        bytes.len()
    )))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::time::Duration;

    use drover_lanes::Connection;
    use drover_session::{Config, Role, Session};

    use super::*;
    use crate::Sizes;
    use crate::local::{Listening, Local};
    use crate::pool::Pool;
    use crate::report::Settings;

    fn shared() -> Arc<Shared> {
        let settings = Settings {
            sizes: Sizes {
                chunk_bytes: 4096,
                window: 4,
            },
            channels_max: 1,
            outage_limit: Duration::ZERO,
            pass_through: false,
            verify: false,
            reduction: None,
        };
        let session = Session::new(Config {
            role: Role::Opener,
            chunk_bytes: 4096,
            window: 4,
            channels_max: 1,
            urgent: 1,
            early_bulk: 0,
            outage_limit: Duration::ZERO,
        });
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("near");
        let local = Local::Listening {
            memory: Listening::at(&socket).unwrap(),
            control: None,
            disks: None,
        };
        let pool = Pool::new(1, Err("unwanted"));
        let local = Arc::new(local);
        Shared::new(session.unwrap(), pool, &settings, local, Arc::new(|_| {}))
    }

    fn lane() -> (Arc<Lane>, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let near = Connection::adopt(listener.accept().unwrap().0).unwrap();
        (Arc::new(near.into_plain()), far)
    }

    #[test]
    fn a_lane_whose_second_thread_cannot_be_started_leaves_no_first_behind() {
        let (shared, (lane, _far)) = (shared(), lane());
        let (tell, ends) = channel();
        let spawn = move |name: &str, work: Work| {
            if name.starts_with("recv") {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let tell = tell.clone();
            std::thread::spawn(move || {
                work();
                let _ = tell.send(());
            });
            Ok(())
        };
        let started = start_by(&spawn, &shared, 0, &lane);
        assert_eq!(started.err().unwrap().kind(), io::ErrorKind::WouldBlock);
        let ended = ends.recv_timeout(Duration::from_secs(20));
        assert_eq!(ended, Ok(()), "the first thread waits for ever");
        assert_eq!(Arc::strong_count(&shared), 1);
    }
}
