//! Routes for the agents of other hosts.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query, State};
use drover_api::{
    AbandonRequest, DomainNeedsRequest, DomainNeedsView, ErrorBody, ErrorCode, FactsView, HeldView,
    HostView, IncomingNetworks, IncomingOffer, IncomingPaths, IncomingReopen, IncomingRequest,
    IncomingStart, IncomingView, InventoryView, PathLimits, Refusal, ResolvedRequest, ResolvedView,
    VerdictView,
};
use drover_types::{MigrationId, VmName};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{JsonBody, Named, PlanBody, unreadable};
use super::{Accepted, App, Caller, Refused, to_its_end};
use crate::facts;
use crate::inventory::Wanted;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(host))
        .routes(routes!(incoming))
        .routes(routes!(incoming_status))
        .routes(routes!(incoming_start))
        .routes(routes!(incoming_paths))
        .routes(routes!(incoming_reopen))
        .routes(routes!(incoming_recover))
        .routes(routes!(incoming_run))
        .routes(routes!(incoming_abandon))
        .routes(routes!(limit_paths))
        .routes(routes!(verdict))
        .routes(routes!(resolved))
        .routes(routes!(held))
        .routes(routes!(inventory))
        .routes(routes!(domain_needs))
        .routes(routes!(host_facts))
}

pub async fn host_view(app: &App) -> Result<HostView, Refusal> {
    let context = &app.0.context;
    let takes_domains = context.libvirt.takes_domains();
    let host = facts::host(&context.config, context.cordon.view(), takes_domains).await;
    host.map_err(|error| {
        let message = format!("cannot read the facts of this host: {error}");
        Refusal::new(ErrorCode::Internal, message)
    })
}

/// This host: versions, interfaces, memory, CPUs.
#[utoipa::path(get, path = "/v1/host", tag = "peer", responses(
    (status = 200, body = HostView), (status = "default", body = ErrorBody)))]
async fn host(State(app): State<App>) -> Result<Json<HostView>, Refused> {
    Ok(Json(host_view(&app).await?))
}

/// Prepares for a guest that is to arrive: starts a QEMU that waits for it.
#[utoipa::path(post, path = "/v1/incoming", tag = "peer", request_body = IncomingRequest,
    responses((status = 200, body = IncomingOffer), (status = "default", body = ErrorBody)))]
async fn incoming(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    JsonBody(request): JsonBody<IncomingRequest>,
) -> Result<Json<IncomingOffer>, Refused> {
    if let Caller::Peer(host) = &caller
        && *host != request.source
    {
        let message = format!("{host} asks in the name of {}", request.source);
        return Err(Refusal::new(ErrorCode::PeerMismatch, message)
            .next(format!(
                "set `host` in droverd.toml on {host} back to {host}"
            ))
            .into());
    }
    let offered = to_its_end(async move {
        let vm = request.definition.name.clone();
        let offered = app.0.migrations.incoming(caller, request).await?;
        // It is not here at this moment: what a run stopped here has left since.
        app.0.parking.has_left(&vm).await;
        Ok(offered)
    });
    Ok(Json(offered.await?))
}

/// How far an arriving guest is.
#[utoipa::path(get, path = "/v1/incoming/{id}", tag = "peer", params(("id" = String, Path)),
    responses((status = 200, body = IncomingView), (status = "default", body = ErrorBody)))]
async fn incoming_status(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(id): Named<MigrationId>,
) -> Result<Json<IncomingView>, Refused> {
    Ok(Json(app.0.migrations.incoming_status(caller, id).await?))
}

/// The lanes are up: QEMU is to listen for its channels.
#[utoipa::path(post, path = "/v1/incoming/{id}/start", tag = "peer",
    params(("id" = String, Path)), request_body = IncomingStart,
    responses((status = 200, body = IncomingView), (status = "default", body = ErrorBody)))]
async fn incoming_start(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(id): Named<MigrationId>,
    JsonBody(request): JsonBody<IncomingStart>,
) -> Result<Json<IncomingView>, Refused> {
    let started =
        to_its_end(async move { app.0.migrations.incoming_start(caller, id, request).await });
    Ok(Json(started.await?))
}

/// Interfaces came or went at the source: which paths its session has by now. Answers with the
/// interfaces of this host that may carry the guest by now.
#[utoipa::path(post, path = "/v1/incoming/{id}/paths", tag = "peer",
    params(("id" = String, Path)), request_body = IncomingPaths,
    responses((status = 200, body = IncomingNetworks), (status = "default", body = ErrorBody)))]
async fn incoming_paths(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(id): Named<MigrationId>,
    JsonBody(request): JsonBody<IncomingPaths>,
) -> Result<Json<IncomingNetworks>, Refused> {
    Ok(Json(
        app.0.migrations.incoming_paths(caller, id, request).await?,
    ))
}

/// The session broke with pages of a guest still to follow it here: makes ready for another one. Whatever is
/// left of the session before ends.
#[utoipa::path(post, path = "/v1/incoming/{id}/reopen", tag = "peer",
    params(("id" = String, Path)), request_body = IncomingReopen,
    responses((status = 200, body = IncomingOffer), (status = "default", body = ErrorBody)))]
async fn incoming_reopen(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(id): Named<MigrationId>,
    JsonBody(request): JsonBody<IncomingReopen>,
) -> Result<Json<IncomingOffer>, Refused> {
    let offered =
        to_its_end(async move { app.0.migrations.incoming_reopen(caller, id, request).await });
    Ok(Json(offered.await?))
}

/// The lanes of that other session are up: QEMU is to listen for its source again.
#[utoipa::path(post, path = "/v1/incoming/{id}/recover", tag = "peer",
    params(("id" = String, Path)), request_body = IncomingPaths,
    responses((status = 200, body = IncomingView), (status = "default", body = ErrorBody)))]
