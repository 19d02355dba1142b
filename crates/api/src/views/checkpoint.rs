//! Checkpoints: pages that a host keeps of guests that left it.

use drover_types::{Bytes, VmName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a host keeps of guests that left it, for their return.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckpointsView {
    /// Bytes that all may take (`checkpoints.size`); none are kept where that is zero.
    #[schema(value_type = u64)]
    pub size: Bytes,
    /// Bytes that they take, with what guests that are leaving may need.
    #[schema(value_type = u64)]
    pub taken: Bytes,
    /// Those that are kept.
    pub checkpoints: Vec<CheckpointView>,
}

/// What is kept of one guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckpointView {
    /// The guest.
    #[schema(value_type = String)]
    pub vm: VmName,
    /// Bytes that it takes on the disk.
    #[schema(value_type = u64)]
    pub bytes: Bytes,
    /// When the guest had left.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// When it is removed.
    #[schema(value_type = String, format = DateTime)]
    pub until: Timestamp,
}
