//! What another host has to know of a disk that goes there.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use drover_api::{NEW_DISKS, NewDisk};
use drover_types::Bytes;
use tokio::time::timeout;

use super::image::{self, Bitmaps};
use super::limits;
use super::room::BLOCK;

/// What is a file's own of its mode: no privileges of whoever runs it.
pub const PERMISSIONS: u32 = 0o777;

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
pub async fn described(
    target: &str,
    path: &Path,
    format: &str,
    bitmaps: Bitmaps,
) -> Result<NewDisk, String> {
    let image = image::look(path, format, bitmaps).await?;
    let found = found(path).await?;
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

async fn found(path: &Path) -> Result<Metadata, String> {
    let path = path.to_owned();
    let look = tokio::task::spawn_blocking(move || std::fs::metadata(path));
    let Ok(found) = timeout(limits::LOOK, look).await else {
        let seconds = limits::LOOK.as_secs();
        return Err(format!("cannot be looked at within {seconds} s"));
    };
    let found = found.map_err(io::Error::other).flatten();
    found.map_err(|error| format!("cannot be looked at: {error}"))
}
