//! What is known, and kept, of domains that move when agents begin anew.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../../crates/libvirt/tests/common/mod.rs"]
mod common;
#[path = "qemu_libvirt_moves/pair.rs"]
mod pair;
mod support;

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use common::{guest, until};
use drover_api::{ErrorCode, MigrationPhase};
use drover_libvirt::DomainState;
use drover_types::MigrationId;
use pair::Pair;

on_each_libvirt! {
    the_definition_of_a_domain_that_left_is_kept_where_it_was
    a_domain_moves_on_while_the_sources_agent_looks_at_no_libvirt_and_is_handed_off_when_it_does
    what_has_the_id_of_a_domain_that_did_not_come_is_left_alone
    a_domain_that_moves_again_has_what_an_earlier_migration_did_not_give_back
    no_guest_takes_the_name_of_a_domain_that_comes_though_the_agent_is_started_again
}

async fn the_definition_of_a_domain_that_left_is_kept_where_it_was(libvirt: PathBuf) {
    let pair = Pair::idle(&libvirt).await;
    let before = pair.a.web().await.unwrap();
    let id = pair.begun().await;
    pair.has_moved(id, DomainState::Running).await;
    let kept = pair.a.place.path(&format!("state/departed/{id}.xml"));
    let mode = kept.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600, "it may have passwords");
    // Its host is lost, with all that it had.
    pair.b.host.virsh(&["destroy", "web"]);
    pair.b.host.virsh(&["undefine", "web"]);
    pair.a.host.virsh(&["define", kept.to_str().unwrap()]);
    let again = pair.a.web().await.unwrap();
    assert_eq!(
        (again.uuid, again.state),
        (before.uuid, DomainState::ShutOff)
    );
    pair.a.host.virsh(&["start", "web"]);
}

async fn a_domain_moves_on_while_the_sources_agent_looks_at_no_libvirt_and_is_handed_off_when_it_does(
    libvirt: PathBuf,
) {
    let Some(mut pair) = Pair::busy(&libvirt).await else {
        return;
    };
    let id = pair.begun_slowly().await;
    pair.a.kill_agent();
    pair.a.configure("off");
    pair.a.start_agent_alone().await;
    until("the agent says what is wrong", async || {
        let next = pair.a.migration(id).await.next;
        next.is_some_and(|next| next.contains("libvirt.uri"))
    })
    .await;
    pair.unlimited().await;
    pair.is_whole_there().await;
    until("libvirt has let go of it", async || {
        pair.a.web().await.is_none()
    })
    .await;
    // Whether it left is nothing that the destination decides.
    assert_eq!(pair.b.state().await, Some(DomainState::Paused));
    pair.a.kill_agent();
    pair.a.configure("auto");
    pair.a.start_agent().await;
    pair.has_moved(id, DomainState::Running).await;
}

async fn what_has_the_id_of_a_domain_that_did_not_come_is_left_alone(libvirt: PathBuf) {
    let Some(mut pair) = Pair::busy(&libvirt).await else {
        return;
    };
    let web = pair.a.web().await.unwrap();
    let id = pair.begun_slowly().await;
    pair.b.kill_agent();
    pair.a.agent().client.cancel(id).await.unwrap();
    until("nothing of it is left there", async || {
        pair.b.web().await.is_none() && pair.b.host.qemus().is_empty()
    })
    .await;
    // Somebody gives up the one that stayed, and has it start there, where it stands still as one does that came.
    pair.a.host.virsh(&["destroy", "web"]);
    let with_id = format!("</name><uuid>{}</uuid>", web.uuid);
    let later = guest::idle("web").replace("</name>", &with_id);
    pair.b.host.define(&later);
    pair.b.host.virsh(&["start", "--paused", "web"]);
    let qemus = pair.b.host.qemus();
    pair.b.start_agent().await;
    pair.b.phase_is(id, MigrationPhase::Abandoned).await;
    let there = pair.b.web().await.unwrap();
    assert_eq!((there.state, there.persistent), (DomainState::Paused, true));
    assert_eq!(pair.b.host.qemus(), qemus);
}

async fn a_domain_that_moves_again_has_what_an_earlier_migration_did_not_give_back(
    libvirt: PathBuf,
) {
    let Some(mut pair) = Pair::busy(&libvirt).await else {
        return;
    };
    pair.a.host.virsh(&["autostart", "web"]);
    let id = pair.begun_slowly().await;
    pair.a.agent().client.cancel(id).await.unwrap();
    pair.a.phase_is(id, MigrationPhase::Cancelled).await;
    pair.has_stayed().await;
    pair.a.kill_agent();
    // As where libvirtd was restarted when that was to be given back.
    pair.a.host.virsh(&["autostart", "--disable", "web"]);
    pair.a.owes_settings(id);
    pair.a.host.signal_libvirtd("STOP");
    pair.a.start_agent_alone().await;
    pair.a.host.signal_libvirtd("CONT");
    pair.a.agent_reaches_libvirt().await;
    pair.a.connect_again().await;
    let id = pair.begun().await;
    pair.has_moved(id, DomainState::Running).await;
    assert!(pair.b.web().await.unwrap().autostart);
}

impl pair::Side {
    /// Has the next agent find that what was changed of a domain is still to be as before.
    fn owes_settings(&self, id: MigrationId) {
        let file = self
            .place
            .path(&format!("state/migrations/{id}.source.json"));
        let entry = std::fs::read(&file).unwrap();
        let mut entry: serde_json::Value = serde_json::from_slice(&entry).unwrap();
        entry["domain"]["owes"] = serde_json::json!(["settings"]);
        std::fs::write(&file, serde_json::to_vec(&entry).unwrap()).unwrap();
    }
}

async fn no_guest_takes_the_name_of_a_domain_that_comes_though_the_agent_is_started_again(
    libvirt: PathBuf,
) {
    let Some(mut pair) = Pair::busy(&libvirt).await else {
        return;
    };
    let id = pair.begun_slowly().await;
    pair.b.kill_agent();
    // Which domains are there the next one does not see.
    pair.b.configure("off");
    pair.b.start_agent_alone().await;
    pair.b.place.define("web");
    let web = "web".parse().unwrap();
    let error = pair.b.agent().client.start_vm(&web).await.unwrap_err();
    let refusal = error.refusal().unwrap();
    assert_eq!(refusal.code, ErrorCode::MigrationUnderWay, "{refusal:?}");
    std::fs::remove_file(pair.b.place.path("vms").join("web.toml")).unwrap();
    pair.b.kill_agent();
    pair.b.configure("auto");
    pair.b.start_agent().await;
    pair.unlimited().await;
    pair.has_moved(id, DomainState::Running).await;
}
