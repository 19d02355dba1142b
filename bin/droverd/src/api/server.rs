//! Accepting connections, with a bound on their number, their heads and their life after the end.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::Extension;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::{App, local_router, peer_router, stranger_router};
use crate::limits;

/// A server that accepts connections until it is stopped.
pub struct Server {
    ending: watch::Sender<bool>,
    listeners: JoinSet<()>,
    open: Arc<Semaphore>,
    slots: u32,
}

/// Serves on these sockets.
pub fn serve(app: &App, local: UnixListener, peers: Vec<TcpListener>) -> Server {
    let (ending, ended) = watch::channel(false);
    let mut listeners = JoinSet::new();
    // Peers cannot use up what the operator needs.
    let for_local = Arc::new(Semaphore::new(limits::CONNECTIONS));
    let for_peers = Arc::new(Semaphore::new(limits::CONNECTIONS));
    let router = local_router(app);
    listeners.spawn(accept_local(
        local,
        router,
        Arc::clone(&for_local),
        ended.clone(),
    ));
    for listener in peers {
        let (app, open) = (app.clone(), Arc::clone(&for_peers));
        listeners.spawn(accept_peers(listener, app, open, ended.clone()));
    }
    let slots = u32::try_from(limits::CONNECTIONS).unwrap_or(u32::MAX);
    Server {
        ending,
        listeners,
        open: for_local,
        slots,
    }
}

impl Server {
    /// Accepts no more, and gives what is being answered a moment to be.
    pub async fn stop(mut self) {
        self.ending.send_replace(true);
        while self.listeners.join_next().await.is_some() {}
        let drained = self.open.acquire_many(self.slots);
        if tokio::time::timeout(limits::DRAIN_CONNECTIONS, drained)
            .await
            .is_err()
        {
            tracing::warn!("connections are cut that were still being answered");
        }
    }
}

type Ended = watch::Receiver<bool>;

async fn accept_local(
    listener: UnixListener,
    router: Router,
    open: Arc<Semaphore>,
    mut ended: Ended,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = ended.changed() => return,
        };
        match accepted {
            Ok((stream, _)) => answer(stream, router.clone(), &open, &ended),
            Err(error) => pause_after(&error).await,
        }
    }
}

async fn accept_peers(listener: TcpListener, app: App, open: Arc<Semaphore>, mut ended: Ended) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = ended.changed() => return,
        };
        match accepted {
            Ok((stream, address)) => {
                // Small answers that are waited for.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%address, %error, "no TCP_NODELAY");
                }
                answer(stream, router_for(&app, address), &open, &ended);
            }
            Err(error) => pause_after(&error).await,
        }
    }
}

fn router_for(app: &App, address: SocketAddr) -> Router {
    let ip = address.ip().to_canonical();
    match app.0.context.config.peer_at(ip) {
        Some(peer) => peer_router(app, peer.host.clone()),
        None => {
            tracing::warn!(address = %ip, "refused: no address of a configured peer");
            stranger_router(app).layer(Extension(ip))
        }
    }
}

/// Out of file descriptors, most likely: accepting again at once would only spin.
async fn pause_after(error: &io::Error) {
    tracing::error!(%error, "cannot accept a connection");
    tokio::time::sleep(limits::ACCEPT_PAUSE).await;
}

fn answer<S>(stream: S, router: Router, open: &Arc<Semaphore>, ended: &Ended)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Ok(permit) = Arc::clone(open).try_acquire_owned() else {
        tracing::warn!(
            connections = limits::CONNECTIONS,
            "too many connections: one was closed"
        );
        return;
    };
    let mut ended = ended.clone();
    tokio::spawn(async move {
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(limits::HEAD);
        builder.max_buf_size(limits::HEAD_BYTES).half_close(false);
        let service = TowerToHyperService::new(router);
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        let served = tokio::select! {
            served = connection.as_mut() => served,
            _ = ended.changed() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = served {
            tracing::debug!(%error, "connection ended");
        }
        drop(permit);
    });
}
