//! Domains of real libvirts that agents move between two hosts, which reach each other over two NICs and in no other way.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../../crates/libvirt/tests/common/mod.rs"]
mod common;
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use common::host::Host;
use common::watched::host_is_up;
use common::{PATIENCE, connect, domain, guest, until};
use drover_api::{
    ClientError, ErrorCode, EventKind, EventView, JoinRequest, LibvirtState, LimitRequest,
    LimitScope, MigrateRequest, MigrationPhase, MigrationView, Refusal, TokenRequest,
};
use drover_lab::Console;
use drover_libvirt::{Connection, Domain, DomainState};
use drover_types::{Convergence, MigrationId};
use support::{Agent, Place};
use tempfile::TempDir;

on_each_libvirt! {
    a_domain_moves_and_runs_there_and_only_there
    a_domain_that_was_paused_is_paused_there
    what_libvirt_refuses_comes_back_in_its_words_and_the_domain_runs_on
    what_the_destination_lacks_is_named_before_libvirt_is_asked
    a_domain_moves_on_over_the_nic_that_is_left_and_stays_when_none_is
    a_domain_that_is_cancelled_runs_on_and_can_move_again
    a_domain_moves_on_while_the_sources_agent_is_killed_and_is_handed_off_by_the_next_one
    a_domain_moves_on_while_the_destinations_agent_is_killed_and_is_run_by_the_next_one
    a_domain_stays_when_the_destinations_libvirtd_is_killed
    a_domain_stays_when_the_sources_libvirtd_is_killed
}

/// So slow that a test can step in: a domain of 256 MiB takes some ten seconds.
const SLOW: &str = "100mbit";

/// Between two looks at what tells nothing by itself.
const POLL: Duration = Duration::from_millis(20);

/// One host: its libvirt, its agent, and what is known of both.
struct Side {
    host: Host,
    place: Place,
    agent: Option<Agent>,
    libvirt: Connection,
}

/// Two of them in one cluster, and a domain `web` on the first.
struct Pair {
    a: Side,
    b: Side,
    _folder: TempDir,
}

impl Side {
    async fn alone(libvirt: &Path, name: &'static str, last: u8) -> (Host, Place) {
        let host = Host::new(libvirt);
        host_is_up(&host).await;
        // What the kernel tells of this host's own interfaces.
        host.shell("mount -t sysfs sysfs /sys");
        let place = Place::named(name);
        let listen = format!("[api]\nlisten = [\"10.77.0.{last}:7470\"]\n");
        place.configure(&format!(
            "{listen}[migration]\ndata_port = 7471\noutage_limit_s = 10\n[libvirt]\nuri = \"auto\"\n"
        ));
        (host, place)
    }

    async fn complete(host: Host, place: Place) -> Self {
        let libvirt = connect(&host).await;
        let mut side = Self {
            host,
            place,
            agent: None,
            libvirt,
        };
        side.start_agent().await;
        side
    }

    async fn start_agent(&mut self) {
        let droverd = self.place.droverd();
        let mut command = Command::new("nsenter");
        command.args(["--all", "--target", &self.host.init().to_string()]);
        command.arg(droverd.get_program()).args(droverd.get_args());
        command
            .env_remove("JOURNAL_STREAM")
            .env_remove("NOTIFY_SOCKET");
        let agent = self.place.start_by(command).await;
        until("the agent reaches libvirt", async || {
            let status = agent.client.status().await.unwrap();
            status.libvirt.unwrap().state == LibvirtState::Connected
        })
        .await;
        self.agent = Some(agent);
    }

    fn agent(&self) -> &Agent {
        self.agent.as_ref().unwrap()
    }

    /// Ends the agent without a word. Its relays go on.
    fn kill_agent(&mut self) {
        self.host.shell("pkill -KILL -x droverd");
        self.agent = None;
    }

    async fn web(&self) -> Option<Domain> {
        domain(&self.libvirt, "web").await
    }

    async fn state(&self) -> Option<DomainState> {
        self.web().await.map(|domain| domain.state)
    }

    /// Once libvirtd was started again.
    async fn connect_again(&mut self) {
        self.libvirt = connect(&self.host).await;
    }

    async fn migration(&self, id: MigrationId) -> MigrationView {
        self.agent().client.migration(id).await.unwrap()
    }

    /// Waits for a phase, and not beyond the end.
    async fn phase_is(&self, id: MigrationId, wanted: MigrationPhase) -> MigrationView {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let view = self.migration(id).await;
            if view.phase == wanted {
                return view;
            }
            let late = tokio::time::Instant::now() > deadline;
            assert!(
                !late && !view.phase.has_ended(),
                "{view:#?}\n{}",
                self.agent().log()
            );
            tokio::time::sleep(POLL).await;
        }
    }
}

