//! What can be wrong with a reduced chunk.

use crate::{SlotId, StoredId};

/// Why a chunk does not stand for any bytes. Nothing of it may be given to QEMU, and no later one of its session is
/// understood either.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// It ends too early, or says something that makes no sense.
    #[error("it is cut off, or says what makes no sense ({0})")]
    Layout(&'static str),
    /// More than was agreed on.
    #[error("it has {found} bytes of {what}, at most {most} are possible")]
    TooMuch {
        /// Of what.
        what: &'static str,
        /// What it says.
        found: usize,
        /// What is possible.
        most: usize,
    },
    /// Its codec says that this was not made by it.
    #[error("its {codec} part cannot be read: {why}")]
    Codec {
        /// The codec.
        codec: &'static str,
        /// What the codec says.
        why: &'static str,
    },
    /// It refers to a page that was never kept.
    #[error("it refers to kept page {}, which is not there", .0.0)]
    Unknown(SlotId),
    /// It refers to a page that was never told of as stored.
    #[error("it refers to stored page {}, which is not there", .0.0)]
    NotStored(StoredId),
    /// It refers to a page that is not read as it was stored.
    #[error("{of} cannot be read as it was written (stored page {}): it is damaged, and is not used again", .id.0)]
    Damaged {
        /// The page.
        id: StoredId,
        /// What it is in.
        of: &'static str,
    },
    /// It refers to a page whose disk does not answer.
    #[error("it refers to stored page {}, which its disk has not given within {waited_s} s", .id.0)]
    NotGiven {
        /// The page.
        id: StoredId,
        /// How long it was waited for, in seconds.
        waited_s: u64,
    },
    /// It wants a page to be kept where there is no place.
    #[error("it wants a page to be kept at {}, and there are {most} places", .slot.0)]
    NoPlace {
        /// Where.
        slot: SlotId,
        /// Places.
        most: u32,
    },
    /// A change that is not one of a page.
    #[error("it has a change that fits no page")]
    Change,
    /// It does not give the bytes that were there at the source.
    #[error(
        "it gives other bytes than the source had (checksum {found:016x}, {said:016x} was sent)"
    )]
    Content {
        /// Of what it gives.
        found: u64,
        /// Of what was there.
        said: u64,
    },
}

impl Wrong {
    pub(crate) const MORE_BYTES: Self = Self::Layout("more bytes than it says");
}
