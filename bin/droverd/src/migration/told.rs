//! After an operator decided in the other host's place: that host is told when it is back, until it
//! has let go of the guest; and what this host does that is told so.
//!
//! The duty is in the journal, with the view of the migration: it outlives the agent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_api::{
    DomainHeld, ErrorCode, EventKind, GuestPlace, MigrationPhase, MigrationRole, MigrationView,
    Refusal, Resolution, ResolvedRequest, ResolvedState, ResolvedView, Told,
};
use drover_migrate::source::Input as SourceInput;
use drover_migrate::{Cause, Claimed, DestinationRecord, DestinationStep, JournalVersion};
use drover_migrate::{Migration, Outcome, SourceRecord, SourceStep, Verdict, claimed};
use drover_types::{HostName, MigrationId, VmName, with_sources};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use uuid::Uuid;

use super::amend::Change;
use super::journal::AnyRecord;
use super::snapshot::Snapshot;
use super::{Key, Known, Migrations, incoming, outgoing};
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
    /// Tells other hosts what was decided here in their place, for as long as the agent lives. Each is
    /// told one thing after the other: one that does not answer holds up nobody but itself.
    pub async fn keep_telling(self: Arc<Self>) {
        let mut tick = tokio::time::interval(limits::TELL_RESOLVED);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut telling = FuturesUnordered::new();
        let mut busy = BTreeSet::new();
        loop {
            tokio::select! {
                _ = tick.tick() => {
                    for (host, owed) in self.owing() {
                        if busy.insert(host.clone()) {
                            telling.push(self.tell_host(host, owed));
                        }
                    }
                }
                Some(host) = telling.next() => {
                    busy.remove(&host);
                }
            }
        }
    }

    /// What is owed, by host.
    fn owing(&self) -> BTreeMap<HostName, Vec<Key>> {
        let known: Vec<(Key, Known)> = self.known().clone().into_iter().collect();
        let mut owing: BTreeMap<HostName, Vec<Key>> = BTreeMap::new();
        for (key, known) in known {
            let view = known.snapshot().view;
            if owed(&view).is_some() && !self.has_moved_on(&view) {
                owing.entry(other(&view).clone()).or_default().push(key);
            }
        }
        owing
    }

    async fn tell_host(&self, host: HostName, owed: Vec<Key>) -> HostName {
        for key in owed {
            self.tell(key, &host).await;
        }
        host
    }

    async fn tell(&self, key: Key, host: &HostName) {
        let Some(view) = self.known().get(&key).map(|known| known.snapshot().view) else {
            return;
        };
        let Some(resolution) = owed(&view) else {
            return;
        };
        let client = self
            .context
            .peers
            .client_or_at(host, view.other_agent.clone());
        let vm = view.vm.clone();
        let request = ResolvedRequest { resolution, vm };
        let (told, last) = match client.resolved(view.id, &request).await {
            Ok(view) => match view.state {
                ResolvedState::LetGo => (Told::Confirmed, view.message),
                ResolvedState::BothHave | ResolvedState::BothDecided => {
                    (Told::Conflict, view.message)
                }
                ResolvedState::Deciding | ResolvedState::Unknown => (Told::Pending, view.message),
            },
            Err(error) => (Told::Pending, with_sources(&error)),
        };
        let own = &self.context.config.host;
        let conflict = both_have(&view.vm, own, host, &last);
        self.amend(key, |snapshot| {
            let shouted = told == Told::Conflict && shout(snapshot, conflict);
            if heard(&mut snapshot.view, told, last) || shouted {
                Change::Shown
            } else {
                Change::Nothing
            }
        })
        .await;
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
        let known = self.known().get(&(id, source)).cloned();
        let Some(known) = known else {
            return Ok(self.judge_by_what_is_here(&request.vm).await);
        };
        self.authorize(&caller, id, source)?;
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
        let host = &self.context.config.host;
        let phase = known.snapshot().view.phase;
        if !phase.has_ended() {
            let message = format!("the migration is still {} on {host}", phase.as_str());
            return Ok(answer(ResolvedState::Deciding, message));
        }
        Ok(self.let_go((id, source)).await)
    }

    /// The journal of this host does not know the migration: it was lost or replaced, or is about newer
    /// ones by now. The guest may be here all the same.
    async fn judge_by_what_is_here(&self, vm: &VmName) -> ResolvedView {
        let host = &self.context.config.host;
        let unknown = format!("{host} does not know the migration any more, and has");
        let held = self.context.registry.held(vm);
        // The same guest may have become libvirt's. One that is named by no id is none of libvirt's as far as is known: that libvirt is
        // not reached says nothing of it.
        match self.context.libvirt.holds(vm).await {
            Some(DomainHeld::InMemory) => {
                let message = format!("{unknown} a domain {vm} of libvirt's in memory");
                return answer(ResolvedState::BothHave, message);
            }
            Some(DomainHeld::NotKnown) if vm.as_str().parse::<Uuid>().is_ok() => {
                let message = format!(
                    "{unknown} a libvirt of which it is not known whether that has a domain {vm} in memory"
                );
                return answer(ResolvedState::Deciding, message);
            }
            Some(DomainHeld::Absent | DomainHeld::Off | DomainHeld::NotKnown) | None => {}
        }
        match (held.process, held.definition) {
            (true, _) => {
                let message = format!("{unknown} a process of guest {vm}");
                answer(ResolvedState::BothHave, message)
            }
            (false, true) => {
                let message = format!(
                    "{unknown} a definition of guest {vm}, which it may start: remove that there \
                     if the guest is not {host}'s"
                );
                answer(ResolvedState::Deciding, message)
            }
            (false, false) => {
                let message = format!("{unknown} nothing of guest {vm} that could be started");
                answer(ResolvedState::LetGo, message)
            }
        }
    }

    /// A migration that has ended here, and whose guest is the other host's by an operator's word.
    async fn let_go(&self, key: Key) -> ResolvedView {
        let host = &self.context.config.host;
        let Some(view) = self.known().get(&key).map(|known| known.snapshot().view) else {
            let message = "it is not known any more".to_owned();
            return answer(ResolvedState::Deciding, message);
        };
        let (vm, from) = (view.vm.clone(), other(&view).clone());
        let purpose = Purpose::Outgoing {
            migration: view.id,
            destination: from.clone(),
        };
        let gone = format!("{host} has nothing of {vm} that could be started");
        if !has_something(&view) || self.has_newer(&view) {
            return answer(ResolvedState::LetGo, gone);
        }
        let reservation = match self.context.registry.reserve_recovered(&vm, purpose) {
            Ok(reservation) => reservation,
            Err(refusal) => return answer(ResolvedState::Deciding, refusal.message),
        };
        // While the guest is reserved nothing else decides what this migration has left of it.
        let known = self.known().get(&key).map(Known::snapshot);
        let Some(now) = known.filter(|now| has_something(&now.view)) else {
            return answer(ResolvedState::LetGo, gone);
        };
        let (state, said) = match claimed(now.resolution, reservation.has_process()) {
            Claimed::LetsGo => {
                if let Err(refusal) = reservation.hand_off() {
                    return answer(ResolvedState::Deciding, refusal.message);
                }
                // What is left of its last process.
                reservation.release().await;
                self.amend(key, |snapshot| Change::Record(left(snapshot, &from)))
                    .await;
                return answer(ResolvedState::LetGo, gone);
            }
            Claimed::BothHave => {
                let said = format!("{host} has a process of guest {vm}");
                (ResolvedState::BothHave, said)
            }
            Claimed::BothDecided => {
                let said = format!("an operator decided on {host}, too, that {vm} is its own");
                (ResolvedState::BothDecided, said)
            }
        };
        let conflict = both_have(&vm, &from, host, &said);
        self.amend(key, |snapshot| {
            if shout(snapshot, conflict) {
                Change::Shown
            } else {
                Change::Nothing
            }
        })
        .await;
        answer(state, said)
    }

    /// Whether the guest has come or gone since, or is coming: then what was of that migration is
    /// history.
    fn has_newer(&self, view: &MigrationView) -> bool {
        let known: Vec<Known> = self.known().values().cloned().collect();
        let mut views = known.iter().map(|known| known.snapshot().view);
        views.any(|other| is_newer(&other, view) && moves(&other))
    }

    /// Whether the guest has left again since, or is leaving: the other host may have it rightly.
    fn has_moved_on(&self, view: &MigrationView) -> bool {
        let known: Vec<Known> = self.known().values().cloned().collect();
        let mut views = known.iter().map(|known| known.snapshot().view);
        views.any(|other| {
            let leaves = moves(&other) || !other.phase.has_ended();
            is_newer(&other, view) && other.role == MigrationRole::Source && leaves
        })
    }
}

