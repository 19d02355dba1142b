//! Why a channel is no longer looked into.

/// How QEMU itself reduces what it sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// `multifd-compression=zlib`, or the capability `compress` of QEMU before 9.1.
    Zlib,
    /// `multifd-compression=zstd`.
    Zstd,
    /// By an accelerator: `qpl`, `uadk`, `qatzip`.
    Accelerator,
}

impl std::fmt::Display for Compression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
            Self::Accelerator => "an accelerator",
        })
    }
}

/// What was found that is not exactly as known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Opaque {
    /// All of the guest's memory has passed on the main channel: what is left of it is no page.
    #[error("memory has ended, and devices follow")]
    Devices,
    /// Something else comes between the parts of memory on the main channel.
    #[error("a section of something else than memory comes before memory has ended")]
    DevicesBetween,
    /// The main channel has another version.
    #[error(
        "its version of the main channel is {version}, known is {}",
        crate::main_channel::VERSION
    )]
    MainVersion {
        /// What it says.
        version: u32,
    },
    /// It is a main channel that goes on with what another one began.
    #[error("postcopy goes on after an outage, and how it began was said on another channel")]
    Resumed,
    /// What the main channel says of the guest as a whole is not as known.
    #[error("the guest's configuration has something that is not known")]
    Configuration,
    /// The configuration names a capability of migration that is not known.
    #[error("the guest's configuration names a capability that is not known")]
    Capability,
    /// Pages have fixed places, as in a file.
    #[error("pages have fixed places in it (mapped-ram)")]
    MappedRam,
    /// A section of a kind that is not known, or comes elsewhere.
    #[error("a section of the kind {kind:#04x} is not known there")]
    Section {
        /// What it says.
        kind: u8,
    },
    /// A command that is not known, or has another length.
    #[error("a command {command} of {length} bytes is not known")]
    Command {
        /// Which.
        command: u16,
        /// Bytes that belong to it.
        length: u16,
    },
    /// The blocks of memory are not listed as is known.
    #[error("the list of blocks of memory is not as known")]
    Blocks,
    /// A word in the section of memory that is not known, or comes elsewhere.
    #[error("the word {word:#x} in the section of memory is not known there")]
    Word {
        /// All of it.
        word: u64,
    },
    /// QEMU sends what changed in pages.
    #[error("QEMU itself sends what changed in pages (xbzrle)")]
    Xbzrle,
    /// Pages go another way, such as RDMA.
    #[error("pages go another way, for which it has a hook")]
    Hook,
    /// A section does not end as it should.
    #[error("a section has another end than known")]
    Footer,
    /// More comes after the end.
    #[error("it goes on after its end")]
    AfterEnd,
    /// It begins like no channel that is known; one of `postcopy-preempt` begins with pages at once.
    #[error("it begins with {magic:#010x}, like no channel of QEMU that is known")]
    Unknown {
        /// Its first four bytes.
        magic: u32,
    },
    /// Its version is another one.
    #[error(
        "its version of multifd is {version}, known is {}",
        crate::multifd::VERSION
    )]
    Version {
        /// What it says.
        version: u32,
    },
    /// A packet begins like none.
    #[error("a packet begins with {magic:#010x}")]
    Packet {
        /// Its first four bytes.
        magic: u32,
    },
    /// QEMU compresses by itself.
    #[error("QEMU compresses it itself, with {0}")]
    Compressed(Compression),
    /// The state of a device, such as of a physical function that was given to the guest.
    #[error("it carries a device's state (QEMU 10.0 and later)")]
    DeviceState,
    /// Flags that nothing is known of.
    #[error("a packet has the flags {flags:#x}, of which some are not known")]
    Flags {
        /// All of them.
        flags: u32,
    },
    /// No guest has pages of that size.
    #[error("pages of {page_bytes} bytes are not known")]
    PageSize {
        /// The size, in bytes.
        page_bytes: u32,
    },
    /// A packet with another place than the guest's pages give.
    #[error("a packet has place for {found} pages instead of {known}")]
    Place {
        /// What it says.
        found: u32,
        /// What it has to be.
        known: u32,
    },
    /// More pages than there is place for.
    #[error("a packet has {normal} pages and {zero} zero pages, and place for {place}")]
    TooManyPages {
        /// Pages with content.
        normal: u32,
        /// Pages of zeros.
        zero: u32,
        /// Place.
        place: u32,
    },
    /// Its pages take another number of bytes.
    #[error("a packet of {wanted} bytes of pages says that {said} follow")]
    Size {
        /// What its pages take.
        wanted: u64,
        /// What it says.
        said: u32,
    },
    /// Pages of a block without a usable name.
    #[error("a page has no name of a block of memory")]
    Block,
    /// A page that begins in the middle of one, or beyond all memory.
    #[error("a page is at {offset:#x} of its block, which is no place for one")]
    Offset {
        /// Where it is said to be.
        offset: u64,
    },
    /// What was always zero is not.
    #[error("a packet has something in a field that was always empty")]
    Reserved,
}

impl Opaque {
    /// The kind of reason, in a word: one of few, for those who count.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Devices => "devices",
            Self::MainVersion { .. } | Self::Version { .. } => "version",
            Self::Resumed => "resumed",
            Self::MappedRam => "mapped-ram",
            Self::Xbzrle => "xbzrle",
            Self::Hook => "hook",
            Self::Compressed(_) => "compressed",
            Self::DeviceState => "device-state",
            _ => "unknown",
        }
    }

    /// Whether pages may follow that are not found: not where all of them have passed.
    #[must_use]
    pub const fn hides_pages(self) -> bool {
        !matches!(self, Self::Devices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_qemu_was_told_to_do_is_told_from_what_is_not_known() {
        for (opaque, word) in [
            (Opaque::Compressed(Compression::Zstd), "compressed"),
            (Opaque::Compressed(Compression::Accelerator), "compressed"),
            (Opaque::Version { version: 9 }, "version"),
            (Opaque::MainVersion { version: 9 }, "version"),
            (Opaque::Unknown { magic: 7 }, "unknown"),
            (Opaque::Reserved, "unknown"),
        ] {
            assert_eq!(opaque.word(), word, "{opaque}");
        }
    }
}
