//! The frames that follow the handshake on a lane.

use serde::{Deserialize, Serialize};

use crate::limits::{CHANNELS_MAX, CHUNK_BYTES_MAX};

/// Size of a frame's header in bytes.
pub const HEADER_BYTES: usize = 20;

/// Beside a chunk's own flags: its checksum is given.
const CHECKED: u8 = 0x80;

const KIND_CHUNK: u8 = 0x11;
const KIND_CHECKPOINT: u8 = 0x22;
const KIND_BYE: u8 = 0x33;
const KIND_RECEIPT: u8 = 0x44;
const KIND_PING: u8 = 0x55;
const KIND_RETIRE: u8 = 0x66;

/// What a chunk says beside its bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChunkFlags(u8);

impl ChunkFlags {
    /// Bytes, and nothing else.
    pub const NONE: Self = Self(0);
    /// The channel was opened; carries no bytes, is always number 0.
    pub const OPEN: Self = Self(1);
    /// Nothing follows in this direction (half-close); carries no bytes.
    pub const END: Self = Self(2);
    /// The sender's local socket broke: both directions are to be closed; carries no bytes.
    pub const RESET: Self = Self(4);
    /// Bytes that stand for others (`drover-reduce`), where both agents agreed on that.
    pub const REDUCED: Self = Self(8);

    fn from_bits(bits: u8) -> Option<Self> {
        matches!(bits, 0 | 1 | 2 | 4 | 8).then_some(Self(bits))
    }

    fn has_bytes(self) -> bool {
        self == Self::NONE || self == Self::REDUCED
    }
}

/// Why a relay ends a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ByeCode {
    /// Everything was delivered.
    Finished,
    /// The agent ended the migration: cancelled, or failed elsewhere.
    Aborted,
    /// The peer broke the protocol.
    Violation,
    /// A code of a newer version.
    Unknown(u16),
}

impl ByeCode {
    fn to_bits(self) -> u16 {
        match self {
            Self::Finished => 0,
            Self::Aborted => 1,
            Self::Violation => 2,
            Self::Unknown(code) => code,
        }
    }

    fn from_bits(bits: u16) -> Self {
        match bits {
            0 => Self::Finished,
            1 => Self::Aborted,
            2 => Self::Violation,
            code => Self::Unknown(code),
        }
    }
}

/// A frame's header, decoded and checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// A numbered piece of one direction of a channel, followed by `length` bytes.
    Chunk {
        /// The channel.
        channel: u16,
        /// Its number: counts up by one per chunk of this channel and direction.
        sequence: u64,
        /// What it says beside its bytes.
        flags: ChunkFlags,
        /// Bytes that follow the header.
        length: u32,
    },
    /// The receiver has written every chunk before `sequence` to its local socket.
    Checkpoint {
        /// The channel.
        channel: u16,
        /// Number of the first chunk not yet written.
        sequence: u64,
    },
    /// The sender of this frame closes its lanes.
    Bye {
        /// Why.
        code: ByeCode,
    },
    /// How many frames the receiver has taken from this lane since it opened; receipts and
    /// farewells do not count.
    Receipt {
        /// The count.
        frames: u64,
    },
    /// Asks for a receipt at once, so that silence is told from idleness.
    Ping,
    /// The sender has given this lane its last frame and wants it closed.
    Retire,
}

/// Bytes that are no frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// No frame begins so.
    #[error("frame kind {0:#04x} is unknown")]
    Kind(u8),
    /// A combination of flags that has no meaning.
    #[error("chunk flags {0:#04x} are unknown")]
    Flags(u8),
    /// Too long, or bytes where there can be none.
    #[error("frame claims {length} bytes of payload, at most {limit} are possible here")]
    Length {
        /// What it claims.
        length: u32,
        /// What is possible.
        limit: u32,
    },
    /// A channel number beyond the limit.
    #[error("channel {0} is beyond the limit of {CHANNELS_MAX}")]
    Channel(u16),
    /// Not a handshake of a relay, or of an unknown layout.
    #[error("the connection does not begin like a lane of Drover")]
    Handshake,
}

