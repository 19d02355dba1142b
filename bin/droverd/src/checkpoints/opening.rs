//! What is kept, as an agent finds it that is started.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::sync::{Arc, Mutex};

use drover_pagestore::DigestKey;

use super::files::{KINDS, Told, erase, named, pages, place, taken, told};
use super::{Checkpoint, Checkpoints, Inner};
use crate::config::Config;
use crate::registry::files as documents;

impl Checkpoints {
    /// Those that are there and count; whatever else is there is removed, and all where none are wanted.
    ///
    /// # Errors
    /// A directory cannot be read, or the system has no random numbers.
    pub fn open(config: &Config) -> io::Result<Self> {
        let wanted = &config.checkpoints;
        let own = config.state.join("checkpoints");
        let mut all = BTreeMap::new();
        let mut key = None;
        for kind in KINDS {
            for vm in named(&own, told(kind))? {
                let file = place(&own, &vm, told(kind));
                let told = match documents::read_document::<Told>(&file) {
                    Ok(Some(told)) => told,
                    Ok(None) => continue,
                    Err(error) => {
                        tracing::warn!(file = %file.display(), %error, "removed: it cannot be read");
                        documents::remove(&file)?;
                        continue;
                    }
                };
                // One session has digests by one key.
                let same = *key.get_or_insert(told.digests) == told.digests;
                match fs::metadata(&told.path) {
                    Ok(metadata) if same && wanted.size.0 > 0 && !told.is_over() => {
                        let takes = taken(&metadata);
                        all.insert((vm, kind), Checkpoint::Kept { told, takes });
                    }
                    _ => erase(&file, &told.path),
                }
            }
        }
        let this = Self(Arc::new(Inner {
            own,
            directory: wanted.directory.clone(),
            size: wanted.size,
            lasts: wanted.lasts,
            key: key.map_or_else(DigestKey::random, |key| Ok(DigestKey::new(key)))?,
            disk: Mutex::new(()),
            all: Mutex::new(all),
        }));
        this.remove_what_nobody_knows()?;
        Ok(this)
    }

    /// Pages of guests that were on their way when an earlier agent ended.
    fn remove_what_nobody_knows(&self) -> io::Result<()> {
        let all = self.lock();
        for kind in KINDS {
            for vm in named(&self.0.directory, pages(kind))? {
                let path = place(&self.0.directory, &vm, pages(kind));
                let known = all.get(&(vm, kind));
                let is_known =
                    matches!(known, Some(Checkpoint::Kept { told, .. }) if told.path == path);
                if !is_known {
                    documents::remove(&path)?;
                }
            }
        }
        Ok(())
    }
}
