//! The agent's HTTP API: all routes on the UNIX socket and for operators, those of peers for other
//! hosts, those for orders for the one that coordinates, one for hosts that join.
//!
//! It owns no state of its own but whether work is still taken. Handlers of requests that change
//! something run to their end also when the caller hangs up.

mod changes;
mod cluster;
mod extract;
mod local;
mod orders;
mod paths;
mod peer;
mod runs;
mod server;
mod storage;
mod trust;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::{Extension, Request, State};
use axum::http::Method;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use drover_api::{ErrorBody, ErrorCode, Refusal};
use drover_types::{HostName, OperatorName};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;

use crate::agent::Context;
use crate::changes::Changes;
use crate::clock::Moment;
use crate::coordinator::Coordinator;
use crate::migration::Migrations;
use crate::parking::Parking;
use crate::storage::StorageMoves;
use crate::{limits, places};
pub use server::serve;

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caller {
    /// Somebody on this host, who may do all that root may.
    Local,
    /// Somebody from afar who may do the same, known by certificate.
    Operator(OperatorName),
    /// The agent of this host, known by certificate.
    Peer(HostName),
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("this host"),
            Self::Operator(name) => write!(f, "operator {name}"),
            Self::Peer(host) => write!(f, "host {host}"),
        }
    }
}

/// When the connection of a request was accepted, before its handshake: what was said on it is no
/// older, whatever held it up.
#[derive(Debug, Clone, Copy)]
pub struct Accepted(pub Moment);

/// What handlers work with.
#[derive(Debug, Clone)]
pub struct App(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    context: Arc<Context>,
    migrations: Arc<Migrations>,
    parking: Arc<Parking>,
    changes: Arc<Changes>,
    storage: Arc<StorageMoves>,
    coordinator: Arc<Coordinator>,
    ending: AtomicBool,
    /// Whether the ports for other hosts are open. They stay so in a host that left its cluster, and believe nobody.
    listens: AtomicBool,
    /// Listeners for other hosts that are opened while the agent runs.
    opened: mpsc::Sender<TcpListener>,
}

/// Ports for other hosts, open and not served yet.
#[must_use]
pub struct Ports(Vec<TcpListener>);

impl App {
    /// An API that takes work.
    pub fn new(
        context: Arc<Context>,
        (migrations, parking, changes, storage): (
            Arc<Migrations>,
            Arc<Parking>,
            Arc<Changes>,
            Arc<StorageMoves>,
        ),
        coordinator: Arc<Coordinator>,
        opened: mpsc::Sender<TcpListener>,
    ) -> Self {
        let listens = AtomicBool::new(context.cluster.is_member());
        Self(Arc::new(Inner {
            listens,
            context,
            migrations,
            parking,
            changes,
            storage,
            coordinator,
            ending: AtomicBool::new(false),
            opened,
        }))
    }

    /// Opens what a member of a cluster has open, before it becomes one; nothing if it is one.
    async fn open_ports(&self) -> Result<Ports, Refusal> {
        let mut listeners = Vec::new();
        if !self.0.listens.load(Ordering::SeqCst) {
            let unusable = |error: anyhow::Error| {
                Refusal::new(ErrorCode::PortUnusable, format!("{error:#}"))
                    .next("change droverd.toml, restart droverd, and run the command again")
            };
            for address in &self.0.context.config.listen {
                listeners.push(places::listen_peers(*address).await.map_err(unusable)?);
            }
            self.0.migrations.open_lanes().map_err(unusable)?;
        }
        Ok(Ports(listeners))
    }

    async fn serve_ports(&self, ports: Ports) {
        self.0.listens.store(true, Ordering::SeqCst);
        for listener in ports.0 {
            // A server that has ended serves nobody.
            let _ = self.0.opened.send(listener).await;
        }
    }

    /// From now on nothing new is begun here.
    pub fn refuse_work(&self) {
        self.0.ending.store(true, Ordering::SeqCst);
    }

