//! A domain that a real libvirt migrates to another one, over UNIX sockets that are carried between two hosts which reach
//! each other in no other way. What is found here is what docs/decisions/0036 rests on.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::num::NonZeroU8;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::forward::{Forward, Opened};
use common::host::Host;
use common::protocol::{Between, CONNECT_CLOSE};
use common::watched::host_is_up;
use common::{PATIENCE, connect, domain, guest, happened, library, until};
use drover_lab::Console;
use drover_libvirt::{
    CallError, Closed, Connection, CopiedDisks, Domain, DomainState, Events, Happening, Migrating,
    Migration, NotReady, Ready, Why, abort_job, uri_of_socket,
};
use tempfile::TempDir;
use uuid::Uuid;

on_each_libvirt! {
    disks_that_are_no_other_hosts_are_copied_over_a_socket_of_their_own_before_memory_is
    a_domain_moves_over_carried_sockets_and_stands_still_until_it_is_told_to_run
    when_the_answer_that_ends_a_migration_is_lost_the_source_runs_and_the_destination_does_not
    when_the_sources_libvirtd_dies_before_that_answer_neither_runs
    when_the_sources_libvirtd_dies_after_that_answer_it_ends_its_domain_at_its_start_and_tells_of_no_job_before
    a_migration_goes_on_when_whoever_asked_for_it_is_gone
    when_the_destinations_libvirtd_dies_the_domain_stays_and_nothing_is_left_there
    a_migration_that_is_ended_leaves_the_domain_running_once_its_sockets_are_let_go
    a_domain_that_was_paused_is_told_to_be_and_stays_so_on_either_host
    a_migration_that_nobody_begins_is_not_asked_for
    how_a_migration_ended_is_told_before_its_connection_is_closed
    how_far_a_migration_is_is_told_by_both_ends_and_what_arrived_can_be_taken_away
}

/// Where the sockets are, on each host: names that a URI cannot say as they are.
const CONTROL: &str = "/run/control & 100%.sock";
const MEMORY: &str = "/run/käfer#?.sock";

const DISKS: &str = "/run/disks+%.sock";

/// Files that are each host's own, and the domain's disks in them.
const IMAGES: [(&str, &str, &str); 2] = [
    ("vda", "/run/web.qcow2", "qcow2"),
    ("vdb", "/run/web.img", "raw"),
];

/// Bytes of memory that pass while a test looks at what is on its way.
const SOME: u64 = 2 << 20;

/// Two hosts, and a domain on the first.
struct Pair {
    a: Host,
    b: Host,
    source: Connection,
    destination: Connection,
    control: Forward,
    memory: Forward,
    disks: Option<CopiedDisks>,
    _folder: TempDir,
}

impl Pair {
    /// With a domain that runs firmware only.
    async fn idle(libvirt: &Path) -> Self {
        Self::new(libvirt, TempDir::new().unwrap(), &guest::idle("web")).await
    }

    async fn new(libvirt: &Path, folder: TempDir, xml: &str) -> Self {
        Self::prepared(libvirt, folder, xml, |_, _| ()).await
    }

    /// With what is made on both hosts before the domain is started.
    async fn prepared(
        libvirt: &Path,
        folder: TempDir,
        xml: &str,
        prepare: impl FnOnce(&Host, &Host),
    ) -> Self {
        let (a, b) = (Host::new(libvirt), Host::new(libvirt));
        prepare(&a, &b);
        let (source, destination) = (connect(&a).await, connect(&b).await);
        a.define(xml);
        a.virsh(&["start", "web"]);
        let control = Forward::new(&a.path(CONTROL), &b.socket());
        let memory = Forward::new(&a.path(MEMORY), &b.path(MEMORY));
        Self {
            a,
            b,
            source,
            destination,
            control,
            memory,
            disks: None,
            _folder: folder,
        }
    }

    async fn on_source(&self) -> Option<Domain> {
        domain(&self.source, "web").await
    }

