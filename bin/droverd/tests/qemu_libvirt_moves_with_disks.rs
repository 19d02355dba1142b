//! Domains whose disks are in files of one host alone: they move with a copy of them, where that is asked for.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../../crates/libvirt/tests/common/mod.rs"]
mod common;
#[path = "qemu_libvirt_moves_with_disks/faults.rs"]
mod faults;
#[path = "qemu_libvirt_moves/pair.rs"]
mod pair;
mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{guest, until};
use drover_api::{
    ClientError, ErrorCode, MigrateRequest, MigrationPhase, MigrationView, MoveState, PlanRequest,
    RunRequest, RunResult, RunView,
};
use drover_libvirt::DomainState;
use drover_plan::{Plan, Request, text};
use drover_types::{MigrationId, ReductionMode};
use pair::{Pair, Side, to};
use serde_json::Value;
use tempfile::TempDir;

on_each_libvirt! {
    a_domain_moves_with_its_disks_where_that_is_asked_for_and_comes_back_over_what_it_left
    a_host_is_emptied_with_local_disks_by_word_and_all_come_home_over_what_they_left
    domains_find_room_for_their_disks_together_or_stay_before_anything_starts
    a_file_that_is_there_already_keeps_a_domain_away_and_stays_as_it_is
    bitmaps_of_what_was_written_move_with_a_disk_and_one_that_records_no_more_keeps_it
    a_domain_with_a_checkpoint_or_that_is_backed_up_stays_and_moves_once_it_has_none
    what_was_made_for_disks_goes_when_the_agent_is_killed_and_the_domain_stays
    a_copy_that_is_cancelled_leaves_the_domain_running_and_is_begun_again_as_often_as_is_wanted
}

/// On a file system that each host has for itself.
const FOLDER: &str = "/run/images";

/// The domain's disks: names for the guest, files and formats. A guest that works has its first for itself.
const DISKS: [(&str, &str, &str); 2] = [
    ("vdb", "/run/images/web.qcow2", "qcow2"),
    ("vdc", "/run/images/web.img", "raw"),
];

/// What each of them holds.
const SIZE: &str = "32M";

/// In libvirt's XML.
fn devices() -> String {
    let disks = DISKS.map(|(target, file, format)| {
        format!(
            "<disk type='file' device='disk'><driver name='qemu' type='{format}' discard='unmap'/><source file='{file}'/>\
             <target dev='{target}' bus='virtio'/></disk>"
        )
    });
    disks.concat()
}

/// Something is in the disks on the first host, and a folder for them on the second.
fn prepare(a: &mut Side, b: &mut Side) {
    for side in [&*a, &*b] {
        side.host.shell(&format!("mkdir {FOLDER}"));
    }
    for (_, file, format) in DISKS {
        a.host.shell(&format!(
            "qemu-img create -q -f {format} {file} {SIZE} && qemu-io -f {format} -c 'write -P 7 1M 24M' {file} && chmod 640 {file}"
        ));
    }
}

/// A domain on the first host whose disks have something in them, and an empty folder on the second.
async fn pair(libvirt: &Path) -> Pair {
    let xml = guest::idle("web").replace("<memballoon", &(devices() + "<memballoon"));
    let folder = TempDir::new().unwrap();
    Pair::prepared(libvirt, folder, &xml, prepare).await.0
}

fn with_disks(host: &str) -> MigrateRequest {
    MigrateRequest {
        with_disks: true,
        reduction: Some(ReductionMode::Zstd(1)),
        ..to(host)
    }
}

async fn moves(from: &Side, host: &str) -> Result<MigrationView, ClientError> {
    until("the agent knows of it", async || {
        let vms = from.agent().client.vms().await.unwrap();
        vms.iter().any(|vm| vm.name == "web" && vm.pid.is_some())
    })
    .await;
    let web = "web".parse().unwrap();
    from.agent().client.migrate(&web, &with_disks(host)).await
}

async fn begun(pair: &Pair) -> MigrationId {
    match moves(&pair.a, "b").await {
        Ok(view) => view.id,
        Err(error) => panic!("{error:?}\n{}", pair.logs()),
    }
}