impl Pair {
    /// With a domain that runs firmware only.
    async fn idle(libvirt: &Path) -> Self {
        Self::new(libvirt, TempDir::new().unwrap(), &guest::idle("web")).await
    }

    async fn new(libvirt: &Path, folder: TempDir, xml: &str) -> Self {
        let (a, at_a) = Side::alone(libvirt, "a", 1).await;
        let (b, at_b) = Side::alone(libvirt, "b", 2).await;
        wire(&a, &b);
        let a = Side::complete(a, at_a).await;
        let b = Side::complete(b, at_b).await;
        let (first, second) = (&a.agent().client, &b.agent().client);
        first.cluster_init().await.unwrap();
        let made = first.cluster_token(&TokenRequest::default()).await;
        let token = made.unwrap().token;
        second.cluster_join(&JoinRequest { token }).await.unwrap();
        a.host.define(xml);
        a.host.virsh(&["start", "web"]);
        until("the agent knows that it runs", async || {
            let vms = a.agent().client.vms().await.unwrap();
            vms.iter().any(|vm| vm.name == "web" && vm.pid.is_some())
        })
        .await;
        Self {
            a,
            b,
            _folder: folder,
        }
    }

    async fn migrate(&self, name: &str) -> Result<MigrationView, ClientError> {
        let request = MigrateRequest {
            to: "b".parse().unwrap(),
            convergence: Convergence::default(),
            channels: None,
            lanes_per_path: None,
            reduction: None,
            id: None,
        };
        let client = &self.a.agent().client;
        until("the agent knows of it", async || {
            let vms = client.vms().await.unwrap();
            vms.iter().any(|vm| vm.name == name)
        })
        .await;
        client.migrate(&name.parse().unwrap(), &request).await
    }

    async fn begun(&self) -> MigrationId {
        match self.migrate("web").await {
            Ok(view) => view.id,
            Err(error) => panic!("{error:?}\n{}", self.logs()),
        }
    }

    /// One that takes long enough to step in.
    async fn begun_slowly(&self) -> MigrationId {
        let limit = LimitRequest {
            scope: LimitScope::Host,
            limit: Some(SLOW.parse().unwrap()),
        };
        self.a.agent().client.limit(&limit).await.unwrap();
        let id = self.begun().await;
        until("memory is on its way", async || {
            let view = self.a.migration(id).await;
            view.phase == MigrationPhase::Transferring && view.bytes.transferred.0 > 1 << 20
        })
        .await;
        id
    }

    fn logs(&self) -> String {
        let (a, b) = (self.a.agent().log(), self.b.agent().log());
        format!("{a}\n{b}\n{}\n{}", self.a.host.log(), self.b.host.log())
    }

    /// It runs there, and nothing of it is left here.
    async fn has_moved(&self, id: MigrationId, state: DomainState) {
        self.a.phase_is(id, MigrationPhase::Completed).await;
        self.b.phase_is(id, MigrationPhase::Running).await;
        assert_eq!(self.a.web().await, None);
        assert_eq!(self.a.host.qemus(), Vec::<String>::new());
        let there = self.b.web().await.unwrap();
        assert_eq!((there.state, there.persistent), (state, true));
        let left = "ls -A /run/drover-libvirt";
        assert_eq!(self.a.host.shell(left), "", "sockets are left");
        assert_eq!(self.b.host.shell(left), "", "sockets are left");
    }

    /// It is as before here, and nothing of it is left there.
    async fn has_stayed(&self) {
        assert_eq!(self.a.state().await, Some(DomainState::Running));
        until("nothing is left there", async || {
            self.b.web().await.is_none() && self.b.host.qemus().is_empty()
        })
        .await;
    }
}

/// Two NICs that join two hosts.
fn wire(a: &Host, b: &Host) {
    for nic in 0..2 {
        let (here, there) = (a.init(), b.init());
        let made = Command::new("ip")
            .args(["link", "add", &format!("eth{nic}"), "mtu", "9000", "netns"])
            .arg(here.to_string())
            .args(["type", "veth", "peer", "name", &format!("eth{nic}")])
            .args(["mtu", "9000", "netns", &there.to_string()])
            .status()
            .unwrap();
        assert!(made.success());
        for (host, last) in [(a, 1), (b, 2)] {
            host.shell(&format!(
                "ip addr add 10.77.{nic}.{last}/24 dev eth{nic} && ip link set eth{nic} up"
            ));
        }
    }
}

fn refused(error: ClientError) -> Refusal {
    match error.refusal() {
        Some(refusal) => refusal.clone(),
        None => panic!("{error:?}"),
    }
}

