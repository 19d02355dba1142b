//! What is shown of a guest that arrives.

use drover_api::{
    AmbiguityView, EventKind, GuestPlace, IncomingPhase, IncomingView, MigrationPhase,
    MigrationView,
};
use drover_migrate::destination::{Ending, Phase};
use drover_migrate::{Ambiguity, Cause, HandOffAnswer, Migration, Resolving};
use drover_types::Bytes;
use jiff::Timestamp;

use super::Incoming;
use crate::disks;
use crate::migration::debts;
use crate::migration::domains;
use crate::migration::lanes::end_lanes;
use crate::migration::resolve;
use crate::migration::security;
use crate::migration::snapshot::Snapshot;

impl Incoming {
    /// Brings what is shown up to date.
    pub(super) fn show(&mut self) {
        let phase = phase(self.destination.phase());
        let giving_up = match self.destination.phase() {
            Phase::Settling { cause } | Phase::Abandoning { cause, .. } => {
                Some(self.in_words(cause))
            }
            _ => None,
        };
        let arrived = matches!(self.destination.phase(), Phase::Arrived { .. });
        let answer = self.destination.hand_off_answer();
        let waiting = self.destination.waiting();
        let ambiguity = self.destination.ambiguity();
        let ambiguity = ambiguity.map(|ambiguity| self.shown_ambiguity(&ambiguity));
        let resolving = self.destination.resolving().clone();
        let resolution = self.destination.resolution();
        let trouble = self.troubles.shown();
        let is_domain = self.domain.is_some();
        let report = self
            .carrier
            .as_ref()
            .and_then(|carrier| Some((carrier, carrier.relay.counters()?)));
        let (lanes, channels) = (&mut self.lanes, self.channels);
        let metrics = &self.context.metrics;
        let encryption = report.as_ref().and_then(|(_, report)| report.encryption);
        let session = self.request.as_ref().map(|request| request.session);
        self.snapshot.send_modify(|snapshot| {
            snapshot.view.phase = phase.unwrap_or(snapshot.view.phase);
            if arrived {
                snapshot.record(EventKind::Arrived);
            }
            snapshot.view.cause = giving_up;
            snapshot.answer = Some(answer);
            snapshot.view.ambiguity = ambiguity;
            snapshot.resolving = resolving;
            snapshot.resolution = resolution;
            if channels > 0 {
                snapshot.view.channels = Some(channels);
            }
            if let Some(encryption) = encryption {
                snapshot.view.encryption = Some(security::shown(encryption));
            }
            let waits = waiting.and_then(|waiting| {
                let advice = domains::what_to_do(waiting.on, is_domain)?;
                let last = waiting.last?;
                Some(format!("{last}; {advice}"))
            });
            snapshot.view.next = trouble.or(waits);
            if let Some((carrier, report)) = &report {
                let relay = (carrier.relay.pid(), report);
                lanes.show(snapshot, &carrier.paths(), relay, metrics);
            }
            if let Some(sizes) = session {
                let chunk = u64::from(sizes.chunk_bytes);
                snapshot.view.chunk_bytes = Some(Bytes(chunk));
                snapshot.view.window_bytes = Some(Bytes(chunk * u64::from(sizes.window)));
            }
        });
    }

    fn shown_ambiguity(&self, ambiguity: &Ambiguity) -> AmbiguityView {
        let Migration { vm, source, .. } = self.destination.migration();
        let unknown = if matches!(self.destination.phase(), Phase::Filling(_)) {
            format!("whether {source} still has pages of the guest, which goes on here only")
        } else {
            format!("whether {source} handed the guest off or kept it")
        };
        let discard = format!("drover resolve {vm} --discard --memory-is-lost");
        let commands = if self.domain.is_some() {
            let held = self.reservation.as_ref();
            held.map_or_else(Vec::new, |held| held.in_doubt())
        } else if self.destination.needs_its_source() {
            vec![discard]
        } else {
            let run = format!("drover resolve {vm} --run-here --other-host-is-off");
            vec![run, discard]
        };
        resolve::shown(ambiguity, self.origin.elapsed(), unknown, commands)
    }

    /// The guest runs, since then if QEMU has told when.
    pub(super) fn resumed(&mut self, at: Option<Timestamp>) {
        self.snapshot.send_modify(|snapshot| {
            snapshot.resumed_at = snapshot.resumed_at.or(at);
            let at = at.unwrap_or_else(Timestamp::now);
            // Where the source's word came in the same moment, nobody has looked in between.
            snapshot.record_at(at, EventKind::Arrived);
            snapshot.record_at(at, EventKind::Runs);
        });
    }

    fn in_words(&self, cause: &Cause) -> String {
        match &self.abandoned_for {
            Some(why) if *cause == Cause::SourceKept => kept(why),
            Some(why) => with_the_sources_word(&cause.to_string(), why),
            None => cause.to_string(),
        }
    }

