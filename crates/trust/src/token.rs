//! The token with which a host joins: what it must be told, and nothing that it need not.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand;
use data_encoding::{BASE64URL_NOPAD, HEXLOWER, HEXLOWER_PERMISSIVE};
use serde::{Deserialize, Serialize};

use crate::{TrustError, limits};

/// Tells a token from other text, and its first version from others.
const PREFIX: &str = "drover1-";
/// Bytes of SHA-256 that tell a token that was copied in part.
const CHECK: usize = 4;

pub(crate) fn random<const N: usize>() -> Result<[u8; N], TrustError> {
    let mut bytes = [0; N];
    rand::fill(&mut bytes)
        .map_err(|_| TrustError::making("random numbers", &"the system has none"))?;
    Ok(bytes)
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, bytes).as_ref());
    out
}

/// What an authority is recognised by: SHA-256 of its certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Of a certificate's bytes.
    #[must_use]
    pub fn of(certificate: &[u8]) -> Self {
        Self(sha256(certificate))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl From<Fingerprint> for String {
    fn from(fingerprint: Fingerprint) -> Self {
        fingerprint.to_string()
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = TrustError;
    fn try_from(text: String) -> Result<Self, TrustError> {
        let bytes = HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok();
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes
            .map(Self)
            .ok_or_else(|| TrustError::unusable("a fingerprint", "it is not 64 hexadecimal digits"))
    }
}

/// What is shown once to be let in.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; limits::SECRET_BYTES]);

impl Secret {
    /// A new one.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn generate() -> Result<Self, TrustError> {
        random().map(Self)
    }

    /// As it travels in a request.
    #[must_use]
    pub fn to_text(&self) -> String {
        HEXLOWER.encode(&self.0)
    }

    /// As it came in a request.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let bytes = HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?;
        bytes.try_into().ok().map(Self)
    }

    /// What is kept of it.
    #[must_use]
    pub fn hash(&self) -> SecretHash {
        SecretHash(HEXLOWER.encode(&sha256(&self.0)))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// SHA-256 of a secret of 128 random bits: nothing leads back.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretHash(String);

impl SecretHash {
    /// Compares in a time that does not depend on the contents.
    pub(crate) fn is(&self, other: &Self) -> bool {
        verify_slices_are_equal(self.0.as_bytes(), other.0.as_bytes()).is_ok()
    }
}

/// All that a host needs to join: which authority to believe, the secret, and where to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinToken {
    /// The only authority to believe.
    pub authority: Fingerprint,
    /// Good for one join.
    pub secret: Secret,
    /// Where the authority's agent listens.
    pub addresses: Vec<SocketAddr>,
}

impl fmt::Display for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&self.authority.0);
        bytes.extend_from_slice(&self.secret.0);
        let addresses: Vec<_> = self.addresses.iter().map(ToString::to_string).collect();
        bytes.extend_from_slice(addresses.join(",").as_bytes());
        let check = sha256(&bytes);
        bytes.extend_from_slice(&check[..CHECK]);
        write!(f, "{PREFIX}{}", BASE64URL_NOPAD.encode(&bytes))
    }
}

impl FromStr for JoinToken {
    type Err = TrustError;
    fn from_str(text: &str) -> Result<Self, TrustError> {
        let unusable = |problem: &str| TrustError::unusable("the join token", problem);
        let body = text.trim().strip_prefix(PREFIX).ok_or_else(|| {
            unusable("it does not begin with drover1-; copy what `drover cluster token` printed")
        })?;
        let damaged = || unusable("it is damaged; copy all of what `drover cluster token` printed");
        if body.len() > limits::TOKEN_TEXT {
            return Err(damaged());
        }
        let bytes = BASE64URL_NOPAD
            .decode(body.as_bytes())
            .map_err(|_| damaged())?;
        let (rest, check) = bytes.split_last_chunk::<CHECK>().ok_or_else(damaged)?;
        if sha256(rest)[..CHECK] != *check {
            return Err(damaged());
        }
        let (authority, rest) = rest.split_first_chunk::<32>().ok_or_else(damaged)?;
        let (secret, rest) = rest
            .split_first_chunk::<{ limits::SECRET_BYTES }>()
            .ok_or_else(damaged)?;
        let addresses = std::str::from_utf8(rest).map_err(|_| damaged())?;
        let addresses: Result<Vec<_>, _> = addresses.split(',').map(str::parse).collect();
        let addresses: Vec<SocketAddr> = addresses.map_err(|_| damaged())?;
        if addresses.is_empty() || addresses.len() > limits::ADDRESSES {
            return Err(damaged());
        }
        Ok(Self {
            authority: Fingerprint(*authority),
            secret: Secret(*secret),
            addresses,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn token() -> JoinToken {
        JoinToken {
            authority: Fingerprint::of(b"authority"),
            secret: Secret([7; limits::SECRET_BYTES]),
            addresses: vec![
                "10.0.0.1:7470".parse().unwrap(),
                "[fd00::1]:7470".parse().unwrap(),
            ],
        }
    }

    #[test]
    fn a_token_comes_back_from_its_text() {
        let text = token().to_string();
        assert_eq!(text.parse::<JoinToken>().unwrap(), token());
        assert_eq!(format!(" {text}\n").parse::<JoinToken>().unwrap(), token());
    }

    #[test]
    fn a_token_that_was_copied_in_part_or_with_a_slip_is_damaged() {
        let text = token().to_string();
        for bad in [
            &text[..text.len() - 1],
            &text.replace("AA", "AB"),
            "drover1-",
        ] {
            if bad == text {
                continue;
            }
            let error = bad.parse::<JoinToken>().unwrap_err().to_string();
            assert!(error.contains("damaged"), "{bad}: {error}");
        }
        let error = "hello".parse::<JoinToken>().unwrap_err().to_string();
        assert!(error.contains("drover cluster token"), "{error}");
    }

    #[test]
    fn a_secret_is_not_shown_by_accident() {
        let shown = format!("{:?}", token());
        assert!(!shown.contains("0707"), "{shown}");
        assert!(!shown.contains("7, 7"), "{shown}");
    }

    proptest! {
        #[test]
        fn any_text_is_a_token_or_refused(text in "(drover1-)?[A-Za-z0-9_-]{0,200}") {
            let _ = text.parse::<JoinToken>();
        }
    }
}
