//! Domains whose memory is reduced on its way, by agents of two hosts.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../../crates/libvirt/tests/common/mod.rs"]
mod common;
#[path = "qemu_libvirt_moves/pair.rs"]
mod pair;
mod support;

use std::path::PathBuf;

use common::{PATIENCE, guest, until};
use drover_api::{MigrateRequest, MigrationPhase, MigrationView};
use drover_lab::Console;
use drover_types::{MigrationId, ReductionMode};
use pair::{Pair, Side, to};

on_each_libvirt! {
    a_domain_is_reduced_by_word_and_by_what_pays_and_finds_all_of_its_memory
    a_domain_that_is_reduced_moves_on_over_the_nic_that_is_left
}

/// So slow that fewer bytes pay, and faster than a domain writes, however little of the processors is left to reduce what that is.
const SLOW: &str = "200mbit";

async fn begun(from: &Side, host: &str, how: &str) -> MigrationId {
    let client = &from.agent().client;
    until("the agent knows that it runs", async || {
        let vms = client.vms().await.unwrap();
        vms.iter().any(|vm| vm.name == "web" && vm.pid.is_some())
    })
    .await;
    let request = MigrateRequest {
        reduction: Some(how.parse().unwrap()),
        ..to(host)
    };
    let asked = client.migrate(&"web".parse().unwrap(), &request).await;
    asked.unwrap().id
}

/// It runs there and finds all of its memory as it left it; what both hosts tell of that.
async fn moved(from: &Side, to: &Side, id: MigrationId) -> [MigrationView; 2] {
    let left = from.phase_is(id, MigrationPhase::Completed).await;
    let arrived = to.phase_is(id, MigrationPhase::Running).await;
    assert_eq!(from.web().await, None);
    until("its agent knows that it left", async || {
        let vms = from.agent().client.vms().await.unwrap();
        vms.iter().all(|vm| vm.name != "web")
    })
    .await;
    let console = Console::default();
    let serial = to.host.path(guest::SERIAL);
    console.attach(&serial, PATIENCE).await.unwrap();
    console.wait_sequence(2, PATIENCE).await.unwrap();
    let verified = console.verify().await.unwrap();
    assert_eq!((verified.pages, verified.bad), ((64 << 20) / 4096, 0));
    [left, arrived]
}

/// Its pages were found in what QEMU sent, and took less than they were.
fn is_reduced(views: &[MigrationView; 2], how: &str) {
    let [left, arrived] = views;
    let reduction = left.reduction.clone().unwrap();
    assert_eq!(reduction.mode, how.parse::<ReductionMode>().unwrap());
    assert!(reduction.opaque.is_empty(), "{reduction:#?}");
    let pages = reduction.pages;
    let (raw, wire) = (reduction.raw_bytes.0, reduction.wire_bytes.0);
    // Most of the guest's memory was never written to.
    assert!(pages.zero > 10_000, "{reduction:#?}");
    // By what pays much passes as it is, where others want the processors here.
    let (dense, ordinary, most) = match how {
        "auto" => (0, 0, 100),
        _ => (1000, 3000, 80),
    };
    assert!(
        pages.dense > dense && pages.ordinary > ordinary,
        "{reduction:#?}"
    );
    assert!(wire * 100 < raw * most, "{reduction:#?}");
    let crossed = left.traffic.sent_bytes.0;
    assert!(wire <= crossed && crossed < raw, "{left:#?}");
    let expanded = arrived.expansion.unwrap();
    assert!(expanded.chunks > 0 && expanded.raw_bytes >= reduction.raw_bytes);
    assert!(arrived.reduction.is_none(), "{arrived:#?}");
    // Nothing is kept of a domain, nor told of what other guests have.
    assert_eq!((&left.shared_pages, &arrived.shared_pages), (&None, &None));
}

async fn a_domain_is_reduced_by_word_and_by_what_pays_and_finds_all_of_its_memory(
    libvirt: PathBuf,
) {
    let Some(pair) = Pair::busy(&libvirt).await else {
        return;
    };
    let (a, b) = (&pair.a, &pair.b);
    let id = begun(a, "b", "zstd:1").await;
    let views = moved(a, b, id).await;
    is_reduced(&views, "zstd:1");
    assert_eq!(views[0].reduction.as_ref().unwrap().decided, None);

    b.limited(Some(SLOW)).await;
    let id = begun(b, "a", "auto").await;
    let views = moved(b, a, id).await;
    is_reduced(&views, "auto");
    let decided = views[0].reduction.as_ref().unwrap().decided.as_ref();
    assert!(decided.unwrap().changes > 0, "{decided:#?}");
}

async fn a_domain_that_is_reduced_moves_on_over_the_nic_that_is_left(libvirt: PathBuf) {
    let Some(pair) = Pair::busy(&libvirt).await else {
        return;
    };
    pair.slow().await;
    let id = begun(&pair.a, "b", "zstd:1").await;
    pair.memory_is_on_its_way(id).await;
    pair.loses("eth1", id).await;
    pair.unlimited().await;
    let views = moved(&pair.a, &pair.b, id).await;
    is_reduced(&views, "zstd:1");
}
