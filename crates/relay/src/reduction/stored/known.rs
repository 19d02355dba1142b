//! What the source was told of pages that the destination's host has stored.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use drover_pagestore::{DIGEST_BYTES, Digest, DigestKey, KEY_BYTES, KnownDigests};
use drover_reduce::{StoredId, Told};

use super::StoredPages;

/// Digests that are read at once.
const BATCH: usize = 4096;

/// What was told so far.
#[derive(Debug)]
pub(crate) struct Known {
    heard: RwLock<Heard>,
}

#[derive(Debug)]
struct Heard {
    /// The key comes first.
    key: Option<DigestKey>,
    /// Those beyond what was agreed on have no number.
    digests: KnownDigests,
    /// Why no more is heard.
    trouble: Option<String>,
}

impl Known {
    /// Nothing so far, and of at most so many pages.
    pub(crate) fn new(most: u32) -> Self {
        let heard = Heard {
            key: None,
            digests: KnownDigests::new(most),
            trouble: None,
        };
        Self {
            heard: RwLock::new(heard),
        }
    }

    /// Hears what the destination tells, until it ends.
    pub(crate) fn listen(&self, mut from: UnixStream) {
        if let Err(error) = self.hear(&mut from) {
            tracing::warn!(%error, "the destination's stored pages are no longer heard of");
            let why = format!("no more of them are heard of: {error}");
            self.write(|heard| heard.trouble = Some(why));
        }
    }

    fn hear(&self, from: &mut impl Read) -> io::Result<()> {
        let mut key = [0; KEY_BYTES];
        match from.read_exact(&mut key) {
            // Nothing is stored.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            other => other?,
        }
        self.write(|heard| heard.key = Some(DigestKey::new(key)));
        let mut bytes = vec![0; BATCH * DIGEST_BYTES];
        let mut held = 0;
        loop {
            let count = match from.read(&mut bytes[held..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            if count == 0 {
                return Ok(());
            }
            held += count;
            let (digests, rest) = bytes[..held].as_chunks();
            let left = rest.len();
            self.write(|heard| {
                for digest in digests {
                    heard.digests.add(Digest(*digest));
                }
            });
            bytes.copy_within(held - left..held, 0);
            held = left;
        }
    }

    fn write(&self, change: impl FnOnce(&mut Heard)) {
        change(&mut self.heard.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// To look pages up for a while.
    pub(crate) fn asking(&self) -> Asking<'_> {
        Asking(self.heard.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn report(&self) -> StoredPages {
        let heard = self.asking().0;
        StoredPages {
            told: heard.digests.count().into(),
            trouble: heard.trouble.clone(),
            ..StoredPages::default()
        }
    }
}

/// Looks pages up.
#[derive(Debug)]
pub(crate) struct Asking<'k>(RwLockReadGuard<'k, Heard>);

impl Told for Asking<'_> {
    fn find(&mut self, page: &[u8]) -> Option<StoredId> {
        let Heard { key, digests, .. } = &*self.0;
        if digests.count() == 0 {
            return None;
        }
        digests.find(&key.as_ref()?.digest(page)).map(StoredId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives a byte at a time.
    struct Slowly<'b>(&'b [u8]);

    impl Read for Slowly<'_> {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            let few = to.len().min(1);
            self.0.read(&mut to[..few])
        }
    }

    #[test]
    fn pages_are_numbered_as_they_are_told_and_no_more_are_remembered_than_agreed_on() {
        let key = DigestKey::new([3; KEY_BYTES]);
        let page = |byte| [byte; 64];
        let mut told = key.bytes().to_vec();
        for byte in [1, 2, 1, 3, 4] {
            told.extend(key.digest(&page(byte)).0);
        }
        told.extend([0; 3]);
        let known = Known::new(4);
        assert_eq!(known.asking().find(&page(1)), None);
        known.hear(&mut Slowly(&told)).unwrap();
        let mut asking = known.asking();
        let found = [1, 2, 3, 4].map(|byte| asking.find(&page(byte)).map(|id| id.0));
        assert_eq!(found, [Some(0), Some(1), Some(3), None]);
        drop(asking);
        assert_eq!(known.report().told, 4);
    }
}
