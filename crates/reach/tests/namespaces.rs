//! Paths between hosts that are network namespaces, with a router between them.
//!
//! ```text
//!   near ── a0 ═══ ra ── router ── rb ═══ b0 ── far
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are tests too"
)]

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use drover_reach::limits::{PATIENCE_LEAST, PATIENCE_MOST};
use drover_reach::{
    Answered, Answerer, Beyond, Budget, Largest, NotAsked, Order, Question, Report, Ticket,
    Unfinished, ask, ask_sizes,
};
use drover_types::Bytes;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(20);

/// Namespaces of one test; they go with it.
struct Network(Vec<String>);

impl Network {
    /// `None`, with a line that says why, where none can be made.
    fn new(test: &str, hosts: &[&str], setup: &[&str]) -> Option<Self> {
        let mut network = Self(Vec::new());
        for host in hosts {
            let name = format!("drover-reach-{test}-{host}-{}", std::process::id());
            match Command::new("ip").args(["netns", "add", &name]).output() {
                Ok(made) if made.status.success() => network.0.push(name),
                Ok(made) => {
                    let why = String::from_utf8_lossy(&made.stderr).trim().to_owned();
                    println!("skipped, because no network namespace can be made: {why}");
                    return None;
                }
                Err(error) => {
                    println!("skipped, because ip does not run: {error}");
                    return None;
                }
            }
        }
        for host in hosts {
            network.run(host, "ip link set lo up");
            // No duplicates are looked for: an address is there as soon as its link is.
            network.run(host, "sysctl -qw net.ipv6.conf.all.accept_dad=0");
            network.run(host, "sysctl -qw net.ipv6.conf.default.accept_dad=0");
        }
        for line in setup {
            let (host, command) = line.split_once(": ").unwrap();
            network.run(host, command);
        }
        for host in hosts {
            network.settle(host);
        }
        Some(network)
    }

    /// Waits until each of the links there has an address of its own: the kernel may take a second to see that one carries, and
    /// until then nobody's neighbours are resolved by it.
    fn settle(&self, host: &str) {
        let end = Instant::now() + LONG;
        loop {
            let links = self.run(host, "ip -o link show type veth");
            let ready = self.run(host, "ip -o -6 addr show scope link -tentative");
            if ready.lines().count() == links.lines().count() {
                return;
            }
            assert!(Instant::now() < end, "{host}: {links}{ready}");
            thread::sleep(SHORT);
        }
    }

    fn name(&self, host: &str) -> &str {
        let part = format!("-{host}-");
        self.0.iter().find(|name| name.contains(&part)).unwrap()
    }

    /// Runs a command there; `@host` in it is that host's namespace.
    fn run(&self, host: &str, command: &str) -> String {
        let words = command.split(' ').map(|word| match word.strip_prefix('@') {
            Some(host) => self.name(host).to_owned(),
            None => word.to_owned(),
        });
        let done = Command::new("ip")
            .args(["netns", "exec", self.name(host)])
            .args(words)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{host}: {command}: {said}");
        String::from_utf8_lossy(&done.stdout).into_owned()
    }

    /// Does it on a thread of its own there, within a runtime.
    fn within<T: Send>(&self, host: &str, work: impl AsyncFnOnce() -> T + Send) -> T {
        let file = File::open(format!("/run/netns/{}", self.name(host))).unwrap();
        thread::scope(|scope| {
            let there = scope.spawn(move || {
                let network = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(file.as_fd(), network).unwrap();
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .unwrap();
                runtime.block_on(work())
            });
            there.join().unwrap()
        })
    }

    /// Has `far` answer at an address, and asks from `near`.
    fn ask(
        &self,
        order: Order,
        at: IpAddr,
        question: impl FnOnce(SocketAddr) -> Question + Send,
    ) -> Report {
        self.ask_both(order, at, question).0
    }

    /// The same, and what the answerer says of it.
    fn ask_both(
        &self,
        order: Order,
        at: IpAddr,
        question: impl FnOnce(SocketAddr) -> Question + Send,
    ) -> (Report, Answered) {
        self.ask_with(order, at, |remote| {
            let question = question(remote);
            async move { ask(&question).await }
        })
    }

