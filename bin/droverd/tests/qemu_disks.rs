//! Guests of the agent's own whose disks are in files of one host alone: they move with a copy of them, where that is asked for.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests"
)]

mod hosts;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Command;

use drover_api::{ErrorCode, EventKind, MigrateRequest, MigrationPhase, MigrationView};
use drover_hypervisor::Qmp;
use drover_lab::command::run;
use drover_lab::{monitor_socket, network};
use drover_types::MigrationId;
use hosts::{
    A, B, FAST, Hosts, PATIENCE, SLOWER, kill, name, qemu, qemu_7_2, refused, set, small_guest,
    until,
};
use serde_json::json;

/// Runs a test, an `async fn(PathBuf)`, on each QEMU as a test of its own.
macro_rules! on_each_qemu {
    ($($name:ident)*) => {$(
        mod $name {
            #[tokio::test(flavor = "multi_thread")]
            async fn on_the_installed_qemu() {
                if let Some(qemu) = super::qemu().await {
                    super::$name(qemu).await;
                }
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn on_qemu_7_2() {
                if let Some(qemu) = super::qemu_7_2() {
                    super::$name(qemu).await;
                }
            }
        }
    )*};
}

on_each_qemu! {
    a_guest_moves_with_its_disks_where_that_is_asked_for_and_comes_back_over_what_it_left
    a_guest_never_goes_on_with_disks_that_it_left_behind
    a_copy_that_is_cancelled_leaves_the_guest_running_and_is_begun_again_as_often_as_is_wanted
    copies_go_on_when_an_agent_is_killed_and_back_in_time
    copies_to_a_qemu_that_hangs_are_cut_off_when_they_are_cancelled_and_the_guest_runs_on
}

/// Where they are, on each host for itself.
const FOLDER: &str = "images";

/// The guest's disks: their names and formats.
const DISKS: [(&str, &str); 2] = [("web", "qcow2"), ("data", "raw")];

/// What each of them holds, and what of that was written to before.
const SIZE: &str = "64M";
const WRITTEN: &str = "read -P 7 1M 40M";

/// Two hosts with agents, and a guest on the first whose disks have something in them.
async fn with_disks(test: &str, rates: &str, qemu: PathBuf) -> Hosts {
    let allowed = qemu.to_str().unwrap().to_owned();
    let mut hosts = Hosts::with_guests_like(test, rates, small_guest(qemu, 7)).await;
    for host in [A, B] {
        hosts.configure(host, |config| set(config, "qemu", "binaries", [&allowed]));
        hosts.start_agent(host).await;
    }
    for host in [A, B] {
        fs::create_dir(file(&hosts, host, "")).unwrap();
    }
    let mut definition = hosts.definition().await;
    for (disk, format) in DISKS {
        let made = file(&hosts, A, disk);
        let made = made.to_str().unwrap();
        run("qemu-img", &["create", "-q", "-f", format, made, SIZE])
            .await
            .unwrap();
        let fill = WRITTEN.replace("read", "write");
        run("qemu-io", &["-f", format, "-c", &fill, made])
            .await
            .unwrap();
        fs::set_permissions(made, fs::Permissions::from_mode(0o640)).unwrap();
        let seen = hosts.lab().here().join(FOLDER).join(disk);
        let seen = seen.display();
        let drive = format!("if=virtio,id={disk},format={format},file={seen}");
        definition.args.extend(["-drive".to_owned(), drive]);
    }
    match qemu_7_2() == Some(definition.qemu.clone()) {
        false => hosts.boot_from(definition).await,
        true => {
            // It damages a working guest that is emulated while it moves (docs/LAB.md): this one has nothing to boot.
            let words = ["-kernel", "-initrd", "-append"];
            while let Some(at) = definition
                .args
                .iter()
                .position(|arg| words.contains(&arg.as_str()))
            {
                definition.args.drain(at..at + 2);
            }
            hosts.define(A, &definition);
            hosts.client(A).start_vm(&name()).await.unwrap();
        }
    }
    hosts
}

/// It runs there, and nowhere else; one that boots has its memory whole.
async fn runs_only_on(hosts: &Hosts, host: usize) {
    hosts.guest_is_only_on(host).await;
    if hosts.guest.is_some() {
        hosts.guest_is_whole().await;
    }
}

/// Where a host has a disk.
fn file(hosts: &Hosts, host: usize, disk: &str) -> PathBuf {
    hosts.host(host).socket(FOLDER).join(disk)
}

/// All that a host has where it has disks.
fn files(hosts: &Hosts, host: usize) -> Vec<String> {
    let names = fs::read_dir(file(hosts, host, "")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

fn request(hosts: &Hosts, from: usize) -> MigrateRequest {
    MigrateRequest {
        with_disks: true,
        ..hosts.request(from, None)
    }
}

async fn begun(hosts: &mut Hosts, from: usize) -> MigrationId {
    hosts.listen_on(1 - from);
    let request = request(hosts, from);
    hosts
        .client(from)
        .migrate(&name(), &request)
        .await
        .unwrap()
        .id
}

async fn moved(hosts: &mut Hosts, from: usize) -> MigrationView {
    let id = begun(hosts, from).await;
    let view = hosts.ended(from, id).await;
    assert_eq!(view.phase, MigrationPhase::Completed, "{view:#?}");
    runs_only_on(hosts, 1 - from).await;
    view
}

/// Begins to move it, and waits until its disks are on their way, for which they take seconds then.
async fn begun_midway(hosts: &mut Hosts, from: usize) -> MigrationId {
    let id = begun(hosts, from).await;
    copied(hosts, from, id, 4 << 20).await;
    assert_eq!(files(hosts, 1 - from), ["data", "web"]);
    id
}

/// Waits until so much of its disks is there.
async fn copied(hosts: &Hosts, from: usize, id: MigrationId, bytes: u64) {
    let client = hosts.client(from);
    until(PATIENCE, async || {
        let view = client.migration(id).await.unwrap();
        assert!(!view.phase.has_ended(), "{view:#?}");
        match view.disks {
            Some(disks) if disks.copied.0 > bytes => Ok(()),
            _ => Err(format!("{view:#?}")),
        }
    })
    .await;
}

/// What a guest sees of its disks is the same on both hosts.
fn are_the_same(hosts: &Hosts) {
    for (disk, format) in DISKS {
        let [a, b] = [A, B].map(|host| file(hosts, host, disk));
        let compared = Command::new("qemu-img")
            .args(["compare", "-U", "-f", format, "-F", format])
            .args([a, b])
            .output()
            .unwrap();
        assert!(compared.status.success(), "{disk}: {compared:?}");
    }
}

/// Has the guest's QEMU write to all disks as the guest itself would.
async fn write(hosts: &Hosts, host: usize, what: &str) {
    let socket = hosts.host(host).socket(&monitor_socket(&name()));
    let qmp = Qmp::connect(&socket, false, PATIENCE).await.unwrap();
    for (disk, _) in DISKS {
        for what in [what, "flush"] {
            let line = json!({"command-line": format!("qemu-io {disk} \"{what}\"")});
            let told = qmp.execute("human-monitor-command", line).await.unwrap();
            let told = told.as_str().unwrap();
            assert!(!told.contains("rror"), "{told}");
        }
    }
}

/// That is in all disks of a host.
fn hold(hosts: &Hosts, host: usize, what: &str) {
    for (disk, format) in DISKS {
        let read = Command::new("qemu-io")
            .args(["-r", "-U", "-f", format, "-c", what])
            .arg(file(hosts, host, disk))
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&read.stdout).into_owned();
        let whole = read.status.success() && !told.contains("failed");
        assert!(whole, "{disk}: {told} {read:?}");
    }
}

/// The guest runs on where it was, with its own disks, and nothing was left on the other host.
async fn has_stayed(hosts: &Hosts) {
    runs_only_on(hosts, A).await;
    until(PATIENCE, async || match files(hosts, B) {
        left if left.is_empty() => Ok(()),
        left => Err(format!("{left:?}")),
    })
    .await;
    assert_eq!(files(hosts, A), ["data", "web"]);
    write(hosts, A, "write -P 5 50M 1M").await;
    hold(hosts, A, "read -P 5 50M 1M");
    hold(hosts, A, WRITTEN);
}

async fn a_guest_moves_with_its_disks_where_that_is_asked_for_and_comes_back_over_what_it_left(
    qemu: PathBuf,
) {
    let mut hosts = with_disks("disks", FAST, qemu).await;
    let view = moved(&mut hosts, A).await;
    are_the_same(&hosts);
    hold(&hosts, B, WRITTEN);
    for (disk, _) in DISKS {
        let [a, b] = [A, B].map(|host| fs::metadata(file(&hosts, host, disk)).unwrap());
        assert_eq!((a.mode(), a.uid(), a.gid()), (b.mode(), b.uid(), b.gid()));
    }
    let disks = view.disks.unwrap();
    assert!(
        disks.copied.0 >= 80 << 20 && disks.copied == disks.total,
        "{view:#?}"
    );
    let left = view.next.clone().unwrap();
    for (disk, _) in DISKS {
        let path = hosts.lab().here().join(FOLDER).join(disk);
        assert!(left.contains(path.to_str().unwrap()), "{left}");
    }

    // What it left is replaced when it comes back, with what it wrote since.
    write(&hosts, B, "write -P 9 2M 3M").await;
    let back = moved(&mut hosts, B).await;
    let arrived = hosts.ended(A, back.id).await;
    let replaced = |note: &String| note.contains("is replaced");
    assert!(arrived.notes.iter().any(replaced), "{:?}", arrived.notes);
    are_the_same(&hosts);
    hold(&hosts, A, "read -P 9 2M 3M");
    assert_eq!(files(&hosts, A), ["data", "web"]);
}

async fn a_guest_never_goes_on_with_disks_that_it_left_behind(qemu: PathBuf) {
    let mut hosts = with_disks("diskstale", FAST, qemu).await;
    let left = moved(&mut hosts, A).await.id;
    write(&hosts, B, "write -P 9 2M 3M").await;
    // Twice: the QEMU that waited there has left them as they were.
    for _ in 0..2 {
        let plain = hosts.request(B, None);
        let (code, why) = refused(hosts.client(B).migrate(&name(), &plain).await);
        assert_eq!(code, ErrorCode::HostLacks, "{why}");
        for (disk, _) in DISKS {
            let path = hosts.lab().here().join(FOLDER).join(disk);
            assert!(why.contains(path.to_str().unwrap()), "{why}");
        }
        assert!(why.contains(&left.to_string()), "{why}");
        assert!(why.contains("with `--with-disks`"), "{why}");
        runs_only_on(&hosts, B).await;
        write(&hosts, B, "write -P 4 6M 1M").await;
    }
    moved(&mut hosts, B).await;
    are_the_same(&hosts);
    hold(&hosts, A, "read -P 9 2M 3M");
    hold(&hosts, A, "read -P 4 6M 1M");
}

async fn a_copy_that_is_cancelled_leaves_the_guest_running_and_is_begun_again_as_often_as_is_wanted(
    qemu: PathBuf,
) {
    let mut hosts = with_disks("diskcancel", SLOWER, qemu).await;
    for _ in 0..2 {
        let id = begun_midway(&mut hosts, A).await;
        hosts.client(A).cancel(id).await.unwrap();
        let view = hosts.ended(A, id).await;
        assert_eq!(view.phase, MigrationPhase::Cancelled, "{view:#?}");
        has_stayed(&hosts).await;
    }
    // What is written while they are copied comes along.
    let id = begun_midway(&mut hosts, A).await;
    for at in 0..20 {
        write(&hosts, A, &format!("write -P 8 {}M 512k", 2 * at)).await;
    }
    let view = hosts.ended(A, id).await;
    assert_eq!(view.phase, MigrationPhase::Completed, "{view:#?}");
    runs_only_on(&hosts, B).await;
    are_the_same(&hosts);
    hold(&hosts, B, "read -P 8 38M 512k");
}

/// Runs a command where the second host's agent sees files.
async fn inside(hosts: &Hosts, line: &str) -> String {
    let all = network::processes(hosts.host(B).namespace()).await;
    let pid = all[0].as_raw_nonzero().to_string();
    let shell = ["--target", &pid, "--mount", "sh", "-c", line];
    run("nsenter", &shell).await.unwrap()
}

/// With the installed QEMU.
async fn on_one(test: &str, rates: &str) -> Option<Hosts> {
    Some(with_disks(test, rates, qemu().await?).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_there_already_keeps_a_guest_away_and_stays_as_it_is() {
    let Some(mut hosts) = on_one("diskthere", FAST).await else {
        return;
    };
    let data = file(&hosts, B, "data");
    fs::write(&data, "precious").unwrap();
    let request = request(&hosts, A);
    let refused_now = hosts.client(A).migrate(&name(), &request).await;
    let (code, message) = refused(refused_now);
    assert_eq!(code, ErrorCode::HostLacks, "{message}");
    assert!(message.contains("is there already (8 B"), "{message}");
    assert_eq!(fs::read(&data).unwrap(), b"precious");
    assert_eq!(files(&hosts, B), ["data"]);
    fs::remove_file(&data).unwrap();
    has_stayed(&hosts).await;

    // Nor is it moved where what is asked for beside cannot be had.
    let postcopy = MigrateRequest {
        reduction: Some("zstd:1".parse().unwrap()),
        ..request
    };
    let (code, message) = refused(hosts.client(A).migrate(&name(), &postcopy).await);
    assert_eq!(code, ErrorCode::BadRequest, "{message}");
    moved(&mut hosts, A).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_made_for_disks_goes_when_the_destinations_agent_is_killed_and_the_guest_stays() {
    let Some(mut hosts) = on_one("diskagent", SLOWER).await else {
        return;
    };
    let id = begun_midway(&mut hosts, A).await;
    hosts.kill_agent(B).await;
    hosts.client(A).cancel(id).await.unwrap();
    let view = hosts.ended(A, id).await;
    assert_eq!(view.phase, MigrationPhase::Cancelled, "{view:#?}");
    assert_eq!(files(&hosts, B), ["data", "web"]);
    hosts.start_agent(B).await;
    has_stayed(&hosts).await;
    let told = hosts.client(B).events(id).await.unwrap();
    let removed = |kind: &EventKind| kind.to_string().contains("was removed");
    assert!(told.iter().any(|event| removed(&event.kind)), "{told:#?}");
}

async fn copies_go_on_when_an_agent_is_killed_and_back_in_time(qemu: PathBuf) {
    let mut hosts = with_disks("diskback", SLOWER, qemu).await;
    for (from, agent) in [(A, A), (B, A)] {
        let id = begun_midway(&mut hosts, from).await;
        hosts.kill_agent(agent).await;
        hosts.start_agent(agent).await;
        let view = hosts.ended(from, id).await;
        assert_eq!(view.phase, MigrationPhase::Completed, "{view:#?}");
        runs_only_on(&hosts, 1 - from).await;
        are_the_same(&hosts);
    }
}

async fn copies_to_a_qemu_that_hangs_are_cut_off_when_they_are_cancelled_and_the_guest_runs_on(
    qemu: PathBuf,
) {
    let mut hosts = with_disks("diskhang", SLOWER, qemu).await;
    let id = begun_midway(&mut hosts, A).await;
    let hung = hosts.qemus(B).await[0].to_string();
    run("kill", &["-STOP", &hung]).await.unwrap();
    hosts.client(A).cancel(id).await.unwrap();
    let view = hosts.ended(A, id).await;
    assert_eq!(view.phase, MigrationPhase::Cancelled, "{view:#?}");
    has_stayed(&hosts).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_qemu_of_the_destination_that_is_killed_midway_costs_only_the_migration() {
    let Some(mut hosts) = on_one("diskqemu", SLOWER).await else {
        return;
    };
    let id = begun_midway(&mut hosts, A).await;
    kill(hosts.qemus(B).await[0]);
    let view = hosts.ended(A, id).await;
    assert_eq!(view.phase, MigrationPhase::Failed, "{view:#?}");
    has_stayed(&hosts).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_wrote_to_since_the_guest_did_not_come_is_left_when_the_rest_goes() {
    let Some(mut hosts) = on_one("diskwritten", SLOWER).await else {
        return;
    };
    let id = begun_midway(&mut hosts, A).await;
    hosts.kill_agent(A).await;
    kill(hosts.qemus(B).await[0]);
    let view = hosts.ended(B, id).await;
    let next = view.next.unwrap();
    assert!(next.contains("made for its disks may be left"), "{next}");
    assert_eq!(files(&hosts, B), ["data", "web"], "A has not said so");
    fs::write(file(&hosts, B, "data"), "somebody's").unwrap();
    // Nor is anything taken for what nobody knows of any more.
    hosts.kill_agent(B).await;
    hosts.start_agent(B).await;
    assert_eq!(files(&hosts, B), ["data", "web"]);
    hosts.start_agent(A).await;
    let view = hosts.ended(A, id).await;
    assert_eq!(view.phase, MigrationPhase::Failed, "{view:#?}");
    until(PATIENCE, async || match files(&hosts, B) {
        left if left == ["data"] => Ok(()),
        left => Err(format!("{left:?}")),
    })
    .await;
    let told = hosts.client(B).events(id).await.unwrap();
    let left = |kind: &EventKind| kind.to_string().contains("somebody has written since");
    assert!(told.iter().any(|event| left(&event.kind)), "{told:#?}");
    assert_eq!(hosts.client(B).migration(id).await.unwrap().next, None);
    assert_eq!(fs::read(file(&hosts, B, "data")).unwrap(), b"somebody's");
    fs::remove_file(file(&hosts, B, "data")).unwrap();
    has_stayed(&hosts).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_qemu_of_the_source_that_is_killed_midway_leaves_its_disks_and_none_on_the_destination() {
    let Some(mut hosts) = on_one("diskgone", SLOWER).await else {
        return;
    };
    let id = begun_midway(&mut hosts, A).await;
    kill(hosts.qemus(A).await[0]);
    let view = hosts.ended(A, id).await;
    assert_eq!(view.phase, MigrationPhase::Failed, "{view:#?}");
    until(PATIENCE, async || match files(&hosts, B) {
        left if left.is_empty() => Ok(()),
        left => Err(format!("{left:?}")),
    })
    .await;
    hold(&hosts, A, WRITTEN);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nic_that_is_lost_while_disks_are_copied_costs_nothing() {
    let Some(mut hosts) = on_one("disknic", SLOWER).await else {
        return;
    };
    let id = begun_midway(&mut hosts, A).await;
    hosts.set_nic(B, 1, "down").await;
    copied(&hosts, A, id, 60 << 20).await;
    // One alone does not keep up with the guest's memory.
    hosts.set_nic(B, 1, "up").await;
    let view = hosts.ended(A, id).await;
    assert_eq!(view.phase, MigrationPhase::Completed, "{view:#?}");
    runs_only_on(&hosts, B).await;
    are_the_same(&hosts);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_whose_disks_are_copied_stays_when_all_nics_are_lost() {
    let Some(mut hosts) = on_one("disknics", SLOWER).await else {
        return;
    };
    let id = begun_midway(&mut hosts, A).await;
    for nic in [0, 1] {
        hosts.set_nic(B, nic, "down").await;
    }
    let view = hosts.ended(A, id).await;
    assert_eq!(view.phase, MigrationPhase::Failed, "{view:#?}");
    for nic in [0, 1] {
        hosts.set_nic(B, nic, "up").await;
    }
    has_stayed(&hosts).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_whose_file_system_fills_up_keeps_nothing_and_the_guest_runs_on() {
    let Some(mut hosts) = on_one("diskfull", SLOWER).await else {
        return;
    };
    let folder = hosts.lab().here().join(FOLDER).display().to_string();
    let mount = format!("mount -t tmpfs -o size=150M tmpfs {folder}");
    inside(&hosts, &mount).await;
    // The files are made once the destination has agreed.
    let id = begun(&mut hosts, A).await;
    inside(
        &hosts,
        &format!("dd if=/dev/zero of={folder}/other bs=1M 2>/dev/null || true"),
    )
    .await;
    let view = hosts.ended(A, id).await;
    assert_eq!(view.phase, MigrationPhase::Failed, "{:?}", view.phase);
    until(PATIENCE, async || {
        match inside(&hosts, &format!("ls {folder}")).await {
            left if left.trim() == "other" => Ok(()),
            left => Err(left),
        }
    })
    .await;
    has_stayed(&hosts).await;
}
