//! The same of libvirt's domains: one with nothing wrong, what can be wrong with one, and the lines of its XML.

use drover_tune::domain::{brief, cards, is_accelerated, read};
use drover_tune::facts::{
    Definition, Domain, Element, Fact, Fact::Known, Guest, Host, Kind, Offer, Pages, Seen,
};
use drover_tune::{Severity, examine};
use drover_types::Bytes;

use crate::guests::{self, guest_findings, nic};
use crate::hosts::{adapter, value, words};

pub const GIB: u64 = 1 << 30;

pub const MAC: &str = "52:54:00:12:34:56";

/// As libvirt tells of one that is not running.
pub const XML: &str = "<domain type='kvm'>
  <memoryBacking>
    <hugepages>
      <page size='2048' unit='KiB'/>
    </hugepages>
    <source type='memfd'/>
    <access mode='shared'/>
    <allocation mode='immediate' threads='4'/>
  </memoryBacking>
  <cpu mode='custom' match='exact' check='partial'>
    <model fallback='forbid'>EPYC-Milan</model>
    <topology sockets='1' dies='1' cores='4' threads='1'/>
    <feature policy='require' name='avx'/>
  </cpu>
  <devices>
    <interface type='bridge'>
      <mac address='52:54:00:12:34:56'/>
      <source bridge='br0'/>
      <model type='virtio'/>
      <driver name='vhost' queues='4' rx_queue_size='1024'/>
      <mtu size='9000'/>
    </interface>
    <interface type='user'>
      <mac address='52:54:00:12:34:57'/>
      <model type='e1000e'/>
    </interface>
  </devices>
</domain>";

/// What is told of it beside, while it runs.
pub const SOURCE: &str = "<source bridge='br0'/>";
const SOURCE_NOW: &str = "<source bridge='br0'/><target dev='tap0'/>";

/// What is wrong with it: other words in both of its XMLs, in their order.
pub type Other = [(&'static str, &'static str)];

pub fn xml(other: &Other) -> String {
    let replaced = |xml: String, (from, to): &(&str, &str)| {
        assert!(xml.contains(from), "{from}");
        xml.replace(from, to)
    };
    other.iter().fold(XML.to_owned(), replaced)
}

/// A domain that does not run.
fn off(next: &str) -> Guest {
    let off = "it does not run";
    Guest {
        name: "web".into(),
        vcpus: 4,
        memory: Bytes(8 * GIB),
        definition: Definition::Libvirt(Domain {
            uri: None,
            persistent: true,
            next: Known(read(next).unwrap()),
            now: Fact::unknown(off),
        }),
        seen: Fact::unknown(off),
    }
}

/// One that runs as it is defined.
pub fn running(next: &str) -> Guest {
    let now = read(&next.replace(SOURCE, SOURCE_NOW)).unwrap();
    let queues = next.matches("queues='4'").count() as u32 * 4;
    let seen = Seen {
        accelerated: is_accelerated(&now).map_or_else(Fact::Unknown, Known),
        cards: Known(cards(&now)),
        vhost: Known(queues.max(1)),
        taps: Known(["tap0".to_owned()].into()),
        pages: Known(Pages {
            touched: Bytes(8 * GIB),
            joined: Bytes(0),
            huge: Bytes(8 * GIB),
        }),
        lockable: Known(Some(Bytes(64 << 10))),
    };
    let mut guest = off(next);
    domain(&mut guest).now = Known(brief(&now));
    guest.seen = Known(seen);
    guest
}

pub fn domain(guest: &mut Guest) -> &mut Domain {
    match &mut guest.definition {
        Definition::Libvirt(domain) => domain,
        Definition::Own(_) => panic!("{} is Drover's", guest.name),
    }
}

/// A host with this domain and no other guest.
pub fn host_with(domain: Guest) -> Host {
    let mut host = guests::healthy("a", 1);
    value(&mut host.guests).clear();
    host.domains = Known(vec![domain]);
    // It is not asked of a domain without it.
    for nic in &mut host.nics {
        nic.rdma = None;
    }
    host
}

fn healthy() -> Host {
    host_with(running(XML))
}

/// What is found of a domain that runs and is otherwise in this: rule, severity, lines.
pub fn found(other: &Other, spoil: impl Fn(&mut Host)) -> (String, Severity, Vec<String>) {
    let mut host = host_with(running(&xml(other)));
    spoil(&mut host);
    let found = guest_findings(&[host]);
    let [only] = &found[..] else {
        panic!("{other:?}: {found:#?}");
    };
    assert_eq!(only.subject.domain.as_deref(), Some("web"), "{only:#?}");
    assert_eq!(only.subject.guest, None);
    let lines = only.found.lines.iter().map(ToString::to_string);
    (only.rule.clone(), only.found.severity, lines.collect())
}

