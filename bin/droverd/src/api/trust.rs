//! Routes by which agents keep their trust up to date, and the one for hosts that join.

use std::net::IpAddr;

use axum::Json;
use axum::extract::{Extension, State};
use drover_api::{
    AdmissionRequest, ErrorBody, HostCertificate, MembershipSchema, RenewalRequest, SyncRequest,
};
use drover_trust::Membership;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{JsonBody, SmallBody};
use super::{App, Caller, Refused, to_its_end};

/// For other hosts.
pub fn peer_routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(renewal))
        .routes(routes!(sync))
        .routes(routes!(news))
        .routes(routes!(leave))
}

/// For those who have no certificate yet.
pub fn open_routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(admission))
}

/// Lets a host in that shows the secret of a join token. The only route without a certificate.
#[utoipa::path(post, path = "/v1/trust/admission", tag = "open", request_body = AdmissionRequest,
    responses((status = 200, body = HostCertificate), (status = "default", body = ErrorBody)))]
async fn admission(
    State(app): State<App>,
    Extension(from): Extension<IpAddr>,
    SmallBody(request): SmallBody<AdmissionRequest>,
) -> Result<Json<HostCertificate>, Refused> {
    let admitted = to_its_end(async move { app.0.context.cluster.admit(from, request).await });
    Ok(Json(admitted.await?))
}

/// A new certificate for the host that asks, by its present one. Only on the authority's host.
#[utoipa::path(post, path = "/v1/trust/renewal", tag = "peer", request_body = RenewalRequest,
    responses((status = 200, body = HostCertificate), (status = "default", body = ErrorBody)))]
async fn renewal(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    JsonBody(request): JsonBody<RenewalRequest>,
) -> Result<Json<HostCertificate>, Refused> {
    let renewed = to_its_end(async move { app.0.context.cluster.renew(&caller, &request).await });
    Ok(Json(renewed.await?))
}

/// A member tells where it listens, and is told who is in. Only on the authority's host.
#[utoipa::path(post, path = "/v1/trust/sync", tag = "peer", request_body = SyncRequest,
    responses((status = 200, body = MembershipSchema), (status = "default", body = ErrorBody)))]
async fn sync(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    JsonBody(request): JsonBody<SyncRequest>,
) -> Result<Json<Membership>, Refused> {
    let told = to_its_end(async move { app.0.context.cluster.sync(&caller, request).await });
    Ok(Json(told.await?))
}

/// The authority's host tells who is in and which certificates are no longer good.
#[utoipa::path(post, path = "/v1/trust/news", tag = "peer", request_body = MembershipSchema,
    responses((status = 200), (status = "default", body = ErrorBody)))]
async fn news(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    JsonBody(news): JsonBody<Membership>,
) -> Result<Json<()>, Refused> {
    let heard = to_its_end(async move { app.0.context.cluster.news(&caller, news).await });
    Ok(Json(heard.await?))
}

/// Removes the host that asks: its certificates are worth nothing from now on. Refused while a run is under way,
/// since its plan counts on every host. Only on the authority's host.
#[utoipa::path(post, path = "/v1/trust/leave", tag = "peer",
    responses((status = 200), (status = "default", body = ErrorBody)))]
async fn leave(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<()>, Refused> {
    tracing::info!(%caller, "is to leave the cluster");
    let left = to_its_end(async move {
        app.0.coordinator.check_idle().await?;
        app.0.context.cluster.let_go(&caller).await
    });
    Ok(Json(left.await?))
}