/// What a guest sees of its disks is the same on both hosts.
fn are_the_same(pair: &Pair) {
    for (_, file, format) in DISKS {
        let [a, b] = [&pair.a, &pair.b].map(|side| side.host.path(file));
        let compared = Command::new("qemu-img")
            .args(["compare", "-U", "-f", format, "-F", format])
            .args([a, b])
            .output()
            .unwrap();
        assert!(compared.status.success(), "{compared:?}");
    }
}

fn files(side: &Side) -> String {
    side.host.shell(&format!("ls -A {FOLDER}"))
}

/// Writes to all disks as the guest itself would, through its QEMU: by its device, since nobody else may write to what that has.
fn write(side: &Side, pattern: u8) {
    let hmp = |command: &str| {
        side.host
            .virsh(&["qemu-monitor-command", "web", "--hmp", command])
    };
    let blocks = hmp("info block");
    for (_, file, _) in DISKS {
        let mut block = blocks.lines().skip_while(|line| !line.contains(file));
        let device = block
            .find_map(|line| line.trim().strip_prefix("Attached to:"))
            .unwrap()
            .trim();
        for command in [&format!("write -P {pattern} 2M 3M"), "flush"] {
            // What became of it QEMU tells on its standard output, and here only why it was not tried.
            let refused = hmp(&format!("qemu-io -d {device} \"{command}\""));
            assert_eq!(refused.trim(), "", "{blocks}");
        }
    }
    hold(side, pattern);
}

/// That was written to all disks there.
fn hold(side: &Side, pattern: u8) {
    for (_, file, format) in DISKS {
        let read = format!("qemu-io -r -U -f {format} -c 'read -P {pattern} 2M 3M' {file}");
        let read = side.host.shell(&read);
        let is_whole = read.contains("read 3145728/3145728 bytes");
        assert!(is_whole && !read.contains("failed"), "{file}: {read}");
    }
}

async fn a_domain_moves_with_its_disks_where_that_is_asked_for_and_comes_back_over_what_it_left(
    libvirt: PathBuf,
) {
    let pair = pair(&libvirt).await;
    // Nobody asked for it.
    let refused = pair.migrate("web").await.unwrap_err();
    let refused = refused.refusal().unwrap().message.clone();
    assert!(refused.contains("--with-disks"), "{refused}");
    let planned = pair.drain_plan().await;
    assert!(planned.contains("--with-disks"), "{planned}");
    assert_eq!(files(&pair.b), "");

    let id = begun(&pair).await;
    pair.has_moved(id, DomainState::Running).await;
    are_the_same(&pair);
    for (_, file, _) in DISKS {
        let mode = pair.b.host.shell(&format!("stat -c %a {file}"));
        assert_eq!(mode, "640\n", "{file}");
    }
    // Of the raw one's 32 MiB 24 were written to. The rest is a hole there, too, where libvirt looks for zeroes and the disk is to give
    // room back.
    let (_, raw, _) = DISKS[1];
    let taken = pair.b.host.shell(&format!("du -m {raw} | cut -f1"));
    let is_sparse = taken.trim().parse::<u32>().unwrap() <= 25;
    assert_eq!(is_sparse, libvirt.ends_with("libvirt-11.3"), "{taken}");
    let view = pair.a.migration(id).await;
    let left = view.next.unwrap();
    for (_, file, _) in DISKS {
        assert!(left.contains(file), "{left}");
    }
    // Of its memory, which is little, and not of its disks.
    let reduction = view.reduction.unwrap();
    assert!(reduction.opaque.is_empty(), "{reduction:#?}");
    let (raw, wire) = (reduction.raw_bytes.0, reduction.wire_bytes.0);
    assert!(0 < wire && wire < raw && raw < 16 << 20, "{reduction:#?}");
    assert!(view.traffic.sent_bytes.0 > 48 << 20, "{:#?}", view.traffic);

    // What it left is replaced when it comes back, with what it wrote since.
    write(&pair.b, 9);
    let back = moves(&pair.b, "a").await;
    let back = back.unwrap_or_else(|error| panic!("{error:?}\n{}", pair.logs()));
    pair.b.phase_is(back.id, MigrationPhase::Completed).await;
    let arrived = pair.a.phase_is(back.id, MigrationPhase::Running).await;
    assert!(
        arrived
            .notes
            .iter()
            .any(|note| note.contains("is replaced")),
        "{:?}",
        arrived.notes
    );
    are_the_same(&pair);
    hold(&pair.a, 9);
    assert_eq!(files(&pair.a), "web.img\nweb.qcow2\n");
}

