//! What a source's agent asks of the destination's.

use drover_types::MigrationId;

use super::{Client, ClientError};
use crate::limits;
use crate::views::incoming::{
    AbandonRequest, IncomingNetworks, IncomingOffer, IncomingPaths, IncomingReopen,
    IncomingRequest, IncomingStart, IncomingView,
};

impl Client {
    /// `POST /v1/incoming`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn incoming(&self, request: &IncomingRequest) -> Result<IncomingOffer, ClientError> {
        self.post("/v1/incoming", request, limits::START_CALL).await
    }

    /// `GET /v1/incoming/{id}`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn incoming_status(&self, id: MigrationId) -> Result<IncomingView, ClientError> {
        self.get(&format!("/v1/incoming/{id}")).await
    }

    /// `POST /v1/incoming/{id}/start`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn incoming_start(
        &self,
        id: MigrationId,
        request: &IncomingStart,
    ) -> Result<IncomingView, ClientError> {
        self.post(
            &format!("/v1/incoming/{id}/start"),
            request,
            limits::READ_CALL,
        )
        .await
    }

    /// `POST /v1/incoming/{id}/paths`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn incoming_paths(
        &self,
        id: MigrationId,
        request: &IncomingPaths,
    ) -> Result<IncomingNetworks, ClientError> {
        self.post(
            &format!("/v1/incoming/{id}/paths"),
            request,
            limits::READ_CALL,
        )
        .await
    }

    /// `POST /v1/incoming/{id}/reopen`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn incoming_reopen(
        &self,
        id: MigrationId,
        request: &IncomingReopen,
    ) -> Result<IncomingOffer, ClientError> {
        let path = format!("/v1/incoming/{id}/reopen");
        self.post(&path, request, limits::START_CALL).await
    }

    /// `POST /v1/incoming/{id}/recover`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn incoming_recover(
        &self,
        id: MigrationId,
        request: &IncomingPaths,
    ) -> Result<IncomingView, ClientError> {
        let path = format!("/v1/incoming/{id}/recover");
        self.post(&path, request, limits::READ_CALL).await
    }

    /// `POST /v1/incoming/{id}/run`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn incoming_run(&self, id: MigrationId) -> Result<IncomingView, ClientError> {
        let path = format!("/v1/incoming/{id}/run");
        self.post(&path, &(), limits::READ_CALL).await
    }

    /// `POST /v1/incoming/{id}/abandon`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn incoming_abandon(
        &self,
        id: MigrationId,
        request: &AbandonRequest,
    ) -> Result<IncomingView, ClientError> {
        self.post(
            &format!("/v1/incoming/{id}/abandon"),
            request,
            limits::READ_CALL,
        )
        .await
    }
}
