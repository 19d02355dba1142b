//! What is shown of a guest that arrives.

use drover_api::{IncomingPhase, IncomingView, MigrationPhase};
use drover_hypervisor::UnixMicros;
use drover_migrate::HandOffAnswer;
use drover_migrate::destination::{Ending, Phase};
use drover_types::Bytes;
use jiff::Timestamp;

use super::Incoming;
use crate::migration::outgoing::timestamp;
use crate::migration::snapshot::Snapshot;

impl Incoming {
    /// Brings what is shown up to date.
    pub(super) fn show(&mut self) {
        let phase = phase(self.destination.phase());
        let answer = self.destination.hand_off_answer();
        let waiting = self.destination.waiting();
        let report = self
            .carrier
            .as_ref()
            .map(|carrier| (carrier, carrier.relay.report()));
        if let Some((_, report)) = &report {
            self.rates.take(report);
        }
        let (rates, channels) = (&self.rates, self.channels);
        let session = self.request.as_ref().map(|request| request.session);
        self.snapshot.send_modify(|snapshot| {
            snapshot.view.phase = phase;
            snapshot.answer = Some(answer);
            snapshot.view.channels = (channels > 0).then_some(channels);
            snapshot.view.next = waiting.and_then(|waiting| {
                let (advice, last) = (waiting.on.what_to_do()?, waiting.last?);
                Some(format!("{last}; {advice}"))
            });
            if let Some((carrier, report)) = &report {
                snapshot.show_lanes(&carrier.paths, report, rates);
            }
            if let Some(sizes) = session {
                let chunk = u64::from(sizes.chunk_bytes);
                snapshot.view.chunk_bytes = Some(Bytes(chunk));
                snapshot.view.window_bytes = Some(Bytes(chunk * u64::from(sizes.window)));
            }
        });
    }

    pub(super) fn resumed(&mut self, at: UnixMicros) {
        let at = timestamp(at);
        self.snapshot
            .send_modify(|snapshot| snapshot.resumed_at = snapshot.resumed_at.or(at));
    }

    pub(super) fn show_ending(&mut self, ending: &Ending) {
        self.show();
        let cause = match ending {
            Ending::Running => None,
            Ending::Abandoned(cause) => {
                let why = self.abandoned_for.as_ref();
                Some(why.map_or_else(|| cause.to_string(), |why| format!("{cause}: {why}")))
            }
            Ending::Lost(reason) => Some(format!("lost after the hand-off: {reason}")),
        };
        self.snapshot.send_modify(|snapshot| {
            snapshot.prepared = true;
            snapshot.view.cause = cause;
            snapshot.view.next = None;
            snapshot.view.ended_at = Some(Timestamp::now());
        });
    }
}

fn phase(phase: &Phase) -> MigrationPhase {
    match phase {
        Phase::Starting | Phase::Prepared | Phase::Opening => MigrationPhase::Prepared,
        Phase::Receiving { .. } | Phase::Settling { .. } => MigrationPhase::Receiving,
        Phase::Arrived { .. } | Phase::Resuming | Phase::Adopting | Phase::Recovering => {
            MigrationPhase::Arrived
        }
        Phase::Abandoning { .. } | Phase::Ended(Ending::Abandoned(_)) => MigrationPhase::Abandoned,
        Phase::Ended(Ending::Running) => MigrationPhase::Running,
        Phase::Ended(Ending::Lost(_)) => MigrationPhase::Failed,
    }
}

/// What the source is told of a guest that arrives.
pub fn incoming_view(snapshot: &Snapshot) -> IncomingView {
    let view = &snapshot.view;
    let (phase, cause) = match &snapshot.answer {
        Some(HandOffAnswer::Running) => (IncomingPhase::Running, None),
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
        resumed_at: snapshot.resumed_at,
    }
}

fn incoming_phase(phase: MigrationPhase) -> IncomingPhase {
    match phase {
        MigrationPhase::Prepared => IncomingPhase::Prepared,
        MigrationPhase::Receiving => IncomingPhase::Receiving,
        MigrationPhase::Arrived => IncomingPhase::Arrived,
        MigrationPhase::Running => IncomingPhase::Running,
        MigrationPhase::Abandoned | MigrationPhase::Failed => IncomingPhase::Abandoned,
        _ => IncomingPhase::Unknown,
    }
}