fn drain(with_disks: bool) -> Request {
    Request::Drain {
        hosts: ["a".parse().unwrap()].into(),
        avoid: [].into(),
        with_disks,
    }
}

fn fail_back(with_disks: bool) -> RunRequest {
    RunRequest {
        fail_back: true,
        ..RunRequest::of(Request::Resume {
            host: "a".parse().unwrap(),
            homes: Vec::new(),
            avoid: [].into(),
            with_disks,
        })
    }
}

/// The run at its end.
async fn run(pair: &Pair, request: RunRequest) -> RunView {
    let client = &pair.a.agent().client;
    let begun = client.start_run(&request).await;
    let id = begun
        .unwrap_or_else(|error| panic!("{error:?}\n{}", pair.logs()))
        .id;
    until("the run has ended", async || {
        let view = client.run(id).await;
        view.is_ok_and(|view| view.phase.has_ended())
    })
    .await;
    client.run(id).await.unwrap()
}

/// The agent of the first host knows that these run there.
async fn knows(pair: &Pair, names: &[&str]) {
    until("the agent knows the domains", async || {
        let vms = pair.a.agent().client.vms().await.unwrap();
        let runs = |name: &&str| vms.iter().any(|vm| vm.name == *name && vm.pid.is_some());
        names.iter().all(runs)
    })
    .await;
}

async fn planned(pair: &Pair, with_disks: bool) -> Plan {
    let request = PlanRequest {
        request: drain(with_disks),
    };
    let planned = pair.a.agent().client.plan(&request).await;
    planned
        .unwrap_or_else(|error| panic!("{error:?}\n{}", pair.logs()))
        .plan
}

async fn a_host_is_emptied_with_local_disks_by_word_and_all_come_home_over_what_they_left(
    libvirt: PathBuf,
) {
    let pair = pair(&libvirt).await;
    pair.a.host.define(&guest::idle("db"));
    pair.a.host.virsh(&["start", "db"]);
    knows(&pair, &["web", "db"]).await;

    let plan = planned(&pair, true).await;
    let told: Vec<_> = plan.steps.iter().filter_map(|step| step.disks).collect();
    assert_eq!((plan.steps.len(), told.len()), (2, 1), "{plan:#?}");
    assert_eq!(told[0].disks.size.0, 64 << 20);
    assert!(told[0].disks.allocated.0 >= 48 << 20, "{told:?}");
    assert_eq!(files(&pair.b), "", "nothing was begun");

    let drained = run(&pair, RunRequest::of(drain(true))).await;
    assert_eq!(drained.result, Some(RunResult::Completed), "{drained:#?}");
    assert_eq!(pair.a.host.qemus(), Vec::<String>::new());
    are_the_same(&pair);
    let next = drained.next.unwrap();
    assert!(next.contains("stale"), "{next}");
    assert!(
        next.contains("`drover resume a --fail-back --with-disks`"),
        "{next}"
    );

    // What it writes since is to come home, and by the word only.
    write(&pair.b, 9);
    let resumed = run(&pair, fail_back(false)).await;
    assert_eq!(resumed.result, Some(RunResult::Completed), "{resumed:#?}");
    let [away] = &resumed.left[..] else {
        panic!("{resumed:#?}");
    };
    assert!(away.why.contains("--with-disks"), "{away:?}");
    assert_eq!(pair.b.state().await, Some(DomainState::Running));

    let resumed = run(&pair, fail_back(true)).await;
    assert_eq!(resumed.result, Some(RunResult::Completed), "{resumed:#?}");
    assert_eq!(pair.a.state().await, Some(DomainState::Running));
    are_the_same(&pair);
    hold(&pair.a, 9);
    assert_eq!(files(&pair.a), "web.img\nweb.qcow2\n");

    // Without the word it stays, and the other one goes.
    knows(&pair, &["web", "db"]).await;
    let drained = run(&pair, RunRequest::of(drain(false))).await;
    assert_eq!(drained.result, Some(RunResult::Partial), "{drained:#?}");
    let [stays] = &drained.left[..] else {
        panic!("{drained:#?}");
    };
    assert!(stays.why.contains("--with-disks"), "{stays:?}");
    let moved: Vec<_> = drained.moves.iter().map(|step| step.state).collect();
    assert_eq!(moved, [MoveState::Moved], "{drained:#?}");
    assert_eq!(pair.a.state().await, Some(DomainState::Running));
}