pub fn guest(host: &mut Host) -> &mut Guest {
    &mut value(&mut host.domains)[0]
}

pub fn skipped(host: Host, rule: &str) -> String {
    let report = examine(&[host], &[]);
    let found = report.findings.iter().find(|one| one.rule == rule);
    assert!(found.is_none(), "{found:#?}");
    let mut skipped = report.skipped.iter();
    let skipped = skipped.find(|one| one.rule == rule);
    skipped.map(|one| one.because.clone()).unwrap_or_default()
}

#[test]
fn a_domain_with_nothing_wrong_is_right_by_the_rules_that_ask_about_guests() {
    let mut other = guests::healthy("b", 2);
    value(&mut other.guests).clear();
    let report = examine(&[healthy(), other], &[]);
    let of_guests = |rule: &str| rule.starts_with("guest-");
    let mut findings = report.findings.iter();
    assert!(!findings.any(|one| of_guests(&one.rule)), "{report:#?}");
    let mut skipped = report.skipped.iter();
    assert!(!skipped.any(|one| of_guests(&one.rule)), "{report:#?}");
    let right = report.right.iter().filter(|one| of_guests(&one.rule));
    let right: Vec<_> = right.map(|one| one.subject.to_string()).collect();
    let of_card = format!("a libvirt domain web {MAC}");
    assert_eq!(right.iter().filter(|one| **one == of_card).count(), 3);
    // All but that of RDMA, which its host does not have.
    assert_eq!(right.len(), 7, "{right:?}");
}

#[test]
fn a_domain_with_one_queue_and_four_processors_is_told_its_line() {
    let expected = |line: &str| {
        let line = line.to_owned();
        ("guest-queues".to_owned(), Severity::Notice, vec![line])
    };
    assert_eq!(
        found(&[(" queues='4'", "")], |_| {}),
        expected(
            "- <driver name='vhost' rx_queue_size='1024'/>\n+ <driver name='vhost' rx_queue_size='1024' queues='4'/>"
        )
    );
    let without = ("<driver name='vhost' queues='4' rx_queue_size='1024'/>", "");
    assert_eq!(
        found(&[without], |_| {}),
        expected("+ <driver name='vhost' queues='4'/>")
    );
}

#[test]
fn the_hand_that_changes_a_domain_is_libvirts_own_and_is_told_where() {
    let by_hand = |spoil: fn(&mut Guest)| {
        let mut host = host_with(running(&xml(&[(" queues='4'", "")])));
        spoil(guest(&mut host));
        guest_findings(&[host])[0].found.by_hand.clone().unwrap()
    };
    assert_eq!(
        by_hand(|_| {}),
        format!(
            "virsh edit web, to change it as below, in its <interface> of <mac address='{MAC}'/>: it counts as of the domain's next start, by libvirt"
        )
    );
    let elsewhere = by_hand(|guest| {
        guest.name = "it's 1".into();
        domain(guest).uri = Some("qemu:///session".into());
    });
    assert!(
        elsewhere.starts_with(r"virsh -c qemu:///session edit 'it'\''s 1',"),
        "{elsewhere}"
    );
    let transient = by_hand(|guest| domain(guest).persistent = false);
    assert!(
        transient.starts_with("libvirt has no definition"),
        "{transient}"
    );
    // What was changed, and counts as of its next start.
    let changed = by_hand(|guest| domain(guest).next = Known(read(XML).unwrap()));
    assert!(
        changed.starts_with("its definition says so already"),
        "{changed}"
    );
    assert!(changed.ends_with("start it anew"), "{changed}");
    // A start takes it away.
    let plugged = by_hand(|guest| {
        let gone = XML.replace(MAC, "52:54:00:12:34:58");
        domain(guest).next = Known(read(&gone).unwrap());
    });
    assert!(
        plugged.contains("attach-device") && !plugged.contains("anew"),
        "{plugged}"
    );
    // Of two that have one address the other is an adapter.
    let teamed = by_hand(|guest| {
        let adapter = format!(
            "<interface type='hostdev'><mac address='{MAC}'/><model type='virtio'/></interface></devices>"
        );
        let both = xml(&[(" queues='4'", "")]).replace("</devices>", &adapter);
        domain(guest).next = Known(read(&both).unwrap());
    });
    assert!(
        teamed.contains(&format!("{MAC}'/> that is virtio: it counts")),
        "{teamed}"
    );
}

