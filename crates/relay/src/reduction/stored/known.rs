//! What the source was told of pages that the destination's host has stored.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use drover_pagestore::{DIGEST_BYTES, Digest, DigestKey, KEY_BYTES, KnownDigests};
use drover_reduce::{PageId, StoredId, Told};

use super::{Bases, StoredPages};

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

    /// To look pages up for a while, also by what they were made of.
    pub(crate) fn asking<'k>(&'k self, bases: Option<&'k Bases>) -> Asking<'k> {
        Asking {
            heard: self.heard(),
            bases,
            base: Vec::new(),
            memory: Vec::new(),
        }
    }

    fn heard(&self) -> RwLockReadGuard<'_, Heard> {
        self.heard.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn report(&self) -> StoredPages {
        let heard = self.heard();
        StoredPages {
            told: heard.digests.count().into(),
            trouble: heard.trouble.clone(),
            ..StoredPages::default()
        }
    }
}

/// Looks pages up.
#[derive(Debug)]
pub(crate) struct Asking<'k> {
    heard: RwLockReadGuard<'k, Heard>,
    bases: Option<&'k Bases>,
    base: Vec<u8>,
    memory: Vec<u8>,
}

impl Heard {
    fn find(&self, page: &[u8]) -> Option<StoredId> {
        if self.digests.count() == 0 {
            return None;
        }
        let digest = self.key.as_ref()?.digest(page);
        self.digests.find(&digest).map(StoredId)
    }
}

impl Told for Asking<'_> {
    fn find(&mut self, page: &[u8]) -> Option<StoredId> {
        self.heard.find(page)
    }

    fn base(&mut self, page: PageId) -> Option<(StoredId, &[u8])> {
        let bases = self.bases.filter(|_| self.heard.digests.count() > 0)?;
        if !bases.find(page, &mut self.base, &mut self.memory) {
            return None;
        }
        let id = self.heard.find(&self.base)?;
        Some((id, &self.base))
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
        assert_eq!(known.asking(None).find(&page(1)), None);
        known.hear(&mut Slowly(&told)).unwrap();
        let mut asking = known.asking(None);
        let found = [1, 2, 3, 4].map(|byte| asking.find(&page(byte)).map(|id| id.0));
        assert_eq!(found, [Some(0), Some(1), Some(3), None]);
        drop(asking);
        assert_eq!(known.report().told, 4);
    }

    /// What a peer may tell: so many digests of pages behind a key, and a part of another.
    fn told(digests: u8, more: usize) -> Vec<u8> {
        let key = DigestKey::new([3; KEY_BYTES]);
        let mut told = key.bytes().to_vec();
        told.extend((0..digests).flat_map(|byte| key.digest(&[byte; 64]).0));
        told.extend(vec![9; more]);
        told
    }

    #[test]
    fn whatever_a_peer_tells_is_numbered_as_it_comes_and_no_more_than_agreed_on() {
        const MOST: u32 = 8;
        let named = |name: &str, told: Vec<u8>| (format!("ok-{name}"), told);
        let documents = vec![
            named("nothing", Vec::new()),
            named("half-a-key", told(0, 0)[..KEY_BYTES / 2].to_vec()),
            named("a-key", told(0, 0)),
            named("some", told(5, 3)),
            named("the-same", [told(3, 0), told(3, 0)].concat()),
            named("too-many", told(30, 15)),
        ];
        drover_corpus::replay_binary(documents, drover_corpus::limits::CHANGES, |bytes| {
            let known = Known::new(MOST);
            known.hear(&mut Slowly(bytes)).map_err(|e| e.to_string())?;
            let told = bytes.len().saturating_sub(KEY_BYTES) / DIGEST_BYTES;
            let count = known.report().told;
            assert_eq!(count, told.min(MOST as usize) as u64);
            let page = [1; 64];
            let found = known.asking(None).find(&page);
            let said = bytes.get(..KEY_BYTES).and_then(|key| {
                let digest = DigestKey::new(key.try_into().ok()?).digest(&page);
                let (digests, _) = bytes[KEY_BYTES..].as_chunks();
                let mut digests = digests.iter().take(MOST as usize);
                digests.position(|told| *told == digest.0)
            });
            assert_eq!(found.map(|id| id.0), said.map(|at| at as u32));
            Ok(())
        });
    }
}