    async fn on_destination(&self) -> Option<Domain> {
        domain(&self.destination, "web").await
    }

    /// A migration that waits for the word to begin.
    async fn ready(&self) -> Ready {
        let uuid = self.on_source().await.unwrap().uuid;
        self.ready_for(uuid).await.unwrap()
    }

    /// The same, of any domain.
    async fn ready_for(&self, domain: Uuid) -> Result<Ready, NotReady> {
        let migration = Migration {
            control: CONTROL.into(),
            memory: MEMORY.into(),
            channels: NonZeroU8::new(3),
            disks: self.disks.clone(),
            auto_converge: true,
            persistent: true,
        };
        Ready::new(library(), &self.a.uri(), domain, &migration).await
    }

    async fn begin(&self) -> Migrating {
        self.ready().await.begin()
    }

    async fn abort(&self, domain: Uuid) {
        abort_job(library(), &self.a.uri(), domain).await.unwrap();
    }

    /// Until all channels are open.
    async fn channels_are_open(&self) {
        until("all channels are open", async || {
            self.memory.opened().len() == 4
        })
        .await;
    }

    /// Until the destination has all of the domain, and stands still: libvirt's finish phase is done there.
    async fn is_finished(&self) {
        until("the destination has it all", async || {
            let arrived = self.on_destination().await;
            arrived.is_some_and(|d| d.persistent && d.state == DomainState::Paused)
        })
        .await;
    }
}

async fn ended(migrating: Migrating) -> Result<(), CallError> {
    let ended = tokio::time::timeout(PATIENCE, migrating.ended());
    ended.await.unwrap()
}

fn state(domain: &Option<Domain>) -> Option<DomainState> {
    domain.as_ref().map(|domain| domain.state)
}

async fn a_domain_moves_over_carried_sockets_and_stands_still_until_it_is_told_to_run(
    libvirt: PathBuf,
) {
    if guest::lacks_something().await {
        return;
    }
    let folder = TempDir::new().unwrap();
    let xml = guest::xml("web", folder.path()).await;
    let pair = Pair::new(&libvirt, folder, &xml).await;
    pair.a.virsh(&["autostart", "web"]);
    let console = Console::default();
    console
        .attach(&pair.a.path(guest::SERIAL), PATIENCE)
        .await
        .unwrap();
    // Nothing is written to it before it has booted: its firmware and kernel read what comes.
    let ready = async {
        console.wait_heartbeat(PATIENCE).await?;
        console.wait_ready().await
    };
    if tokio::time::timeout(PATIENCE, ready).await.is_err() {
        // The time that it has had tells a guest that hangs from one that is starved.
        panic!(
            "not ready: {}",
            pair.a.virsh(&["domstats", "--state", "--cpu-total", "web"])
        );
    }
    let before = pair.on_source().await.unwrap();
    let (mut left, mut arrived) = (pair.source.events(), pair.destination.events());

    ended(pair.begin().await).await.unwrap();

    // The source has let go of it, definition and all; the destination has all and does not run it.
    assert_eq!(pair.on_source().await, None);
    assert_eq!(pair.a.qemus(), Vec::<String>::new());
    let there = pair.on_destination().await.unwrap();
    assert_eq!((there.uuid, there.memory), (before.uuid, before.memory));
    assert_eq!((there.state, there.persistent), (DomainState::Paused, true));
    assert!(
        before.autostart && !there.autostart,
        "autostart does not travel"
    );
    what_was_told(&mut left, &mut arrived).await;
    what_was_opened(&pair);

    // It runs by our word only.
    console
        .attach(&pair.b.path(guest::SERIAL), PATIENCE)
        .await
        .unwrap();
    pair.destination.resume(there.uuid).await.unwrap();
    console.wait_sequence(2, PATIENCE).await.unwrap();
    let verified = console.verify().await.unwrap();
    assert_eq!((verified.pages, verified.bad), ((64 << 20) / 4096, 0));
}

