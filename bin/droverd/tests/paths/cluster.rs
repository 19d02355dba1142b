//! Hosts with real agents, each in a network namespace, and a switch for each of their interfaces.
//!
//! ```text
//!   a ── n0 ═══ a0 ┐          ┌ b0 ═══ n0 ── b
//!    └── n1 ═══ a1 ┤  switch  ├ b1 ═══ n1 ──┘
//!                  └ br0, br1 ┘
//! ```

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use drover_api::{Client, ClusterPathsRequest, ClusterPathsView};
use drover_tune::examine;
use drover_tune::facts::Path;

use super::provision::Office;
use super::support::{Agent, Place};

const PORT: u16 = 7470;

/// The namespace of the switch, beside those of the hosts.
pub const SWITCH: &str = "switch";

/// The cluster; its namespaces go with it.
pub struct Cluster {
    test: String,
    spaces: Vec<String>,
    hosts: Vec<Host>,
}

struct Host {
    name: &'static str,
    place: Place,
    agent: Option<Agent>,
}

impl Cluster {
    /// Hosts of these names with so many interfaces, all in one cluster; `None`, with a line that says why, where no
    /// namespaces can be made.
    pub async fn new(test: &str, names: &[&'static str], nics: usize) -> Option<Self> {
        Self::with(test, names, nics, "").await
    }

    /// The same, with more at the end of each host's configuration.
    pub async fn with(test: &str, names: &[&'static str], nics: usize, more: &str) -> Option<Self> {
        let mut cluster = Self {
            test: test.to_owned(),
            spaces: Vec::new(),
            hosts: Vec::new(),
        };
        for name in names.iter().copied().chain([SWITCH]) {
            cluster.add_namespace(name)?;
        }
        for nic in 0..nics {
            cluster.run(SWITCH, &format!("ip link add br{nic} type bridge"));
            cluster.run(SWITCH, &format!("ip link set br{nic} mtu 9000 up"));
            for (number, name) in names.iter().enumerate() {
                cluster.connect(name, number, nic);
            }
        }
        let mut office = Office::new();
        for (number, name) in names.iter().enumerate() {
            office.admit(name, addresses(number, nics));
        }
        // The authority's comes last: it knows what it issued.
        for (number, name) in names.iter().enumerate().rev() {
            let place = Place::named(name);
            let listen: Vec<_> = addresses(number, nics)
                .iter()
                .map(|at| format!("\"{at}\""))
                .collect();
            place.configure(&format!("[api]\nlisten = [{}]\n{more}", listen.join(", ")));
            office.settle(&place.path("state"), name);
            let agent = None;
            cluster.hosts.push(Host { name, place, agent });
        }
        for name in names {
            cluster.start(name).await;
        }
        Some(cluster)
    }

    fn add_namespace(&mut self, host: &str) -> Option<()> {
        let space = self.space(host);
        match Command::new("ip").args(["netns", "add", &space]).output() {
            Ok(made) if made.status.success() => self.spaces.push(space),
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
        self.run(host, "ip link set lo up");
        // Answers may arrive by an interface that their sender is not sought by.
        self.run(host, "sysctl -qw net.ipv4.conf.all.rp_filter=0");
        self.run(host, "sysctl -qw net.ipv4.conf.default.rp_filter=0");
        Some(())
    }

    fn connect(&self, name: &str, number: usize, nic: usize) {
        let switch = self.space(SWITCH);
        for command in [
            format!(
                "ip link add n{nic} mtu 9000 type veth peer name {name}{nic} mtu 9000 netns {switch}"
            ),
            format!("ip addr add {}/24 dev n{nic}", address(number, nic).ip()),
            format!("ip link set n{nic} up"),
        ] {
            self.run(name, &command);
        }
        self.run(
            SWITCH,
            &format!("ip link set {name}{nic} master br{nic} up"),
        );
    }

    fn space(&self, host: &str) -> String {
        format!("dpaths-{}-{}-{host}", self.test, std::process::id())
    }

    /// Runs a command on a host, or on the switch.
    pub fn run(&self, host: &str, command: &str) {
        let done = self.try_run(host, command);
        done.unwrap_or_else(|said| panic!("{host}: {command}: {said}"));
    }

    /// The same, where it may not be possible; why it is not.
    pub fn try_run(&self, host: &str, command: &str) -> Result<(), String> {
        let done = Command::new("ip")
            .args(["netns", "exec", &self.space(host)])
            .args(command.split(' '))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
        done.status.success().then_some(()).ok_or(said)
    }

    /// Bytes that a host has sent by an interface.
    pub fn sent(&self, host: &str, nic: &str) -> u64 {
        let counter = format!("/sys/class/net/{nic}/statistics/tx_bytes");
        let read = Command::new("ip")
            .args(["netns", "exec", &self.space(host), "cat", &counter])
            .output()
            .unwrap();
        String::from_utf8_lossy(&read.stdout)
            .trim()
            .parse()
            .unwrap()
    }

    /// Loses one in so many of the datagrams that arrive at a port of the switch, at random: what agents say to each other arrives.
    pub fn lose(&self, port: &str, one_in: u32) {
        for rule in [
            "add table netdev lossy".to_owned(),
            format!(
                "add chain netdev lossy {port} {{ type filter hook ingress device {port} priority 0; }}"
            ),
            format!(
                "add rule netdev lossy {port} ip protocol udp numgen random mod {one_in} == 0 drop"
            ),
        ] {
            self.run(SWITCH, &format!("nft {rule}"));
        }
    }

    fn host(&self, name: &str) -> &Host {
        self.hosts.iter().find(|host| host.name == name).unwrap()
    }

    /// Starts the agent of a host.
    pub async fn start(&mut self, name: &str) {
        let command = self.droverd(name);
        self.start_by(name, command).await;
    }

    /// The same, by this command.
    pub async fn start_by(&mut self, name: &str, mut command: Command) {
        command.stdin(std::process::Stdio::null());
        let host = self.hosts.iter_mut().find(|host| host.name == name);
        let host = host.unwrap();
        host.agent = Some(host.place.start_by(command).await);
    }

    /// droverd there, with that host's configuration.
    pub fn droverd(&self, name: &str) -> Command {
        let mut command = self.program(name, env!("CARGO_BIN_EXE_droverd"));
        command
            .arg("--config")
            .arg(self.path(name, "droverd.toml"))
            .env_remove("JOURNAL_STREAM")
            .env_remove("NOTIFY_SOCKET");
        command
    }

    /// A program there, or on the switch, with mounts of its own.
    pub fn program(&self, host: &str, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.space(host), program]);
        command
    }

    /// Ends the agent of a host without a word.
    pub fn kill(&mut self, name: &str) {
        let mut hosts = self.hosts.iter_mut();
        let host = hosts.find(|host| host.name == name).unwrap();
        host.agent.take().unwrap().kill();
    }

    /// Has the agent of a host hang.
    pub fn hang(&self, name: &str) {
        let pid = self.host(name).agent.as_ref().unwrap().pid();
        super::support::kill(pid, "-STOP");
    }

    /// A file or folder of a host's own.
    pub fn path(&self, name: &str, file: &str) -> PathBuf {
        self.host(name).place.path(file)
    }

    /// What the agent of a host has written.
    pub fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name, "log")).unwrap()
    }

    pub fn client(&self, name: &str) -> Client {
        self.host(name).agent.as_ref().unwrap().client.clone()
    }

    /// What the agents find of the paths of these hosts, by the word of one of them.
    pub async fn asked(&self, by: &str, hosts: &[&str]) -> ClusterPathsView {
        let hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
        let request = ClusterPathsRequest {
            hosts,
            ..ClusterPathsRequest::default()
        };
        self.client(by).cluster_paths(&request).await.unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for host in &self.hosts {
                let log = std::fs::read_to_string(host.place.path("log")).unwrap_or_default();
                eprintln!("== {}\n{log}", host.name);
            }
        }
        // The agents first.
        self.hosts.clear();
        for space in &self.spaces {
            let _ = Command::new("ip").args(["netns", "del", space]).status();
        }
    }
}

fn address(number: usize, nic: usize) -> SocketAddr {
    let number = u8::try_from(number + 1).unwrap();
    let nic = u8::try_from(nic).unwrap();
    SocketAddr::from(([10, 78, nic, number], PORT))
}

fn addresses(number: usize, nics: usize) -> Vec<SocketAddr> {
    (0..nics).map(|nic| address(number, nic)).collect()
}

/// Each finding as `rule host>other nic`, in their order.
pub fn findings(paths: &[Path]) -> Vec<String> {
    let report = examine(&[], paths);
    assert_eq!(report.skipped, [], "{paths:#?}");
    let mut found: Vec<_> = report
        .findings
        .iter()
        .map(|finding| {
            let subject = &finding.subject;
            let (other, nic) = (subject.other.as_ref(), subject.nic.as_ref());
            let (rule, host) = (&finding.rule, &subject.host);
            format!("{rule} {host}>{} {}", other.unwrap(), nic.unwrap())
        })
        .collect();
    found.sort();
    found
}
