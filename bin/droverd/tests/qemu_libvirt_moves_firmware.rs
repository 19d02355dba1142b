//! Domains with UEFI, whose variables are in a file of each host, and with an emulated TPM, which has its state: both move with them.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../../crates/libvirt/tests/common/mod.rs"]
mod common;
#[path = "qemu_libvirt_moves/pair.rs"]
mod pair;
mod support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use common::{PATIENCE, guest, until};
use drover_api::{ErrorCode, MigrationPhase};
use drover_libvirt::DomainState;
use pair::{Pair, Side};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;

on_each_libvirt! {
    a_domain_moves_with_its_variables_and_its_tpm_and_comes_back_over_what_it_left
    a_move_that_is_cancelled_leaves_variables_and_tpm_as_they_were
    variables_of_a_domain_that_stands_still_are_in_its_file_there_once_it_runs
    a_domain_stays_while_the_destination_lacks_its_firmware_and_swtpm_and_moves_once_they_are_there
}

const ID: &str = "7b4c5c3e-6a56-4f0a-9a53-0d2c8f5c6a01";
const CODE: &str = "/usr/share/OVMF/OVMF_CODE_4M.fd";
const TEMPLATE: &str = "/usr/share/OVMF/OVMF_VARS_4M.fd";
const VARIABLES: &str = "/var/lib/libvirt/qemu/nvram/web_VARS.fd";
const TPMS: &str = "/var/lib/libvirt/swtpm";

/// What the firmware's shell says when it waits for a command.
const PROMPT: &str = "Shell> ";

/// Between two tries to have it answer: it starts some ten seconds after its guest.
const ASKED_AGAIN: Duration = Duration::from_millis(300);

/// An idle domain with both, and with more memory, which UEFI needs.
fn xml() -> String {
    let os = format!(
        "hvm</type><loader readonly='yes' type='pflash'>{CODE}</loader><nvram template='{TEMPLATE}'>{VARIABLES}</nvram>"
    );
    let devices = format!(
        "<serial type='unix'><source mode='bind' path='{}'/></serial><tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm>",
        guest::SERIAL
    );
    guest::idle("web")
        .replace("</name>", &format!("</name><uuid>{ID}</uuid>"))
        .replace("'b'>67108864<", "'b'>134217728<")
        .replace("hvm</type>", &os)
        .replace("<memballoon", &(devices + "<memballoon"))
}

/// Where UEFI and swtpm were unpacked, if they were. If not, says so.
fn firmware(libvirt: &Path) -> Option<PathBuf> {
    let firmware = libvirt.with_file_name("firmware");
    if firmware.join("usr/bin/swtpm").exists() {
        return Some(firmware);
    }
    let there = firmware.display();
    println!("skipped, because there is no swtpm in {there}: scripts/setup --for-tests unpacks it");
    None
}

/// Has a host have them, beside what its libvirt is configured by.
fn provide(side: &Side, firmware: &Path) {
    let firmware = firmware.display();
    side.host.shell(&format!(
        "mkdir /run/kept && mount --bind /etc/libvirt /run/kept && mount -t overlay overlay -o lowerdir={firmware}/etc:/etc /etc && \
         mount --bind /run/kept /etc/libvirt && mount -t overlay overlay -o lowerdir={firmware}/usr:/usr /usr"
    ));
}

/// A TPM with keys of its own, as `swtpm_setup` makes it where libvirt asks for one, but for its certificates.
fn manufacture(side: &Side) {
    let state = format!("{TPMS}/{ID}/tpm2");
    side.host.shell(&format!(
        "mkdir -p {state} && swtpm_setup --tpm2 --tpm-state {state} --createek --overwrite"
    ));
}

/// A domain on the first host, and what it needs on that alone or on both.
async fn pair(libvirt: &Path, on_both: bool) -> Option<Pair> {
    let firmware = firmware(libvirt)?;
    let prepare = |a: &mut Side, b: &mut Side| {
        provide(a, &firmware);
        manufacture(a);
        if on_both {
            provide(b, &firmware);
        }
    };
    let folder = TempDir::new().unwrap();
    Some(Pair::prepared(libvirt, folder, &xml(), prepare).await.0)
}

/// Has the firmware's shell carry out a command, and gives what it says.
async fn shell(side: &Side, command: &str) -> String {
    let serial = side.host.path(guest::SERIAL);
    let mut serial = UnixStream::connect(serial).await.unwrap();
    let asked = async {
        let mut said = String::new();
        while !said.contains(PROMPT) {
            serial.write_all(b"\r").await.unwrap();
            let _ = timeout(ASKED_AGAIN, read(&mut serial, &mut said)).await;
        }
        // What it was asked to say once too often.
        while timeout(ASKED_AGAIN, read(&mut serial, &mut said))
            .await
            .is_ok()
        {}
        said.clear();
        serial
            .write_all(format!("{command}\r").as_bytes())
            .await
            .unwrap();
        read(&mut serial, &mut said).await;
        said
    };
    timeout(PATIENCE, asked).await.unwrap()
}

