//! The guest's own disk, in a file that each host has in its own folder: made, compared after a move, and removed where the guest left it.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::{Context, Result};
use drover_types::{Bytes, VmName};
use serde::{Deserialize, Serialize};

use crate::command::run_within;
use crate::guest::definition::{disk_file, text_of};
use crate::host::Host;
use crate::lab::Lab;
use crate::limits;
use crate::settings::LocalDisk;

/// What became of the guest's own disk in one move.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DiskFacts {
    /// Pages that the guest verified and rewrote on it a second, before the move.
    pub rewrites_before: Option<f64>,
    /// The same from the order to move until it ran on the destination.
    pub rewrites_during: Option<f64>,
    /// What the guest had left as it was, the same byte by byte in both hosts' files.
    pub compared: Bytes,
}

/// The files of a guest's own disk.
pub(super) struct Files<'a> {
    pub(super) lab: &'a Lab,
    pub(super) guest: &'a VmName,
    pub(super) disk: &'a LocalDisk,
}

impl Files<'_> {
    /// Has one host have an empty disk, and no other host any.
    ///
    /// # Errors
    /// qemu-img's words, or a file cannot be removed.
    pub(super) async fn begin_on(&self, host: &Host) -> Result<()> {
        self.lab
            .hosts()
            .iter()
            .try_for_each(|host| self.remove(host))?;
        self.create(host).await
    }

    /// Makes an empty disk on a host.
    ///
    /// # Errors
    /// qemu-img's words.
    pub(super) async fn create(&self, host: &Host) -> Result<()> {
        let (file, size) = (text_of(&self.on(host))?, self.disk.size.0.to_string());
        let words = ["create", "-q", "-f", "qcow2", &file, &size];
        run_within("qemu-img", &words, limits::COMMAND)
            .await
            .map(drop)
    }

    /// Removes a host's disk, if it has one.
    ///
    /// # Errors
    /// It cannot be removed.
    pub(super) fn remove(&self, host: &Host) -> Result<()> {
        let file = self.on(host);
        match fs::remove_file(&file) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", file.display()))
            }
            _ => Ok(()),
        }
    }

    /// Compares what the guest leaves as it is between two hosts, neither of which writes: one guest has ended, the other stands still. How
    /// much that is.
    ///
    /// # Errors
    /// They differ, or one cannot be read.
    pub(super) async fn compare(&self, hosts: [&Host; 2]) -> Result<Bytes> {
        let at_rest = self.disk.at_rest();
        let files = hosts.map(|host| self.on(host));
        same(&files, at_rest).await.with_context(|| {
            let [one, other] = hosts.map(|host| &host.name);
            format!(
                "the disks of hosts {one} and {other} are not the same from byte {} on",
                at_rest[0]
            )
        })?;
        Ok(Bytes(at_rest[1]))
    }

    fn on(&self, host: &Host) -> PathBuf {
        host.socket(&disk_file(self.guest))
    }
}

/// Whether two disks hold the same in a part of them.
async fn same([one, other]: &[PathBuf; 2], at: [u64; 2]) -> Result<()> {
    let [one, other] = [part(&text_of(one)?, at), part(&text_of(other)?, at)];
    // A guest that stands still holds its file, and has written to it all that it was told.
    let words = ["compare", "-q", "-U", "--image-opts", &one, &other];
    run_within("qemu-img", &words, limits::COMPARED)
        .await
        .map(drop)
}

/// A part of what a guest sees of a disk, as a disk of its own for `qemu-img --image-opts`.
fn part(file: &str, [begin, length]: [u64; 2]) -> String {
    // A comma in a value is written twice.
    let file = file.replace(',', ",,");
    format!(
        "driver=raw,offset={begin},size={length},file.driver=qcow2,file.file.driver=file,file.file.filename={file}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::find;

    #[test]
    fn a_part_of_a_disk_is_named_whatever_its_file_is_called() {
        assert_eq!(
            part("/a,b", [4096, 8192]),
            "driver=raw,offset=4096,size=8192,file.driver=qcow2,file.file.driver=file,file.file.filename=/a,,b"
        );
    }

    #[tokio::test]
    async fn disks_are_compared_where_the_guest_leaves_them_as_they_are_and_nowhere_else() {
        if ["qemu-img", "qemu-io"]
            .iter()
            .any(|program| find(program).is_none())
        {
            println!("skipped, because qemu-img and qemu-io are not installed");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let files = ["a,a", "b"].map(|name| folder.path().join(name));
        for (file, first) in files.iter().zip(["1", "2"]) {
            let file = file.to_str().unwrap();
            let create = ["create", "-q", "-f", "qcow2", file, "4M"];
            run_within("qemu-img", &create, limits::COMMAND)
                .await
                .unwrap();
            let [first, rest] = [
                format!("write -P {first} 0 1M"),
                "write -P 3 1M 2M".to_owned(),
            ];
            let write = ["-f", "qcow2", "-c", &first, "-c", &rest, file];
            run_within("qemu-io", &write, limits::COMMAND)
                .await
                .unwrap();
        }
        same(&files, [1 << 20, 3 << 20]).await.unwrap();
        assert!(same(&files, [0, 4 << 20]).await.is_err());
        let one = [
            "-f",
            "qcow2",
            "-c",
            "write -P 4 3071k 1k",
            files[0].to_str().unwrap(),
        ];
        run_within("qemu-io", &one, limits::COMMAND).await.unwrap();
        assert!(same(&files, [1 << 20, 3 << 20]).await.is_err());
    }
}
