//! After an operator decided in the other host's place: that host is told when it is back, until it
//! has let go of the guest; and what this host does that is told so.
//!
//! The duty is in the journal, with the view of the migration: it outlives the agent.

use std::sync::Arc;

use drover_api::{
    ErrorCode, EventKind, GuestPlace, MigrationPhase, MigrationRole, MigrationView, Refusal,
    Resolution, ResolvedRequest, ResolvedState, ResolvedView, Told,
};
use drover_migrate::source::Input as SourceInput;
use drover_migrate::{Cause, Claimed, DestinationRecord, DestinationStep, JournalVersion};
use drover_migrate::{Migration, Outcome, SourceRecord, SourceStep, Verdict, claimed};
use drover_types::{HostName, MigrationId};
use futures_util::future::join_all;

use super::journal::{AnyRecord, Entry};
use super::outgoing::with_source;
use super::snapshot::Snapshot;
use super::{Known, Migrations, incoming, outgoing};
use crate::api::Caller;
use crate::limits;
use crate::registry::Purpose;

/// What the other host is to be told of a migration that has ended here.
pub fn owed(view: &MigrationView) -> Option<Resolution> {
    let resolution = view.resolution.as_ref()?;
    let counts = match resolution.resolution {
        Resolution::RunHere => view.phase == MigrationPhase::Running,
        Resolution::GiveUp => view.phase == MigrationPhase::GivenUp,
        Resolution::Discard | Resolution::Unknown => false,
    };
    (counts && resolution.told != Told::Confirmed).then_some(resolution.resolution)
}

fn other(view: &MigrationView) -> &HostName {
    match view.role {
        MigrationRole::Source => &view.destination,
        MigrationRole::Destination => &view.source,
    }
}

