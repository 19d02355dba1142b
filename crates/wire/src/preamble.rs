//! What a connection begins with, before anybody has proved anything.
//!
//! ```text
//!  source                                     destination
//!  preamble: migration, mode, nonce ────────▶ finds the migration by its id
//!       ◀──────────────────────────────────── answer: version, nonce
//!  ═════ in mode TLS, everything from here is inside ═════
//!  hello: lane, path, proof ────────────────▶
//!       ◀──────────────────────────────────── welcome: proof
//! ```
//!
//! Preamble and answer can be read and changed by whoever is on the way. So each end proves in the
//! [`crate::Hello`] or [`crate::Welcome`] that it knows the session's token, over every byte of both
//! as it saw them: what was changed makes the proof a wrong one.

use drover_types::MigrationId;

use crate::frame::Malformed;
use crate::version::{Version, VersionRange};

/// Size of a [`Preamble`] in bytes: that of the first message of version 1, so that such a source
/// is read to its end before it is refused.
pub const PREAMBLE_BYTES: usize = 64;
/// Size of the first part of an [`Answer`] in bytes, all there is of a refusal: the answer of
/// version 1.
pub const ANSWER_HEAD_BYTES: usize = 16;
/// Size of an [`Answer`] that is no refusal, in bytes.
pub const ANSWER_BYTES: usize = ANSWER_HEAD_BYTES + 32;

const PREAMBLE_MAGIC: [u8; 8] = *b"DRVLANE>";
const ANSWER_MAGIC: [u8; 8] = *b"DRVLANE<";

/// Random bytes that are used once: with those of both ends in it, no proof fits twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nonce(pub [u8; 32]);

/// How a lane is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// TLS 1.3 in both directions.
    Tls,
    /// Both ends prove who they are; bytes cross as they are.
    Plain,
    /// A mode of a newer version.
    Unknown(u8),
}

/// What the source says first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preamble {
    /// Versions that the source speaks.
    pub versions: VersionRange,
    /// How the lane is to be protected, as the agents agreed on.
    pub mode: Mode,
    /// The migration that the lane belongs to.
    pub migration: MigrationId,
    /// Chosen by the source for this connection.
    pub nonce: Nonce,
}

/// Why a destination turns a lane away. What a stranger may not know has one code only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalCode {
    /// No version in common.
    Version,
    /// No migration of this id is expected in this mode, or the proof is wrong.
    Unexpected,
    /// A code of a newer version.
    Unknown(u8),
}

/// The destination's answer to a [`Preamble`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Go on, in this version; with the destination's nonce.
    GoOn(Version, Nonce),
    /// The lane is turned away, and what the destination speaks.
    Refused(RefusalCode, VersionRange),
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tls => f.write_str("TLS"),
            Self::Plain => f.write_str("no encryption"),
            Self::Unknown(mode) => write!(f, "mode {mode}, unknown to this version"),
        }
    }
}

impl std::fmt::Display for RefusalCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Version => f.write_str("no common protocol version"),
            Self::Unexpected => f.write_str(
                "no such migration is expected there with this token and encryption; its log says more",
            ),
            Self::Unknown(code) => write!(f, "refusal code {code}, unknown to this version"),
        }
    }
}

impl Mode {
    fn to_bits(self) -> u8 {
        match self {
            Self::Tls => 1,
            Self::Plain => 2,
            Self::Unknown(mode) => mode,
        }
    }

    fn from_bits(bits: u8) -> Self {
        match bits {
            1 => Self::Tls,
            2 => Self::Plain,
            mode => Self::Unknown(mode),
        }
    }
}

impl RefusalCode {
    pub(crate) fn to_bits(self) -> u8 {
        match self {
            Self::Version => 1,
            Self::Unexpected => 2,
            Self::Unknown(code) => code,
        }
    }

