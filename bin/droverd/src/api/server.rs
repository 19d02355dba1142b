//! Accepting connections, with a bound on their number, their heads and their life after the end.
//!
//! ```text
//!   UNIX socket ── permissions of the file ──────────────────────────────▶ every route
//!   TCP ── doors (who is unknown) ── TLS 1.3 ──┬ an operator's certificate ─▶ every route
//!                                              ├ a host's ──────────────────▶ peer routes, and orders
//!                                              │                              of the coordinator
//!                                              └ none ──────────────────────▶ to join
//! ```

mod doors;
mod peers;

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::extract::Extension;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;

use self::peers::Reception;
use super::{Accepted, App, Caller, full_router};
use crate::clock::Moment;
use crate::limits;

/// A server that accepts connections until it is stopped.
pub struct Server {
    ending: watch::Sender<bool>,
    listeners: JoinSet<()>,
    open: Arc<Semaphore>,
    slots: u32,
}

/// Serves on the local socket, and on the listeners for other hosts as they are opened.
pub fn serve(app: &App, local: UnixListener, opened: mpsc::Receiver<TcpListener>) -> Server {
    let (ending, ended) = watch::channel(false);
    let mut listeners = JoinSet::new();
    // Other hosts cannot use up what the operator needs.
    let for_local = Arc::new(Semaphore::new(limits::CONNECTIONS));
    let router = full_router(app, Caller::Local);
    listeners.spawn(accept_local(
        local,
        router,
        Arc::clone(&for_local),
        ended.clone(),
    ));
    let reception = Reception::new(app.clone(), ended.clone());
    listeners.spawn(accept_opened(opened, reception, ended));
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
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                pause_after(&error).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&open).try_acquire_owned() else {
            tracing::warn!(
                connections = limits::CONNECTIONS,
                "too many connections: one was closed"
            );
            continue;
        };
        let accepted = Extension(Accepted(Moment::now()));
        let (router, ended) = (router.clone().layer(accepted), ended.clone());
        tokio::spawn(async move {
            answer(stream, router, ended, std::future::pending()).await;
            drop(permit);
        });
    }
}

/// Each listener for other hosts gets a task of its own.
async fn accept_opened(
    mut opened: mpsc::Receiver<TcpListener>,
    reception: Arc<Reception>,
    mut ended: Ended,
) {
    let mut accepting = JoinSet::new();
    loop {
        tokio::select! {
            Some(listener) = opened.recv() => {
                let (reception, ended) = (Arc::clone(&reception), ended.clone());
                accepting.spawn(async move { reception.accept(listener, ended).await });
            }
            _ = ended.changed() => break,
        }
    }
    while accepting.join_next().await.is_some() {}
}

/// Out of file descriptors, most likely: accepting again at once would only spin.
async fn pause_after(error: &io::Error) {
    tracing::error!(%error, "cannot accept a connection");
    tokio::time::sleep(limits::ACCEPT_PAUSE).await;
}

/// Answers on one connection until its end, the agent's, or that of the caller's right to it.
async fn answer<S>(stream: S, router: Router, mut ended: Ended, revoked: impl Future<Output = ()>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
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
        () = revoked => {
            tracing::info!("a connection is closed: its certificate is no longer good here");
            return;
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "connection ended");
    }
}
