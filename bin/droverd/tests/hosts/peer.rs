//! What stands in for an agent, and speaks from a host's network.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use drover_lab::Host;
use drover_trust::{Armed, Clients, Store, system_clock};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio_rustls::TlsAcceptor;

use super::agent::PORT;

/// Runs something on a thread of its own in a host's network.
pub async fn on<T: Send + 'static>(host: &Host, work: impl FnOnce() -> T + Send + 'static) -> T {
    let space = Path::new("/run/netns").join(host.namespace());
    let thread = std::thread::spawn(move || {
        let space = File::open(space).unwrap();
        move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        work()
    });
    tokio::task::spawn_blocking(move || thread.join().unwrap())
        .await
        .unwrap()
}

/// A host's own certificate, and whom it believes.
pub fn armed(host: &Host) -> Arc<Armed> {
    let stored = Store::below(&host.state()).load().unwrap().unwrap();
    let credentials = stored.credentials().unwrap();
    Arc::new(Armed::host(&credentials, Clients::Certified, &system_clock()).unwrap())
}

/// An answer: status and body.
type Answer = (u16, serde_json::Value);

/// A fake agent; ends with this value.
pub struct FakeAgent {
    calls: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl FakeAgent {
    /// Serves on a host whatever `answer` makes of method and path.
    pub async fn start(
        host: &Host,
        answer: impl Fn(&str) -> Answer + Clone + Send + Sync + 'static,
    ) -> Self {
        let address = SocketAddr::new(host.address(0).into(), PORT);
        let listener = on(host, move || TcpListener::bind(address).unwrap()).await;
        listener.set_nonblocking(true).unwrap();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let acceptor = TlsAcceptor::from(armed(host).server.clone().unwrap());
        let calls = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&calls);
        let router = Router::new().fallback(async move |request: Request| {
            let call = format!("{} {}", request.method(), request.uri().path());
            let (status, body) = answer(&call);
            heard.lock().unwrap().push(call);
            let status = StatusCode::from_u16(status).unwrap();
            let json = [(header::CONTENT_TYPE, "application/json")];
            (status, json, body.to_string()).into_response()
        });
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let Ok(stream) = acceptor.accept(stream).await else {
                    continue;
                };
                let service = TowerToHyperService::new(router.clone());
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        Self { calls, task }
    }

    /// Every call so far.
    pub fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }
}

impl Drop for FakeAgent {
    fn drop(&mut self) {
        self.task.abort();
    }
}