    /// 0 is no refusal, and never asked for here.
    pub(crate) fn from_bits(bits: u8) -> Self {
        match bits {
            1 => Self::Version,
            2 => Self::Unexpected,
            code => Self::Unknown(code),
        }
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

impl Preamble {
    /// As it goes on the wire.
    #[must_use]
    pub fn encode(&self) -> [u8; PREAMBLE_BYTES] {
        let mut bytes = [0; PREAMBLE_BYTES];
        bytes[..8].copy_from_slice(&PREAMBLE_MAGIC);
        bytes[8..10].copy_from_slice(&self.versions.min.0.to_be_bytes());
        bytes[10..12].copy_from_slice(&self.versions.max.0.to_be_bytes());
        bytes[12] = self.mode.to_bits();
        bytes[16..32].copy_from_slice(self.migration.as_bytes());
        bytes[32..].copy_from_slice(&self.nonce.0);
        bytes
    }

    /// Reads what a connection begins with. Reserved bytes are for later versions and ignored.
    ///
    /// # Errors
    /// [`Malformed::Handshake`] when it is no lane of Drover.
    pub fn decode(bytes: &[u8; PREAMBLE_BYTES]) -> Result<Self, Malformed> {
        if bytes[..8] != PREAMBLE_MAGIC {
            return Err(Malformed::Handshake);
        }
        Ok(Self {
            versions: VersionRange {
                min: Version(u16_at(bytes, 8)),
                max: Version(u16_at(bytes, 10)),
            },
            mode: Mode::from_bits(bytes[12]),
            migration: MigrationId::from_bytes(array_at(bytes, 16)),
            nonce: Nonce(array_at(bytes, 32)),
        })
    }
}

impl Answer {
    /// As it goes on the wire; a refusal ends with its head.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (code, versions, nonce) = match *self {
            Self::GoOn(version, nonce) => {
                let versions = VersionRange {
                    min: version,
                    max: version,
                };
                (0, versions, Some(nonce))
            }
            Self::Refused(code, versions) => (code.to_bits(), versions, None),
        };
        let mut bytes = Vec::with_capacity(ANSWER_BYTES);
        bytes.extend(ANSWER_MAGIC);
        bytes.extend([code, 0]);
        bytes.extend(versions.min.0.to_be_bytes());
        bytes.extend(versions.max.0.to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(nonce.iter().flat_map(|nonce| nonce.0));
        bytes
    }

    /// Reads the beginning of an answer: the version to use when the rest is to be read, which
    /// [`Answer::nonce`] takes, or the refusal.
    ///
    /// # Errors
    /// [`Malformed::Handshake`] when no relay of Drover answered.
    pub fn decode_head(
        bytes: &[u8; ANSWER_HEAD_BYTES],
    ) -> Result<Result<Version, (RefusalCode, VersionRange)>, Malformed> {
        if bytes[..8] != ANSWER_MAGIC {
            return Err(Malformed::Handshake);
        }
        let (min, max) = (Version(u16_at(bytes, 10)), Version(u16_at(bytes, 12)));
        Ok(match bytes[8] {
            0 => Ok(max),
            code => Err((RefusalCode::from_bits(code), VersionRange { min, max })),
        })
    }

    /// The rest of an answer that is no refusal.
    #[must_use]
    pub fn nonce(bytes: &[u8; ANSWER_BYTES]) -> Nonce {
        Nonce(array_at(bytes, ANSWER_HEAD_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_preamble_survives_the_wire(
            min: u16, max: u16, mode: u8, id: [u8; 16], nonce: [u8; 32]
        ) {
            let preamble = Preamble {
                versions: VersionRange { min: Version(min), max: Version(max) },
                mode: Mode::from_bits(mode),
                migration: MigrationId::from_bytes(id),
                nonce: Nonce(nonce),
            };
            prop_assert_eq!(Preamble::decode(&preamble.encode()), Ok(preamble));
        }

        #[test]
        fn any_bytes_are_a_preamble_or_refused(bytes in prop::collection::vec(any::<u8>(), PREAMBLE_BYTES)) {
            let mut bytes: [u8; PREAMBLE_BYTES] = bytes.try_into().unwrap();
            prop_assert_eq!(Preamble::decode(&bytes), Err(Malformed::Handshake));
            bytes[..8].copy_from_slice(&PREAMBLE_MAGIC);
            prop_assert!(Preamble::decode(&bytes).is_ok());
        }
    }

    #[test]
    fn an_answer_survives_the_wire_and_a_refusal_is_as_long_as_that_of_version_1() {
        let bytes = Answer::GoOn(Version(3), Nonce([9; 32])).encode();
        let head = array_at(&bytes, 0);
        assert_eq!(Answer::decode_head(&head), Ok(Ok(Version(3))));
        assert_eq!(Answer::nonce(&array_at(&bytes, 0)), Nonce([9; 32]));
        for code in [
            RefusalCode::Version,
            RefusalCode::Unexpected,
            RefusalCode::Unknown(77),
        ] {
            let bytes = Answer::Refused(code, VersionRange::SUPPORTED).encode();
            let head: [u8; ANSWER_HEAD_BYTES] = bytes.try_into().unwrap();
            let refused = Answer::decode_head(&head);
            assert_eq!(refused, Ok(Err((code, VersionRange::SUPPORTED))));
        }
    }

    #[test]
    fn the_first_message_of_version_1_is_read_as_one_of_another_version() {
        let mut hello = [0; PREAMBLE_BYTES];
        hello[..8].copy_from_slice(b"DRVLANE>");
        hello[8..12].copy_from_slice(&[0, 1, 0, 1]);
        let theirs = Preamble::decode(&hello).unwrap().versions;
        assert!(VersionRange::SUPPORTED.newest_common(theirs).is_err());
    }

    #[test]
    fn the_layout_on_the_wire_is_fixed() {
        let preamble = Preamble {
            versions: VersionRange {
                min: Version(2),
                max: Version(258),
            },
            mode: Mode::Plain,
            migration: MigrationId::from_bytes([7; 16]),
            nonce: Nonce([8; 32]),
        };
        let bytes = preamble.encode();
        assert_eq!(bytes[..16], *b"DRVLANE>\x00\x02\x01\x02\x02\0\0\0");
        assert_eq!(
            (bytes[16..32].to_vec(), bytes[32..].to_vec()),
            (vec![7; 16], vec![8; 32])
        );
    }
}
