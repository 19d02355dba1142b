//! A run: one request of an operator, carried out by the cluster's coordinator.
//!
//! Owns what is asked and shown of runs. What is moved where is a plan's to say, and stands in it.

use drover_plan::plan::Expected;
use drover_plan::{Plan, Request};
use drover_types::{ByteRate, Bytes, HostName, MigrationId, RunId, VmName, in_short};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::limits::RUN_BY_CHARS;

/// Asks for a run. There is one at a time in the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunRequest {
    /// What is wanted: `{"kind": "drain", "hosts": ["a"]}`.
    #[schema(value_type = Object)]
    pub request: Request,
    /// Exactly this plan is carried out, or nothing is. Its request is that of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub plan: Option<Plan>,
    /// Of a host that takes guests again: bring home those that left it when it was drained last. The
    /// coordinator knows them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fail_back: bool,
    /// Who asks, for those who wonder. It is taken from the host's own socket only: who has a certificate is
    /// named by that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

impl RunRequest {
    /// For a plan that the coordinator makes.
    #[must_use]
    pub fn of(request: Request) -> Self {
        Self {
            request,
            plan: None,
            fail_back: false,
            by: None,
        }
    }

    /// What cannot be used of it.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        if self.fail_back && !matches!(self.request, Request::Resume { .. }) {
            return Some("only a host that is resumed can have its guests back".to_owned());
        }
        if self
            .plan
            .as_ref()
            .is_some_and(|plan| plan.request != self.request)
        {
            return Some("the plan is of another request than the run".to_owned());
        }
        let by = self.by.as_deref()?;
        (!Self::is_usable_name(by)).then(|| {
            format!(
                "who asks is 1 to {RUN_BY_CHARS} characters on one line, not {}",
                in_short(by)
            )
        })
    }

    /// Whether that can be said of who asks: not nothing, of bounded length, and on one line.
    #[must_use]
    pub fn is_usable_name(by: &str) -> bool {
        let bounded = (1..=RUN_BY_CHARS).contains(&by.chars().count());
        bounded && !by.chars().any(char::is_control)
    }
}

/// What a cancel does to moves that are under way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RunningMoves {
    /// They are cancelled as long as that can be done; their guests stay.
    #[default]
    Cancel,
    /// They are finished.
    Finish,
}

/// Asks for the end of a run: no further move is begun.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CancelRunRequest {
    /// What happens to moves that are under way.
    pub running: RunningMoves,
    /// Whether hosts that were cordoned for the run take guests again.
    pub uncordon: bool,
    /// Whom it is asked for, where another agent passes it on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// What a run is about at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RunPhase {
    /// Hosts are told to take no guests, or to take them again.
    Cordoning,
    /// A plan is made of what all hosts say now.
    Planning,
    /// Guests that were stopped or suspended when the host was drained run again.
    Starting,
    /// Guests move.
    Moving,
    /// Guests that cannot move are stopped or suspended.
    Stopping,
    /// It is looked where the guests are.
    Verifying,
    /// It was cancelled, and moves that were under way come to their end.
    Cancelling,
    /// It is over; `result` tells how.
    Ended,
    /// A phase of a newer agent.
    #[serde(other)]
    Unknown,
}

impl RunPhase {
    /// Whether nothing more will happen.
    #[must_use]
    pub fn has_ended(self) -> bool {
        self == Self::Ended
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RunResult {
    /// Everything is as wanted.
    Completed,
    /// Some guests are not where they should be.
    Partial,
    /// There was no plan; nothing was moved.
    Refused,
    /// It was cancelled.
    Cancelled,
    /// A result of a newer agent.
    #[serde(other)]
    Unknown,
}

/// How far a move is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MoveState {
    /// It has not begun.
    Waiting,
    /// It was ordered.
    Moving,
    /// Its migration has ended well, and both hosts are asked where the guest is.
    Confirming,
    /// The destination has the guest, and the source has it no more.
    Moved,
    /// It was not moved, or nobody knows: `cause` tells.
    Failed,
    /// It was cancelled while under way; the guest stays.
    Cancelled,
    /// It was planned and not begun: its round ended, or the run was cancelled.
    Dropped,
    /// A state of a newer agent.
    #[serde(other)]
    Unknown,
}

/// How much of a guest has been carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LiveView {
    /// Sent so far, pages sent again included.
    #[schema(value_type = u64)]
    pub transferred: Bytes,
    /// Still to send in this round of copying.
    #[schema(value_type = u64)]
    pub remaining: Bytes,
    /// The guest's memory, devices' included.
    #[schema(value_type = u64)]
    pub total: Bytes,
    /// Payload per second, lately.
    #[schema(value_type = u64)]
    pub rate: ByteRate,
}

/// One move of one guest in a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MoveView {
    /// Its number in the run, from 1.
    pub number: u32,
    /// The round of planning that it belongs to, from 1.
    pub round: u32,
    /// The wave of its round, from 1; it begins when the one before it has ended.
    pub wave: u32,
    /// The guest.
    #[schema(value_type = String)]
    pub vm: VmName,
    /// The host that it leaves.
    #[schema(value_type = String)]
    pub from: HostName,
    /// The host that it goes to.
    #[schema(value_type = String)]
    pub to: HostName,
    /// How far it is.
    pub state: MoveState,
    /// Which try of its guest in this run it is, from 1.
    pub attempt: u32,
    /// Its migration, once it was ordered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "uuid")]
    pub migration: Option<MigrationId>,
    /// The guest's memory, as planned.
    #[schema(value_type = u64)]
    pub memory: Bytes,
    /// Disks that only its host has are copied with it; what they leave there is stale once it has moved.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub with_disks: bool,
    /// When it was ordered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    /// Why it ended otherwise than wanted, or what an operator should know of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// How much was carried, while it moves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<LiveView>,
}

