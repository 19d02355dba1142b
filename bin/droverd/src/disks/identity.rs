use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Which file it is that a path leads to: another one may be there later, even by the number of one that was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileId {
    inode: u64,
    /// When it was made, in nanoseconds since 1970, where its file system tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    born: Option<u64>,
}

impl FileId {
    pub fn of(found: &Metadata) -> Self {
        Self {
            inode: found.ino(),
            born: found.created().ok().and_then(nanos),
        }
    }
}

/// How a file stood when it was last looked at. One that somebody wrote to since stands otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AtRest {
    /// When it was last written to, in nanoseconds since 1970.
    modified: Option<u64>,
    bytes: u64,
}

impl AtRest {
    pub fn of(found: &Metadata) -> Self {
        Self {
            modified: found.modified().ok().and_then(nanos),
            bytes: found.len(),
        }
    }
}

/// Since 1970.
fn nanos(at: SystemTime) -> Option<u64> {
    let since = at.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_nanos()).ok()
}