impl Frame {
    /// Bytes of payload that follow the header.
    #[must_use]
    pub fn payload_length(&self) -> u32 {
        match self {
            Self::Chunk { length, .. } => *length,
            Self::Checkpoint { .. }
            | Self::Bye { .. }
            | Self::Receipt { .. }
            | Self::Ping
            | Self::Retire => 0,
        }
    }

    /// Whether the receiver counts it in its receipts.
    #[must_use]
    pub fn is_receipted(&self) -> bool {
        match self {
            Self::Chunk { .. } | Self::Checkpoint { .. } | Self::Ping | Self::Retire => true,
            Self::Receipt { .. } | Self::Bye { .. } => false,
        }
    }

    /// The header as it goes on the wire, with the CRC-32C (RFC 3720) of a chunk's payload if it is
    /// given.
    #[must_use]
    pub fn encode(&self, checksum: Option<u32>) -> [u8; HEADER_BYTES] {
        let (kind, flags, channel, length, sequence) = match *self {
            Self::Chunk {
                channel,
                sequence,
                flags,
                length,
            } => (KIND_CHUNK, flags.0, channel, length, sequence),
            Self::Checkpoint { channel, sequence } => (KIND_CHECKPOINT, 0, channel, 0, sequence),
            Self::Bye { code } => (KIND_BYE, 0, 0, 0, u64::from(code.to_bits())),
            Self::Receipt { frames } => (KIND_RECEIPT, 0, 0, 0, frames),
            Self::Ping => (KIND_PING, 0, 0, 0, 0),
            Self::Retire => (KIND_RETIRE, 0, 0, 0, 0),
        };
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = kind;
        bytes[1] = flags;
        bytes[2..4].copy_from_slice(&channel.to_be_bytes());
        bytes[4..8].copy_from_slice(&length.to_be_bytes());
        bytes[8..16].copy_from_slice(&sequence.to_be_bytes());
        if let (Self::Chunk { .. }, Some(checksum)) = (self, checksum) {
            bytes[1] |= CHECKED;
            bytes[16..].copy_from_slice(&checksum.to_be_bytes());
        }
        bytes
    }

    /// Reads a header, and the checksum of the payload if it is given.
    ///
    /// # Errors
    /// [`Malformed`] for everything that [`Frame::encode`] cannot have made.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<(Self, Option<u32>), Malformed> {
        let [kind, flags, c0, c1, l0, l1, l2, l3, rest @ ..] = *bytes;
        let [s0, s1, s2, s3, s4, s5, s6, s7, checksum @ ..] = rest;
        let checked = kind == KIND_CHUNK && flags & CHECKED != 0;
        let checksum = checked.then(|| u32::from_be_bytes(checksum));
        let fields = Fields {
            flags: if checked { flags & !CHECKED } else { flags },
            channel: u16::from_be_bytes([c0, c1]),
            length: u32::from_be_bytes([l0, l1, l2, l3]),
            sequence: u64::from_be_bytes([s0, s1, s2, s3, s4, s5, s6, s7]),
        };
        Ok((Self::of(kind, fields)?, checksum))
    }

    fn of(kind: u8, fields: Fields) -> Result<Self, Malformed> {
        let Fields {
            flags,
            channel,
            length,
            sequence,
        } = fields;
        if channel >= CHANNELS_MAX {
            return Err(Malformed::Channel(channel));
        }
        match kind {
            KIND_CHUNK => {
                let flags = ChunkFlags::from_bits(flags).ok_or(Malformed::Flags(flags))?;
                let limit = if flags.has_bytes() {
                    CHUNK_BYTES_MAX
                } else {
                    0
                };
                check_length(length, limit)?;
                Ok(Self::Chunk {
                    channel,
                    sequence,
                    flags,
                    length,
                })
            }
            KIND_CHECKPOINT => {
                check_length(length, 0)?;
                Ok(Self::Checkpoint { channel, sequence })
            }
            KIND_BYE => {
                check_length(length, 0)?;
                let code = u16::try_from(sequence).unwrap_or(u16::MAX);
                Ok(Self::Bye {
                    code: ByeCode::from_bits(code),
                })
            }
            KIND_RECEIPT => {
                check_length(length, 0)?;
                Ok(Self::Receipt { frames: sequence })
            }
            KIND_PING => {
                check_length(length, 0)?;
                Ok(Self::Ping)
            }
            KIND_RETIRE => {
                check_length(length, 0)?;
                Ok(Self::Retire)
            }
            other => Err(Malformed::Kind(other)),
        }
    }
}

