//! Disks of libvirt's domains that move to other files of their host, while the domains run.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../../crates/libvirt/tests/common/mod.rs"]
mod common;
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::host::Host;
use common::protocol::{Between, DOMAIN_BLOCK_JOB_ABORT, DOMAIN_SUSPEND};
use common::watched::host_is_up;
use common::{connect, domain, guest, until};
use drover_api::{
    ClientError, DiskFormat, ErrorCode, LibvirtState, StorageMovePhase, StorageMoveRequest,
    StorageMoveView,
};
use drover_libvirt::{Connection, DomainState, Xml, uri_of_socket};
use drover_types::{BitRate, StorageMoveId};
use support::{Agent, Place};

on_each_libvirt! {
    a_disk_moves_while_its_domain_writes_to_it_and_the_domain_starts_with_the_new_file
    a_disk_is_laid_out_anew_and_its_old_file_goes_where_that_is_asked_for
    a_disk_that_cannot_move_or_not_to_there_is_refused_and_nothing_is_changed
    a_move_that_is_cancelled_or_has_no_room_leaves_the_disk_and_nothing_else
    a_domain_that_was_paused_stays_so_and_one_that_ends_keeps_its_old_disk
    the_next_agent_goes_on_with_a_copy_and_keeps_to_a_cancel
    the_next_agent_has_a_domain_run_again_that_was_stopped_for_its_disk
    a_libvirtd_that_is_started_anew_is_found_and_the_move_goes_on
    a_libvirtd_that_dies_while_the_domain_stands_still_costs_it_neither_its_life_nor_its_disk
}

const IMAGES: &str = "/run/images";
const OLD: &str = "/run/images/web.img";
const NEW: &str = "/run/fast/web.img";

/// What the disk has.
const SIZE: &str = "32M";

/// Below it a copy takes some ten seconds.
const SLOW: BitRate = BitRate(16 << 20);

/// A host with a libvirt and an agent, and a domain `web` that runs.
struct One {
    host: Host,
    place: Place,
    agent: Option<Agent>,
    libvirt: Connection,
}

impl One {
    async fn new(libvirt: &Path) -> Self {
        let host = Host::new(libvirt);
        host_is_up(&host).await;
        host.shell(&format!(
            "mkdir {IMAGES} /run/fast && qemu-img create -q {OLD} {SIZE} && qemu-io -f raw -c 'write -P 7 1M 24M' {OLD} && chmod 640 {OLD}"
        ));
        let disk = format!(
            "<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='{OLD}'/><target dev='vda' bus='virtio'/></disk>"
        );
        let xml = guest::idle("web").replace("<memballoon", &(disk + "<memballoon"));
        host.define(&xml);
        host.virsh(&["start", "web"]);
        let libvirt = connect(&host).await;
        let mut one = Self {
            host,
            place: Place::new(),
            agent: None,
            libvirt,
        };
        one.start_agent("auto").await;
        one
    }

    async fn start_agent(&mut self, uri: &str) {
        self.place
            .configure(&format!("[libvirt]\nuri = \"{uri}\"\n"));
        let droverd = self.place.droverd();
        let mut command = Command::new("nsenter");
        command.args(["--all", "--target", &self.host.init().to_string()]);
        command.arg(droverd.get_program()).args(droverd.get_args());
        command
            .env_remove("JOURNAL_STREAM")
            .env_remove("NOTIFY_SOCKET");
        self.agent = Some(self.place.start_by(command).await);
        until("the agent reaches libvirt", async || {
            let status = self.agent().client.status().await.unwrap();
            status.libvirt.unwrap().state == LibvirtState::Connected
        })
        .await;
    }

    /// Ends the agent without a word.
    fn kill_agent(&mut self) {
        self.host.shell("pkill -KILL -x droverd");
        self.agent = None;
    }

    fn agent(&self) -> &Agent {
        self.agent.as_ref().unwrap()
    }

    async fn order(&self, request: StorageMoveRequest) -> Result<StorageMoveView, ClientError> {
        self.agent().client.move_disk(&request).await
    }

    async fn begun(&self, request: StorageMoveRequest) -> StorageMoveId {
        match self.order(request).await {
            Ok(view) => view.id,
            Err(error) => panic!("{error:?}\n{}", self.agent().log()),
        }
    }

