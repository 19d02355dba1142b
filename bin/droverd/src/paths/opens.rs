//! Connections that are opened between hosts for whoever changes one of them, to see whether anything answers; nothing is said over them.
//!
//! ```text
//!   who is changed                          another host
//!   from an address of its own ───────────▶ its agent, or its kernel, answers
//!   POST /paths/open ─────────────────────▶
//!   its agent, or its kernel, answers ◀──── from an address of its own
//! ```

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};

use drover_api::{ErrorCode, OpenAnswer, OpenEnds, OpenRequest, OpenedView, Refusal};
use drover_change::PathTo;
use drover_types::{HostName, Interface};
use futures_util::{StreamExt, stream};
use tokio::net::TcpSocket;
use tokio::time::timeout;

use super::ask::not_opened;
use super::limits;
use crate::config::Config;
use crate::limits::{CHANGE_PATH, CHANGE_PATH_ROUNDS, CHANGE_PATHS_AT_ONCE};
use crate::peers::Peers;

/// A connection that is to be opened.
#[derive(Debug, Clone)]
pub struct Opening {
    /// By which interface, where that is known.
    pub nic: Option<String>,
    /// From which address of this host.
    pub from: IpAddr,
    /// To where.
    pub to: SocketAddr,
}

/// What comes of each of these, in their order.
pub async fn open_all(openings: Vec<Opening>) -> Vec<OpenAnswer> {
    let at_once = openings.len().div_ceil(CHANGE_PATH_ROUNDS);
    let opened = stream::iter(openings).map(answer);
    let opened = opened.buffered(at_once.max(CHANGE_PATHS_AT_ONCE));
    opened.collect().await
}

async fn answer(Opening { nic, from, to }: Opening) -> OpenAnswer {
    let connecting = async {
        let socket = match from {
            IpAddr::V4(_) => TcpSocket::new_v4(),
            IpAddr::V6(_) => TcpSocket::new_v6(),
        }?;
        socket.bind_device(nic.as_ref().map(String::as_bytes))?;
        socket.bind(SocketAddr::new(from, 0))?;
        socket.connect(to).await
    };
    match timeout(CHANGE_PATH, connecting).await {
        Ok(Ok(_)) => OpenAnswer::Accepted,
        Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => OpenAnswer::Refused,
        Ok(Err(_)) | Err(_) => OpenAnswer::Nothing,
    }
}

/// Opens connections to a host that asks for it, from addresses of this one; nothing answers to one from another's.
///
/// # Errors
/// There are too many.
pub async fn open(own: &[Interface], request: OpenRequest) -> Result<OpenedView, Refusal> {
    let count = request.ends.len();
    if count > limits::OPENED_OF_HOST {
        let most = limits::OPENED_OF_HOST;
        let message =
            format!("{count} connections are more than the {most} that one host asks for");
        return Err(Refusal::new(ErrorCode::BadRequest, message));
    }
    let openings = request.ends.iter().map(|ends| {
        let has_it = |nic: &&Interface| nic.addresses.iter().any(|own| own.address() == ends.from);
        let nic = own.iter().find(has_it);
        Opening {
            nic: nic.map(|nic| nic.name.clone()),
            from: ends.from,
            to: ends.to,
        }
    });
    let answers = open_all(openings.collect()).await;
    Ok(OpenedView { answers })
}

/// Whether the agents of the other hosts open connections to this one by these paths, one answer each, or why that is not known.
pub async fn opened(
    (config, peers): (&Config, &Peers),
    paths: &[PathTo],
) -> Vec<Result<bool, String>> {
    let mut hosts: BTreeMap<&HostName, Vec<&PathTo>> = BTreeMap::new();
    for path in paths {
        hosts.entry(&path.host).or_default().push(path);
    }
    let asked = stream::iter(hosts).map(async |(far, paths)| {
        let told = opened_by((config, peers), far, &paths).await;
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
    let opened = timeout(limits::SIZES_HOST, client.open(&OpenRequest { ends })).await;
    let opened = opened.map_err(|_| {
        let seconds = limits::SIZES_HOST.as_secs();
        format!("the agent of {far} did not answer within {seconds} s")
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

    #[tokio::test]
    async fn who_listens_accepts_a_kernel_refuses_and_of_an_address_of_nobody_nothing_is_heard() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let there = listener.local_addr().unwrap();
        // Nobody routes these over the loopback (RFC 5737).
        let nowhere: SocketAddr = "192.0.2.1:7".parse().unwrap();
        let of = |to| Opening {
            nic: Some("lo".into()),
            from: "127.0.0.1".parse().unwrap(),
            to,
        };
        let found = open_all(vec![of(there), of(nowhere)]).await;
        assert_eq!(found, [OpenAnswer::Accepted, OpenAnswer::Nothing]);
        drop(listener);
        assert_eq!(open_all(vec![of(there)]).await, [OpenAnswer::Refused]);
    }

    #[tokio::test]
    async fn connections_are_opened_from_own_addresses_alone_and_no_more_than_the_bound() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let from = |address: &str| OpenEnds {
            from: address.parse().unwrap(),
            to,
        };
        let ends = vec![from("127.0.0.1"), from("192.0.2.1")];
        let opened = open(&[], OpenRequest { ends }).await.unwrap();
        let expected = [OpenAnswer::Accepted, OpenAnswer::Nothing];
        assert_eq!(opened.answers, expected);
        let ends = vec![from("127.0.0.1"); limits::OPENED_OF_HOST + 1];
        let refused = open(&[], OpenRequest { ends }).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::BadRequest);
    }

    #[test]
    fn a_refusal_is_a_filters_where_somebody_listens_and_the_kernels_where_nobody_does() {
        for at in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0"] {
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