#[test]
fn each_rule_about_guests_finds_the_one_thing_in_a_domain_that_it_is_for() {
    let notice = |rule: &str, lines: &[&str]| {
        let lines = lines.iter().map(|&line| line.to_owned()).collect();
        (rule.to_owned(), Severity::Notice, lines)
    };
    assert_eq!(
        found(&[("name='vhost'", "name='qemu'")], |_| {}),
        notice(
            "guest-vhost",
            &[
                "- <driver name='qemu' queues='4' rx_queue_size='1024'/>\n+ <driver name='vhost' queues='4' rx_queue_size='1024'/>"
            ]
        )
    );
    let (rule, severity, lines) = found(&[], |host| {
        value(&mut guest(host).seen).vhost = Known(0);
    });
    assert_eq!(
        (rule.as_str(), severity, lines.len()),
        ("guest-vhost", Severity::Warning, 0)
    );
    let (rule, severity, lines) = found(&[], |host| nic(host, "tap0").mtu = 1500);
    assert_eq!((rule.as_str(), severity), ("guest-mtu", Severity::Critical));
    assert_eq!(lines, ["- <mtu size='9000'/>\n+ <mtu size='1500'/>"]);
    let small = found(&[("size='9000'", "size='1500'")], |_| {});
    assert_eq!(
        small,
        notice("guest-mtu", &["- <mtu size='1500'/>\n+ <mtu size='9000'/>"])
    );
    let slow = found(
        &[(
            " threads='4'/>\n  </memoryBacking>",
            " threads='1'/>\n  </memoryBacking>",
        )],
        |host| {
            guest(host).memory = Bytes(64 * GIB);
        },
    );
    assert_eq!(
        slow,
        notice(
            "guest-prealloc",
            &[
                "-   <allocation mode='immediate' threads='1'/>\n+   <allocation mode='immediate' threads='4'/>"
            ]
        )
    );
    let huge = "<hugepages>
      <page size='2048' unit='KiB'/>
    </hugepages>";
    let small = found(&[(huge, "")], |host| {
        host.memory.joins_shared = Known("never".into());
    });
    assert_eq!(
        small,
        notice(
            "guest-pages",
            &[
                "+   <hugepages>",
                "+     <page size='2048' unit='KiB'/>",
                "+   </hugepages>"
            ]
        )
    );
    // What libvirt refuses with huge pages goes.
    let on_demand = ("mode='immediate' threads='4'", "mode='ondemand'");
    let (_, _, lines) = found(&[(huge, ""), on_demand], |host| {
        host.memory.joins_shared = Known("never".into());
    });
    assert_eq!(
        lines[0],
        "-   <allocation mode='ondemand'/>\n+   <hugepages>"
    );
    assert_eq!(lines.len(), 3, "{lines:?}");
    let threads = ("mode='immediate'", "mode='ondemand'");
    let (_, _, lines) = found(&[(huge, ""), threads], |host| {
        host.memory.joins_shared = Known("never".into());
    });
    let gone = "-   <allocation mode='ondemand' threads='4'/>";
    let without = "+   <allocation threads='4'/>";
    let lines = lines.join("\n");
    assert!(lines.contains(gone) && lines.contains(without), "{lines}");
    assert_eq!(found(&[LIMITED], with_rdma), notice("guest-locked", &[]));
}

pub fn with_rdma(host: &mut Host) {
    let rdma = adapter("ens1f0", "10.0.0.1/24").rdma;
    nic(host, "ens1f0").rdma = rdma;
}

/// Less than its memory, and more.
pub const LIMITED: (&str, &str) = (
    "</domain>",
    "<memtune><hard_limit unit='GiB'>4</hard_limit></memtune></domain>",
);
pub const AMPLE: (&str, &str) = (
    "</domain>",
    "<memtune><hard_limit unit='GiB'>9</hard_limit></memtune></domain>",
);

