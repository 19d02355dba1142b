//! One attempt to move one guest, as one of its two agents sees it.

use drover_types::{ByteRate, Bytes, HostName, MigrationId, Path, VmName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::schema::PathSchema;

/// What to move where, and how. Options that are missing come from the agent's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MigrateRequest {
    /// The destination, a configured peer.
    #[schema(value_type = String)]
    pub to: HostName,
    /// The longest stop of the guest to aim at, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 2_000_000)]
    pub downtime_limit_ms: Option<u64>,
    /// QEMU's channels, 1 to 16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 16)]
    pub channels: Option<u8>,
    /// Connections on each path, 1 to 16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 16)]
    pub lanes_per_path: Option<u8>,
}

/// Which end of a migration an agent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MigrationRole {
    /// The guest leaves this host.
    Source,
    /// The guest arrives on this host.
    Destination,
}

/// How far a migration is. The first seven are the source's, the next four the destination's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MigrationPhase {
    /// Source: asking the destination, choosing paths.
    Preparing,
    /// Source: opening the lanes.
    Connecting,
    /// Source: memory is copied while the guest runs.
    Transferring,
    /// Source: all is copied; the destination is told to run the guest. It never runs here again.
    HandingOff,
    /// Source: the guest runs on the destination.
    Completed,
    /// Told to stop, or failed, and undoing it; on either side.
    Cancelling,
    /// Source: stopped as asked; the guest runs here.
    Cancelled,
    /// Destination: QEMU waits for the lanes.
    Prepared,
    /// Destination: memory arrives.
    Receiving,
    /// Destination: complete, waiting for the source's verdict.
    Arrived,
    /// Destination: the guest runs here.
    Running,
    /// Destination: given up; nothing of it is left here.
    Abandoned,
    /// Ended by a fault; `cause` tells which. The guest runs on the source.
    Failed,
    /// A phase of a newer agent.
    #[serde(other)]
    Unknown,
}

impl MigrationPhase {
    /// Whether nothing more will happen.
    #[must_use]
    pub fn has_ended(self) -> bool {
        matches!(
            self,
            Self::Completed | Self::Cancelled | Self::Failed | Self::Running | Self::Abandoned
        )
    }
}

/// How much of the guest was moved, as QEMU counts it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BytesView {
    /// The guest's memory, devices' included.
    #[schema(value_type = u64)]
    pub total: Bytes,
    /// Sent so far, pages sent again included.
    #[schema(value_type = u64)]
    pub transferred: Bytes,
    /// Still to send in this round.
    #[schema(value_type = u64)]
    pub remaining: Bytes,
}

/// What one connection does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LaneState {
    /// Being opened.
    Connecting,
    /// Carries chunks.
    Up,
    /// Ended as planned.
    Ended,
    /// Lost; `ended_reason` tells how.
    Lost,
    /// A state of a newer agent.
    #[serde(other)]
    Unknown,
}

/// One connection on a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LaneView {
    /// Its number within the session.
    pub id: u16,
    /// What it does.
    pub state: LaneState,
    /// Payload sent for the first time.
    #[schema(value_type = u64)]
    pub sent_bytes: Bytes,
    /// Payload sent again.
    #[schema(value_type = u64)]
    pub resent_bytes: Bytes,
    /// Frames' headers, checkpoints and the like.
    #[schema(value_type = u64)]
    pub protocol_bytes: Bytes,
    /// Payload received.
    #[schema(value_type = u64)]
    pub received_bytes: Bytes,
    /// Payload sent or received per second, lately.
    #[schema(value_type = u64)]
    pub rate: ByteRate,
    /// Why it is no longer up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_reason: Option<String>,
}

/// A path with its lanes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PathView {
    /// The pair of interfaces.
    #[schema(value_type = PathSchema)]
    pub path: Path,
    /// The connections on it.
    pub lanes: Vec<LaneView>,
}

/// An interface or address that could have been used and is not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeftOut {
    /// Which.
    pub what: String,
    /// Why.
    pub reason: String,
}

/// One migration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MigrationView {
    /// Its id, the same on both hosts.
    #[schema(value_type = String, format = "uuid")]
    pub id: MigrationId,
    /// The guest.
    #[schema(value_type = String)]
    pub vm: VmName,
    /// The host that it leaves.
    #[schema(value_type = String)]
    pub source: HostName,
    /// The host that it goes to.
    #[schema(value_type = String)]
    pub destination: HostName,
    /// Which end this agent is.
    pub role: MigrationRole,
    /// How far it is.
    pub phase: MigrationPhase,
    /// Why it failed or was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// What to do now, when there is something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// When it was asked for.
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    /// From the request until QEMU was told to migrate, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare_ms: Option<u64>,
    /// From telling QEMU to migrate until the guest ran on the destination, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_ms: Option<u64>,
    /// From the guest's stop on the source until it ran on the destination, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub downtime_ms: Option<u64>,
    /// How much was moved.
    pub bytes: BytesView,
    /// Memory that the guest rewrites, in bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub dirty_rate: Option<ByteRate>,
    /// The round of copying, from 1.
    pub round: u64,
    /// Payload over all lanes, in bytes per second, lately.
    #[schema(value_type = u64)]
    pub rate: ByteRate,
    /// An estimate of the time until the guest runs on the destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_left_ms: Option<u64>,
    /// QEMU's channels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channels: Option<u8>,
    /// Size of a chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub chunk_bytes: Option<Bytes>,
    /// What may be under way and not yet confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub window_bytes: Option<Bytes>,
    /// The paths in use.
    pub paths: Vec<PathView>,
    /// What is not used, and why.
    pub left_out: Vec<LeftOut>,
    /// Fallbacks and choices, and why.
    pub notes: Vec<String>,
    /// Payload rate between 5 % and 95 % of the bytes, in bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub bulk_goodput: Option<ByteRate>,
}
