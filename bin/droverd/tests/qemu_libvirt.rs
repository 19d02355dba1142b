//! An agent on a host with a real libvirtd: what it tells of the domains, and that it leaves them alone.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../../crates/libvirt/tests/common/mod.rs"]
mod common;
mod support;

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use common::host::Host;
use common::protocol::{Between, Treatment};
use common::watched::host_is_up;
use common::{guest, until};
use drover_api::{
    ClientError, DomainNeedsRequest, ErrorCode, JoinRequest, LibvirtState, LibvirtView,
    StopRequest, TokenRequest, VmSource, VmState, VmView,
};
use drover_libvirt::uri_of_socket;
use drover_tune::facts::{Fact, Guest};
use drover_tune::{Finding, examine};
use support::{Agent, Place};

on_each_libvirt! {
    domains_are_listed_and_followed_and_found_again
    orders_for_a_domain_are_refused_with_what_does_it
    a_domain_and_a_guest_of_one_name_are_both_told_and_do_not_both_run
    a_domain_that_another_host_has_as_a_guest_is_not_to_be_started
    a_guest_is_started_with_a_note_while_libvirt_is_not_reached
    a_guest_is_started_with_a_note_where_libvirt_does_not_tell_of_a_domain_of_its_name
    a_domain_with_one_queue_and_four_processors_is_found_and_mended_by_the_line_that_is_told
}

/// Domains are listed anew after an event within 250 ms; without any after 30 s. Machines for tests are slow.
const SOON: Duration = Duration::from_secs(10);

/// A host with a libvirtd at the system's socket, and an agent on it that finds that by itself.
struct Both {
    host: Host,
    place: Place,
    agent: Agent,
}

impl Both {
    /// With two domains: `web`, which is off, and `batch`, which has no definition and runs.
    async fn new(libvirt: PathBuf) -> Self {
        Self::with(libvirt, "").await
    }

    /// The same with `more` in the agent's configuration.
    async fn with(libvirt: PathBuf, more: &str) -> Self {
        let host = Host::new(&libvirt);
        host_is_up(&host).await;
        host.define(&guest::idle("web"));
        host.create(&guest::idle("batch"));
        let place = Place::new();
        place.configure(&format!("{more}{}", libvirt_at("auto")));
        let agent = place.start_by(inside(&host, &place)).await;
        let both = Self { host, place, agent };
        both.libvirt_is(LibvirtState::Connected).await;
        both
    }

    async fn libvirt(&self) -> LibvirtView {
        libvirt(&self.agent).await
    }

    async fn libvirt_is(&self, state: LibvirtState) {
        libvirt_is(&self.agent, state).await;
    }

    async fn domains(&self) -> Vec<VmView> {
        let vms = self.agent.client.vms().await.unwrap().into_iter();
        vms.filter(|vm| vm.source == VmSource::Libvirt).collect()
    }

    /// Waits until a domain is in this state; how long that took.
    async fn domain_is(&self, name: &str, state: VmState) -> Duration {
        let begun = Instant::now();
        until("a domain is in the state that is wanted", async || {
            let domains = self.domains().await;
            domains
                .iter()
                .any(|vm| vm.name == name && vm.state == state)
        })
        .await;
        begun.elapsed()
    }
}

async fn libvirt(agent: &Agent) -> LibvirtView {
    let status = agent.client.status().await.unwrap();
    status.libvirt.unwrap()
}

async fn libvirt_is(agent: &Agent, state: LibvirtState) {
    until("libvirt is as wanted", async || {
        libvirt(agent).await.state == state
    })
    .await;
}

/// The configuration of an agent that looks at this libvirt.
fn libvirt_at(uri: &str) -> String {
    format!("[libvirt]\nuri = \"{uri}\"\n")
}

