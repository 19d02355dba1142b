//! Routes for orders: what whoever carries out a run asks of the hosts that it concerns.
//!
//! They are for this host and for operators, and of other hosts for the one that coordinates
//! ([`takes_orders_from`](crate::cluster::Cluster::takes_orders_from)). Each order is logged with who
//! gave it. What to order is decided elsewhere.

use axum::Json;
use axum::extract::{Extension, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use drover_api::{
    CordonRequest, ErrorBody, ErrorCode, HostView, MigrateRequest, MigrationView, Refusal, VmView,
};
use drover_types::{HostName, MigrationId, VmName};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{JsonBody, Named};
use super::{App, Caller, Refused, peer, refused, to_its_end};
use crate::elsewhere;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(migrate_vm))
        .routes(routes!(show_vm))
        .routes(routes!(show_migration))
        .routes(routes!(cancel_migration))
        .routes(routes!(cordon))
        .routes(routes!(uncordon))
}

/// The same for another host. Whether it coordinates is asked at each order: that may change while it is
/// connected.
pub fn routes_for(app: &App, host: HostName) -> OpenApiRouter<App> {
    routes().route_layer(from_fn_with_state(
        (app.clone(), host),
        only_of_the_coordinator,
    ))
}

async fn only_of_the_coordinator(
    State((app, host)): State<(App, HostName)>,
    request: Request,
    next: Next,
) -> Response {
    if app.0.context.cluster.takes_orders_from(&host) {
        return next.run(request).await;
    }
    let order = format!("{} {}", request.method(), request.uri().path());
    tracing::warn!(%host, order, "an order of a host that may give none");
    refused(&not_the_coordinator(&app, &host))
}

fn not_the_coordinator(app: &App, host: &HostName) -> Refusal {
    let context = &app.0.context;
    let own = &context.config.host;
    let Some(membership) = context.cluster.membership() else {
        return context.cluster.no_cluster();
    };
    let authority = &membership.authority;
    let message = format!(
        "{own} takes no orders from {host}: of other hosts only {authority}, which has the \
         authority's key, may give them"
    );
    Refusal::new(ErrorCode::NotAPeer, message).next(format!(
        "use the agent's UNIX socket on {own}, or an operator's certificate"
    ))
}

/// Begins to move a guest. Answers when the destination has agreed and the migration is under way.
#[utoipa::path(post, path = "/v1/vms/{name}/migrate", tag = "order",
    params(("name" = String, Path)), request_body = MigrateRequest,
    responses((status = 202, body = MigrationView), (status = "default", body = ErrorBody)))]
async fn migrate_vm(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(name): Named<VmName>,
    JsonBody(request): JsonBody<MigrateRequest>,
) -> Result<(StatusCode, Json<MigrationView>), Refused> {
    tracing::info!(by = %caller, vm = %name, to = %request.to, "ordered: move a guest");
    let started = to_its_end(async move {
        let started = app.0.migrations.start(&name, request).await;
        elsewhere::or_where(&app.0.context, &name, started).await
    });
    Ok((StatusCode::ACCEPTED, Json(started.await?)))
}

/// One guest.
#[utoipa::path(get, path = "/v1/vms/{name}", tag = "order", params(("name" = String, Path)),
    responses((status = 200, body = VmView), (status = "default", body = ErrorBody)))]
async fn show_vm(
    State(app): State<App>,
    Named(name): Named<VmName>,
) -> Result<Json<VmView>, Refused> {
    let context = &app.0.context;
    let found = context.registry.get(&name).await;
    Ok(Json(elsewhere::or_where(context, &name, found).await?))
}

/// One migration.
#[utoipa::path(get, path = "/v1/migrations/{id}", tag = "order", params(("id" = String, Path)),
    responses((status = 200, body = MigrationView), (status = "default", body = ErrorBody)))]
async fn show_migration(
    State(app): State<App>,
    Named(id): Named<MigrationId>,
) -> Result<Json<MigrationView>, Refused> {
    Ok(Json(app.0.migrations.get(id).await?))
}

/// Cancels a migration; the guest stays on the source. Refused once it has been handed off.
#[utoipa::path(post, path = "/v1/migrations/{id}/cancel", tag = "order",
    params(("id" = String, Path)),
    responses((status = 200, body = MigrationView), (status = "default", body = ErrorBody)))]
async fn cancel_migration(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(id): Named<MigrationId>,
) -> Result<Json<MigrationView>, Refused> {
    tracing::info!(by = %caller, %id, "ordered: cancel a migration");
    let cancelled = to_its_end(async move { app.0.migrations.cancel(id).await });
    Ok(Json(cancelled.await?))
}

/// Has this host take no guests from now on. Those that it has stay, and one that is arriving already
/// arrives.
#[utoipa::path(post, path = "/v1/cordon", tag = "order", request_body = CordonRequest,
    responses((status = 200, body = HostView), (status = "default", body = ErrorBody)))]
async fn cordon(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    JsonBody(request): JsonBody<CordonRequest>,
) -> Result<Json<HostView>, Refused> {
    tracing::info!(by = %caller, "ordered: take no guests");
    app.0.context.cordon.set(request)?;
    Ok(Json(peer::host_view(&app).await?))
}

/// Has this host take guests again. Asking again does no harm.
#[utoipa::path(post, path = "/v1/uncordon", tag = "order", responses(
    (status = 200, body = HostView), (status = "default", body = ErrorBody)))]
async fn uncordon(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<HostView>, Refused> {
    tracing::info!(by = %caller, "ordered: take guests again");
    app.0.context.cordon.lift()?;
    Ok(Json(peer::host_view(&app).await?))
}
