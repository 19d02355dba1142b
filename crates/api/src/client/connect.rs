//! Connecting to one of several addresses of a host, and making sure that it is that host.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use drover_trust::{Problem, joining_client, server_name, system_clock};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use socket2::SockRef;
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::error::{ClientError, Endpoint};
use crate::error::{ErrorCode, Refusal};
use crate::limits;

/// Whom to believe, and under which name.
struct Wanted {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

/// A connection to whoever the endpoint says, verified.
pub async fn to(endpoint: &Endpoint) -> Result<TlsStream<TcpStream>, ClientError> {
    match endpoint {
        Endpoint::Unix(_) => Err(unreachable(endpoint, nowhere())),
        Endpoint::Host {
            host,
            addresses,
            trust,
        } => {
            let armed = trust.armed().ok_or_else(no_cluster)?;
            let wanted = Wanted {
                config: Arc::clone(&armed.client),
                name: server_name(host).map_err(|error| unusable(&error))?,
            };
            let addresses = addresses.now();
            if addresses.is_empty() {
                let host = host.clone();
                return Err(ClientError::NowhereKnown { host });
            }
            first(endpoint, &addresses, &wanted).await
        }
        Endpoint::Authority {
            fingerprint,
            addresses,
        } => {
            let config = joining_client(*fingerprint, system_clock());
            let wanted = Wanted {
                config: Arc::new(config.map_err(|error| unusable(&error))?),
                // Not sent in a way that matters: the fingerprint decides.
                name: ServerName::IpAddress(addresses.first().ok_or_else(none)?.ip().into()),
            };
            first(endpoint, addresses, &wanted).await
        }
    }
}

/// Tries the addresses in order, each a moment after the one before it, and takes the first at
/// which the right host answers.
async fn first(
    endpoint: &Endpoint,
    addresses: &[SocketAddr],
    wanted: &Wanted,
) -> Result<TlsStream<TcpStream>, ClientError> {
    let mut rest = addresses.iter();
    let mut attempts = FuturesUnordered::new();
    let mut worst = unreachable(endpoint, nowhere());
    loop {
        match rest.next() {
            Some(address) => attempts.push(attempt(endpoint, *address, wanted)),
            None if attempts.is_empty() => return Err(worst),
            None => {}
        }
        let more = rest.len() > 0;
        tokio::select! {
            Some(done) = attempts.next() => match done {
                Ok(stream) => return Ok(stream),
                // Somebody who answers tells more than silence, and who is not believed most.
                Err(error) if tells(&error) >= tells(&worst) => worst = error,
                Err(error) => drop(error),
            },
            () = tokio::time::sleep(limits::NEXT_ADDRESS), if more => {}
        }
    }
}

fn tells(error: &ClientError) -> u8 {
    match error {
        ClientError::Untrusted { .. } => 2,
        error => u8::from(!error.is_silence()),
    }
}

async fn attempt(
    endpoint: &Endpoint,
    address: SocketAddr,
    wanted: &Wanted,
) -> Result<TlsStream<TcpStream>, ClientError> {
    let failed = |error: io::Error| {
        let named = io::Error::new(error.kind(), format!("{address}: {error}"));
        unreachable(endpoint, named)
    };
    let late = |seconds: u64| {
        let text = format!("no answer within {seconds} s");
        failed(io::Error::new(io::ErrorKind::TimedOut, text))
    };
    let stream = tokio::time::timeout(limits::CONNECT, dial(address))
        .await
        .map_err(|_| late(limits::CONNECT.as_secs()))?
        .map_err(failed)?;
    let connector = TlsConnector::from(Arc::clone(&wanted.config));
    let shaken = connector.connect(wanted.name.clone(), stream);
    tokio::time::timeout(limits::HANDSHAKE, shaken)
        .await
        .map_err(|_| late(limits::HANDSHAKE.as_secs()))?
        .map_err(|error| match Problem::within(&error) {
            Some(problem) => ClientError::Untrusted {
                endpoint: address.to_string(),
                problem,
            },
            None => failed(error),
        })
}

/// Connects with small segments, both ways: what is said here is short, and a path that loses larger
/// packets without a word would lose requests while it still carries a handshake.
async fn dial(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    // Before connecting, as the peer is told in the SYN.
    SockRef::from(&socket).set_tcp_mss(limits::SEGMENT_BYTES)?;
    let stream = socket.connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn unreachable(endpoint: &Endpoint, source: io::Error) -> ClientError {
    ClientError::Unreachable {
        endpoint: endpoint.to_string(),
        source,
    }
}

fn nowhere() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "no address to connect to")
}

fn none() -> ClientError {
    Refusal::new(ErrorCode::BadRequest, "no address to connect to").into()
}

fn no_cluster() -> ClientError {
    Refusal::new(ErrorCode::NoCluster, "this host belongs to no cluster")
        .next("`drover cluster init` makes one, `drover cluster join` joins one")
        .into()
}

fn unusable(error: &drover_trust::TrustError) -> ClientError {
    Refusal::new(ErrorCode::TrustFailed, error.to_string()).into()
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn segments_are_small_both_ways() {
        for address in [
            SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            SocketAddr::from((Ipv6Addr::LOCALHOST, 0)),
        ] {
            let listener = match TcpListener::bind(address).await {
                Ok(listener) => listener,
                Err(error) => {
                    println!("skipped, because {address} cannot be listened on: {error}");
                    continue;
                }
            };
            let near = dial(listener.local_addr().unwrap()).await.unwrap();
            let (far, _) = listener.accept().await.unwrap();
            for end in [near, far] {
                let bytes = SockRef::from(&end).tcp_mss().unwrap();
                assert!((1000..=limits::SEGMENT_BYTES).contains(&bytes), "{bytes}");
            }
        }
    }
}