/// A guest that a run leaves where it is, or stops.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeftView {
    /// The guest.
    #[schema(value_type = String)]
    pub vm: VmName,
    /// Where it is.
    #[schema(value_type = String)]
    pub host: HostName,
    /// Why, in words.
    pub why: String,
    /// What becomes of it, in words that follow its name.
    pub then: String,
}

/// How far a guest is that a run stops or suspends, or runs again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ParkedState {
    /// Its host is being told to shut it down.
    Stopping,
    /// It was shut down, and is started again when its host is resumed.
    Stopped,
    /// Its state is being saved.
    Suspending,
    /// It was suspended, and goes on when its host is resumed.
    Suspended,
    /// It was left as it was: `cause` tells why.
    Kept,
    /// The run was cancelled before it was touched.
    Cancelled,
    /// Nobody knows: `cause` tells what to look at.
    InDoubt,
    /// It was parked by an earlier run, and waits to run again.
    Waiting,
    /// It is being started again.
    Starting,
    /// It runs again.
    Started,
    /// It does not run again: `cause` tells why.
    NotStarted,
    /// There was nothing to be done: somebody has started, stopped or moved it meanwhile.
    Settled,
    /// A state of a newer agent.
    #[serde(other)]
    Unknown,
}

/// A guest that a run stops or suspends because it cannot move, or runs again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ParkedView {
    /// The guest.
    #[schema(value_type = String)]
    pub vm: VmName,
    /// Its host.
    #[schema(value_type = String)]
    pub host: HostName,
    /// How far it is.
    pub state: ParkedState,
    /// Why it cannot move; none of one that runs again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Why it is not as wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// When it was ordered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Timestamp>,
    /// When that was over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
}

/// A run, as the coordinator knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunView {
    /// Its id.
    #[schema(value_type = String, format = "uuid")]
    pub id: RunId,
    /// What is wanted.
    #[schema(value_type = Object)]
    pub request: Request,
    /// Who asked.
    pub by: String,
    /// The host whose agent carries it out.
    #[schema(value_type = String)]
    pub coordinator: HostName,
    /// What it is about at the moment.
    pub phase: RunPhase,
    /// How it ended, once it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<RunResult>,
    /// Why it did not end as wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// What to do now, when there is something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// When it was asked for.
    #[schema(value_type = String, format = DateTime)]
    pub began_at: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    /// The round of planning and moving, from 1; 0 before the first one.
    #[serde(default)]
    pub round: u32,
    /// All moves so far, in the order of their numbers.
    #[serde(default)]
    pub moves: Vec<MoveView>,
    /// Guests that the last round leaves where they are, or is about to stop.
    #[serde(default)]
    pub left: Vec<LeftView>,
    /// Guests that were stopped or suspended, or run again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parked: Vec<ParkedView>,
    /// Hosts that take no guests because of it.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    pub cordoned: Vec<HostName>,
    /// What was assumed or left out, and what else an operator should see.
    #[serde(default)]
    pub notes: Vec<String>,
    /// What the first round's plan expects to take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub expected: Option<Expected>,
    /// The first round's plan with its reasons, where one run is asked for and the coordinator still has
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub plan: Option<Plan>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn request(value: Value) -> RunRequest {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_request_says_only_what_differs_from_the_default() {
        let drain = json!({"request": {"kind": "drain", "hosts": ["a"]}});
        let read = request(drain.clone());
        assert_eq!(read, RunRequest::of(read.request.clone()));
        assert_eq!(serde_json::to_value(&read).unwrap(), drain);
        assert_eq!(read.problem(), None);
        let cancel: CancelRunRequest = serde_json::from_value(json!({})).unwrap();
        assert_eq!(cancel, CancelRunRequest::default());
        assert_eq!(cancel.running, RunningMoves::Cancel);
    }

    #[test]
    fn requests_that_contradict_themselves_are_refused_in_words() {
        let drain = json!({"kind": "drain", "hosts": ["a"]});
        let problem = |more: Value| {
            let mut value = json!({"request": drain});
            for (key, new) in more.as_object().unwrap() {
                value[key] = new.clone();
            }
            request(value).problem().unwrap_or_default()
        };
        assert_eq!(problem(json!({"by": "eve"})), "");
        assert!(problem(json!({"fail_back": true})).contains("resumed"));
        for bad in ["", "eve\nroot", &"x".repeat(RUN_BY_CHARS + 1)] {
            assert!(problem(json!({"by": bad})).contains("one line"), "{bad:?}");
        }
        let resume = json!({"kind": "resume", "host": "a", "homes": []});
        let home = request(json!({"request": resume, "fail_back": true}));
        assert_eq!(home.problem(), None);
    }

    #[test]
    fn a_run_of_a_newer_agent_is_read_with_its_words_as_unknown() {
        let view: RunView = serde_json::from_value(json!({
            "id": "01938f2e-7b1c-7000-8000-2f8e9d3c4b5a",
            "request": {"kind": "drain", "hosts": ["a"]}, "by": "root", "coordinator": "a",
            "phase": "pondering", "result": "so-so", "began_at": "2026-11-22T16:00:00Z", "weather": "fine",
            "moves": [{"number": 1, "round": 1, "wave": 1, "vm": "web", "from": "a", "to": "b",
                       "state": "flying", "attempt": 1, "memory": 1024}],
        }))
        .unwrap();
        assert_eq!(view.phase, RunPhase::Unknown);
        assert_eq!(view.result, Some(RunResult::Unknown));
        assert_eq!(view.moves[0].state, MoveState::Unknown);
        assert!(!view.phase.has_ended());
    }
}