impl Migrations {
    /// Tells other hosts what was decided here in their place, for as long as the agent lives.
    pub async fn keep_telling(self: Arc<Self>) {
        let mut tick = tokio::time::interval(limits::TELL_RESOLVED);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let known: Vec<Known> = self.known().values().cloned().collect();
            let snapshots = known.iter().map(Known::snapshot);
            let owing: Vec<_> = snapshots.filter(|s| owed(&s.view).is_some()).collect();
            join_all(owing.into_iter().map(|snapshot| self.tell(snapshot))).await;
        }
    }

    async fn tell(&self, mut snapshot: Snapshot) {
        let Some(resolution) = owed(&snapshot.view) else {
            return;
        };
        let before = snapshot.view.resolution.clone();
        let host = other(&snapshot.view).clone();
        let client = self.context.peers.client_or_none(&host);
        let request = ResolvedRequest { resolution };
        let answer = client.resolved(snapshot.view.id, &request).await;
        let (told, last) = match answer {
            Ok(view) => match view.state {
                ResolvedState::LetGo => (Told::Confirmed, view.message),
                ResolvedState::BothHave | ResolvedState::BothDecided => {
                    let what = self.conflict(&snapshot.view, &host, &view.message);
                    shout(&mut snapshot, what);
                    (Told::Conflict, view.message)
                }
                ResolvedState::Deciding | ResolvedState::Unknown => (Told::Pending, view.message),
            },
            // There is nothing there that could be started by this migration.
            Err(error) if error.is_refused_with(ErrorCode::NoSuchMigration) => {
                (Told::Confirmed, format!("{host} knows nothing of it"))
            }
            Err(error) => (Told::Pending, with_source(&error)),
        };
        if let Some(resolution) = &mut snapshot.view.resolution {
            // A conflict that was heard of stays one until the other host has let go.
            let worse = told == Told::Pending && resolution.told == Told::Conflict;
            resolution.told = if worse { Told::Conflict } else { told };
            resolution.last = Some(last);
            if told == Told::Confirmed {
                snapshot.view.next = None;
            }
        }
        if snapshot.view.resolution != before {
            tracing::info!(id = %snapshot.view.id, %host, resolution = ?snapshot.view.resolution, "told");
            self.keep(snapshot, None).await;
        }
    }

    fn conflict(&self, view: &MigrationView, host: &HostName, said: &str) -> String {
        let (vm, own) = (&view.vm, &self.context.config.host);
        format!(
            "BOTH HOSTS HAVE GUEST {vm}: an operator decided on {own} that {host} does not run it, \
             and {host} says: {said}. Decide which one is to go on, and end the other at once: \
             `drover vm stop {vm} --force` on its host"
        )
    }

    /// Writes down what became of a migration that has ended, and shows it.
    async fn keep(&self, snapshot: Snapshot, record: Option<AnyRecord>) {
        let id = snapshot.view.id;
        let (view, events) = (snapshot.view.clone(), snapshot.events.list().to_vec());
        self.add(id, Known::Past(Box::new(snapshot)));
        let written = match record {
            Some(record) => {
                let entry = Entry {
                    record,
                    view,
                    events,
                };
                self.journal.write(entry).await
            }
            None => self.journal.amend(view, events).await,
        };
        if let Err(error) = written {
            tracing::error!(%id, %error, "not in the journal; it is tried again after a restart");
        }
    }

    /// The other host says that an operator decided there, in this host's place.
    pub async fn resolved_there(
        &self,
        caller: Caller,
        id: MigrationId,
        request: ResolvedRequest,
    ) -> Result<ResolvedView, Refusal> {
        let source = match request.resolution {
            Resolution::RunHere => true,
            Resolution::GiveUp => false,
            Resolution::Discard | Resolution::Unknown => {
                let message = "that resolution takes nothing from this host";
                return Err(Refusal::new(ErrorCode::BadRequest, message));
            }
        };
        self.authorize(&caller, id, source)?;
        let known = self.known().get(&(id, source)).cloned();
        let known = known.ok_or_else(|| self.unknown(id))?;
        let mut receiver = match &known {
            Known::Past(_) => None,
            Known::Outgoing(handle) => {
                let input = outgoing::Message::Input(SourceInput::DestinationRuns);
                // A task that has ended has left its last word in the snapshot.
                let _ = handle.inbox.send(input).await;
                Some(handle.snapshot.clone())
            }
            Known::Incoming(handle) => {
                let why = "the operator gave the guest up on the source".to_owned();
                let _ = handle.inbox.send(incoming::Message::Abandon(why)).await;
                Some(handle.snapshot.clone())
            }
        };
        if let Some(receiver) = &mut receiver {
            let over = receiver.wait_for(|snapshot| snapshot.view.phase.has_ended());
            let _ = tokio::time::timeout(limits::RUN_ANSWER, over).await;
        }
        let snapshot = known.snapshot();
        let host = &self.context.config.host;
        let phase = snapshot.view.phase;
        if !phase.has_ended() {
            let message = format!("the migration is still {} on {host}", phase.as_str());
            return Ok(answer(ResolvedState::Deciding, message));
        }
        Ok(self.let_go(snapshot).await)
    }

    /// A migration that has ended here, and whose guest is the other host's by an operator's word.
    async fn let_go(&self, snapshot: Snapshot) -> ResolvedView {
        let (view, host) = (&snapshot.view, &self.context.config.host);
        let (vm, from) = (view.vm.clone(), other(view).clone());
        let gone = format!("{host} has nothing of {vm} that could be started");
        let has_something = match view.role {
            MigrationRole::Source => view.phase != MigrationPhase::Completed,
            MigrationRole::Destination => view.phase == MigrationPhase::Running,
        };
        if !has_something || self.has_newer(view) {
            return answer(ResolvedState::LetGo, gone);
        }
        let purpose = Purpose::Outgoing {
            migration: view.id,
            destination: from.clone(),
        };
        let reservation = match self.context.registry.reserve_recovered(&vm, purpose) {
            Ok(reservation) => reservation,
            Err(refusal) => return answer(ResolvedState::Deciding, refusal.message),
        };
        match claimed(snapshot.resolution, reservation.has_process()) {
            Claimed::LetsGo => {}
            Claimed::BothHave => {
                let said = format!("{host} has a process of guest {vm}");
                return self
                    .stands_by(snapshot, ResolvedState::BothHave, said)
                    .await;
            }
            Claimed::BothDecided => {
                let said = format!("an operator decided on {host}, too, that {vm} is its own");
                return self
                    .stands_by(snapshot, ResolvedState::BothDecided, said)
                    .await;
            }
        }
        if let Err(refusal) = reservation.hand_off() {
            return answer(ResolvedState::Deciding, refusal.message);
        }
        // What is left of its last process.
        reservation.release().await;
        self.left(snapshot, &from).await;
        answer(ResolvedState::LetGo, gone)
    }

    async fn stands_by(
        &self,
        mut snapshot: Snapshot,
        state: ResolvedState,
        said: String,
    ) -> ResolvedView {
        let from = other(&snapshot.view).clone();
        let (vm, own) = (&snapshot.view.vm, &self.context.config.host);
        let what = format!(
            "BOTH HOSTS HAVE GUEST {vm}: {said}, and an operator decided on {from} that {own} does \
             not run it. Decide which one is to go on, and end the other at once: `drover vm stop \
             {vm} --force` on its host"
        );
        if shout(&mut snapshot, what) {
            self.keep(snapshot, None).await;
        }
        answer(state, said)
    }

    /// The definition has left: so it is written down.
    async fn left(&self, mut snapshot: Snapshot, to: &HostName) {
        let view = &mut snapshot.view;
        let migration = Migration {
            id: view.id,
            vm: view.vm.clone(),
            source: view.source.clone(),
            destination: view.destination.clone(),
        };
        let version = JournalVersion;
        let what = format!("the guest is {to}'s by an operator's word; its definition has left");
        view.next = None;
        view.resolution = None;
        let record = match view.role {
            MigrationRole::Source => {
                view.phase = MigrationPhase::Completed;
                view.guest = Some(GuestPlace::Destination);
                snapshot.verdict = Verdict::HandedOff;
                let outcome = Outcome::Completed;
                AnyRecord::Source(SourceRecord {
                    version,
                    migration,
                    step: SourceStep::Finished { outcome },
                })
            }
            MigrationRole::Destination => {
                view.phase = MigrationPhase::Abandoned;
                view.guest = Some(GuestPlace::Unknown);
                let cause = Cause::SourceKept;
                AnyRecord::Destination(DestinationRecord {
                    version,
                    migration,
                    step: DestinationStep::Abandoned { cause },
                })
            }
        };
        snapshot.view.cause = Some(what.clone());
        snapshot.resolution = None;
        snapshot.answer = None;
        snapshot.record(EventKind::Resolved { what });
        self.keep(snapshot, Some(record)).await;
    }

    /// Whether the guest has come or gone since: then what was of that migration is history.
    fn has_newer(&self, view: &MigrationView) -> bool {
        let known: Vec<Known> = self.known().values().cloned().collect();
        let mut views = known.iter().map(|known| known.snapshot().view);
        // Ids are ordered by time.
        views.any(|other| other.vm == view.vm && other.id > view.id)
    }
}

fn answer(state: ResolvedState, message: String) -> ResolvedView {
    ResolvedView { state, message }
}

/// Says it as loud as an agent can; false if it has said so already.
fn shout(snapshot: &mut Snapshot, what: String) -> bool {
    tracing::error!(id = %snapshot.view.id, vm = %snapshot.view.vm, what, "conflict");
    if snapshot.view.next.as_ref() == Some(&what) {
        return false;
    }
    snapshot.record(EventKind::Conflict { what: what.clone() });
    snapshot.view.next = Some(what);
    true
}
