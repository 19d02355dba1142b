//! What is shown of a guest that leaves.

use drover_api::{
    AmbiguityView, EventKind, GuestPlace, MigrationPhase, MigrationView, PathView, Refusal,
    TrafficView,
};
use drover_hypervisor::MigrationProgress;
use drover_migrate::estimate::TimeLeft;
use drover_migrate::source::Phase;
use drover_migrate::{Ambiguity, CancelledBy, GivenUpOn, KeptGuest, Migration, Outcome, Reason};
use drover_types::{Bytes, HostName, Path, VmName};
use jiff::Timestamp;

use super::hand_off::{Times, timestamp};
use super::{Outgoing, millis};
use crate::migration::domains;
use crate::migration::lanes::end_lanes;
use crate::migration::resolve;
use crate::migration::snapshot::{sample, show_estimate, show_time_left};

impl Outgoing {
    /// Brings what is shown up to date.
    pub(super) fn show(&mut self) {
        let phase = phase(self.source.phase());
        let waiting = self.source.waiting();
        let ambiguity = self.source.ambiguity();
        let ambiguity = ambiguity.map(|ambiguity| self.shown_ambiguity(&ambiguity));
        let resolving = self.source.resolving().clone();
        let trouble = self.troubles.shown();
        let is_domain = self.domain.is_some();
        let report = self
            .carrier
            .as_ref()
            .and_then(|carrier| Some((carrier, carrier.relay.counters()?)));
        let offer = self.offer.as_ref();
        let (lanes, metrics) = (&mut self.lanes, &self.link.context.metrics);
        self.snapshot.send_modify(|snapshot| {
            snapshot.prepared |= !matches!(self.source.phase(), Phase::Preparing);
            snapshot.view.phase = phase.unwrap_or(snapshot.view.phase);
            snapshot.view.ambiguity = ambiguity;
            snapshot.resolving = resolving;
            snapshot.view.next = trouble.or_else(|| {
                let waiting = waiting.as_ref()?;
                let advice = domains::what_to_do(waiting.on, is_domain)?;
                let last: &Reason = waiting.last.as_ref()?;
                Some(format!("{last}; {advice}"))
            });
            if let Some((carrier, report)) = &report {
                let relay = (carrier.relay.pid(), report);
                lanes.show(snapshot, &carrier.paths(), relay, metrics);
            }
            if let Some(offer) = offer {
                let sizes = offer.session;
                let chunk = u64::from(sizes.chunk_bytes);
                snapshot.view.chunk_bytes = Some(Bytes(chunk));
                let window = u64::from(sizes.window);
                snapshot.view.window_bytes = Some(Bytes(chunk * window));
            }
        });
    }

    fn shown_ambiguity(&self, ambiguity: &Ambiguity) -> AmbiguityView {
        let Migration {
            vm, destination, ..
        } = self.source.migration();
        let unknown = if matches!(self.source.phase(), Phase::Serving { .. }) {
            format!("whether the guest still runs on {destination}, and needs pages")
        } else {
            format!("whether {destination} runs the guest")
        };
        let commands = match self.domain {
            // Nothing of it can run here any more, and whether it does there its libvirt tells.
            Some(_) => Vec::new(),
            None => vec![format!("drover resolve {vm} --give-up --other-host-is-off")],
        };
        resolve::shown(ambiguity, self.now(), unknown, commands)
    }

    pub(super) fn show_progress(&mut self, progress: &MigrationProgress) {
        if self.taken_up && self.begun_at.is_none() {
            self.begun_at = Timestamp::now().checked_sub(progress.total_time).ok();
        }
        let at = self.now();
        let follows = self.source.pages_follow();
        let copies = follows || matches!(self.source.phase(), Phase::Transferring { .. });
        if follows {
            self.estimator.follows();
        }
        let estimator = &mut self.estimator;
        self.snapshot.send_modify(|snapshot| {
            snapshot.show_progress(progress);
            show_estimate(snapshot, estimator, sample(at, progress));
            if !copies {
                copies_no_more(&mut snapshot.view);
            }
        });
        self.show();
    }

