//! A disk of a domain is copied by a real libvirtd, and becomes its copy.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::path::PathBuf;

use common::host::Host;
use common::{connect, domain, guest, until};
use drover_libvirt::{Connection, CopyState, DiskCopy, DiskLook, DomainState, Source, Why};
use drover_types::ByteRate;
use uuid::Uuid;

on_each_libvirt! {
    a_disk_becomes_its_copy_while_its_domain_stands_still_and_the_definition_has_it_too
    a_definition_that_was_edited_meanwhile_stays_as_it_is
    a_copy_that_is_given_up_or_has_no_room_leaves_the_disk_what_it_was
}

const OLD: &str = "/run/images/web.img";
const NEW: &str = "/run/images/web & co.qcow2";

/// A host with a domain that runs, on a raw disk of 32 MiB, and a qcow2 of that size.
async fn begun(libvirt: &std::path::Path) -> (Host, Connection, Uuid) {
    let host = Host::new(libvirt);
    host.shell(&format!(
        "mkdir /run/images && qemu-img create -q {OLD} 32M && qemu-io -f raw -c 'write -P 7 1M 24M' {OLD} && \
         qemu-img create -q -f qcow2 '{NEW}' 32M"
    ));
    let disk = format!(
        "<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='{OLD}'/><target dev='vda' bus='virtio'/></disk>"
    );
    host.define(&guest::idle("web").replace("<memballoon", &(disk + "<memballoon")));
    host.virsh(&["start", "web"]);
    let connection = connect(&host).await;
    let uuid = domain(&connection, "web").await.unwrap().uuid;
    (host, connection, uuid)
}

/// As slow as a test needs it to look at it.
fn slowly() -> DiskCopy {
    DiskCopy {
        target: "vda".to_owned(),
        to: NEW.into(),
        format: "qcow2",
        limit: Some(ByteRate(2 << 20)),
    }
}

async fn look(connection: &Connection, uuid: Uuid) -> DiskLook {
    connection.look_at_disk(uuid, "vda").await.unwrap().unwrap()
}

fn state(look: &DiskLook) -> Option<CopyState> {
    Some(look.now.as_ref()?.copy.as_ref()?.state)
}

async fn is_over(connection: &Connection, uuid: Uuid) -> DiskLook {
    until("the copy is over", async || {
        state(&look(connection, uuid).await).is_none()
    })
    .await;
    look(connection, uuid).await
}

fn file(path: &str) -> Source {
    Source::File(path.into())
}

async fn a_disk_becomes_its_copy_while_its_domain_stands_still_and_the_definition_has_it_too(
    libvirt: PathBuf,
) {
    let (host, connection, uuid) = begun(&libvirt).await;
    let before = look(&connection, uuid).await;
    assert_eq!(before.now.unwrap().source, file(OLD));
    assert_eq!((before.defined, before.copied), (Some(file(OLD)), None));
    connection.begin_copy(uuid, &slowly()).await.unwrap();
    let copies = look(&connection, uuid).await;
    assert_eq!(state(&copies), Some(CopyState::Copies));
    assert_eq!(copies.now.unwrap().copy.unwrap().to, file(NEW));
    assert_eq!(copies.copied.unwrap().1.0, 32 << 20);
    connection.unlimit_copy(uuid, "vda").await.unwrap();
    until("it is the same", async || {
        state(&look(&connection, uuid).await) == Some(CopyState::Same)
    })
    .await;
    connection.suspend(uuid).await.unwrap();
    connection.let_it_be_the_copy(uuid, "vda").await.unwrap();
    let over = is_over(&connection, uuid).await;
    assert_eq!(over.now.unwrap().source, file(NEW));
    assert_eq!(over.defined, Some(file(NEW)));
    let stands = (over.domain.domain.state, over.domain.why);
    assert_eq!(stands, (DomainState::Paused, Why::Asked));

    // What libvirt has on its disk of it.
    host.signal_libvirtd("KILL");
    host.start_libvirtd();
    drop(connection);
    let connection = connect(&host).await;
    let again = look(&connection, uuid).await;
    assert_eq!(again.now.unwrap().source, file(NEW));
    assert_eq!(again.defined, Some(file(NEW)));
    connection.resume(uuid).await.unwrap();
    host.virsh(&["destroy", "web"]);
    host.shell(&format!(
        "qemu-img compare -f raw -F qcow2 {OLD} '{NEW}' && mv {OLD} /run/old"
    ));
    let xml = host.virsh(&["dumpxml", "web"]);
    assert!(xml.contains("type='qcow2'"), "{xml}");
    host.virsh(&["start", "web"]);
}

async fn a_definition_that_was_edited_meanwhile_stays_as_it_is(libvirt: PathBuf) {
    let (host, connection, uuid) = begun(&libvirt).await;
    connection.begin_copy(uuid, &slowly()).await.unwrap();
    host.shell(&format!(
        "virsh dumpxml --inactive web | sed 's|{OLD}|/run/images/other.img|' >/run/other.xml && virsh define /run/other.xml"
    ));
    connection.unlimit_copy(uuid, "vda").await.unwrap();
    until("it is the same", async || {
        state(&look(&connection, uuid).await) == Some(CopyState::Same)
    })
    .await;
    connection.let_it_be_the_copy(uuid, "vda").await.unwrap();
    let over = is_over(&connection, uuid).await;
    assert_eq!(over.now.unwrap().source, file(NEW));
    assert_eq!(over.defined, Some(file("/run/images/other.img")));
}

async fn a_copy_that_is_given_up_or_has_no_room_leaves_the_disk_what_it_was(libvirt: PathBuf) {
    let (host, connection, uuid) = begun(&libvirt).await;
    connection.begin_copy(uuid, &slowly()).await.unwrap();
    connection.give_copy_up(uuid, "vda").await.unwrap();
    let over = is_over(&connection, uuid).await;
    assert_eq!(over.now.unwrap().source, file(OLD));
    assert_eq!(over.domain.domain.state, DomainState::Running);

    host.shell(
        "mkdir /run/small && mount -t tmpfs -o size=4M tmpfs /run/small && qemu-img create -q -f qcow2 /run/small/new 32M",
    );
    let full = DiskCopy {
        to: "/run/small/new".into(),
        limit: None,
        ..slowly()
    };
    connection.begin_copy(uuid, &full).await.unwrap();
    let over = is_over(&connection, uuid).await;
    assert_eq!(over.now.unwrap().source, file(OLD));
    assert_eq!(over.domain.domain.state, DomainState::Running);
}
