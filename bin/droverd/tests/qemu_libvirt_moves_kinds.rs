//! Domains of several kinds, and many at once.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../../crates/libvirt/tests/common/mod.rs"]
mod common;
#[path = "qemu_libvirt_moves/pair.rs"]
mod pair;
mod support;

use std::path::PathBuf;

use common::{domain, guest, unpacked, until};
use drover_api::{ErrorCode, MigrationPhase, Refusal};
use drover_libvirt::DomainState;
use drover_types::MigrationId;
use pair::Pair;
use tempfile::TempDir;

on_each_libvirt! {
    a_domain_without_a_definition_moves_and_has_none_there
    a_domain_moves_by_its_id_whatever_its_name
    a_domain_with_a_snapshot_stays_and_moves_once_libvirt_has_none
    a_domain_moves_whose_qemu_runs_as_a_user_of_its_own
    a_domain_stays_while_the_destination_lacks_its_network_and_moves_once_that_is_there
    a_domain_that_crashed_is_left_where_it_is
    a_domain_with_a_device_of_its_host_is_left_where_it_is
    a_domain_of_qemu_7_2_moves_there_and_back
    domains_that_all_move_at_once_do_not_keep_each_other_from_it
    a_domain_that_another_host_has_in_memory_is_not_moved
}

#[tokio::test(flavor = "multi_thread")]
async fn a_domain_moves_to_a_newer_libvirt_and_back() {
    let (Some(older), Some(newer)) = (unpacked("9.0"), unpacked("11.3")) else {
        return;
    };
    let (folder, xml) = (TempDir::new().unwrap(), guest::idle("web"));
    let (pair, ()) = Pair::prepared_on([&older, &newer], folder, &xml, |_, _| ()).await;
    pair.a.host.virsh(&["autostart", "web"]);
    let id = pair.begun().await;
    pair.has_moved(id, DomainState::Running).await;
    pair.comes_back().await;
    assert!(pair.a.web().await.unwrap().autostart);
}

async fn refused(pair: &Pair) -> Refusal {
    let error = pair.migrate("web").await.unwrap_err();
    error.refusal().unwrap().clone()
}

async fn a_domain_without_a_definition_moves_and_has_none_there(libvirt: PathBuf) {
    let pair = Pair::idle(&libvirt).await;
    pair.a.host.virsh(&["undefine", "web"]);
    let id = pair.begun().await;
    pair.a.phase_is(id, MigrationPhase::Completed).await;
    pair.b.phase_is(id, MigrationPhase::Running).await;
    assert_eq!(pair.a.web().await, None);
    let there = pair.b.web().await.unwrap();
    assert_eq!(there.state, DomainState::Running);
    assert!(!there.persistent);
}

async fn a_domain_moves_by_its_id_whatever_its_name(libvirt: PathBuf) {
    const NAME: &str = "Käfer 1";
    let pair = Pair::idle(&libvirt).await;
    pair.a.host.define(&guest::idle(NAME));
    pair.a.host.virsh(&["start", NAME]);
    let here = domain(&pair.a.libvirt, NAME).await.unwrap();
    let client = &pair.a.agent().client;
    until("the agent knows that it runs", async || {
        let vms = client.vms().await.unwrap();
        vms.iter().any(|vm| vm.name == NAME && vm.pid.is_some())
    })
    .await;
    let id = pair.order(&here.uuid.to_string()).await.unwrap().id;
    pair.a.phase_is(id, MigrationPhase::Completed).await;
    pair.b.phase_is(id, MigrationPhase::Running).await;
    assert_eq!(domain(&pair.a.libvirt, NAME).await, None);
    let there = domain(&pair.b.libvirt, NAME).await.unwrap();
    assert_eq!((there.uuid, there.state), (here.uuid, DomainState::Running));
}

async fn a_domain_with_a_snapshot_stays_and_moves_once_libvirt_has_none(libvirt: PathBuf) {
    let pair = Pair::idle(&libvirt).await;
    // What libvirt notes of one, with the domain as it was: there is no disk that could have it.
    let snapshot = "<domainsnapshot><name>before</name><state>shutoff</state>\
                    <creationTime>1700000000</creationTime>";
    pair.a.host.shell(&format!(
        "(echo '{snapshot}'; virsh dumpxml web --inactive; echo '</domainsnapshot>') >/run/snapshot.xml"
    ));
    pair.a
        .host
        .virsh(&["snapshot-create", "web", "--redefine", "/run/snapshot.xml"]);
    let why = "libvirt has a snapshot of it";
    let refusal = refused(&pair).await;
    assert_eq!(refusal.code, ErrorCode::OfLibvirt, "{refusal:?}");
    assert!(refusal.message.contains(why), "{refusal:?}");
    let planned = pair.drain_plan().await;
    assert!(planned.contains(why), "{planned}");
    pair.has_stayed().await;

    pair.a
        .host
        .virsh(&["snapshot-delete", "web", "before", "--metadata"]);
    let id = pair.begun().await;
    pair.has_moved(id, DomainState::Running).await;
}

