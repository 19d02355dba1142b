//! Routes for orders: what whoever carries out a run asks of the hosts that it concerns.
//!
//! They are for this host and for operators, and of other hosts for those that may coordinate
//! ([`takes_orders_from`](crate::cluster::Cluster::takes_orders_from)), of which one leads at a time
//! ([`Fence`](crate::fence::Fence)). Each order is logged with who gave it. What to order is decided elsewhere.

use axum::Json;
use axum::extract::{Extension, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use drover_api::{
    CordonRequest, ErrorBody, ErrorCode, GENERATION, HostView, MigrateRequest, MigrationView,
    ParkRequest, ParkView, Refusal, UnparkRequest, VmView, limits,
};
use drover_types::{HostName, MigrationId, VmName};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{JsonBody, Named, read};
use super::{App, Caller, Refused, peer, refused, to_its_end};
use crate::cluster::coordinators_in_words;
use crate::elsewhere;
use crate::parking;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(migrate_vm))
        .routes(routes!(show_vm))
        .routes(routes!(park_vm))
        .routes(routes!(unpark_vm))
        .routes(routes!(show_migration))
        .routes(routes!(cancel_migration))
        .routes(routes!(cordon))
        .routes(routes!(uncordon))
}

/// The same, each looked at before it is done: who gives it, and under which leadership. Whether a host may give
/// any is asked at each order, since that may change while it is connected.
pub fn routes_for(app: &App) -> OpenApiRouter<App> {
    routes().route_layer(from_fn_with_state(app.clone(), only_of_who_leads))
}

async fn only_of_who_leads(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    request: Request,
    next: Next,
) -> Response {
    let generation = match leadership(&app, &caller, &request) {
        Ok(Some(generation)) => generation,
        Ok(None) => return next.run(request).await,
        Err(refusal) => {
            let order = format!("{} {}", request.method(), request.uri().path());
            tracing::warn!(by = %caller, order, %refusal, "an order that is not taken");
            return refused(&refusal);
        }
    };
    let context = &app.0.context;
    let coordinator = match &caller {
        Caller::Peer(host) => host,
        Caller::Local | Caller::Operator(_) => &context.config.host,
    };
    // All of it is here before it is judged: nothing can hold it up any more.
    let (parts, body) = request.into_parts();
    let body = match read(body, limits::REQUEST_BYTES).await {
        Ok(body) => body,
        Err(unread) => return unread.into_response(),
    };
    let authority = context.cluster.trust().armed();
    let authority = authority.map(|armed| armed.authority.to_string());
    let authority = authority.unwrap_or_default();
    let admitted = context.fence.admit(&authority, generation, coordinator);
    match admitted.await {
        Ok(_admitted) => next.run(Request::from_parts(parts, body.into())).await,
        Err(refusal) => {
            tracing::warn!(by = %caller, %refusal, "an order that is not taken");
            refused(&refusal)
        }
    }
}

/// For routes that change nothing by themselves: whoever may give orders may use them.
pub async fn only_of_coordinators(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    request: Request,
    next: Next,
) -> Response {
    match &caller {
        Caller::Peer(host) if !app.0.context.cluster.takes_orders_from(host) => {
            refused(&not_a_coordinator(&app, host))
        }
        _ => next.run(request).await,
    }
}

/// The generation of the leadership that gives an order; none for one that is a person's, or of the only host
/// that can lead.
fn leadership(app: &App, caller: &Caller, order: &Request) -> Result<Option<u64>, Refusal> {
    let generation = order.headers().get(GENERATION);
    let generation = generation.map(|value| value.to_str().ok().and_then(|text| text.parse().ok()));
    let cluster = &app.0.context.cluster;
    match (caller, generation) {
        // Whoever has an operator's certificate leads nothing.
        (Caller::Operator(_), _) => Ok(None),
        (Caller::Peer(host), _) if !cluster.takes_orders_from(host) => {
            Err(not_a_coordinator(app, host))
        }
        (_, Some(None)) => {
            let message = format!("the header {GENERATION} is a number");
            Err(Refusal::new(ErrorCode::BadRequest, message))
        }
        (Caller::Peer(host), None) if cluster.has_coordinators() => {
            let message = format!(
                "several hosts may coordinate, and an order of {host} does not say under which leadership it is given"
            );
            Err(Refusal::new(ErrorCode::NotAPeer, message).next(format!(
                "set `store.etcd` in droverd.toml on {host} as on the others, and restart droverd there"
            )))
        }
        (_, generation) => Ok(generation.flatten()),
    }
}

fn not_a_coordinator(app: &App, host: &HostName) -> Refusal {
    let context = &app.0.context;
    let own = &context.config.host;
    let Some(membership) = context.cluster.membership() else {
        return context.cluster.no_cluster();
    };
    let (authority, others) = (&membership.authority, &membership.coordinators);
    let who = match others.is_empty() {
        true => format!("only {authority}, which has the authority's key, may give them"),
        false => format!(
            "only those that may coordinate give them: {}",
            coordinators_in_words(&membership)
        ),
    };
    let message = format!("{own} takes no orders from {host}: of other hosts {who}");
    Refusal::new(ErrorCode::NotAPeer, message).next(format!(
        "use the agent's UNIX socket on {own}, or an operator's certificate; `drover cluster coordinator {host}` on \
         {authority} has {host} coordinate as well"
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
        parking::may_leave(&app.0.context, &name)?;
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
    let mut view = elsewhere::or_where(context, &name, found).await?;
    view.notes.extend(app.0.parking.note(&name).await);
    Ok(Json(view))
}

/// Has a guest that cannot move be stopped until its host is resumed, once for each id. Answers at once with
/// how far that is; asking again tells.
#[utoipa::path(post, path = "/v1/vms/{name}/park", tag = "order",
    params(("name" = String, Path)), request_body = ParkRequest,
    responses((status = 200, body = ParkView), (status = "default", body = ErrorBody)))]
async fn park_vm(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(name): Named<VmName>,
    JsonBody(request): JsonBody<ParkRequest>,
) -> Result<Json<ParkView>, Refused> {
    let by = caller.to_string();
    let parked = to_its_end(async move { app.0.parking.park(&name, &request, &by).await });
    Ok(Json(parked.await?))
}

/// Has a guest run again that was parked with this id, unless somebody has started, stopped or moved it
/// since. Answers at once with how far that is; asking again tells.
#[utoipa::path(post, path = "/v1/vms/{name}/unpark", tag = "order",
    params(("name" = String, Path)), request_body = UnparkRequest,
    responses((status = 200, body = ParkView), (status = "default", body = ErrorBody)))]
async fn unpark_vm(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(name): Named<VmName>,
    JsonBody(request): JsonBody<UnparkRequest>,
) -> Result<Json<ParkView>, Refused> {
    let by = caller.to_string();
    let unparked = to_its_end(async move { app.0.parking.unpark(&name, &request, &by).await });
    Ok(Json(unparked.await?))
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
    tokio::task::block_in_place(|| app.0.context.cordon.set(request))?;
    Ok(Json(peer::host_view(&app).await?))
}

/// Has this host take guests again, unless its links may go just now by a change. Asking again does no harm.
#[utoipa::path(post, path = "/v1/uncordon", tag = "order", responses(
    (status = 200, body = HostView), (status = "default", body = ErrorBody)))]
async fn uncordon(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<HostView>, Refused> {
    tracing::info!(by = %caller, "ordered: take guests again");
    app.0.changes.uncordon().await?;
    Ok(Json(peer::host_view(&app).await?))
}
