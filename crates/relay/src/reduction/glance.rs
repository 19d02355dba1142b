//! Finds the packets in bytes that stay in the kernel: only what says how a channel goes on is copied out.

use std::fs::File;
use std::io;

use drover_lanes::{Patience, Pipe};
use drover_qstream::{Channel, Packet};

use crate::pipes::Pipes;

/// Bytes that are read at once: a header of the usual pages.
const HEADER_BYTES: usize = 2048;

/// Looks at one channel.
#[derive(Debug)]
pub(crate) struct Glance {
    /// Empty between two chunks.
    pub(super) copy: Pipe,
    nowhere: File,
}

impl Glance {
    /// # Errors
    /// No descriptor is left.
    pub(crate) fn new(pipes: &Pipes) -> io::Result<Self> {
        Ok(Self {
            copy: pipes.make_spare()?,
            nowhere: pipes.nowhere().try_clone()?,
        })
    }

    /// Empties the copy, of so many bytes, which are the channel's next ones.
    pub(super) fn look(
        &mut self,
        channel: &mut Channel,
        length: usize,
        found: &mut impl FnMut(Packet),
    ) -> io::Result<()> {
        let mut left = length;
        while left > 0 {
            let ahead = usize::try_from(channel.ahead()).unwrap_or(usize::MAX);
            left -= if ahead > 0 {
                let passed = self
                    .copy
                    .drain(&self.nowhere, left.min(ahead), Patience::Wait)?;
                channel.skip(passed as u64);
                passed
            } else {
                let mut header = [0; HEADER_BYTES];
                let wanted = left.min(channel.wants()).min(HEADER_BYTES);
                let read = self.copy.read(&mut header[..wanted])?;
                channel.feed(&header[..read], found);
                read
            };
        }
        Ok(())
    }
}
