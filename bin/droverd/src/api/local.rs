//! Routes for this host only.

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use drover_api::{
    CheckpointsView, ClusterFactsView, ClusterInventoryView, ErrorBody, ErrorCode, EventView,
    LimitRequest, LimitsView, MigrationView, PlanRequest, PlanView, Refusal, ResolveRequest,
    StartRequest, StatusView, StopRequest, VmView,
};
use drover_types::{MigrationId, VmName, with_sources};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{JsonBody, Named, OptionalBody};
use super::{App, Refused, peer, to_its_end};
use crate::elsewhere;
use crate::facts;
use crate::libvirt::{self, Order};
use crate::metrics::{MEDIA_TYPE, Moment};
use crate::planning;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(status))
        .routes(routes!(list_vms))
        .routes(routes!(start_vm))
        .routes(routes!(suspend_vm))
        .routes(routes!(stop_vm))
        .routes(routes!(list_migrations))
        .routes(routes!(migration_events))
        .routes(routes!(resolve_migration))
        .routes(routes!(limits, set_limit))
        .routes(routes!(plan))
        .routes(routes!(cluster_inventory))
        .routes(routes!(cluster_facts))
        .routes(routes!(checkpoints))
        .routes(routes!(remove_checkpoint))
        .routes(routes!(metrics))
        .routes(routes!(openapi))
}

/// Host, guests, migrations and peers.
#[utoipa::path(get, path = "/v1/status", tag = "local", responses(
    (status = 200, body = StatusView), (status = "default", body = ErrorBody)))]
async fn status(State(app): State<App>) -> Result<Json<StatusView>, Refused> {
    let context = &app.0.context;
    let (host, vms, migrations, peers) = tokio::join!(
        peer::host_view(&app),
        libvirt::all(context),
        app.0.migrations.list(),
        context.peers.look(),
    );
    let limits = context.sharing.list(&migrations, &context.config.networks);
    let limits = limits.await;
    Ok(Json(StatusView {
        host: host?,
        vms: vms?,
        migrations,
        peers,
        limits,
        checkpoints_away: context.checkpoints.away(),
        libvirt: Some(context.libvirt.seen().view()),
    }))
}

/// Every guest that is defined or runs on this host, libvirt's domains among them.
#[utoipa::path(get, path = "/v1/vms", tag = "local", responses(
    (status = 200, body = Vec<VmView>), (status = "default", body = ErrorBody)))]
async fn list_vms(State(app): State<App>) -> Result<Json<Vec<VmView>>, Refused> {
    Ok(Json(libvirt::all(&app.0.context).await?))
}

/// Starts a guest, or has one that is suspended go on. Answers when its QEMU runs.
#[utoipa::path(post, path = "/v1/vms/{name}/start", tag = "local",
    params(("name" = String, Path)), request_body = Option<StartRequest>,
    responses((status = 200, body = VmView), (status = "default", body = ErrorBody)))]
async fn start_vm(
    State(app): State<App>,
    Named(name): Named<VmName>,
    OptionalBody(request): OptionalBody<StartRequest>,
) -> Result<Json<VmView>, Refused> {
    let started = to_its_end(async move {
        let context = &app.0.context;
        let started = elsewhere::start(context, &name, request).await;
        if started.is_ok() {
            app.0.parking.by_hand(&name).await;
        }
        elsewhere::or_where(context, &name, Some(Order::Start), started).await
    });
    Ok(Json(started.await?))
}

/// Stops a guest. Answers when its QEMU has ended.
#[utoipa::path(post, path = "/v1/vms/{name}/stop", tag = "local",
    params(("name" = String, Path)), request_body = Option<StopRequest>,
    responses((status = 200, body = VmView), (status = "default", body = ErrorBody)))]
async fn stop_vm(
    State(app): State<App>,
    Named(name): Named<VmName>,
    OptionalBody(request): OptionalBody<StopRequest>,
) -> Result<Json<VmView>, Refused> {
    let stopped = to_its_end(async move {
        let context = &app.0.context;
        if request.force {
            app.0.parking.give_way(&name).await;
        }
        let stopped = context.registry.stop(&name, &request).await;
        let is_told = match &stopped {
            Ok(_) => true,
            Err(refusal) => refusal.code == ErrorCode::StopTimeout,
        };
        if is_told || !context.registry.held(&name).process {
            app.0.parking.by_hand(&name).await;
        }
        let order = match request.force {
            true => Order::End,
            false => Order::Stop,
        };
        elsewhere::or_where(context, &name, Some(order), stopped).await
    });
    Ok(Json(stopped.await?))
}