async fn disks_that_are_no_other_hosts_are_copied_over_a_socket_of_their_own_before_memory_is(
    libvirt: PathBuf,
) {
    let disks = IMAGES.map(|(target, file, format)| {
        format!(
            "<disk type='file' device='disk'><driver name='qemu' type='{format}'/><source file='{file}'/>\
             <target dev='{target}' bus='virtio'/></disk>"
        )
    });
    let xml = guest::idle("web").replace("<memballoon", &(disks.concat() + "<memballoon"));
    let folder = TempDir::new().unwrap();
    let mut pair = Pair::prepared(&libvirt, folder, &xml, |a, b| {
        for (_, file, format) in IMAGES {
            for host in [a, b] {
                host.shell(&format!("qemu-img create -q -f {format} {file} 16M"));
            }
            let fill = format!("qemu-io -f {format} -c 'write -P 7 1M 3M' {file}");
            a.shell(&fill);
        }
    })
    .await;
    pair.disks = Some(CopiedDisks {
        socket: DISKS.into(),
        targets: IMAGES.map(|(target, ..)| target.to_owned()).to_vec(),
    });
    let carried = Forward::new(&pair.a.path(DISKS), &pair.b.path(DISKS));
    let uuid = pair.on_source().await.unwrap().uuid;
    pair.memory.hold_after(0);
    let migrating = pair.begin().await;
    pair.channels_are_open().await;
    // Once for each disk, by QEMU itself, before the first connection for memory.
    let opened = carried.opened();
    assert_eq!(opened.len(), IMAGES.len(), "{opened:?}");
    let by_qemu = |opened: &Opened| opened.reached && opened.by.starts_with("qemu");
    assert!(opened.iter().all(by_qemu), "{opened:?}");
    let job = pair.source.job(uuid).await.unwrap().unwrap();
    assert!(
        job.disks_carried >= Some(drover_types::Bytes(6 << 20)),
        "{job:?}"
    );
    pair.memory.release();
    ended(migrating).await.unwrap();

    let there = pair.on_destination().await.unwrap();
    assert_eq!(there.state, DomainState::Paused);
    assert!(!pair.b.path(DISKS).exists(), "QEMU removes its socket");
    for (_, file, format) in IMAGES {
        let [source, destination] = [&pair.a, &pair.b].map(|host| host.path(file));
        let (source, destination) = (source.display(), destination.display());
        let compare = format!("qemu-img compare -U -f {format} -F {format} {source} {destination}");
        let compared = Command::new("sh").args(["-c", &compare]).output().unwrap();
        assert!(compared.status.success(), "{compared:?}");
    }
}

/// The order of what both libvirtds tell.
async fn what_was_told(left: &mut Events, arrived: &mut Events) {
    let at_source = happened(left, Happening::Stopped { left: true }).await;
    assert_eq!(at_source[0], Happening::Round(1));
    let stops = Happening::Suspended { leaving: true };
    assert!(at_source.contains(&stops), "{at_source:?}");
    let job = loop {
        let next = left.next().await;
        let drover_libvirt::Notice::Event(event) = next else {
            panic!("{next:?}");
        };
        if let Happening::JobEnded(job) = event.happening {
            break job;
        }
    };
    assert!(
        job.downtime.is_some() && job.carried > Some(drover_types::Bytes(32 << 20)),
        "{job:?}"
    );
    let at_destination = happened(arrived, Happening::Suspended { leaving: false }).await;
    let begins = Happening::Started { arriving: true };
    assert_eq!(at_destination[0], begins, "{at_destination:?}");
    assert!(
        !at_destination.contains(&Happening::Resumed),
        "{at_destination:?}"
    );
}

