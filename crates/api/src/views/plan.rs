//! What plans are made from, and plans.

use drover_plan::inventory::{Host, Vm};
use drover_plan::{Digest, Inventory, Plan, Request, Text};
use drover_types::HostName;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::domain::DomainView;

/// What a host and its guests are for a plan. The shapes of both are those of the inventory in the crate
/// `drover-plan`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InventoryView {
    /// The host.
    #[schema(value_type = Object)]
    pub host: Host,
    /// Every guest that is defined, runs or arrives here.
    #[schema(value_type = Vec<Object>)]
    pub vms: Vec<Vm>,
    /// Which of these are domains of libvirt's in memory, and what they need.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<DomainView>,
    /// What was assumed, or left out, and why.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    pub notes: Vec<Text>,
    /// SHA-256 of its `[policy]`, in hexadecimal digits; that of the host that plans counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub policy: Option<Digest>,
}

/// What plans of the whole cluster are made from: every host and every guest, as each member told it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterInventoryView {
    /// Hosts and guests.
    #[schema(value_type = Object)]
    pub inventory: Inventory,
    /// Members that have not told what is so now, and why.
    #[serde(default)]
    pub left_out: Vec<MemberLeftOut>,
    /// What was assumed.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// A member that has not told what is so now. One that was heard of before is in the inventory as it was then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemberLeftOut {
    /// Its name.
    #[schema(value_type = String)]
    pub host: HostName,
    /// Why.
    pub why: String,
}

/// Asks for a plan of the whole cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanRequest {
    /// What the plan is wanted for: `{"kind": "drain", "hosts": ["a"]}`.
    #[schema(value_type = Object)]
    pub request: Request,
}

/// A plan. Nothing was changed; a run carries it out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlanView {
    /// The plan, in the format of the crate `drover-plan`.
    #[schema(value_type = Object)]
    pub plan: Plan,
    /// What the inventory that it was made from assumes or lacks.
    #[serde(default)]
    pub notes: Vec<String>,
}