/// By this host's clock: ids are made by the clocks of their sources.
fn is_newer(other: &MigrationView, view: &MigrationView) -> bool {
    other.vm == view.vm && other.id != view.id && other.started_at > view.started_at
}

/// The guest of that migration could be started here, as far as it is known.
fn has_something(view: &MigrationView) -> bool {
    match view.role {
        MigrationRole::Source => view.phase != MigrationPhase::Completed,
        MigrationRole::Destination => view.phase == MigrationPhase::Running,
    }
}

/// The migration changed, or changes, what there is of its guest on this host. One that came to
/// nothing did not; and of one that leaves that is not known yet.
fn moves(view: &MigrationView) -> bool {
    match view.role {
        MigrationRole::Source => view.phase == MigrationPhase::Completed,
        MigrationRole::Destination => {
            view.phase == MigrationPhase::Running || !view.phase.has_ended()
        }
    }
}

/// The other host's answer is shown; false if it says nothing new.
fn heard(view: &mut MigrationView, told: Told, last: String) -> bool {
    let Some(resolution) = &mut view.resolution else {
        return false;
    };
    let before = resolution.clone();
    // A conflict that was heard of stays one until the other host has let go.
    if !(told == Told::Pending && resolution.told == Told::Conflict) {
        resolution.told = told;
    }
    resolution.last = Some(last);
    if told == Told::Confirmed {
        view.next = None;
    }
    let news = *resolution != before;
    if news {
        tracing::info!(id = %view.id, ?resolution, "told");
    }
    news
}