async fn incoming_recover(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(id): Named<MigrationId>,
    JsonBody(request): JsonBody<IncomingPaths>,
) -> Result<Json<IncomingView>, Refused> {
    let listens =
        to_its_end(async move { app.0.migrations.incoming_recover(caller, id, request).await });
    Ok(Json(listens.await?))
}

/// The guest is this host's now and runs here. Asking again does no harm.
#[utoipa::path(post, path = "/v1/incoming/{id}/run", tag = "peer",
    params(("id" = String, Path)),
    responses((status = 200, body = IncomingView), (status = "default", body = ErrorBody)))]
async fn incoming_run(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Extension(accepted): Extension<Accepted>,
    Named(id): Named<MigrationId>,
) -> Result<Json<IncomingView>, Refused> {
    let run = to_its_end(async move { app.0.migrations.incoming_run(caller, id, accepted).await });
    Ok(Json(run.await?))
}

/// The guest is not coming; nothing of it is left here. Asking again does no harm.
#[utoipa::path(post, path = "/v1/incoming/{id}/abandon", tag = "peer",
    params(("id" = String, Path)), request_body = AbandonRequest,
    responses((status = 200, body = IncomingView), (status = "default", body = ErrorBody)))]
async fn incoming_abandon(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(id): Named<MigrationId>,
    JsonBody(request): JsonBody<AbandonRequest>,
) -> Result<Json<IncomingView>, Refused> {
    let abandoned =
        to_its_end(async move { app.0.migrations.incoming_abandon(caller, id, request).await });
    Ok(Json(abandoned.await?))
}

/// Whose a guest is, for a destination in doubt.
#[utoipa::path(get, path = "/v1/migrations/{id}/verdict", tag = "peer",
    params(("id" = String, Path)),
    responses((status = 200, body = VerdictView), (status = "default", body = ErrorBody)))]
async fn verdict(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(id): Named<MigrationId>,
) -> Result<Json<VerdictView>, Refused> {
    Ok(Json(app.0.migrations.verdict(caller, id).await?))
}

/// The destination of a guest that leaves can take only so much.
#[utoipa::path(post, path = "/v1/migrations/{id}/limits", tag = "peer",
    params(("id" = String, Path)), request_body = PathLimits,
    responses((status = 200, body = PathLimits), (status = "default", body = ErrorBody)))]
async fn limit_paths(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(id): Named<MigrationId>,
    JsonBody(limits): JsonBody<PathLimits>,
) -> Result<Json<PathLimits>, Refused> {
    app.0.migrations.limit_paths(&caller, id, &limits)?;
    Ok(Json(limits))
}

/// An operator decided on the other host, in this one's place: the guest is that host's. What can be
/// started of it here leaves. Asking again does no harm.
#[utoipa::path(post, path = "/v1/migrations/{id}/resolved", tag = "peer",
    params(("id" = String, Path)), request_body = ResolvedRequest,
    responses((status = 200, body = ResolvedView), (status = "default", body = ErrorBody)))]
async fn resolved(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(id): Named<MigrationId>,
    JsonBody(request): JsonBody<ResolvedRequest>,
) -> Result<Json<ResolvedView>, Refused> {
    let resolved =
        to_its_end(async move { app.0.migrations.resolved_there(caller, id, request).await });
    Ok(Json(resolved.await?))
}

/// This host and its guests, as plans must know them. libvirt's domains stay in it, unless `domains` is
/// `by-id`: then they are guests like others, named by their ids, with what they need. Disks that only this host has keep them here, unless `disks` is `copied`: then they
/// need room for these.
#[utoipa::path(get, path = "/v1/inventory", tag = "peer", params(("domains" = Option<String>, Query), ("disks" = Option<String>, Query)), responses(
    (status = 200, body = InventoryView), (status = "default", body = ErrorBody)))]
async fn inventory(
    State(app): State<App>,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Json<InventoryView>, Refused> {
    let Query(wanted) = wanted.map_err(|problem| unreadable(&problem))?;
    let view = crate::inventory::view(&app.0.context, wanted);
    Ok(Json(view.await?))
}

/// Whether this host has what domains of libvirt's need that could come.
#[utoipa::path(post, path = "/v1/domains/needs", tag = "peer", request_body = DomainNeedsRequest,
    responses((status = 200, body = DomainNeedsView), (status = "default", body = ErrorBody)))]
async fn domain_needs(
    State(app): State<App>,
    PlanBody(request): PlanBody<DomainNeedsRequest>,
) -> Result<Json<DomainNeedsView>, Refused> {
    let answer = crate::libvirt::answer(&app.0.context, &request.needs).await?;
    Ok(Json(answer))
}

/// What was read of this host, for those who look for what costs its migrations.
#[utoipa::path(get, path = "/v1/facts", tag = "peer", responses(
    (status = 200, body = FactsView), (status = "default", body = ErrorBody)))]
async fn host_facts(State(app): State<App>) -> Result<Json<FactsView>, Refused> {
    Ok(Json(crate::doctor::facts(&app.0.context).await?))
}

/// What there is of a guest on this host, for one whose migration this one no longer knows.
#[utoipa::path(get, path = "/v1/vms/{name}/held", tag = "peer", params(("name" = String, Path)),
    responses((status = 200, body = HeldView), (status = "default", body = ErrorBody)))]
async fn held(State(app): State<App>, Named(name): Named<VmName>) -> Json<HeldView> {
    let context = &app.0.context;
    Json(HeldView {
        domain: context.libvirt.holds(&name).await,
        ..context.registry.held(&name)
    })
}
