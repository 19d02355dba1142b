//! The calls about changes to the agent's host.

use drover_types::{ChangeId, HostName};

use super::{Client, ClientError};
use crate::limits;
use crate::views::change::{
    ChangeDetailView, ChangePlanRequest, ChangePlanView, ChangeRequest, ChangeView, ForgottenView,
    LinkRequest, LinkView, UndoRequest,
};

impl Client {
    /// `POST /v1/changes/plan`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn plan_changes(
        &self,
        request: &ChangePlanRequest,
    ) -> Result<ChangePlanView, ClientError> {
        self.post("/v1/changes/plan", request, limits::READ_CALL)
            .await
    }

    /// `POST /v1/changes`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn apply_changes(&self, request: &ChangeRequest) -> Result<ChangeView, ClientError> {
        self.post("/v1/changes", request, limits::READ_CALL).await
    }

    /// `GET /v1/changes`: newest first
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn changes(&self) -> Result<Vec<ChangeView>, ClientError> {
        self.get("/v1/changes").await
    }

    /// `GET /v1/changes/{id}`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn change(&self, id: ChangeId) -> Result<ChangeDetailView, ClientError> {
        self.get(&format!("/v1/changes/{id}")).await
    }

    /// `POST /v1/links`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn set_link(&self, request: &LinkRequest) -> Result<LinkView, ClientError> {
        self.post("/v1/links", request, limits::READ_CALL).await
    }

    /// `POST /v1/hosts/{host}/links`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn set_link_of(
        &self,
        host: &HostName,
        request: &LinkRequest,
    ) -> Result<LinkView, ClientError> {
        let path = format!("/v1/hosts/{host}/links");
        self.post(&path, request, limits::LINK_CALL).await
    }

    /// `GET /v1/hosts/{host}/changes/{id}`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn change_of(
        &self,
        host: &HostName,
        id: ChangeId,
    ) -> Result<ChangeDetailView, ClientError> {
        self.get(&format!("/v1/hosts/{host}/changes/{id}")).await
    }

    /// `POST /v1/changes/{id}/undo`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn undo_change(
        &self,
        id: ChangeId,
        request: &UndoRequest,
    ) -> Result<ChangeView, ClientError> {
        let path = format!("/v1/changes/{id}/undo");
        self.post(&path, request, limits::UNDO_CALL).await
    }

    /// `POST /v1/changes/{id}/forget`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn forget_change(&self, id: ChangeId) -> Result<ForgottenView, ClientError> {
        let path = format!("/v1/changes/{id}/forget");
        self.post(&path, &(), limits::READ_CALL).await
    }
}