/// Each of two domains would find room there, and both do not.
async fn domains_find_room_for_their_disks_together_or_stay_before_anything_starts(
    libvirt: PathBuf,
) {
    let pair = pair(&libvirt).await;
    let own = "/run/images/db.img";
    pair.a
        .host
        .shell(&format!("qemu-img create -q -f raw {own} {SIZE}"));
    let disk = format!(
        "<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='{own}'/><target dev='vda' bus='virtio'/></disk>"
    );
    let db = guest::idle("db").replace("<memballoon", &(disk + "<memballoon"));
    pair.a.host.define(&db);
    pair.a.host.virsh(&["start", "db"]);
    knows(&pair, &["web", "db"]).await;
    pair.b
        .host
        .shell(&format!("mount -t tmpfs -o size=90M none {FOLDER}"));

    let plan = planned(&pair, true).await;
    let words = text::plan(&plan);
    assert_eq!((plan.steps.len(), plan.unmoved.len()), (1, 1), "{words}");
    assert!(
        words.contains("left in /run/images for disks that may come to"),
        "{words}"
    );
    assert_eq!(files(&pair.b), "", "nothing was begun");

    pair.b
        .host
        .shell(&format!("mount -t tmpfs -o size=16M none {FOLDER}"));
    let drained = run(&pair, RunRequest::of(drain(true))).await;
    assert_eq!(drained.result, Some(RunResult::Partial), "{drained:#?}");
    assert_eq!(drained.moves, Vec::new());
    for left in &drained.left {
        let both = left.why.contains("may come to") && left.why.contains("16 MiB are free");
        assert!(both, "{left:?}");
    }
    assert_eq!(files(&pair.b), "");
    assert_eq!(pair.a.state().await, Some(DomainState::Running));
}

async fn a_file_that_is_there_already_keeps_a_domain_away_and_stays_as_it_is(libvirt: PathBuf) {
    let pair = pair(&libvirt).await;
    let (_, file, _) = DISKS[1];
    pair.b.host.shell(&format!("echo precious >{file}"));
    let refused = moves(&pair.a, "b").await.unwrap_err();
    let refused = refused.refusal().unwrap();
    assert_eq!(refused.code, ErrorCode::HostLacks, "{refused:?}");
    let words = format!("{file} is there already (9 B, last written to at 2");
    assert!(refused.message.contains(&words), "{refused:?}");
    pair.has_stayed().await;
    assert_eq!(files(&pair.b), "web.img\n");
    assert_eq!(pair.b.host.shell(&format!("cat {file}")), "precious\n");

    // Neither is there room for what it may write.
    pair.b
        .host
        .shell(&format!("mount -t tmpfs -o size=40M tmpfs {FOLDER}"));
    let refused = moves(&pair.a, "b").await.unwrap_err();
    let refused = refused.refusal().unwrap();
    assert!(refused.message.contains("40 MiB are free"), "{refused:?}");
    pair.has_stayed().await;
    assert_eq!(files(&pair.b), "");
}

