//! The handshake that opens a lane.

use std::fmt;

use drover_types::{MigrationId, PathId};

use crate::frame::Malformed;
use crate::version::{Version, VersionRange};

/// Size of a [`Hello`] in bytes.
pub const HELLO_BYTES: usize = 64;
/// Size of a [`Welcome`] in bytes.
pub const WELCOME_BYTES: usize = 16;

const HELLO_MAGIC: [u8; 8] = *b"DRVLANE>";
const WELCOME_MAGIC: [u8; 8] = *b"DRVLANE<";

/// The secret that the destination's agent made for one migration: only who has it may attach a
/// lane. It travels over the agents' own connection and is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(pub [u8; 16]);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(hidden)")
    }
}

/// What the source says first on a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Versions that the source speaks.
    pub versions: VersionRange,
    /// The migration that the lane belongs to.
    pub migration: MigrationId,
    /// The destination's secret for it.
    pub token: Token,
    /// The lane's number in its session.
    pub lane: u16,
    /// The path that the lane runs over.
    pub path: PathId,
}

/// Why a destination turns a lane away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalCode {
    /// No version in common.
    Version,
    /// No migration of this id is expected, or the token is wrong.
    Unexpected,
    /// The lane's number is taken or beyond the limit.
    Lane,
    /// A code of a newer version.
    Unknown(u8),
}

/// The destination's answer to a [`Hello`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Welcome {
    /// The lane is attached; both speak this version from here.
    Accepted(Version),
    /// The lane is turned away, and what the destination speaks.
    Refused(RefusalCode, VersionRange),
}

impl fmt::Display for RefusalCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version => f.write_str("no common protocol version"),
            Self::Unexpected => f.write_str("no such migration is expected there"),
            Self::Lane => f.write_str("the lane's number is taken or beyond the limit"),
            Self::Unknown(code) => write!(f, "refusal code {code}, unknown to this version"),
        }
    }
}

impl Hello {
    /// As it goes on the wire.
    #[must_use]
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&HELLO_MAGIC);
        bytes[8..10].copy_from_slice(&self.versions.min.0.to_be_bytes());
        bytes[10..12].copy_from_slice(&self.versions.max.0.to_be_bytes());
        bytes[12..14].copy_from_slice(&self.lane.to_be_bytes());
        bytes[14..16].copy_from_slice(&self.path.0.to_be_bytes());
        bytes[16..32].copy_from_slice(self.migration.as_bytes());
        bytes[32..48].copy_from_slice(&self.token.0);
        bytes
    }

    /// Reads what a connection begins with. Reserved bytes are for later versions and ignored.
    ///
    /// # Errors
    /// [`Malformed::Handshake`] when it is no lane of Drover.
    pub fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<Self, Malformed> {
        if bytes[..8] != HELLO_MAGIC {
            return Err(Malformed::Handshake);
        }
        let u16_at = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let sixteen_at = |at: usize| {
            let mut field = [0; 16];
            field.copy_from_slice(&bytes[at..at + 16]);
            field
        };
        Ok(Self {
            versions: VersionRange {
                min: Version(u16_at(8)),
                max: Version(u16_at(10)),
            },
            lane: u16_at(12),
            path: PathId(u16_at(14)),
            migration: MigrationId::from_bytes(sixteen_at(16)),
            token: Token(sixteen_at(32)),
        })
    }
}

impl RefusalCode {
    fn to_bits(self) -> u8 {
        match self {
            Self::Version => 1,
            Self::Unexpected => 2,
            Self::Lane => 3,
            Self::Unknown(code) => code,
        }
    }

    fn from_bits(bits: u8) -> Self {
        match bits {
            1 => Self::Version,
            2 => Self::Unexpected,
            3 => Self::Lane,
            code => Self::Unknown(code),
        }
    }
}

impl Welcome {
    /// As it goes on the wire.
    #[must_use]
    pub fn encode(&self) -> [u8; WELCOME_BYTES] {
        let (code, versions) = match *self {
            Self::Accepted(version) => (
                0,
                VersionRange {
                    min: version,
                    max: version,
                },
            ),
            Self::Refused(code, versions) => (code.to_bits(), versions),
        };
        let mut bytes = [0; WELCOME_BYTES];
        bytes[..8].copy_from_slice(&WELCOME_MAGIC);
        bytes[8] = code;
        bytes[10..12].copy_from_slice(&versions.min.0.to_be_bytes());
        bytes[12..14].copy_from_slice(&versions.max.0.to_be_bytes());
        bytes
    }

    /// Reads the answer to a hello.
    ///
    /// # Errors
    /// [`Malformed::Handshake`] when no relay of Drover answered.
    pub fn decode(bytes: &[u8; WELCOME_BYTES]) -> Result<Self, Malformed> {
        if bytes[..8] != WELCOME_MAGIC {
            return Err(Malformed::Handshake);
        }
        let min = Version(u16::from_be_bytes([bytes[10], bytes[11]]));
        let max = Version(u16::from_be_bytes([bytes[12], bytes[13]]));
        Ok(match bytes[8] {
            0 => Self::Accepted(max),
            code => Self::Refused(RefusalCode::from_bits(code), VersionRange { min, max }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_hello_survives_the_wire(
            min: u16, max: u16, lane: u16, path: u16, id: [u8; 16], token: [u8; 16]
        ) {
            let hello = Hello {
                versions: VersionRange { min: Version(min), max: Version(max) },
                migration: MigrationId::from_bytes(id),
                token: Token(token),
                lane,
                path: PathId(path),
            };
            prop_assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        }

        #[test]
        fn any_bytes_are_a_handshake_or_refused(
            hello in prop::collection::vec(any::<u8>(), HELLO_BYTES),
            welcome: [u8; WELCOME_BYTES]
        ) {
            let hello: [u8; HELLO_BYTES] = hello.try_into().unwrap();
            let _ = Hello::decode(&hello);
            let _ = Welcome::decode(&welcome);
        }
    }

    #[test]
    fn a_welcome_survives_the_wire() {
        for welcome in [
            Welcome::Accepted(Version(3)),
            Welcome::Refused(RefusalCode::Version, VersionRange::SUPPORTED),
            Welcome::Refused(RefusalCode::Unexpected, VersionRange::SUPPORTED),
            Welcome::Refused(RefusalCode::Unknown(77), VersionRange::SUPPORTED),
        ] {
            assert_eq!(Welcome::decode(&welcome.encode()), Ok(welcome));
        }
    }

    #[test]
    fn a_token_is_never_shown() {
        assert_eq!(format!("{:?}", Token([7; 16])), "Token(hidden)");
    }
}
