//! Changes to a host: what would be done, what is done, and what was.

use drover_types::ChangeId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Asks what would be changed on a host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangePlanRequest {
    /// Also what may take a link away for some seconds.
    #[serde(default)]
    pub bounce: bool,
    /// Also what makes it last beyond a restart, in the plan, so that it can be carried out with `persist`.
    #[serde(default)]
    pub lasting: bool,
}

/// What would be changed on a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangePlanView {
    /// The plan as a file for people, which is what `POST /v1/changes` takes; none where nothing would be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// How many changes it has.
    pub changes: usize,
    /// How many settings they set.
    pub steps: usize,
    /// What was found and is not in it.
    pub left_out: Vec<ChangeLeftOut>,
    /// What makes it last beyond a restart, if that was asked for, through whoever sets it when the host comes up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lasting: Vec<ChangeLastingView>,
    /// Settings that nobody keeps over a restart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_kept: Vec<ChangeNotKept>,
}

/// What is to be done in one place, that settings last beyond a restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangeLastingView {
    /// Who sets them when the host comes up, such as `NetworkManager`.
    pub by: String,
    /// What is to be done with the lines.
    pub how: ChangeLastingHow,
    /// The file that they belong in; none for commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The part of that file, such as `[Link]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// Lines of the file, or commands for a shell.
    pub lines: Vec<String>,
    /// Why people have to do it; of what an agent does where a plan is carried out with `persist`, and of what is there already, none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_hand: Option<String>,
}

/// What is to be done with lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeLastingHow {
    /// They are a file that is to be there.
    File,
    /// A file of somebody's is to have them, in place of others about the same.
    Lines,
    /// They are commands.
    Commands,
    /// A way of a newer agent that this one does not know.
    #[serde(other)]
    Unknown,
}

/// A setting that nobody keeps over a restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangeNotKept {
    /// The command that sets it until then.
    pub step: String,
    /// Why not.
    pub why: String,
}

/// A finding that a plan does nothing about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangeLeftOut {
    /// The rule that found it.
    pub rule: String,
    /// The interface that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nic: Option<String>,
    /// Why it is not.
    pub why: String,
}

/// Asks that a plan is carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeRequest {
    /// The plan's text.
    pub plan: String,
    /// Also where a link may go for some seconds and the host is not drained.
    #[serde(default)]
    pub force: bool,
    /// Also what the plan says that makes it last beyond a restart.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub persist: bool,
}

/// Asks that what was changed is taken back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UndoRequest {
    /// Also where a link may go for some seconds and the host is not drained.
    #[serde(default)]
    pub force: bool,
}

/// What of a link is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LinkSetting {
    /// Its rate, or `auto`.
    Speed,
    /// How errors are corrected: `auto`, `off`, `rs`, `baser` or `llrs`.
    Fec,
}

/// Asks that a link is set, which goes for some seconds by that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkRequest {
    /// The interface.
    pub nic: String,
    /// What is set.
    pub setting: LinkSetting,
    /// To what, such as `10G`.
    pub to: String,
    /// Also on a host that is not drained.
    #[serde(default)]
    pub force: bool,
}

/// A link that is being set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LinkView {
    /// The change that does it.
    pub change: ChangeView,
    /// What may keep the link from coming up.
    pub warnings: Vec<String>,
}

/// Where a change is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeState {
    /// It is carried out.
    Applying,
    /// All is set, and it is tried whether other hosts reach this one as before.
    Proving,
    /// What was done is taken back by itself.
    RollingBack,
    /// What was done is taken back as somebody wanted.
    Undoing,
    /// The host was restarted meanwhile: it is looked at what is there.
    Recovering,
    /// Nothing was done.
    Refused,
    /// All is set.
    Applied,
    /// All was taken back by itself.
    RolledBack,
    /// All was taken back as somebody wanted.
    Undone,
    /// The host was restarted, and what was set is gone with that.
    GoneWithRestart,
    /// Some settings are neither as they were nor as they were to be, and were left alone; or not all who read files know that these are as
    /// before.
    InDoubt,
    /// What was written down of it cannot be read.
    Unreadable,
    /// A state of a newer agent that this one does not know.
    #[serde(other)]
    Unknown,
}