/// The agent's command, on the host of the libvirtd.
fn inside(host: &Host, place: &Place) -> Command {
    let droverd = place.droverd();
    let mut command = Command::new("nsenter");
    command.args(["--all", "--target", &host.init().to_string()]);
    command.arg(droverd.get_program()).args(droverd.get_args());
    command
        .env_remove("JOURNAL_STREAM")
        .env_remove("NOTIFY_SOCKET");
    command
}

/// The configuration of an agent that others reach at this port of the host, which has a network of its own.
fn listening(port: u16) -> String {
    format!("[api]\nlisten = [\"127.0.0.1:{port}\"]\n")
}

fn states(vms: &[VmView]) -> Vec<(&str, VmState)> {
    vms.iter().map(|vm| (vm.name.as_str(), vm.state)).collect()
}

fn refused(error: ClientError) -> (ErrorCode, String) {
    let refusal = error.refusal().unwrap_or_else(|| panic!("{error:?}"));
    (refusal.code, refusal.next.clone().unwrap_or_default())
}

async fn domains_are_listed_and_followed_and_found_again(libvirt: PathBuf) {
    let both = Both::new(libvirt).await;
    let (host, view) = (&both.host, both.libvirt().await);
    assert_eq!((view.domains, view.problem), (2, None));
    assert_eq!(view.uri.as_deref(), Some("qemu:///system"));
    assert!(view.version.is_some() && view.hypervisor.is_some());
    let vms = both.domains().await;
    let expected = [("batch", VmState::Running), ("web", VmState::Stopped)];
    assert_eq!(states(&vms), expected);
    let batch = &vms[0];
    assert_eq!((batch.memory.unwrap().0, batch.vcpus), (64 << 20, Some(1)));
    let uuid = host.virsh(&["domuuid", "batch"]);
    assert_eq!(batch.uuid.as_deref(), Some(uuid.trim()));
    let qemu = host.qemus();
    assert_eq!(qemu, [batch.pid.unwrap().to_string()]);

    // What happens is seen by libvirt's events, not by looking again.
    let steps: [(&[&str], &str, VmState); 4] = [
        (&["suspend", "batch"], "batch", VmState::Paused),
        (&["resume", "batch"], "batch", VmState::Running),
        (&["start", "web"], "web", VmState::Running),
        (&["destroy", "web"], "web", VmState::Stopped),
    ];
    for (command, name, state) in steps {
        host.virsh(command);
        let took = both.domain_is(name, state).await;
        println!("{command:?} was seen after {took:?}");
        assert!(took < SOON, "{command:?}: {took:?}");
    }

    host.signal_libvirtd("KILL");
    both.libvirt_is(LibvirtState::Unreachable).await;
    assert!(both.libvirt().await.problem.is_some());
    let lost = both.domains().await;
    let expected = [("batch", VmState::Unreachable), ("web", VmState::Stopped)];
    assert_eq!(states(&lost), expected, "it runs on");
    host.start_libvirtd();
    both.libvirt_is(LibvirtState::Connected).await;
    both.domain_is("batch", VmState::Running).await;
    host.virsh(&["destroy", "batch"]);
    until("it is gone", async || {
        states(&both.domains().await) == [("web", VmState::Stopped)]
    })
    .await;
    assert!(both.agent.log().contains("libvirt is reached"));
}

