//! Routes for changes to this host.

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use drover_api::{
    ChangeDetailView, ChangePlanRequest, ChangePlanView, ChangeRequest, ChangeView, ErrorBody,
    UndoRequest,
};
use drover_types::ChangeId;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{Named, OptionalBody, PlanBody};
use super::{App, Caller, Refused, to_its_end};

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(plan))
        .routes(routes!(list, apply))
        .routes(routes!(show))
        .routes(routes!(undo))
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
    tracing::info!(by = %caller, force = request.force, "this host is to be changed");
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
#[utoipa::path(get, path = "/v1/changes/{id}", tag = "local", params(("id" = String, Path)),
    responses((status = 200, body = ChangeDetailView), (status = "default", body = ErrorBody)))]
async fn show(
    State(app): State<App>,
    Named(id): Named<ChangeId>,
) -> Result<Json<ChangeDetailView>, Refused> {
    Ok(Json(app.0.changes.get(id)?))
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
