//! Calls about the cluster.

use drover_trust::Membership;
use drover_types::{HostName, OperatorName};

use super::{Client, ClientError};
use crate::limits;
use crate::views::cluster::{
    AdmissionRequest, ClusterView, CoordinatorRequest, HostCertificate, JoinRequest,
    OperatorCertificate, OperatorRequest, RenewalRequest, SyncRequest, TokenRequest, TokenView,
};

impl Client {
    /// `GET /v1/cluster`
    ///
    /// # Errors
    /// See [`ClientError`]; the same holds for every call below.
    pub async fn cluster(&self) -> Result<ClusterView, ClientError> {
        self.get("/v1/cluster").await
    }

    /// `POST /v1/cluster/init`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn cluster_init(&self) -> Result<ClusterView, ClientError> {
        self.post("/v1/cluster/init", &(), limits::READ_CALL).await
    }

    /// `POST /v1/cluster/token`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn cluster_token(&self, request: &TokenRequest) -> Result<TokenView, ClientError> {
        self.post("/v1/cluster/token", request, limits::READ_CALL)
            .await
    }

    /// `POST /v1/cluster/join`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn cluster_join(&self, request: &JoinRequest) -> Result<ClusterView, ClientError> {
        self.post("/v1/cluster/join", request, limits::JOIN_CALL)
            .await
    }

    /// `POST /v1/cluster/leave`: the cluster that was left
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn cluster_leave(&self) -> Result<ClusterView, ClientError> {
        self.post("/v1/cluster/leave", &(), limits::JOIN_CALL).await
    }

    /// `POST /v1/cluster/rotate`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn cluster_rotate(&self) -> Result<ClusterView, ClientError> {
        self.post("/v1/cluster/rotate", &(), limits::JOIN_CALL)
            .await
    }

    /// `POST /v1/cluster/hosts/{host}/remove`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn cluster_remove(&self, host: &HostName) -> Result<ClusterView, ClientError> {
        let path = format!("/v1/cluster/hosts/{host}/remove");
        self.post(&path, &(), limits::JOIN_CALL).await
    }

    /// `POST /v1/cluster/hosts/{host}/coordinator`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn cluster_coordinator(
        &self,
        host: &HostName,
        request: &CoordinatorRequest,
    ) -> Result<ClusterView, ClientError> {
        let path = format!("/v1/cluster/hosts/{host}/coordinator");
        self.post(&path, request, limits::JOIN_CALL).await
    }

    /// `POST /v1/cluster/operators/{name}`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn cluster_operator(
        &self,
        name: &OperatorName,
        request: &OperatorRequest,
    ) -> Result<OperatorCertificate, ClientError> {
        let path = format!("/v1/cluster/operators/{name}");
        self.post(&path, request, limits::READ_CALL).await
    }

    /// `POST /v1/cluster/operators/{name}/remove`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn cluster_remove_operator(
        &self,
        name: &OperatorName,
    ) -> Result<ClusterView, ClientError> {
        let path = format!("/v1/cluster/operators/{name}/remove");
        self.post(&path, &(), limits::JOIN_CALL).await
    }

    /// `POST /v1/trust/admission`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn trust_admission(
        &self,
        request: &AdmissionRequest,
    ) -> Result<HostCertificate, ClientError> {
        self.post("/v1/trust/admission", request, limits::READ_CALL)
            .await
    }

    /// `POST /v1/trust/renewal`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn trust_renewal(
        &self,
        request: &RenewalRequest,
    ) -> Result<HostCertificate, ClientError> {
        self.post("/v1/trust/renewal", request, limits::READ_CALL)
            .await
    }

    /// `POST /v1/trust/sync`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn trust_sync(&self, request: &SyncRequest) -> Result<Membership, ClientError> {
        self.post("/v1/trust/sync", request, limits::READ_CALL)
            .await
    }

    /// `POST /v1/trust/leave`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn trust_leave(&self) -> Result<(), ClientError> {
        self.post("/v1/trust/leave", &(), limits::JOIN_CALL).await
    }

    /// `POST /v1/trust/news`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn trust_news(&self, news: &Membership) -> Result<(), ClientError> {
        self.post("/v1/trust/news", news, limits::READ_CALL).await
    }
}
