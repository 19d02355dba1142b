//! What is read of hosts to find what costs their migrations.

use drover_tune::facts::Host;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::plan::MemberLeftOut;

/// One host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FactsView {
    /// What was read, and why what was not, in the format of the crate `drover-tune`.
    #[schema(value_type = Object)]
    pub facts: Host,
    /// When it began to read, by its own clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub began: Option<Timestamp>,
    /// When it had read all, by its own clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended: Option<Timestamp>,
}

/// All hosts of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterFactsView {
    /// Those that answered, by their names.
    #[schema(value_type = Vec<Object>)]
    pub facts: Vec<Host>,
    /// Members that did not, and why.
    #[serde(default)]
    pub left_out: Vec<MemberLeftOut>,
}
