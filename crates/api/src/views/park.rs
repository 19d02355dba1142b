//! Guests that are parked: stopped or suspended by a run because they cannot move, until their host is resumed.

use drover_types::{ParkId, VmName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How a guest is parked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ParkHow {
    /// It is shut down with its power button, and started again.
    Stop,
    /// Its state is saved to its host's disk, and it goes on from there.
    Suspend,
}

/// Asks for a guest to be parked, or how far that is: asked again with the same id, nothing is begun twice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ParkRequest {
    /// The order.
    #[schema(value_type = String, format = "uuid")]
    pub id: ParkId,
    /// How. The guest's policy has to want the same.
    pub how: ParkHow,
    /// Whether it begins if the agent has not heard of it. If not, an order that is not known never will.
    pub begin: bool,
}

/// Asks for a guest that was parked to run again, or how far that is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UnparkRequest {
    /// The order that parked it.
    #[schema(value_type = String, format = "uuid")]
    pub id: ParkId,
    /// This order to run it: one that was called back never begins.
    #[schema(value_type = String, format = "uuid")]
    pub start: ParkId,
    /// Whether it begins if it has not begun. If not, it never will.
    pub begin: bool,
}

/// How far an order to park a guest is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ParkPhase {
    /// It is being carried out.
    Parking,
    /// The guest is parked.
    Parked,
    /// The guest was left as it was; `cause` tells why.
    Kept,
    /// It was called back before it was heard, and never begins.
    CalledBack,
    /// The guest is being started again.
    Unparking,
    /// The guest runs again.
    Running,
    /// The guest could not be started again, and is parked still; `cause` tells why.
    NotStarted,
    /// There is nothing to be started again; `cause` tells why.
    Settled,
    /// A phase of a newer agent.
    #[serde(other)]
    Unknown,
}

/// An order to park a guest, as its agent knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ParkView {
    /// The order.
    #[schema(value_type = String, format = "uuid")]
    pub id: ParkId,
    /// The guest.
    #[schema(value_type = String)]
    pub vm: VmName,
    /// How far it is.
    pub phase: ParkPhase,
    /// Why it is not as wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Since when the agent knows that.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
}