impl ChangeState {
    /// Whether nothing is done any more, unless somebody wants it.
    #[must_use]
    pub fn has_ended(self) -> bool {
        !matches!(
            self,
            Self::Applying | Self::Proving | Self::RollingBack | Self::Undoing | Self::Recovering
        )
    }
}

/// One plan that was carried out on a host, or is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangeView {
    /// Its id.
    #[schema(value_type = String)]
    pub id: ChangeId,
    /// Where it is.
    pub state: ChangeState,
    /// When the first step was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub began: Option<Timestamp>,
    /// When it ended last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended: Option<Timestamp>,
    /// The rules that wanted it.
    pub rules: Vec<String>,
    /// How many settings it sets.
    pub steps: usize,
    /// How many of them may be set now.
    pub set: usize,
    /// How many files it writes, so that what it sets lasts beyond a restart.
    #[serde(default)]
    pub files: usize,
    /// Paths to other hosts that worked before, and have to afterwards.
    pub paths: usize,
    /// Those of them by which the other host's agent opened a connection to this one before, and has to afterwards.
    #[serde(default)]
    pub opened: usize,
    /// Paths that migrations take of which it is known how large packets crossed before: as large ones have to afterwards.
    #[serde(default)]
    pub sizes: usize,
    /// Why it did not come to its end, or was taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Whether something of it is there that can be taken back.
    pub can_be_undone: bool,
}

/// A change that is forgotten.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ForgottenView {
    /// How it was.
    #[serde(flatten)]
    pub change: ChangeView,
    /// Older ones that could be undone after this one, and cannot be as long as what both have set stays as this one has set it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub holds_up: Vec<ChangeId>,
}

/// One plan with all that it sets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangeDetailView {
    /// Where it is.
    pub change: ChangeView,
    /// What it sets, in the order in which it is set.
    pub steps: Vec<ChangeStepView>,
    /// Of which paths it is not known that the other host opens a connection by them, or it did not before, and why: nothing of that is proved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_opened: Vec<String>,
    /// Of which paths it is not known how large packets crossed before, and why: nothing of that is proved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_measured: Vec<String>,
    /// Files that it writes after that, so that it lasts beyond a restart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<ChangeFileView>,
    /// What people have to do that it lasts, where it was to: none of it was done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_hand: Vec<ChangeLastingView>,
    /// Settings that nobody keeps over a restart, where they were to last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_kept: Vec<ChangeNotKept>,
}

/// One file of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangeFileView {
    /// Who reads it when the host comes up, such as `sysctl.d`.
    pub by: String,
    /// Its path.
    pub file: String,
    /// Lines that go.
    pub goes: Vec<String>,
    /// Lines that come.
    pub comes: Vec<String>,
    /// What became of it.
    pub state: ChangeStepState,
    /// In which way it is another one, if it was left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
}

/// What became of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeStepState {
    /// It was not done.
    NotDone,
    /// It was done; of a change that has not ended, or whose process died: it may have been.
    Done,
    /// It is as it was before.
    TakenBack,
    /// It was left alone: something else is there.
    Left,
    /// A state of a newer agent that this one does not know.
    #[serde(other)]
    Unknown,
}

/// One setting of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangeStepView {
    /// What is set, such as `net.ipv4.tcp_rmem`.
    pub setting: String,
    /// What was there.
    pub from: String,
    /// What was to be there.
    pub to: String,
    /// What became of it.
    pub state: ChangeStepState,
    /// What is there instead, of one that was left alone; of one that was passed by, as it is the kernel's own to set, why it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_of_a_newer_agent_is_read_and_counts_as_an_end() {
        let state: ChangeState = serde_json::from_str("\"moonlit\"").unwrap();
        assert_eq!(state, ChangeState::Unknown);
        assert!(state.has_ended());
        assert_eq!(
            serde_json::to_string(&ChangeState::GoneWithRestart).unwrap(),
            "\"gone-with-restart\""
        );
    }
}
