//! An operator's decision in the place of a host that does not answer: what is shown of the doubt,
//! and how the decision reaches the migration's task.

use drover_api::{
    AmbiguityView, ErrorCode, MigrationPhase, MigrationRole, MigrationView, Refusal,
    Resolution as Shown, ResolutionView, ResolveRequest, Told,
};
use drover_migrate::{Ambiguity, Refused, Resolution, Resolving, Time};
use drover_types::MigrationId;
use jiff::Timestamp;
use tokio::sync::{oneshot, watch};

use super::snapshot::Snapshot;
use super::{Known, Migrations, domains, ended, incoming, outgoing};
use crate::limits;

/// The API's word.
pub fn to_api(resolution: Resolution) -> Shown {
    match resolution {
        Resolution::RunHere => Shown::RunHere,
        Resolution::Discard => Shown::Discard,
        Resolution::GiveUp => Shown::GiveUp,
    }
}

/// What is shown of a doubt.
pub fn shown(
    ambiguity: &Ambiguity,
    now: Time,
    unknown: String,
    commands: Vec<String>,
) -> AmbiguityView {
    let at = |time: Time| {
        let ago = jiff::SignedDuration::try_from(now.saturating_sub(time)).unwrap_or_default();
        Timestamp::now().checked_sub(ago).unwrap_or_default()
    };
    AmbiguityView {
        since: at(ambiguity.since),
        heard_at: ambiguity.heard.map(at),
        last: ambiguity.last.as_ref().map(ToString::to_string),
        unknown,
        commands,
    }
}

/// A view as it is written down with a record that says this of a decision.
pub fn with_resolution(view: MigrationView, resolution: Option<Resolution>) -> MigrationView {
    let new = |resolution| ResolutionView {
        resolution: to_api(resolution),
        at: Timestamp::now(),
        // A copy that was discarded is nobody's: the source asks for it by itself.
        told: match resolution {
            Resolution::Discard => Told::Confirmed,
            Resolution::RunHere | Resolution::GiveUp => Told::Pending,
        },
        last: None,
    };
    let resolution = resolution.map(|resolution| match &view.resolution {
        Some(known) if known.resolution == to_api(resolution) => known.clone(),
        _ => new(resolution),
    });
    MigrationView { resolution, ..view }
}

/// The decision is on disk: now it is shown, and the other host may be told.
pub fn show_resolution(
    snapshot: &mut Snapshot,
    resolution: Option<Resolution>,
    shown: Option<ResolutionView>,
) {
    let what = match resolution {
        _ if snapshot.view.resolution == shown => None,
        Some(Resolution::RunHere) => Some("the operator decided that the guest runs here"),
        Some(Resolution::Discard) => Some("the operator gave the arrived guest up"),
        Some(Resolution::GiveUp) => Some("the operator gave the guest up after the hand-off"),
        None => None,
    };
    snapshot.view.resolution = shown;
    snapshot.resolution = resolution;
    if let Some(what) = what {
        snapshot.record(drover_api::EventKind::Resolved {
            what: format!("{what}, in the place of a host that does not answer"),
        });
    }
}

impl Migrations {
    /// Takes an operator's decision, if the other host really does not answer.
    pub async fn resolve(
        &self,
        id: MigrationId,
        request: ResolveRequest,
    ) -> Result<MigrationView, Refusal> {
        let known = self.find(id)?;
        let view = known.snapshot().view;
        if view.phase.has_ended() {
            return Err(ended(id));
        }
        // Before anything else: nobody is to be told how to decide what is not in doubt.
        if view.ambiguity.is_none() {
            return Err(not_ambiguous(&view));
        }
        if known.snapshot().domain.is_some() {
            return Err(domains::by_hand(&view));
        }
        let resolution = asked_for(&view, request)?;
        let (answer, answered) = oneshot::channel();
        let (sent, snapshot) = match known {
            Known::Outgoing(handle) => {
                let message = outgoing::Message::GiveUp(answer);
                (handle.inbox.send(message).await.is_ok(), handle.snapshot)
            }
            Known::Incoming(handle) => {
                let message = incoming::Message::Resolve(resolution, answer);
                (handle.inbox.send(message).await.is_ok(), handle.snapshot)
            }
            Known::Past(_) => return Err(ended(id)),
        };
        if !sent {
            return Err(ended(id));
        }
        let taken = answered.await.unwrap_or(Err(Refused::Over));
        taken.map_err(|refused| match refused {
            Refused::Over => ended(id),
            Refused::PagesMissing => Refusal::new(ErrorCode::WrongPhase, refused.to_string()),
            _ => not_ambiguous(&snapshot.borrow().view),
        })?;
        comes_of(snapshot).await
    }
}

