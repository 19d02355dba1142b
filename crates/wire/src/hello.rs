//! What each end says once the connection is as protected as it will be: who it is, by proof.

use std::fmt;

use drover_types::PathId;

use crate::frame::Malformed;
use crate::preamble::{ANSWER_BYTES, PREAMBLE_BYTES, RefusalCode};

/// Size of a [`Hello`] in bytes.
pub const HELLO_BYTES: usize = 48;
/// Size of a [`Welcome`] in bytes.
pub const WELCOME_BYTES: usize = 48;

const HELLO_MAGIC: [u8; 8] = *b"DRVHELLO";
const WELCOME_MAGIC: [u8; 8] = *b"DRVWELCM";

/// Bytes in front of the proof.
const FIELDS_BYTES: usize = 16;

/// The secret that the destination's agent made for one migration: only who knows it may attach a
/// lane. The agents exchange it over their own connection; on a lane it is never sent, nor shown
/// anywhere.
#[derive(Clone)]
pub struct Token(pub [u8; 32]);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(hidden)")
    }
}

/// HMAC-SHA-256 of a [`Transcript`] with the session's [`Token`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proof(pub [u8; 32]);

/// What the source says of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// The lane's number in its session. There are so many that none is ever used twice.
    pub lane: u32,
    /// The path that the lane runs over.
    pub path: PathId,
    /// That the source knows the token and meant all of this.
    pub proof: Proof,
}

/// The destination's answer to a [`Hello`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Welcome {
    /// The lane is attached, and the destination knows the token, too.
    Accepted(Proof),
    /// The lane is turned away.
    Refused(RefusalCode),
}

/// Everything that both ends said in the opening of one lane, as one of them saw it.
///
/// Each end's proof covers all of it under a label of its own, so neither can be sent back as the
/// other's, used on another connection, or kept when anything was changed. Each field has a fixed
/// size: nothing can be read in two ways.
#[derive(Debug, Clone, Copy)]
pub struct Transcript<'a> {
    /// As it was sent or received.
    pub preamble: &'a [u8; PREAMBLE_BYTES],
    /// As it was sent or received.
    pub answer: &'a [u8; ANSWER_BYTES],
    /// What only this connection has, beside the nonces in both: within TLS the fingerprints of
    /// the source's and the destination's certificates.
    pub binding: &'a [u8; 64],
    /// The lane's number.
    pub lane: u32,
    /// The lane's path.
    pub path: PathId,
}

impl Transcript<'_> {
    /// What the source's proof is made of.
    #[must_use]
    pub fn of_the_source(&self) -> Vec<u8> {
        self.labelled(b"drover lane 3: the source has the token ")
    }

    /// What the destination's proof is made of.
    #[must_use]
    pub fn of_the_destination(&self) -> Vec<u8> {
        self.labelled(b"drover lane 3: the destination has it, too")
    }

    fn labelled(&self, label: &[u8]) -> Vec<u8> {
        let mut bytes = label.to_vec();
        bytes.extend_from_slice(self.preamble);
        bytes.extend_from_slice(self.answer);
        bytes.extend_from_slice(self.binding);
        bytes.extend(self.lane.to_be_bytes());
        bytes.extend(self.path.0.to_be_bytes());
        bytes
    }
}

fn proof_of(bytes: &[u8; HELLO_BYTES]) -> Proof {
    let mut proof = [0; 32];
    proof.copy_from_slice(&bytes[FIELDS_BYTES..]);
    Proof(proof)
}

impl Hello {
    /// As it goes on the wire.
    #[must_use]
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&HELLO_MAGIC);
        bytes[8..12].copy_from_slice(&self.lane.to_be_bytes());
        bytes[12..14].copy_from_slice(&self.path.0.to_be_bytes());
        bytes[FIELDS_BYTES..].copy_from_slice(&self.proof.0);
        bytes
    }

    /// Reads what follows the answer. Reserved bytes are for later versions and ignored.
    ///
    /// # Errors
    /// [`Malformed::Handshake`] when it is something else.
    pub fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<Self, Malformed> {
        if bytes[..8] != HELLO_MAGIC {
            return Err(Malformed::Handshake);
        }
        Ok(Self {
            lane: u32::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]),
            path: PathId(u16::from_be_bytes([bytes[12], bytes[13]])),
            proof: proof_of(bytes),
        })
    }
}

