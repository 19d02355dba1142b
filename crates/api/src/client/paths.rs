//! What is asked about the paths between hosts.

use drover_types::{AnswererId, HostName, LoadId};
use jiff::Timestamp;

use super::{Client, ClientError};
use crate::limits;
use crate::views::kept::KeptView;
use crate::views::load::{LoadOrder, LoadRequest, LoadTakeRequest, LoadTakenView, LoadedView};
use crate::views::paths::{
    AnsweredView, AnswererRequest, AnswererView, ClusterPathsRequest, ClusterPathsView,
    OpenRequest, OpenedView, PathsAskRequest, PathsView,
};

impl Client {
    /// `POST /v1/answerers`, to another host's agent
    ///
    /// # Errors
    /// See [`ClientError`]; the same holds for every call below.
    pub async fn order_answerer(
        &self,
        request: &AnswererRequest,
    ) -> Result<AnswererView, ClientError> {
        self.post("/v1/answerers", request, limits::READ_CALL).await
    }

    /// `POST /v1/answerers/{id}/end`, to another host's agent
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn end_answerer(&self, id: AnswererId) -> Result<AnsweredView, ClientError> {
        let path = format!("/v1/answerers/{id}/end");
        self.post(&path, &(), limits::READ_CALL).await
    }

    /// `POST /v1/paths/open`, to another host's agent
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn open(&self, request: &OpenRequest) -> Result<OpenedView, ClientError> {
        self.post("/v1/paths/open", request, limits::READ_CALL)
            .await
    }

    /// `POST /v1/loads`, to another host's agent
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn take_for_load(
        &self,
        request: &LoadTakeRequest,
    ) -> Result<LoadTakenView, ClientError> {
        self.post("/v1/loads", request, limits::READ_CALL).await
    }

    /// `POST /v1/loads/{id}/carry`, to another host's agent
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn carry_load(
        &self,
        id: LoadId,
        order: &LoadOrder,
    ) -> Result<LoadedView, ClientError> {
        let path = format!("/v1/loads/{id}/carry");
        self.post(&path, order, limits::LOAD_CALL).await
    }

    /// `POST /v1/loads/{id}/end`, to another host's agent
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn end_load(&self, id: LoadId) -> Result<(), ClientError> {
        let path = format!("/v1/loads/{id}/end");
        self.post(&path, &(), limits::READ_CALL).await
    }

    /// `POST /v1/paths/ask`: the paths from that agent's host to another, loaded, where that is wanted, as part of a load that both were taken for
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn ask_paths(
        &self,
        answerer: &HostName,
        load: Option<LoadRequest>,
        part_of: Option<LoadId>,
    ) -> Result<PathsView, ClientError> {
        let request = PathsAskRequest {
            answerer: answerer.clone(),
            load,
            part_of,
        };
        self.post("/v1/paths/ask", &request, limits::PATHS_ASK_CALL)
            .await
    }

    /// `POST /v1/cluster/paths`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn cluster_paths(
        &self,
        request: &ClusterPathsRequest,
    ) -> Result<ClusterPathsView, ClientError> {
        let within = if request.load_together {
            limits::LOADS_CALL
        } else {
            limits::PATHS_CALL
        };
        self.post("/v1/cluster/paths", request, within).await
    }

    /// `GET /v1/cluster/kept/{at}`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn kept(&self, at: Timestamp) -> Result<KeptView, ClientError> {
        self.get(&format!("/v1/cluster/kept/{at}")).await
    }
}