/// Suspends a guest: its memory is saved on this host's disk. Answers when its QEMU has ended.
#[utoipa::path(post, path = "/v1/vms/{name}/suspend", tag = "local",
    params(("name" = String, Path)),
    responses((status = 200, body = VmView), (status = "default", body = ErrorBody)))]
async fn suspend_vm(
    State(app): State<App>,
    Named(name): Named<VmName>,
) -> Result<Json<VmView>, Refused> {
    let suspended = to_its_end(async move {
        let context = &app.0.context;
        let suspended = app.0.parking.suspend_by_hand(&name).await;
        elsewhere::or_where(context, &name, Some(Order::Suspend), suspended).await
    });
    Ok(Json(suspended.await?))
}

/// Migrations under way and recent ones, newest first.
#[utoipa::path(get, path = "/v1/migrations", tag = "local", responses(
    (status = 200, body = Vec<MigrationView>), (status = "default", body = ErrorBody)))]
async fn list_migrations(State(app): State<App>) -> Json<Vec<MigrationView>> {
    Json(app.0.migrations.list().await)
}

/// What happened in a migration, oldest first, as this host's agent saw it.
#[utoipa::path(get, path = "/v1/migrations/{id}/events", tag = "local",
    params(("id" = String, Path)),
    responses((status = 200, body = Vec<EventView>), (status = "default", body = ErrorBody)))]
async fn migration_events(
    State(app): State<App>,
    Named(id): Named<MigrationId>,
) -> Result<Json<Vec<EventView>>, Refused> {
    Ok(Json(app.0.migrations.events(id).await?))
}

/// Decides in the place of the other host, which does not answer. It is asked once more first, and
/// the decision refused if it answers. Answers when what was decided is done.
#[utoipa::path(post, path = "/v1/migrations/{id}/resolve", tag = "local",
    params(("id" = String, Path)), request_body = ResolveRequest,
    responses((status = 200, body = MigrationView), (status = "default", body = ErrorBody)))]
async fn resolve_migration(
    State(app): State<App>,
    Named(id): Named<MigrationId>,
    JsonBody(request): JsonBody<ResolveRequest>,
) -> Result<Json<MigrationView>, Refused> {
    let resolved = to_its_end(async move { app.0.migrations.resolve(id, request).await });
    Ok(Json(resolved.await?))
}

/// Limits on what migrations carry.
#[utoipa::path(get, path = "/v1/limits", tag = "local", responses(
    (status = 200, body = LimitsView), (status = "default", body = ErrorBody)))]
async fn limits(State(app): State<App>) -> Json<LimitsView> {
    Json(limits_view(&app).await)
}

async fn limits_view(app: &App) -> LimitsView {
    let context = &app.0.context;
    let migrations = app.0.migrations.under_way();
    let list = context.sharing.list(&migrations, &context.config.networks);
    LimitsView {
        limits: list.await,
        host: context.config.host.clone(),
    }
}

/// Sets a limit or lifts it; it holds within half a second.
#[utoipa::path(post, path = "/v1/limits", tag = "local", request_body = LimitRequest,
    responses((status = 200, body = LimitsView), (status = "default", body = ErrorBody)))]
async fn set_limit(
    State(app): State<App>,
    JsonBody(request): JsonBody<LimitRequest>,
) -> Result<Json<LimitsView>, Refused> {
    let context = &app.0.context;
    let migrations = app.0.migrations.under_way();
    let networks = &context.config.networks;
    let set = context.sharing.set(&request, &migrations, networks);
    set.await?;
    app.0.migrations.limit_changed(&request);
    Ok(Json(limits_view(&app).await))
}

/// Every host and every guest of the cluster, as each member tells of it now.
#[utoipa::path(get, path = "/v1/cluster/inventory", tag = "local", responses(
    (status = 200, body = ClusterInventoryView), (status = "default", body = ErrorBody)))]
