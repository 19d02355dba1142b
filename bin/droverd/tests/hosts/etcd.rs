//! A real etcd of three members, in the network of the first host.

use std::path::PathBuf;

use drover_lab::command::run;
use tokio::process::Child;

use super::{A, Hosts};

/// Where `scripts/setup --for-tests` puts it.
const UNPACKED: &str = "/var/cache/drover-lab/etcd/usr/bin/etcd";

const MEMBERS: u16 = 3;

/// The program, or none, said so.
pub fn program() -> Option<PathBuf> {
    let named = std::env::var_os("DROVER_ETCD").map(PathBuf::from);
    let program = named.unwrap_or_else(|| UNPACKED.into());
    if program.exists() {
        return Some(program);
    }
    println!(
        "skipped, because there is no etcd at {}: run scripts/setup --for-tests, or name one in DROVER_ETCD",
        program.display()
    );
    None
}

/// Its members; what runs ends with the lab.
pub struct Etcd {
    program: PathBuf,
    members: Vec<Option<Child>>,
}

fn port(number: usize) -> u16 {
    2379 + 10 * u16::try_from(number).unwrap()
}

/// Where its members are asked.
pub fn urls(hosts: &Hosts) -> Vec<String> {
    at(&hosts.host(A).address(0).to_string())
}

/// The same, as host and port.
pub fn addresses(hosts: &Hosts) -> Vec<String> {
    let ip = hosts.host(A).address(0);
    let ports = (0..usize::from(MEMBERS)).map(port);
    ports.map(|port| format!("{ip}:{port}")).collect()
}

/// Where the third host asks them: a way of its own, which can be cut.
pub fn urls_of_third() -> Vec<String> {
    at("127.0.0.1")
}

fn at(ip: &str) -> Vec<String> {
    let ports = (0..usize::from(MEMBERS)).map(port);
    ports.map(|port| format!("http://{ip}:{port}")).collect()
}

/// The third host's packets to all members vanish.
pub async fn cut_off_third(hosts: &Hosts) {
    let ports = (0..usize::from(MEMBERS)).map(|member| port(member).to_string());
    let ports = ports.collect::<Vec<_>>().join(", ");
    let script = format!(
        "add table inet cutoff; add chain inet cutoff out {{ type filter hook output priority 0; }}; \
         add rule inet cutoff out ip daddr 127.0.0.1 tcp dport {{ {ports} }} drop;"
    );
    nft(hosts, &script).await;
}

/// They arrive again.
pub async fn let_third_back(hosts: &Hosts) {
    nft(hosts, "delete table inet cutoff").await;
}

async fn nft(hosts: &Hosts, script: &str) {
    let host = hosts.host(A);
    let words = ["netns", "exec", host.namespace(), "nft", script];
    run("ip", &words).await.unwrap();
}

impl Etcd {
    pub fn start(hosts: &Hosts, program: PathBuf) -> Self {
        let mut etcd = Self {
            program,
            members: (0..MEMBERS).map(|_| None).collect(),
        };
        for number in 0..etcd.members.len() {
            etcd.run(hosts, number);
        }
        etcd
    }

    /// Starts a member that does not run.
    pub fn run(&mut self, hosts: &Hosts, number: usize) {
        let host = hosts.host(A);
        let peer = |number: usize| format!("http://{}:{}", host.address(0), port(number) + 1);
        let all: Vec<String> = (0..self.members.len())
            .map(|number| format!("m{number}={}", peer(number)))
            .collect();
        let client = urls(hosts).swap_remove(number);
        let third = urls_of_third().swap_remove(number);
        let data = hosts.lab().folder().join(format!("etcd{number}"));
        let own = peer(number);
        let arguments = [
            format!("--name=m{number}"),
            format!("--data-dir={}", data.display()),
            format!("--listen-client-urls={client},{third}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={own}"),
            format!("--initial-advertise-peer-urls={own}"),
            format!("--initial-cluster={}", all.join(",")),
        ];
        let log = format!("etcd{number}");
        let child = host.start(&log, &self.program, &arguments).unwrap();
        self.members[number] = Some(child);
    }

    pub async fn kill(&mut self, number: usize) {
        let mut member = self.members[number].take().unwrap();
        member.kill().await.unwrap();
    }
}
