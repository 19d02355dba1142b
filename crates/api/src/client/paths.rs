//! What is asked about the paths between hosts.

use drover_types::{AnswererId, HostName};
use jiff::Timestamp;

use super::{Client, ClientError};
use crate::limits;
use crate::views::kept::KeptView;
use crate::views::paths::{
    AnsweredView, AnswererRequest, AnswererView, ClusterPathsRequest, ClusterPathsView,
    LoadRequest, PathsAskRequest, PathsView,
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

    /// `POST /v1/paths/ask`: the paths from that agent's host to another
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn ask_paths(
        &self,
        answerer: &HostName,
        load: Option<LoadRequest>,
    ) -> Result<PathsView, ClientError> {
        let answerer = answerer.clone();
        let request = PathsAskRequest { answerer, load };
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
        self.post("/v1/cluster/paths", request, limits::PATHS_CALL)
            .await
    }

    /// `GET /v1/cluster/kept/{at}`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn kept(&self, at: Timestamp) -> Result<KeptView, ClientError> {
        self.get(&format!("/v1/cluster/kept/{at}")).await
    }
}