impl Welcome {
    /// As it goes on the wire.
    #[must_use]
    pub fn encode(&self) -> [u8; WELCOME_BYTES] {
        let mut bytes = [0; WELCOME_BYTES];
        bytes[..8].copy_from_slice(&WELCOME_MAGIC);
        match self {
            Self::Accepted(proof) => bytes[FIELDS_BYTES..].copy_from_slice(&proof.0),
            Self::Refused(code) => bytes[8] = code.to_bits(),
        }
        bytes
    }

    /// Reads the answer to a hello.
    ///
    /// # Errors
    /// [`Malformed::Handshake`] when it is something else.
    pub fn decode(bytes: &[u8; WELCOME_BYTES]) -> Result<Self, Malformed> {
        if bytes[..8] != WELCOME_MAGIC {
            return Err(Malformed::Handshake);
        }
        Ok(match bytes[8] {
            0 => Self::Accepted(proof_of(bytes)),
            code => Self::Refused(RefusalCode::from_bits(code)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_hello_survives_the_wire(lane: u32, path: u16, proof: [u8; 32]) {
            let hello = Hello { lane, path: PathId(path), proof: Proof(proof) };
            prop_assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        }

        #[test]
        fn any_bytes_are_a_handshake_or_refused(bytes in prop::collection::vec(any::<u8>(), HELLO_BYTES)) {
            let mut bytes: [u8; HELLO_BYTES] = bytes.try_into().unwrap();
            prop_assert_eq!(Hello::decode(&bytes), Err(Malformed::Handshake));
            prop_assert_eq!(Welcome::decode(&bytes), Err(Malformed::Handshake));
            bytes[..8].copy_from_slice(&HELLO_MAGIC);
            prop_assert!(Hello::decode(&bytes).is_ok());
            bytes[..8].copy_from_slice(&WELCOME_MAGIC);
            prop_assert!(Welcome::decode(&bytes).is_ok());
        }

        #[test]
        fn whatever_changes_in_a_transcript_changes_what_both_prove(
            at in 0..PREAMBLE_BYTES + ANSWER_BYTES + 64 + 6, bit in 0..8u8
        ) {
            let mut said = vec![0u8; PREAMBLE_BYTES + ANSWER_BYTES + 64 + 6];
            let before = with_transcript(&said, |t| (t.of_the_source(), t.of_the_destination()));
            said[at] ^= 1 << bit;
            let after = with_transcript(&said, |t| (t.of_the_source(), t.of_the_destination()));
            prop_assert!(before.0 != after.0 && before.1 != after.1);
        }
    }

    fn with_transcript<T>(said: &[u8], read: impl FnOnce(&Transcript<'_>) -> T) -> T {
        let (preamble, rest) = said.split_at(PREAMBLE_BYTES);
        let (answer, rest) = rest.split_at(ANSWER_BYTES);
        let (binding, rest) = rest.split_at(64);
        read(&Transcript {
            preamble: preamble.try_into().unwrap(),
            answer: answer.try_into().unwrap(),
            binding: binding.try_into().unwrap(),
            lane: u32::from_be_bytes(rest[..4].try_into().unwrap()),
            path: PathId(u16::from_be_bytes([rest[4], rest[5]])),
        })
    }

    #[test]
    fn what_one_end_proves_is_not_what_the_other_does() {
        let said = [5; PREAMBLE_BYTES + ANSWER_BYTES + 64 + 6];
        let (source, destination) =
            with_transcript(&said, |t| (t.of_the_source(), t.of_the_destination()));
        assert_ne!(source, destination);
        assert!(!source.starts_with(&destination) && !destination.starts_with(&source));
    }

    #[test]
    fn a_welcome_survives_the_wire() {
        for welcome in [
            Welcome::Accepted(Proof([3; 32])),
            Welcome::Refused(RefusalCode::Version),
            Welcome::Refused(RefusalCode::Unexpected),
            Welcome::Refused(RefusalCode::Unknown(77)),
        ] {
            assert_eq!(Welcome::decode(&welcome.encode()), Ok(welcome));
        }
    }

    #[test]
    fn a_token_is_never_shown() {
        assert_eq!(format!("{:?}", Token([7; 32])), "Token(hidden)");
    }
}
