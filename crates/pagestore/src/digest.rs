//! What a page is known by.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// Bytes of a digest.
pub const DIGEST_BYTES: usize = 16;

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;

/// What a page is known by: the first 128 bits of BLAKE3 with a key. Among 2^32 pages two have the same by chance with a
/// probability of 2^-65, and nobody who does not have the key makes two of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; DIGEST_BYTES]);

/// The key of digests. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct DigestKey([u8; KEY_BYTES]);

impl std::fmt::Debug for DigestKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DigestKey(hidden)")
    }
}

impl DigestKey {
    /// Of these bytes, which nobody guesses.
    #[must_use]
    pub const fn new(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// A new one.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn random() -> io::Result<Self> {
        random().map(Self)
    }

    /// Its bytes, for those who are to compute the same digests.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// What the page is known by.
    #[must_use]
    pub fn digest(&self, page: &[u8]) -> Digest {
        let hash = blake3::keyed_hash(&self.0, page);
        let mut digest = [0; DIGEST_BYTES];
        digest.copy_from_slice(&hash.as_bytes()[..DIGEST_BYTES]);
        Digest(digest)
    }
}

/// Bytes that nobody guesses.
pub(crate) fn random<const COUNT: usize>() -> io::Result<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    // So few come at once, or not at all.
    match getrandom(&mut bytes, GetRandomFlags::empty())? {
        count if count == COUNT => Ok(bytes),
        _ => Err(io::Error::other("too few random numbers")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_depends_on_the_key_and_on_all_of_the_page() {
        let (key, other) = (
            DigestKey::new([1; KEY_BYTES]),
            DigestKey::new([2; KEY_BYTES]),
        );
        let mut page = vec![7; 4096];
        let digest = key.digest(&page);
        assert_eq!(key.digest(&page), digest);
        assert_ne!(other.digest(&page), digest);
        page[4095] = 8;
        assert_ne!(key.digest(&page), digest);
        assert_eq!(format!("{key:?}"), "DigestKey(hidden)");
    }
}