/// Of the domain's qcow2, by name, each with the bytes that it says were written.
fn bitmaps(side: &Side) -> BTreeMap<String, u64> {
    let nodes = qmp(side, r#"{"execute":"query-named-block-nodes"}"#);
    let nodes = nodes["return"].as_array().unwrap();
    let all = nodes.iter().filter(|node| node["drv"] == "qcow2");
    let all = all.flat_map(|node| node["dirty-bitmaps"].as_array().into_iter().flatten());
    let count = |bitmap: &Value| bitmap["count"].as_u64().unwrap();
    all.map(|bitmap| (bitmap["name"].as_str().unwrap().to_owned(), count(bitmap)))
        .collect()
}

fn qmp(side: &Side, command: &str) -> Value {
    let told = side.host.virsh(&["qemu-monitor-command", "web", command]);
    serde_json::from_str(&told).unwrap()
}

/// Takes the domain down, has something done to its qcow2, and starts it again.
fn between_starts(side: &Side, what: &str) {
    let (_, file, _) = DISKS[0];
    side.host.virsh(&["destroy", "web"]);
    side.host
        .shell(&format!("qemu-img bitmap {what} {file} kept"));
    side.host.virsh(&["start", "web"]);
}

async fn bitmaps_of_what_was_written_move_with_a_disk_and_one_that_records_no_more_keeps_it(
    libvirt: PathBuf,
) {
    let pair = pair(&libvirt).await;
    between_starts(&pair.a, "--add");
    let nodes = qmp(&pair.a, r#"{"execute":"query-named-block-nodes"}"#);
    let nodes = nodes["return"].as_array().unwrap();
    let node = nodes.iter().find(|node| node["drv"] == "qcow2").unwrap();
    for (name, persistent) in [("made", true), ("passing", false)] {
        let made = qmp(
            &pair.a,
            &format!(
                r#"{{"execute":"block-dirty-bitmap-add","arguments":{{"node":{},"name":"{name}","persistent":{persistent}}}}}"#,
                node["node-name"]
            ),
        );
        assert!(made.get("error").is_none(), "{made}");
    }
    write(&pair.a, 5);
    let written = |name: &str| (name.to_owned(), 3 << 20);
    let all = ["kept", "made", "passing"].map(written);
    assert_eq!(bitmaps(&pair.a), all.into());

    let id = begun(&pair).await;
    pair.has_moved(id, DomainState::Running).await;
    are_the_same(&pair);
    // That which is in no file is lost wherever its QEMU ends.
    assert_eq!(bitmaps(&pair.b), ["kept", "made"].map(written).into());
    // QEMU tells of them before memory has ended: pages are not looked for in its first channel then.
    let reduction = pair.a.migration(id).await.reduction.unwrap();
    assert_eq!(reduction.opaque.len(), 1, "{reduction:#?}");

    // Nor does libvirt carry one that records nothing.
    between_starts(&pair.b, "--disable");
    let refused = moves(&pair.b, "a").await.unwrap_err();
    let refused = &refused.refusal().unwrap().message;
    let words = "has 1 bitmaps of what was changed once that record no more";
    assert!(refused.contains(words), "{refused}");
    between_starts(&pair.b, "--enable");
    let back = moves(&pair.b, "a").await;
    let back = back.unwrap_or_else(|error| panic!("{error:?}\n{}", pair.logs()));
    pair.b.phase_is(back.id, MigrationPhase::Completed).await;
    pair.a.phase_is(back.id, MigrationPhase::Running).await;
    assert_eq!(bitmaps(&pair.a), ["kept", "made"].map(written).into());
}

async fn a_domain_with_a_checkpoint_or_that_is_backed_up_stays_and_moves_once_it_has_none(
    libvirt: PathBuf,
) {
    let pair = pair(&libvirt).await;
    let virsh = |command: &str| {
        let words: Vec<_> = command.split(' ').collect();
        pair.a.host.virsh(&words)
    };
    // Only a qcow2 can have what it needs.
    virsh("checkpoint-create-as web monday --diskspec vdb --diskspec vdc,checkpoint=no");
    // It runs until whoever reads from it has all, and nobody does.
    let backup = "<domainbackup mode=\"pull\"><server transport=\"unix\" socket=\"/run/backup.sock\"/>\
                  <disks><disk name=\"vdb\" type=\"file\"><scratch file=\"/run/scratch\"/></disk>\
                  <disk name=\"vdc\" backup=\"no\"/></disks></domainbackup>";
    pair.a
        .host
        .shell(&format!("echo '{backup}' >/run/backup.xml"));
    virsh("backup-begin web /run/backup.xml");
    let [checkpoint, backup] = [
        "libvirt has a checkpoint of it",
        "libvirt makes a backup of it",
    ];
    let refused = async || {
        let refused = moves(&pair.a, "b").await.unwrap_err();
        let refused = refused.refusal().unwrap().clone();
        assert_eq!(refused.code, ErrorCode::OfLibvirt, "{refused:?}");
        refused.message
    };
    let told = [refused().await, pair.drain_plan().await, noted(&pair).await];
    for told in told {
        assert!(told.contains(checkpoint) && told.contains(backup), "{told}");
        assert!(told.contains("`virsh domjobabort web`"), "{told}");
    }
    virsh("domjobabort web");
    until("the backup has ended", async || {
        !refused().await.contains(backup)
    })
    .await;
    assert!(refused().await.contains(checkpoint));
    assert_eq!(files(&pair.b), "");
    pair.has_stayed().await;

    virsh("checkpoint-delete web monday");
    virsh("backup-begin web /run/backup.xml");
    let busy = moves(&pair.a, "b").await.unwrap_err();
    let busy = busy.refusal().unwrap();
    assert_eq!(busy.code, ErrorCode::VmBusy, "it passes: {busy:?}");
    virsh("domjobabort web");
    until("the backup has ended", async || {
        !noted(&pair).await.contains("a backup of it")
    })
    .await;
    let id = begun(&pair).await;
    pair.has_moved(id, DomainState::Running).await;
    are_the_same(&pair);
}

/// What `drover vm show` notes of the domain.
async fn noted(pair: &Pair) -> String {
    let web = "web".parse().unwrap();
    let shown = pair.a.agent().client.vm(&web).await.unwrap();
    shown.notes.join("\n")
}

/// Until its disks are on their way, which takes four seconds then. The destination tells: libvirt asks the source's QEMU for its
/// figures, which answers only once the mirror of each disk was begun.
async fn begun_slowly(pair: &Pair) -> MigrationId {
    pair.slow().await;
    let id = begun(pair).await;
    until("disks are on their way", async || {
        let used = pair.b.host.shell(&format!("du -sm {FOLDER} | cut -f1"));
        used.trim().parse::<u32>().unwrap() > 1
    })
    .await;
    assert_eq!(files(&pair.b), "web.img\nweb.qcow2\n");
    id
}

async fn what_was_made_for_disks_goes_when_the_agent_is_killed_and_the_domain_stays(
    libvirt: PathBuf,
) {
    let mut pair = pair(&libvirt).await;
    let id = begun_slowly(&pair).await;
    pair.b.kill_agent();
    pair.a.agent().client.cancel(id).await.unwrap();
    pair.a.phase_is(id, MigrationPhase::Cancelled).await;
    assert_eq!(files(&pair.b), "web.img\nweb.qcow2\n");
    pair.b.start_agent().await;
    pair.has_stayed().await;
    until("what was made is gone", async || files(&pair.b).is_empty()).await;
    assert_eq!(files(&pair.a), "web.img\nweb.qcow2\n");
}

async fn a_copy_that_is_cancelled_leaves_the_domain_running_and_is_begun_again_as_often_as_is_wanted(
    libvirt: PathBuf,
) {
    let pair = pair(&libvirt).await;
    for _ in 0..2 {
        let id = begun_slowly(&pair).await;
        until("all disks are on their way", async || {
            pair.a.migration(id).await.bytes.transferred.0 > 1 << 20
        })
        .await;
        pair.a.agent().client.cancel(id).await.unwrap();
        pair.a.phase_is(id, MigrationPhase::Cancelled).await;
        pair.has_stayed().await;
        until("what was made is gone", async || files(&pair.b).is_empty()).await;
    }
    write(&pair.a, 5);
    pair.unlimited().await;
    let id = begun(&pair).await;
    pair.has_moved(id, DomainState::Running).await;
    are_the_same(&pair);
}
