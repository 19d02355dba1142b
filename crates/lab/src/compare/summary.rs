//! The result of a comparison: every run, and what they say together.

use std::collections::BTreeMap;

use drover_api::{ExpansionView, LaneEncryption, MigrationView, ReductionView, SharedPagesView};
use drover_types::{ByteRate, Bytes};
use serde::{Deserialize, Serialize};

use super::Plan;
use super::disks::DiskFacts;
use super::foretold::Foretold;
use super::method::{Method, Variant};
use super::ordeal::{FaultSummary, Faulted};
use super::reduced::ReducedSummary;
use crate::machine::Machine;
use crate::meter::Measured;
use crate::network::HOSTS;

/// One move.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// How it was moved.
    pub method: Method,
    /// And with which settings.
    pub variant: Variant,
    /// The number of the repeat, from 0.
    pub repeat: usize,
    /// The host that it left.
    pub from: String,
    /// The host that it went to.
    pub to: String,
    /// The guest verified every page after it, and its heartbeat never went back.
    pub verified: bool,
    /// What was measured, if it succeeded.
    #[serde(flatten)]
    pub measured: Option<Measured>,
    /// What became of the guest's own disk, where it has one and arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskFacts>,
    /// What drover's agents say of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drover: Option<DroverFacts>,
    /// What went wrong on purpose, and what became of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub faulted: Option<Faulted>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Run {
    pub(super) fn new(method: Method, variant: Variant, repeat: usize, hosts: [usize; 2]) -> Self {
        let [from, to] = hosts.map(|host| HOSTS[host].to_owned());
        Self {
            method,
            variant,
            repeat,
            from,
            to,
            verified: false,
            measured: None,
            disk: None,
            drover: None,
            faulted: None,
            error: None,
        }
    }

    /// Its total time, if it succeeded and the guest verified it.
    #[must_use]
    pub fn total_ms(&self) -> Option<f64> {
        self.measured
            .as_ref()
            .filter(|_| self.verified)
            .map(|measured| measured.total_ms)
    }
}

/// What drover's agents say of a run, to hold against what was measured from outside.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DroverFacts {
    /// Their total time.
    pub total_ms: Option<u64>,
    /// Their downtime.
    pub downtime_ms: Option<u64>,
    /// Payload between 5 % and 95 % of the bytes, in bytes a second.
    pub bulk_goodput: Option<ByteRate>,
    /// QEMU's channels.
    pub channels: Option<u8>,
    /// Lanes on each path.
    pub lanes: Vec<usize>,
    /// Bytes sent again.
    pub resent_bytes: u64,
    /// Bytes of drover's own framing.
    pub protocol_bytes: u64,
    /// What protected the bytes on their way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<LaneEncryption>,
    /// What was said of the time left at a quarter of the work, where it was watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foretold: Option<Foretold>,
    /// How bytes were reduced, and what came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reduction: Option<ReductionView>,
    /// What the destination made of what arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expansion: Option<ExpansionView>,
    /// What the guest found among pages that the destination's host has stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_pages: Option<SharedPagesView>,
    /// What was used instead of something else, and why.
    pub notes: Vec<String>,
    /// NICs and addresses that were not used, and why.
    #[serde(default)]
    pub left_out: Vec<String>,
}

impl DroverFacts {
    /// From the views of the source's agent and of the destination's.
    #[must_use]
    pub fn of([view, arrived]: &[MigrationView; 2]) -> Self {
        let lanes = || view.paths.iter().flat_map(|path| &path.lanes);
        Self {
            total_ms: view.total_ms,
            downtime_ms: view.downtime_ms,
            bulk_goodput: view.bulk_goodput,
            channels: view.channels,
            lanes: view.paths.iter().map(|path| path.lanes.len()).collect(),
            resent_bytes: lanes().map(|lane| lane.traffic.resent_bytes.0).sum(),
            protocol_bytes: lanes().map(|lane| lane.traffic.protocol_bytes.0).sum(),
            encryption: view.encryption,
            foretold: None,
            reduction: view.reduction.clone(),
            expansion: arrived.expansion,
            shared_pages: arrived.shared_pages.clone(),
            notes: view.notes.clone(),
            left_out: view
                .left_out
                .iter()
                .map(|one| format!("{}: {}", one.what, one.reason))
                .collect(),
        }
    }
}

