//! The main channel, as QEMU 7.2 to 10.2 send it (`migration/savevm.c`).
//!
//! ```text
//!   beginning       magic, version: 2 x u32
//!   configuration   7, what the guest is (see `configuration`)
//!   section         1 START, 2 PART, 3 END or 4 FULL, id u32; with START and FULL also u8 length and name, instance u32,
//!                   version u32; then what is in it, and its end: 0x7e, id u32
//!   command         8, which u16, length u16, so many bytes
//!   end             0
//! ```
//! All numbers are big-endian. Of the sections only that of memory is read (see `memory`): how long another one is follows
//! from what the guest is made of. Most guests have none before memory has ended. With postcopy the devices come earlier, in one
//! command whose length is told (`PACKAGED`), and memory goes on behind it.
//!
//! Versions differ in little: from 8.1 on it is said in the memory's section that a round has ended on the multifd channels,
//! and 10.0 has a command more (`SWITCHOVER_START`).

mod configuration;
mod memory;

use crate::found::Found;
use crate::main_channel::configuration::Configuration;
use crate::main_channel::memory::Memory;
use crate::multifd::check_page_bytes;
use crate::opaque::Opaque;
use crate::reader::{Reader, Stop};

/// `QEMU_VM_FILE_MAGIC`.
pub const MAGIC: u32 = 0x5145_564d;
/// `QEMU_VM_FILE_VERSION`.
pub const VERSION: u32 = 3;
/// What a channel begins with on which postcopy goes on after an outage: the command `RECV_BITMAP`, of less than 256 bytes.
pub const RESUMED: u32 = 0x0800_0a00;

const END_OF_ALL: u8 = 0;
const START: u8 = 1;
const PART: u8 = 2;
const END: u8 = 3;
const FULL: u8 = 4;
const SUBSECTION: u8 = 5;
const CONFIGURATION: u8 = 7;
const COMMAND: u8 = 8;
const FOOTER: u8 = 0x7e;

/// The section of memory: its name, its instance, and its version, which has been this for all of them.
const MEMORY: (&[u8], u32, u32) = (b"ram", 0, 4);

/// The main channel, item by item.
#[derive(Debug, Clone)]
pub struct MainChannel {
    expects: Expects,
    configuration: Configuration,
    section: Section,
    memory: Memory,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expects {
    Beginning,
    /// A section, a command, the end, or, if that is so, what belongs to the configuration.
    Any {
        configuration: bool,
    },
    /// So many names of capabilities.
    Capabilities(u32),
    Memory,
    /// The end of a section of memory.
    Footer,
    Nothing,
}

/// The section of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Section {
    ToCome,
    /// By this id.
    Open(u32),
    /// The part of that id is the last one.
    Last(u32),
    Ended,
}

const ANY: Expects = Expects::Any {
    configuration: false,
};

impl MainChannel {
    pub const fn new(page_bytes: u32) -> Self {
        Self {
            expects: Expects::Beginning,
            configuration: Configuration::new(page_bytes),
            section: Section::ToCome,
            memory: Memory::new(page_bytes),
        }
    }

    /// Its beginning is as known.
    pub const fn has_begun(&self) -> bool {
        !matches!(self.expects, Expects::Beginning)
    }

    /// Bytes of the next item that tell how long it is.
    pub const fn least(&self) -> usize {
        match self.expects {
            Expects::Beginning => 8,
            Expects::Memory => self.memory.least(),
            Expects::Footer => 5,
            Expects::Any { .. } | Expects::Capabilities(_) | Expects::Nothing => 1,
        }
    }

    /// Reads an item, of which so much is there, up to the channel's byte `ends`: how many bytes follow that say nothing.
    pub fn read(
        &mut self,
        item: &[u8],
        ends: u64,
        found: &mut impl FnMut(Found),
    ) -> Result<u64, Stop> {
        let mut reader = Reader::new(item);
        let (ahead, expects) = match self.expects {
            Expects::Beginning => self.beginning(&mut reader)?,
            Expects::Any { configuration } => self.any(&mut reader, configuration)?,
            Expects::Capabilities(left) => {
                self.configuration.capability(&mut reader)?;
                (0, capabilities(left - 1))
            }
            Expects::Memory => {
                let ahead = self.memory.read(&mut reader, ends, found)?;
                let expects = if self.memory.is_over() {
                    Expects::Footer
                } else {
                    Expects::Memory
                };
                (ahead, expects)
            }
            Expects::Footer => self.footer(&mut reader)?,
            Expects::Nothing => return Err(Opaque::AfterEnd.into()),
        };
        self.expects = expects;
        Ok(ahead)
    }

