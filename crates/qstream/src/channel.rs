//! One channel, looked into as its bytes pass.

use crate::limits::HEADER_BYTES_MOST;
use crate::multifd::{self, Packet};
use crate::opaque::Opaque;

/// `QEMU_VM_FILE_MAGIC`: what the main channel begins with.
const MAIN: u32 = 0x5145_564d;

/// What tells one channel from another.
const MAGIC_BYTES: usize = 4;

/// What a channel was recognised as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Too little has passed.
    NotYet,
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

/// A channel of a migration, from QEMU to QEMU.
#[derive(Debug, Clone)]
pub struct Channel {
    page_bytes: u32,
    /// Bytes that have passed.
    passed: u64,
    state: State,
    /// The beginning of what is being read, where it came in pieces.
    begun: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Magic,
    Beginning,
    /// A packet's header up to where it shows whether it is understood.
    Head,
    /// All of it.
    Header {
        bytes: usize,
    },
    /// Pages.
    Pages {
        left: u64,
    },
    Opaque {
        from: u64,
        why: Opaque,
    },
}

impl Channel {
    /// One of which nothing has passed, of a guest with pages of that size (QMP `query-migrate`, `page-size`).
    #[must_use]
    pub const fn new(page_bytes: u32) -> Self {
        Self {
            page_bytes,
            passed: 0,
            state: State::Magic,
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
        match self.state {
            State::Magic | State::Beginning => Kind::NotYet,
            State::Head | State::Header { .. } | State::Pages { .. } => Kind::Multifd,
            State::Opaque { from, why } => Kind::Opaque { from, why },
        }
    }

    /// How many of the next bytes say nothing of how it goes on, and need not be shown: pages, or all that is not looked into.
    #[must_use]
    pub const fn ahead(&self) -> u64 {
        match self.state {
            State::Pages { left } => left,
            State::Opaque { .. } => u64::MAX,
            State::Magic | State::Beginning | State::Head | State::Header { .. } => 0,
        }
    }

    /// How many of the next bytes it takes to read on, where none are [ahead](Self::ahead).
    #[must_use]
    pub fn wants(&self) -> usize {
        let wanted = match self.state {
            State::Magic => MAGIC_BYTES,
            State::Beginning => multifd::BEGINNING_BYTES,
            State::Head => multifd::HEAD_BYTES,
            State::Header { bytes } => bytes,
            State::Pages { .. } | State::Opaque { .. } => return 0,
        };
        wanted.saturating_sub(self.begun.len())
    }

    /// So many of them pass that are [ahead](Self::ahead), if there are as many, without being shown.
    pub fn skip(&mut self, count: u64) {
        let count = count.min(self.ahead());
        self.passed += count;
        if let State::Pages { left } = self.state {
            self.state = match left - count {
                0 => State::Head,
                left => State::Pages { left },
            };
        }
    }

    /// Looks at the next bytes; `found` hears of each packet as soon as its header has passed, and so before its pages.
    pub fn feed(&mut self, mut bytes: &[u8], found: &mut impl FnMut(Packet)) {
        while !bytes.is_empty() {
            match self.state {
                State::Opaque { .. } => bytes = self.pass(bytes, u64::MAX),
                State::Pages { left } => {
                    let count =
                        usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
                    self.skip(count as u64);
                    bytes = bytes.split_at(count).1;
                }
                State::Magic => bytes = self.read(bytes, MAGIC_BYTES, found),
                State::Beginning => bytes = self.read(bytes, multifd::BEGINNING_BYTES, found),
                State::Head => bytes = self.read(bytes, multifd::HEAD_BYTES, found),
                State::Header { bytes: wanted } => bytes = self.read(bytes, wanted, found),
            }
        }
    }

    /// So many of them pass, or all; what is left.
    fn pass<'b>(&mut self, bytes: &'b [u8], most: u64) -> &'b [u8] {
        let all = bytes.len();
        let count = usize::try_from(most).map_or(all, |most| most.min(all));
        self.passed += count as u64;
        bytes.split_at(count).1
    }

    /// Reads on until `wanted` bytes of a header are there, and then what they say.
    fn read<'b>(
        &mut self,
        bytes: &'b [u8],
        wanted: usize,
        found: &mut impl FnMut(Packet),
    ) -> &'b [u8] {
        let missing = wanted.saturating_sub(self.begun.len()).min(bytes.len());
        let (next, _) = bytes.split_at(missing);
        self.begun.extend_from_slice(next);
        debug_assert!(self.begun.len() <= HEADER_BYTES_MOST);
        let rest = self.pass(bytes, missing as u64);
        if self.begun.len() >= wanted {
            let begins = self.passed - self.begun.len() as u64;
            self.state = match self.understood(found) {
                Ok(state) => state,
                Err(why) => {
                    self.begun = Vec::new();
                    State::Opaque { from: begins, why }
                }
            };
        }
        rest
    }

    fn understood(&mut self, found: &mut impl FnMut(Packet)) -> Result<State, Opaque> {
        match self.state {
            State::Magic => match self.begun.first_chunk().copied().map(u32::from_be_bytes) {
                Some(MAIN) => Err(Opaque::Main),
                Some(multifd::MAGIC) => Ok(State::Beginning),
                magic => Err(Opaque::Unknown {
                    magic: magic.unwrap_or_default(),
                }),
            },
            State::Beginning => {
                multifd::check_beginning(&self.begun)?;
                self.begun.clear();
                Ok(State::Head)
            }
            State::Head => {
                multifd::check_head(&self.begun)?;
                let bytes = multifd::header_bytes(self.page_bytes)?;
                Ok(State::Header { bytes })
            }
            State::Header { .. } => {
                let packet = multifd::packet(&self.begun, self.passed, self.page_bytes)?;
                self.begun.clear();
                let left = packet.follows();
                found(packet);
                Ok(match left {
                    0 => State::Head,
                    left => State::Pages { left },
                })
            }
            State::Pages { .. } | State::Opaque { .. } => Ok(self.state),
        }
    }
}
