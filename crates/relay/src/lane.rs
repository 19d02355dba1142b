//! The threads of one lane: one sends, one receives.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use drover_lanes::Lane;
use drover_session::{BufferId, Input, LaneId};
use drover_wire::{Frame, HEADER_BYTES};

use crate::report::LaneEnd;
use crate::shared::{Shared, spawn};

/// One frame to send.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) frame: Frame,
    pub(crate) buffer: Option<BufferId>,
}

type Ports = (Sender<Sending>, Sender<BufferId>);

/// Starts a lane's threads and returns how they are given work.
pub(crate) fn start(shared: &Arc<Shared>, id: LaneId, lane: &Arc<Lane>) -> io::Result<Ports> {
    let (send, sends) = channel();
    let (receive, receives) = channel();
    let ending = Arc::new(AtomicBool::new(false));
    let run = |name: &str, work: Box<dyn FnOnce(&Side<'_>) -> LaneEnd + Send>| {
        let (shared, lane, ending) = (shared.clone(), lane.clone(), ending.clone());
        spawn(&format!("{name}-{id}"), move || {
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
        })
    };
    run("send", Box::new(move |on| send_all(on, &sends)))?;
    run("recv", Box::new(move |on| receive_all(on, &receives)))?;
    Ok((send, receive))
}

/// What a lane's thread works on.
struct Side<'a> {
    shared: &'a Arc<Shared>,
    lane: &'a Lane,
    id: LaneId,
}

fn send_all(on: &Side<'_>, sends: &Receiver<Sending>) -> LaneEnd {
    while let Ok(Sending { frame, buffer }) = sends.recv() {
        let length = frame.payload_length() as usize;
        let held = buffer.and_then(|buffer| on.shared.pool.share(buffer));
        // A chunk that is sent again can be confirmed before its turn comes, and its buffer be in
        // use for another: the peer has it and throws this copy away, whatever is in it.
        let bytes = held.unwrap_or_else(|| Arc::new(vec![0; length]));
        if let Err(error) = on.lane.send(&frame.encode(), &bytes[..length]) {
            return LaneEnd::Lost(format!("sending to {} failed: {error}", on.lane.peer()));
        }
        on.shared.step_or_end(Input::Sent { lane: on.id });
    }
    LaneEnd::Closed
}

fn receive_all(on: &Side<'_>, receives: &Receiver<BufferId>) -> LaneEnd {
    while let Ok(buffer) = receives.recv() {
        match receive(on, buffer) {
            Ok(frame) => {
                let lane = on.id;
                on.shared.step_or_end(Input::Received { lane, frame });
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
    let frame = Frame::decode(&header)
        .map_err(|error| LaneEnd::Lost(format!("{peer} sent no frame: {error}")))?;
    let (length, limit) = (frame.payload_length(), on.shared.chunk_bytes);
    if length > limit {
        return Err(LaneEnd::Lost(format!(
            "{peer} sent a chunk of {length} bytes, {limit} are agreed on"
        )));
    }
    if length > 0 {
        let length = length as usize;
        on.shared
            .pool
            .fill(buffer, |bytes| on.lane.receive(&mut bytes[..length]))
            .map_err(failed)?;
    }
    Ok(frame)
}