    fn takes_work(&self) -> Result<(), Refusal> {
        if self.0.ending.load(Ordering::SeqCst) {
            let message = format!("the agent of {} is ending", self.0.context.config.host);
            return Err(Refusal::new(ErrorCode::ShuttingDown, message)
                .next("start droverd again, then repeat the command"));
        }
        Ok(())
    }
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Drover host agent",
        description = "The local UNIX socket serves every route. The TCP port speaks TLS 1.3 with \
                       certificates of the cluster's authority: an operator's is good for every \
                       route, a host's for the routes tagged `peer`, and for those tagged `order` \
                       if it may coordinate; none is needed for the one tagged `open`. \
                       Every answer with a status of 400 and above has the body `ErrorBody`.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    components(schemas(ErrorBody)),
    tags(
        (name = "local", description = "For the command line, on the UNIX socket or with an \
                                        operator's certificate"),
        (name = "order", description = "The same, and for the agents that carry out runs, those of \
                                        the host with the authority's key and of the hosts that it \
                                        named: what they ask of others. Where there are several, \
                                        orders have the header `drover-generation`, and those of a \
                                        leadership that was followed by another are refused"),
        (name = "peer", description = "For other agents, with a host's certificate"),
        (name = "open", description = "For hosts that join, with a token's secret"),
    )
)]
struct Document;

/// What is served where the operator wants metrics over TCP.
pub fn metrics_router(app: &App) -> Router {
    let router = Router::new().route("/metrics", axum::routing::get(local::metrics));
    finish(router.fallback(no_such_route), app, "scraper")
}

fn all_routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(Document::openapi())
        .merge(peer::routes())
        .merge(trust::peer_routes())
        .merge(paths::peer_routes())
        .merge(trust::open_routes())
        .merge(orders::routes())
        .merge(local::routes())
        .merge(runs::routes())
        .merge(changes::routes())
        .merge(changes::order_routes())
        .merge(cluster::routes())
        .merge(paths::routes())
        .merge(storage::routes())
}

/// The OpenAPI document as it is committed.
///
/// # Errors
/// Never in practice: it is a constant of the program.
pub fn document() -> serde_json::Result<String> {
    all_routes().into_openapi().to_pretty_json()
}

/// Every route but the one for strangers: for this host and for operators.
fn full_router(app: &App, caller: Caller) -> Router {
    let routes = OpenApiRouter::new()
        .merge(peer::routes())
        .merge(trust::peer_routes())
        .merge(paths::peer_routes())
        .merge(orders::routes_for(app))
        .merge(local::routes())
        .merge(runs::routes())
        .merge(changes::routes())
        .merge(changes::order_routes())
        .merge(cluster::routes())
        .merge(paths::routes())
        .merge(storage::routes());
    let (router, _) = routes.split_for_parts();
    let who = match caller {
        Caller::Local => "local",
        Caller::Operator(_) => "operator",
        Caller::Peer(_) => "host",
    };
    finish(router.fallback(no_such_route), app, who).layer(Extension(caller))
}

/// The routes for one host.
fn peer_router(app: &App, host: HostName) -> Router {
    let routes = peer::routes()
        .merge(trust::peer_routes())
        .merge(paths::peer_routes())
        .merge(orders::routes_for(app))
        .merge(changes::order_routes_for(app))
        .merge(runs::routes_for(app));
    let (router, _) = routes.split_for_parts();
    let router = finish(router.fallback(not_for_peers), app, "host");
    router.layer(Extension(Caller::Peer(host)))
}

/// For callers without a certificate.
fn stranger_router(app: &App) -> Router {
    let host = app.0.context.config.host.clone();
    let refuse = move || {
        let message = format!("{host} answers only who has a certificate of its cluster");
        let next = "join the cluster with `drover cluster join`, or name an identity file with \
                    --identity";
        std::future::ready(refused(
            &Refusal::new(ErrorCode::NotAPeer, message).next(next),
        ))
    };
    let (router, _) = trust::open_routes().split_for_parts();
    finish(router.fallback(refuse), app, "stranger")
}

