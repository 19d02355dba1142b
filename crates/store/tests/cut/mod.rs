//! A network of the test's own with a namespace for each member, in which one can be cut off from
//! the others while its clients still reach it.
//!
//! ```text
//!   test, in a namespace of its own ── bridge ─┬─ member 0
//!                                              ├─ member 1
//!                                              └─ member 2
//! ```
//! Nothing has to be removed: the kernel takes all of it away with the last process in it.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};

use super::members::Place;

/// Runs an ignored test of this program in a network namespace of its own; false, said so, where
/// that cannot be.
pub fn in_a_network_of_its_own(test: &str) -> bool {
    let can = Command::new("unshare")
        .args(["-n", "nft", "list", "ruleset"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !can.is_ok_and(|status| status.success()) {
        eprintln!(
            "skipped, because no network namespace with nftables can be made here: run it as root after scripts/setup --for-tests"
        );
        return false;
    }
    let output = Command::new("unshare")
        .arg("-n")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    eprint!("{said}");
    assert!(output.status.success(), "{test} failed");
    true
}

/// A member's namespace, held open by a process that only waits.
struct Host {
    holder: Child,
}

impl Host {
    fn new() -> Self {
        let mut holder = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "unshare", "-n", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Its echo says that it is in its namespace.
        std::io::Write::write_all(holder.stdin.as_mut().unwrap(), b"x").unwrap();
        std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        Self { holder }
    }

    fn within(&self) -> Vec<String> {
        let id = self.holder.id().to_string();
        ["nsenter", "-t", &id, "-n"].map(str::to_owned).to_vec()
    }

    fn run(&self, command: &str) {
        run(&format!("{} {command}", self.within().join(" ")));
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn run(command: &str) {
    let status = Command::new("sh").args(["-ec", command]).status().unwrap();
    assert!(status.success(), "{command}");
}

/// The bridge, and what is behind it.
pub struct Network {
    hosts: Vec<Host>,
}

fn address(index: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, u8::try_from(index).unwrap() + 1)
}

impl Network {
    /// In the namespace of this process.
    pub fn new(count: usize) -> Self {
        run(
            "ip link set lo up; ip link add b0 type bridge; ip link set b0 up; ip addr add 10.0.0.254/24 dev b0",
        );
        let hosts: Vec<Host> = (0..count).map(|_| Host::new()).collect();
        for (index, host) in hosts.iter().enumerate() {
            let id = host.holder.id();
            run(&format!(
                "ip link add p{index} type veth peer name nic netns {id}; ip link set p{index} master b0 up"
            ));
            host.run("ip link set lo up");
            host.run("ip link set nic up");
            host.run(&format!("ip addr add {}/24 dev nic", address(index)));
        }
        Self { hosts }
    }

    pub fn places(&self) -> Vec<Place> {
        let place = |(index, host): (usize, &Host)| Place {
            ip: address(index),
            client: 2379,
            peer: 2380,
            within: host.within(),
        };
        self.hosts.iter().enumerate().map(place).collect()
    }

    /// Nothing gets from this member to the others or back; nobody is told.
    pub fn cut(&self, index: usize) {
        let host = &self.hosts[index];
        host.run("nft add table ip cut");
        for (chain, end) in [("input", "saddr"), ("output", "daddr")] {
            host.run(&format!(
                "nft \"add chain ip cut {chain} {{ type filter hook {chain} priority 0; }}\""
            ));
            for other in (0..self.hosts.len()).filter(|other| *other != index) {
                let address = address(other);
                host.run(&format!(
                    "nft add rule ip cut {chain} ip {end} {address} drop"
                ));
            }
        }
    }

    pub fn heal(&self, index: usize) {
        self.hosts[index].run("nft delete table ip cut");
    }
}
