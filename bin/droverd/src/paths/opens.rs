//! Connections to other hosts that are opened to see what comes of it, for whoever changes this host or another; nothing is said over them.
//!
//! ```text
//!   who is changed                          another host
//!   from an address of its own ───────────▶ its agent, or its kernel, answers
//!   POST /paths/open ─────────────────────▶
//!   its agent, or its kernel, answers ◀──── from an address of its own
//! ```

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};

use drover_api::{ErrorCode, OpenAnswer, OpenRequest, OpenedView, Refusal};
use drover_types::Interface;
use futures_util::{StreamExt, stream};
use tokio::net::TcpSocket;
use tokio::time::timeout;

use super::limits;
use crate::limits::{CHANGE_PATH, CHANGE_PATH_ROUNDS, CHANGE_PATHS_AT_ONCE};

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

#[cfg(test)]
mod tests {
    use drover_api::OpenEnds;

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
}
