//! Routes for runs, on agents that may coordinate.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query, State};
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use drover_api::{CancelRunRequest, ErrorBody, RunRequest, RunView};
use drover_types::RunId;
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{JsonBody, Named, PlanBody, unreadable};
use super::{App, Caller, Refused, orders, to_its_end};

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list_runs, start_run))
        .routes(routes!(show_run))
        .routes(routes!(cancel_run))
}

/// For other hosts that may coordinate: what they are asked for of a run that this one carries out.
pub fn routes_for(app: &App) -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(show_run))
        .routes(routes!(cancel_run))
        .route_layer(from_fn_with_state(
            app.clone(),
            orders::only_of_coordinators,
        ))
}

/// Begins a run: hosts are emptied, taken back, or evened out. Answers at once; the run goes on whether
/// anybody looks or not.
#[utoipa::path(post, path = "/v1/runs", tag = "local", request_body = RunRequest,
    responses((status = 202, body = RunView), (status = "default", body = ErrorBody)))]
async fn start_run(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PlanBody(request): PlanBody<RunRequest>,
) -> Result<(StatusCode, Json<RunView>), Refused> {
    let started = to_its_end(async move {
        // Who is known by a certificate is not asked for a name.
        let by = match (&caller, &request.by) {
            (Caller::Local, Some(name)) => name.clone(),
            _ => caller.to_string(),
        };
        app.0.coordinator.start(request, &by).await
    });
    Ok((StatusCode::ACCEPTED, Json(started.await?)))
}

/// How many of the runs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    newest: Option<usize>,
}

/// Runs that are remembered, newest first; with `newest` so many of them.
#[utoipa::path(get, path = "/v1/runs", tag = "local", params(("newest" = Option<usize>, Query)), responses(
    (status = 200, body = Vec<RunView>), (status = "default", body = ErrorBody)))]
async fn list_runs(
    State(app): State<App>,
    which: Result<Query<Which>, QueryRejection>,
) -> Result<Json<Vec<RunView>>, Refused> {
    let which = which.map_err(|problem| unreadable(&problem))?;
    let newest = which.newest.unwrap_or(usize::MAX);
    Ok(Json(app.0.coordinator.list(newest).await?))
}

/// One run, with its plan while the agent that made it has it.
#[utoipa::path(get, path = "/v1/runs/{id}", tag = "order", params(("id" = String, Path)),
    responses((status = 200, body = RunView), (status = "default", body = ErrorBody)))]
async fn show_run(
    State(app): State<App>,
    Named(id): Named<RunId>,
) -> Result<Json<RunView>, Refused> {
    Ok(Json(app.0.coordinator.get(id).await?))
}

/// Ends a run: no further move begins, and those under way are cancelled or finished. Answers when that is
/// written down.
#[utoipa::path(post, path = "/v1/runs/{id}/cancel", tag = "order", params(("id" = String, Path)),
    request_body = CancelRunRequest,
    responses((status = 200, body = RunView), (status = "default", body = ErrorBody)))]
async fn cancel_run(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(id): Named<RunId>,
    JsonBody(request): JsonBody<CancelRunRequest>,
) -> Result<Json<RunView>, Refused> {
    let cancelled = to_its_end(async move {
        let by = match (&caller, &request.by) {
            (Caller::Peer(_), Some(name)) if RunRequest::is_usable_name(name) => name.clone(),
            _ => caller.to_string(),
        };
        app.0.coordinator.cancel(id, request, &by).await
    });
    Ok(Json(cancelled.await?))
}