async fn orders_for_a_domain_are_refused_with_what_does_it(libvirt: PathBuf) {
    let both = Both::new(libvirt).await;
    let client = &both.agent.client;
    let (web, batch) = ("web".parse().unwrap(), "batch".parse().unwrap());
    let force = StopRequest {
        force: true,
        ..StopRequest::default()
    };
    let plainly = StopRequest::default();
    let answers = [
        ("start web", client.start_vm(&web).await),
        ("shutdown batch", client.stop_vm(&batch, &plainly).await),
        ("destroy batch", client.stop_vm(&batch, &force).await),
        // Without a definition nothing is kept for it.
        ("save batch FILE", client.suspend_vm(&batch).await),
    ];
    for (virsh, answer) in answers {
        let (code, next) = refused(answer.unwrap_err());
        assert_eq!(code, ErrorCode::OfLibvirt, "{virsh}");
        assert!(next.ends_with(&format!(": `virsh {virsh}`")), "{next}");
    }
    let uuid = both.domains().await[0].uuid.clone().unwrap();
    let by_id = client.vm(&uuid.parse().unwrap()).await.unwrap();
    assert_eq!(
        (by_id.name.as_str(), by_id.state),
        ("batch", VmState::Running)
    );
    let [needs] = &by_id.notes[..] else {
        panic!("{by_id:?}");
    };
    assert!(needs.contains("needs machine type pc-q35-"), "{needs}");
    let started = client.start_vm(&uuid.to_uppercase().parse().unwrap()).await;
    let (code, next) = refused(started.unwrap_err());
    assert_eq!(code, ErrorCode::OfLibvirt);
    assert_eq!(next, "libvirt says that it is running");

    // Plans know it by its id, and what it needs of another host.
    let inventory = client.inventory().await.unwrap();
    let [known] = &inventory.vms[..] else {
        panic!("{inventory:?}");
    };
    assert_eq!(known.name.as_str(), uuid);
    let called = known.called.as_ref().map(ToString::to_string);
    assert_eq!(called.as_deref(), Some("libvirt's \"batch\""));
    assert_eq!(known.blockers, [], "it can move");
    let [domain] = &inventory.domains[..] else {
        panic!("{inventory:?}");
    };
    assert_eq!((&domain.vm, &domain.uuid), (&known.name, &uuid));
    let needs: Vec<_> = domain.needs.iter().map(ToString::to_string).collect();
    assert!(needs[0].starts_with("machine type pc-q35-"), "{needs:?}");

    // The same host has all of it, but for the domain's own place.
    let asked = DomainNeedsRequest {
        needs: domain.needs.clone(),
    };
    let has = client.domain_needs(&asked).await.unwrap();
    assert_eq!((&has.takes_none, &has.unknown), (&None, &Vec::new()));
    let [taken] = &has.lacks[..] else {
        panic!("{has:?}");
    };
    assert!(taken.why.contains("already has a domain"), "{taken:?}");
    assert!(known.memory_used.0 > 0 && known.memory_used < known.memory);
    let expected = [("batch", VmState::Running), ("web", VmState::Stopped)];
    assert_eq!(states(&both.domains().await), expected);
}

async fn a_domain_and_a_guest_of_one_name_are_both_told_and_do_not_both_run(libvirt: PathBuf) {
    let both = Both::new(libvirt).await;
    both.place.define("web");
    both.host.virsh(&["start", "web"]);
    both.domain_is("web", VmState::Running).await;
    let vms = both.agent.client.vms().await.unwrap();
    let twins: Vec<_> = vms.iter().filter(|vm| vm.name == "web").collect();
    let sources: Vec<_> = twins.iter().map(|vm| vm.source).collect();
    assert_eq!(sources, [VmSource::Drover, VmSource::Libvirt]);
    for twin in twins {
        let problem = twin.problem.as_deref().unwrap_or_default();
        assert!(problem.contains("of this name"), "{twin:?}");
    }
    let web = "web".parse().unwrap();
    let (code, next) = refused(both.agent.client.start_vm(&web).await.unwrap_err());
    assert_eq!(code, ErrorCode::DomainInMemory);
    assert!(next.contains("virsh shutdown web"), "{next}");
    // Once the domain is off the name is the guest's alone.
    both.host.virsh(&["destroy", "web"]);
    both.domain_is("web", VmState::Stopped).await;
    both.agent.start_vm("web").await;
}

