//! Real members of etcd on loopback: started, killed, stopped and gone on by the test.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests; each program of tests uses some of them"
)]

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use drover_store::{Etcd, HostClock, Members, Store};
use rustix::process::{Pid, Signal, kill_process};
use rustls::ClientConfig;
use tempfile::TempDir;

use super::suite::{Bench, name, until};

/// Where `scripts/setup --for-tests` puts it.
const UNPACKED: &str = "/var/cache/drover-lab/etcd/usr/bin/etcd";

/// The program, or none, said so.
fn program() -> Option<PathBuf> {
    let named = std::env::var_os("DROVER_ETCD").map(PathBuf::from);
    let program = named.unwrap_or_else(|| UNPACKED.into());
    if program.exists() {
        return Some(program);
    }
    eprintln!(
        "skipped, because there is no etcd at {}: run scripts/setup --for-tests, or name one in DROVER_ETCD",
        program.display()
    );
    None
}

/// Where a member listens.
#[derive(Debug, Clone)]
pub struct Place {
    pub ip: Ipv4Addr,
    pub client: u16,
    pub peer: u16,
    /// What starts it elsewhere, in a network namespace.
    pub within: Vec<String>,
}

impl Place {
    fn on_loopback() -> Self {
        let [client, peer] = free_ports();
        Self {
            ip: loopback(),
            client,
            peer,
            within: Vec::new(),
        }
    }

    fn address(&self) -> String {
        format!("{}:{}", self.ip, self.client)
    }
}

struct Member {
    arguments: Vec<String>,
    place: Place,
    process: Option<std::process::Child>,
}

/// A cluster of etcd; its members end with it.
pub struct Cluster {
    program: PathBuf,
    members: Vec<Member>,
    folder: TempDir,
}

/// Each process of tests has an address of its own, so that two never take the same port.
pub fn loopback() -> Ipv4Addr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 64 + high % 64, middle, low)
}

fn free_ports<const N: usize>() -> [u16; N] {
    let listeners = [(); N].map(|()| TcpListener::bind((loopback(), 0)).unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

/// What a member needs to believe its clients, and they it.
pub struct Tls {
    pub authority: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Cluster {
    /// Starts so many members; none, said so, where there is no etcd.
    pub fn start(count: usize) -> Option<Self> {
        Self::start_with(count, None, &[])
    }

    pub fn start_with(count: usize, tls: Option<&Tls>, options: &[&str]) -> Option<Self> {
        let places = (0..count).map(|_| Place::on_loopback()).collect();
        Self::start_at(places, tls, options)
    }

    pub fn start_at(places: Vec<Place>, tls: Option<&Tls>, options: &[&str]) -> Option<Self> {
        let program = program()?;
        let folder = tempfile::tempdir().unwrap();
        let count = places.len();
        let all: Vec<String> = places
            .iter()
            .enumerate()
            .map(|(index, place)| format!("m{index}=http://{}:{}", place.ip, place.peer))
            .collect();
        let members = places.into_iter().enumerate().map(|(index, place)| {
            let mut arguments = arguments(index, &place, &all.join(","), folder.path(), tls);
            arguments.extend(options.iter().map(|option| (*option).to_owned()));
            Member {
                arguments,
                place,
                process: None,
            }
        });
        let mut cluster = Self {
            program,
            members: members.collect(),
            folder,
        };
        for index in 0..count {
            cluster.run(index);
        }
        Some(cluster)
    }

    /// Starts a member that does not run.
    pub fn run(&mut self, index: usize) {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.path().join(format!("m{index}.log")))
            .unwrap();
        // It must not outlive a test that is killed.
        let process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .args(&self.members[index].place.within)
            .arg(&self.program)
            .args(&self.members[index].arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.members[index].process = Some(process);
    }

    pub fn kill(&mut self, index: usize) {
        let mut process = self.members[index].process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    fn signal(&self, index: usize, signal: Signal) {
        let process = self.members[index].process.as_ref().unwrap();
        let pid = Pid::from_raw(i32::try_from(process.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// It falls silent: connections to it open, and nothing is answered.
    pub fn stop(&self, index: usize) {
        self.signal(index, Signal::STOP);
    }

    pub fn go_on(&self, index: usize) {
        self.signal(index, Signal::CONT);
    }

    pub fn addresses(&self) -> Vec<String> {
        self.members
            .iter()
            .map(|member| member.place.address())
            .collect()
    }

    /// A store that knows all members.
    pub fn store(&self, cluster: &str) -> Store {
        store_at(&self.addresses(), cluster, None)
    }

    /// The same, when it answers.
    pub async fn ready(&self, cluster: &str) -> Store {
        let store = self.store(cluster);
        until("etcd answers", async || {
            store.holding(&name("x")).await.is_ok()
        })
        .await;
        store
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for process in self
            .members
            .iter_mut()
            .filter_map(|member| member.process.as_mut())
        {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

pub fn store_at(addresses: &[String], cluster: &str, tls: Option<Arc<ClientConfig>>) -> Store {
    let members = Members::new(addresses, tls).unwrap();
    Etcd::new(members, &name(cluster), HostClock::new().unwrap()).into()
}

fn arguments(
    index: usize,
    place: &Place,
    all: &str,
    folder: &Path,
    tls: Option<&Tls>,
) -> Vec<String> {
    let client = place.address();
    let (ip, peer) = (place.ip, place.peer);
    let data = folder.join(format!("m{index}"));
    let scheme = if tls.is_some() { "https" } else { "http" };
    let mut arguments = vec![
        format!("--name=m{index}"),
        format!("--data-dir={}", data.display()),
        format!("--listen-client-urls={scheme}://{client}"),
        format!("--advertise-client-urls={scheme}://{client}"),
        format!("--listen-peer-urls=http://{ip}:{peer}"),
        format!("--initial-advertise-peer-urls=http://{ip}:{peer}"),
        format!("--initial-cluster={all}"),
        // Half of the default, so that elections take a second.
        "--heartbeat-interval=50".to_owned(),
        "--election-timeout=500".to_owned(),
    ];
    if let Some(tls) = tls {
        arguments.extend([
            "--client-cert-auth".to_owned(),
            format!("--trusted-ca-file={}", tls.authority.display()),
            format!("--cert-file={}", tls.certificate.display()),
            format!("--key-file={}", tls.key.display()),
        ]);
    }
    arguments
}

/// A fresh store on one member.
pub async fn etcd() -> Option<Bench> {
    let cluster = Cluster::start(1)?;
    Some(Bench {
        store: cluster.ready("c").await,
        clock: None,
        ground: Box::new(cluster),
    })
}

/// Has etcd forget what was before this revision, as its operator or its own schedule does.
pub async fn compact(address: &str, at: drover_store::Revision) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let body = format!(r#"{{"revision":"{}"}}"#, at.0);
    let request = format!(
        "POST /v3/kv/compaction HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}
