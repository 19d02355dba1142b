//! Routes with which the paths between hosts are asked about.

use axum::Json;
use axum::extract::{Extension, State};
use drover_api::{
    AnsweredView, AnswererRequest, AnswererView, ClusterPathsRequest, ClusterPathsView, ErrorBody,
    KeptView, LoadOrder, LoadTakeRequest, LoadTakenView, LoadedView, OpenRequest, OpenedView,
    PathsAskRequest, PathsView,
};
use drover_types::{AnswererId, LoadId};
use jiff::Timestamp;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{JsonBody, Named, OptionalBody};
use super::{App, Caller, Refused, to_its_end};
use crate::{doctor, paths, present};

/// The one that takes longer than others.
pub const CLUSTER: &str = "/v1/cluster/paths";

/// For the agents of other hosts.
pub fn peer_routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(order_answerer))
        .routes(routes!(end_answerer))
        .routes(routes!(ask_paths))
        .routes(routes!(open_paths))
        .routes(routes!(take_for_load))
        .routes(routes!(carry_load))
        .routes(routes!(end_load))
}

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(cluster_paths))
        .routes(routes!(kept))
}

/// Answers questions of the caller that come by datagrams, at each address that migrations may use, for a time. The ticket is for
/// the caller alone.
#[utoipa::path(post, path = "/v1/answerers", tag = "peer", request_body = AnswererRequest,
    responses((status = 200, body = AnswererView), (status = "default", body = ErrorBody)))]
async fn order_answerer(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    JsonBody(request): JsonBody<AnswererRequest>,
) -> Result<Json<AnswererView>, Refused> {
    let ordered = to_its_end(async move {
        let (context, migrations) = (&app.0.context, &app.0.migrations);
        let config = &context.config;
        let here = paths::Here {
            host: &config.host,
            networks: &config.networks,
            port: config.migration.data_port,
            moving: migrations.under_way().len(),
            guests: present::on_links(context),
            lanes: migrations.lanes(),
            taken: &context.paths.taken,
        };
        context.paths.answerers.order(&here, caller, request).await
    });
    Ok(Json(ordered.await?))
}

/// Answers no more; only for the caller that ordered it. What was answered, and what was left.
#[utoipa::path(post, path = "/v1/answerers/{id}/end", tag = "peer",
    params(("id" = String, Path)),
    responses((status = 200, body = AnsweredView), (status = "default", body = ErrorBody)))]
async fn end_answerer(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(id): Named<AnswererId>,
) -> Result<Json<AnsweredView>, Refused> {
    let ended = to_its_end(async move {
        let moving = app.0.migrations.under_way().len();
        let answerers = &app.0.context.paths.answerers;
        answerers.end(&caller, id, moving).await
    });
    Ok(Json(ended.await?))
}

/// Asks the paths from this host to another, which answers. One such request is carried out at a time.
#[utoipa::path(post, path = "/v1/paths/ask", tag = "peer", request_body = PathsAskRequest,
    responses((status = 200, body = PathsView), (status = "default", body = ErrorBody)))]
async fn ask_paths(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    JsonBody(request): JsonBody<PathsAskRequest>,
) -> Result<Json<PathsView>, Refused> {
    tracing::info!(%caller, answerer = %request.answerer, load = ?request.load, "paths are to be asked");
    // To its end, so that the other agent is told when it need answer no longer.
    let turn = paths::turn(&app.0.context).await?;
    let asked = to_its_end(async move {
        let (context, migrations) = (&app.0.context, &app.0.migrations);
        let wanted = paths::Wanted {
            far: &request.answerer,
            load: request.load,
            part_of: request.part_of,
            by: &caller,
        };
        paths::ask(context, migrations, wanted, turn).await
    });
    Ok(Json(asked.await?))
}

/// Opens connections from addresses of this host to the caller, a host, at the ports of its agent, and closes them at once: it wants to know whether
/// that is possible, as before a change to it. One such request of a host is carried out at a time.
#[utoipa::path(post, path = "/v1/paths/open", tag = "peer", request_body = OpenRequest,
    responses((status = 200, body = OpenedView), (status = "default", body = ErrorBody)))]
async fn open_paths(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    JsonBody(request): JsonBody<OpenRequest>,
) -> Result<Json<OpenedView>, Refused> {
    let count = request.ends.len();
    tracing::info!(%caller, count, "connections are to be opened to another host");
    let context = &app.0.context;
    let with = (&context.paths.opens, &context.peers);
    Ok(Json(paths::open(with, &caller, request).await?))
}

/// Takes this host for a load of the caller, until that is ended or its time is over. While it is taken it is part of no other load.
#[utoipa::path(post, path = "/v1/loads", tag = "peer", request_body = LoadTakeRequest,
    responses((status = 200, body = LoadTakenView), (status = "default", body = ErrorBody)))]
async fn take_for_load(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    JsonBody(request): JsonBody<LoadTakeRequest>,
) -> Result<Json<LoadTakenView>, Refused> {
    Ok(Json(paths::take(&app.0.context, caller, request).await?))
}

/// Loads another host by these paths from a moment on at which others do, too. This host has to be taken for that load.
#[utoipa::path(post, path = "/v1/loads/{id}/carry", tag = "peer", request_body = LoadOrder,
    params(("id" = String, Path)),
    responses((status = 200, body = LoadedView), (status = "default", body = ErrorBody)))]
async fn carry_load(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(id): Named<LoadId>,
    JsonBody(order): JsonBody<LoadOrder>,
) -> Result<Json<LoadedView>, Refused> {
    let carried = to_its_end(async move {
        tracing::info!(%caller, %id, far = %order.far, load = ?order.load, "another host is to be loaded");
        let (context, migrations) = (&app.0.context, &app.0.migrations);
        paths::carry(context, migrations, (&caller, id), order).await
    });
    Ok(Json(carried.await?))
}

/// This host is part of that load no longer; only for the caller that took it.
#[utoipa::path(post, path = "/v1/loads/{id}/end", tag = "peer", params(("id" = String, Path)),
    responses((status = 200), (status = "default", body = ErrorBody)))]
async fn end_load(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(id): Named<LoadId>,
) -> Json<()> {
    paths::give_back(&app.0.context, &caller, id);
    Json(())
}

/// Has the hosts of the cluster ask the paths between them, each from both of its ends. Whoever hangs up has no more of them asked.
/// Where all were asked, this agent keeps what was found, with the facts of the hosts.
#[utoipa::path(post, path = "/v1/cluster/paths", tag = "local",
    request_body = Option<ClusterPathsRequest>,
    responses((status = 200, body = ClusterPathsView), (status = "default", body = ErrorBody)))]
async fn cluster_paths(
    State(app): State<App>,
    OptionalBody(request): OptionalBody<ClusterPathsRequest>,
) -> Result<Json<ClusterPathsView>, Refused> {
    Ok(Json(
        paths::cluster(&app.0.context, &app.0.migrations, request).await?,
    ))
}

/// What this agent kept when all paths were asked by way of it: the newest that is as old as that, or the oldest there is.
#[utoipa::path(get, path = "/v1/cluster/kept/{at}", tag = "local",
    params(("at" = String, Path, description = "a time, RFC 3339")),
    responses((status = 200, body = KeptView), (status = "default", body = ErrorBody)))]
async fn kept(
    State(app): State<App>,
    Named(at): Named<Timestamp>,
) -> Result<Json<KeptView>, Refused> {
    Ok(Json(doctor::kept(&app.0.context, at).await?))
}