async fn a_domain_moves_whose_qemu_runs_as_a_user_of_its_own(libvirt: PathBuf) {
    let prepare = |a: &mut pair::Side, b: &mut pair::Side| {
        for side in [a, b] {
            let conf = "sed -i '/^user\\|^group/s/root/libvirt-qemu/' /etc/libvirt/qemu.conf";
            side.host.shell(conf);
            side.host.signal_libvirtd("KILL");
            side.host.start_libvirtd();
        }
    };
    let folder = TempDir::new().unwrap();
    let (pair, ()) = Pair::prepared(&libvirt, folder, &guest::idle("web"), prepare).await;
    let qemu = pair.a.host.qemus().remove(0);
    let user = pair.a.host.shell(&format!("stat -c %U /proc/{qemu}"));
    assert_eq!(user.trim(), "libvirt-qemu");
    let id = pair.begun().await;
    pair.has_moved(id, DomainState::Running).await;
}

async fn a_domain_stays_while_the_destination_lacks_its_network_and_moves_once_that_is_there(
    libvirt: PathBuf,
) {
    let driver = "usr/lib/x86_64-linux-gnu/libvirt/connection-driver/libvirt_driver_network.so";
    if !libvirt.join(driver).exists() {
        println!("skipped, because this libvirt was unpacked without its driver for networks");
        return;
    }
    // What the network is made of is another bridge on the other host.
    let make = |bridge: &str| {
        let lan = format!(
            "<network><name>lan</name><forward mode=\"bridge\"/><bridge name=\"{bridge}\"/></network>"
        );
        format!(
            "ip link add {bridge} type bridge && ip link set {bridge} up && echo '{lan}' >/run/lan.xml && virsh net-create /run/lan.xml"
        )
    };
    let card = "<interface type='network'><source network='lan'/><model type='virtio'/><rom enabled='no'/></interface>";
    let xml = guest::idle("web").replace("<memballoon", &format!("{card}<memballoon"));
    let pair = Pair::with(&libvirt, &xml, &make("lan7")).await;
    let why = "libvirt's network \"lan\"";
    let refusal = refused(&pair).await;
    assert_eq!(refusal.code, ErrorCode::HostLacks, "{refusal:?}");
    assert!(refusal.message.contains(why), "{refusal:?}");
    let planned = pair.drain_plan().await;
    assert!(planned.contains(why), "{planned}");
    pair.has_stayed().await;

    pair.b.host.shell(&make("lan8"));
    let id = pair.begun().await;
    pair.has_moved(id, DomainState::Running).await;
}

async fn a_domain_that_crashed_is_left_where_it_is(libvirt: PathBuf) {
    let xml = guest::idle("web")
        .replace("<on_crash>destroy", "<on_crash>preserve")
        .replace("<memballoon", "<panic model='isa'/><memballoon");
    let pair = Pair::new(&libvirt, TempDir::new().unwrap(), &xml).await;
    // What a kernel that panics says to that device.
    let panics = ["qemu-monitor-command", "web", "--hmp", "o /b 0x505 1"];
    pair.a.host.virsh(&panics);
    until("the agent knows that it crashed", async || {
        let vms = pair.a.agent().client.vms().await.unwrap();
        pair.a.state().await == Some(DomainState::Crashed)
            && vms
                .iter()
                .any(|vm| vm.state != drover_api::VmState::Running)
    })
    .await;
    let refusal = refused(&pair).await;
    assert_eq!(refusal.code, ErrorCode::VmNotRunning, "{refusal:?}");
    assert!(refusal.message.contains("it is crashed"), "{refusal:?}");
    let planned = pair.drain_plan().await;
    assert!(planned.contains("it is crashed"), "{planned}");
    assert_eq!(pair.a.state().await, Some(DomainState::Crashed));
    assert_eq!(pair.b.web().await, None);
}

