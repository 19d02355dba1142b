//! What is counted of runs on the host that carries them out.

use std::collections::BTreeMap;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::moment::Number;

/// What a run can be for.
const KINDS: [&str; 3] = ["drain", "resume", "rebalance"];

/// How a run can end.
const RESULTS: [&str; 4] = ["completed", "partial", "refused", "cancelled"];

/// What can become of a guest in a run.
const OUTCOMES: [&str; 10] = [
    "moved",
    "failed",
    "cancelled",
    "unknown",
    "not-begun",
    "left",
    "parked",
    "started",
    "not-started",
    "settled",
];

/// A run that has ended. All words are of closed lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunEnd {
    /// What it was for.
    pub kind: &'static str,
    /// How it ended.
    pub result: &'static str,
    /// Its guests, by what became of them.
    pub guests: BTreeMap<&'static str, u64>,
    /// How long each of its phases took, those that it had not included.
    pub phases: BTreeMap<&'static str, Duration>,
}

/// A run that is being carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunUnderWay {
    /// What it is for.
    pub kind: &'static str,
    /// When it was asked for, since 1970.
    pub began: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    kind: &'static str,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Guests {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Phase {
    kind: &'static str,
    phase: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

/// Runs whose end this host wrote down.
#[derive(Debug, Default)]
pub(super) struct Runs {
    ended: Family<Ended, Counter>,
    guests: Family<Guests, Counter>,
    phases: Family<Phase, Number>,
}

impl Runs {
    /// Counters at zero: one that appears with its first event hides that event from `rate()`.
    pub(super) fn register(&self, registry: &mut Registry) {
        for kind in KINDS {
            for result in RESULTS {
                drop(self.ended.get_or_create(&Ended { kind, result }));
            }
        }
        for outcome in OUTCOMES {
            drop(self.guests.get_or_create(&Guests { outcome }));
        }
        registry.register(
            "runs",
            "Runs whose end this host wrote down",
            self.ended.clone(),
        );
        registry.register(
            "run_guests",
            "Guests of these runs, by what became of them",
            self.guests.clone(),
        );
        registry.register(
            "run_phase_seconds",
            "How long each phase of the last of these runs took",
            self.phases.clone(),
        );
    }

    pub(super) fn ended(&self, run: &RunEnd) {
        let (kind, result) = (run.kind, run.result);
        self.ended.get_or_create(&Ended { kind, result }).inc();
        for (outcome, count) in &run.guests {
            self.guests
                .get_or_create(&Guests { outcome })
                .inc_by(*count);
        }
        for (phase, lasted) in &run.phases {
            let phase = self.phases.get_or_create(&Phase { kind, phase });
            phase.set(lasted.as_secs_f64());
        }
    }
}

/// Whether a run is carried out here, and since when it is under way.
pub(super) fn under_way(registry: &mut Registry, run: Option<RunUnderWay>) {
    let is_one: Gauge = Gauge::default();
    is_one.set(i64::from(run.is_some()));
    registry.register(
        "run_under_way",
        "Whether this host carries a run out: 1 or 0",
        is_one,
    );
    let since: Family<Kind, Number> = Family::default();
    if let Some(RunUnderWay { kind, began }) = run {
        since.get_or_create(&Kind { kind }).set(began.as_secs_f64());
    }
    registry.register(
        "run_start_timestamp_seconds",
        "When the run that this host carries out was asked for",
        since,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A drain that moved two guests in a minute.
    fn drained() -> RunEnd {
        RunEnd {
            kind: "drain",
            result: "completed",
            guests: [("moved", 2)].into(),
            phases: [("moving", Duration::from_secs(60))].into(),
        }
    }

    fn text(runs: &Runs, now: Option<RunUnderWay>) -> String {
        let mut registry = Registry::with_prefix("drover");
        runs.register(&mut registry);
        under_way(&mut registry, now);
        let mut out = String::new();
        prometheus_client::encoding::text::encode_registry(&mut out, &registry).unwrap();
        out
    }

    #[test]
    fn runs_and_their_guests_add_up_and_phases_are_those_of_the_last_one() {
        let runs = Runs::default();
        runs.ended(&drained());
        let phases = [("moving", Duration::from_millis(1500))].into();
        runs.ended(&RunEnd {
            phases,
            ..drained()
        });
        let text = text(&runs, None);
        for line in [
            "drover_runs_total{kind=\"drain\",result=\"completed\"} 2\n",
            "drover_runs_total{kind=\"resume\",result=\"partial\"} 0\n",
            "drover_run_guests_total{outcome=\"moved\"} 4\n",
            "drover_run_guests_total{outcome=\"failed\"} 0\n",
            "drover_run_phase_seconds{kind=\"drain\",phase=\"moving\"} 1.5\n",
            "drover_run_under_way 0\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
        assert!(
            !text.contains("drover_run_start_timestamp_seconds{"),
            "{text}"
        );
    }

    #[test]
    fn a_run_under_way_is_told_with_its_kind_and_beginning() {
        let now = RunUnderWay {
            kind: "rebalance",
            began: Duration::from_secs(1_800_000_000),
        };
        let text = text(&Runs::default(), Some(now));
        for line in [
            "drover_run_under_way 1\n",
            "drover_run_start_timestamp_seconds{kind=\"rebalance\"} 1800000000.0\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }
}
