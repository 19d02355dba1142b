//! What benches work on: the programs that are installed here, as a guest has them in its page cache.

#![allow(clippy::unwrap_used)] // a bench stops where it cannot go on

use std::path::Path;

/// The first bytes of the programs in `/usr/bin`, largest first.
pub fn programs(bytes: usize) -> Vec<u8> {
    let files = std::fs::read_dir("/usr/bin").unwrap().flatten();
    let mut files: Vec<_> = files
        .filter_map(|file| Some((file.metadata().ok()?.len(), file.path())))
        .collect();
    files.sort();
    let read = |path: &Path| std::fs::read(path).unwrap_or_default();
    let mut content = Vec::new();
    for (_, path) in files.iter().rev() {
        content.extend(read(path));
        if content.len() >= bytes {
            content.truncate(bytes);
            return content;
        }
    }
    content
}