/// The definition has left: what is written down of it.
fn left(snapshot: &mut Snapshot, to: &HostName) -> AnyRecord {
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
    view.cause = Some(what.clone());
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
    snapshot.resolution = None;
    snapshot.answer = None;
    snapshot.record(EventKind::Resolved { what });
    record
}

/// What a person has to hear.
fn both_have(vm: &VmName, decided_on: &HostName, against: &HostName, said: &str) -> String {
    format!(
        "BOTH HOSTS HAVE GUEST {vm}: an operator decided on {decided_on} that {against} does not \
         run it, and {against} says: {said}. Decide which one is to go on, and end the other at \
         once: `drover vm stop {vm} --force` on its host"
    )
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

#[cfg(test)]
mod tests {
    use drover_migrate::Migration;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn only_a_newer_migration_that_moves_the_guest_makes_an_older_one_history() {
        use MigrationPhase as Phase;
        let moves = |role, phase| {
            let migration = Migration {
                id: MigrationId(Uuid::nil()),
                vm: "web".parse().unwrap(),
                source: "a".parse().unwrap(),
                destination: "b".parse().unwrap(),
            };
            let mut view = Snapshot::new(&migration, role).view;
            view.phase = phase;
            moves(&view)
        };
        let leaves = |phase| moves(MigrationRole::Source, phase);
        assert!(leaves(Phase::Completed));
        for phase in [
            Phase::Failed,
            Phase::Cancelled,
            Phase::Refused,
            Phase::GivenUp,
            Phase::Transferring,
        ] {
            assert!(!leaves(phase), "{phase:?}");
        }
        let arrives = |phase| moves(MigrationRole::Destination, phase);
        for phase in [Phase::Running, Phase::Receiving, Phase::Arrived] {
            assert!(arrives(phase), "{phase:?}");
        }
        for phase in [Phase::Abandoned, Phase::Failed] {
            assert!(!arrives(phase), "{phase:?}");
        }
    }
}