async fn cluster_inventory(State(app): State<App>) -> Result<Json<ClusterInventoryView>, Refused> {
    Ok(Json(planning::inventory(&app.0.context).await?))
}

/// What was read of every host of the cluster, for those who look for what costs migrations.
#[utoipa::path(get, path = "/v1/cluster/facts", tag = "local", responses(
    (status = 200, body = ClusterFactsView), (status = "default", body = ErrorBody)))]
async fn cluster_facts(State(app): State<App>) -> Result<Json<ClusterFactsView>, Refused> {
    Ok(Json(crate::doctor::cluster(&app.0.context).await?))
}

/// Makes a plan of the whole cluster. Nothing is changed.
#[utoipa::path(post, path = "/v1/plan", tag = "local", request_body = PlanRequest,
    responses((status = 200, body = PlanView), (status = "default", body = ErrorBody)))]
async fn plan(
    State(app): State<App>,
    JsonBody(request): JsonBody<PlanRequest>,
) -> Result<Json<PlanView>, Refused> {
    Ok(Json(planning::plan(&app.0.context, request).await?))
}

/// What is kept here of guests that left, for their return.
#[utoipa::path(get, path = "/v1/checkpoints", tag = "local", responses(
    (status = 200, body = CheckpointsView), (status = "default", body = ErrorBody)))]
async fn checkpoints(State(app): State<App>) -> Json<CheckpointsView> {
    Json(app.0.context.checkpoints.view())
}

/// Removes what is kept of a guest that left; what is left then.
#[utoipa::path(post, path = "/v1/checkpoints/{name}/remove", tag = "local",
    params(("name" = String, Path)),
    responses((status = 200, body = CheckpointsView), (status = "default", body = ErrorBody)))]
async fn remove_checkpoint(
    State(app): State<App>,
    Named(name): Named<VmName>,
) -> Result<Json<CheckpointsView>, Refused> {
    let context = &app.0.context;
    let removed = tokio::task::block_in_place(|| context.checkpoints.remove(&name));
    let removed = removed.map_err(|why| {
        let message = format!(
            "what is kept of {name} is not removed yet: {}",
            with_sources(&why)
        );
        let next = "look what holds up the disk of `checkpoints.directory`, then remove it again";
        Refusal::new(ErrorCode::Internal, message).next(next)
    })?;
    if removed {
        return Ok(Json(context.checkpoints.view()));
    }
    let message = format!("nothing is kept here of a guest {name} that left");
    let next = "`drover checkpoints` lists what is kept";
    Err(Refusal::new(ErrorCode::NoSuchVm, message).next(next).into())
}

/// Metrics for Prometheus, in its text format; docs/METRICS.md explains each.
#[utoipa::path(get, path = "/metrics", tag = "local", responses(
    (status = 200, description = "OpenMetrics text", content_type = "application/openmetrics-text"),
    (status = "default", body = ErrorBody)))]
pub async fn metrics(State(app): State<App>) -> Result<impl IntoResponse, Refused> {
    let context = &app.0.context;
    let migrations = app.0.migrations.list().await;
    let limits = context.sharing.list(&migrations, &context.config.networks);
    let moment = Moment {
        limits: limits.await,
        lanes_refused: app.0.migrations.lanes_refused(),
        shared_pages: context.shared_pages.taken(),
        checkpoints: context.checkpoints.view().taken,
        run: app.0.coordinator.carries_out(),
        host: context.config.host.clone(),
        memory: facts::memory().ok(),
        certificate: context
            .cluster
            .trust()
            .armed()
            .map(|armed| armed.facts.not_after),
        guests: context.registry.list().await?,
        libvirt: context.libvirt.seen(),
        migrations,
    };
    let text = context.metrics.text(&moment).map_err(|error| {
        let message = format!("the metrics cannot be written: {error}");
        Refusal::new(ErrorCode::Internal, message)
    })?;
    Ok(([(header::CONTENT_TYPE, MEDIA_TYPE)], text))
}

/// This document.
#[utoipa::path(get, path = "/v1/openapi.json", tag = "local", responses(
    (status = 200, description = "The OpenAPI document", content_type = "application/json")))]
async fn openapi() -> impl IntoResponse {
    (
        [(header::CONTENT_TYPE, "application/json")],
        drover_api::OPENAPI,
    )
}
