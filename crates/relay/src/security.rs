//! What protects the lanes of one migration, and how each end proves that it may have one.

use std::io;

use aws_lc_rs::hmac;
use drover_lanes::{Role, Tls};
use drover_wire::{Mode, Nonce, Proof, Token};
use rustix::rand::{GetRandomFlags, getrandom};

/// How the lanes of one migration are protected; both agents have agreed on it beforehand.
#[derive(Debug, Clone)]
pub enum Security {
    /// TLS 1.3 between the two certificates that were made for this migration.
    Tls(Tls),
    /// Both ends prove that they know the token; then bytes cross as they are.
    Plain,
}

impl Security {
    pub(crate) fn mode(&self) -> Mode {
        match self {
            Self::Tls(_) => Mode::Tls,
            Self::Plain => Mode::Plain,
        }
    }

    /// What the proofs are bound to beside what both ends said: the source's and then the
    /// destination's certificate.
    pub(crate) fn binding(&self, role: Role) -> [u8; 64] {
        let mut bytes = [0; 64];
        if let Self::Tls(tls) = self {
            let (source, destination) = match role {
                Role::Client => (tls.own(), tls.peer()),
                Role::Server => (tls.peer(), tls.own()),
            };
            bytes[..32].copy_from_slice(source.as_bytes());
            bytes[32..].copy_from_slice(destination.as_bytes());
        }
        bytes
    }
}

/// A secret for one migration.
///
/// # Errors
/// The kernel has no random bytes.
pub fn new_token() -> io::Result<Token> {
    random().map(Token)
}

pub(crate) fn new_nonce() -> io::Result<Nonce> {
    random().map(Nonce)
}

fn random() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    // Up to 256 bytes come whole or not at all.
    if getrandom(&mut bytes, GetRandomFlags::empty())? == bytes.len() {
        Ok(bytes)
    } else {
        Err(io::Error::other("the kernel gave too few random bytes"))
    }
}

/// That whoever has `token` said `transcript`.
pub(crate) fn prove(token: &Token, transcript: &[u8]) -> Proof {
    let key = hmac::Key::new(hmac::HMAC_SHA256, &token.0);
    let mut proof = [0; 32];
    proof.copy_from_slice(hmac::sign(&key, transcript).as_ref());
    Proof(proof)
}

/// Compared in constant time, so that the time taken tells nothing of the right proof.
pub(crate) fn proves(token: &Token, transcript: &[u8], proof: &Proof) -> bool {
    let key = hmac::Key::new(hmac::HMAC_SHA256, &token.0);
    hmac::verify(&key, transcript, &proof.0).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf 'Hi There' | openssl dgst -sha256 -mac HMAC -macopt hexkey:0b0b...`
    const BY_OPENSSL: &str = "198a607eb44bfbc69903a0f1cf2bbdc5ba0aa3f3d9ae3c1c7a3b1696a0b68cf7";

    #[test]
    fn a_proof_is_hmac_sha_256() {
        let token = Token([0x0b; 32]);
        let Proof(proof) = prove(&token, b"Hi There");
        let hex: String = proof.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, BY_OPENSSL);
        assert!(proves(&token, b"Hi There", &Proof(proof)));
        assert!(!proves(&token, b"Hi there", &Proof(proof)));
        assert!(!proves(&Token([0x0c; 32]), b"Hi There", &Proof(proof)));
    }

    #[test]
    fn tokens_and_nonces_are_new_each_time() {
        assert_ne!(new_token().unwrap().0, new_token().unwrap().0);
        assert_ne!(new_nonce().unwrap(), new_nonce().unwrap());
    }
}
