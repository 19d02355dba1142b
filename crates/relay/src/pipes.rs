//! Where the pipes of a session's chunks come from, and why there are no more of them.
//!
//! A pipe costs two descriptors and, in the kernel, 40 bytes for each slot. They are made one at a
//! time, when so many chunks are on their way for the first time, and used again afterwards.

use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use drover_lanes::{Patience, Pipe};
use rustix::process::{Resource, getrlimit};

use crate::limits::{PIPE_SEGMENT_BYTES, PIPES_DESCRIPTORS_PART};
use crate::report::DataPath;

/// Makes a session's pipes, as long as it may.
#[derive(Debug)]
pub(crate) struct Pipes {
    slots: usize,
    most: usize,
    made: AtomicUsize,
    /// Why a chunk is in memory instead.
    refused: OnceLock<String>,
    nowhere: File,
}

impl Pipes {
    /// For chunks of at most `chunk_bytes`, once it has been seen that this kernel can do it.
    pub(crate) fn new(chunk_bytes: u32) -> Result<Self, String> {
        let slots = slots(chunk_bytes);
        try_out(slots).map_err(|error| format!("splice does not work here: {error}"))?;
        let nowhere = File::options().write(true).open("/dev/null");
        let nowhere = nowhere.map_err(|error| format!("cannot open /dev/null: {error}"))?;
        Ok(Self {
            slots,
            most: most(getrlimit(Resource::Nofile).current),
            made: AtomicUsize::new(0),
            refused: OnceLock::new(),
            nowhere,
        })
    }

    /// The next pipe; `None` when a chunk has to do with memory.
    pub(crate) fn make(&self) -> Option<Pipe> {
        if self.refused.get().is_some() {
            return None;
        }
        let made = self.made.fetch_add(1, Ordering::Relaxed);
        let result = if made < self.most {
            self.make_spare()
                .map_err(|error| format!("no pipe could be made after {made}: {error}"))
        } else {
            Err(format!(
                "{made} pipes are all that this session may have of the open files' limit"
            ))
        };
        if let Err(reason) = &result {
            tracing::warn!(reason, "further chunks are copied through memory");
            let _ = self.refused.set(reason.clone()); // the first reason is the one that counts
        }
        result.ok()
    }

    /// A pipe that is not for a chunk, but takes one.
    pub(crate) fn make_spare(&self) -> io::Result<Pipe> {
        Pipe::new(self.slots)
    }

    /// Where bytes go that nobody wants.
    pub(crate) fn nowhere(&self) -> &File {
        &self.nowhere
    }

    /// `reduced`: some bytes are.
    pub(crate) fn data_path(&self, reduced: bool) -> DataPath {
        DataPath::Splice {
            except: self.refused.get().cloned(),
            reduced,
        }
    }
}

/// Slots that take a chunk which came in packets of the usual size.
fn slots(chunk_bytes: u32) -> usize {
    // A chunk need not begin or end where a packet does.
    let packets = chunk_bytes.div_ceil(PIPE_SEGMENT_BYTES) + 2;
    packets.next_power_of_two() as usize
}

/// Pipes that a session may have where a process may have so many descriptors.
fn most(descriptors: Option<u64>) -> usize {
    let per_session = descriptors.unwrap_or(u64::MAX) / PIPES_DESCRIPTORS_PART;
    usize::try_from(per_session / 2).unwrap_or(usize::MAX)
}

/// Moves a few bytes from one socket to another in the way of a chunk.
fn try_out(slots: usize) -> io::Result<()> {
    let bytes = *b"drover";
    let (from, to) = (UnixStream::pair()?, UnixStream::pair()?);
    let (chunk, spare) = (Pipe::new(slots)?, Pipe::new(slots)?);
    io::Write::write_all(&mut &from.0, &bytes)?;
    chunk.fill(&from.1, bytes.len(), Patience::Hurry)?;
    chunk.tee(&spare, bytes.len())?;
    spare.drain(&to.0, bytes.len(), Patience::Wait)?;
    let mut seen = [0; 6];
    to.1.set_nonblocking(true)?;
    io::Read::read_exact(&mut &to.1, &mut seen)?;
    if seen == bytes {
        Ok(())
    } else {
        Err(io::Error::other("what came out is not what went in"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_in_packets_of_1500_bytes_fits_into_the_slots() {
        assert_eq!(slots(256 << 10), 256);
        assert_eq!(slots(1), 4);
    }

    #[test]
    fn a_session_leaves_three_quarters_of_the_descriptors_to_others() {
        assert_eq!(most(Some(1024)), 128);
        assert_eq!(most(Some(65536)), 8192);
        assert!(most(None) > 1 << 40);
    }

    #[test]
    fn pipes_that_may_not_be_made_leave_a_reason() {
        let pipes = Pipes {
            most: 1,
            ..Pipes::new(4096).unwrap()
        };
        assert_eq!(pipes.data_path(false).to_string(), "splice");
        assert_eq!(
            pipes.data_path(true).to_string(),
            "splice of what is not reduced"
        );
        assert!(pipes.make().is_some());
        assert!(pipes.make().is_none() && pipes.make().is_none());
        let DataPath::Splice {
            except: Some(reason),
            ..
        } = pipes.data_path(false)
        else {
            panic!("no reason");
        };
        assert!(reason.contains("1 pipes"), "{reason}");
    }
}
