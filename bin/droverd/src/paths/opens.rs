//! Connections to other hosts that are opened to see what comes of it, for whoever changes this host or another; nothing is said over them.
//!
//! ```text
//!   who is changed                          another host
//!   from an address of its own ───────────▶ its agent, or its kernel, answers
//!   POST /paths/open ─────────────────────▶
//!   its agent, or its kernel, answers ◀──── from an address of its own
//! ```

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use drover_api::{ErrorCode, OpenAnswer, OpenEnds, OpenRequest, OpenedView, Refusal};
use drover_types::{HostName, Interface, with_sources};
use futures_util::{StreamExt, stream};
use tokio::net::TcpSocket;
use tokio::time::timeout;

use super::limits;
use crate::api::Caller;
use crate::facts;
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

/// For which hosts connections are opened now: one request of each at a time.
#[derive(Debug, Default)]
pub struct Opens(Mutex<BTreeSet<HostName>>);

/// A host's turn, until it is dropped.
struct OpensFor<'a> {
    opens: &'a Opens,
    host: &'a HostName,
}

impl Drop for OpensFor<'_> {
    fn drop(&mut self) {
        self.opens.lock().remove(self.host);
    }
}

impl Opens {
    fn turn<'a>(&'a self, host: &'a HostName) -> Result<OpensFor<'a>, Refusal> {
        if self.lock().insert(host.clone()) {
            return Ok(OpensFor { opens: self, host });
        }
        let message = format!("connections that {host} asked for are being opened");
        Err(Refusal::new(ErrorCode::TooManyRequests, message).next("ask again in some seconds"))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<HostName>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens connections for another host from addresses of this one; nothing comes of one from an address that this one does not have.
///
/// # Errors
/// It is no host that asks, or it asks already, or for too many, or for one that does not lead to the agent of a host by a port of its own; the
/// kernel does not tell the interfaces.
pub async fn open(
    (opens, peers): (&Opens, &Peers),
    caller: &Caller,
    request: OpenRequest,
) -> Result<OpenedView, Refusal> {
    let Caller::Peer(host) = caller else {
        let message = "only a host can ask this, with its own certificate";
        return Err(Refusal::new(ErrorCode::NotAPeer, message));
    };
    let known = peers.addresses(host);
    let ports: BTreeSet<u16> = known.iter().map(SocketAddr::port).collect();
    check(host, &ports, &request.ends)?;
    let _turn = opens.turn(host)?;
    let own = facts::interfaces().await.map_err(|error| {
        let why = with_sources(&error);
        let message = format!("the interfaces of this host are not known: {why}");
        Refusal::new(ErrorCode::Internal, message)
    })?;
    let openings: Vec<Option<Opening>> = request
        .ends
        .iter()
        .map(|ends| opening(&own, ends))
        .collect();
    let answers = open_all(openings.iter().flatten().cloned().collect()).await;
    let mut answers = answers.into_iter();
    let answers = openings.iter().map(|opening| {
        let answer = opening.as_ref().and_then(|_| answers.next());
        answer.unwrap_or(OpenAnswer::Nothing)
    });
    Ok(OpenedView {
        answers: answers.collect(),
    })
}

/// A host has connections opened to its agent, which has these ports, so that nobody uses another host to reach what is of neither. The address
/// is for it to say: not all by which its agent is reached are known of it.
fn check(host: &HostName, ports: &BTreeSet<u16>, ends: &[OpenEnds]) -> Result<(), Refusal> {
    let refused = |message| Err(Refusal::new(ErrorCode::BadRequest, message));
    let (count, most) = (ends.len(), limits::OPENED_OF_HOST);
    if count > most {
        return refused(format!(
            "{count} connections are more than the {most} that one host asks for"
        ));
    }
    for OpenEnds { to, .. } in ends {
        let ip = to.ip().to_canonical();
        if ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() {
            return refused(format!("{to} is no address at which {host} is found"));
        }
        if !ports.contains(&to.port()) {
            let known: Vec<String> = ports.iter().map(u16::to_string).collect();
            let known = known.join(", ");
            return refused(format!(
                "{to} is not the agent of {host}, which the cluster knows at port {known}"
            ));
        }
    }
    Ok(())
}

/// By the interface that has the address, and by any where that is a loopback, which leads nowhere: a host may have its address there, and be found
/// by routes. Nothing is opened from an address of nobody here.
fn opening(own: &[Interface], OpenEnds { from, to }: &OpenEnds) -> Option<Opening> {
    let has_it = |nic: &&Interface| nic.addresses.iter().any(|own| own.address() == *from);
    let nic = own.iter().find(has_it)?;
    Some(Opening {
        nic: (!nic.loopback).then(|| nic.name.clone()),
        from: *from,
        to: *to,
    })
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

    fn interface(name: &str, addresses: &[&str]) -> Interface {
        Interface {
            name: name.into(),
            addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
            speed: None,
            mtu: 1500,
            up: true,
            loopback: name == "lo",
            tx_queues: 1,
            rx_queues: 1,
            rdma: None,
        }
    }

    fn ends(from: &str, to: &str) -> OpenEnds {
        OpenEnds {
            from: from.parse().unwrap(),
            to: to.parse().unwrap(),
        }
    }

    #[test]
    fn connections_are_opened_from_own_addresses_alone_by_the_interface_that_has_them() {
        let own = [
            interface("lo", &["127.0.0.1/8", "10.255.0.2/32"]),
            interface("nic0", &["10.0.0.2/24", "fd00::2/64"]),
        ];
        let by = |from: &str, to: &str| {
            let opening = opening(&own, &ends(from, to))?;
            Some((
                opening.nic,
                opening.from.to_string(),
                opening.to.to_string(),
            ))
        };
        let nic = || Some("nic0".to_owned());
        let found = by("fd00::2", "[fd00::1]:7470");
        let expected = (nic(), "fd00::2".to_owned(), "[fd00::1]:7470".to_owned());
        assert_eq!(found, Some(expected));
        let found = by("10.255.0.2", "10.0.0.1:7470").unwrap();
        assert_eq!((found.0, &found.1[..]), (None, "10.255.0.2"));
        for nobodys in ["10.0.0.3", "0.0.0.0", "::", "192.0.2.1"] {
            assert_eq!(by(nobodys, "10.0.0.1:7470"), None, "{nobodys}");
        }
    }

    #[test]
    fn a_host_has_connections_opened_to_the_ports_of_its_agent_alone_and_no_more_than_the_bound() {
        let host = "a".parse().unwrap();
        let to = |all: &[&str]| {
            let ends: Vec<_> = all.iter().map(|to| ends("10.0.0.2", to)).collect();
            check(&host, &[7470, 7480].into(), &ends).map_err(|refused| refused.to_string())
        };
        assert_eq!(
            to(&["10.0.0.1:7470", "10.9.0.1:7480", "[fd00::1]:7470"]),
            Ok(())
        );
        for elsewhere in [
            "127.0.0.1:7470",
            "[::1]:7470",
            "[::ffff:127.0.0.1]:7470",
            "0.0.0.0:7470",
            "[::]:7470",
            "224.0.0.1:7470",
            "[ff02::1]:7470",
        ] {
            let refused = to(&["10.0.0.1:7470", elsewhere]).unwrap_err();
            assert!(
                refused.contains(&format!("{elsewhere} is no address")),
                "{refused}"
            );
        }
        let refused = to(&["10.0.0.1:22"]).unwrap_err();
        assert!(refused.contains("at port 7470, 7480"), "{refused}");
        assert!(to(&["10.0.0.1:7470"; limits::OPENED_OF_HOST]).is_ok());
        let refused = to(&["10.0.0.1:7470"; limits::OPENED_OF_HOST + 1]).unwrap_err();
        assert!(refused.contains("257 connections"), "{refused}");
    }

    #[test]
    fn one_request_of_a_host_is_carried_out_at_a_time() {
        let opens = Opens::default();
        let (a, b): (HostName, HostName) = ("a".parse().unwrap(), "b".parse().unwrap());
        let turn = opens.turn(&a).unwrap();
        let refused = opens.turn(&a).err().unwrap();
        assert_eq!(refused.code, ErrorCode::TooManyRequests);
        assert!(opens.turn(&b).is_ok());
        drop(turn);
        assert!(opens.turn(&a).is_ok());
    }
}