/// Who opened which socket, and what became of it.
fn what_was_opened(pair: &Pair) {
    let control = pair.control.opened();
    assert_eq!(control.len(), 1, "{control:?}");
    assert!(
        control[0].reached && control[0].by.contains("libvirtd"),
        "{control:?}"
    );
    let memory = pair.memory.opened();
    let main = memory
        .iter()
        .filter(|opened| opened.first == b"QEVM")
        .count();
    let multifd = [0x11, 0x22, 0x33, 0x44];
    let channels = memory
        .iter()
        .filter(|opened| opened.first == multifd)
        .count();
    assert_eq!((memory.len(), main, channels), (4, 1, 3), "{memory:?}");
    // QEMU connects itself, and finds the destination's listening each time.
    assert!(
        memory
            .iter()
            .all(|opened| opened.reached && opened.by.starts_with("qemu")),
        "{memory:?}"
    );
    assert!(!pair.b.path(MEMORY).exists(), "QEMU removes its socket");
}

async fn when_the_answer_that_ends_a_migration_is_lost_the_source_runs_and_the_destination_does_not(
    libvirt: PathBuf,
) {
    let pair = Pair::idle(&libvirt).await;
    // Memory waits until the last answer that the source is to hear has passed.
    pair.memory.hold_after(0);
    let migrating = pair.begin().await;
    pair.channels_are_open().await;
    pair.control.hold_answers();
    pair.memory.release();
    pair.is_finished().await;
    assert_eq!(state(&pair.on_source().await), Some(DomainState::Paused));
    pair.control.cut();
    let refused = ended(migrating).await.unwrap_err();
    // The connection that was lost is that between the two, not ours.
    assert!(matches!(refused, CallError::Refused { .. }), "{refused:?}");
    until("the source runs it again", async || {
        state(&pair.on_source().await) == Some(DomainState::Running)
    })
    .await;
    assert_eq!(
        state(&pair.on_destination().await),
        Some(DomainState::Paused)
    );
    assert!(pair.on_source().await.unwrap().persistent);
}

async fn when_the_sources_libvirtd_dies_before_that_answer_neither_runs(libvirt: PathBuf) {
    let pair = Pair::idle(&libvirt).await;
    pair.memory.hold_after(0);
    let migrating = pair.begin().await;
    pair.channels_are_open().await;
    pair.control.hold_answers();
    pair.memory.release();
    pair.is_finished().await;
    pair.a.signal_libvirtd("KILL");
    let lost = ended(migrating).await.unwrap_err();
    assert!(matches!(lost, CallError::Lost { .. }), "{lost:?}");
    pair.a.start_libvirtd();
    let source = connect(&pair.a).await;
    let here = domain(&source, "web").await;
    assert_eq!(state(&here), Some(DomainState::Paused));
    assert_eq!(
        state(&pair.on_destination().await),
        Some(DomainState::Paused)
    );
    // Whoever decides for the source has it run there.
    source.resume(here.unwrap().uuid).await.unwrap();
    assert_eq!(
        state(&domain(&source, "web").await),
        Some(DomainState::Running)
    );
}

async fn when_the_sources_libvirtd_dies_after_that_answer_it_ends_its_domain_at_its_start_and_tells_of_no_job_before(
    libvirt: PathBuf,
) {
    let pair = Pair::idle(&libvirt).await;
    let uuid = pair.on_source().await.unwrap().uuid;
    pair.memory.hold_after(0);
    let migrating = pair.begin().await;
    pair.channels_are_open().await;
    pair.control.hold_answers();
    pair.memory.release();
    pair.is_finished().await;
    pair.a.signal_libvirtd("KILL");
    ended(migrating).await.unwrap_err();
    // So it leaves what it has written down from when it has heard until its QEMU has ended.
    let status = "/run/libvirt/qemu/web.xml";
    pair.a
        .shell(&format!("sed -i s/perform3_done/confirm3/ {status}"));
    pair.a.shell(&format!("grep \"phase='confirm3'\" {status}"));
    let qemu = pair.a.qemus().remove(0);
    pair.a.shell(&format!("kill -STOP {qemu}"));
    pair.a.start_libvirtd();
    let source = connect(&pair.a).await;
    let asked = tokio::spawn({
        let source = source.clone();
        async move { source.job(uuid).await }
    });
    // By then it was asked.
    let _second = connect(&pair.a).await;
    pair.a.shell(&format!("kill -CONT {qemu}"));
    let told = asked.await.unwrap();
    assert!(told.is_err(), "{told:?}");
    until("its QEMU is ended", async || pair.a.qemus().is_empty()).await;
    let left = source.look(uuid).await.unwrap().unwrap();
    assert_eq!(left.domain.state, DomainState::ShutOff);
    assert_eq!(left.why, Why::Unfollowed);
    assert_eq!(why(&pair.destination, uuid).await, Some(Why::Asked));
}

