//! Finds the pages in bytes that stay in the kernel: only what says how a channel goes on is copied out, and pages that come one
//! by one with it.

use std::fs::File;
use std::io;

use drover_lanes::{Patience, Pipe};
use drover_qstream::limits::SHOWN_BYTES;
use drover_qstream::{Channel, Found, Next};

use crate::pipes::Pipes;

/// Looks at one channel.
#[derive(Debug)]
pub(crate) struct Glance {
    /// Empty between two chunks.
    pub(super) copy: Pipe,
    nowhere: File,
    /// Copied into.
    shown: Vec<u8>,
}

impl Glance {
    /// # Errors
    /// No descriptor is left.
    pub(crate) fn new(pipes: &Pipes) -> io::Result<Self> {
        Ok(Self {
            copy: pipes.make_spare()?,
            nowhere: pipes.nowhere().try_clone()?,
            shown: vec![0; SHOWN_BYTES],
        })
    }

    /// Empties the copy, of so many bytes, which are the channel's next ones.
    pub(super) fn look(
        &mut self,
        channel: &mut Channel,
        length: usize,
        found: &mut impl FnMut(Found),
    ) -> io::Result<()> {
        let mut left = length;
        while left > 0 {
            left -= match channel.next() {
                Next::Skip(count) => {
                    let count = usize::try_from(count).unwrap_or(usize::MAX).min(left);
                    let passed = self.copy.drain(&self.nowhere, count, Patience::Wait)?;
                    channel.skip(passed as u64);
                    passed
                }
                Next::Show(count) => {
                    let count = count.min(left).min(SHOWN_BYTES);
                    let read = self.copy.read(&mut self.shown[..count])?;
                    channel.feed(&self.shown[..read], found);
                    read
                }
            };
        }
        Ok(())
    }
}