/// `who` is what refusals are counted under.
fn finish(router: Router<App>, app: &App, who: &'static str) -> Router {
    router
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(app.clone(), only_while_work_is_taken))
        .layer(from_fn(within_time))
        .layer(from_fn_with_state((app.clone(), who), count_refusals))
        .with_state(app.clone())
}

/// What changes something is refused while the agent ends; what finishes a migration is not.
async fn only_while_work_is_taken(
    State(app): State<App>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    let finishes = path.ends_with("/cancel")
        || (path.starts_with("/v1/incoming/") && !path.ends_with("/start"));
    if request.method() != Method::GET
        && !finishes
        && let Err(refusal) = app.takes_work()
    {
        return refused(&refusal);
    }
    next.run(request).await
}

async fn count_refusals(
    State((app, who)): State<(App, &'static str)>,
    request: Request,
    next: Next,
) -> Response {
    let response = next.run(request).await;
    if let Some(code) = response.extensions().get::<ErrorCode>() {
        app.0.context.metrics.request_refused(who, *code);
    }
    response
}

async fn within_time(request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let call = format!("{} {path}", request.method());
    let saves =
        path.starts_with("/v1/vms/") && (path.ends_with("/suspend") || path.ends_with("/start"));
    let within = if saves {
        limits::SAVED_REQUEST
    } else if path == paths::CLUSTER {
        limits::PATHS_REQUEST
    } else {
        limits::REQUEST
    };
    match tokio::time::timeout(within, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let seconds = within.as_secs();
            let message = format!("{call} was not done within {seconds} s; it may still be");
            refused(&Refusal::new(ErrorCode::Timeout, message).next("look at `drover status`"))
        }
    }
}

async fn no_such_route(request: Request) -> Response {
    let message = format!("no route {} {}", request.method(), request.uri().path());
    refused(&Refusal::new(ErrorCode::NoSuchRoute, message).next("GET /v1/openapi.json lists them"))
}

async fn wrong_method(request: Request) -> Response {
    let message = format!("{} has no {}", request.uri().path(), request.method());
    refused(
        &Refusal::new(ErrorCode::MethodNotAllowed, message).next("GET /v1/openapi.json lists them"),
    )
}

async fn not_for_peers(request: Request) -> Response {
    let message = format!(
        "{} {} is not served to other hosts",
        request.method(),
        request.uri().path()
    );
    refused(
        &Refusal::new(ErrorCode::LocalOnly, message)
            .next("use the agent's UNIX socket on its own host, or an operator's certificate"),
    )
}

fn refused(refusal: &Refusal) -> Response {
    Refused(refusal.clone()).into_response()
}

/// A refusal as an answer.
pub struct Refused(Refusal);

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self(refusal)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = axum::http::StatusCode::from_u16(self.0.code.status());
        let status = status.unwrap_or(axum::http::StatusCode::INTERNAL_SERVER_ERROR);
        let (code, message) = (self.0.code, &self.0.message);
        if status.is_server_error() {
            tracing::warn!(%code, message, "refused");
        } else {
            tracing::debug!(%code, message, "refused");
        }
        let body = Json(ErrorBody { error: self.0 });
        // The code is for whoever counts it.
        (status, Extension(code), body).into_response()
    }
}

/// Runs an operation to its end, also when the caller hangs up meanwhile.
async fn to_its_end<T: Send + 'static>(
    operation: impl Future<Output = Result<T, Refusal>> + Send + 'static,
) -> Result<T, Refused> {
    match tokio::spawn(operation).await {
        Ok(done) => Ok(done?),
        Err(error) => {
            let message = format!("the agent failed at this: {error}");
            Err(Refusal::new(ErrorCode::Internal, message)
                .next("its log tells more")
                .into())
        }
    }
}

#[cfg(test)]
mod tests;