/// A method that was asked for and could not be measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Which.
    pub method: Method,
    /// Why.
    pub because: String,
}

/// The middle of several values, and the farthest.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The middle one; of an even number the mean of the two.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of these values; `None` of none.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| !value.is_nan()).collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let half = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[half]
        } else {
            f64::midpoint(values[half - 1], values[half])
        };
        Some(Self { median, min, max })
    }
}

/// What the runs of one method say together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Runs that succeeded and were verified.
    pub verified: usize,
    /// All runs.
    pub runs: usize,
    /// The settings that were used.
    pub variant: Variant,
    /// Total time.
    pub total_ms: Option<Spread>,
    /// Downtime.
    pub downtime_ms: Option<Spread>,
    /// The guest's longest silence.
    pub guest_gap_ms: Option<Spread>,
    /// Bytes on all NICs, headers included.
    #[serde(default)]
    pub wire_bytes: Option<Spread>,
    /// Part of all NICs' rates together that was used in the bulk of the transfer, headers
    /// included.
    pub line_share: Option<Spread>,
    /// The payload's part of it.
    pub goodput_share: Option<Spread>,
    /// Bytes a second on all NICs in the bulk of the transfer.
    pub bulk_wire_rate: Option<Spread>,
    /// CPU seconds of QEMU on both hosts, without the guest's own CPUs.
    pub qemu_cpu: Option<Spread>,
    /// CPU seconds of the agents on both hosts.
    pub agent_cpu: Option<Spread>,
    /// The agents' CPU seconds for each GiB of payload.
    pub agent_cpu_per_gib: Option<Spread>,
    /// CPU seconds of QEMU and the agents, on both hosts, for each GiB of payload.
    #[serde(default)]
    pub cpu_per_gib: Option<Spread>,
    /// Bytes of payload a second, from the first to the last.
    #[serde(default)]
    pub payload_rate: Option<Spread>,
    /// Pages that the guest rewrote a second before it was moved.
    #[serde(default)]
    pub rewrites_before: Option<Spread>,
    /// The same while it was moved.
    #[serde(default)]
    pub rewrites_during: Option<Spread>,
    /// The most memory of their own that the agent of either host had at once, in bytes.
    pub agent_memory: Option<Spread>,
    /// What became of the bytes, where they were reduced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reduced: Option<ReducedSummary>,
    /// What became of the guest's own disk, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskSummary>,
    /// Median total time as a part of multifd's; of libvirt's own, where a domain was moved.
    pub total_ratio: Option<f64>,
    /// Median downtime as a part of multifd's; of libvirt's own, where a domain was moved.
    pub downtime_ratio: Option<f64>,
    /// Median total time as a part of multifd-zstd's, or so of virsh-parallel-zstd's.
    #[serde(default)]
    pub zstd_total_ratio: Option<f64>,
    /// Median of the bytes on all NICs as a part of multifd-zstd's, or so of virsh-parallel-zstd's.
    #[serde(default)]
    pub zstd_wire_ratio: Option<f64>,
}

/// What the runs of one method say of the guest's own disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DiskSummary {
    /// Pages that the guest verified and rewrote there a second, before it was moved.
    pub rewrites_before: Option<Spread>,
    /// The same from the order until it ran on the destination.
    pub rewrites_during: Option<Spread>,
    /// What was compared byte by byte after each move, and the same.
    pub compared: Bytes,
}

