//! One channel, looked into as its bytes pass.

use crate::found::Found;
use crate::limits::{HEADER_BYTES_MOST, SHOWN_BYTES};
use crate::main_channel::{self, MainChannel};
use crate::multifd::{self, Multifd};
use crate::opaque::Opaque;
use crate::reader::Stop;

/// What tells one channel from another.
const MAGIC_BYTES: usize = 4;

/// What a channel was recognised as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Too little has passed.
    NotYet,
    /// The main channel.
    Main,
    /// A multifd channel.
    Multifd,
    /// Not looked into from a place on.
    Opaque {
        /// The first byte of what is not known, counted from the channel's first.
        from: u64,
        /// Why.
        why: Opaque,
    },
}

/// What is best done with a channel's next bytes where showing them costs something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// So many say nothing of how it goes on, and need not be shown: [`Channel::skip`].
    Skip(u64),
    /// As many as there are, up to that, are shown at once: [`Channel::feed`].
    Show(usize),
}

/// A channel of a migration, from QEMU to QEMU.
#[derive(Debug, Clone)]
pub struct Channel {
    page_bytes: u32,
    /// Bytes that have passed.
    passed: u64,
    speaks: Speaks,
    /// Bytes that say nothing and come before the next item.
    ahead: u64,
    /// Bytes that the item has at the least.
    wanted: usize,
    /// Those of them that have passed.
    begun: Vec<u8>,
}

#[derive(Debug, Clone)]
enum Speaks {
    NotYet,
    Main(MainChannel),
    Multifd(Multifd),
    Opaque { from: u64, why: Opaque },
}

impl Channel {
    /// One of which nothing has passed, of a guest with pages of that size (QMP `query-migrate`, `page-size`).
    #[must_use]
    pub const fn new(page_bytes: u32) -> Self {
        Self {
            page_bytes,
            passed: 0,
            speaks: Speaks::NotYet,
            ahead: 0,
            wanted: MAGIC_BYTES,
            begun: Vec::new(),
        }
    }

    /// Bytes that have passed.
    #[must_use]
    pub const fn passed(&self) -> u64 {
        self.passed
    }

    /// What it was recognised as.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match &self.speaks {
            Speaks::NotYet => Kind::NotYet,
            Speaks::Main(main) if main.has_begun() => Kind::Main,
            Speaks::Multifd(multifd) if multifd.has_begun() => Kind::Multifd,
            Speaks::Main(_) | Speaks::Multifd(_) => Kind::NotYet,
            Speaks::Opaque { from, why } => Kind::Opaque {
                from: *from,
                why: *why,
            },
        }
    }

    /// How many of the next bytes say nothing of how it goes on: pages, or all that is not looked into.
    const fn ahead(&self) -> u64 {
        match self.speaks {
            Speaks::Opaque { .. } => u64::MAX,
            _ => self.ahead,
        }
    }

    /// What is best done with the next bytes. Whoever shows more or fewer, or shows what could be skipped, finds the same.
    #[must_use]
    pub const fn next(&self) -> Next {
        match (&self.speaks, self.ahead()) {
            // Its pages come one by one.
            (Speaks::Main(_), ahead) if ahead < SHOWN_BYTES as u64 => Next::Show(SHOWN_BYTES),
            (_, 0) => Next::Show(self.wanted - self.begun.len()),
            (_, ahead) => Next::Skip(ahead),
        }
    }

    /// So many of the next bytes pass without being shown, of those that [may be skipped](Next::Skip).
    pub fn skip(&mut self, count: u64) {
        let count = count.min(self.ahead());
        self.passed += count;
        self.ahead = self.ahead.saturating_sub(count);
    }

    /// Looks at the next bytes; `found` hears of each page before its content has passed.
    pub fn feed(&mut self, mut bytes: &[u8], found: &mut impl FnMut(Found)) {
        while !bytes.is_empty() {
            let ahead = usize::try_from(self.ahead()).unwrap_or(usize::MAX);
            if ahead > 0 {
                let count = ahead.min(bytes.len());
                self.skip(count as u64);
                bytes = bytes.split_at(count).1;
            } else {
                bytes = self.read(bytes, found);
            }
        }
    }

    /// Reads on in an item; what is left.
    fn read<'b>(&mut self, bytes: &'b [u8], found: &mut impl FnMut(Found)) -> &'b [u8] {
        let missing = self.wanted.saturating_sub(self.begun.len());
        let (next, rest) = bytes.split_at(missing.min(bytes.len()));
        self.begun.extend_from_slice(next);
        debug_assert!(self.begun.len() <= HEADER_BYTES_MOST);
        self.passed += next.len() as u64;
        if self.begun.len() < self.wanted {
            return rest;
        }
        match self.understand(found) {
            Ok(ahead) => {
                self.begun.clear();
                self.ahead = ahead;
                self.wanted = match &self.speaks {
                    Speaks::Main(main) => main.least(),
                    Speaks::Multifd(multifd) => multifd.least(),
                    Speaks::NotYet | Speaks::Opaque { .. } => MAGIC_BYTES,
                };
            }
            Err(Stop::Short(bytes)) => self.wanted = bytes,
            Err(Stop::Opaque(why)) => {
                let from = self.passed - self.begun.len() as u64;
                self.begun = Vec::new();
                self.speaks = Speaks::Opaque { from, why };
            }
        }
        rest
    }

    /// Reads the item, if all of it is there: how many bytes follow that say nothing.
    fn understand(&mut self, found: &mut impl FnMut(Found)) -> Result<u64, Stop> {
        if let (Speaks::NotYet, Some(magic)) = (&self.speaks, self.begun.first_chunk()) {
            self.speaks = match u32::from_be_bytes(*magic) {
                main_channel::MAGIC => Speaks::Main(MainChannel::new(self.page_bytes)),
                main_channel::RESUMED => return Err(Opaque::Resumed.into()),
                multifd::MAGIC => Speaks::Multifd(Multifd::new(self.page_bytes)),
                magic => return Err(Opaque::Unknown { magic }.into()),
            };
        }
        match &mut self.speaks {
            Speaks::Main(main) => main.read(&self.begun, self.passed, found),
            Speaks::Multifd(multifd) => multifd.read(&self.begun, self.passed, found),
            Speaks::NotYet | Speaks::Opaque { .. } => Err(Stop::Short(MAGIC_BYTES)),
        }
    }
}
