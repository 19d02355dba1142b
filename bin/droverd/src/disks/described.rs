//! What another host has to know of a disk that goes there.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use drover_api::{NEW_DISKS, NewDisk};
use drover_types::Bytes;

use super::image;

/// Of `st_blocks` (stat(2)).
const BLOCK: u64 = 512;

/// What is a file's own of its mode: no privileges of whoever runs it.
const PERMISSIONS: u32 = 0o777;

/// Whether so many are copied.
///
/// # Errors
/// They are too many.
pub fn few_enough(count: usize) -> Result<(), String> {
    let most = NEW_DISKS;
    match count > most {
        true => Err(format!(
            "it has {count} disks that no other host has, and {most} are copied at most"
        )),
        false => Ok(()),
    }
}

/// One, in a file that is read as this format.
///
/// # Errors
/// It cannot be copied; why, as what the disk is or does.
pub async fn described(target: &str, path: &Path, format: &str) -> Result<NewDisk, String> {
    let image = image::look(path, format).await?;
    let found = std::fs::metadata(path);
    let found = found.map_err(|error| format!("cannot be looked at: {error}"))?;
    Ok(NewDisk {
        target: target.to_owned(),
        path: path.to_owned(),
        layout: image.layout,
        size: image.size,
        allocated: Bytes(found.blocks() * BLOCK),
        inode: found.ino(),
        user: found.uid(),
        group: found.gid(),
        mode: found.permissions().mode() & PERMISSIONS,
    })
}