impl DiskSummary {
    fn of(runs: &[&Run]) -> Option<Self> {
        let facts = || {
            runs.iter()
                .filter(|run| run.verified)
                .filter_map(|run| run.disk)
        };
        Some(Self {
            rewrites_before: Spread::of(facts().filter_map(|disk| disk.rewrites_before)),
            rewrites_during: Spread::of(facts().filter_map(|disk| disk.rewrites_during)),
            compared: facts().map(|disk| disk.compared).min()?,
        })
    }
}

/// A whole comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The command that made it.
    pub command: String,
    /// When it ended.
    pub at: jiff::Timestamp,
    /// The machine.
    pub machine: Machine,
    /// What was asked for.
    pub settings: Plan,
    /// What could not be had.
    pub skipped: Vec<Skipped>,
    /// Runs that only found each method's best settings.
    pub calibration: Vec<Run>,
    /// The runs that count, in their order.
    pub runs: Vec<Run>,
    /// What they say, by method, of those without a fault.
    pub summary: BTreeMap<Method, Summary>,
    /// What they say, by method, of those with faults.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub faulted: BTreeMap<Method, FaultSummary>,
}

impl Comparison {
    pub(super) fn new(
        command: &str,
        machine: Machine,
        settings: Plan,
        skipped: Vec<Skipped>,
        calibration: Vec<Run>,
        runs: Vec<Run>,
    ) -> Self {
        Self {
            command: command.to_owned(),
            at: jiff::Timestamp::now(),
            machine,
            settings,
            skipped,
            calibration,
            summary: summarise(&runs),
            faulted: Method::ALL
                .into_iter()
                .filter_map(|method| {
                    let own: Vec<_> = runs.iter().filter(|run| run.method == method).collect();
                    FaultSummary::of(&own).map(|summary| (method, summary))
                })
                .collect(),
            runs,
        }
    }

    /// Runs that are as they have to be, and all. Where faults were wanted, what becomes of a peer's
    /// move is a result like any other.
    #[must_use]
    pub fn good(&self) -> [usize; 2] {
        let good = |run: &&Run| match &run.faulted {
            Some(_) if run.method.encryption().is_none() => true,
            _ => run.verified,
        };
        [self.runs.iter().filter(good).count(), self.runs.len()]
    }
}

fn summarise(runs: &[Run]) -> BTreeMap<Method, Summary> {
    let mut summary = BTreeMap::new();
    for method in Method::ALL {
        let of_method = |run: &&Run| run.method == method && run.faulted.is_none();
        let own: Vec<_> = runs.iter().filter(of_method).collect();
        if let Some(last) = own.last() {
            summary.insert(method, of_runs(last.variant, &own));
        }
    }
    let measure = |of: &[Method]| first(&summary, of).map(|(_, own)| own.clone());
    let (multifd, zstd) = (measure(&Method::PLAIN), measure(&Method::COMPRESSED));
    for own in summary.values_mut() {
        let part = |base: &Option<Summary>, what: fn(&Summary) -> Option<Spread>| {
            let base = base.as_ref().and_then(what);
            what(own)
                .zip(base)
                .map(|(own, base)| own.median / base.median)
        };
        let total_ratio = part(&multifd, |m| m.total_ms);
        let downtime_ratio = part(&multifd, |m| m.downtime_ms);
        let zstd_total_ratio = part(&zstd, |m| m.total_ms);
        let zstd_wire_ratio = part(&zstd, |m| m.wire_bytes);
        *own = Summary {
            total_ratio,
            downtime_ratio,
            zstd_total_ratio,
            zstd_wire_ratio,
            ..own.clone()
        };
    }
    summary
}

/// The first of these methods that was measured, with what its runs say.
pub(super) fn first<'a>(
    summary: &'a BTreeMap<Method, Summary>,
    of: &[Method],
) -> Option<(Method, &'a Summary)> {
    of.iter()
        .find_map(|method| Some((*method, summary.get(method)?)))
}

