//! Hosts on the loopback: each an agent with a port of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use drover_api::{Client, ClientError, JoinRequest, Refusal, TokenRequest};
use drover_trust::{Facts, Trust, server_name};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls;

use super::support::{Agent, Place, free_address};

/// For anything to happen on a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A host with its agent.
pub struct Host {
    pub place: Place,
    pub agent: Agent,
    pub address: SocketAddr,
    pub name: &'static str,
}

/// A place whose agent listens there, with `more` at the end of its configuration.
pub fn place(name: &'static str, address: SocketAddr, more: &str) -> Place {
    let place = Place::named(name);
    place.configure(&format!("[api]\nlisten = [\"{address}\"]\n{more}"));
    place
}

impl Host {
    /// A host that belongs to no cluster.
    pub async fn start(name: &'static str) -> Self {
        let address = free_address();
        Self::start_in(name, address, place(name, address, "")).await
    }

    pub async fn start_in(name: &'static str, address: SocketAddr, place: Place) -> Self {
        let agent = place.start().await;
        Self {
            place,
            agent,
            address,
            name,
        }
    }

    /// One that has just made a cluster.
    pub async fn founder() -> Self {
        let host = Self::start("a").await;
        host.agent.client.cluster_init().await.unwrap();
        host
    }

    pub fn state(&self) -> std::path::PathBuf {
        self.place.path("state")
    }

    pub fn client(&self) -> &Client {
        &self.agent.client
    }

    pub async fn token(&self) -> String {
        let made = self.client().cluster_token(&TokenRequest::default()).await;
        made.unwrap().token
    }

    pub async fn join(&self, token: &str) -> Result<(), Refusal> {
        let request = JoinRequest {
            token: token.to_owned(),
        };
        let joined = self.client().cluster_join(&request).await;
        joined.map(drop).map_err(|error| refusal(&error))
    }

    /// A host that has just joined the cluster of this one.
    pub async fn with(&self, name: &'static str) -> Host {
        let host = Host::start(name).await;
        host.join(&self.token().await).await.unwrap();
        self.all_have_heard().await;
        host
    }

    /// Waits until every member knows the newest.
    pub async fn all_have_heard(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let view = self.client().cluster().await.unwrap();
            if view.members.iter().all(|m| m.up_to_date != Some(false)) {
                return;
            }
            assert!(Instant::now() < deadline, "{view:#?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The same agent anew.
    pub async fn restarted(self) -> Self {
        let Self {
            place,
            agent,
            address,
            name,
        } = self;
        assert_eq!(agent.terminate(), Some(0));
        Self::start_in(name, address, place).await
    }

    /// Asked over the network with this certificate.
    pub fn asked_by(&self, trust: &Trust) -> Client {
        Client::host_at(
            self.name.parse().unwrap(),
            vec![self.address],
            trust.clone(),
        )
    }
}

pub fn refusal(error: &ClientError) -> Refusal {
    let refusal = error.refusal().unwrap_or_else(|| panic!("{error:?}"));
    assert!(refusal.next.is_some(), "no next step: {refusal:?}");
    refusal.clone()
}

/// The problem between two ends, as the operator reads it.
pub fn untrusted<T: std::fmt::Debug>(result: Result<T, ClientError>) -> String {
    let error = result.unwrap_err();
    assert!(matches!(error, ClientError::Untrusted { .. }), "{error:?}");
    error.to_string()
}

/// A TLS connection that stays open between requests.
pub struct Open {
    stream: TlsStream<TcpStream>,
}

impl Open {
    pub async fn to(host: &Host, trust: &Trust) -> Self {
        let stream = TcpStream::connect(host.address).await.unwrap();
        Self::over(stream, host, trust).await.unwrap()
    }

    pub async fn over(stream: TcpStream, host: &Host, trust: &Trust) -> std::io::Result<Self> {
        let config = Arc::clone(&trust.armed().unwrap().client);
        let name: ServerName<'static> = server_name(&host.name.parse().unwrap()).unwrap();
        let stream = TlsConnector::from(config).connect(name, stream).await?;
        Ok(Self { stream })
    }

    /// The certificate that the host shows.
    pub fn shown(&self) -> Facts {
        let chain = self.stream.get_ref().1.peer_certificates();
        drover_trust::peer(chain).unwrap().unwrap()
    }

    /// The status of the answer to a request; `None` when the connection is closed instead.
    pub async fn get(&mut self, path: &str) -> Option<u16> {
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n");
        self.stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = Vec::new();
        loop {
            let mut more = [0; 4096];
            let read = tokio::time::timeout(PATIENCE, self.stream.read(&mut more));
            let read = read.await.expect("neither an answer nor the end").ok()?;
            if read == 0 {
                return None;
            }
            answer.extend_from_slice(&more[..read]);
            if let Some(status) = complete(&answer) {
                return Some(status);
            }
        }
    }

    /// Waits for the other side to close it.
    pub async fn closed(&mut self) {
        let mut rest = [0; 64];
        let read = tokio::time::timeout(PATIENCE, self.stream.read(&mut rest));
        let read = read.await.expect("the connection stays open");
        assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    }
}

fn complete(answer: &[u8]) -> Option<u16> {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))?;
    (body.len() >= length.parse().ok()?).then(|| head[9..12].parse().unwrap())
}
