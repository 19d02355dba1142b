//! What faults do to the NICs of a lab, seen from inside its hosts. No QEMU is needed.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::time::Duration;

use drover_lab::fault::{Fault, harm, harm_now, heal, heal_all};
use drover_lab::settings::{Addressing, AgentSettings, LabName, LabSettings, nic_rates};
use drover_lab::{Lab, State, command::run, network, require};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A datagram on a line of a machine that is busy.
const ARRIVES: Duration = Duration::from_secs(5);
/// One that will not come is not waited for that long.
const VANISHES: Duration = Duration::from_millis(300);

struct Hosts(Option<Lab>);

impl Hosts {
    async fn new(test: &str, rates: &str, addressing: &[Addressing]) -> Option<Self> {
        let missing = require::check("/bin/sh".as_ref()).and_then(|()| require::check_faults());
        if let Err(missing) = missing {
            println!("skipped, because {missing}");
            return None;
        }
        let name: LabName = format!("{test}{}", std::process::id()).parse().unwrap();
        let lab = LabSettings {
            name,
            hosts: 2,
            nics: nic_rates(rates, None).unwrap(),
            addressing: addressing.to_vec(),
            mtu: 9000,
            agents: AgentSettings::default(),
        };
        let guests = Vec::new();
        let made = Lab::create(State { lab, guests }).await.unwrap();
        Some(Self(Some(made)))
    }

    fn settings(&self) -> &LabSettings {
        self.0.as_ref().unwrap().settings()
    }

    async fn harm(&self, text: &str) -> Fault {
        let fault = text.parse().unwrap();
        harm(self.settings(), 0, &fault).await.unwrap();
        fault
    }

    async fn heal(&self, fault: Fault) {
        heal(self.settings(), &[fault]).await.unwrap();
    }

    fn address(&self, nic: usize, host: usize) -> IpAddr {
        network::address_of(self.settings(), nic, host).unwrap()
    }

    /// What is done on a host of the lab.
    fn on<T: Send>(&self, host: usize, work: impl FnOnce() -> T + Send) -> T {
        let space = network::namespace(&self.settings().name, network::HOSTS[host]);
        let space = File::open(format!("/run/netns/{space}")).unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
                work()
            });
            thread.join().unwrap()
        })
    }

    /// Whether a datagram of so many bytes from a host arrives at the other.
    fn arrives(&self, nic: usize, from: usize, bytes: usize, within: Duration) -> bool {
        let to = self.address(nic, 1 - from);
        let receiver = self.on(1 - from, || UdpSocket::bind((to, 0)).unwrap());
        receiver.set_read_timeout(Some(within)).unwrap();
        let (own, port) = (
            self.address(nic, from),
            receiver.local_addr().unwrap().port(),
        );
        let sender = self.on(from, || UdpSocket::bind((own, 0)).unwrap());
        // A link that is down may refuse to send at all.
        let _ = sender.send_to(&vec![7; bytes], SocketAddr::new(to, port));
        receiver.recv(&mut vec![0; 10_000]).is_ok()
    }

    async fn remove(mut self) {
        self.0.take().unwrap().remove().await.unwrap();
    }
}