/// A header's fields, not yet checked.
struct Fields {
    flags: u8,
    channel: u16,
    length: u32,
    sequence: u64,
}

fn check_length(length: u32, limit: u32) -> Result<(), Malformed> {
    if length <= limit {
        Ok(())
    } else {
        Err(Malformed::Length { length, limit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_frame() -> impl Strategy<Value = Frame> {
        let channel = 0..CHANNELS_MAX;
        let flags = prop_oneof![
            Just(ChunkFlags::NONE),
            Just(ChunkFlags::REDUCED),
            Just(ChunkFlags::OPEN),
            Just(ChunkFlags::END),
            Just(ChunkFlags::RESET)
        ];
        prop_oneof![
            (channel.clone(), any::<u64>(), flags, 0..=CHUNK_BYTES_MAX).prop_map(
                |(channel, sequence, flags, length)| {
                    let length = if flags.has_bytes() { length } else { 0 };
                    Frame::Chunk {
                        channel,
                        sequence,
                        flags,
                        length,
                    }
                }
            ),
            (channel, any::<u64>())
                .prop_map(|(channel, sequence)| Frame::Checkpoint { channel, sequence }),
            any::<u16>().prop_map(|code| Frame::Bye {
                code: ByeCode::from_bits(code)
            }),
            any::<u64>().prop_map(|frames| Frame::Receipt { frames }),
            Just(Frame::Ping),
            Just(Frame::Retire),
        ]
    }

    proptest! {
        #[test]
        fn a_frame_survives_the_wire(frame in any_frame(), checksum: Option<u32>) {
            let carries = matches!(frame, Frame::Chunk { .. });
            let expected = (frame, checksum.filter(|_| carries));
            prop_assert_eq!(Frame::decode(&frame.encode(checksum)), Ok(expected));
        }

        #[test]
        fn any_bytes_are_a_bounded_frame_or_refused(bytes: [u8; HEADER_BYTES]) {
            if let Ok((frame, _)) = Frame::decode(&bytes) {
                prop_assert!(frame.payload_length() <= CHUNK_BYTES_MAX);
            }
        }
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused() {
        let frame = Frame::Chunk {
            channel: 0,
            sequence: 0,
            flags: ChunkFlags::NONE,
            length: CHUNK_BYTES_MAX + 1,
        };
        let refused = Frame::decode(&frame.encode(None));
        let limit = CHUNK_BYTES_MAX;
        assert_eq!(
            refused,
            Err(Malformed::Length {
                length: limit + 1,
                limit
            })
        );
    }

    #[test]
    fn the_layout_on_the_wire_is_fixed() {
        let frame = Frame::Chunk {
            channel: 2,
            sequence: 5,
            flags: ChunkFlags::NONE,
            length: 258,
        };
        assert_eq!(
            frame.encode(None),
            [
                0x11, 0, 0, 2, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0
            ]
        );
        assert_eq!(
            frame.encode(Some(0x0102_0304)),
            [
                0x11, 0x80, 0, 2, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 5, 1, 2, 3, 4
            ]
        );
    }
}
