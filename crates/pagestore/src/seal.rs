//! Pages that nobody reads who does not have the key: each sealed by AES-256-GCM, for its place in the file.

use std::io;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};

use crate::digest::random;

/// Bytes of a key.
pub const SEAL_KEY_BYTES: usize = 32;

const TAG_BYTES: usize = 16;

/// What a sealed page takes beside its own bytes: nonce and tag.
pub(crate) const SEAL_BYTES: usize = NONCE_LEN + TAG_BYTES;

/// The key of the pages of one file. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct SealKey([u8; SEAL_KEY_BYTES]);

impl std::fmt::Debug for SealKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SealKey(hidden)")
    }
}

impl SealKey {
    /// Of these bytes, which nobody guesses.
    #[must_use]
    pub const fn new(bytes: [u8; SEAL_KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// A new one, as each file has its own.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn random() -> io::Result<Self> {
        random().map(Self)
    }

    /// Its bytes, for those who are to read the file.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; SEAL_KEY_BYTES] {
        &self.0
    }
}

/// Seals and opens.
///
/// Nonces are random: with 2^28 pages sealed, the most of a file, two are alike with a probability of 2^-41, and with 2^32, where places are
/// sealed anew, with 2^-33. So what a process that died had sealed for a place may be sealed anew for it.
#[derive(Debug)]
pub(crate) struct Seal(RandomizedNonceKey);

impl Seal {
    pub(crate) fn new(key: &SealKey) -> io::Result<Self> {
        let key = RandomizedNonceKey::new(&AES_256_GCM, &key.0);
        Ok(Self(key.map_err(io::Error::other)?))
    }

    /// Appends the page for that place.
    pub(crate) fn seal(&self, number: u32, page: &[u8], to: &mut Vec<u8>) -> io::Result<()> {
        let begins = to.len();
        to.extend([0; NONCE_LEN]);
        to.extend(page);
        let inner = &mut to[begins + NONCE_LEN..];
        let sealed = self.0.seal_in_place_separate_tag(place(number), inner);
        let (nonce, tag) = sealed.map_err(io::Error::other)?;
        to[begins..begins + NONCE_LEN].copy_from_slice(nonce.as_ref());
        to.extend(tag.as_ref());
        Ok(())
    }

    /// Fills `page` with what was sealed for that place.
    ///
    /// # Errors
    /// It is not what was sealed.
    pub(crate) fn open(&self, number: u32, sealed: &mut [u8], page: &mut [u8]) -> io::Result<()> {
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "it is not what was sealed");
        let (nonce, inner) = sealed.split_at_mut_checked(NONCE_LEN).ok_or_else(damaged)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| damaged())?;
        let opened = self.0.open_in_place(nonce, place(number), inner);
        let opened = opened.map_err(|_| damaged())?;
        if opened.len() != page.len() {
            return Err(damaged());
        }
        page.copy_from_slice(opened);
        Ok(())
    }
}

fn place(number: u32) -> Aad<[u8; 4]> {
    Aad::from(number.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_sealed_with_the_key_for_its_place_is_opened() {
        let key = SealKey::new([3; SEAL_KEY_BYTES]);
        let seal = Seal::new(&key).unwrap();
        let mut sealed = Vec::new();
        seal.seal(7, &[5; 1024], &mut sealed).unwrap();
        assert_eq!(sealed.len(), 1024 + SEAL_BYTES);
        assert!(!sealed.windows(16).any(|bytes| bytes == [5; 16]));
        let open = |seal: &Seal, number, mut sealed: Vec<u8>| {
            let mut page = [0; 1024];
            seal.open(number, &mut sealed, &mut page).map(|()| page)
        };
        assert_eq!(open(&seal, 7, sealed.clone()).unwrap(), [5; 1024]);
        assert!(open(&seal, 8, sealed.clone()).is_err());
        let other = Seal::new(&SealKey::random().unwrap()).unwrap();
        assert!(open(&other, 7, sealed.clone()).is_err());
        for at in [0, NONCE_LEN, sealed.len() - 1] {
            let mut damaged = sealed.clone();
            damaged[at] ^= 1;
            assert!(open(&seal, 7, damaged).is_err(), "{at}");
        }
        assert!(open(&seal, 7, vec![0; 3]).is_err());
        assert_eq!(format!("{key:?}"), "SealKey(hidden)");
    }
}