impl Drop for Hosts {
    /// After a test that failed.
    fn drop(&mut self) {
        let Some(lab) = self.0.take() else { return };
        let remove = || {
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.enable_all().build().unwrap();
            runtime.block_on(lab.remove()).unwrap();
        };
        std::thread::spawn(remove).join().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_line_loses_everything_both_ways_and_shows_nothing_of_it() {
    let Some(hosts) = Hosts::new("cut", "1gbit,1gbit", &[]).await else {
        return;
    };
    for from in [0, 1] {
        assert!(hosts.arrives(1, from, 100, ARRIVES), "before, from {from}");
    }
    let fault = hosts.harm("cut nic=1").await;
    for from in [0, 1] {
        assert!(!hosts.arrives(1, from, 100, VANISHES), "cut, from {from}");
        assert!(hosts.arrives(0, from, 100, ARRIVES), "the other line");
    }
    let space = network::namespace(&hosts.settings().name, "a");
    let link = run("ip", &["-n", &space, "link", "show", "nic1"])
        .await
        .unwrap();
    assert!(link.contains("LOWER_UP"), "{link}");
    // Twice is as good as once.
    hosts.harm("cut nic=1").await;
    hosts.heal(fault).await;
    for from in [0, 1] {
        assert!(hosts.arrives(1, from, 100, ARRIVES), "healed, from {from}");
    }
    hosts.heal(fault).await;
    hosts.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_is_cut_one_way_carries_the_other_way() {
    let Some(hosts) = Hosts::new("oneway", "1gbit", &[]).await else {
        return;
    };
    // The other end's hardware address is asked for now: an answer would be lost as well.
    assert!(hosts.arrives(0, 0, 100, ARRIVES) && hosts.arrives(0, 1, 100, ARRIVES));
    let fault = hosts.harm("cut nic=0 from=source").await;
    assert!(!hosts.arrives(0, 0, 100, VANISHES));
    assert!(hosts.arrives(0, 1, 100, ARRIVES));
    hosts.heal(fault).await;
    let fault = hosts.harm("cut nic=0 from=destination").await;
    assert!(hosts.arrives(0, 0, 100, ARRIVES));
    assert!(!hosts.arrives(0, 1, 100, VANISHES));
    hosts.heal(fault).await;
    hosts.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_mtu_black_hole_loses_large_packets_of_datagrams_and_of_streams() {
    let Some(hosts) = Hosts::new("large", "1gbit", &[]).await else {
        return;
    };
    assert!(hosts.arrives(0, 0, 8000, ARRIVES));
    let fault = hosts.harm("large nic=0 above=1500").await;
    assert!(hosts.arrives(0, 0, 1400, ARRIVES));
    assert!(!hosts.arrives(0, 0, 1600, VANISHES));
    let (mut near, mut far) = connect(&hosts, 0);
    near.write_all(&[1; 1000]).unwrap();
    far.read_exact(&mut [0; 1000]).unwrap();
    near.write_all(&[2; 8000]).unwrap();
    far.set_read_timeout(Some(VANISHES)).unwrap();
    assert!(far.read(&mut [0; 1000]).is_err(), "a large segment passed");
    hosts.heal(fault).await;
    far.set_read_timeout(Some(ARRIVES)).unwrap();
    far.read_exact(&mut [0; 8000]).unwrap();
    hosts.remove().await;
}

fn connect(hosts: &Hosts, nic: usize) -> (TcpStream, TcpStream) {
    let to = hosts.address(nic, 1);
    let listener = hosts.on(1, || TcpListener::bind((to, 0)).unwrap());
    let address = listener.local_addr().unwrap();
    let near = hosts.on(0, || TcpStream::connect(address).unwrap());
    (near, listener.accept().unwrap().0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_connection_is_reset_at_both_ends_and_control_is_spared() {
    let Some(hosts) = Hosts::new("kill", "1gbit,1gbit", &[]).await else {
        return;
    };
    let lanes = [connect(&hosts, 0), connect(&hosts, 1)];
    hosts.harm("kill nic=1 every=1s").await;
    for (lane, (near, far)) in lanes.iter().enumerate() {
        for mut end in [near, far] {
            end.set_read_timeout(Some(VANISHES)).unwrap();
            let kind = end.read(&mut [0; 10]).unwrap_err().kind();
            let waits = kind == std::io::ErrorKind::WouldBlock;
            assert_eq!(waits, lane == 0, "lane {lane}: {kind:?}");
        }
    }
    hosts.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn links_go_down_get_slow_and_are_renamed_until_they_are_healed() {
    let v6 = [Addressing::V4, Addressing::V6];
    let Some(hosts) = Hosts::new("states", "1gbit,1gbit", &v6).await else {
        return;
    };
    let space = network::namespace(&hosts.settings().name, "a");
    let down = hosts.harm("down nic=1").await;
    assert!(hosts.arrives(0, 0, 100, ARRIVES));
    assert!(!hosts.arrives(1, 1, 100, VANISHES));
    hosts.heal(down).await;
    assert!(
        hosts.arrives(1, 0, 100, ARRIVES),
        "the address of IPv6 is back"
    );

    let slow = hosts.harm("rate nic=0 to=0.1").await;
    let shape = || async { run("tc", &["-n", &space, "qdisc", "show", "dev", "nic0"]).await };
    assert!(shape().await.unwrap().contains("rate 100Mbit"));
    hosts.heal(slow).await;
    assert!(shape().await.unwrap().contains("rate 1Gbit"));

    let small = hosts.harm("mtu nic=all to=1500").await;
    let single = hosts.harm("single nic=0").await;
    let links = run("ip", &["-n", &space, "-d", "link"]).await.unwrap();
    assert_eq!(links.matches(" mtu 1500 ").count(), 2, "{links}");
    assert_eq!(links.matches("gso_max_segs 1 ").count(), 1, "{links}");
    hosts.heal(small).await;
    hosts.heal(single).await;
    let links = run("ip", &["-n", &space, "-d", "link"]).await.unwrap();
    assert_eq!(links.matches(" mtu 9000 ").count(), 2, "{links}");
    assert!(!links.contains("gso_max_segs 1 "), "{links}");
    assert!(hosts.arrives(0, 0, 8000, ARRIVES));

    let renamed = hosts.harm("rename nic=1").await;
    let links = run("ip", &["-n", &space, "link"]).await.unwrap();
    assert!(
        links.contains("renamed1") && !links.contains("nic1"),
        "{links}"
    );
    hosts.heal(renamed).await;
    hosts.heal(renamed).await;
    assert!(hosts.arrives(1, 0, 100, ARRIVES));
    hosts.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_does_to_a_lab_that_is_up_lasts_until_all_is_healed() {
    let Some(hosts) = Hosts::new("byhand", "1gbit,1gbit", &[]).await else {
        return;
    };
    let name = hosts.settings().name.clone();
    for text in [
        "cut nic=0",
        "down nic=1",
        "rate nic=0 to=0.1",
        "rename nic=1",
    ] {
        harm_now(&name, &text.parse().unwrap(), None).await.unwrap();
    }
    assert!(!hosts.arrives(0, 0, 100, VANISHES));
    heal_all(&name).await.unwrap();
    for nic in [0, 1] {
        assert!(hosts.arrives(nic, 0, 100, ARRIVES), "NIC {nic}");
    }
    heal_all(&name).await.unwrap();
    for text in [
        "cut nic=0 at=50%",
        "cut nic=0 for=5s",
        "kill nic=0 every=250ms",
    ] {
        let refused = harm_now(&name, &text.parse().unwrap(), None)
            .await
            .unwrap_err();
        assert!(refused.to_string().contains("by hand"), "{refused}");
    }
    let nobody: LabName = "nobody".parse().unwrap();
    let refused = heal_all(&nobody).await.unwrap_err().to_string();
    assert!(refused.contains("lab up"), "{refused}");
}
