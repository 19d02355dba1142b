//! Domains of real libvirts that agents move between two hosts, which reach each other over two NICs and in no other way.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../../crates/libvirt/tests/common/mod.rs"]
mod common;
#[path = "qemu_libvirt_moves/pair.rs"]
mod pair;
mod support;

use std::path::PathBuf;

use common::{guest, until};
use drover_api::{ClientError, ErrorCode, MigrationPhase, Refusal};
use drover_libvirt::DomainState;
use pair::{Pair, Side, verified_on};
use tempfile::TempDir;

on_each_libvirt! {
    a_domain_moves_and_runs_there_and_only_there
    a_domain_that_was_paused_is_paused_there
    what_libvirt_refuses_comes_back_in_its_words_and_the_domain_runs_on
    a_host_that_insists_on_libvirts_own_encryption_is_told_with_what_to_do
    what_the_destination_lacks_is_named_before_libvirt_is_asked
    a_domain_moves_on_over_the_nic_that_is_left_and_stays_when_none_is
    a_domain_that_is_cancelled_runs_on_and_can_move_again
    a_domain_moves_on_while_the_sources_agent_is_killed_and_is_handed_off_by_the_next_one
    a_domain_moves_on_while_the_destinations_agent_is_killed_and_is_run_by_the_next_one
    a_domain_stays_when_the_destinations_libvirtd_is_killed
    a_domain_stays_when_the_sources_libvirtd_is_killed
}

fn refused(error: ClientError) -> Refusal {
    match error.refusal() {
        Some(refusal) => refusal.clone(),
        None => panic!("{error:?}"),
    }
}

async fn a_domain_moves_and_runs_there_and_only_there(libvirt: PathBuf) {
    let Some(pair) = Pair::busy(&libvirt).await else {
        return;
    };
    pair.a.host.virsh(&["autostart", "web"]);
    let before = pair.a.web().await.unwrap();
    assert!(before.autostart);
    for told in [&["--title", "The shop"][..], &["Asks <nobody>"]] {
        let desc = ["desc", "web", "--live", "--config"];
        pair.a.host.virsh(&[&desc, told].concat());
    }
    let note = "<note>kept</note>";
    let told = [
        "metadata",
        "web",
        "urn:example:notes",
        "--live",
        "--config",
        "--key",
        "notes",
        "--set",
        note,
    ];
    pair.a.host.virsh(&told);

    let id = pair.begun().await;
    pair.has_moved(id, DomainState::Running).await;
    let there = pair.b.web().await.unwrap();
    assert_eq!(there.uuid, before.uuid);
    assert!(there.autostart, "autostart goes along");
    for which in [&["dumpxml", "web"][..], &["dumpxml", "web", "--inactive"]] {
        let xml = pair.b.host.virsh(which);
        for word in ["<title>The shop", "<description>Asks", ">kept</"] {
            assert!(xml.contains(word), "no {word}: {xml}");
        }
    }

    // Over both NICs, and the guest finds all of its memory as it left it.
    let view = pair.a.migration(id).await;
    assert_eq!(view.paths.len(), 2, "{view:#?}");
    assert!(view.downtime_ms.is_some() && view.bytes.total.0 > 0);
    verified_on(&pair.b.host).await;
}

async fn a_domain_that_was_paused_is_paused_there(libvirt: PathBuf) {
    let pair = Pair::idle(&libvirt).await;
    pair.a.host.virsh(&["suspend", "web"]);
    let id = pair.begun().await;
    pair.has_moved(id, DomainState::Paused).await;
}

async fn what_libvirt_refuses_comes_back_in_its_words_and_the_domain_runs_on(libvirt: PathBuf) {
    const ONLY_HERE: &str = "/run/only-here";
    // A folder that is not there is nothing that the agents look for.
    let log = format!("<serial type='file'><source path='{ONLY_HERE}/log'/></serial>");
    let xml = guest::idle("web").replace("<memballoon", &format!("{log}<memballoon"));
    let make = format!("mkdir {ONLY_HERE}");
    let pair = Pair::with(&libvirt, &xml, &make).await;
    let id = pair.begun().await;
    let failed = pair.a.phase_is(id, MigrationPhase::Failed).await;
    let cause = failed.cause.unwrap();
    assert!(cause.contains("libvirt refused to migrate"), "{cause}");
    assert!(cause.contains(ONLY_HERE), "{cause}");
    pair.has_stayed().await;

    pair.a.host.define(&guest::idle("off"));
    let refusal = refused(pair.migrate("off").await.unwrap_err());
    assert_eq!(refusal.code, ErrorCode::VmNotRunning, "{refusal:?}");
    assert!(refusal.message.contains("shut off"), "{refusal:?}");
}

async fn a_host_that_insists_on_libvirts_own_encryption_is_told_with_what_to_do(libvirt: PathBuf) {
    let insist = |a: &mut Side, b: &mut Side| {
        for side in [a, b] {
            let word = "echo 'migrate_tls_force = 1' >>/etc/libvirt/qemu.conf";
            side.host.shell(word);
            side.host.signal_libvirtd("KILL");
            side.host.start_libvirtd();
        }
    };
    let folder = TempDir::new().unwrap();
    let (pair, ()) = Pair::prepared(&libvirt, folder, &guest::idle("web"), insist).await;
    let id = pair.begun().await;
    let failed = pair.a.phase_is(id, MigrationPhase::Failed).await;
    let cause = failed.cause.unwrap();
    let words = "What to do: set `migrate_tls_force = 0`";
    assert!(cause.contains(words), "{cause}");
    pair.has_stayed().await;
}

