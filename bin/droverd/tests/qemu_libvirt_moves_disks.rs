//! Domains that write to a disk in a file: they move only to where the very same file is.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../../crates/libvirt/tests/common/mod.rs"]
mod common;
#[path = "qemu_libvirt_moves/pair.rs"]
mod pair;
mod support;

use std::path::{Path, PathBuf};

use common::guest;
use drover_api::{ErrorCode, MigrationPhase};
use drover_libvirt::DomainState;
use pair::{Pair, Side};
use tempfile::TempDir;

on_each_libvirt! {
    a_domain_stays_while_the_destination_has_another_file_by_its_disks_path_and_moves_to_the_same_one
    a_domain_stays_while_its_qemu_has_another_file_open_than_the_one_at_its_disks_path
}

/// Of which all hosts of these tests see the same: a tmpfs of this machine.
const SHARED: &str = "/dev/shm";

fn with_disk(file: &Path) -> String {
    let disk = format!(
        "<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='{}'/>\
         <target dev='vda' bus='virtio'/></disk>",
        file.display()
    );
    guest::idle("web").replace("<memballoon", &format!("{disk}<memballoon"))
}

/// libvirt is told that hosts share this folder, which they do: it takes a tmpfs for one host's own. Version 9.0 does not know the word.
fn shares(side: &Side, folder: &Path) {
    let word = format!("shared_filesystems = [ \"{}\" ]", folder.display());
    let conf = format!("echo '{word}' >>/etc/libvirt/qemu.conf");
    side.host.shell(&conf);
    side.host.signal_libvirtd("KILL");
    side.host.start_libvirtd();
}

fn knows_shared_filesystems(libvirt: &Path) -> bool {
    libvirt.ends_with("libvirt-11.3")
}

async fn a_domain_stays_while_the_destination_has_another_file_by_its_disks_path_and_moves_to_the_same_one(
    libvirt: PathBuf,
) {
    let folder = TempDir::new_in(SHARED).unwrap();
    let shared = folder.path().to_owned();
    let file = shared.join("web.img");
    std::fs::write(&file, vec![7; 1 << 20]).unwrap();
    let prepare = |a: &mut Side, b: &mut Side| {
        shares(a, &shared);
        shares(b, &shared);
    };
    let (pair, ()) = Pair::prepared(&libvirt, folder, &with_disk(&file), prepare).await;

    // Not mounted there: below the mount point is an older image.
    let (at, image) = (shared.display(), file.display());
    let stale = format!("mount -t tmpfs tmpfs {at} && head -c 1M /dev/zero >{image}");
    pair.b.host.shell(&stale);
    let sum = format!("cksum {image}");
    let before = pair.b.host.shell(&sum);
    let error = pair.migrate("web").await.unwrap_err();
    let refusal = error.refusal().unwrap();
    assert_eq!(refusal.code, ErrorCode::HostLacks, "{refusal:?}");
    let words = format!("the file {image} there is on tmpfs");
    assert!(refusal.message.contains(&words), "{refusal:?}");
    let planned = pair.drain_plan().await;
    assert!(planned.contains(&format!("b: {words}")), "{planned}");
    pair.has_stayed().await;
    assert_eq!(pair.b.host.shell(&sum), before);
    assert_ne!(pair.a.host.shell(&sum), before, "they are two files");

    // Once it is mounted it is the same one.
    pair.b.host.shell(&format!("umount {at}"));
    moves_where_libvirt_lets_it(&pair, &libvirt).await;
}

/// To the same file, if libvirt knows what hosts share.
async fn moves_where_libvirt_lets_it(pair: &Pair, libvirt: &Path) {
    let id = pair.begun().await;
    if knows_shared_filesystems(libvirt) {
        pair.has_moved(id, DomainState::Running).await;
        return;
    }
    let failed = pair.a.phase_is(id, MigrationPhase::Failed).await;
    let cause = failed.cause.unwrap();
    assert!(cause.to_lowercase().contains("unsafe"), "{cause}");
    assert!(cause.contains("What to do: "), "{cause}");
    pair.has_stayed().await;
}

async fn a_domain_stays_while_its_qemu_has_another_file_open_than_the_one_at_its_disks_path(
    libvirt: PathBuf,
) {
    let folder = TempDir::new_in(SHARED).unwrap();
    let shared = folder.path().to_owned();
    let file = shared.join("web.img");
    std::fs::write(&file, vec![7; 1 << 20]).unwrap();
    let prepare = |a: &mut Side, b: &mut Side| {
        shares(a, &shared);
        shares(b, &shared);
    };
    let (pair, ()) = Pair::prepared(&libvirt, folder, &with_disk(&file), prepare).await;

    // As somebody restores it: both hosts see the same file, which is not the one that QEMU writes to.
    let open = shared.join("open.img");
    std::fs::rename(&file, &open).unwrap();
    std::fs::copy(&open, &file).unwrap();
    let error = pair.migrate("web").await.unwrap_err();
    let refusal = error.refusal().unwrap();
    assert_eq!(refusal.code, ErrorCode::OfLibvirt, "{refusal:?}");
    assert!(
        refusal.message.contains("does not have open"),
        "{refusal:?}"
    );
    pair.has_stayed().await;

    std::fs::rename(&open, &file).unwrap();
    moves_where_libvirt_lets_it(&pair, &libvirt).await;
}