async fn a_migration_goes_on_when_whoever_asked_for_it_is_gone(libvirt: PathBuf) {
    let pair = Pair::idle(&libvirt).await;
    pair.memory.hold_after(SOME);
    let migrating = pair.begin().await;
    pair.channels_are_open().await;
    let mut events = pair.source.events();
    drop(migrating);
    pair.memory.release();
    happened(&mut events, Happening::Stopped { left: true }).await;
    pair.is_finished().await;
}

async fn when_the_destinations_libvirtd_dies_the_domain_stays_and_nothing_is_left_there(
    libvirt: PathBuf,
) {
    let pair = Pair::idle(&libvirt).await;
    pair.memory.hold_after(0);
    let migrating = pair.begin().await;
    pair.channels_are_open().await;
    pair.b.signal_libvirtd("KILL");
    // A relay lets go of QEMU's sockets when it hears of the end; with sockets that are held open libvirt waits for them.
    pair.memory.cut();
    let refused = ended(migrating).await.unwrap_err();
    assert!(matches!(refused, CallError::Refused { .. }), "{refused:?}");
    assert_eq!(state(&pair.on_source().await), Some(DomainState::Running));
    pair.b.start_libvirtd();
    let destination = connect(&pair.b).await;
    until("nothing is left of it", async || {
        domain(&destination, "web").await.is_none() && pair.b.qemus().is_empty()
    })
    .await;
}

async fn a_migration_that_is_ended_leaves_the_domain_running_once_its_sockets_are_let_go(
    libvirt: PathBuf,
) {
    let pair = Pair::idle(&libvirt).await;
    pair.memory.hold_after(0);
    let migrating = pair.begin().await;
    pair.channels_are_open().await;
    let uuid = pair.on_source().await.unwrap().uuid;
    pair.abort(uuid).await;
    pair.memory.cut();
    let refused = ended(migrating).await.unwrap_err();
    let CallError::Refused { source, .. } = refused else {
        panic!("{refused:?}");
    };
    assert!(source.words.contains("cancel"), "{source}");
    assert_eq!(state(&pair.on_source().await), Some(DomainState::Running));
    until("nothing is left of it", async || {
        pair.on_destination().await.is_none() && pair.b.qemus().is_empty()
    })
    .await;
    assert_eq!(pair.source.closed(), None::<Closed>);
}

async fn a_domain_that_was_paused_is_told_to_be_and_stays_so_on_either_host(libvirt: PathBuf) {
    let pair = Pair::idle(&libvirt).await;
    pair.a.virsh(&["suspend", "web"]);
    let ready = pair.ready().await;
    assert_eq!(ready.domain().state, DomainState::Paused);
    pair.memory.hold_after(0);
    let migrating = ready.begin();
    pair.channels_are_open().await;
    let uuid = pair.on_source().await.unwrap().uuid;
    pair.abort(uuid).await;
    pair.memory.cut();
    ended(migrating).await.unwrap_err();
    assert_eq!(state(&pair.on_source().await), Some(DomainState::Paused));
    until("nothing is left of it", async || {
        pair.on_destination().await.is_none() && pair.b.qemus().is_empty()
    })
    .await;

    pair.memory.restore();
    ended(pair.begin().await).await.unwrap();
    assert_eq!(pair.on_source().await, None);
    assert_eq!(
        state(&pair.on_destination().await),
        Some(DomainState::Paused)
    );
}

