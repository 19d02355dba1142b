//! A disk that is a guest's own, in a file that its host alone has.

use std::fmt;

use anyhow::{Result, bail};
use drover_probe::settings::{Disk, PAGE};
use drover_types::Bytes;
use serde::{Deserialize, Serialize};

use super::guest::Dirty;

/// A local disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalDisk {
    /// What the guest sees of it.
    pub size: Bytes,
    /// What the guest writes before it is moved, from the disk's beginning on; the rest stays a hole.
    pub content: Bytes,
    /// What of that it verifies and rewrites all the time, from the beginning on.
    pub dirty: Dirty,
}

impl LocalDisk {
    /// What the guest leaves as it is once it was filled, where nothing else is in between: its offset and its length in bytes.
    #[must_use]
    pub fn at_rest(&self) -> [u64; 2] {
        let begin = self.dirty.working_set.0;
        [begin, self.size.0.saturating_sub(begin)]
    }

    /// What the probe is told.
    ///
    /// # Errors
    /// Sizes that do not fit each other, or are not of whole pages.
    pub(super) fn probe(&self) -> Result<Disk> {
        let (size, content, dirty) = (self.size, self.content, self.dirty.working_set);
        let page = PAGE as u64;
        if let Some(odd) = [size, content, dirty]
            .iter()
            .find(|bytes| bytes.0 % page > 0)
        {
            bail!(
                "{} bytes of a disk are not of whole pages of {PAGE} bytes",
                odd.0
            );
        }
        if content > size || content.0 == 0 {
            bail!(
                "{content} of content are not for a disk of {size}: more than nothing, and not more than it has"
            );
        }
        if dirty >= content {
            bail!(
                "of a disk with {content} of content {dirty} cannot be rewritten all the time: a part has to stay as it is, \
                 to be compared afterwards"
            );
        }
        let pages = |bytes: Bytes| usize::try_from(bytes.0 / page);
        Ok(Disk {
            pages: pages(content)?,
            working_set: pages(dirty)?,
            rewrite: self.dirty.probe(),
        })
    }
}

impl fmt::Display for LocalDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a disk of {}, {} of it written, {}",
            self.size, self.content, self.dirty
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(size: u64, content: u64, dirty: &str) -> LocalDisk {
        LocalDisk {
            size: Bytes(size),
            content: Bytes(content),
            dirty: dirty.parse().unwrap(),
        }
    }

    #[test]
    fn the_guest_is_told_what_to_fill_and_what_to_rewrite() {
        let disk = disk(4 << 30, 1 << 30, "16MiB@4MiB");
        assert_eq!(
            disk.probe().unwrap().to_string(),
            "1073741824:16777216:4194304"
        );
        assert_eq!(disk.at_rest(), [16 << 20, (4 << 30) - (16 << 20)]);
        assert_eq!(
            disk.to_string(),
            "a disk of 4 GiB, 1 GiB of it written, 16 MiB rewritten at 4 MiB/s"
        );
    }

    #[test]
    fn sizes_that_do_not_fit_each_other_are_refused_with_both() {
        for (disk, words) in [
            (
                disk(1 << 20, 2 << 20, "none"),
                "2 MiB of content are not for a disk of 1 MiB",
            ),
            (disk(1 << 20, 0, "none"), "0 B of content"),
            (
                disk(1 << 20, 1 << 20, "1MiB@max"),
                "with 1 MiB of content 1 MiB cannot",
            ),
            (disk(5000, 4096, "none"), "5000 bytes"),
        ] {
            let refused = disk.probe().unwrap_err().to_string();
            assert!(refused.contains(words), "{refused}");
        }
    }
}
