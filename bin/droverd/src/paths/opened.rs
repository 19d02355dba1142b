//! Has the agents of other hosts open connections to this one, for whoever changes it.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use drover_api::{OpenAnswer, OpenEnds, OpenRequest};
use drover_change::PathTo;
use drover_types::HostName;
use futures_util::{StreamExt, stream};
use tokio::net::TcpSocket;
use tokio::time::{Instant, timeout};

use super::ask::not_opened;
use super::limits;
use crate::config::Config;
use crate::peers::Peers;

/// Whether the agents of the other hosts open connections to this one by these paths, one answer each, or why that is not known
/// within this time.
pub async fn opened(
    (config, peers): (&Config, &Peers),
    paths: &[PathTo],
    within: Duration,
) -> Vec<Result<bool, String>> {
    let end = Instant::now() + within;
    let mut hosts: BTreeMap<&HostName, Vec<&PathTo>> = BTreeMap::new();
    for path in paths {
        hosts.entry(&path.host).or_default().push(path);
    }
    let asked = stream::iter(hosts).map(async |(far, paths)| {
        let left = end.saturating_duration_since(Instant::now());
        let told = match left.is_zero() {
            false => opened_by((config, peers), far, &paths, left).await,
            true => Err(format!(
                "the agent of {far} was not asked: asking the others took {} s already",
                within.as_secs()
            )),
        };
        (far, told.map(Vec::into_iter))
    });
    // Who is silent holds up nobody else.
    let asked = asked.buffer_unordered(limits::SIZES_AT_ONCE);
    let mut told: BTreeMap<_, _> = asked.collect().await;
    let of = |path: &PathTo| match told.get_mut(&path.host) {
        Some(Ok(answered)) => answered
            .next()
            .ok_or_else(|| format!("the agent of {} did not tell of all paths", path.host)),
        Some(Err(why)) => Err(why.clone()),
        None => Err(format!("the agent of {} was not asked", path.host)),
    };
    paths.iter().map(of).collect()
}

async fn opened_by(
    (config, peers): (&Config, &Peers),
    far: &HostName,
    paths: &[&PathTo],
    left: Duration,
) -> Result<Vec<bool>, String> {
    let paths = paths.iter().take(limits::OPENED_OF_HOST);
    let doors = paths.clone().map(|path| door(&config.listen, path.from));
    let doors: Option<Vec<SocketAddr>> = doors.collect();
    let doors = doors.ok_or_else(|| format!("{} listens at no address", config.host))?;
    let ends = paths.zip(&doors).map(|(path, door)| OpenEnds {
        from: path.to.ip(),
        to: *door,
    });
    let ends = ends.collect();
    let client = peers.client(far).map_err(|refusal| refusal.message)?;
    let within = left.min(limits::SIZES_HOST);
    let opened = timeout(within, client.open(&OpenRequest { ends })).await;
    let opened = opened.map_err(|_| {
        let seconds = within.as_secs_f64();
        format!("the agent of {far} did not answer within {seconds:.1} s")
    })?;
    let opened = opened.map_err(|error| not_opened(far, &error).message)?;
    let found = doors.into_iter().zip(opened.answers);
    Ok(found.map(|(door, answer)| is_open(door, answer)).collect())
}

/// Whether this door of this host is open to whoever had that answer of it. Where somebody listens a refusal is a filter's, and otherwise the
/// kernel's, which says as much of the way there.
fn is_open(door: SocketAddr, answer: OpenAnswer) -> bool {
    match answer {
        OpenAnswer::Accepted => true,
        OpenAnswer::Refused => is_free(door),
        OpenAnswer::Nothing => false,
    }
}

/// Whether nobody listens there, by what no filter changes: then it can be taken. It is given back at once, and keeps nobody from listening.
fn is_free(door: SocketAddr) -> bool {
    let take = || {
        let socket = match door {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        }?;
        // It is free though somebody who listened there has connections left.
        socket.set_reuseaddr(true)?;
        socket.bind(door)
    };
    take().is_ok()
}

/// Where this host's agent is looked for at an address of the host: at the port at which it listens there, or at another address.
fn door(listen: &[SocketAddr], at: IpAddr) -> Option<SocketAddr> {
    let there = |own: &&SocketAddr| own.ip() == at;
    let own = listen.iter().find(there).or(listen.first())?;
    Some(SocketAddr::new(at, own.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_a_filters_where_somebody_listens_and_the_kernels_where_nobody_does() {
        for at in ["127.0.0.1:0", "0.0.0.0:0"] {
            let listener = std::net::TcpListener::bind(at).unwrap();
            let mut door = listener.local_addr().unwrap();
            if door.ip().is_unspecified() {
                door.set_ip("127.0.0.1".parse().unwrap());
            }
            let connection = std::net::TcpStream::connect(door).unwrap();
            let served = listener.accept().unwrap();
            let all = [
                OpenAnswer::Accepted,
                OpenAnswer::Refused,
                OpenAnswer::Nothing,
            ];
            assert_eq!(all.map(|a| is_open(door, a)), [true, false, false], "{at}");
            drop(listener);
            assert_eq!(all.map(|a| is_open(door, a)), [true, true, false], "{at}");
            drop((connection, served));
        }
    }

    #[test]
    fn an_agent_is_looked_for_at_the_port_at_which_it_listens() {
        let listen: Vec<SocketAddr> = ["10.0.0.1:7470", "10.0.1.1:7480"]
            .map(|at| at.parse().unwrap())
            .into();
        let at = |address: &str| door(&listen, address.parse().unwrap()).unwrap().to_string();
        assert_eq!(at("10.0.1.1"), "10.0.1.1:7480");
        assert_eq!(at("10.0.2.1"), "10.0.2.1:7470");
        assert_eq!(door(&[], "10.0.0.1".parse().unwrap()), None);
    }
}
