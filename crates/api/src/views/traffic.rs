//! What a session's lanes, paths and NICs carry, as one of its ends sees it.

use drover_types::{ByteRate, Bytes, Path};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::data_path::PlacementView;
use crate::schema::PathSchema;

/// What one connection does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LaneState {
    /// Being opened.
    Connecting,
    /// Carries chunks.
    Up,
    /// Its peer has been silent for longer than usual: it gets nothing more for now.
    Suspect,
    /// Ended as planned.
    Ended,
    /// Lost; `ended_reason` tells how.
    Lost,
    /// A state of a newer agent.
    #[serde(other)]
    Unknown,
}

/// What the kernel knows of a connection (`TCP_INFO`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TcpView {
    /// Smoothed round trip of a segment, in microseconds.
    pub round_trip_us: u64,
    /// Segments sent again so far.
    pub retransmits: u32,
    /// What the peer acknowledged per second, most recently.
    #[schema(value_type = u64)]
    pub delivery_rate: ByteRate,
    /// Segments that may be on their way.
    pub congestion_window: u32,
    /// Largest segment that is sent, in bytes.
    pub segment_bytes: u32,
}

/// One connection on a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LaneView {
    /// Its number within the session.
    pub id: u32,
    /// What it does.
    pub state: LaneState,
    /// What it carried.
    #[serde(flatten)]
    pub traffic: TrafficView,
    /// Smoothed time from handing a frame to it to the peer's receipt, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_us: Option<u64>,
    /// What it carries per second while it has something to carry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub busy_rate: Option<ByteRate>,
    /// Payload on its way on it.
    #[serde(default)]
    #[schema(value_type = u64)]
    pub in_flight_bytes: Bytes,
    /// Payload that may be on its way on it.
    #[serde(default)]
    #[schema(value_type = u64)]
    pub credit_bytes: Bytes,
    /// How often it was silent for longer than usual.
    #[serde(default)]
    pub suspicions: u32,
    /// What the kernel knows of its connection, while it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpView>,
    /// Why it is not up: suspected, lost, or retired in the middle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_reason: Option<String>,
}

/// What was carried, counted apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TrafficView {
    /// Payload sent for the first time.
    #[schema(value_type = u64)]
    pub sent_bytes: Bytes,
    /// Payload sent again.
    #[schema(value_type = u64)]
    pub resent_bytes: Bytes,
    /// Frames' headers, checkpoints and the like, sent.
    #[schema(value_type = u64)]
    pub protocol_bytes: Bytes,
    /// Payload received, what came twice included.
    #[schema(value_type = u64)]
    pub received_bytes: Bytes,
    /// Payload sent or received per second, lately.
    #[schema(value_type = u64)]
    pub rate: ByteRate,
}

impl TrafficView {
    /// What these lanes carried together.
    #[must_use]
    pub fn of(lanes: &[LaneView]) -> Self {
        lanes.iter().map(|lane| lane.traffic).sum()
    }

    /// What was carried since `before`; the rate stays.
    #[must_use]
    pub fn beyond(&self, before: &Self) -> Self {
        let more = |now: Bytes, before: Bytes| Bytes(now.0.saturating_sub(before.0));
        Self {
            sent_bytes: more(self.sent_bytes, before.sent_bytes),
            resent_bytes: more(self.resent_bytes, before.resent_bytes),
            protocol_bytes: more(self.protocol_bytes, before.protocol_bytes),
            received_bytes: more(self.received_bytes, before.received_bytes),
            rate: self.rate,
        }
    }
}

impl std::iter::Sum for TrafficView {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), |sum, part| Self {
            sent_bytes: Bytes(sum.sent_bytes.0 + part.sent_bytes.0),
            resent_bytes: Bytes(sum.resent_bytes.0 + part.resent_bytes.0),
            protocol_bytes: Bytes(sum.protocol_bytes.0 + part.protocol_bytes.0),
            received_bytes: Bytes(sum.received_bytes.0 + part.received_bytes.0),
            rate: ByteRate(sum.rate.0 + part.rate.0),
        })
    }
}

/// What one channel of QEMU carried; channel 0 is its main one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChannelView {
    /// Its number, in the order in which QEMU opened them.
    pub id: u16,
    /// Bytes read from this host's QEMU.
    #[schema(value_type = u64)]
    pub read_bytes: Bytes,
    /// Of these, bytes that the other host's QEMU took.
    #[schema(value_type = u64)]
    pub confirmed_bytes: Bytes,
    /// Bytes written to this host's QEMU.
    #[schema(value_type = u64)]
    pub written_bytes: Bytes,
    /// Bytes given to a lane again because the one before was lost or late.
    #[serde(default)]
    #[schema(value_type = u64)]
    pub resent_bytes: Bytes,
}

/// What one interface of this host carried of a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NicView {
    /// The interface.
    pub interface: String,
    /// Over all paths that begin or end there.
    pub traffic: TrafficView,
    /// Lanes that carry.
    #[serde(default)]
    pub lanes_up: u32,
    /// The longest of their round trips, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_us: Option<u64>,
    /// Payload that may be on its way on them.
    #[serde(default)]
    #[schema(value_type = u64)]
    pub credit_bytes: Bytes,
    /// Segments that TCP sent again, also on lanes that are gone, since this agent was started.
    #[serde(default)]
    pub retransmits: u64,
    /// Where the threads of its lanes run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<PlacementView>,
}

/// What a path does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PathState {
    /// It has lanes.
    Up,
    /// It has none, and is dialled.
    Dialling,
    /// This host's interface is down, gone, or without its address.
    NoLink,
    /// Nothing but small packets get through: it is tried rarely.
    GivenUp,
    /// A state of a newer agent.
    #[serde(other)]
    Unknown,
}

/// A path with its lanes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PathView {
    /// The pair of interfaces.
    #[schema(value_type = PathSchema)]
    pub path: Path,
    /// The connections on it; of those that are gone the last ones only.
    pub lanes: Vec<LaneView>,
    /// What it does, as the source, which dials it, knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<PathState>,
    /// What all its connections carried together, those that are gone included.
    #[serde(default)]
    pub traffic: TrafficView,
    /// How often one of them was silent for longer than usual.
    #[serde(default)]
    pub suspicions: u64,
    /// Segments that TCP sent again on them, since this agent was started.
    #[serde(default)]
    pub retransmits: u64,
    /// The most payload that the source sends on it now, in bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub limit: Option<ByteRate>,
    /// Why it is not up, or not used in full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Attempts to open lanes since it was last up.
    #[serde(default)]
    pub attempts: u32,
    /// Segment size in bytes in place of the interface's, where large packets vanish.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment_bytes: Option<u16>,
    /// Where the threads of its lanes run on this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<PlacementView>,
}
