//! The agent's HTTP API: all routes on the UNIX socket, those of peers over TCP.
//!
//! It owns no state of its own but whether work is still taken. Handlers of requests that change
//! something run to their end also when the caller hangs up.

mod extract;
mod local;
mod peer;
mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::{Extension, Request, State};
use axum::http::Method;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use drover_api::{ErrorBody, ErrorCode, Refusal};
use drover_types::HostName;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;

use crate::agent::Context;
use crate::limits;
use crate::migration::Migrations;
pub use server::serve;

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caller {
    /// Somebody on this host, who may do all that root may.
    Local,
    /// The agent of this peer, known by its address.
    Peer(HostName),
}

/// What handlers work with.
#[derive(Debug, Clone)]
pub struct App(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    context: Arc<Context>,
    migrations: Arc<Migrations>,
    ending: AtomicBool,
}

impl App {
    /// An API that takes work.
    pub fn new(context: Arc<Context>, migrations: Arc<Migrations>) -> Self {
        Self(Arc::new(Inner {
            context,
            migrations,
            ending: AtomicBool::new(false),
        }))
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
        description = "The local UNIX socket serves every route. TCP serves only the routes tagged \
                       `peer`, and only to the addresses of configured peers. Every answer with a \
                       status of 400 and above has the body `ErrorBody`.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    components(schemas(ErrorBody)),
    tags(
        (name = "local", description = "For the command line, on the UNIX socket"),
        (name = "peer", description = "For other agents, over TCP as well"),
    )
)]
struct Document;

/// What is served where the operator wants metrics over TCP.
pub fn metrics_router(app: &App) -> Router {
    let router = Router::new().route("/metrics", axum::routing::get(local::metrics));
    finish(router.fallback(no_such_route), app)
}

fn all_routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(Document::openapi())
        .merge(peer::routes())
        .merge(local::routes())
}

/// The OpenAPI document as it is committed.
///
/// # Errors
/// Never in practice: it is a constant of the program.
pub fn document() -> serde_json::Result<String> {
    all_routes().into_openapi().to_pretty_json()
}

/// Every route, for this host.
fn local_router(app: &App) -> Router {
    let (router, _) = all_routes().split_for_parts();
    finish(router.fallback(no_such_route), app).layer(Extension(Caller::Local))
}

/// The routes for one peer.
fn peer_router(app: &App, host: HostName) -> Router {
    let (router, _) = peer::routes().split_for_parts();
    finish(router.fallback(not_for_peers), app).layer(Extension(Caller::Peer(host)))
}

/// For callers that are no peers.
fn stranger_router(app: &App) -> Router {
    let host = app.0.context.config.host.clone();
    let refuse = move |Extension(address): Extension<std::net::IpAddr>| {
        let message = format!("{address} is no address of a configured peer of {host}");
        let next =
            format!("add it to `api` of that peer's [[peers]] section in droverd.toml on {host}");
        std::future::ready(refused(
            &Refusal::new(ErrorCode::NotAPeer, message).next(next),
        ))
    };
    Router::new().fallback(refuse)
}

fn finish(router: Router<App>, app: &App) -> Router {
    router
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(app.clone(), only_while_work_is_taken))
        .layer(from_fn(within_time))
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

async fn within_time(request: Request, next: Next) -> Response {
    let call = format!("{} {}", request.method(), request.uri().path());
    match tokio::time::timeout(limits::REQUEST, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let seconds = limits::REQUEST.as_secs();
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
        "{} {} is not served to peers",
        request.method(),
        request.uri().path()
    );
    refused(
        &Refusal::new(ErrorCode::LocalOnly, message)
            .next("use the agent's UNIX socket on its own host"),
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
        (status, Json(ErrorBody { error: self.0 })).into_response()
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