    /// The guest runs on the destination: how long it took, and how long the guest stood still.
    pub(super) fn runs_there(&mut self, times: &Times) {
        let between = |from: Timestamp, to: Timestamp| {
            millis(to.duration_since(from).try_into().unwrap_or_default())
        };
        let ran = times.ran();
        let stopped = self.stopped_at.and_then(timestamp);
        let (begun, downtime) = (self.begun_at, stopped.map(|at| between(at, ran)));
        self.record_at(ran, EventKind::Runs);
        self.snapshot.send_modify(|snapshot| {
            snapshot.view.total_ms = begun.map(|at| between(at, ran));
            snapshot.view.downtime_ms = downtime;
        });
    }

    /// Why the migration is being given up, for the destination's log.
    pub(super) fn cause_in_words(&self) -> String {
        match self.source.phase() {
            Phase::Abandoning { outcome, .. } => outcome_in_words(outcome).1,
            other => other.name().to_owned(),
        }
    }

    /// What is shown once everything is done.
    pub(super) fn final_view(&self, outcome: &Outcome) -> MigrationView {
        let (mut phase, cause) = outcome_in_words(outcome);
        let (mut view, refusal) = {
            let snapshot = self.snapshot.borrow();
            (snapshot.view.clone(), snapshot.refusal.clone())
        };
        if is_refusal(outcome, refusal.as_ref()) {
            phase = MigrationPhase::Refused;
        }
        end_lanes(&mut view);
        copies_no_more(&mut view);
        let outcome = &as_kept(outcome, self.kept);
        MigrationView {
            phase,
            cause: (*outcome != Outcome::Completed).then_some(cause),
            guest: Some(left_at(outcome)),
            next: match (&self.domain, &self.reservation) {
                (None, held) => {
                    let after = held.as_ref().and_then(|held| held.after(outcome));
                    after.or_else(|| next_step(outcome, &view.vm, &view.destination))
                }
                (Some(_), held) => held.as_ref().and_then(|held| held.after(outcome)),
            },
            ambiguity: None,
            ended_at: Some(Timestamp::now()),
            ..view
        }
    }
}

/// Nothing is left to wait for, and nothing slows the guest down any more.
fn copies_no_more(view: &mut MigrationView) {
    show_time_left(view, TimeLeft::Unknown);
    view.throttle_percent = None;
}

/// Paths of which no lane is known yet.
pub fn paths_without_lanes(paths: &[Path]) -> Vec<PathView> {
    let view = |path: &Path| PathView {
        path: path.clone(),
        lanes: Vec::new(),
        traffic: TrafficView::default(),
        suspicions: 0,
        retransmits: 0,
        state: None,
        limit: None,
        cause: None,
        attempts: 0,
        segment_bytes: None,
        placement: None,
    };
    paths.iter().map(view).collect()
}

/// A path that is used, for the history.
pub fn path_chosen(path: &Path) -> EventKind {
    EventKind::PathChosen {
        path: path.id,
        source: path.source.interface.clone(),
        destination: path.destination.interface.clone(),
    }
}

/// Who wants it to end.
pub fn who(by: CancelledBy) -> &'static str {
    match by {
        CancelledBy::Operator => "the operator",
        CancelledBy::AgentStopping => "the agent, which is being stopped,",
        CancelledBy::Deadline => "the deadline",
    }
}

/// The cause of a migration that an operator, or a run, called back.
pub const CANCELLED_BY_OPERATOR: &str = "cancelled by the operator";

/// The cause of a migration whose memory was not copied by its deadline.
pub const PAST_DEADLINE: &str = "its memory was not copied by the deadline";

/// The phase to show; none for the end, which is shown when everything is done and on disk.
fn phase(phase: &Phase) -> Option<MigrationPhase> {
    Some(match phase {
        Phase::Preparing => MigrationPhase::Preparing,
        Phase::Connecting { .. } | Phase::Starting { .. } => MigrationPhase::Connecting,
        Phase::Transferring { .. } => MigrationPhase::Transferring,
        Phase::Cancelling { .. } | Phase::Abandoning { .. } => MigrationPhase::Cancelling,
        // Shown as it was, until it is known.
        Phase::Recovering { .. } => return None,
        Phase::Switching { .. } => MigrationPhase::Switching,
        Phase::Serving { .. }
        | Phase::Leaving {
            outcome: Outcome::CutOff { .. },
            ..
        } => MigrationPhase::Serving,
        Phase::HandingOff { .. } | Phase::TakingBack { .. } | Phase::Leaving { .. } => {
            MigrationPhase::HandingOff
        }
        Phase::Ended { .. } => return None,
    })
}