async fn what_the_destination_lacks_is_named_before_libvirt_is_asked(libvirt: PathBuf) {
    const ONLY_HERE: &str = "/run/only-here.iso";
    let medium = format!(
        "<disk type='file' device='cdrom'><driver name='qemu' type='raw'/><source file='{ONLY_HERE}'/>\
         <target dev='sda' bus='sata'/><readonly/></disk>"
    );
    let xml = guest::idle("web").replace("<memballoon", &format!("{medium}<memballoon"));
    let make = format!("truncate -s 1M {ONLY_HERE}");
    let pair = Pair::with(&libvirt, &xml, &make).await;
    let refusal = refused(pair.migrate("web").await.unwrap_err());
    assert_eq!(refusal.code, ErrorCode::HostLacks, "{refusal:?}");
    assert!(refusal.message.contains(ONLY_HERE), "{refusal:?}");
    pair.has_stayed().await;
    // Once it is there as well nothing is left in the way.
    pair.b.host.shell(&make);
    let id = pair.begun().await;
    pair.has_moved(id, DomainState::Running).await;
}

async fn a_domain_that_is_cancelled_runs_on_and_can_move_again(libvirt: PathBuf) {
    let Some(pair) = Pair::busy(&libvirt).await else {
        return;
    };
    pair.a.host.virsh(&["autostart", "web"]);
    pair.a
        .host
        .virsh(&["migrate-setmaxdowntime", "web", "1234"]);
    let id = pair.begun_slowly().await;
    pair.a.agent().client.cancel(id).await.unwrap();
    pair.a.phase_is(id, MigrationPhase::Cancelled).await;
    pair.has_stayed().await;
    verified_on(&pair.a.host).await;
    until("it is as before", async || {
        let limit = pair.a.host.virsh(&["migrate-getmaxdowntime", "web"]);
        limit.trim() == "1234" && pair.a.web().await.is_some_and(|web| web.autostart)
    })
    .await;
    pair.unlimited().await;
    let id = pair.begun().await;
    pair.has_moved(id, DomainState::Running).await;
}

async fn a_domain_moves_on_over_the_nic_that_is_left_and_stays_when_none_is(libvirt: PathBuf) {
    let Some(pair) = Pair::busy(&libvirt).await else {
        return;
    };
    let id = pair.begun_slowly().await;
    pair.loses("eth1", id).await;
    assert_eq!(pair.a.state().await, Some(DomainState::Running));
    pair.a.host.shell("ip link set eth0 down");
    pair.a.phase_is(id, MigrationPhase::Failed).await;
    pair.has_stayed().await;
    verified_on(&pair.a.host).await;
    pair.a
        .host
        .shell("ip link set eth0 up && ip link set eth1 up");
    pair.unlimited().await;
    let id = pair.begun().await;
    pair.has_moved(id, DomainState::Running).await;
    verified_on(&pair.b.host).await;
}

async fn a_domain_moves_on_while_the_sources_agent_is_killed_and_is_handed_off_by_the_next_one(
    libvirt: PathBuf,
) {
    let Some(mut pair) = Pair::busy(&libvirt).await else {
        return;
    };
    pair.a.host.virsh(&["autostart", "web"]);
    let id = pair.begun_and_sent().await;
    pair.a.kill_agent();
    pair.b.host.signal_libvirtd("CONT");
    pair.b.connect_again().await;
    pair.is_whole_there().await;
    until("libvirt has let go of it", async || {
        pair.a.web().await.is_none()
    })
    .await;
    pair.a.start_agent().await;
    pair.has_moved(id, DomainState::Running).await;
    verified_on(&pair.b.host).await;
    assert!(pair.b.web().await.unwrap().autostart);
}

async fn a_domain_moves_on_while_the_destinations_agent_is_killed_and_is_run_by_the_next_one(
    libvirt: PathBuf,
) {
    let Some(mut pair) = Pair::busy(&libvirt).await else {
        return;
    };
    let id = pair.begun_slowly().await;
    pair.b.kill_agent();
    pair.b.start_agent().await;
    pair.unlimited().await;
    pair.has_moved(id, DomainState::Running).await;
    verified_on(&pair.b.host).await;
}

async fn a_domain_stays_when_the_destinations_libvirtd_is_killed(libvirt: PathBuf) {
    let Some(mut pair) = Pair::busy(&libvirt).await else {
        return;
    };
    let id = pair.begun_slowly().await;
    pair.b.host.signal_libvirtd("KILL");
    pair.b.host.start_libvirtd();
    pair.b.connect_again().await;
    pair.a.phase_is(id, MigrationPhase::Failed).await;
    pair.b.phase_is(id, MigrationPhase::Abandoned).await;
    pair.has_stayed().await;
    verified_on(&pair.a.host).await;
}

async fn a_domain_stays_when_the_sources_libvirtd_is_killed(libvirt: PathBuf) {
    let Some(mut pair) = Pair::busy(&libvirt).await else {
        return;
    };
    pair.a.host.virsh(&["autostart", "web"]);
    let id = pair.begun_slowly().await;
    pair.a.host.signal_libvirtd("KILL");
    pair.a.host.start_libvirtd();
    pair.a.connect_again().await;
    pair.a.phase_is(id, MigrationPhase::Failed).await;
    pair.has_stayed().await;
    verified_on(&pair.a.host).await;
    assert!(pair.a.web().await.unwrap().autostart, "it is as before");
}
