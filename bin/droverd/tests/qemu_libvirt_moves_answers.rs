//! Domains that the destination has all of, and whose source never hears of that.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../../crates/libvirt/tests/common/mod.rs"]
mod common;
#[path = "qemu_libvirt_moves/pair.rs"]
mod pair;
mod support;

use std::path::{Path, PathBuf};

use common::forward::Forward;
use common::until;
use drover_api::{GuestPlace, MigrationPhase};
use drover_libvirt::{DomainState, uri_of_socket};
use pair::Pair;

on_each_libvirt! {
    a_domain_stays_whose_arrival_its_source_never_hears_of
    a_definition_that_came_is_there_until_the_source_says_that_the_domain_stays
}

/// Where the second host's libvirtd is reached, by its agent and by the source's libvirtd.
const BETWEEN: &str = "/run/between.sock";

/// What libvirtd writes down of a domain that is in memory, and of its migration.
const STATUS: &str = "/run/libvirt/qemu/web.xml";

/// A domain on the first host, and what carries the words of the second one's libvirtd.
async fn with_words_between(libvirt: &Path) -> Option<(Pair, Forward)> {
    Pair::busy_and_prepared(libvirt, |_, b| {
        b.configure(&uri_of_socket(Path::new(BETWEEN)));
        Forward::new(&b.host.path(BETWEEN), &b.host.socket())
    })
    .await
}

async fn a_domain_stays_whose_arrival_its_source_never_hears_of(libvirt: PathBuf) {
    let Some((pair, between)) = with_words_between(&libvirt).await else {
        return;
    };
    pair.a.host.virsh(&["autostart", "web"]);
    let id = pair.begun_slowly().await;
    between.hold_answers();
    pair.unlimited().await;
    pair.is_whole_there().await;
    assert_eq!(pair.a.state().await, Some(DomainState::Paused));
    between.cut();
    between.restore();
    let view = pair.a.phase_is(id, MigrationPhase::Failed).await;
    assert_eq!(view.guest, Some(GuestPlace::Source), "{view:#?}");
    pair.b.phase_is(id, MigrationPhase::Abandoned).await;
    pair.has_stayed().await;
    assert!(pair.a.web().await.unwrap().autostart, "it is as before");
}

async fn a_definition_that_came_is_there_until_the_source_says_that_the_domain_stays(
    libvirt: PathBuf,
) {
    let Some((mut pair, between)) = with_words_between(&libvirt).await else {
        return;
    };
    let id = pair.begun_slowly().await;
    // As it is until libvirtd has waited for QEMU, when it has written the definition already.
    pair.b.host.shell(&format!("cp {STATUS} /run/before.xml"));
    pair.b
        .host
        .shell("grep \"phase='prepare'\" /run/before.xml");
    between.hold_answers();
    pair.unlimited().await;
    pair.is_whole_there().await;
    pair.a.kill_agent();
    pair.b.host.signal_libvirtd("KILL");
    between.cut();
    pair.b.host.shell(&format!("cp /run/before.xml {STATUS}"));
    between.restore();
    pair.b.host.start_libvirtd();
    pair.b.connect_again().await;
    // Nobody says yet whose it is: it may be the last definition.
    until("libvirtd has ended what came", async || {
        pair.b.state().await == Some(DomainState::ShutOff)
    })
    .await;
    assert!(pair.b.web().await.unwrap().persistent);
    pair.a.start_agent().await;
    let view = pair.a.phase_is(id, MigrationPhase::Failed).await;
    assert_eq!(view.guest, Some(GuestPlace::Source), "{view:#?}");
    pair.has_stayed().await;
}
