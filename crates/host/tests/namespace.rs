//! Interfaces as the kernel lists them, in a network namespace that the test makes.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use drover_host::change::ChangeError;
use drover_host::{
    HostError, LinkChange, LinkEvent, LinkWatch, Told, Tree, change, facts, interfaces, route,
};
use drover_tune::facts::{Duplex, Host, Kind};
use drover_tune::{NicSetting, Step};
use drover_types::{BitRate, Interface};

struct Namespace(String);

impl Namespace {
    /// `None`, with a line that says why, where none can be made.
    fn new(what: &str) -> Option<Self> {
        let name = format!("drover-host-{what}-{}", std::process::id());
        match Command::new("ip").args(["netns", "add", &name]).output() {
            Ok(made) if made.status.success() => Some(Self(name)),
            Ok(made) => {
                let why = String::from_utf8_lossy(&made.stderr).trim().to_owned();
                println!("skipped, because no network namespace can be made: {why}");
                None
            }
            Err(error) => {
                println!("skipped, because ip does not run: {error}");
                None
            }
        }
    }

    fn run(&self, command: &[&str]) -> String {
        let done = Command::new("ip")
            .args(["netns", "exec", &self.0])
            .args(command)
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&done.stdout), text(&done.stderr));
        assert!(done.status.success(), "{command:?}: {out}{err}");
        out
    }

    /// Runs an ignored test of this file inside.
    fn test(&self, name: &str) {
        let own = std::env::current_exe().unwrap();
        let said = self.run(&[own.to_str().unwrap(), "--exact", "--ignored", name]);
        assert!(said.contains("1 passed"), "{said}");
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

#[test]
fn interfaces_are_listed_with_addresses_rate_mtu_state_and_queues() {
    let Some(namespace) = Namespace::new("facts") else {
        return;
    };
    let setup = [
        "ip link set lo up",
        "ip link add nic0 mtu 9000 numtxqueues 4 numrxqueues 2 type veth peer name far0",
        "ip link add nic1 type veth peer name far1",
        "ip addr add 10.9.1.1/24 dev nic0",
        "ip addr add fd00:9::1/64 dev nic0 nodad",
        "ip addr add 10.9.2.1 peer 10.9.2.2/32 dev nic1",
        "ip link set nic0 up",
        "ip link set far0 up",
        "ip link set nic1 up",
        "ip link add br0 type bridge",
        "ip link set far1 master br0",
        "ip link add tap0 type veth peer name guest0",
        "ip addr add fe80::1/64 dev tap0 nodad",
        "ip link set tap0 up",
    ];
    for line in setup {
        namespace.run(&line.split(' ').collect::<Vec<_>>());
    }
    namespace.test("inside_the_namespace");
}

#[tokio::test]
#[ignore = "the test above starts it, inside the namespace that it made"]
async fn inside_the_namespace() {
    // With /sys of this namespace, and as if it were that of another one without these.
    for root in ["/", "/nonexistent"] {
        let listed = interfaces(Path::new(root)).await.unwrap();
        check(&listed);
        let told = Told::ask(Path::new(root), "here").await.unwrap();
        let read = facts(&Tree::at(Path::new(root)), &told);
        check_facts(&read, root == "/");
    }
    for (what, from, to) in [
        (NicSetting::Mtu, "9000", "8000"),
        (NicSetting::Feature("rx-gro".into()), "off", "on"),
        (NicSetting::Feature("rx-checksum".into()), "on", "off"),
    ] {
        let nic = "nic0".to_owned();
        let (from, to) = (from.to_owned(), to.to_owned());
        check_change(&Step::Nic {
            nic,
            what,
            from,
            to,
        })
        .await;
    }
    let path = "proc/sys/net/ipv4/tcp_timestamps".to_owned();
    let (from, to) = ("1".to_owned(), "0".to_owned());
    check_change(&Step::File { path, from, to }).await;
    let refused = Step::Nic {
        nic: "nic0".into(),
        what: NicSetting::ReceiveRing,
        from: "1".into(),
        to: "2".into(),
    };
    let error = change::perform(Path::new("/"), &refused).await.unwrap_err();
    assert!(
        error.to_string().contains("nic0 was not changed"),
        "{error}"
    );
    for path in [
        "etc/passwd",
        "proc/sys/../../etc/passwd",
        "proc/sys/net/ipv4/./tcp_timestamps",
        "proc/sys/net/ipv4/ip_forward",
    ] {
        let (path, from, to) = (path.to_owned(), String::new(), "1".to_owned());
        let step = Step::File { path, from, to };
        let error = change::perform(Path::new("/"), &step).await.unwrap_err();
        assert!(matches!(error, ChangeError::NotSet { .. }), "{error}");
    }
}

/// It changes what is there, and its undo gives that back.
async fn check_change(step: &Step) {
    let (Step::File { from, to, .. } | Step::Nic { from, to, .. }) = step;
    let root = Path::new("/");
    assert_eq!(change::current(root, step).await.unwrap(), *from, "{step}");
    change::perform(root, step).await.unwrap();
    assert_eq!(change::current(root, step).await.unwrap(), *to, "{step}");
    change::perform(root, &step.undo()).await.unwrap();
    assert_eq!(change::current(root, step).await.unwrap(), *from, "{step}");
}

fn check_facts(host: &Host, has_folders: bool) {
    assert!(host.nic("lo").is_none(), "{:#?}", host.nics);
    let nic0 = host.nic("nic0").unwrap();
    assert_eq!(
        (nic0.kind, nic0.up, nic0.carrier),
        (Kind::Virtual, true, true)
    );
    let link = nic0.link.get().unwrap();
    assert_eq!(link.speed, Some(BitRate(10_000_000_000)));
    assert_eq!((link.duplex, link.negotiates), (Some(Duplex::Full), None));
    let features = nic0.features.get().unwrap();
    assert!(
        features.active.contains("tx-tcp-segmentation"),
        "{features:?}"
    );
    assert!(features.changeable.contains("rx-gro"), "{features:?}");
    for silent in [
        nic0.fec.get().err(),
        nic0.module.get().err(),
        nic0.pause.get().err(),
    ] {
        assert_eq!(silent, Some("its driver does not tell"));
    }
    assert_eq!(nic0.down.get(), Ok(&None));
    assert_eq!(nic0.port.get(), Err("it has no port of its own"));
    assert!(nic0.dcb.get().is_err() && nic0.health.get().is_err() && nic0.rdma.is_none());
    // A bridge's port without an address, and one with what every link has by itself: nothing is asked.
    for guests in ["far1", "tap0"] {
        assert_eq!(
            host.nic(guests).unwrap().link.get(),
            Err("it has neither hardware nor an address that somebody gave it")
        );
    }
    let tap0 = host.nic("tap0").unwrap();
    assert!(!tap0.addresses.is_empty() && !tap0.is_addressed());
    assert!(nic0.is_addressed());
    // Its far end is down.
    let nic1 = host.nic("nic1").unwrap();
    assert!(nic1.up && !nic1.carrier && nic1.link.get().unwrap().speed.is_some());
    if has_folders {
        assert_eq!(nic0.steering.get().unwrap().receive_queues, 2);
        let br0 = host.nic("br0").unwrap();
        assert_eq!(
            (br0.kind, &br0.lower[..]),
            (Kind::Bridge, &["far1".to_owned()][..])
        );
        assert_eq!(nic0.counters.get().unwrap().receive_errors, 0);
        assert_eq!(nic0.pci.get(), Err("it is on no PCI bus"));
    } else {
        let why = "/sys tells nothing of it in this network namespace";
        assert_eq!(nic0.steering.get(), Err(why));
        assert_eq!(nic0.carrier_changes.get(), Err(why));
        assert!(host.setting("net.ipv4.tcp_rmem").is_err());
    }
}

fn check(listed: &[Interface]) {
    let of = |name: &str| {
        listed
            .iter()
            .find(|interface| interface.name == name)
            .unwrap()
    };
    let addresses = |name| -> Vec<String> {
        let networks = of(name).addresses.iter().map(ToString::to_string);
        networks
            .filter(|network| !network.starts_with("fe80"))
            .collect()
    };
    assert!(of("lo").loopback && of("lo").up && of("lo").speed.is_none());

    let nic0 = of("nic0");
    assert_eq!(addresses("nic0"), ["10.9.1.1/24", "fd00:9::1/64"]);
    assert_eq!(
        nic0.speed,
        Some(BitRate(10_000_000_000)),
        "a veth tells 10 Gbit/s"
    );
    assert_eq!((nic0.mtu, nic0.tx_queues, nic0.rx_queues), (9000, 4, 2));
    assert!(nic0.up && !nic0.loopback);
    assert_eq!(nic0.rdma, None);

    // Its own address, not its peer's; and no carrier, because the far end is down.
    assert_eq!(addresses("nic1"), ["10.9.2.1/32"]);
    assert!(!of("nic1").up);
}

#[tokio::test]
async fn this_machine_lists_its_loopback_interface() {
    let listed = interfaces(Path::new("/")).await.unwrap();
    assert!(listed.iter().any(|interface| interface.loopback));
}

#[test]
fn what_happens_to_links_and_addresses_is_told_as_it_happens() {
    let Some(namespace) = Namespace::new("watch") else {
        return;
    };
    namespace.test("watching_inside_the_namespace");
}

#[tokio::test]
#[ignore = "the test above starts it, inside the namespace that it made"]
async fn watching_inside_the_namespace() {
    let mut watch = LinkWatch::open().await.unwrap();
    let renamed = || LinkChange::Renamed {
        from: "nic0".into(),
    };
    // Each step, and the event that it brings among others.
    let steps = [
        (
            "ip link add nic0 type veth peer name far0",
            "nic0",
            LinkChange::Appeared,
        ),
        ("ip link set far0 up", "", LinkChange::Up),
        ("ip link set nic0 up", "nic0", LinkChange::Up),
        (
            "ip addr add 10.9.1.1/24 dev nic0",
            "nic0",
            LinkChange::Address,
        ),
        (
            "ip addr add fd00:9::1/64 dev nic0",
            "nic0",
            LinkChange::Address,
        ),
        ("ip link set far0 down", "nic0", LinkChange::Down),
        ("ip link set far0 up", "nic0", LinkChange::Up),
        (
            "ip addr del 10.9.1.1/24 dev nic0",
            "nic0",
            LinkChange::AddressGone,
        ),
        ("ip link set nic0 down", "nic0", LinkChange::Down),
        ("ip link set nic0 name lan", "lan", renamed()),
        ("ip link del lan", "lan", LinkChange::Gone),
    ];
    for (step, interface, change) in steps {
        let mut words = step.split(' ');
        let made = Command::new(words.next().unwrap()).args(words).status();
        assert!(made.unwrap().success(), "{step}");
        if interface.is_empty() {
            continue; // without a carrier at the other end nothing is up yet
        }
        let expected = LinkEvent::Changed {
            interface: interface.into(),
            change,
        };
        let told = async { while watch.next().await.unwrap() != expected {} };
        let in_time = tokio::time::timeout(Duration::from_secs(10), told).await;
        assert!(in_time.is_ok(), "{step}: no {expected:?}");
    }
}

#[test]
fn a_route_is_that_of_both_addresses() {
    let Some(namespace) = Namespace::new("route") else {
        return;
    };
    let setup = [
        "ip link set lo up",
        "ip link add nic0 type veth peer name far0",
        "ip link add nic1 type veth peer name far1",
        "ip addr add 10.9.1.1/24 dev nic0",
        "ip addr add 10.9.2.1/24 dev nic1",
        "ip addr add fd00:9:1::1/64 dev nic0 nodad",
        "ip link set nic0 up",
        "ip link set far0 up",
        "ip link set nic1 up",
        "ip link set far1 up",
        "ip route add 10.9.1.77/32 dev nic1",
    ];
    for line in setup {
        namespace.run(&line.split(' ').collect::<Vec<_>>());
    }
    namespace.test("routes_inside_the_namespace");
    // This kernel may have been built without them.
    let rule = "ip rule add from 10.9.1.1 to 10.9.1.88 table 7";
    let rule: Vec<&str> = rule.split(' ').collect();
    let made = Command::new("ip")
        .args(["netns", "exec", &namespace.0])
        .args(rule)
        .status();
    if !made.is_ok_and(|made| made.success()) {
        println!("skipped, because no rule by source can be made: all else was tested");
        return;
    }
    let table = "ip route add default dev nic1 table 7";
    namespace.run(&table.split(' ').collect::<Vec<_>>());
    namespace.test("a_rule_by_source_inside_the_namespace");
}

async fn routed(from: &str, to: &str) -> Result<String, HostError> {
    let ip = |address: &str| -> IpAddr { address.parse().unwrap() };
    route(ip(from), ip(to)).await
}

#[tokio::test]
#[ignore = "the test above starts it, inside the namespace that it made"]
async fn routes_inside_the_namespace() {
    for (from, to, nic) in [
        ("10.9.1.1", "10.9.1.9", "nic0"),
        ("10.9.2.1", "10.9.2.9", "nic1"),
        ("10.9.1.1", "10.9.1.77", "nic1"),
        ("fd00:9:1::1", "fd00:9:1::9", "nic0"),
    ] {
        assert_eq!(routed(from, to).await.unwrap(), nic, "{from} {to}");
    }
    let none = routed("10.9.1.1", "10.9.3.1").await.unwrap_err();
    assert!(matches!(none, HostError::NoRoute { .. }), "{none:?}");
    let foreign = routed("10.9.1.2", "10.9.1.9").await;
    assert!(foreign.is_err(), "{foreign:?}");
}

#[tokio::test]
#[ignore = "the test above starts it, inside the namespace that it made"]
async fn a_rule_by_source_inside_the_namespace() {
    assert_eq!(routed("10.9.1.1", "10.9.1.88").await.unwrap(), "nic1");
}
