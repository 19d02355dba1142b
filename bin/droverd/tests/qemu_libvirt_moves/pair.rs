//! Two hosts with a libvirt and an agent each, which reach each other over two NICs and in no other way, and a domain on the first.

// Each test program uses a part of this.
#![allow(dead_code)]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use drover_api::{
    ClientError, EventKind, EventView, JoinRequest, LibvirtState, LimitRequest, LimitScope,
    MigrateRequest, MigrationPhase, MigrationView, PlanRequest, TokenRequest,
};
use drover_lab::Console;
use drover_libvirt::{Connection, Domain, DomainState};
use drover_plan::{Request, text};
use drover_types::{Convergence, MigrationId};
use tempfile::TempDir;

use crate::common::host::Host;
use crate::common::watched::host_is_up;
use crate::common::{PATIENCE, connect, domain, guest, until};
use crate::support::{Agent, Place};

/// So slow that a test can step in: a domain of 256 MiB takes some ten seconds.
pub const SLOW: &str = "100mbit";

/// Between two looks at what tells nothing by itself.
const POLL: Duration = Duration::from_millis(20);

/// More waits for a libvirtd than it is asked in passing: a request to finish a migration, which has the domain's XML.
const REQUEST: u32 = 1000;

/// With which a cluster of two may lose one.
const ONE_MAY_GO: &str = "[policy]\nkeep = { losses = 0, of = \"host\" }\nvcpus_percent = 1600\n";

/// What is slow is to stay so: only what is ordered to be is reduced.
const UNREDUCED: &str = "reduction = \"off\"\n";

/// Where each host's libvirt is looked for, by itself.
const AUTO: &str = "auto";

/// One host: its libvirt, its agent, and what is known of both.
pub struct Side {
    pub host: Host,
    pub place: Place,
    /// Of its addresses.
    last: u8,
    pub agent: Option<Agent>,
    pub libvirt: Connection,
}

/// Two of them in one cluster, and a domain `web` on the first.
pub struct Pair {
    pub a: Side,
    pub b: Side,
    _folder: TempDir,
}

impl Side {
    async fn alone(libvirt: &Path, name: &'static str, last: u8) -> Self {
        let host = Host::new(libvirt);
        host_is_up(&host).await;
        // What the kernel tells of this host's own interfaces.
        host.shell("mount -t sysfs sysfs /sys");
        let libvirt = connect(&host).await;
        let side = Self {
            host,
            place: Place::named(name),
            last,
            agent: None,
            libvirt,
        };
        side.configure(AUTO);
        side
    }

    /// Has the next agent look for libvirt there.
    pub fn configure(&self, uri: &str) {
        let last = self.last;
        let listen = format!("[api]\nlisten = [\"10.77.0.{last}:7470\"]\n");
        self.place.configure(&format!(
            "{listen}[migration]\ndata_port = 7471\noutage_limit_s = 10\n{UNREDUCED}[libvirt]\nuri = \"{uri}\"\n{ONE_MAY_GO}"
        ));
    }

    pub async fn start_agent(&mut self) {
        self.start_agent_alone().await;
        self.agent_reaches_libvirt().await;
    }

    pub async fn agent_reaches_libvirt(&self) {
        until("the agent reaches libvirt", async || {
            let status = self.agent().client.status().await.unwrap();
            status.libvirt.unwrap().state == LibvirtState::Connected
        })
        .await;
    }

    /// Whatever it finds of libvirt.
    pub async fn start_agent_alone(&mut self) {
        let droverd = self.place.droverd();
        let mut command = Command::new("nsenter");
        command.args(["--all", "--target", &self.host.init().to_string()]);
        command.arg(droverd.get_program()).args(droverd.get_args());
        command
            .env_remove("JOURNAL_STREAM")
            .env_remove("NOTIFY_SOCKET");
        self.agent = Some(self.place.start_by(command).await);
    }

    pub fn agent(&self) -> &Agent {
        self.agent.as_ref().unwrap()
    }

    /// Ends the agent without a word. Its relays go on: their processes are `droverd-relay`, and this host's are all that is seen.
    pub fn kill_agent(&mut self) {
        self.host.shell("pkill -KILL -x droverd");
        self.agent = None;
    }

    pub async fn web(&self) -> Option<Domain> {
        domain(&self.libvirt, "web").await
    }

    pub async fn state(&self) -> Option<DomainState> {
        self.web().await.map(|domain| domain.state)
    }

    /// Once libvirtd was started again.
    pub async fn connect_again(&mut self) {
        self.libvirt = connect(&self.host).await;
    }

    pub async fn migration(&self, id: MigrationId) -> MigrationView {
        self.agent().client.migration(id).await.unwrap()
    }

    /// Has what leaves take no more than this of the host's NICs.
    pub async fn limited(&self, rate: Option<&str>) {
        let limit = LimitRequest {
            scope: LimitScope::Host,
            limit: rate.map(|rate| rate.parse().unwrap()),
        };
        self.agent().client.limit(&limit).await.unwrap();
    }