fn of_runs(variant: Variant, runs: &[&Run]) -> Summary {
    let good: Vec<_> = runs
        .iter()
        .filter(|run| run.verified)
        .filter_map(|run| run.measured.as_ref())
        .collect();
    let verified = runs.iter().filter(|run| run.verified);
    let facts: Vec<_> = verified.filter_map(|run| run.drover.as_ref()).collect();
    let spread = |value: fn(&Measured) -> Option<f64>| {
        Spread::of(good.iter().filter_map(|measured| value(measured)))
    };
    Summary {
        verified: good.len(),
        runs: runs.len(),
        variant,
        total_ms: spread(|m| Some(m.total_ms)),
        downtime_ms: spread(|m| Some(m.downtime_ms)),
        guest_gap_ms: spread(|m| Some(m.guest_gap_ms)),
        wire_bytes: spread(|m| Some(m.wire_bytes.values().sum::<u64>() as f64)),
        line_share: spread(|m| m.line_share),
        goodput_share: spread(|m| m.goodput_share),
        bulk_wire_rate: spread(|m| m.bulk_wire_rate),
        qemu_cpu: spread(|m| Some(qemu_cpu(m))),
        agent_cpu: spread(|m| Some(agent_cpu(m))),
        agent_cpu_per_gib: spread(|m| per_gib(m, agent_cpu(m))),
        cpu_per_gib: spread(cpu_per_gib),
        payload_rate: spread(payload_rate),
        agent_memory: spread(|m| {
            let most = m.agent_memory.iter().max().map_or(0, |bytes| bytes.0);
            (most > 0).then_some(most as f64)
        }),
        reduced: ReducedSummary::of(&facts),
        disk: DiskSummary::of(runs),
        rewrites_before: spread(|m| m.rewrites_before),
        rewrites_during: spread(|m| m.rewrites_during),
        total_ratio: None,
        downtime_ratio: None,
        zstd_total_ratio: None,
        zstd_wire_ratio: None,
    }
}

fn qemu_cpu(measured: &Measured) -> f64 {
    measured.cpu_seconds.qemu_source + measured.cpu_seconds.qemu_destination
}

fn per_gib(measured: &Measured, seconds: f64) -> Option<f64> {
    let gib = measured.payload_bytes as f64 / f64::from(1 << 30);
    (gib > 0.0).then_some(seconds / gib)
}

/// What QEMU and the agents took for each GiB of payload.
pub(super) fn cpu_per_gib(measured: &Measured) -> Option<f64> {
    per_gib(measured, qemu_cpu(measured) + agent_cpu(measured))
}

/// Bytes of payload a second.
pub(super) fn payload_rate(measured: &Measured) -> Option<f64> {
    let seconds = measured.total_ms / 1e3;
    (seconds > 0.0).then(|| measured.payload_bytes as f64 / seconds)
}