async fn a_domain_moves_and_runs_there_and_only_there(libvirt: PathBuf) {
    if guest::lacks_something().await {
        return;
    }
    let folder = TempDir::new().unwrap();
    let xml = guest::xml("web", folder.path()).await;
    let pair = Pair::new(&libvirt, folder, &xml).await;
    pair.a.host.virsh(&["autostart", "web"]);
    let console = Console::default();
    let serial = pair.a.host.path(guest::SERIAL);
    console.attach(&serial, PATIENCE).await.unwrap();
    console.wait_heartbeat(PATIENCE).await.unwrap();
    let ready = tokio::time::timeout(PATIENCE, console.wait_ready()).await;
    ready.unwrap().unwrap();
    let before = pair.a.web().await.unwrap();
    assert!(before.autostart);

    let id = pair.begun().await;
    pair.has_moved(id, DomainState::Running).await;
    let there = pair.b.web().await.unwrap();
    assert_eq!(there.uuid, before.uuid);
    assert!(there.autostart, "autostart goes along");

    // Over both NICs, and the guest finds all of its memory as it left it.
    let view = pair.a.migration(id).await;
    assert_eq!(view.paths.len(), 2, "{view:#?}");
    assert!(view.downtime_ms.is_some() && view.bytes.total.0 > 0);
    let serial = pair.b.host.path(guest::SERIAL);
    console.attach(&serial, PATIENCE).await.unwrap();
    console.wait_sequence(2, PATIENCE).await.unwrap();
    let verified = console.verify().await.unwrap();
    assert_eq!((verified.pages, verified.bad), ((64 << 20) / 4096, 0));
}

async fn a_domain_that_was_paused_is_paused_there(libvirt: PathBuf) {
    let pair = Pair::idle(&libvirt).await;
    pair.a.host.virsh(&["suspend", "web"]);
    let id = pair.begun().await;
    pair.has_moved(id, DomainState::Paused).await;
}

async fn what_libvirt_refuses_comes_back_in_its_words_and_the_domain_runs_on(libvirt: PathBuf) {
    const ONLY_HERE: &str = "/run/only-here";
    // A folder that is not there is nothing that the agents look for.
    let log = format!("<serial type='file'><source path='{ONLY_HERE}/log'/></serial>");
    let xml = guest::idle("web").replace("<memballoon", &format!("{log}<memballoon"));
    let make = format!("mkdir {ONLY_HERE}");
    let pair = Pair::with(&libvirt, &xml, &make).await;
    let id = pair.begun().await;
    let failed = pair.a.phase_is(id, MigrationPhase::Failed).await;
    let cause = failed.cause.unwrap();
    assert!(cause.contains("libvirt refused to migrate"), "{cause}");
    assert!(cause.contains(ONLY_HERE), "{cause}");
    pair.has_stayed().await;

    pair.a.host.define(&guest::idle("off"));
    let refusal = refused(pair.migrate("off").await.unwrap_err());
    assert_eq!(refusal.code, ErrorCode::VmNotRunning, "{refusal:?}");
    assert!(refusal.message.contains("shut off"), "{refusal:?}");
}

async fn what_the_destination_lacks_is_named_before_libvirt_is_asked(libvirt: PathBuf) {
    const ONLY_HERE: &str = "/run/only-here.iso";
    let medium = format!(
        "<disk type='file' device='cdrom'><driver name='qemu' type='raw'/><source file='{ONLY_HERE}'/>\
         <target dev='sda' bus='sata'/><readonly/></disk>"
    );
    let xml = guest::idle("web").replace("<memballoon", &format!("{medium}<memballoon"));
    let make = format!("truncate -s 1M {ONLY_HERE}");
    let pair = Pair::with(&libvirt, &xml, &make).await;
    let refusal = refused(pair.migrate("web").await.unwrap_err());
    assert_eq!(refusal.code, ErrorCode::OfLibvirt, "{refusal:?}");
    assert!(refusal.message.contains(ONLY_HERE), "{refusal:?}");
    pair.has_stayed().await;
    // Once it is there as well nothing is left in the way.
    pair.b.host.shell(&make);
    let id = pair.begun().await;
    pair.has_moved(id, DomainState::Running).await;
}

async fn a_domain_that_is_cancelled_runs_on_and_can_move_again(libvirt: PathBuf) {
    let Some(pair) = Pair::busy(&libvirt).await else {
        return;
    };
    let id = pair.begun_slowly().await;
    pair.a.agent().client.cancel(id).await.unwrap();
    pair.a.phase_is(id, MigrationPhase::Cancelled).await;
    pair.has_stayed().await;
    pair.unlimited().await;
    let id = pair.begun().await;
    pair.has_moved(id, DomainState::Running).await;
}

