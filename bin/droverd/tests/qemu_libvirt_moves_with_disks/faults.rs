//! What goes wrong while disks are copied of a domain whose guest works: it runs on one host and finds all of its memory, its disks have what
//! was written to them, and nothing is left where it is not.

use std::path::{Path, PathBuf};

use drover_api::MigrationPhase;
use drover_libvirt::DomainState;
use drover_types::MigrationId;

use super::common::until;
use super::pair::{Pair, Side, verified_on};
use super::{FOLDER, are_the_same, begun, begun_slowly, devices, files, hold, prepare, write};
use crate::on_each_libvirt;

on_each_libvirt! {
    a_domain_moves_with_its_disks_while_its_agents_are_killed_and_the_next_ones_hand_it_off_and_run_it
    what_was_made_goes_when_the_destinations_libvirtd_is_killed_and_the_domain_can_move_again
    what_was_made_goes_when_the_sources_libvirtd_is_killed_and_the_domain_can_move_again
    disks_are_copied_on_over_the_nic_that_is_left_and_what_was_made_goes_when_none_is
    a_file_system_that_fills_up_when_nearly_all_is_copied_keeps_nothing_and_the_domain_can_move_again
}

/// What is written to the disks while they are copied.
const MARK: u8 = 5;

/// So slow that nearly all of the disks is there for a second before all is.
const LAST_TENTH: &str = "40mbit";

/// With a guest that works. None where such guests cannot run here.
async fn busy(libvirt: &Path) -> Option<Pair> {
    let (pair, ()) = Pair::busy_with(libvirt, &devices(), prepare).await?;
    Some(pair)
}

/// One whose disks are on their way, and were written to since, and what their files come to.
async fn copied(pair: &Pair) -> (MigrationId, String) {
    let id = begun_slowly(pair).await;
    write(&pair.a, MARK);
    (id, checksums(&pair.a))
}

/// It runs where it was with its disks as they were, and nothing of it is left there.
async fn has_stayed_whole(pair: &Pair, disks: &str) {
    pair.has_stayed().await;
    assert_eq!(pair.a.host.qemus().len(), 1);
    verified_on(&pair.a.host).await;
    until("what was made is gone", async || files(&pair.b).is_empty()).await;
    assert_eq!(checksums(&pair.a), disks);
    hold(&pair.a, MARK);
}

async fn moves_whole(pair: &Pair) {
    pair.unlimited().await;
    let id = begun(pair).await;
    has_moved_whole(pair, id).await;
}

async fn has_moved_whole(pair: &Pair, id: MigrationId) {
    pair.has_moved(id, DomainState::Running).await;
    assert_eq!(pair.b.host.qemus().len(), 1);
    verified_on(&pair.b.host).await;
    are_the_same(pair);
    hold(&pair.b, MARK);
}

async fn a_domain_moves_with_its_disks_while_its_agents_are_killed_and_the_next_ones_hand_it_off_and_run_it(
    libvirt: PathBuf,
) {
    let Some(mut pair) = busy(&libvirt).await else {
        return;
    };
    let (id, _) = copied(&pair).await;
    pair.a.kill_agent();
    pair.a.start_agent().await;
    pair.b.kill_agent();
    pair.b.start_agent().await;
    pair.unlimited().await;
    has_moved_whole(&pair, id).await;
    let left = pair.a.migration(id).await.next.unwrap();
    assert!(left.contains(FOLDER), "{left}");
}

/// libvirt may miss the end of a copy, and wait for it: docs/SEMANTICS.md says what to do then.
async fn comes_back(pair: &mut Pair, id: MigrationId) {
    let begun = std::time::Instant::now();
    while !pair.a.migration(id).await.phase.has_ended() {
        if begun.elapsed() > std::time::Duration::from_secs(20) {
            println!("libvirt has missed the end of a copy: its daemon is started again");
            pair.a.host.signal_libvirtd("KILL");
            pair.a.host.start_libvirtd();
            pair.a.connect_again().await;
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
}

async fn what_was_made_goes_when_the_destinations_libvirtd_is_killed_and_the_domain_can_move_again(
    libvirt: PathBuf,
) {
    let Some(mut pair) = busy(&libvirt).await else {
        return;
    };
    let (id, disks) = copied(&pair).await;
    pair.b.host.signal_libvirtd("KILL");
    pair.b.host.start_libvirtd();
    pair.b.connect_again().await;
    comes_back(&mut pair, id).await;
    pair.a.phase_is(id, MigrationPhase::Failed).await;
    pair.b.phase_is(id, MigrationPhase::Abandoned).await;
    has_stayed_whole(&pair, &disks).await;
    moves_whole(&pair).await;
}

async fn what_was_made_goes_when_the_sources_libvirtd_is_killed_and_the_domain_can_move_again(
    libvirt: PathBuf,
) {
    let Some(mut pair) = busy(&libvirt).await else {
        return;
    };
    let (id, disks) = copied(&pair).await;
    pair.a.host.signal_libvirtd("KILL");
    pair.a.host.start_libvirtd();
    pair.a.connect_again().await;
    pair.a.phase_is(id, MigrationPhase::Failed).await;
    has_stayed_whole(&pair, &disks).await;
    moves_whole(&pair).await;
}

async fn disks_are_copied_on_over_the_nic_that_is_left_and_what_was_made_goes_when_none_is(
    libvirt: PathBuf,
) {
    let Some(pair) = busy(&libvirt).await else {
        return;
    };
    let (id, disks) = copied(&pair).await;
    pair.loses("eth1", id).await;
    assert_eq!(pair.a.migration(id).await.paths.len(), 2);
    pair.a.host.shell("ip link set eth0 down");
    pair.a.phase_is(id, MigrationPhase::Failed).await;
    for nic in ["eth0", "eth1"] {
        pair.a.host.shell(&format!("ip link set {nic} up"));
    }
    has_stayed_whole(&pair, &disks).await;

    let id = begun_slowly(&pair).await;
    pair.loses("eth1", id).await;
    pair.unlimited().await;
    has_moved_whole(&pair, id).await;
}

async fn a_file_system_that_fills_up_when_nearly_all_is_copied_keeps_nothing_and_the_domain_can_move_again(
    libvirt: PathBuf,
) {
    let Some(pair) = busy(&libvirt).await else {
        return;
    };
    let tmpfs = format!("mount -t tmpfs -o size=80M tmpfs {FOLDER}");
    pair.b.host.shell(&tmpfs);
    let (id, disks) = copied(&pair).await;
    pair.a.limited(Some(LAST_TENTH)).await;
    let all = taken(&pair.a);
    let nearly_all = async || taken(&pair.b) * 10 >= all * 9;
    until("nine tenths are there", nearly_all).await;
    let filled = format!("dd if=/dev/zero of={FOLDER}/other bs=1M 2>/dev/null || true");
    pair.b.host.shell(&filled);
    pair.a.phase_is(id, MigrationPhase::Failed).await;
    until("what was made is gone", async || {
        files(&pair.b) == "other\n"
    })
    .await;
    pair.b.host.shell(&format!("rm {FOLDER}/other"));
    has_stayed_whole(&pair, &disks).await;
    moves_whole(&pair).await;
}

/// Of the files, which the guest itself leaves as they are.
fn checksums(side: &Side) -> String {
    side.host.shell(&format!("cksum {FOLDER}/*"))
}

/// What its disks' files take, in KiB.
fn taken(side: &Side) -> u64 {
    let taken = side.host.shell(&format!("du -sk {FOLDER} | cut -f1"));
    taken.trim().parse().unwrap()
}