    /// So that a test can step in.
    async fn begun_slowly(&self) -> StorageMoveId {
        let id = self.begun(slowly()).await;
        self.is(id, |view| view.copied.0 > 0).await;
        id
    }

    async fn refused(&self, request: StorageMoveRequest) -> (ErrorCode, String) {
        let refused = self.order(request).await.unwrap_err();
        let refusal = refused.refusal().unwrap_or_else(|| panic!("{refused:?}"));
        let next = refusal.next.clone().unwrap_or_default();
        (refusal.code, format!("{} | {next}", refusal.message))
    }

    async fn view(&self, id: StorageMoveId) -> StorageMoveView {
        self.agent().client.storage_move(id).await.unwrap()
    }

    async fn is(
        &self,
        id: StorageMoveId,
        wanted: impl Fn(&StorageMoveView) -> bool,
    ) -> StorageMoveView {
        let deadline = tokio::time::Instant::now() + common::PATIENCE;
        loop {
            let view = self.view(id).await;
            if wanted(&view) {
                return view;
            }
            let late = tokio::time::Instant::now() > deadline;
            let log = self.agent().log();
            assert!(!late && !view.phase.has_ended(), "{view:#?}\n{log}");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    async fn ended(&self, id: StorageMoveId, phase: StorageMovePhase) -> StorageMoveView {
        self.is(id, |view| view.phase == phase).await
    }

    async fn state(&self) -> DomainState {
        domain(&self.libvirt, "web").await.unwrap().state
    }

    async fn state_is(&self, state: DomainState) {
        until("the domain does so", async || self.state().await == state).await;
    }

    /// The domain has this file, now and when it is started next.
    async fn has(&self, file: &str) {
        let uuid = domain(&self.libvirt, "web").await.unwrap().uuid;
        for kind in [Xml::Current, Xml::Definition] {
            let xml = self.libvirt.xml(uuid, kind).await.unwrap();
            assert!(xml.contains(&format!("<source file='{file}'")), "{xml}");
            assert!(!xml.contains("<mirror"), "{xml}");
        }
    }

    /// Writes as the guest itself would, through its QEMU.
    fn write(&self, pattern: u8) {
        let hmp = |command: &str| {
            self.host
                .virsh(&["qemu-monitor-command", "web", "--hmp", command])
        };
        let blocks = hmp("info block");
        let device = blocks.lines();
        let mut device = device.filter_map(|line| line.trim().strip_prefix("Attached to:"));
        let device = device.next().unwrap().trim();
        for command in [&format!("write -P {pattern} 2M 3M"), "flush"] {
            let refused = hmp(&format!("qemu-io -d {device} \"{command}\""));
            assert_eq!(refused.trim(), "", "{blocks}");
        }
    }

    fn holds(&self, file: &str, format: &str, pattern: u8) {
        for (pattern, at) in [(pattern, "2M 3M"), (7, "5M 20M")] {
            let read = format!("qemu-io -r -U -f {format} -c 'read -P {pattern} {at}' {file}");
            let read = self.host.shell(&read);
            assert!(read.contains("ops") && !read.contains("failed"), "{read}");
        }
    }

    fn files(&self) -> String {
        self.host.shell("ls -A /run/images /run/fast")
    }

    async fn files_are(&self, wanted: &str) {
        until("only these files are there", async || {
            self.files() == wanted
        })
        .await;
    }
}

fn to(path: &str) -> StorageMoveRequest {
    StorageMoveRequest {
        vm: "web".parse().unwrap(),
        disk: "vda".to_owned(),
        to: path.into(),
        format: None,
        limit: None,
        remove_old: false,
    }
}

fn slowly() -> StorageMoveRequest {
    StorageMoveRequest {
        limit: Some(SLOW),
        ..to(NEW)
    }
}

const ONLY_OLD: &str = "/run/fast:\n\n/run/images:\nweb.img\n";
const ONLY_NEW: &str = "/run/fast:\nweb.img\n\n/run/images:\n";
const BOTH: &str = "/run/fast:\nweb.img\n\n/run/images:\nweb.img\n";

async fn a_disk_moves_while_its_domain_writes_to_it_and_the_domain_starts_with_the_new_file(
    libvirt: PathBuf,
) {
    let one = One::new(&libvirt).await;
    // By its file, and into a folder.
    let request = StorageMoveRequest {
        disk: OLD.to_owned(),
        ..to("/run/fast")
    };
    let limited = StorageMoveRequest {
        limit: Some(BitRate(32 << 20)),
        ..request
    };
    let id = one.begun(limited).await;
    for pattern in 1..=8 {
        one.write(pattern);
    }
    let view = one.ended(id, StorageMovePhase::Moved).await;
    one.state_is(DomainState::Running).await;
    one.has(NEW).await;
    assert_eq!((view.disk.as_str(), view.copied), ("vda", view.total));
    assert!(view.paused_ms.is_some_and(|ms| ms < 10_000), "{view:#?}");
    assert!(view.next.unwrap().starts_with(OLD));
    assert_eq!(one.files(), BOTH);
    assert_eq!(one.host.shell(&format!("stat -c %a {NEW}")), "640\n");
    one.write(9);
    one.holds(NEW, "raw", 9);
    one.holds(OLD, "raw", 8);
    one.host.virsh(&["destroy", "web"]);
    one.host.shell(&format!("mv {OLD} /run/old"));
    one.host.virsh(&["start", "web"]);
    one.holds(NEW, "raw", 9);
    // And back, as often as is wanted.
    until("the agent knows that it runs", async || {
        one.order(to(OLD)).await.is_ok()
    })
    .await;
    until("it is back", async || {
        let all = one.agent().client.storage_moves().await.unwrap();
        all[0].phase == StorageMovePhase::Moved
    })
    .await;
    one.has(OLD).await;
    one.holds(OLD, "raw", 9);
}

async fn a_disk_is_laid_out_anew_and_its_old_file_goes_where_that_is_asked_for(libvirt: PathBuf) {
    let one = One::new(&libvirt).await;
    let id = one
        .begun(StorageMoveRequest {
            format: Some(DiskFormat::Qcow2),
            remove_old: true,
            ..to(NEW)
        })
        .await;
    let view = one.ended(id, StorageMovePhase::Moved).await;
    assert_eq!(view.to_format, DiskFormat::Qcow2);
    assert_eq!(view.next, None);
    one.files_are(ONLY_NEW).await;
    one.write(3);
    one.holds(NEW, "qcow2", 3);
    let xml = one.host.virsh(&["dumpxml", "--inactive", "web"]);
    assert!(xml.contains("type='qcow2'"), "{xml}");
    one.host.virsh(&["destroy", "web"]);
    one.host.virsh(&["start", "web"]);
    // From one qcow2 to another.
    until("the agent knows that it runs", async || {
        one.order(to(OLD)).await.is_ok()
    })
    .await;
    until("it is back", async || {
        let all = one.agent().client.storage_moves().await.unwrap();
        all[0].phase == StorageMovePhase::Moved
    })
    .await;
    one.holds(OLD, "qcow2", 3);
}

async fn a_disk_that_cannot_move_or_not_to_there_is_refused_and_nothing_is_changed(
    libvirt: PathBuf,
) {
    let one = One::new(&libvirt).await;
    one.host.shell(&format!("echo precious >{NEW}"));
    let (code, words) = one.refused(to(NEW)).await;
    assert_eq!(code, ErrorCode::PlaceUnusable);
    assert!(
        words.contains("/run/fast/web.img is there already"),
        "{words}"
    );
    let (_, words) = one.refused(to("/run/fast")).await;
    assert!(
        words.contains("/run/fast/web.img is there already"),
        "{words}"
    );
    one.host.shell(&format!("rm {NEW}"));
    let (_, words) = one.refused(to(OLD)).await;
    assert!(words.contains("is there already"), "{words}");
    let (_, words) = one.refused(to("/run/none/web.img")).await;
    assert!(words.contains("there is no folder /run/none"), "{words}");
    let (code, words) = one.refused(to("web.img")).await;
    assert_eq!(code, ErrorCode::PlaceUnusable, "{words}");
    one.host
        .shell("mkdir /run/small && mount -t tmpfs -o size=20M tmpfs /run/small");
    let (code, words) = one.refused(to("/run/small/web.img")).await;
    assert_eq!(code, ErrorCode::PlaceUnusable);
    assert!(words.contains("20 MiB are free"), "{words}");
    let other = StorageMoveRequest {
        disk: "vdb".to_owned(),
        ..to(NEW)
    };
    let (code, words) = one.refused(other).await;
    assert_eq!(code, ErrorCode::NoSuchDisk);
    assert!(words.contains("vda (/run/images/web.img)"), "{words}");

    // Two of one domain, and a snapshot.
    let id = one.begun_slowly().await;
    let (code, _) = one.refused(to("/run/fast/other.img")).await;
    assert_eq!(code, ErrorCode::VmBusy);
    one.agent().client.cancel_storage_move(id).await.unwrap();
    one.ended(id, StorageMovePhase::Cancelled).await;
    one.files_are(ONLY_OLD).await;
    one.host.shell(
        "virsh blockcopy web vda --dest /run/fast/by-hand.img --transient-job --bandwidth 1048576 --bytes >/dev/null",
    );
    let (code, words) = one.refused(to(NEW)).await;
    assert_eq!(code, ErrorCode::VmBusy);
    assert!(words.contains("blockjob web vda --abort"), "{words}");
    one.host.virsh(&["blockjob", "web", "vda", "--abort"]);
    one.host.shell("rm -f /run/fast/by-hand.img");
    one.host.virsh(&["destroy", "web"]);
    until("the agent knows that it is off", async || {
        one.refused(to(NEW)).await.0 == ErrorCode::VmNotRunning
    })
    .await;
    let (_, words) = one.refused(to(NEW)).await;
    assert!(words.contains("virsh edit web"), "{words}");
    let nobody = StorageMoveRequest {
        vm: "nobody".parse().unwrap(),
        ..to(NEW)
    };
    assert_eq!(one.refused(nobody).await.0, ErrorCode::NoSuchVm);
    assert_eq!(one.files(), ONLY_OLD);
}

async fn a_move_that_is_cancelled_or_has_no_room_leaves_the_disk_and_nothing_else(
    libvirt: PathBuf,
) {
    let one = One::new(&libvirt).await;
    let id = one.begun_slowly().await;
    assert_eq!(one.files(), BOTH);
    one.agent().client.cancel_storage_move(id).await.unwrap();
    one.ended(id, StorageMovePhase::Cancelled).await;
    one.files_are(ONLY_OLD).await;
    one.has(OLD).await;
    let again = one.agent().client.cancel_storage_move(id).await;
    let again = again.unwrap_err().refusal().unwrap().code;
    assert_eq!(again, ErrorCode::StorageMoveEnded);

    // By other hands.
    let id = one.begun_slowly().await;
    one.host.virsh(&["blockjob", "web", "vda", "--abort"]);
    one.ended(id, StorageMovePhase::Failed).await;
    one.files_are(ONLY_OLD).await;
    one.has(OLD).await;

    one.host.shell("mount -t tmpfs -o size=40M tmpfs /run/fast");
    let id = one.begun_slowly().await;
    one.host
        .shell("dd if=/dev/zero of=/run/fast/other bs=1M 2>/dev/null || true");
    let view = one.ended(id, StorageMovePhase::Failed).await;
    assert!(view.cause.unwrap().contains("0 B are free in /run/fast"));
    one.files_are("/run/fast:\nother\n\n/run/images:\nweb.img\n")
        .await;
    one.state_is(DomainState::Running).await;
    one.write(5);
    one.holds(OLD, "raw", 5);
}

async fn a_domain_that_was_paused_stays_so_and_one_that_ends_keeps_its_old_disk(libvirt: PathBuf) {
    let one = One::new(&libvirt).await;
    let id = one.begun_slowly().await;
    one.host.virsh(&["destroy", "web"]);
    one.ended(id, StorageMovePhase::Failed).await;
    one.files_are(ONLY_OLD).await;
    one.host.virsh(&["start", "web"]);
    one.host.virsh(&["suspend", "web"]);
    until("the agent knows that it is there", async || {
        one.order(to(NEW)).await.is_ok()
    })
    .await;
    until("it has moved", async || {
        let all = one.agent().client.storage_moves().await.unwrap();
        all[0].phase == StorageMovePhase::Moved
    })
    .await;
    one.has(NEW).await;
    assert_eq!(one.state().await, DomainState::Paused);
    let all = one.agent().client.storage_moves().await.unwrap();
    assert_eq!(all[0].paused_ms, None, "not for this");
}

async fn the_next_agent_goes_on_with_a_copy_and_keeps_to_a_cancel(libvirt: PathBuf) {
    let mut one = One::new(&libvirt).await;
    let id = one.begun_slowly().await;
    one.kill_agent();
    one.write(4);
    one.start_agent("auto").await;
    let view = one.is(id, |view| view.copied.0 > 0).await;
    assert_eq!(view.phase, StorageMovePhase::Copying);
    let moved = one.ended(id, StorageMovePhase::Moved).await;
    assert!(
        moved
            .events
            .iter()
            .any(|event| event.what.contains("started anew"))
    );
    one.has(NEW).await;
    one.state_is(DomainState::Running).await;
    one.holds(NEW, "raw", 4);

    let back = StorageMoveRequest {
        limit: Some(SLOW),
        ..to("/run/images/other.img")
    };
    let id = one.begun(back).await;
    one.is(id, |view| view.copied.0 > 0).await;
    // It has ended before that is carried out.
    one.agent().client.cancel_storage_move(id).await.unwrap();
    one.kill_agent();
    one.start_agent("auto").await;
    one.ended(id, StorageMovePhase::Cancelled).await;
    one.files_are(BOTH).await;
    one.has(NEW).await;
}

async fn the_next_agent_has_a_domain_run_again_that_was_stopped_for_its_disk(libvirt: PathBuf) {
    let mut one = One::new(&libvirt).await;
    let places = ["/run/fast/a.img", "/run/fast/b.img"];
    for (held, to_here) in [DOMAIN_SUSPEND, DOMAIN_BLOCK_JOB_ABORT]
        .into_iter()
        .zip(places)
    {
        one.kill_agent();
        let between = Between::new(&one.host.socket());
        one.start_agent(&uri_of_socket(&between.socket())).await;
        between.hold(held);
        let id = one.begun(to(to_here)).await;
        until("libvirt has done it, and nobody has heard", async || {
            between.held() > 0
        })
        .await;
        one.kill_agent();
        assert_eq!(one.state().await, DomainState::Paused);
        one.start_agent("auto").await;
        let view = one.ended(id, StorageMovePhase::Moved).await;
        assert!(view.paused_ms.is_some(), "{view:#?}");
        one.state_is(DomainState::Running).await;
        one.has(to_here).await;
        one.write(6);
        one.holds(to_here, "raw", 6);
    }
}

async fn a_libvirtd_that_is_started_anew_is_found_and_the_move_goes_on(libvirt: PathBuf) {
    let mut one = One::new(&libvirt).await;
    let id = one.begun_slowly().await;
    one.host.signal_libvirtd("KILL");
    until("that is told of", async || {
        let events = one.view(id).await.events;
        events
            .iter()
            .any(|event| event.what.contains("tried again"))
    })
    .await;
    one.host.start_libvirtd();
    let view = one.ended(id, StorageMovePhase::Moved).await;
    one.libvirt = connect(&one.host).await;
    one.state_is(DomainState::Running).await;
    one.has(NEW).await;
    assert!(view.paused_ms.is_some(), "{view:#?}");
    one.write(2);
    one.holds(NEW, "raw", 2);
}

async fn a_libvirtd_that_dies_while_the_domain_stands_still_costs_it_neither_its_life_nor_its_disk(
    libvirt: PathBuf,
) {
    let mut one = One::new(&libvirt).await;
    one.kill_agent();
    let between = Between::new(&one.host.socket());
    one.start_agent(&uri_of_socket(&between.socket())).await;
    between.hold(DOMAIN_SUSPEND);
    let id = one.begun(to(NEW)).await;
    until("libvirt has done it, and nobody has heard", async || {
        between.held() > 0
    })
    .await;
    one.host.signal_libvirtd("KILL");
    between.release();
    one.host.start_libvirtd();
    one.libvirt = connect(&one.host).await;
    // Where libvirtd takes long to be there again, it is given up.
    until("it has ended", async || {
        one.view(id).await.phase.has_ended()
    })
    .await;
    let view = one.view(id).await;
    one.state_is(DomainState::Running).await;
    let (file, files) = match view.phase {
        StorageMovePhase::Moved => (NEW, BOTH),
        StorageMovePhase::Failed => (OLD, ONLY_OLD),
        _ => panic!("{view:#?}"),
    };
    one.has(file).await;
    one.files_are(files).await;
    one.write(8);
    one.holds(file, "raw", 8);
}