    /// Waits for a phase, and not beyond the end.
    pub async fn phase_is(&self, id: MigrationId, wanted: MigrationPhase) -> MigrationView {
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
    pub async fn idle(libvirt: &Path) -> Self {
        Self::new(libvirt, TempDir::new().unwrap(), &guest::idle("web")).await
    }

    pub async fn new(libvirt: &Path, folder: TempDir, xml: &str) -> Self {
        Self::prepared(libvirt, folder, xml, |_, _| ()).await.0
    }

    /// With what is made of both hosts before there are agents.
    pub async fn prepared<T>(
        libvirt: &Path,
        folder: TempDir,
        xml: &str,
        prepare: impl FnOnce(&mut Side, &mut Side) -> T,
    ) -> (Self, T) {
        Self::prepared_on([libvirt; 2], folder, xml, prepare).await
    }

    /// The same, with a libvirt for each.
    pub async fn prepared_on<T>(
        [of_a, of_b]: [&Path; 2],
        folder: TempDir,
        xml: &str,
        prepare: impl FnOnce(&mut Side, &mut Side) -> T,
    ) -> (Self, T) {
        let mut a = Side::alone(of_a, "a", 1).await;
        let mut b = Side::alone(of_b, "b", 2).await;
        wire(&a.host, &b.host);
        let made = prepare(&mut a, &mut b);
        for side in [&mut a, &mut b] {
            side.connect_again().await;
            side.start_agent().await;
        }
        let (first, second) = (&a.agent().client, &b.agent().client);
        first.cluster_init().await.unwrap();
        let token = first.cluster_token(&TokenRequest::default()).await;
        let token = token.unwrap().token;
        second.cluster_join(&JoinRequest { token }).await.unwrap();
        a.host.define(xml);
        a.host.virsh(&["start", "web"]);
        until("the agent knows that it runs", async || {
            let vms = a.agent().client.vms().await.unwrap();
            vms.iter().any(|vm| vm.name == "web" && vm.pid.is_some())
        })
        .await;
        let pair = Self {
            a,
            b,
            _folder: folder,
        };
        (pair, made)
    }

    /// Orders it, by a name or an id.
    pub async fn order(&self, called: &str) -> Result<MigrationView, ClientError> {
        let client = &self.a.agent().client;
        client.migrate(&called.parse().unwrap(), &to("b")).await
    }

    /// The same, once it is known by that name.
    pub async fn migrate(&self, name: &str) -> Result<MigrationView, ClientError> {
        let client = &self.a.agent().client;
        until("the agent knows of it", async || {
            let vms = client.vms().await.unwrap();
            vms.iter().any(|vm| vm.name == name)
        })
        .await;
        self.order(name).await
    }

    pub async fn begun(&self) -> MigrationId {
        match self.migrate("web").await {
            Ok(view) => view.id,
            Err(error) => panic!("{error:?}\n{}", self.logs()),
        }
    }

    /// What moves then takes long enough to step in.
    pub async fn slow(&self) {
        self.a.limited(Some(SLOW)).await;
    }

    pub async fn begun_slowly(&self) -> MigrationId {
        self.slow().await;
        let id = self.begun().await;
        self.memory_is_on_its_way(id).await;
        id
    }

    pub async fn memory_is_on_its_way(&self, id: MigrationId) {
        until("memory is on its way", async || {
            let view = self.a.migration(id).await;
            view.phase == MigrationPhase::Transferring && view.bytes.transferred.0 > 1 << 20
        })
        .await;
    }

    /// The plan to empty the first host, as it is read.
    pub async fn drain_plan(&self) -> String {
        let request = Request::Drain {
            hosts: ["a".parse().unwrap()].into(),
            avoid: [].into(),
            with_disks: false,
        };
        let planned = self.a.agent().client.plan(&PlanRequest { request }).await;
        text::plan(&planned.unwrap().plan)
    }

    pub fn logs(&self) -> String {
        let (a, b) = (self.a.agent().log(), self.b.agent().log());
        format!("{a}\n{b}\n{}\n{}", self.a.host.log(), self.b.host.log())
    }

    /// It runs there, and nothing of it is left here.
    pub async fn has_moved(&self, id: MigrationId, state: DomainState) {
        self.a.phase_is(id, MigrationPhase::Completed).await;
        self.b.phase_is(id, MigrationPhase::Running).await;
        assert_eq!(self.a.web().await, None);
        assert_eq!(self.a.host.qemus(), Vec::<String>::new());
        let there = self.b.web().await.unwrap();
        assert_eq!((there.state, there.persistent), (state, true));
        let left = "ls -A /run/libvirt/drover";
        assert_eq!(self.a.host.shell(left), "", "sockets are left");
        assert_eq!(self.b.host.shell(left), "", "sockets are left");
    }

    /// It is as before here, and nothing of it is left there.
    pub async fn has_stayed(&self) {
        assert_eq!(self.a.state().await, Some(DomainState::Running));
        until("nothing is left there", async || {
            self.b.web().await.is_none() && self.b.host.qemus().is_empty()
        })
        .await;
    }
}

/// What is asked for to have a guest go there.
pub fn to(host: &str) -> MigrateRequest {
    MigrateRequest {
        to: host.parse().unwrap(),
        convergence: Convergence::default(),
        channels: None,
        lanes_per_path: None,
        reduction: None,
        with_disks: false,
        id: None,
    }
}

/// Two NICs that join two hosts.
pub fn wire(a: &Host, b: &Host) {
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

impl Pair {
    /// With a domain whose memory is full, once its guest has filled it. None where such guests cannot run here.
    pub async fn busy(libvirt: &Path) -> Option<Self> {
        let (pair, ()) = Self::busy_and_prepared(libvirt, |_, _| ()).await?;
        Some(pair)
    }

    /// The same, with what is made of both hosts before there are agents.
    pub async fn busy_and_prepared<T>(
        libvirt: &Path,
        prepare: impl FnOnce(&mut Side, &mut Side) -> T,
    ) -> Option<(Self, T)> {
        Self::busy_with(libvirt, "", prepare).await
    }

    /// The same, with more devices.
    pub async fn busy_with<T>(
        libvirt: &Path,
        devices: &str,
        prepare: impl FnOnce(&mut Side, &mut Side) -> T,
    ) -> Option<(Self, T)> {
        if guest::lacks_something().await {
            return None;
        }
        let folder = TempDir::new().unwrap();
        let xml = guest::xml("web", folder.path()).await;
        let xml = xml.replace("<memballoon", &format!("{devices}<memballoon"));
        let (pair, made) = Self::prepared(libvirt, folder, &xml, prepare).await;
        let console = Console::default();
        let serial = pair.a.host.path(guest::SERIAL);
        console.attach(&serial, PATIENCE).await.unwrap();
        console.wait_heartbeat(PATIENCE).await.unwrap();
        let ready = tokio::time::timeout(PATIENCE, console.wait_ready()).await;
        ready.unwrap().unwrap();
        Some((pair, made))
    }

    /// The domain comes back from where it went.
    pub async fn comes_back(&self) {
        let client = &self.b.agent().client;
        until("the agent there knows of it", async || {
            let vms = client.vms().await.unwrap();
            vms.iter().any(|vm| vm.name == "web" && vm.pid.is_some())
        })
        .await;
        // Its libvirt tells a moment after that it has left.
        until("the agent here knows of it no more", async || {
            let vms = self.a.agent().client.vms().await.unwrap();
            vms.iter().all(|vm| vm.name != "web")
        })
        .await;
        let ordered = client.migrate(&"web".parse().unwrap(), &to("a")).await;
        let ordered = ordered.unwrap_or_else(|error| panic!("{error:?}\n{}", self.logs()));
        self.b.phase_is(ordered.id, MigrationPhase::Completed).await;
        self.a.phase_is(ordered.id, MigrationPhase::Running).await;
        assert_eq!(self.b.web().await, None);
        assert_eq!(self.b.host.qemus(), Vec::<String>::new());
        assert_eq!(self.a.state().await, Some(DomainState::Running));
    }

    /// One of which all memory was sent, and whose destination's libvirtd does not take it in until it goes on.
    pub async fn begun_and_sent(&self) -> MigrationId {
        let id = self.begun_slowly().await;
        self.b.host.signal_libvirtd("STOP");
        self.unlimited().await;
        until(
            "the destination's libvirtd is asked to finish",
            async || self.b.host.is_asked_to_finish(),
        )
        .await;
        id
    }

    /// All of it is there, with its definition, and stands still.
    pub async fn is_whole_there(&self) {
        until("all of it is there", async || {
            let there = self.b.web().await;
            there.is_some_and(|web| web.persistent && web.state == DomainState::Paused)
        })
        .await;
    }

    /// With another domain, for which something is made on the first host alone.
    pub async fn with(libvirt: &Path, xml: &str, make: &str) -> Self {
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

    /// A link of the first host goes down, and the migration is told to have lost it.
    pub async fn loses(&self, nic: &str, id: MigrationId) {
        self.a.host.shell(&format!("ip link set {nic} down"));
        until("its loss is told", async || {
            let events = self.a.agent().client.events(id).await.unwrap();
            let lost = |event: &EventView| matches!(event.kind, EventKind::PathLost { .. });
            events.iter().any(lost)
        })
        .await;
    }

    /// As fast as it goes.
    pub async fn unlimited(&self) {
        self.a.limited(None).await;
    }
}

impl Host {
    /// Whether a request to finish a migration waits for its libvirtd.
    fn is_asked_to_finish(&self) -> bool {
        let large = format!(
            "ss -xH | awk '$2 == \"ESTAB\" && $5 ~ /libvirt-sock$/ && $3 > {REQUEST}' | wc -l"
        );
        self.shell(&large).trim() != "0"
    }
}

/// The guest goes on there, and finds all of its memory as it left it.
pub async fn verified_on(host: &Host) {
    let console = Console::default();
    let serial = host.path(guest::SERIAL);
    console.attach(&serial, PATIENCE).await.unwrap();
    console.wait_sequence(2, PATIENCE).await.unwrap();
    let verified = console.verify().await.unwrap();
    assert_eq!((verified.pages, verified.bad), ((64 << 20) / 4096, 0));
}