/// What is asked for, if it is asked of the right host and with what it takes.
fn asked_for(view: &MigrationView, request: ResolveRequest) -> Result<Resolution, Refusal> {
    let vm = &view.vm;
    let (resolution, role) = match request.resolution {
        Shown::RunHere => (Resolution::RunHere, MigrationRole::Destination),
        Shown::Discard => (Resolution::Discard, MigrationRole::Destination),
        Shown::GiveUp => (Resolution::GiveUp, MigrationRole::Source),
        Shown::Unknown => {
            let message = "this agent does not know that resolution";
            return Err(Refusal::new(ErrorCode::BadRequest, message));
        }
    };
    let word = request.resolution.as_str();
    if view.role != role {
        let other = match role {
            MigrationRole::Source => &view.source,
            MigrationRole::Destination => &view.destination,
        };
        let message = format!("--{word} is for {other}, and not for this host");
        return Err(Refusal::new(ErrorCode::WrongPhase, message)
            .next(format!("run `drover resolve {vm} --{word}` on {other}")));
    }
    let (given, flag, what) = match resolution {
        Resolution::Discard => (
            request.memory_is_lost,
            "--memory-is-lost",
            "what the guest has in memory is lost, unless the source kept it",
        ),
        Resolution::RunHere | Resolution::GiveUp => (
            request.other_host_is_off,
            "--other-host-is-off",
            "if the other host runs the guest as well, its disks are destroyed",
        ),
    };
    if given {
        return Ok(resolution);
    }
    let message = format!("--{word} needs {flag}: {what}");
    Err(Refusal::new(ErrorCode::NotConfirmed, message).next(format!(
        "make sure of it, then run `drover resolve {vm} --{word} {flag}`"
    )))
}

fn not_ambiguous(view: &MigrationView) -> Refusal {
    let (id, phase) = (view.id, view.phase.as_str());
    let message = match (view.phase, &view.next) {
        (
            MigrationPhase::Arrived
            | MigrationPhase::Switching
            | MigrationPhase::HandingOff
            | MigrationPhase::Serving
            | MigrationPhase::Filling,
            Some(next),
        ) => {
            format!("migration {id} is {phase}, and not in doubt by now: {next}")
        }
        _ => format!("migration {id} is {phase}: it is not in doubt whose the guest is"),
    };
    Refusal::new(ErrorCode::NotAmbiguous, message)
        .next("`drover status` tells when the other host has to be asked and does not answer")
}

/// Waits until the other host was asked once more, and for what follows from that.
async fn comes_of(mut snapshot: watch::Receiver<Snapshot>) -> Result<MigrationView, Refusal> {
    // A task that ends has left its last word in the snapshot.
    let asked = snapshot.wait_for(|snapshot| snapshot.resolving != Resolving::Asking);
    let _ = tokio::time::timeout(limits::RESOLVE_ASKS, asked).await;
    let now = snapshot.borrow().clone();
    match now.resolving {
        Resolving::Decided => {}
        Resolving::Asking => {
            let message = "the other host is still being asked once more; nothing is decided yet";
            return Err(
                Refusal::new(ErrorCode::Timeout, message).next("look at `drover status` again")
            );
        }
        Resolving::Answered | Resolving::No => return Err(it_answers(&now.view)),
    }
    let over = snapshot.wait_for(|snapshot| snapshot.view.phase.has_ended());
    let _ = tokio::time::timeout(limits::RESOLVE_DOES, over).await;
    let view = snapshot.borrow().view.clone();
    Ok(view)
}

fn it_answers(view: &MigrationView) -> Refusal {
    let (other, this) = match view.role {
        MigrationRole::Source => (&view.destination, &view.source),
        MigrationRole::Destination => (&view.source, &view.destination),
    };
    let says = match view.phase {
        MigrationPhase::Arrived | MigrationPhase::HandingOff => {
            let next = view.next.as_deref();
            next.unwrap_or("it has not decided yet").to_owned()
        }
        MigrationPhase::Running => format!("it handed the guest off, which runs on {this} now"),
        phase => format!("the migration is {} by its word", phase.as_str()),
    };
    let message = format!("{other} answers, so that its word counts: {says}");
    Refusal::new(ErrorCode::NotAmbiguous, message).next("`drover status` tells how it goes on")
}