/// How it ended, and why in words.
pub fn outcome_in_words(outcome: &Outcome) -> (MigrationPhase, String) {
    match outcome {
        Outcome::Completed => (MigrationPhase::Completed, "completed".to_owned()),
        Outcome::Refused { reason } => (MigrationPhase::Failed, reason.to_string()),
        Outcome::Cancelled { by, .. } => {
            let (phase, cause) = match by {
                CancelledBy::Operator => (MigrationPhase::Cancelled, CANCELLED_BY_OPERATOR),
                CancelledBy::AgentStopping => {
                    (MigrationPhase::Cancelled, "the source's agent was stopped")
                }
                CancelledBy::Deadline => (MigrationPhase::Failed, PAST_DEADLINE),
            };
            (phase, cause.to_owned())
        }
        Outcome::Failed { cause, .. } => (MigrationPhase::Failed, cause.to_string()),
        Outcome::GivenUp { on } => {
            let cause = match on {
                GivenUpOn::Source => "given up by the operator after the hand-off",
                GivenUpOn::Destination => {
                    "given up after the hand-off: the operator discarded the destination's copy"
                }
            };
            (MigrationPhase::GivenUp, cause.to_owned())
        }
        Outcome::CutOff { reason } => (
            MigrationPhase::CutOff,
            format!("pages of the guest that had not followed it are lost: {reason}"),
        ),
        Outcome::Lost { reason } => (
            MigrationPhase::Failed,
            format!("the destination lost the guest after the hand-off: {reason}"),
        ),
    }
}

/// Whether it ended before anything was changed, for want of what was asked before: no fault then. It is
/// one if the destination failed at what it was asked for.
fn is_refusal(outcome: &Outcome, refusal: Option<&Refusal>) -> bool {
    let before = matches!(
        outcome,
        Outcome::Refused { .. }
            | Outcome::Failed {
                guest: KeptGuest::Runs,
                ..
            }
    );
    before && refusal.is_some_and(|refusal| refusal.code.is_preflight())
}

/// The same outcome of a guest that was to run on, as it was left.
fn as_kept(outcome: &Outcome, kept: Option<KeptGuest>) -> Outcome {
    let mut outcome = outcome.clone();
    if let (Outcome::Cancelled { guest, .. } | Outcome::Failed { guest, .. }, Some(kept)) =
        (&mut outcome, kept)
        && *guest == KeptGuest::Runs
    {
        *guest = kept;
    }
    outcome
}

/// Where it left the guest.
fn left_at(outcome: &Outcome) -> GuestPlace {
    match outcome {
        Outcome::Completed => GuestPlace::Destination,
        Outcome::Refused { .. } => GuestPlace::Source,
        Outcome::Cancelled { guest, .. } | Outcome::Failed { guest, .. } => match guest {
            KeptGuest::Runs => GuestPlace::Source,
            KeptGuest::Stopped => GuestPlace::SourceStopped,
            KeptGuest::Gone => GuestPlace::Nowhere,
        },
        // What the destination does meanwhile is an operator's word only.
        Outcome::GivenUp {
            on: GivenUpOn::Source,
        } => GuestPlace::Unknown,
        Outcome::GivenUp {
            on: GivenUpOn::Destination,
        }
        | Outcome::Lost { .. }
        | Outcome::CutOff { .. } => GuestPlace::Nowhere,
    }
}

