//! Which paths have to work after a change as they did before, and whether they do.
//!
//! A path works if the other host's agent, or its kernel where no agent listens, answers to a connection from the path's address by the path's
//! interface. That says that small packets cross in both directions. Whether others can open connections to here is for their agents to try, which open one by
//! each path. How large packets may be is asked by datagrams, at the addresses that migrations use: the other agents answer them as they do
//! those of the doctor.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use drover_api::OpenAnswer;
use drover_change::limits::PATHS;
use drover_change::{Measured, Now, PathSizes, PathTo, Paths, Unknown, Untold};
use drover_types::{HostName, Interface, IpNetwork, with_sources};

use crate::cluster::Cluster;
use crate::config::Config;
use crate::paths::{self, Opening};
use crate::peers::Peers;

/// Every path between this host's interfaces and other hosts: from each address to all that are in its network; to hosts that share no
/// network with this one from all addresses to all.
pub fn between(own: &[Interface], others: &[(HostName, Vec<SocketAddr>)]) -> Vec<PathTo> {
    let usable = own.iter().filter(|nic| nic.up && !nic.loopback);
    let from: Vec<(&Interface, &IpNetwork)> = usable
        .flat_map(|nic| nic.addresses.iter().map(move |address| (nic, address)))
        .filter(|(_, address)| !address.is_link_local())
        .collect();
    let mut paths = Vec::new();
    for (host, addresses) in others {
        let near = |to: &SocketAddr| from.iter().any(|(_, own)| own.contains(to.ip()));
        let is_near = addresses.iter().any(near);
        for (nic, own) in &from {
            let fits = |to: &&SocketAddr| {
                own.address().is_ipv4() == to.is_ipv4() && (!is_near || own.contains(to.ip()))
            };
            paths.extend(addresses.iter().filter(fits).map(|to| PathTo {
                host: host.clone(),
                nic: nic.name.clone(),
                from: own.address(),
                to: *to,
            }));
        }
    }
    let left_out = paths.len().saturating_sub(PATHS);
    if left_out > 0 {
        tracing::warn!(
            left_out,
            tried = PATHS,
            "not every path to another host is tried after the change"
        );
    }
    paths.truncate(PATHS);
    paths
}

/// The other hosts, as this one asks them.
#[derive(Debug)]
pub struct Others {
    host: HostName,
    file: PathBuf,
    moving: usize,
    /// What is needed to have their agents answer, or why that is not there: what was set is taken back all the same. Opened by whoever asks
    /// them, so that nothing of it keeps what goes back, which asks nobody.
    members: OnceCell<Result<Members, String>>,
}

type Members = (Arc<Config>, Peers);

impl Others {
    /// By this host's configuration, and with its certificate; so many migrations were under way from or to it.
    pub fn of(host: &HostName, file: &Path, moving: usize) -> Self {
        Self {
            host: host.clone(),
            file: file.to_owned(),
            moving,
            members: OnceCell::new(),
        }
    }

    fn members(&self) -> Result<(&Config, &Peers), String> {
        let members = self.members.get_or_init(|| {
            let members = members(&self.host, &self.file);
            members.inspect_err(|why| {
                tracing::warn!(why, "other hosts are not asked how large packets cross");
            })
        });
        let (config, peers) = members.as_ref().map_err(Clone::clone)?;
        Ok((config, peers))
    }
}

fn members(host: &HostName, file: &Path) -> Result<Members, String> {
    let config = Config::load(file).map_err(|error| with_sources(&error))?;
    if config.host != *host {
        let of = &config.host;
        return Err(format!("{} is the configuration of {of}", file.display()));
    }
    let config = Arc::new(config);
    let cluster = Cluster::open(Arc::clone(&config)).map_err(|error| format!("{error:#}"))?;
    let peers = Peers::new(Arc::clone(&config), Arc::new(cluster));
    Ok((config, peers))
}

impl Paths for Others {
    async fn measure(&self, within: Duration) -> Measured {
        match self.members() {
            Ok(members) => paths::measure(members, self.moving, within).await,
            Err(why) => Measured {
                untold: vec![Untold {
                    of: Unknown::All,
                    why,
                }],
                ..Measured::default()
            },
        }
    }

    async fn sizes(
        &self,
        paths: &[PathSizes],
        attempt: u32,
        within: Duration,
    ) -> Vec<Result<Now, String>> {
        match self.members() {
            Ok(members) => paths::sizes(members, paths, attempt, within).await,
            Err(why) => vec![Err(why); paths.len()],
        }
    }

    async fn work(&self, paths: &[PathTo]) -> Vec<bool> {
        let of = |path: &PathTo| Opening {
            nic: Some(path.nic.clone()),
            from: path.from,
            to: path.to,
        };
        let answers = paths::open_all(paths.iter().map(of).collect()).await;
        works(paths, &answers)
    }

    async fn opened(&self, paths: &[PathTo], within: Duration) -> Vec<Result<bool, String>> {
        match self.members() {
            Ok(members) => paths::opened(members, paths, within).await,
            Err(why) => vec![Err(why); paths.len()],
        }
    }
}

