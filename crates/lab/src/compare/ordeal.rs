//! What faults did to a move: what became of it, and what they cost beyond the lines they took.

use serde::{Deserialize, Serialize};

use super::method::Method;
use super::summary::{Run, Spread, cpu_per_gib, payload_rate};
use crate::counters::rate_between;
use crate::fault::{Change, Fault, ideal_ms, rate_left};
use crate::meter::Measured;
use crate::settings::LabSettings;

pub use crate::fault::Clean;

/// What became of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The guest runs on the destination.
    Arrived,
    /// Whoever moved it gave it up.
    Failed,
    /// It neither went on nor ended, and the lab gave it up.
    Hung,
}

/// A move with faults.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Faulted {
    /// What was to go wrong.
    pub faults: Vec<Fault>,
    /// What became of the move.
    pub outcome: Outcome,
    /// Whether the guest that did not arrive ran on at the source, with every page verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest_kept: Option<bool>,
    /// What was done to the NICs.
    pub changes: Vec<Change>,
    /// Moves without a fault, to compare with.
    pub clean: Option<Clean>,
    /// What the lines that were left would have needed.
    pub ideal_ms: Option<f64>,
    /// What it took beyond that.
    pub extra_ms: Option<f64>,
    /// From the first change until 95 % of the bytes were sent: the rate, as a part of that of the
    /// lines that were left.
    pub left_share: Option<f64>,
}

/// What is needed to judge such a move.
pub(super) struct Ordeal<'a> {
    pub(super) lab: &'a LabSettings,
    pub(super) method: Method,
    pub(super) faults: &'a [Fault],
    pub(super) clean: Option<Clean>,
    pub(super) changes: Vec<Change>,
}

impl Ordeal<'_> {
    pub(super) fn arrived(self, measured: &Measured) -> Faulted {
        let lines = lines(self.lab, self.method);
        let ideal = self
            .clean
            .and_then(|clean| ideal_ms(clean, &lines, &self.changes));
        Faulted {
            extra_ms: ideal.map(|ideal| measured.total_ms - ideal),
            ideal_ms: ideal,
            left_share: left_share(self.lab, measured, &self.changes),
            ..self.not_arrived(Outcome::Arrived, true).without_fate()
        }
    }

    pub(super) fn not_arrived(self, outcome: Outcome, kept: bool) -> Faulted {
        Faulted {
            faults: self.faults.to_vec(),
            outcome,
            guest_kept: Some(kept),
            changes: self.changes,
            clean: self.clean,
            ideal_ms: None,
            extra_ms: None,
            left_share: None,
        }
    }
}

impl Faulted {
    fn without_fate(self) -> Self {
        Self {
            guest_kept: None,
            ..self
        }
    }
}

/// The rates of the lines that a method uses; unlimited ones count alike.
fn lines(lab: &LabSettings, method: Method) -> Vec<f64> {
    let unlimited = lab.nics.iter().any(Option::is_none);
    let rate = |number: usize| match lab.nics[number] {
        Some(rate) if !unlimited => rate.0 as f64,
        _ => 1.0,
    };
    let used = |number: usize| method.uses_all_nics() || number == lab.fastest();
    (0..lab.nics.len())
        .map(|number| if used(number) { rate(number) } else { 0.0 })
        .collect()
}

fn left_share(lab: &LabSettings, measured: &Measured, changes: &[Change]) -> Option<f64> {
    let first = changes.iter().find(|change| change.part < 1.0)?;
    let lines: Option<Vec<_>> = lab.nics.iter().map(|nic| nic.map(|r| r.0 as f64)).collect();
    let left = rate_left(&lines?, changes) / 8.0;
    let rate = rate_between(&measured.samples, first.sent as f64, 0.95)?;
    (left > 0.0).then(|| rate / left)
}

