//! Routes for disks that move to other files of this host.

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use drover_api::{ErrorBody, StorageMoveRequest, StorageMoveView};
use drover_types::StorageMoveId;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{JsonBody, Named};
use super::{App, Caller, Refused, to_its_end};

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list, begin))
        .routes(routes!(show))
        .routes(routes!(cancel))
}

/// Begins to move a disk of a guest that runs to another file of this host. Answers when it is known that it can be, and written down.
#[utoipa::path(post, path = "/v1/storage-moves", tag = "local", request_body = StorageMoveRequest,
    responses((status = 202, body = StorageMoveView), (status = "default", body = ErrorBody)))]
async fn begin(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    JsonBody(request): JsonBody<StorageMoveRequest>,
) -> Result<(StatusCode, Json<StorageMoveView>), Refused> {
    let to = request.to.display();
    tracing::info!(by = %caller, vm = %request.vm, disk = request.disk, %to, "ordered: move a disk");
    let begun = to_its_end(async move { app.0.storage.start(request).await });
    Ok((StatusCode::ACCEPTED, Json(begun.await?)))
}

/// Moves of disks that are remembered, newest first.
#[utoipa::path(get, path = "/v1/storage-moves", tag = "local", responses(
    (status = 200, body = Vec<StorageMoveView>), (status = "default", body = ErrorBody)))]
async fn list(State(app): State<App>) -> Result<Json<Vec<StorageMoveView>>, Refused> {
    Ok(Json(app.0.storage.all()))
}

/// One move of a disk.
#[utoipa::path(get, path = "/v1/storage-moves/{id}", tag = "local", params(("id" = String, Path)),
    responses((status = 200, body = StorageMoveView), (status = "default", body = ErrorBody)))]
async fn show(
    State(app): State<App>,
    Named(id): Named<StorageMoveId>,
) -> Result<Json<StorageMoveView>, Refused> {
    Ok(Json(app.0.storage.get(id)?))
}

/// Has a disk stay in the file that it has. Refused once it is about to be the new one. Answers when that is written down.
#[utoipa::path(post, path = "/v1/storage-moves/{id}/cancel", tag = "local",
    params(("id" = String, Path)),
    responses((status = 200, body = StorageMoveView), (status = "default", body = ErrorBody)))]
async fn cancel(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(id): Named<StorageMoveId>,
) -> Result<Json<StorageMoveView>, Refused> {
    tracing::info!(by = %caller, %id, "ordered: cancel a storage move");
    Ok(Json(app.0.storage.cancel(id)?))
}
