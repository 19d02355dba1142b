//! Two hosts with agents under test, and a guest that proves from inside that it is whole.
//!
//! ```text
//!   Hosts ── lab        namespaces, NICs, folders
//!     │      agent      droverd on each host, configured, killed, restarted by the test
//!     │      guest      booted, listened to on both hosts
//!     └───── judge      where the guest is, and that nothing of it is anywhere else
//! ```

#![allow(
    dead_code,
    unused_imports,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests, not all used by each of them"
)]

mod agent;
pub mod etcd;
mod guest;
mod judge;
pub mod meter;
pub mod peer;
#[path = "../trust/provision.rs"]
pub mod provision;
pub mod reduced;
pub mod runs;
mod scenario;
pub mod third;

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use drover_api::{Client, LimitRequest, LimitScope};
use drover_lab::command::run;
use drover_lab::settings::{
    AgentSettings, Contents, GuestSettings, LabName, LabSettings, nic_rates,
};
use drover_lab::{Host, Lab, State, find_probe, network, require};
use drover_types::Bytes;

pub use agent::{Agent, Signal, set, set_flag, set_word};
pub use guest::{Guest, name, refused};
pub use judge::{guest_of, used};
use provision::Office;
pub use scenario::{scenario, scenarios};

/// The host that the guest is booted on.
pub const A: usize = 0;
/// The other one.
pub const B: usize = 1;

/// For what takes a second on an idle machine; test machines are shared and slow.
pub const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

const QEMU: &str = "/usr/bin/qemu-system-x86_64";

/// Rates at which the guest takes some two seconds: time for a test to step in.
pub const SLOW: &str = "250mbit,250mbit";
/// Rates at which it takes some ten: more than the outage limit of tests, and time for an agent to come
/// back midway.
pub const SLOWER: &str = "50mbit,50mbit";
/// Rates at which it takes one.
pub const FAST: &str = "1gbit,1gbit";

/// Rates of which one alone does not keep up with the guest's writes within the downtime limit: such a
/// migration ends only when both carry.
pub const BOTH_NEEDED: &str = "100mbit,100mbit";

/// The same with a NIC more, for the agents alone.
pub const SLOW_AND_API: &str = "250mbit,250mbit,none";
/// The number of that NIC.
pub const API_NIC: usize = 2;

/// A lab with an agent on each host. All of it is gone with this value.
pub struct Hosts {
    lab: Option<Lab>,
    name: LabName,
    agents: [Option<Agent>; 2],
    pub guest: Option<Guest>,
}

/// The QEMU that tests use, or why they cannot run.
pub async fn qemu() -> Option<PathBuf> {
    let qemu = std::env::var_os("DROVER_QEMU").map_or_else(|| QEMU.into(), PathBuf::from);
    let mut missing = require::check(&qemu).and_then(|()| find_probe()).err();
    if missing.is_none() {
        missing = require::check_guest(&qemu).await.err();
    }
    if let Some(missing) = missing {
        println!("skipped, because {missing}");
        return None;
    }
    Some(qemu)
}

/// A guest that tests can afford; what it does follows from the seed.
pub fn small_guest(qemu: PathBuf, seed: u64) -> GuestSettings {
    GuestSettings {
        qemu,
        machine: "q35".into(),
        memory: Bytes(256 << 20),
        vcpus: 1,
        content: Bytes(64 << 20),
        contents: Contents::Mix,
        mix: "files=40,text=10,structures=10,zero=10,random=30".into(),
        common: 0,
        dirty: "4MiB@8MiB".parse().unwrap(),
        touch: 512,
        verify: Bytes(32 << 20),
        seed,
        disk: None,
    }
}

/// Debian 12's own QEMU.
pub fn qemu_7_2() -> Option<PathBuf> {
    let found = std::env::var_os("DROVER_QEMU_7_2").map(PathBuf::from);
    if found.is_none() {
        println!("skipped, because DROVER_QEMU_7_2 does not name a QEMU 7.2");
    }
    found
}

impl Hosts {
    /// The same, with another outage limit on both hosts.
    pub async fn with_outage_limit(test: &str, rates: &str, seconds: i64) -> Option<Self> {
        let mut hosts = Self::new(test, rates).await?;
        for host in [A, B] {
            hosts.configure(host, |config| {
                let migration = config["migration"].as_table_mut().unwrap();
                migration.insert("outage_limit_s".into(), seconds.into());
            });
            hosts.start_agent(host).await;
        }
        hosts.boot().await;
        Some(hosts)
    }

    /// Two hosts with these NICs and no agents yet; `None`, and said so, where that is not possible.
    pub async fn new(test: &str, rates: &str) -> Option<Self> {
        let guest = small_guest(qemu().await?, 7);
        Some(Self::with_guests_like(test, rates, guest).await)
    }

