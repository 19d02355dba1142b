//! Routes with which an operator makes and changes the cluster.

use axum::Json;
use axum::extract::{Extension, State};
use drover_api::{
    ClusterView, CoordinatorRequest, ErrorBody, ErrorCode, JoinRequest, OperatorCertificate,
    OperatorRequest, Refusal, TokenRequest, TokenView,
};
use drover_types::{HostName, OperatorName};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{JsonBody, Named, OptionalBody};
use super::{App, Caller, Refused, to_its_end};
use crate::cluster::advertised;
use crate::present;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(show))
        .routes(routes!(init))
        .routes(routes!(token))
        .routes(routes!(join))
        .routes(routes!(leave))
        .routes(routes!(rotate))
        .routes(routes!(remove_host))
        .routes(routes!(coordinator))
        .routes(routes!(operator))
        .routes(routes!(remove_operator))
}

/// The cluster as this host sees it.
#[utoipa::path(get, path = "/v1/cluster", tag = "local", responses(
    (status = 200, body = ClusterView), (status = "default", body = ErrorBody)))]
async fn show(State(app): State<App>) -> Result<Json<ClusterView>, Refused> {
    Ok(Json(app.0.context.cluster.view().await?))
}

/// Makes a cluster: this host gets the authority's key and is the first member.
#[utoipa::path(post, path = "/v1/cluster/init", tag = "local", responses(
    (status = 200, body = ClusterView), (status = "default", body = ErrorBody)))]
async fn init(State(app): State<App>) -> Result<Json<ClusterView>, Refused> {
    let made = to_its_end(async move {
        let cluster = &app.0.context.cluster;
        let addresses = advertised(&app.0.context.config).await?;
        let ports = app.open_ports().await?;
        cluster.init(addresses).await?;
        app.serve_ports(ports).await;
        cluster.view().await
    });
    Ok(Json(made.await?))
}

/// Makes a token with which one host can join, once. Only on the authority's host.
#[utoipa::path(post, path = "/v1/cluster/token", tag = "local",
    request_body = Option<TokenRequest>,
    responses((status = 200, body = TokenView), (status = "default", body = ErrorBody)))]
async fn token(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    OptionalBody(request): OptionalBody<TokenRequest>,
) -> Result<Json<TokenView>, Refused> {
    tracing::info!(%caller, "a join token is asked for");
    let made = to_its_end(async move { app.0.context.cluster.token(&request).await });
    Ok(Json(made.await?))
}

/// Has this host join the cluster of a token. One that is in another cluster is not in that any more by it, and is refused
/// while a guest is in memory here or on its way. The other cluster is told nothing: there the host
/// is to be removed by its authority.
#[utoipa::path(post, path = "/v1/cluster/join", tag = "local", request_body = JoinRequest,
    responses((status = 200, body = ClusterView), (status = "default", body = ErrorBody)))]
async fn join(
    State(app): State<App>,
    JsonBody(request): JsonBody<JoinRequest>,
) -> Result<Json<ClusterView>, Refused> {
    let joined = to_its_end(async move {
        let cluster = &app.0.context.cluster;
        if cluster.is_of_another(&request.token)? {
            check_empty(&app).await?;
        }
        let addresses = advertised(&app.0.context.config).await?;
        let ports = app.open_ports().await?;
        cluster.join(&request.token, addresses).await?;
        app.serve_ports(ports).await;
        cluster.view().await
    });
    Ok(Json(joined.await?))
}

/// Has this host leave its cluster. Refused while a guest is in memory here or on its way. Answers with the cluster
/// that was left.
#[utoipa::path(post, path = "/v1/cluster/leave", tag = "local", responses(
    (status = 200, body = ClusterView), (status = "default", body = ErrorBody)))]
async fn leave(State(app): State<App>) -> Result<Json<ClusterView>, Refused> {
    let left = to_its_end(async move {
        let cluster = &app.0.context.cluster;
        let view = cluster.view().await?;
        check_empty(&app).await?;
        cluster.leave().await?;
        Ok(view)
    });
    Ok(Json(left.await?))
}