async fn a_migration_that_nobody_begins_is_not_asked_for(libvirt: PathBuf) {
    let pair = Pair::idle(&libvirt).await;
    let running = pair.on_source().await;
    let ready = pair.ready().await;
    assert_eq!(Some(ready.domain()), running.as_ref());
    drop(ready);
    // One that follows has its turn, and finds the domain where it was.
    let ready = pair.ready().await;
    assert_eq!(Some(ready.domain()), running.as_ref());
    assert_eq!(pair.control.opened(), []);
    assert_eq!(pair.on_destination().await, None);

    let refused = pair.ready_for(Uuid::from_u128(7)).await.unwrap_err();
    let NotReady::Call(CallError::Refused { source, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert!(source.is_no_domain(), "{source}");
}

async fn how_a_migration_ended_is_told_before_its_connection_is_closed(libvirt: PathBuf) {
    let host = Host::new(&libvirt);
    host_is_up(&host).await;
    // It is off, so that libvirt refuses to migrate it.
    host.define(&guest::idle("web"));
    let web = domain(&connect(&host).await, "web").await.unwrap();
    let between = Between::new(&host.socket());
    let migration = Migration {
        control: CONTROL.into(),
        memory: MEMORY.into(),
        channels: None,
        disks: None,
        auto_converge: false,
        persistent: true,
    };
    let uri = uri_of_socket(&between.socket());
    let ready = Ready::new(library(), &uri, web.uuid, &migration).await;
    let ready = ready.unwrap();
    between.hold(CONNECT_CLOSE);
    let refused = ended(ready.begin()).await.unwrap_err();
    assert!(matches!(refused, CallError::Refused { .. }), "{refused:?}");
    until("its connection waits to be closed", async || {
        between.held() == 1
    })
    .await;
    between.release();
}

/// Why a domain is in its state.
async fn why(connection: &Connection, domain: Uuid) -> Option<Why> {
    let look = connection.look(domain).await.unwrap();
    look.map(|look| look.why)
}

async fn how_far_a_migration_is_is_told_by_both_ends_and_what_arrived_can_be_taken_away(
    libvirt: PathBuf,
) {
    let pair = Pair::idle(&libvirt).await;
    let uuid = pair.on_source().await.unwrap().uuid;
    pair.source.set_autostart(uuid, true).await.unwrap();
    assert!(pair.on_source().await.unwrap().autostart);
    assert_eq!(pair.source.job(uuid).await.unwrap(), None);
    assert_eq!(pair.destination.look(uuid).await.unwrap(), None);
    pair.memory.hold_after(0);
    let migrating = pair.begin().await;
    pair.channels_are_open().await;
    assert_eq!(why(&pair.destination, uuid).await, Some(Why::Migrating));
    let job = pair.source.job(uuid).await.unwrap().unwrap();
    assert!(job.memory.is_some() && job.remaining.is_some(), "{job:?}");
    let downtime = std::time::Duration::from_millis(100);
    pair.source.set_max_downtime(uuid, downtime).await.unwrap();
    pair.memory.release();
    ended(migrating).await.unwrap();
    assert_eq!(pair.source.look(uuid).await.unwrap(), None);
    assert_eq!(why(&pair.destination, uuid).await, Some(Why::Asked));
    // What has a hypervisor does not lose its definition.
    let kept = pair.destination.undefine(uuid).await.unwrap();
    assert_eq!(kept, Some(DomainState::Paused));
    // Twice, as somebody does who does not know how far he came.
    for _ in 0..2 {
        pair.destination.destroy(uuid).await.unwrap();
    }
    let left = pair.destination.look(uuid).await.unwrap().unwrap();
    assert_eq!(left.domain.state, DomainState::ShutOff);
    for _ in 0..2 {
        assert_eq!(pair.destination.undefine(uuid).await.unwrap(), None);
    }
    assert_eq!(pair.destination.look(uuid).await.unwrap(), None);
}