/// What moves without a fault took: their medians; `None` without any.
pub(crate) fn clean<'r>(runs: impl IntoIterator<Item = &'r Run>, method: Method) -> Option<Clean> {
    let good: Vec<_> = runs
        .into_iter()
        .filter(|run| run.method == method && run.verified && run.faulted.is_none())
        .filter_map(|run| run.measured.as_ref())
        .collect();
    let median = |value: fn(&Measured) -> Option<f64>| {
        Spread::of(good.iter().filter_map(|measured| value(measured))).map(|spread| spread.median)
    };
    Some(Clean {
        total_ms: median(|m| Some(m.total_ms))?,
        gap_ms: median(|m| Some(m.guest_gap_ms))?,
        bytes: median(|m| Some(m.wire_bytes.values().sum::<u64>() as f64))?,
        rate: median(|m| m.bulk_wire_rate)?,
    })
}

/// What the moves of one method with faults say together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FaultSummary {
    /// All of them.
    pub runs: usize,
    /// Those whose guest arrived.
    pub arrived: usize,
    /// Those whose guest arrived and verified every page.
    pub verified: usize,
    /// Those that were given up by whoever moved the guest.
    pub failed: usize,
    /// Those that hung until the lab gave them up.
    pub hung: usize,
    /// Those that did not arrive, and whose guest ran on at the source, verified.
    pub kept: usize,
    /// Total time, of verified ones; so are all figures below.
    pub total_ms: Option<Spread>,
    /// What the lines left would have needed.
    pub ideal_ms: Option<Spread>,
    /// What it took beyond that.
    pub extra_ms: Option<Spread>,
    /// Downtime.
    pub downtime_ms: Option<Spread>,
    /// The guest's longest silence.
    pub guest_gap_ms: Option<Spread>,
    /// Bytes that drover sent again.
    pub resent_bytes: Option<Spread>,
    /// The rate after the fault, as a part of the lines left.
    pub left_share: Option<Spread>,
    /// CPU seconds of QEMU and the agents, on both hosts, for each GiB of payload.
    #[serde(default)]
    pub cpu_per_gib: Option<Spread>,
    /// Bytes of payload a second, from the first to the last.
    #[serde(default)]
    pub payload_rate: Option<Spread>,
}

impl FaultSummary {
    /// Of these runs; `None` when there were no faults in them.
    pub(crate) fn of(runs: &[&Run]) -> Option<Self> {
        let all: Vec<_> = runs
            .iter()
            .filter_map(|run| run.faulted.as_ref().map(|faulted| (*run, faulted)))
            .collect();
        if all.is_empty() {
            return None;
        }
        let count = |is: &dyn Fn(&(&Run, &Faulted)) -> bool| all.iter().filter(|r| is(r)).count();
        let good: Vec<_> = all.iter().filter(|(run, _)| run.verified).collect();
        let spread = |value: &dyn Fn(&Run, &Faulted) -> Option<f64>| {
            Spread::of(good.iter().filter_map(|(run, faulted)| value(run, faulted)))
        };
        let measured = |value: fn(&Measured) -> f64| {
            spread(&|run: &Run, _: &Faulted| run.measured.as_ref().map(value))
        };
        Some(Self {
            runs: all.len(),
            arrived: count(&|(_, faulted)| faulted.outcome == Outcome::Arrived),
            verified: good.len(),
            failed: count(&|(_, faulted)| faulted.outcome == Outcome::Failed),
            hung: count(&|(_, faulted)| faulted.outcome == Outcome::Hung),
            kept: count(&|(_, faulted)| faulted.guest_kept == Some(true)),
            total_ms: measured(|m| m.total_ms),
            ideal_ms: spread(&|_, faulted| faulted.ideal_ms),
            extra_ms: spread(&|_, faulted| faulted.extra_ms),
            downtime_ms: measured(|m| m.downtime_ms),
            guest_gap_ms: measured(|m| m.guest_gap_ms),
            resent_bytes: spread(&|run, _| run.drover.as_ref().map(|d| d.resent_bytes as f64)),
            left_share: spread(&|_, faulted| faulted.left_share),
            cpu_per_gib: spread(&|run, _| cpu_per_gib(run.measured.as_ref()?)),
            payload_rate: spread(&|run, _| payload_rate(run.measured.as_ref()?)),
        })
    }
}
