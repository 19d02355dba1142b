//! Checkpoints: pages that a host keeps of guests that left it; and baselines, of those that arrived.

use std::fmt;

use drover_types::{Bytes, VmName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a host keeps of guests that left it, for their return, and of those that arrived from a host that keeps theirs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckpointsView {
    /// Bytes that all may take (`checkpoints.size`); none are kept where that is zero.
    #[schema(value_type = u64)]
    pub size: Bytes,
    /// Bytes that they take, with what guests that are leaving may need, and with removed ones until their room is given back, but for
    /// what a relay that ends still has open.
    #[schema(value_type = u64)]
    pub taken: Bytes,
    /// Those that are kept.
    pub checkpoints: Vec<CheckpointView>,
    /// Why none are added or used for now: their directory is not there. Those that it had are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub away: Option<String>,
}

/// What pages are kept for.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum CheckpointKind {
    /// The guest left: when it comes back, it finds them.
    #[default]
    Checkpoint,
    /// The guest arrived: when it goes back, only what changed of them crosses.
    Baseline,
}

impl fmt::Display for CheckpointKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Checkpoint => "checkpoint",
            Self::Baseline => "baseline",
        })
    }
}

/// What is kept of one guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckpointView {
    /// The guest.
    #[schema(value_type = String)]
    pub vm: VmName,
    /// What for.
    #[serde(default)]
    pub kind: CheckpointKind,
    /// Bytes that it takes on the disk.
    #[schema(value_type = u64)]
    pub bytes: Bytes,
    /// Pages that crossed and were not kept, for want of room or time, with those that waited behind the guest: they cross again.
    #[serde(default)]
    pub left_out: u64,
    /// When the guest had left, or arrived.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// When it is removed.
    #[schema(value_type = String, format = DateTime)]
    pub until: Timestamp,
}
