//! What is not known of a hand-off whose other host does not answer, and an operator's decision in
//! its place.

use drover_types::VmName;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What an operator decides in the place of a host that does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Resolution {
    /// On the destination: the guest that has arrived runs there.
    RunHere,
    /// On the destination: the guest that has arrived is given up there.
    Discard,
    /// On the source: the guest that was handed off is given up; it can be started there anew.
    GiveUp,
    /// Of a newer agent.
    #[serde(other)]
    Unknown,
}

impl Resolution {
    /// The word in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RunHere => "run-here",
            Self::Discard => "discard",
            Self::GiveUp => "give-up",
            Self::Unknown => "unknown",
        }
    }
}

/// An operator's decision, with what the operator answers for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResolveRequest {
    /// The decision.
    pub resolution: Resolution,
    /// The other host is off for good, or certainly does not run the guest and will not. Needed for
    /// `run-here` and `give-up`.
    #[serde(default)]
    pub other_host_is_off: bool,
    /// What the guest had in memory may be lost. Needed for `discard`.
    #[serde(default)]
    pub memory_is_lost: bool,
}

/// The other host does not answer, and only it knows whose the guest is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AmbiguityView {
    /// Since when it does not answer.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// When it answered last, as far as this agent's life goes back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub heard_at: Option<Timestamp>,
    /// What the last question ended with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<String>,
    /// What is not known.
    pub unknown: String,
    /// Commands for this host that resolve it, each with what it takes to be safe in its name.
    pub commands: Vec<String>,
}

/// How far the other host has heard of an operator's decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Told {
    /// Not yet: it is told again and again.
    Pending,
    /// It has let go of the guest, or never had anything of it.
    Confirmed,
    /// It has a process of the guest as well, or an operator decided otherwise there: a person has
    /// to see to it. It is told again and again.
    Conflict,
    /// A state of a newer agent.
    #[serde(other)]
    Unknown,
}

/// An operator's decision in the other host's place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResolutionView {
    /// The decision.
    pub resolution: Resolution,
    /// When it was on this host's disk.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// How far the other host has heard of it.
    pub told: Told,
    /// What the last attempt to tell it ended with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<String>,
}

/// The other host's agent says what an operator decided there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResolvedRequest {
    /// The decision: the guest is the other host's by it.
    pub resolution: Resolution,
    /// The guest, for a host that does not know the migration any more.
    #[schema(value_type = String)]
    pub vm: VmName,
}

/// What this host makes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ResolvedState {
    /// Nothing of the guest can be started here any more.
    LetGo,
    /// It is still being found out what there is: ask again.
    Deciding,
    /// There is a process of the guest here.
    BothHave,
    /// An operator decided here as well, for this host.
    BothDecided,
    /// A state of a newer agent.
    #[serde(other)]
    Unknown,
}

/// The answer to the other host's word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResolvedView {
    /// What this host makes of it.
    pub state: ResolvedState,
    /// The same in words.
    pub message: String,
}
