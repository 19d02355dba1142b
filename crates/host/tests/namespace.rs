//! Interfaces as the kernel lists them, in a network namespace that the test makes.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use drover_host::{LinkChange, LinkEvent, LinkWatch, interfaces};
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