#[test]
fn a_domain_that_does_not_run_is_looked_at_by_its_definition() {
    let report = examine(
        &[host_with(off(&xml(&[("size='9000'", "size='9100'")])))],
        &[],
    );
    let mut found = report.findings.iter();
    let mtu = found.find(|one| one.rule == "guest-mtu").unwrap();
    // By the bridge that its interface is to be in.
    assert_eq!(
        mtu.found.read,
        "the guest is told 9100 bytes, and ens1f0 takes 9000"
    );
    // A network's bridge is told only while it runs.
    let network = (SOURCE, "<source network='default'/>");
    let typed = ("type='bridge'", "type='network'");
    let host = host_with(off(&xml(&[network, typed])));
    assert_eq!(skipped(host, "guest-mtu"), "it does not run");
    // It may hand over an adapter, which has no queues of libvirt's.
    let host = host_with(off(&xml(&[network, typed, (" queues='4'", "")])));
    let found = guest_findings(&[host]);
    assert_eq!(found[0].rule, "guest-queues");
    let by_hand = found[0].found.by_hand.as_ref().unwrap();
    assert!(
        by_hand.contains("only where its network has a bridge"),
        "{by_hand}"
    );
    // An Open vSwitch's port of its name limits nothing.
    let mut host = host_with(off(XML));
    nic(&mut host, "br0").kind = Kind::Virtual;
    nic(&mut host, "br0").mtu = 1500;
    let why = skipped(host, "guest-mtu");
    assert_eq!(why, "br0 is no bridge of the kernel's");
}

#[test]
fn other_hosts_have_the_processor_and_the_huge_pages_of_a_domain_or_it_is_found() {
    let cpu = |other: &Other, hardware: Offer| {
        let mut there = guests::healthy("b", 2);
        value(&mut there.guests).clear();
        value(&mut there.offers).hardware = Some(hardware);
        let found = guest_findings(&[host_with(running(&xml(other))), there]);
        let found = found.into_iter().find(|one| one.rule == "guest-cpu");
        found.map(|one| {
            let lines = one.found.lines.iter().map(ToString::to_string);
            (one.found.read, lines.collect::<Vec<_>>())
        })
    };
    let older = || Offer {
        models: words(&["EPYC", "host"]),
        features: words(&["avx", "sse4.1"]),
        lacking: [("EPYC-Milan".to_owned(), words(&["pku"]))].into(),
    };
    let lines = vec![
        "-   <model fallback='forbid'>EPYC-Milan</model>\n+   <model fallback='forbid'>EPYC</model>"
            .to_owned(),
    ];
    let lines_of_cpu = |read: &str| {
        let begin = "- <cpu mode='custom' match='exact' check='partial'>\n+ <cpu mode='custom' match='exact'>";
        let lines = [begin.to_owned()].into_iter().chain(lines.clone());
        Some((read.to_owned(), lines.collect()))
    };
    assert_eq!(cpu(&[], older()), lines_of_cpu("EPYC-Milan: b lacks pku"));
    // Of several features of one policy each is asked for.
    let several = (
        "<feature policy='require' name='avx'/>",
        "<feature policy='require' name='avx2'/><feature policy='require' name='avx'/>",
    );
    let (read, _) = cpu(&[several], older()).unwrap();
    assert_eq!(read, "EPYC-Milan: b lacks avx2, pku");
    // What was taken from it nobody has to have.
    let disabled = (
        "<feature policy='require' name='avx'/>",
        "<feature policy='disable' name='pku'/>",
    );
    assert_eq!(cpu(&[disabled], older()), None);
    let model_of_host = ("<model fallback='forbid'>EPYC-Milan</model>", "");
    let passed = (
        "<cpu mode='custom' match='exact' check='partial'>",
        "<cpu mode='host-passthrough' check='none' migratable='on'>",
    );
    let (read, lines) = cpu(&[model_of_host, passed], older()).unwrap();
    assert_eq!(read, "host: b lacks avx2");
    assert_eq!(
        lines,
        [
            "- <cpu mode='host-passthrough' check='none' migratable='on'>\n+ <cpu mode='custom' match='exact'>",
            "+   <model fallback='forbid'>EPYC</model>"
        ]
    );

    // libvirt takes what is the host's for no other model.
    let of_host = (
        "<topology",
        "<cache mode='passthrough'/><maxphysaddr mode='passthrough'/><topology",
    );
    let (_, lines) = cpu(&[model_of_host, passed, of_host], older()).unwrap();
    assert_eq!(
        lines[1..],
        [
            "-   <cache mode='passthrough'/>\n+   <model fallback='forbid'>EPYC</model>",
            "-   <maxphysaddr mode='passthrough'/>"
        ]
    );
    let emulated = ("<topology", "<cache level='3' mode='emulate'/><topology");
    let (_, lines) = cpu(&[model_of_host, passed, emulated], older()).unwrap();
    assert_eq!(lines.len(), 2, "{lines:?}");

    let mut there = guests::healthy("b", 2);
    value(&mut there.guests).clear();
    value(&mut there.memory.huge).clear();
    let found = guest_findings(&[healthy(), there]);
    assert_eq!(found[0].rule, "guest-huge-pages");
    assert_eq!(
        found[0].found.read,
        "it takes 4096 pages of 2 MiB; free: b has 0 of 0"
    );
}