/// The device is a stand-in: a USB device that is not there, which a domain may have all the same where it is optional. No machine of
/// these tests has one to give away, and their kernel no USB at all, so that there is an empty folder for it.
async fn a_domain_with_a_device_of_its_host_is_left_where_it_is(libvirt: PathBuf) {
    let device = "<controller type='usb' model='qemu-xhci'/><hostdev mode='subsystem' type='usb'><source startupPolicy='optional'>\
                  <vendor id='0x1234'/><product id='0xbeef'/></source></hostdev>";
    let xml = guest::idle("web").replace("<memballoon", &format!("{device}<memballoon"));
    let no_usb = |a: &mut pair::Side, _: &mut pair::Side| {
        let empty = "mount -t tmpfs tmpfs /sys/bus && mkdir -p /sys/bus/usb/devices";
        a.host.shell(empty);
    };
    let folder = TempDir::new().unwrap();
    let (pair, ()) = Pair::prepared(&libvirt, folder, &xml, no_usb).await;
    let why = "the usb device 1234:beef of its host: detach it";
    let refusal = refused(&pair).await;
    assert_eq!(refusal.code, ErrorCode::OfLibvirt, "{refusal:?}");
    assert!(refusal.message.contains(why), "{refusal:?}");
    let planned = pair.drain_plan().await;
    assert!(planned.contains(why), "{planned}");
    pair.has_stayed().await;
}

/// Firmware only: under emulation QEMU 7.2 damages a Linux guest that moves, whatever moves it (docs/LAB.md).
async fn a_domain_of_qemu_7_2_moves_there_and_back(libvirt: PathBuf) {
    let Ok(older) = std::env::var("DROVER_QEMU_7_2") else {
        println!("skipped, because DROVER_QEMU_7_2 does not name a QEMU 7.2");
        return;
    };
    let xml = guest::idle("web").replace(guest::QEMU, &older);
    let pair = Pair::new(&libvirt, TempDir::new().unwrap(), &xml).await;
    let id = pair.begun().await;
    pair.has_moved(id, DomainState::Running).await;
    let there = pair.b.host.virsh(&["dumpxml", "web"]);
    assert!(
        there.contains("pc-q35-7.2") && there.contains(&older),
        "{there}"
    );
    pair.comes_back().await;
}

async fn domains_that_all_move_at_once_do_not_keep_each_other_from_it(libvirt: PathBuf) {
    let pair = Pair::idle(&libvirt).await;
    let names: Vec<String> = (1..7).map(|number| format!("web-{number}")).collect();
    for name in &names {
        pair.a.host.define(&guest::idle(name));
        pair.a.host.virsh(&["start", name]);
    }
    let client = &pair.a.agent().client;
    until("the agent knows of all", async || {
        let vms = client.vms().await.unwrap();
        let runs = |name: &String| vms.iter().any(|vm| vm.name == *name && vm.pid.is_some());
        names.iter().all(runs)
    })
    .await;
    let orders = names.iter().map(|name| pair.order(name));
    let begun = futures_util::future::join_all(orders).await;
    let begun: Vec<MigrationId> = begun.into_iter().map(|view| view.unwrap().id).collect();
    for id in begun {
        pair.a.phase_is(id, MigrationPhase::Completed).await;
        pair.b.phase_is(id, MigrationPhase::Running).await;
    }
    for name in &names {
        assert_eq!(domain(&pair.a.libvirt, name).await, None, "{name}");
        let there = domain(&pair.b.libvirt, name).await.unwrap();
        assert_eq!(there.state, DomainState::Running, "{name}");
    }
}

async fn a_domain_that_another_host_has_in_memory_is_not_moved(libvirt: PathBuf) {
    let pair = Pair::idle(&libvirt).await;
    let here = pair.a.web().await.unwrap();
    let id = format!("</name><uuid>{}</uuid>", here.uuid);
    pair.b
        .host
        .create(&guest::idle("other").replace("</name>", &id));
    until("its agent knows of it", async || {
        let vms = pair.b.agent().client.vms().await.unwrap();
        vms.iter().any(|vm| vm.name == "other" && vm.pid.is_some())
    })
    .await;
    let error = pair.migrate("web").await.unwrap_err();
    let refusal = error.refusal().unwrap();
    assert_eq!(refusal.code, ErrorCode::VmElsewhere, "{refusal:?}");
    assert!(
        refusal.message.contains("b has the same domain"),
        "{refusal:?}"
    );
    assert_eq!(pair.a.state().await, Some(DomainState::Running));
    assert_eq!(pair.a.host.qemus().len(), 1);
    assert_eq!(pair.b.host.qemus().len(), 1);
}
