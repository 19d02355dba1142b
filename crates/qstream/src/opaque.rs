//! Why a channel is no longer looked into.

/// How QEMU itself reduces what it sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// `multifd-compression=zlib`.
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
    /// It is QEMU's main channel.
    #[error("it is the main channel, which carries the devices")]
    Main,
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
    #[error("a packet has pages, and no name of a block of memory")]
    Block,
    /// A page that begins in the middle of one, or beyond all memory.
    #[error("a packet has a page at {offset:#x} of its block, which is no place for one")]
    Offset {
        /// Where it is said to be.
        offset: u64,
    },
    /// What was always zero is not.
    #[error("a packet has something in a field that was always empty")]
    Reserved,
}
