//! Routes for changes to this host.

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use drover_api::{
    ChangeDetailView, ChangePlanRequest, ChangePlanView, ChangeRequest, ChangeView, ErrorBody,
    ForgottenView, LinkRequest, LinkView, UndoRequest,
};
use drover_types::{ChangeId, HostName};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{JsonBody, Named, NamedTwo, OptionalBody, PlanBody};
use super::orders::only_of_coordinators;
use super::{App, Caller, Refused, to_its_end};
use crate::peers::{open, unreachable};

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(plan))
        .routes(routes!(list, apply))
        .routes(routes!(undo))
        .routes(routes!(forget))
        .routes(routes!(set_link_of))
        .routes(routes!(show_of))
}

/// What those that may coordinate ask for, too: a person's order, passed on by the agent of another host.
pub fn order_routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(show))
        .routes(routes!(set_link))
}

/// The same for other hosts.
pub fn order_routes_for(app: &App) -> OpenApiRouter<App> {
    order_routes().route_layer(from_fn_with_state(app.clone(), only_of_coordinators))
}

/// What would be changed on this host, by what is found of it now. Nothing is changed.
#[utoipa::path(post, path = "/v1/changes/plan", tag = "local",
    request_body = Option<ChangePlanRequest>,
    responses((status = 200, body = ChangePlanView), (status = "default", body = ErrorBody)))]
async fn plan(
    State(app): State<App>,
    OptionalBody(request): OptionalBody<ChangePlanRequest>,
) -> Result<Json<ChangePlanView>, Refused> {
    Ok(Json(app.0.changes.plan(request).await?))
}

/// Carries a plan out, in a process that outlives this agent. Answers when that has begun; it takes back what it did by itself where
/// other hosts do not reach this one as before.
#[utoipa::path(post, path = "/v1/changes", tag = "local", request_body = ChangeRequest,
    responses((status = 202, body = ChangeView), (status = "default", body = ErrorBody)))]
async fn apply(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PlanBody(request): PlanBody<ChangeRequest>,
) -> Result<(StatusCode, Json<ChangeView>), Refused> {
    let ChangeRequest { force, persist, .. } = request;
    tracing::info!(by = %caller, force, persist, "this host is to be changed");
    let begun = to_its_end(async move { app.0.changes.apply(request).await });
    Ok((StatusCode::ACCEPTED, Json(begun.await?)))
}

/// Changes that are remembered, newest first.
#[utoipa::path(get, path = "/v1/changes", tag = "local", responses(
    (status = 200, body = Vec<ChangeView>), (status = "default", body = ErrorBody)))]
async fn list(State(app): State<App>) -> Result<Json<Vec<ChangeView>>, Refused> {
    Ok(Json(app.0.changes.list()?))
}

/// One change, with all that it sets.
#[utoipa::path(get, path = "/v1/changes/{id}", tag = "order", params(("id" = String, Path)),
    responses((status = 200, body = ChangeDetailView), (status = "default", body = ErrorBody)))]
async fn show(
    State(app): State<App>,
    Named(id): Named<ChangeId>,
) -> Result<Json<ChangeDetailView>, Refused> {
    Ok(Json(app.0.changes.get(id)?))
}

/// Sets a link of this host by a change of its own, which takes itself back if the link does not come up again. Answers when that has
/// begun.
#[utoipa::path(post, path = "/v1/links", tag = "order", request_body = LinkRequest,
    responses((status = 202, body = LinkView), (status = "default", body = ErrorBody)))]
async fn set_link(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    JsonBody(request): JsonBody<LinkRequest>,
) -> Result<(StatusCode, Json<LinkView>), Refused> {
    tracing::info!(by = %caller, ?request, "a link of this host is to be set");
    let begun = to_its_end(async move { app.0.changes.set_link(request).await });
    Ok((StatusCode::ACCEPTED, Json(begun.await?)))
}

/// Sets a link of any member, by its agent.
#[utoipa::path(post, path = "/v1/hosts/{host}/links", tag = "local",
    params(("host" = String, Path)), request_body = LinkRequest,
    responses((status = 202, body = LinkView), (status = "default", body = ErrorBody)))]
async fn set_link_of(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(host): Named<HostName>,
    JsonBody(request): JsonBody<LinkRequest>,
) -> Result<(StatusCode, Json<LinkView>), Refused> {
    tracing::info!(by = %caller, %host, ?request, "a link is to be set");
    let begun = to_its_end(async move {
        let context = &app.0.context;
        if host == context.config.host {
            return app.0.changes.set_link(request).await;
        }
        let set = context.peers.client(&host)?.set_link(&request).await;
        set.map_err(|error| {
            let nic = &request.nic;
            let look = format!(
                "if it was begun it takes itself back, unless the link comes up again and other hosts are reached as before: \
                 `drover doctor changes` on {host} lists it, and `drover nic show {host} {nic}` shows the link"
            );
            open(&host, &error, &look)
        })
    });
    Ok((StatusCode::ACCEPTED, Json(begun.await?)))
}

/// One change of any member, as its agent tells it.
#[utoipa::path(get, path = "/v1/hosts/{host}/changes/{id}", tag = "local",
    params(("host" = String, Path), ("id" = String, Path)),
    responses((status = 200, body = ChangeDetailView), (status = "default", body = ErrorBody)))]
async fn show_of(
    State(app): State<App>,
    NamedTwo(host, id): NamedTwo<HostName, ChangeId>,
) -> Result<Json<ChangeDetailView>, Refused> {
    let context = &app.0.context;
    if host == context.config.host {
        return Ok(Json(app.0.changes.get(id)?));
    }
    let told = context.peers.client(&host)?.change(id).await;
    Ok(Json(told.map_err(|error| unreachable(&host, &error))?))
}

/// Takes a change back. Answers when that is done, or goes on.
#[utoipa::path(post, path = "/v1/changes/{id}/undo", tag = "local", params(("id" = String, Path)),
    request_body = Option<UndoRequest>,
    responses((status = 200, body = ChangeView), (status = "default", body = ErrorBody)))]
async fn undo(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(id): Named<ChangeId>,
    OptionalBody(request): OptionalBody<UndoRequest>,
) -> Result<Json<ChangeView>, Refused> {
    tracing::info!(by = %caller, %id, force = request.force, "a change is to be undone");
    let undone = to_its_end(async move { app.0.changes.undo(id, request).await });
    Ok(Json(undone.await?))
}

/// Forgets a change that is at its end: what it has set stays, and cannot be taken back any more. Answers with how it was, and which
/// older ones cannot be either by that.
#[utoipa::path(post, path = "/v1/changes/{id}/forget", tag = "local", params(("id" = String, Path)),
    responses((status = 200, body = ForgottenView), (status = "default", body = ErrorBody)))]
async fn forget(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(id): Named<ChangeId>,
) -> Result<Json<ForgottenView>, Refused> {
    tracing::info!(by = %caller, %id, "a change is to be forgotten");
    let forgotten = to_its_end(async move { app.0.changes.forget(id).await });
    Ok(Json(forgotten.await?))
}
