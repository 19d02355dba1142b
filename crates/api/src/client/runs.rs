//! The calls about runs, of the agent that carries them out.

use drover_types::RunId;

use super::{Client, ClientError};
use crate::limits;
use crate::views::run::{CancelRunRequest, RunRequest, RunView};

impl Client {
    /// `POST /v1/runs`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn start_run(&self, request: &RunRequest) -> Result<RunView, ClientError> {
        self.post("/v1/runs", request, limits::PLAN_CALL).await
    }

    /// `GET /v1/runs`: newest first
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn runs(&self) -> Result<Vec<RunView>, ClientError> {
        self.get("/v1/runs").await
    }

    /// `GET /v1/runs?newest=1`: none where there was none
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn newest_run(&self) -> Result<Option<RunView>, ClientError> {
        let runs: Vec<RunView> = self.get("/v1/runs?newest=1").await?;
        Ok(runs.into_iter().next())
    }

    /// `GET /v1/runs/{id}`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn run(&self, id: RunId) -> Result<RunView, ClientError> {
        self.get(&format!("/v1/runs/{id}")).await
    }

    /// `POST /v1/runs/{id}/cancel`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn cancel_run(
        &self,
        id: RunId,
        how: &CancelRunRequest,
    ) -> Result<RunView, ClientError> {
        let path = format!("/v1/runs/{id}/cancel");
        self.post(&path, how, limits::READ_CALL).await
    }
}
