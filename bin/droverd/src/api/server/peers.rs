//! Connections from other machines: who is it, and what may he do.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::extract::Extension;
use drover_api::{ErrorBody, ErrorCode, Refusal, limits as api_limits};
use drover_trust::{Facts, Identity, Problem};
use drover_types::network_of;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::doors::{Doors, Place};
use super::{Ended, answer, pause_after};
use crate::api::{Accepted, App, Caller, full_router, peer_router, stranger_router};
use crate::clock::Moment;
use crate::limits;

/// The first byte of a TLS connection: a handshake record.
const HANDSHAKE_RECORD: u8 = 0x16;

/// Where connections from other machines come in.
pub struct Reception {
    app: App,
    ended: Ended,
    /// Those of whom it is not known who they are.
    unknown: Arc<Doors<IpAddr>>,
    /// The same, at addresses where members are said to be.
    expected: Arc<Doors<IpAddr>>,
    /// Those of whom it is.
    known: Arc<Doors<Identity>>,
}

impl Reception {
    pub fn new(app: App, ended: Ended) -> Arc<Self> {
        Arc::new(Self {
            app,
            ended,
            unknown: Doors::new(limits::HANDSHAKES, limits::HANDSHAKES_OF_ONE),
            expected: Doors::new(
                limits::HANDSHAKES_EXPECTED,
                limits::HANDSHAKES_OF_ONE_EXPECTED,
            ),
            known: Doors::new(limits::CONNECTIONS, limits::CONNECTIONS_OF_ONE),
        })
    }

    /// Accepts on one listener until the agent ends.
    pub async fn accept(self: Arc<Self>, listener: TcpListener, mut ended: Ended) {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = ended.changed() => return,
            };
            match accepted {
                Ok((stream, address)) => self.receive(stream, address),
                Err(error) => pause_after(&error).await,
            }
        }
    }

    fn receive(self: &Arc<Self>, stream: TcpStream, address: SocketAddr) {
        let accepted = Accepted(Moment::now());
        let ip = address.ip().to_canonical();
        let place = if self.app.0.context.cluster.expects(ip) {
            self.expected.enter(ip)
        } else {
            self.unknown.enter(network_of(ip))
        };
        let Some(place) = place else {
            self.count("too-many-handshakes");
            tracing::warn!(address = %ip, "too many handshakes at once: a connection was closed");
            return;
        };
        // Small answers that are waited for.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%address, %error, "no TCP_NODELAY");
        }
        let reception = Arc::clone(self);
        tokio::spawn(async move { reception.serve(stream, accepted, ip, place).await });
    }

    async fn serve(
        self: Arc<Self>,
        stream: TcpStream,
        accepted: Accepted,
        ip: IpAddr,
        place: Place<IpAddr>,
    ) {
        let shaken = tokio::time::timeout(api_limits::HANDSHAKE, self.shake_hands(stream)).await;
        let stream = match shaken {
            Ok(Ok(shaken)) => shaken,
            Ok(Err(problem)) => return self.refused(ip, &problem),
            Err(_) => {
                self.count("too-slow");
                return tracing::warn!(address = %ip, "refused: no handshake in time");
            }
        };
        let facts = drover_trust::peer(stream.get_ref().1.peer_certificates());
        match facts {
            Ok(Some(facts)) => {
                drop(place);
                self.serve_known(stream, accepted, facts).await;
            }
            // Whoever joins keeps his place at the door.
            Ok(None) => {
                let router = stranger_router(&self.app).layer(Extension(ip));
                answer(stream, router, self.ended.clone(), std::future::pending()).await;
            }
            Err(error) => self.refused(ip, &Problem::Other(error.to_string())),
        }
    }

    fn refused(&self, ip: IpAddr, problem: &Problem) {
        self.count(problem.word());
        tracing::warn!(address = %ip, %problem, "refused");
    }

    fn count(&self, reason: &'static str) {
        self.app.0.context.metrics.connection_refused(reason);
    }

    async fn serve_known(&self, stream: TlsStream<TcpStream>, accepted: Accepted, facts: Facts) {
        let Some(_place) = self.known.enter(facts.identity.clone()) else {
            let who = &facts.identity;
            self.count("too-many-connections");
            return tracing::warn!(%who, "too many connections: one was closed");
        };
        let router = self.router(&facts.identity).layer(Extension(accepted));
        // What was removed during the handshake is seen here: the news come before the look.
        let mut changes = self.app.0.context.cluster.changes();
        let trust = self.app.0.context.cluster.trust().clone();
        let cluster = trust.armed().map(|armed| armed.authority);
        let revoked = async move {
            loop {
                // Not if this host left that cluster.
                let believed = trust.armed().is_some_and(|armed| {
                    Some(armed.authority) == cluster && !armed.is_removed(&facts)
                });
                if !believed || changes.changed().await.is_err() {
                    return;
                }
            }
        };
        answer(stream, router, self.ended.clone(), revoked).await;
    }

    fn router(&self, who: &Identity) -> Router {
        match who {
            Identity::Host(host) => peer_router(&self.app, host.clone()),
            Identity::Operator(name) => full_router(&self.app, Caller::Operator(name.clone())),
        }
    }

    async fn shake_hands(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>, Problem> {
        let other = |error: io::Error| {
            Problem::within(&error).unwrap_or_else(|| Problem::Other(error.to_string()))
        };
        let mut first = [0];
        if stream.peek(&mut first).await.map_err(other)? == 0 {
            return Err(Problem::Other("closed without a word".to_owned()));
        }
        if first != [HANDSHAKE_RECORD] {
            tell_plainly(stream).await;
            return Err(Problem::NoTls);
        }
        let armed = self.app.0.context.cluster.trust().armed();
        let server = armed
            .and_then(|armed| armed.server.clone())
            .ok_or_else(|| Problem::Other("this host belongs to no cluster".to_owned()))?;
        let accepting = TlsAcceptor::from(server).accept(stream);
        match accepting.into_fallible().await {
            Ok(stream) => Ok(stream),
            Err((error, stream)) => {
                let problem = other(error);
                linger(stream).await;
                Err(problem)
            }
        }
    }
}

/// Reads on for a moment what is of no use any more: a connection that is closed with bytes unread is
/// reset, and the other side would not see why it was refused.
async fn linger(mut stream: TcpStream) {
    let reading = async {
        let _ = stream.shutdown().await;
        let mut rest = [0; 4096];
        let mut left = limits::LINGER_BYTES;
        while let Ok(read @ 1..) = stream.read(&mut rest).await {
            left = left.saturating_sub(read);
            if left == 0 {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(limits::LINGER, reading).await;
}

/// Somebody speaks HTTP, or something else, without TLS: a person with curl is told.
async fn tell_plainly(mut stream: TcpStream) {
    let message = "this port speaks TLS 1.3 with certificates of the cluster only";
    let refusal = Refusal::new(ErrorCode::BadRequest, message)
        .next("use https and an operator's certificate, or the agent's UNIX socket on its host");
    let body = serde_json::to_string(&ErrorBody { error: refusal }).unwrap_or_default();
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{body}",
        body.len()
    );
    if stream.write_all(answer.as_bytes()).await.is_ok() {
        linger(stream).await;
    }
}
