//! A third host that coordinates and has no guests: an agent of its own in the network of the first one.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use drover_api::{Client, CordonRequest};
use toml::{Table, Value};

use super::agent::Agent;
use super::etcd::{self, Etcd};
use super::provision::Office;
use super::{A, B, Hosts, PATIENCE, until};

const NAME: &str = "c";
const PORT: u16 = 7480;
const DATA_PORT: u16 = 7481;

/// The third host.
pub struct Third {
    folder: PathBuf,
    agent: Option<Agent>,
}

impl Hosts {
    /// Makes three hosts members of one cluster, in which all may coordinate, before any agent runs; and gives
    /// the two that have guests their configurations.
    pub fn three(&self) -> Third {
        let third = Third {
            folder: self.lab().folder().join(NAME),
            agent: None,
        };
        let nics = 0..self.lab().settings().nics.len();
        let at = |host: usize, port: u16| -> Vec<SocketAddr> {
            let nics = nics.clone();
            let all = nics.map(|nic| SocketAddr::new(self.host(host).address(nic).into(), port));
            all.collect()
        };
        let mut office = Office::new();
        for host in [A, B] {
            office.admit(&self.host(host).name, at(host, super::agent::PORT));
        }
        office.admit(NAME, at(A, PORT));
        for host in [self.host(B).name.as_str(), NAME] {
            let named = office.ledger.set_coordinator(&host.parse().unwrap(), true);
            named.unwrap();
        }
        office.settle(&third.folder.join("state"), NAME);
        // The authority's comes last: it knows what it issued.
        for host in [B, A] {
            let host = self.host(host);
            office.settle(&host.state(), &host.name);
            self.configure(
                if host.name == self.host(A).name { A } else { B },
                |config| {
                    shared(etcd::urls(self), config);
                },
            );
        }
        third.configure(&at(A, PORT));
        third
    }
}

/// Where all keep runs; and of three hosts none has to be one that can be lost.
fn shared(members: Vec<String>, config: &mut Table) {
    let mut store = Table::new();
    let members = members.into_iter().map(Value::String);
    store.insert("etcd".into(), Value::Array(members.collect()));
    config.insert("store".into(), store.into());
    let policy = "policy.keep = { losses = 0, of = \"host\" }";
    config.extend(toml::from_str::<Table>(policy).unwrap());
}

impl Third {
    fn configure(&self, listen: &[SocketAddr]) {
        let folder = self.folder.display();
        let listen: Vec<_> = listen.iter().map(|at| format!("\"{at}\"")).collect();
        let text = format!(
            "host = \"{NAME}\"\ndefinitions = \"{folder}/vms\"\nstate = \"{folder}/state\"\n\
             runtime = \"{folder}/run\"\nmemory_headroom = 0\nmigration.data_port = {DATA_PORT}\n\
             libvirt.uri = \"off\"\napi.listen = [{}]\n",
            listen.join(", ")
        );
        let mut config: Table = toml::from_str(&text).unwrap();
        shared(etcd::urls_of_third(), &mut config);
        fs::create_dir_all(self.folder.join("vms")).unwrap();
        fs::write(self.folder.join("droverd.toml"), config.to_string()).unwrap();
    }

    pub async fn start(&mut self, hosts: &Hosts) {
        let socket = self.folder.join("run/droverd.sock");
        let config = self.folder.join("droverd.toml");
        let agent = Agent::launch(&hosts.host(A), "third", &config, &socket).await;
        self.agent = Some(agent);
    }

    pub async fn kill(&mut self) {
        self.agent.take().unwrap().kill().await;
    }

    pub fn agent(&self) -> &Agent {
        self.agent.as_ref().unwrap()
    }

    pub fn client(&self) -> &Client {
        &self.agent().client
    }
}

/// Two hosts, of which the first has the guest, and a third one that only coordinates.
pub struct Three {
    pub hosts: Hosts,
    pub third: Third,
    pub etcd: Etcd,
}

impl Three {
    /// With NICs of these rates, and the guest running; none where there is no etcd here.
    pub async fn new(test: &str, rates: &str) -> Option<Self> {
        let program = etcd::program()?;
        let mut hosts = Hosts::new(test, rates).await?;
        let mut third = hosts.three();
        let etcd = Etcd::start(&hosts, program);
        for host in [A, B] {
            hosts.start_agent(host).await;
        }
        third.start(&hosts).await;
        let none = CordonRequest::default();
        third.client().cordon(&none).await.unwrap();
        hosts.boot().await;
        until(PATIENCE, async || third.client().runs().await).await;
        Some(Self { hosts, third, etcd })
    }
}
