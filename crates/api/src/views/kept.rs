//! What was found of a cluster before, as the agent keeps it that was asked.

use drover_tune::facts::{Host, Path};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::paths::PathLeftOut;
use super::plan::MemberLeftOut;

/// What was found when all paths of a cluster were asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeptReport {
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub asked: Timestamp,
    /// The hosts that answered, in the format of the crate `drover-tune`.
    #[schema(value_type = Vec<Object>)]
    pub facts: Vec<Host>,
    /// The paths between them, in the same format.
    #[schema(value_type = Vec<Object>)]
    pub paths: Vec<Path>,
    /// What was not asked of them.
    #[serde(default)]
    pub paths_left_out: Vec<PathLeftOut>,
    /// Members that did not answer.
    #[serde(default)]
    pub left_out: Vec<MemberLeftOut>,
}

/// What an agent has kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeptView {
    /// The newest that is as old as was asked for, or the oldest there is; missing where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<KeptReport>,
    /// Files that would have been nearer, and cannot be used.
    #[serde(default)]
    pub unusable: Vec<KeptUnusable>,
}

/// A file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeptUnusable {
    /// Where it is, on the agent's host.
    pub file: String,
    /// Why.
    pub why: String,
}