async fn a_domain_that_another_host_has_as_a_guest_is_not_to_be_started(libvirt: PathBuf) {
    let both = Both::with(libvirt, &listening(7101)).await;
    let client = &both.agent.client;
    // Another host as far as agents know, which has no libvirt.
    let place = Place::named("b");
    place.configure(&listening(7102));
    place.define("web");
    let other = place.start_by(inside(&both.host, &place)).await;
    other.client.cluster_init().await.unwrap();
    let made = other.client.cluster_token(&TokenRequest::default()).await;
    let token = made.unwrap().token;
    client.cluster_join(&JoinRequest { token }).await.unwrap();
    other.start_vm("web").await;

    let web = "web".parse().unwrap();
    until("it is known that it runs there", async || {
        let shown = client.vm(&web).await.unwrap();
        shown.notes.iter().any(|note| note.starts_with("b has"))
    })
    .await;
    let (code, next) = refused(client.start_vm(&web).await.unwrap_err());
    assert_eq!(code, ErrorCode::NoSuchVm);
    assert!(next.contains("it is on b"), "{next}");
    assert!(!next.contains("virsh"), "{next}");

    // Domains keep no host in its cluster.
    assert_eq!(both.domains().await.len(), 2);
    client.cluster_leave().await.unwrap();
}

/// Starts guest `web`, of which one thing cannot be made sure of: what.
async fn started_with_a_note(agent: &Agent) -> String {
    let view = agent.client.start_vm(&"web".parse().unwrap()).await;
    let view = view.unwrap();
    assert_eq!(view.state, VmState::Running);
    let [note] = &view.notes[..] else {
        panic!("{view:?}");
    };
    note.clone()
}

async fn a_guest_is_started_with_a_note_while_libvirt_is_not_reached(libvirt: PathBuf) {
    let host = Host::new(&libvirt);
    host_is_up(&host).await;
    // It takes connections, and says nothing.
    host.signal_libvirtd("STOP");
    let place = Place::new();
    place.configure(&libvirt_at("auto"));
    place.define("web");
    let agent = place.start_by(inside(&host, &place)).await;
    let note = started_with_a_note(&agent).await;
    assert!(note.contains("not known whether libvirt has"), "{note}");
    let notes = agent.client.inventory().await.unwrap().notes;
    let notes: Vec<_> = notes.iter().map(|note| note.as_str()).collect();
    let is_told = |note: &&str| note.starts_with("libvirt's domains here are not known");
    assert!(notes.iter().any(is_told), "{notes:?}");
    host.signal_libvirtd("CONT");
    libvirt_is(&agent, LibvirtState::Connected).await;
}

async fn a_guest_is_started_with_a_note_where_libvirt_does_not_tell_of_a_domain_of_its_name(
    libvirt: PathBuf,
) {
    /// `VIR_ERR_OPERATION_DENIED`.
    const DENIED: u8 = 29;
    let host = Host::new(&libvirt);
    host_is_up(&host).await;
    host.define(&guest::idle("web"));
    let between = Between::new(&host.socket());
    between.treat("web", Treatment::Refused(DENIED));
    let place = Place::new();
    place.configure(&libvirt_at(&uri_of_socket(&between.socket())));
    place.define("web");
    let agent = place.start_by(inside(&host, &place)).await;
    libvirt_is(&agent, LibvirtState::Connected).await;
    let vms = agent.client.vms().await.unwrap();
    let states: Vec<_> = vms.iter().map(|vm| (vm.source, vm.state)).collect();
    let expected = [
        (VmSource::Drover, VmState::Stopped),
        (VmSource::Libvirt, VmState::Unknown),
    ];
    assert_eq!(states, expected, "{vms:?}");
    let note = started_with_a_note(&agent).await;
    assert!(note.contains("not tell of its domain \"web\""), "{note}");
}

/// The card of the domain that the doctor looks at, and its interface.
const MAC: &str = "52:54:00:12:34:56";
const TAP: &str = "tapweb";