fn agent_cpu(measured: &Measured) -> f64 {
    measured.cpu_seconds.agent_source + measured.cpu_seconds.agent_destination
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::CpuSeconds;

    fn run(method: Method, total_ms: f64, verified: bool) -> Run {
        let measured = Measured {
            prepare_ms: 1.0,
            total_ms,
            downtime_ms: total_ms / 10.0,
            guest_gap_ms: total_ms / 5.0,
            rewrites_before: Some(1000.0),
            rewrites_during: None,
            wire_bytes: BTreeMap::from([("nic0".to_owned(), total_ms as u64)]),
            cpu_seconds: CpuSeconds::default(),
            agent_memory: Default::default(),
            busiest_second: 0,
            bulk_wire_rate: None,
            line_share: Some(0.9),
            payload_bytes: 1 << 30,
            goodput_share: None,
            rounds: 2,
            samples: Vec::new(),
        };
        Run {
            verified,
            measured: Some(measured),
            ..Run::new(method, method.variants()[0], 0, [0, 1])
        }
    }

    #[test]
    fn medians_and_ratios_are_of_verified_runs_only() {
        let runs = [
            run(Method::Multifd, 100.0, true),
            run(Method::Multifd, 200.0, true),
            run(Method::Multifd, 1.0, false),
            run(Method::Drover, 60.0, true),
        ];
        let summary = summarise(&runs);
        let multifd = &summary[&Method::Multifd];
        assert_eq!((multifd.verified, multifd.runs), (2, 3));
        let expected = Spread {
            median: 150.0,
            min: 100.0,
            max: 200.0,
        };
        assert_eq!(multifd.total_ms, Some(expected));
        assert_eq!(summary[&Method::Drover].total_ratio, Some(0.4));
        assert!(!summary.contains_key(&Method::Tcp));
    }

    #[test]
    fn time_and_bytes_are_held_against_qemus_own_compression_where_it_was_measured() {
        let runs = [
            run(Method::MultifdZstd, 100.0, true),
            run(Method::Drover, 60.0, true),
        ];
        let drover = &summarise(&runs)[&Method::Drover];
        // 1 GiB in 60 ms.
        let rate = drover.payload_rate.map(|rate| rate.median);
        assert_eq!(rate, Some(f64::from(1 << 30) / 0.06));
        assert_eq!(drover.cpu_per_gib.map(|cpu| cpu.median), Some(0.0));
        assert_eq!(drover.zstd_total_ratio, Some(0.6));
        assert_eq!(drover.zstd_wire_ratio, Some(0.6));
        assert_eq!(drover.total_ratio, None);
        assert_eq!(drover.rewrites_before.map(|rate| rate.median), Some(1000.0));
    }

    #[test]
    fn a_domain_is_held_against_libvirts_own_ways() {
        let runs = [
            run(Method::Virsh, 200.0, true),
            run(Method::VirshParallel, 100.0, true),
            run(Method::VirshParallelZstd, 80.0, true),
            run(Method::Drover, 40.0, true),
        ];
        let summary = summarise(&runs);
        let drover = &summary[&Method::Drover];
        assert_eq!(drover.total_ratio, Some(0.4));
        assert_eq!(drover.zstd_total_ratio, Some(0.5));
        assert_eq!(summary[&Method::Virsh].total_ratio, Some(2.0));
        let alone = summarise(&runs[..1]);
        let (first, _) = first(&alone, &Method::PLAIN).unwrap();
        assert_eq!(first, Method::Virsh);
    }

    #[test]
    fn what_was_compared_of_disks_is_the_least_of_the_runs_that_are_good() {
        let with_disk = |verified, mib: u64| Run {
            disk: Some(DiskFacts {
                rewrites_before: Some(1000.0),
                rewrites_during: None,
                compared: Bytes(mib << 20),
            }),
            ..run(Method::DroverDisks, 10.0, verified)
        };
        let runs = [with_disk(true, 9), with_disk(true, 8), with_disk(false, 1)];
        let summary = summarise(&runs);
        let disk = summary[&Method::DroverDisks].disk.as_ref().unwrap();
        assert_eq!(disk.compared, Bytes(8 << 20));
        assert_eq!(disk.rewrites_before.map(|rate| rate.median), Some(1000.0));
        assert_eq!(disk.rewrites_during, None);
    }

    #[test]
    fn a_run_in_json_has_its_figures_beside_its_method() {
        let json = serde_json::to_value(run(Method::MultifdZstd, 10.0, true)).unwrap();
        assert_eq!(json["method"], "multifd-zstd");
        assert_eq!(json["total_ms"], 10.0);
        assert_eq!(json["verified"], true);
        assert_eq!(
            serde_json::from_value::<Run>(json).unwrap().total_ms(),
            Some(10.0)
        );
    }

    #[test]
    fn the_median_of_nothing_is_nothing() {
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([f64::NAN]), None);
        assert_eq!(Spread::of([3.0, 1.0, 2.0]).map(|s| s.median), Some(2.0));
    }
}
