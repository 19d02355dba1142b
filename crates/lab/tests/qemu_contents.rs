//! Guests with contents from real data, each small: moved by QEMU and verified by themselves.

#![allow(clippy::unwrap_used, clippy::panic)]

mod guests;
mod support;

use drover_lab::compare::{Method, Patience, Variant, move_by_qemu};
use drover_lab::settings::{Contents, GuestSettings};
use drover_lab::{Lab, require};
use drover_types::Bytes;
use guests::{Removed, boot, name, state};
use support::{build_probe, lacks_something};

/// Moves a guest with such contents; pages that are not those of its working set.
async fn pages_after_a_move(contents: Contents, memory: Bytes, content: Bytes) -> Option<u64> {
    if lacks_something().await {
        return None;
    }
    build_probe();
    let name = name(contents.name());
    let _removed = Removed(name.clone());
    let mut state = state(&name);
    let guest = GuestSettings {
        memory,
        content,
        contents,
        dirty: "2MiB@8MiB".parse().unwrap(),
        touch: 128,
        ..state.guests[0].clone()
    };
    state.guests = vec![guest];
    if let Err(missing) = require::check_contents(&state.guests) {
        println!("skipped, because {missing:#}");
        return None;
    }
    let lab = Lab::create(state).await.unwrap();
    let mut guest = boot(&lab).await;
    let channels = Variant { channels: Some(2) };
    move_by_qemu(&lab, &mut guest, Method::Multifd, channels, Patience::ALL)
        .await
        .unwrap();
    let verified = guest.console.verify().await.unwrap();
    assert_eq!(verified.bad, 0);
    lab.remove().await.unwrap();
    Some(verified.pages - (2 << 20) / 4096)
}

const PAGES_OF_A_MIB: u64 = 256;

/// Between 95 and 100 percent of so much: files are whole.
fn assert_about(pages: Option<u64>, size: Bytes) {
    let Some(pages) = pages else { return };
    let wanted = size.0 / 4096;
    assert!(
        (wanted * 95 / 100..=wanted).contains(&pages),
        "{pages} of {wanted}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_with_a_userland_in_its_page_cache_keeps_every_file() {
    let size = Bytes(64 << 20);
    let pages = pages_after_a_move(Contents::Userland, Bytes(256 << 20), size).await;
    assert_about(pages, size);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_with_compressed_data_keeps_every_file() {
    let size = Bytes(32 << 20);
    let pages = pages_after_a_move(Contents::Compressed, Bytes(256 << 20), size).await;
    assert_about(pages, size);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_guest_keeps_every_file() {
    let memory = Bytes(512 << 20);
    let size = GuestSettings::content_when_idle(memory).unwrap();
    let pages = pages_after_a_move(Contents::Idle, memory, size).await;
    assert_about(pages, size);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_with_a_key_value_store_keeps_every_document() {
    let size = Bytes(24 << 20);
    let pages = pages_after_a_move(Contents::Store, Bytes(256 << 20), size).await;
    assert!(
        pages.is_none_or(|pages| pages > 20 * PAGES_OF_A_MIB),
        "{pages:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_with_a_python_heap_keeps_every_object() {
    let size = Bytes(24 << 20);
    let pages = pages_after_a_move(Contents::Python, Bytes(256 << 20), size).await;
    // What is counted are documents, of which a heap has less than a fourth.
    assert!(
        pages.is_none_or(|pages| pages > 4 * PAGES_OF_A_MIB),
        "{pages:?}"
    );
}