async fn a_domain_moves_on_over_the_nic_that_is_left_and_stays_when_none_is(libvirt: PathBuf) {
    let Some(pair) = Pair::busy(&libvirt).await else {
        return;
    };
    let id = pair.begun_slowly().await;
    pair.a.host.shell("ip link set eth1 down");
    until("its loss is told", async || {
        let events = pair.a.agent().client.events(id).await.unwrap();
        let lost = |event: &EventView| matches!(event.kind, EventKind::PathLost { .. });
        events.iter().any(lost)
    })
    .await;
    assert_eq!(pair.a.state().await, Some(DomainState::Running));
    pair.a.host.shell("ip link set eth0 down");
    pair.a.phase_is(id, MigrationPhase::Failed).await;
    pair.has_stayed().await;
    pair.a
        .host
        .shell("ip link set eth0 up && ip link set eth1 up");
    pair.unlimited().await;
    let id = pair.begun().await;
    pair.has_moved(id, DomainState::Running).await;
}

async fn a_domain_moves_on_while_the_sources_agent_is_killed_and_is_handed_off_by_the_next_one(
    libvirt: PathBuf,
) {
    let Some(mut pair) = Pair::busy(&libvirt).await else {
        return;
    };
    pair.a.host.virsh(&["autostart", "web"]);
    let id = pair.begun_slowly().await;
    pair.a.kill_agent();
    pair.a.start_agent().await;
    pair.unlimited().await;
    pair.has_moved(id, DomainState::Running).await;
    assert!(pair.b.web().await.unwrap().autostart);
}

async fn a_domain_moves_on_while_the_destinations_agent_is_killed_and_is_run_by_the_next_one(
    libvirt: PathBuf,
) {
    let Some(mut pair) = Pair::busy(&libvirt).await else {
        return;
    };
    let id = pair.begun_slowly().await;
    pair.b.kill_agent();
    pair.b.start_agent().await;
    pair.unlimited().await;
    pair.has_moved(id, DomainState::Running).await;
}

async fn a_domain_stays_when_the_destinations_libvirtd_is_killed(libvirt: PathBuf) {
    let Some(mut pair) = Pair::busy(&libvirt).await else {
        return;
    };
    let id = pair.begun_slowly().await;
    pair.b.host.signal_libvirtd("KILL");
    pair.b.host.start_libvirtd();
    pair.b.connect_again().await;
    pair.a.phase_is(id, MigrationPhase::Failed).await;
    pair.b.phase_is(id, MigrationPhase::Abandoned).await;
    pair.has_stayed().await;
}

async fn a_domain_stays_when_the_sources_libvirtd_is_killed(libvirt: PathBuf) {
    let Some(mut pair) = Pair::busy(&libvirt).await else {
        return;
    };
    pair.a.host.virsh(&["autostart", "web"]);
    let id = pair.begun_slowly().await;
    pair.a.host.signal_libvirtd("KILL");
    pair.a.host.start_libvirtd();
    pair.a.connect_again().await;
    pair.a.phase_is(id, MigrationPhase::Failed).await;
    pair.has_stayed().await;
    assert!(pair.a.web().await.unwrap().autostart, "it is as before");
}

impl Pair {
    /// With a domain whose memory is full, once its guest has filled it. None where such guests cannot run here.
    async fn busy(libvirt: &Path) -> Option<Self> {
        if guest::lacks_something().await {
            return None;
        }
        let folder = TempDir::new().unwrap();
        let xml = guest::xml("web", folder.path()).await;
        let pair = Self::new(libvirt, folder, &xml).await;
        let console = Console::default();
        let serial = pair.a.host.path(guest::SERIAL);
        console.attach(&serial, PATIENCE).await.unwrap();
        console.wait_heartbeat(PATIENCE).await.unwrap();
        let ready = tokio::time::timeout(PATIENCE, console.wait_ready()).await;
        ready.unwrap().unwrap();
        Some(pair)
    }

    /// With another domain, for which something is made on the first host alone.
    async fn with(libvirt: &Path, xml: &str, make: &str) -> Self {
        let pair = Self::idle(libvirt).await;
        pair.a.host.shell(make);
        pair.a.host.virsh(&["destroy", "web"]);
        pair.a.host.virsh(&["undefine", "web"]);
        pair.a.host.define(xml);
        pair.a.host.virsh(&["start", "web"]);
        until("the agent knows that it runs", async || {
            let vms = pair.a.agent().client.vms().await.unwrap();
            vms.iter().any(|vm| vm.name == "web" && vm.pid.is_some())
        })
        .await;
        pair
    }

    /// As fast as it goes.
    async fn unlimited(&self) {
        let limit = LimitRequest {
            scope: LimitScope::Host,
            limit: None,
        };
        self.a.agent().client.limit(&limit).await.unwrap();
    }
}