/// Reads until it waits for a command.
async fn read(serial: &mut UnixStream, said: &mut String) {
    let (mut bytes, begins) = ([0; 4096], said.len());
    while !said[begins..].contains(PROMPT) {
        let count = serial.read(&mut bytes).await.unwrap();
        assert_ne!(count, 0, "{said}");
        said.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
}

/// The guest's own variable, which is kept as the firmware's own are.
fn variable(value: &str) -> String {
    format!("setvar drover -guid 11111111-2222-3333-4444-555555555555{value}")
}

/// Has the guest write it.
async fn mark(side: &Side, value: &str) {
    shell(side, &variable(&format!(" -nv -bs =L\"{value}\""))).await;
    has_mark(side, value).await;
}

/// That the guest reads it.
async fn has_mark(side: &Side, value: &str) {
    let said = shell(side, &variable("")).await;
    let bytes: String = value
        .bytes()
        .map(|byte| format!("{byte:02X} 00 "))
        .collect();
    assert!(said.contains(&bytes), "no {bytes:?} in {said:?}");
}

/// Of the files of the variables and of the TPM.
fn checksums(side: &Side) -> [String; 2] {
    let tpm = format!("{TPMS}/{ID}/tpm2/tpm2-00.permall");
    [VARIABLES, &tpm].map(|file| side.host.shell(&format!("cksum <{file}")))
}

/// What there is of TPMs.
fn tpms(side: &Side) -> String {
    side.host.shell(&format!("ls -A {TPMS}"))
}

async fn a_domain_moves_with_its_variables_and_its_tpm_and_comes_back_over_what_it_left(
    libvirt: PathBuf,
) {
    let Some(pair) = pair(&libvirt, true).await else {
        return;
    };
    mark(&pair.a, "one").await;
    let before = checksums(&pair.a);
    // Of another life of it.
    manufacture(&pair.b);
    let id = pair.begun().await;
    pair.has_moved(id, DomainState::Running).await;
    assert_eq!(checksums(&pair.b), before);
    has_mark(&pair.b, "one").await;
    // The TPM is nowhere twice; the variables stay behind.
    assert_eq!(tpms(&pair.a), "");
    assert_eq!(pair.a.host.shell(&format!("cksum <{VARIABLES}")), before[0]);

    mark(&pair.b, "two").await;
    let before = checksums(&pair.b);
    pair.comes_back().await;
    assert_eq!(checksums(&pair.a), before);
    has_mark(&pair.a, "two").await;
    assert_eq!(tpms(&pair.b), "");
}

async fn a_move_that_is_cancelled_leaves_variables_and_tpm_as_they_were(libvirt: PathBuf) {
    let Some(pair) = pair(&libvirt, true).await else {
        return;
    };
    mark(&pair.a, "one").await;
    let before = checksums(&pair.a);
    pair.a.limited(Some("20mbit")).await;
    let id = pair.begun().await;
    pair.memory_is_on_its_way(id).await;
    pair.a.agent().client.cancel(id).await.unwrap();
    pair.a.phase_is(id, MigrationPhase::Cancelled).await;
    pair.has_stayed().await;
    assert_eq!(checksums(&pair.a), before);
    has_mark(&pair.a, "one").await;
    assert_eq!(tpms(&pair.b), "");

    // What libvirt made of the template there is written over.
    let made = pair.b.host.shell(&format!("cmp {VARIABLES} {TEMPLATE}"));
    assert_eq!(made, "");
    mark(&pair.a, "two").await;
    pair.unlimited().await;
    let id = pair.begun().await;
    pair.has_moved(id, DomainState::Running).await;
    has_mark(&pair.b, "two").await;
}

async fn variables_of_a_domain_that_stands_still_are_in_its_file_there_once_it_runs(
    libvirt: PathBuf,
) {
    let Some(pair) = pair(&libvirt, true).await else {
        return;
    };
    mark(&pair.a, "one").await;
    pair.a.host.virsh(&["suspend", "web"]);
    let [variables, tpm] = checksums(&pair.a);
    let id = pair.begun().await;
    pair.has_moved(id, DomainState::Paused).await;
    let notes = pair.a.migration(id).await.notes.join("\n");
    let words = format!("are written to {VARIABLES} there only once it runs");
    assert!(notes.contains(&words), "{notes}");
    let there = checksums(&pair.b);
    assert_eq!(there[1], tpm);
    assert_ne!(there[0], variables);
    pair.b.host.virsh(&["resume", "web"]);
    until("its variables are written", async || {
        checksums(&pair.b)[0] == variables
    })
    .await;
}

async fn a_domain_stays_while_the_destination_lacks_its_firmware_and_swtpm_and_moves_once_they_are_there(
    libvirt: PathBuf,
) {
    let Some(pair) = pair(&libvirt, false).await else {
        return;
    };
    let refused = pair.migrate("web").await.unwrap_err();
    let refused = refused.refusal().unwrap();
    assert_eq!(refused.code, ErrorCode::HostLacks, "{refused:?}");
    let planned = pair.drain_plan().await;
    let swtpm = "an emulated TPM (tpm-crb, 2.0) of /usr/bin/qemu-system-x86_64 (qemu) is missing: libvirt finds no swtpm";
    for lacking in [CODE, TEMPLATE, swtpm] {
        assert!(refused.message.contains(lacking), "{refused:?}");
    }
    assert!(planned.contains("finds no swtpm"), "{planned}");
    pair.has_stayed().await;
    assert_eq!(pair.b.host.shell("ls /var/lib/libvirt/qemu/nvram"), "");

    provide(&pair.b, &firmware(&libvirt).unwrap());
    let id = pair.begun().await;
    pair.has_moved(id, DomainState::Running).await;
}