fn next_step(outcome: &Outcome, vm: &VmName, destination: &HostName) -> Option<String> {
    let guest = match outcome {
        Outcome::Cancelled { guest, .. } | Outcome::Failed { guest, .. } => guest,
        Outcome::Lost { .. } => {
            return Some(format!(
                "the copy on the source stands still with its memory intact; no agent runs it. To \
                 boot the guest here, end that process (`drover vm show {vm}` tells it), move \
                 {vm}.toml from `departed` in the state directory back to the definitions, then \
                 `drover vm start {vm}`"
            ));
        }
        Outcome::CutOff { .. } => {
            return Some(format!(
                "what runs on {destination} waits for pages that are lost: there, `drover vm stop --force \
                 {vm}`, then `drover vm start {vm}`"
            ));
        }
        Outcome::GivenUp { .. } => {
            return Some(format!(
                "`drover vm start {vm}` boots it on the source, as after a loss of power"
            ));
        }
        Outcome::Completed | Outcome::Refused { .. } => return None,
    };
    Some(match guest {
        KeptGuest::Runs => "the guest runs on the source, unharmed".to_owned(),
        KeptGuest::Stopped => format!(
            "the guest stands still on the source, where no agent runs it: `drover vm show {vm}` tells how. What \
             its QEMU does not let go on can be booted anew: `drover vm stop --force {vm}`, then `drover vm start {vm}`"
        ),
        KeptGuest::Gone => "the guest's QEMU on the source has ended".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use drover_api::ErrorCode;
    use drover_migrate::Cause;

    use super::*;

    #[test]
    fn what_was_refused_for_want_of_a_precondition_is_no_failure() {
        let refused = Outcome::Refused {
            reason: Reason::from("b is cordoned"),
        };
        let no_path = |guest| Outcome::Failed {
            cause: Cause::NoPath,
            guest,
        };
        let cancelled = Outcome::Cancelled {
            by: CancelledBy::Operator,
            guest: KeptGuest::Runs,
        };
        let why = |code| Some(Refusal::new(code, "why"));
        for (outcome, refusal, expected) in [
            (&refused, why(ErrorCode::HostCordoned), true),
            (&refused, why(ErrorCode::QemuFailed), false),
            (&no_path(KeptGuest::Runs), why(ErrorCode::NoPath), true),
            (&no_path(KeptGuest::Gone), why(ErrorCode::NoPath), false),
            (&no_path(KeptGuest::Runs), None, false),
            (&cancelled, why(ErrorCode::HostCordoned), false),
        ] {
            let found = is_refusal(outcome, refusal.as_ref());
            assert_eq!(found, expected, "{outcome:?}, {refusal:?}");
        }
    }

    #[test]
    fn a_domain_that_was_to_run_on_and_stands_still_is_shown_as_it_was_left() {
        let cancelled = |guest| Outcome::Cancelled {
            by: CancelledBy::Operator,
            guest,
        };
        let place = |outcome, kept| left_at(&as_kept(&outcome, kept));
        let runs = || cancelled(KeptGuest::Runs);
        assert_eq!(place(runs(), None), GuestPlace::Source);
        let stopped = Some(KeptGuest::Stopped);
        assert_eq!(place(runs(), stopped), GuestPlace::SourceStopped);
        let gone = cancelled(KeptGuest::Gone);
        assert_eq!(place(gone, stopped), GuestPlace::Nowhere);
        assert_eq!(as_kept(&Outcome::Completed, stopped), Outcome::Completed);
    }

    #[test]
    fn what_cut_a_guest_off_is_told_as_it_was() {
        let reason = Reason::from("an operator gave them up");
        let (_, cause) = outcome_in_words(&Outcome::CutOff { reason });
        assert_eq!(
            cause,
            "pages of the guest that had not followed it are lost: an operator gave them up"
        );
    }

    #[test]
    fn a_guest_is_said_to_run_on_the_source_only_where_it_was_kept_running() {
        let reason = || Reason::from("its QEMU has ended");
        let failed = |guest| Outcome::Failed {
            cause: Cause::NoPath,
            guest,
        };
        let cancelled = |guest| Outcome::Cancelled {
            by: CancelledBy::Operator,
            guest,
        };
        let given_up = |on| Outcome::GivenUp { on };
        for (outcome, place) in [
            (Outcome::Completed, GuestPlace::Destination),
            (Outcome::Refused { reason: reason() }, GuestPlace::Source),
            (Outcome::Lost { reason: reason() }, GuestPlace::Nowhere),
            (Outcome::CutOff { reason: reason() }, GuestPlace::Nowhere),
            (failed(KeptGuest::Runs), GuestPlace::Source),
            (failed(KeptGuest::Stopped), GuestPlace::SourceStopped),
            (failed(KeptGuest::Gone), GuestPlace::Nowhere),
            (cancelled(KeptGuest::Gone), GuestPlace::Nowhere),
            (given_up(GivenUpOn::Source), GuestPlace::Unknown),
            (given_up(GivenUpOn::Destination), GuestPlace::Nowhere),
        ] {
            assert_eq!(left_at(&outcome), place, "{outcome:?}");
        }
    }
}