    /// The same, for guests of the test's own.
    pub async fn with_guests_like(test: &str, rates: &str, guest: GuestSettings) -> Self {
        let name: LabName = format!("{test}{}", std::process::id()).parse().unwrap();
        let state = State {
            lab: LabSettings {
                name: name.clone(),
                hosts: 2,
                nics: nic_rates(rates, None).unwrap(),
                addressing: Vec::new(),
                mtu: 9000,
                agents: AgentSettings::default(),
            },
            guests: vec![guest],
        };
        let lab = Lab::create(state).await.unwrap();
        let hosts = Self {
            lab: Some(lab),
            name,
            agents: [None, None],
            guest: None,
        };
        hosts.configure(A, |_| {});
        hosts.configure(B, |_| {});
        hosts.found_cluster();
        hosts
    }

    /// The same with an agent on each.
    pub async fn with_agents(test: &str, rates: &str) -> Option<Self> {
        let mut hosts = Self::new(test, rates).await?;
        hosts.start_agent(A).await;
        hosts.start_agent(B).await;
        Some(hosts)
    }

    /// The same with the guest running on the first.
    pub async fn with_guest(test: &str, rates: &str) -> Option<Self> {
        let mut hosts = Self::with_agents(test, rates).await?;
        hosts.boot().await;
        Some(hosts)
    }

    /// The same, with a NIC over which the agents talk and nothing else goes.
    pub async fn with_api_apart(test: &str) -> Option<Self> {
        let mut hosts = Self::new(test, SLOW_AND_API).await?;
        for host in [A, B] {
            hosts.talk_over(host, API_NIC);
            hosts.start_agent(host).await;
        }
        hosts.boot().await;
        Some(hosts)
    }

    /// Makes both hosts members of one cluster, with A as its authority, before any agent runs.
    fn found_cluster(&self) {
        let nics = 0..self.lab().settings().nics.len();
        let addresses = |host: usize| {
            let all = nics.clone().map(|nic| self.host(host).address(nic));
            all.map(|ip| SocketAddr::new(ip.into(), agent::PORT))
                .collect()
        };
        let mut office = Office::new();
        for host in [A, B] {
            office.admit(&self.host(host).name, addresses(host));
        }
        // The authority's comes last: it knows what it issued.
        for host in [B, A] {
            let host = self.host(host);
            office.settle(&host.state(), &host.name);
        }
    }

    pub fn lab(&self) -> &Lab {
        self.lab.as_ref().unwrap()
    }

    pub fn host(&self, host: usize) -> Host {
        self.lab().host(host)
    }

    pub fn agent(&self, host: usize) -> &Agent {
        let agent = self.agents[host].as_ref();
        agent.unwrap_or_else(|| panic!("no agent runs on {}", network::HOSTS[host]))
    }

    pub fn client(&self, host: usize) -> &Client {
        &self.agent(host).client
    }

    /// Takes a NIC of one host down, or brings it up again.
    pub async fn set_nic(&self, host: usize, nic: usize, to: &str) {
        let namespace = self.host(host).namespace().to_owned();
        let nic = network::nic(nic);
        let link = ["-n", &namespace, "link", "set", &nic, to];
        run("ip", &link).await.unwrap();
    }

    /// Cuts the NIC over which the agents talk, or joins it again: at both ends, so that neither
    /// waits for an answer that cannot come.
    pub async fn set_api(&self, to: &str) {
        self.set_nic(A, API_NIC, to).await;
        self.set_nic(B, API_NIC, to).await;
    }

    /// A program that only this host has, at a path that the definition can name.
    pub fn install(&self, host: usize, name: &str, script: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let file = self.host(host).socket(name);
        std::fs::write(&file, script).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
        self.lab().here().join(name)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let host = |number| drover_lab::host_of(&self.name, number);
        if std::thread::panicking() {
            for number in [A, B] {
                let log = host(number).log("droverd");
                eprintln!("== {}\n{}", log.display(), last_lines(&log, 100));
            }
        }
        // Its lock is free from here on; the agents end with their namespaces.
        self.guest = None;
        self.lab = None;
        let name = self.name.clone();
        let removed = std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(Lab::remove_named(&name))
        });
        let removed = removed.join();
        if !std::thread::panicking() {
            removed.unwrap().unwrap();
        }
    }
}

fn last_lines(path: &Path, count: usize) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// Sets or lifts a limit of a host.
pub async fn limit(hosts: &Hosts, host: usize, scope: LimitScope, limit: Option<&str>) {
    let request = LimitRequest {
        scope,
        limit: limit.map(|limit| limit.parse().unwrap()),
    };
    hosts.client(host).limit(&request).await.unwrap();
}

/// Kills a process.
pub fn kill(pid: u32) {
    use rustix::process::{Pid, kill_process};
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    kill_process(pid.unwrap(), Signal::KILL).unwrap();
}

/// Waits until `look` is content; its last complaint otherwise.
pub async fn until<T, E: Display>(
    within: Duration,
    mut look: impl AsyncFnMut() -> Result<T, E>,
) -> T {
    let deadline = Instant::now() + within;
    loop {
        match look().await {
            Ok(found) => return found,
            Err(complaint) => {
                assert!(Instant::now() < deadline, "after {within:?}: {complaint}");
            }
        }
        tokio::time::sleep(POLL).await;
    }
}