    /// What is shown once everything is done.
    pub(super) fn final_view(&self, ending: &Ending) -> MigrationView {
        let (phase, cause, guest) = match ending {
            Ending::Running => (MigrationPhase::Running, None, GuestPlace::Destination),
            // What became of the source's is for the source to say.
            Ending::Abandoned(cause) => {
                let cause = self.in_words(cause);
                (MigrationPhase::Abandoned, Some(cause), GuestPlace::Unknown)
            }
            Ending::CutOff => {
                let cause = cut_off(self.destination.resolving());
                (
                    MigrationPhase::CutOff,
                    Some(cause.to_owned()),
                    GuestPlace::Nowhere,
                )
            }
            Ending::Lost(reason) => {
                let cause = format!("lost here with everything that had arrived: {reason}");
                (MigrationPhase::Failed, Some(cause), GuestPlace::Unknown)
            }
        };
        let mut view = self.snapshot.borrow().view.clone();
        end_lanes(&mut view);
        let vm = &view.vm;
        let next = (*ending == Ending::CutOff).then(|| {
            format!(
                "its QEMU here waits for pages that are lost: `drover vm stop --force {vm}`, then \
                 `drover vm start {vm}` boots it, as after a loss of power"
            )
        });
        let state = &self.context.config.state;
        let of_own = self.domain.is_none() && disks::is_recorded(state, view.id);
        let next = next.or_else(|| debts::next(view.role, self.domain.as_ref(), of_own));
        MigrationView {
            phase,
            cause,
            guest: Some(guest),
            next,
            ambiguity: None,
            time_left_ms: None,
            ended_at: Some(Timestamp::now()),
            ..view
        }
    }
}

/// The phase to show; none for the end, which is shown when everything is done and on disk.
fn phase(phase: &Phase) -> Option<MigrationPhase> {
    Some(match phase {
        Phase::Starting | Phase::Prepared | Phase::Opening => MigrationPhase::Prepared,
        Phase::Receiving { .. } | Phase::Settling { .. } => MigrationPhase::Receiving,
        Phase::Arrived { .. } | Phase::Resuming { .. } | Phase::Adopting => MigrationPhase::Arrived,
        Phase::Filling(_) => MigrationPhase::Filling,
        // Shown as it was, until it is known.
        Phase::Recovering { .. } => return None,
        Phase::Abandoning { .. } => MigrationPhase::Cancelling,
        Phase::Ended(_) => return None,
    })
}

/// How pages were lost, as far as this host knows.
fn cut_off(resolving: &Resolving) -> &'static str {
    if *resolving == Resolving::Decided {
        "pages of the guest that had not followed it are lost: the operator gave them up here"
    } else {
        "pages of the guest that had not followed it are lost: the source sends none any more"
    }
}

fn kept(why: &str) -> String {
    format!("{}: {why}", Cause::SourceKept)
}

/// What ended it here, and why the source says that it ended. One follows from the other, and the
/// source's is the first unless it quotes ours.
pub fn with_the_sources_word(own: &str, why: &str) -> String {
    if why.contains(own) || own.contains(why) {
        return own.to_owned();
    }
    format!("{} ({own})", kept(why))
}

/// What the source is told of a guest that arrives.
pub fn incoming_view(snapshot: &Snapshot) -> IncomingView {
    let view = &snapshot.view;
    let (phase, cause) = match &snapshot.answer {
        Some(HandOffAnswer::Running) => (IncomingPhase::Running, None),
        Some(HandOffAnswer::Filling) => (IncomingPhase::Filling, None),
        Some(HandOffAnswer::CutOff) => (IncomingPhase::CutOff, view.cause.clone()),
        Some(HandOffAnswer::Discarded) => {
            let gone = view.phase.has_ended();
            let phase = if gone {
                IncomingPhase::Abandoned
            } else {
                IncomingPhase::Unknown
            };
            (phase, view.cause.clone())
        }
        Some(HandOffAnswer::Gone { reason }) => {
            let cause = view.cause.clone().unwrap_or_else(|| reason.to_string());
            (IncomingPhase::Abandoned, Some(cause))
        }
        _ => (incoming_phase(view.phase), view.cause.clone()),
    };
    IncomingView {
        id: view.id,
        vm: view.vm.clone(),
        phase,
        cause,
        resolved: snapshot.resolution.map(resolve::to_api),
        postcopy: snapshot.postcopy,
        resumed_at: snapshot.resumed_at,
    }
}

fn incoming_phase(phase: MigrationPhase) -> IncomingPhase {
    match phase {
        MigrationPhase::Prepared => IncomingPhase::Prepared,
        MigrationPhase::Receiving => IncomingPhase::Receiving,
        MigrationPhase::Arrived => IncomingPhase::Arrived,
        MigrationPhase::Running => IncomingPhase::Running,
        MigrationPhase::Filling => IncomingPhase::Filling,
        MigrationPhase::CutOff => IncomingPhase::CutOff,
        MigrationPhase::Abandoned | MigrationPhase::Failed => IncomingPhase::Abandoned,
        _ => IncomingPhase::Unknown,
    }
}