/// Four processors, and a card with one queue.
fn with_one_queue(name: &str) -> String {
    let card = format!(
        "<interface type='ethernet'><mac address='{MAC}'/><target dev='{TAP}'/><model type='virtio'/></interface>"
    );
    let domain = guest::idle(name).replace("<vcpu>1</vcpu>", "<vcpu>4</vcpu>");
    domain.replace("<memballoon", &format!("{card}<memballoon"))
}

/// What the agent tells of the only domain, what is found of its queues, and whether these are right.
async fn looked_at(agent: &Agent) -> (Guest, Vec<Finding>, bool) {
    let host = agent.client.facts().await.unwrap().facts;
    let [domain] = &host.domains.get().unwrap()[..] else {
        panic!("{:?}", host.domains);
    };
    let (domain, report) = (domain.clone(), examine(&[host], &[]));
    let is_right = report.right.iter().any(|one| one.rule == "guest-queues");
    let found = report.findings.into_iter();
    let found = found.filter(|one| one.rule == "guest-queues").collect();
    (domain, found, is_right)
}

/// The line that is told of the only thing that is found.
fn line_of(found: &[Finding]) -> String {
    let [found] = found else {
        panic!("{found:?}");
    };
    assert_eq!(found.subject.domain.as_deref(), Some("web"), "{found:?}");
    assert_eq!(found.subject.nic.as_deref(), Some(MAC));
    assert_eq!(found.found.read, "1 for 4 processors");
    let by_hand = found.found.by_hand.as_deref().unwrap();
    assert!(by_hand.contains("virsh edit web"), "{by_hand}");
    let lines: Vec<_> = found.found.lines.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

async fn a_domain_with_one_queue_and_four_processors_is_found_and_mended_by_the_line_that_is_told(
    libvirt: PathBuf,
) {
    let host = Host::new(&libvirt);
    host_is_up(&host).await;
    host.define(&with_one_queue("web"));
    let place = Place::new();
    place.configure(&libvirt_at("auto"));
    let agent = place.start_by(inside(&host, &place)).await;
    libvirt_is(&agent, LibvirtState::Connected).await;
    let line = "<driver queues='4'/>";
    let (off, found, _) = looked_at(&agent).await;
    assert_eq!(off.seen.get(), Err("it does not run"));
    assert_eq!(line_of(&found), format!("+ {line}"));

    let can_start = host.path("/dev/net/tun").exists();
    if can_start {
        host.virsh(&["start", "web"]);
        until("it is seen to run", async || {
            looked_at(&agent).await.0.seen.known().is_some()
        })
        .await;
        let (runs, found, _) = looked_at(&agent).await;
        let seen = runs.seen.get().unwrap();
        assert_eq!(seen.accelerated, Fact::Known(false));
        assert_eq!(seen.taps, Fact::Known([TAP.to_owned()].into()));
        assert!(seen.pages.get().unwrap().touched.0 > 0);
        let [card] = &seen.cards.get().unwrap()[..] else {
            panic!("{seen:?}");
        };
        assert_eq!((card.mac.as_str(), card.multiqueue), (MAC, false));
        assert_eq!(line_of(&found), format!("+ {line}"));
    } else {
        println!("started it is not looked at, because there is no /dev/net/tun");
    }

    // What is told can be done, and then nothing is found.
    let defined = host.virsh(&["dumpxml", "--inactive", "web"]);
    let model = "<model type='virtio'/>";
    assert_eq!(defined.matches(model).count(), 1, "{defined}");
    host.define(&defined.replace(model, &format!("{model}{line}")));
    if can_start {
        let (_, found, _) = looked_at(&agent).await;
        assert_eq!(line_of(&found), "", "it has still what it was started with");
        host.virsh(&["destroy", "web"]);
        host.virsh(&["start", "web"]);
    }
    until("nothing is found of its queues", async || {
        let (_, found, is_right) = looked_at(&agent).await;
        found.is_empty() && is_right
    })
    .await;
}
