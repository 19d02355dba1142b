//! How the lanes of a migration are protected.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Whether lanes are encrypted. Any other word is refused: nobody is to guess at it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Encryption {
    /// By TLS 1.3, between certificates that are made for one migration.
    #[default]
    On,
    /// Not: both ends prove who they are, and the bytes can be read and changed on their way.
    Off,
}

impl Encryption {
    /// What is used when one host has this and the other has that: both have to say off.
    #[must_use]
    pub fn stricter(self, other: Self) -> Self {
        match (self, other) {
            (Self::Off, Self::Off) => Self::Off,
            _ => Self::On,
        }
    }
}

/// What one agent tells the other of the lanes' protection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LaneSecurity {
    /// From the source: what it is configured to do. From the destination: what is used.
    pub encryption: Encryption,
    /// SHA-256 of the certificate that this end shows on the lanes of this migration, 64
    /// hexadecimal digits.
    pub certificate: String,
    /// Whether every chunk has a checksum. From the source: whether it asks for it. From the
    /// destination: whether it is so.
    #[serde(default)]
    pub verify: bool,
}

/// What protects the lanes of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
pub enum LaneEncryption {
    /// Nothing: the bytes can be read and changed on their way.
    #[serde(rename = "off")]
    Off,
    /// TLS 1.3 with AES-128-GCM.
    #[serde(rename = "tls13-aes128gcm")]
    Tls13Aes128Gcm,
    /// TLS 1.3 with ChaCha20-Poly1305, where a host has no instructions for AES.
    #[serde(rename = "tls13-chacha20poly1305")]
    Tls13Chacha20Poly1305,
    /// One of a newer agent.
    #[serde(other, rename = "unknown")]
    Unknown,
}

impl LaneEncryption {
    /// The word in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Tls13Aes128Gcm => "tls13-aes128gcm",
            Self::Tls13Chacha20Poly1305 => "tls13-chacha20poly1305",
            Self::Unknown => "unknown",
        }
    }
}

/// What protects lanes, in words.
pub(super) fn fmt_of_protection(
    f: &mut fmt::Formatter<'_>,
    encryption: LaneEncryption,
    checksums: bool,
) -> fmt::Result {
    let sums = match (encryption, checksums) {
        (_, true) => ", and by a CRC-32C of each chunk",
        (LaneEncryption::Off, false) => "; bytes have no checksum but TCP's",
        (_, false) => "",
    };
    match encryption {
        LaneEncryption::Off => write!(
            f,
            "lanes are not encrypted: protected by proof of the migration's token (HMAC-SHA-256) as \
             they open{sums}"
        ),
        encryption => write!(f, "lanes are protected by {}{sums}", encryption.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_protects_lanes_is_one_word_in_json_and_elsewhere() {
        use LaneEncryption::{Off, Tls13Aes128Gcm, Tls13Chacha20Poly1305, Unknown};
        for used in [Off, Tls13Aes128Gcm, Tls13Chacha20Poly1305, Unknown] {
            assert_eq!(serde_json::to_value(used).unwrap(), used.as_str());
        }
    }

    #[test]
    fn lanes_are_unencrypted_only_if_both_hosts_say_so() {
        use Encryption::{Off, On};
        for (one, other, used) in [(On, On, On), (On, Off, On), (Off, On, On), (Off, Off, Off)] {
            assert_eq!(one.stricter(other), used);
        }
    }

    #[test]
    fn a_word_that_is_neither_on_nor_off_is_refused() {
        for text in ["\"ON\"", "\"none\"", "true", "null", "\"\""] {
            assert!(serde_json::from_str::<Encryption>(text).is_err(), "{text}");
        }
        assert_eq!(
            serde_json::from_str::<Encryption>("\"off\"").unwrap(),
            Encryption::Off
        );
    }
}