    /// The same, asked in another way.
    fn ask_with<F>(
        &self,
        order: Order,
        at: IpAddr,
        asks: impl FnOnce(SocketAddr) -> F + Send,
    ) -> (Report, Answered)
    where
        F: Future<Output = Result<Report, NotAsked>>,
    {
        let (tell, told) = mpsc::channel();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        thread::scope(|scope| {
            let answering = scope.spawn(move || {
                self.within("far", async move || {
                    let answerer = Answerer::bind(SocketAddr::new(at, 0), order).unwrap();
                    tell.send(answerer.local()).unwrap();
                    answerer.run(async move { drop(stopped.await) }).await
                })
            });
            let remote = told.recv().unwrap();
            let asked = self.within("near", async move || asks(remote).await.unwrap());
            let _ = stop.send(());
            (asked, answering.join().unwrap())
        })
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

/// Both ends take 9000 bytes, and the router's link to the far one 1400.
const ROUTED: &[&str] = &[
    "near: ip link add a0 mtu 9000 type veth peer name ra mtu 9000 netns @router",
    "far: ip link add b0 mtu 9000 type veth peer name rb mtu 1400 netns @router",
    "near: ip addr add 10.9.1.1/24 dev a0",
    "near: ip addr add fd00:9:1::1/64 dev a0 nodad",
    "far: ip addr add 10.9.2.1/24 dev b0",
    "far: ip addr add fd00:9:2::1/64 dev b0 nodad",
    "router: ip addr add 10.9.1.2/24 dev ra",
    "router: ip addr add fd00:9:1::2/64 dev ra nodad",
    "router: ip addr add 10.9.2.2/24 dev rb",
    "router: ip addr add fd00:9:2::2/64 dev rb nodad",
    "router: sysctl -qw net.ipv4.ip_forward=1",
    "router: sysctl -qw net.ipv6.conf.all.forwarding=1",
    "near: ip link set a0 up",
    "far: ip link set b0 up",
    "router: ip link set ra up",
    "router: ip link set rb up",
    "near: ip route add default via 10.9.1.2",
    "near: ip route add default via fd00:9:1::2",
    "far: ip route add default via 10.9.2.2",
    "far: ip route add default via fd00:9:2::2",
];

fn ip(address: &str) -> IpAddr {
    address.parse().unwrap()
}

fn order(ticket: &Ticket, asker: &str) -> Order {
    Order {
        ticket: ticket.clone(),
        askers: vec![ip(asker)],
        time: LONG,
    }
}

fn question(ticket: &Ticket, local: &str, remote: SocketAddr) -> Question {
    Question {
        interface: "a0".into(),
        local: ip(local),
        remote,
        ticket: ticket.clone(),
        mtu: 9000,
        far_mtu: 9000,
        rate: None,
        budget: Budget {
            time: LONG,
            ..Budget::default()
        },
    }
}

fn largest(size: u32, beyond: Beyond) -> Option<Largest> {
    Some(Largest { size, beyond })
}

#[test]
fn a_router_that_says_what_it_takes_is_believed_and_what_vanishes_is_a_black_hole_of_its_exact_size_in_both_families()
 {
    let Some(network) = Network::new("hole", &["near", "router", "far"], ROUTED) else {
        return;
    };
    for (near, far) in [("10.9.1.1", "10.9.2.1"), ("fd00:9:1::1", "fd00:9:2::1")] {
        let ticket = Ticket::random().unwrap();
        let report = network.ask(order(&ticket, near), ip(far), |remote| {
            question(&ticket, near, remote)
        });
        assert_eq!(report.unfinished, None, "{report:?}");
        assert_eq!(report.there, largest(1400, Beyond::Refused), "{report:?}");
        // What comes to a veth may have the four bytes of a VLAN's tag more than its MTU.
        assert_eq!(report.back, largest(1404, Beyond::Lost), "{report:?}");
        assert_eq!(report.arrivals.keys().collect::<Vec<_>>(), ["a0"]);
        assert_eq!((report.trips.sent, report.trips.answered), (100, 100));
        let trip = report.trips.round_trip.unwrap();
        assert!(trip.least <= trip.median && trip.median <= trip.most);
    }
}

#[test]
fn sizes_alone_are_the_same_as_among_all_that_is_asked_and_cost_no_small_packets() {
    let Some(network) = Network::new("sizes", &["near", "router", "far"], ROUTED) else {
        return;
    };
    let ticket = Ticket::random().unwrap();
    let sizes = |patience: Duration| {
        network.ask_with(order(&ticket, "10.9.1.1"), ip("10.9.2.1"), |remote| {
            let question = question(&ticket, "10.9.1.1", remote);
            async move { ask_sizes(&question, patience).await }
        })
    };
    for patience in [PATIENCE_LEAST, PATIENCE_MOST] {
        let (report, _) = sizes(patience);
        assert_eq!(report.unfinished, None, "{report:?}");
        assert_eq!(report.there, largest(1400, Beyond::Refused), "{report:?}");
        assert_eq!(report.back, largest(1404, Beyond::Lost), "{report:?}");
        assert_eq!(report.trips.sent, 0);
    }
    network.run("near", "ip route del default");
    let (report, _) = sizes(PATIENCE_LEAST);
    assert!(report.unfinished.is_some() && report.there.is_none());
}

#[test]
fn a_path_that_carries_what_both_ends_take_has_nothing_beyond() {
    let Some(network) = Network::new("whole", &["near", "router", "far"], ROUTED) else {
        return;
    };
    network.run("router", "ip link set rb mtu 9000");
    let ticket = Ticket::random().unwrap();
    let asked = |far_mtu| {
        network.ask(order(&ticket, "10.9.1.1"), ip("10.9.2.1"), |remote| {
            Question {
                far_mtu,
                ..question(&ticket, "10.9.1.1", remote)
            }
        })
    };
    let report = asked(9000);
    assert_eq!(report.there, largest(9000, Beyond::NotTried), "{report:?}");
    assert_eq!(report.back, largest(9000, Beyond::NotTried), "{report:?}");
    // The other end's interface takes less than it was said to.
    network.run("far", "ip link set b0 mtu 2000");
    assert_eq!(asked(9000).back, largest(2000, Beyond::Refused));
}

#[test]
fn questions_come_from_the_address_that_is_claimed_and_not_from_the_first_one_of_its_interface() {
    let Some(network) = Network::new("second", &["near", "router", "far"], ROUTED) else {
        return;
    };
    network.run("near", "ip addr add 10.9.1.5/24 dev a0");
    let ticket = Ticket::random().unwrap();
    let report = network.ask(order(&ticket, "10.9.1.5"), ip("10.9.2.1"), |remote| {
        question(&ticket, "10.9.1.5", remote)
    });
    assert_eq!((report.trips.sent, report.trips.answered), (100, 100));
}

#[test]
fn answers_that_arrive_by_another_interface_are_told_by_its_name() {
    let setup = [
        "near: ip link add a0 type veth peer name b0 netns @far",
        "near: ip link add a1 type veth peer name b1 netns @far",
        "near: ip addr add 10.9.1.1/24 dev a0",
        "near: ip addr add 10.9.2.1/24 dev a1",
        "far: ip addr add 10.9.1.2/24 dev b0",
        "far: ip addr add 10.9.2.2/24 dev b1",
        "near: sysctl -qw net.ipv4.conf.all.rp_filter=0",
        "near: sysctl -qw net.ipv4.conf.a1.rp_filter=0",
        "near: ip link set a0 up",
        "near: ip link set a1 up",
        "far: ip link set b0 up",
        "far: ip link set b1 up",
        "far: ip route add 10.9.1.1/32 via 10.9.2.1 dev b1",
    ];
    let Some(network) = Network::new("arrival", &["near", "far"], &setup) else {
        return;
    };
    let ticket = Ticket::random().unwrap();
    let report = network.ask(order(&ticket, "10.9.1.1"), ip("10.9.1.2"), |remote| {
        Question {
            mtu: 1500,
            far_mtu: 1500,
            ..question(&ticket, "10.9.1.1", remote)
        }
    });
    assert_eq!(report.trips.answered, 100, "{report:?}");
    assert_eq!(report.arrivals.keys().collect::<Vec<_>>(), ["a1"]);
}

#[test]
fn a_neighbour_that_is_not_found_at_once_is_no_loss() {
    let setup = [
        "near: ip link add a0 type veth peer name b0 netns @far",
        "near: ip addr add 10.9.1.1/24 dev a0",
        "far: ip addr add 10.9.1.2/24 dev b0",
        "near: ip link set a0 up",
        "far: ip link set b0 up",
        "far: nft add table netdev lossy",
        "far: nft add chain netdev lossy b0 { type filter hook ingress device b0 priority 0; }",
        // The first, the third and so on.
        "far: nft add rule netdev lossy b0 meta protocol arp numgen inc mod 2 == 0 drop",
    ];
    let Some(network) = Network::new("neighbour", &["near", "far"], &setup) else {
        return;
    };
    let ticket = Ticket::random().unwrap();
    let report = network.ask(order(&ticket, "10.9.1.1"), ip("10.9.1.2"), |remote| {
        question(&ticket, "10.9.1.1", remote)
    });
    assert_eq!((report.trips.sent, report.trips.answered), (100, 100));
    assert_eq!(report.unfinished, None, "{report:?}");
}

#[test]
fn who_has_another_ticket_or_was_not_named_hears_nothing() {
    let Some(network) = Network::new("stranger", &["near", "router", "far"], ROUTED) else {
        return;
    };
    let (ticket, other) = (Ticket::random().unwrap(), Ticket::random().unwrap());
    for (order, with) in [
        (order(&ticket, "10.9.1.1"), &other),
        (order(&ticket, "10.9.1.77"), &ticket),
    ] {
        let report = network.ask(order, ip("10.9.2.1"), |remote| {
            question(with, "10.9.1.1", remote)
        });
        assert_eq!(report.unfinished, Some(Unfinished::Silent), "{report:?}");
        assert_eq!((report.trips.answered, report.there), (0, None));
    }
}

#[test]
fn no_more_is_sent_than_it_may_cost() {
    let Some(network) = Network::new("budget", &["near", "router", "far"], ROUTED) else {
        return;
    };
    let ticket = Ticket::random().unwrap();
    let report = network.ask(order(&ticket, "10.9.1.1"), ip("10.9.2.1"), |remote| {
        Question {
            budget: Budget {
                time: LONG,
                bytes: Bytes(20_000),
            },
            ..question(&ticket, "10.9.1.1", remote)
        }
    });
    assert_eq!(report.unfinished, Some(Unfinished::Bytes), "{report:?}");
    assert_eq!((report.trips.answered, report.there), (100, None));
}

#[test]
fn answers_that_the_kernel_does_not_send_are_told_apart_from_those_that_it_does() {
    let setup = [
        "near: ip link add a0 type veth peer name b0 netns @far",
        "near: ip addr add 10.0.0.1/24 dev a0",
        "near: ip link set a0 up",
        "far: ip addr add 10.0.0.2/24 dev b0",
        "far: ip link set b0 up",
        "far: nft add table inet mute",
        "far: nft add chain inet mute out { type filter hook output priority 0; }",
        "far: nft add rule inet mute out meta l4proto udp drop",
    ];
    let Some(network) = Network::new("mute", &["near", "far"], &setup) else {
        return;
    };
    let ticket = Ticket::random().unwrap();
    let (report, answered) =
        network.ask_both(order(&ticket, "10.0.0.1"), ip("10.0.0.2"), |remote| {
            Question {
                interface: "a0".into(),
                ..question(&ticket, "10.0.0.1", remote)
            }
        });
    assert_eq!(report.unfinished, Some(Unfinished::Silent));
    assert_eq!((answered.answers, answered.unsent), (0, 5), "{answered:?}");
    assert!(answered.unsent_why.unwrap().contains("not permitted"));
}
