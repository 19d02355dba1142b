//! Metrics on a TCP address of their own, where the operator asked for one: `GET /metrics` and
//! nothing else, to whoever can reach it.

use std::sync::Arc;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::limits;

/// Serves until it is dropped.
pub async fn serve(listener: TcpListener, router: Router) {
    let open = Arc::new(Semaphore::new(limits::SCRAPERS));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::error!(%error, "cannot accept a connection for metrics");
                tokio::time::sleep(limits::ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&open).try_acquire_owned() else {
            continue; // it is closed here
        };
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let mut builder = hyper::server::conn::http1::Builder::new();
            builder
                .timer(TokioTimer::new())
                .header_read_timeout(limits::HEAD);
            builder.max_buf_size(limits::HEAD_BYTES);
            let answered = builder.serve_connection(TokioIo::new(stream), service);
            if let Ok(Err(error)) = tokio::time::timeout(limits::SCRAPE, answered).await {
                tracing::debug!(%error, "connection for metrics ended");
            }
            drop(permit);
        });
    }
}