#[test]
fn what_is_not_known_of_a_domain_is_skipped_with_its_reason_and_of_libvirt_once() {
    let mut host = healthy();
    host.guests = Known(Vec::new());
    host.domains = Fact::unknown("libvirt is not reached");
    let report = examine(&[host], &[]);
    let of_guests = report
        .skipped
        .iter()
        .filter(|one| one.rule.starts_with("guest-"));
    let why: Vec<_> = of_guests.map(|one| one.because.as_str()).collect();
    assert_eq!(why, ["libvirt is not reached"; 8]);

    let mut host = healthy();
    domain(guest(&mut host)).next = Fact::unknown("libvirt did not describe it");
    for rule in ["guest-queues", "guest-mtu", "guest-pages", "guest-cpu"] {
        assert_eq!(
            skipped(host.clone(), rule),
            "libvirt did not describe it",
            "{rule}"
        );
    }
    // One that runs is not looked at by what it will be.
    let mut host = healthy();
    domain(guest(&mut host)).now = Fact::<Element>::unknown("libvirt hangs");
    assert_eq!(skipped(host, "guest-queues"), "libvirt hangs");

    let of = |other: &Other, rule| skipped(host_with(running(&xml(other))), rule);
    let model = ("<cpu mode='custom'", "<cpu mode='host-model'");
    assert!(of(&[model], "guest-cpu").contains("(host-model)"));
    let least = ("match='exact'", "match='minimum'");
    assert!(of(&[least], "guest-cpu").contains("(minimum)"));
    let emulated = ("<domain type='kvm'>", "<domain type='qemu'>");
    assert!(of(&[emulated], "guest-vhost").contains("emulated"));
    let other = ("<domain type='kvm'>", "<domain type='xen'>");
    assert!(of(&[other], "guest-queues").contains("another kind"));
    // Nobody but libvirt asks the agent inside.
    let agent = (
        "</devices>",
        "<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel></devices>",
    );
    let untold = ("<mtu size='9000'/>", "");
    assert!(of(&[agent, untold], "guest-mtu").contains("tainted"));
    let parts = ("unit='KiB'/>", "unit='KiB' nodeset='1'/>");
    assert!(of(&[parts], "guest-huge-pages").contains("pages of their own"));
}

#[test]
fn what_qemu_is_given_beside_what_libvirt_knows_is_not_taken_for_right() {
    let given = |args: &str| {
        let args = args.split(' ').map(|arg| format!("<arg value='{arg}'/>"));
        let args: String = args.collect();
        let end = format!("<commandline>{args}</commandline></domain>");
        XML.replace("</domain>", &end)
    };
    let of = |args: &str, rule| skipped(host_with(running(&given(args))), rule);
    for (args, rule) in [
        ("-cpu host", "guest-cpu"),
        ("-netdev tap,id=n0", "guest-queues"),
        ("-object memory-backend-memfd,id=m,size=8G", "guest-pages"),
        (
            "-object {&quot;qom-type&quot;:&quot;memory-backend-ram&quot;}",
            "guest-pages",
        ),
        ("-global virtio-net-pci.mq=off", "guest-queues"),
    ] {
        let why = of(args, rule);
        assert!(why.contains("libvirt knows nothing of"), "{args}: {why}");
    }
    let other = "<override><device alias='net0'/></override></domain>";
    let host = host_with(running(&XML.replace("</domain>", other)));
    let why = skipped(host, "guest-queues");
    assert!(why.contains("<qemu:override>"), "{why}");
    assert_eq!(
        of("-fw_cfg name=opt/x", "guest-cpu"),
        "no other host was looked at: `drover doctor --all` does"
    );
}

#[test]
fn domains_are_told_as_guests_are_and_read_again_as_what_they_are() {
    let mut host = healthy();
    host.guests = Known(vec![guests::guest("a")]);
    let text = serde_json::to_string(&host).unwrap();
    let read: Host = serde_json::from_str(&text).unwrap();
    assert_eq!(read, host);
    // An agent that knows no domains tells none, which is not known.
    let mut older: serde_json::Value = serde_json::from_str(&text).unwrap();
    older.as_object_mut().unwrap().remove("domains");
    let older: Host = serde_json::from_value(older).unwrap();
    assert!(older.domains.get().is_err() && older.guests == host.guests);
}