async fn check_empty(app: &App) -> Result<(), Refusal> {
    let own = &app.0.context.config.host;
    let Some(message) = present::guests(&app.0.context, &app.0.migrations).await? else {
        return Ok(());
    };
    Err(Refusal::new(ErrorCode::VmRunning, message).next(format!(
        "`drover drain {own}` moves them, `drover vm stop` ends them"
    )))
}

/// Replaces this host's key and certificate now. Connections that are open stay open.
#[utoipa::path(post, path = "/v1/cluster/rotate", tag = "local", responses(
    (status = 200, body = ClusterView), (status = "default", body = ErrorBody)))]
async fn rotate(State(app): State<App>) -> Result<Json<ClusterView>, Refused> {
    let rotated = to_its_end(async move {
        app.0.context.cluster.rotate().await?;
        app.0.context.cluster.view().await
    });
    Ok(Json(rotated.await?))
}

/// Removes a host: its certificates are worth nothing from now on, its connections are closed.
#[utoipa::path(post, path = "/v1/cluster/hosts/{name}/remove", tag = "local",
    params(("name" = String, Path)),
    responses((status = 200, body = ClusterView), (status = "default", body = ErrorBody)))]
async fn remove_host(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(host): Named<HostName>,
) -> Result<Json<ClusterView>, Refused> {
    tracing::info!(%caller, %host, "is to be removed");
    let removed = to_its_end(async move {
        app.0.context.cluster.remove_host(&host).await?;
        app.0.context.cluster.view().await
    });
    Ok(Json(removed.await?))
}

/// Lets a host coordinate beside the authority's, or no longer: whether the others take its orders. Only on the
/// authority's host.
#[utoipa::path(post, path = "/v1/cluster/hosts/{name}/coordinator", tag = "local",
    params(("name" = String, Path)), request_body = CoordinatorRequest,
    responses((status = 200, body = ClusterView), (status = "default", body = ErrorBody)))]
async fn coordinator(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(host): Named<HostName>,
    JsonBody(request): JsonBody<CoordinatorRequest>,
) -> Result<Json<ClusterView>, Refused> {
    let CoordinatorRequest { coordinates } = request;
    tracing::info!(%caller, %host, coordinates, "who may coordinate is to change");
    let named = to_its_end(async move {
        let cluster = &app.0.context.cluster;
        cluster.set_coordinator(&host, coordinates).await?;
        cluster.view().await
    });
    Ok(Json(named.await?))
}

/// Signs a certificate for somebody who gives orders from afar.
#[utoipa::path(post, path = "/v1/cluster/operators/{name}", tag = "local",
    params(("name" = String, Path)), request_body = OperatorRequest,
    responses((status = 200, body = OperatorCertificate), (status = "default", body = ErrorBody)))]
async fn operator(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(name): Named<OperatorName>,
    JsonBody(request): JsonBody<OperatorRequest>,
) -> Result<Json<OperatorCertificate>, Refused> {
    tracing::info!(%caller, operator = %name, "a certificate is asked for");
    let cluster = &app.0.context.cluster;
    Ok(Json(cluster.operator(&name, &request.request).await?))
}

/// Removes an operator: the certificates of that name are worth nothing from now on.
#[utoipa::path(post, path = "/v1/cluster/operators/{name}/remove", tag = "local",
    params(("name" = String, Path)),
    responses((status = 200, body = ClusterView), (status = "default", body = ErrorBody)))]
async fn remove_operator(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(name): Named<OperatorName>,
) -> Result<Json<ClusterView>, Refused> {
    tracing::info!(%caller, operator = %name, "is to be removed");
    let removed = to_its_end(async move {
        app.0.context.cluster.remove_operator(&name).await?;
        app.0.context.cluster.view().await
    });
    Ok(Json(removed.await?))
}
