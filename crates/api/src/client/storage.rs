//! The calls about disks that move to other files of the agent's host.

use drover_types::StorageMoveId;

use super::{Client, ClientError};
use crate::limits;
use crate::views::storage::{StorageMoveRequest, StorageMoveView};

impl Client {
    /// `POST /v1/storage-moves`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn move_disk(
        &self,
        request: &StorageMoveRequest,
    ) -> Result<StorageMoveView, ClientError> {
        let within = limits::START_CALL;
        self.post("/v1/storage-moves", request, within).await
    }

    /// `GET /v1/storage-moves`: newest first
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn storage_moves(&self) -> Result<Vec<StorageMoveView>, ClientError> {
        self.get("/v1/storage-moves").await
    }

    /// `GET /v1/storage-moves/{id}`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn storage_move(&self, id: StorageMoveId) -> Result<StorageMoveView, ClientError> {
        self.get(&format!("/v1/storage-moves/{id}")).await
    }

    /// `POST /v1/storage-moves/{id}/cancel`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn cancel_storage_move(
        &self,
        id: StorageMoveId,
    ) -> Result<StorageMoveView, ClientError> {
        let path = format!("/v1/storage-moves/{id}/cancel");
        self.post(&path, &(), limits::READ_CALL).await
    }
}