/// Which of these work, by what came of a connection by each. A kernel's refusal says as much as an agent that accepts, but where that host's agent
/// accepts by another path a refusal is a filter's.
fn works(paths: &[PathTo], answers: &[OpenAnswer]) -> Vec<bool> {
    let both = || paths.iter().zip(answers);
    let accepted = both().filter(|(_, answer)| **answer == OpenAnswer::Accepted);
    let listen: BTreeSet<&HostName> = accepted.map(|(path, _)| &path.host).collect();
    let works = both().map(|(path, answer)| match answer {
        OpenAnswer::Accepted => true,
        OpenAnswer::Refused => !listen.contains(&path.host),
        OpenAnswer::Nothing => false,
    });
    works.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITHIN: Duration = Duration::from_secs(1);

    fn interface(name: &str, up: bool, addresses: &[&str]) -> Interface {
        Interface {
            name: name.into(),
            addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
            speed: None,
            mtu: 1500,
            up,
            loopback: name == "lo",
            tx_queues: 1,
            rx_queues: 1,
            rdma: None,
        }
    }

    fn path(host: &str, nic: &str) -> PathTo {
        PathTo {
            host: host.parse().unwrap(),
            nic: nic.into(),
            from: "10.0.0.1".parse().unwrap(),
            to: "10.0.0.2:7".parse().unwrap(),
        }
    }

    /// Of a host in no cluster.
    fn alone(folder: &Path) -> Others {
        let file = folder.join("droverd.toml");
        let state = folder.join("state");
        let text = format!("host = \"a\"\nstate = \"{}\"\n", state.display());
        std::fs::write(&file, text).unwrap();
        Others::of(&"a".parse().unwrap(), &file, 3)
    }

    fn shown(others: &[(&str, &[&str])]) -> Vec<String> {
        let own = [
            interface("lo", true, &["127.0.0.1/8"]),
            interface("nic0", true, &["10.0.0.1/24", "fe80::1/64", "fd00::1/64"]),
            interface("nic1", true, &["10.0.1.1/24"]),
            interface("nic2", false, &["10.0.2.1/24"]),
        ];
        let others: Vec<(HostName, Vec<SocketAddr>)> = others
            .iter()
            .map(|(host, addresses)| {
                let addresses = addresses.iter().map(|address| address.parse().unwrap());
                (host.parse().unwrap(), addresses.collect())
            })
            .collect();
        let paths = between(&own, &others);
        paths.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn paths_are_within_a_network_where_hosts_share_one() {
        let near = ["10.0.0.2:7", "10.0.1.2:7", "10.0.2.2:7", "[fd00::2]:7"];
        let expected = [
            "nic0 10.0.0.1 to b 10.0.0.2:7",
            "nic0 fd00::1 to b [fd00::2]:7",
            "nic1 10.0.1.1 to b 10.0.1.2:7",
        ];
        assert_eq!(shown(&[("b", &near)]), expected);
    }

    #[test]
    fn a_host_behind_a_router_is_tried_from_every_address() {
        let expected = [
            "nic0 10.0.0.1 to c 192.0.2.9:7",
            "nic1 10.0.1.1 to c 192.0.2.9:7",
        ];
        assert_eq!(shown(&[("b", &[]), ("c", &["192.0.2.9:7"])]), expected);
    }

    #[test]
    fn what_a_kernel_refuses_works_and_what_is_refused_beside_an_agent_that_accepts_does_not() {
        let all = [("b", "nic0"), ("b", "nic1"), ("b", "nic2"), ("c", "nic0")];
        let paths = all.map(|(host, nic)| path(host, nic));
        let answers = [
            OpenAnswer::Refused,
            OpenAnswer::Accepted,
            OpenAnswer::Nothing,
            OpenAnswer::Refused,
        ];
        assert_eq!(works(&paths, &answers), [false, true, false, true]);
    }

    #[tokio::test]
    async fn who_cannot_ask_the_others_tells_why_and_goes_on() {
        let others = Others::of(&"a".parse().unwrap(), Path::new("/nowhere/droverd.toml"), 0);
        let measured = others.measure(WITHIN).await;
        assert_eq!(measured.paths, []);
        let why = &measured.untold[0].why;
        assert!(why.contains("/nowhere/droverd.toml"), "{why}");
        let told = others.opened(&[path("b", "nic0")], WITHIN).await.remove(0);
        assert_eq!(told.as_ref(), Err(why));
    }

    #[tokio::test]
    async fn who_has_no_time_left_asks_no_host_to_open_connections_and_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let others = alone(folder.path());
        let told = others.opened(&[path("b", "nic0")], Duration::ZERO).await;
        let untold = "the agent of b was not asked: asking the others took 0 s already";
        assert_eq!(told, [Err(untold.to_owned())]);
    }

    #[tokio::test]
    async fn of_a_host_without_others_nothing_is_found_and_nothing_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let others = alone(folder.path());
        assert_eq!(others.measure(WITHIN).await, Measured::default());
    }

    #[test]
    fn what_asks_nobody_opens_nothing() {
        let others = Others::of(&"a".parse().unwrap(), Path::new("/nowhere/droverd.toml"), 0);
        assert!(others.members.get().is_none());
        assert!(others.members().is_err() && others.members.get().is_some());
    }

    #[test]
    fn a_configuration_of_another_host_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("droverd.toml");
        std::fs::write(&file, "host = \"z\"\n").unwrap();
        let others = Others::of(&"a".parse().unwrap(), &file, 0);
        let why = others.members().unwrap_err();
        assert!(why.ends_with("is the configuration of z"), "{why}");
    }
}