    fn beginning(&self, reader: &mut Reader<'_>) -> Result<(u64, Expects), Stop> {
        let _magic = reader.u32()?;
        match reader.u32()? {
            VERSION => {}
            version => return Err(Opaque::MainVersion { version }.into()),
        }
        check_page_bytes(self.configuration.page_bytes)?;
        Ok((0, ANY))
    }

    fn any(
        &mut self,
        reader: &mut Reader<'_>,
        configuration: bool,
    ) -> Result<(u64, Expects), Stop> {
        match reader.u8()? {
            CONFIGURATION => {
                let ahead = self.configuration.begin(reader)?;
                let configuration = true;
                Ok((ahead, Expects::Any { configuration }))
            }
            SUBSECTION if configuration => {
                let (ahead, names) = self.configuration.subsection(reader)?;
                Ok((ahead, capabilities(names)))
            }
            COMMAND => {
                let (ahead, postcopy) = command(reader)?;
                self.memory.has_sizes |= postcopy;
                Ok((ahead, ANY))
            }
            START => self.start(reader),
            PART => self.part(reader, Section::Open),
            END => self.part(reader, Section::Last),
            FULL => Err(self.other_section().into()),
            END_OF_ALL => Ok((0, Expects::Nothing)),
            kind => Err(Opaque::Section { kind }.into()),
        }
    }

    /// What is not memory has come.
    fn other_section(&self) -> Opaque {
        if self.section == Section::Ended {
            Opaque::Devices
        } else {
            Opaque::DevicesBetween
        }
    }

    fn start(&mut self, reader: &mut Reader<'_>) -> Result<(u64, Expects), Stop> {
        let id = reader.u32()?;
        let section = (reader.name()?, reader.u32()?, reader.u32()?);
        if section != MEMORY || self.section != Section::ToCome {
            return Err(self.other_section().into());
        }
        self.section = Section::Open(id);
        self.memory.has_addresses = self.configuration.ignores_shared;
        self.memory.begin();
        Ok((0, Expects::Memory))
    }

    fn part(
        &mut self,
        reader: &mut Reader<'_>,
        then: fn(u32) -> Section,
    ) -> Result<(u64, Expects), Stop> {
        let id = reader.u32()?;
        if self.section != Section::Open(id) {
            return Err(self.other_section().into());
        }
        self.section = then(id);
        self.memory.go_on();
        Ok((0, Expects::Memory))
    }

    fn footer(&mut self, reader: &mut Reader<'_>) -> Result<(u64, Expects), Stop> {
        let (kind, ends) = (reader.u8()?, reader.u32()?);
        match self.section {
            Section::Open(id) | Section::Last(id) if (kind, ends) == (FOOTER, id) => {
                if self.section == Section::Last(id) {
                    self.section = Section::Ended;
                }
                Ok((0, ANY))
            }
            _ => Err(Opaque::Footer.into()),
        }
    }
}

const fn capabilities(left: u32) -> Expects {
    match left {
        0 => Expects::Any {
            configuration: true,
        },
        left => Expects::Capabilities(left),
    }
}

/// How many bytes follow that belong to a command, and whether the destination is told that postcopy may begin.
fn command(reader: &mut Reader<'_>) -> Result<(u64, bool), Stop> {
    /// What `PACKAGED` says is how many bytes follow it.
    const PACKAGED: u16 = 7;
    let (command, length) = (reader.u16()?, reader.u16()?);
    let ahead = match (command, length) {
        (PACKAGED, 4) => u64::from(reader.u32()?),
        // OPEN_RETURN_PATH, PING, POSTCOPY_ADVISE, _LISTEN, _RUN, _RAM_DISCARD, SWITCHOVER_START.
        (1 | 3 | 4 | 5 | 11, 0) | (2, 4) | (3, 16) | (6, _) => u64::from(length),
        _ => return Err(Opaque::Command { command, length }.into()),
    };
    Ok((ahead, (command, length) == (3, 16)))
}
