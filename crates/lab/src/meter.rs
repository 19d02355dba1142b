//! What one move cost and how long it took, measured the same way for every method.
//!
//! ```text
//!  begin ─────── migrate ──────────────── STOP ── RESUME ── end
//!  |  prepare_ms  |       total_ms               |
//!                                         | downtime_ms
//! ```
//!
//! The moments are QEMU's own events with QEMU's own times: `MIGRATION setup` and `STOP` of the
//! source, `RESUME` of the destination. Both run on one machine and share its clock.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use drover_types::Bytes;
use serde::{Deserialize, Serialize};

use crate::counters::{Nics, QemuThreads, Sample, Sampler, bulk_rate, busiest_second};
use crate::guest::heartbeats::Heartbeats;
use crate::limits;
use crate::monitor::{Monitor, migration_is, named};
use crate::network::nic;
use crate::resident::Resident;
use crate::settings::LabSettings;
use crate::usage::Usage;

/// CPU time of a move, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuSeconds {
    /// QEMU on the source, without the guest's own CPUs.
    pub qemu_source: f64,
    /// QEMU on the destination from its start, without the guest's own CPUs.
    pub qemu_destination: f64,
    /// Drover's agent on the source, with every process of its own.
    pub agent_source: f64,
    /// Drover's agent on the destination, with every process of its own.
    pub agent_destination: f64,
    /// The guest's own CPUs, on the source.
    pub guest: f64,
}

/// One move, measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// From the beginning until QEMU was told to migrate: starting the destination's QEMU and
    /// preparing both.
    pub prepare_ms: f64,
    /// From `migrate` on the source until the guest ran on the destination. Where disks go with the guest, from the order, as they are
    /// copied before.
    pub total_ms: f64,
    /// From the guest's stop on the source until it ran on the destination.
    pub downtime_ms: f64,
    /// The guest's longest silence from the beginning on, heard from outside.
    pub guest_gap_ms: f64,
    /// Pages that the guest rewrote a second, before it was moved.
    #[serde(default)]
    pub rewrites_before: Option<f64>,
    /// The same from the migration's begin to the guest's stop.
    #[serde(default)]
    pub rewrites_during: Option<f64>,
    /// Bytes that the source sent, by NIC.
    pub wire_bytes: BTreeMap<String, u64>,
    /// CPU time.
    pub cpu_seconds: CpuSeconds,
    /// The most memory of their own that the agents of source and destination had at once, without
    /// files that are mapped.
    #[serde(default)]
    pub agent_memory: [Bytes; 2],
    /// Bytes on all NICs in the busiest second.
    #[serde(default)]
    pub busiest_second: u64,
    /// Bytes a second on all NICs between 5 % and 95 % of all bytes.
    pub bulk_wire_rate: Option<f64>,
    /// That as a part of all NICs' rates together, used or not; none for unlimited NICs.
    pub line_share: Option<f64>,
    /// What QEMU says it sent; without drover's and TCP's framing.
    pub payload_bytes: u64,
    /// The payload's part of [`line_share`](Self::line_share): what arrives in the guest.
    pub goodput_share: Option<f64>,
    /// Rounds over the memory.
    pub rounds: u64,
    /// Bytes on the NICs over time.
    #[serde(skip)]
    pub(crate) samples: Vec<Sample>,
}

impl Measured {
    /// The same, with the time from the order to QEMU's `migrate` counted as the move's.
    pub(crate) fn since_the_order(self) -> Self {
        Self {
            prepare_ms: 0.0,
            total_ms: self.prepare_ms + self.total_ms,
            ..self
        }
    }
}

/// A measurement under way.
#[derive(Debug)]
pub struct Meter {
    begin: Instant,
    begin_us: u64,
    mark: usize,
    sampler: Sampler,
}

/// What is known of a QEMU at its end or at the move's.
#[derive(Debug, Clone, Copy, Default)]
pub struct QemuTotals {
    /// What QEMU says it sent.
    pub payload_bytes: u64,
    /// Rounds over the memory.
    pub rounds: u64,
}

impl Meter {
    /// Begins; `agents` are the process ids of the agents of source and destination, if they take
    /// part.
    ///
    /// # Errors
    /// A process that is not there.
    pub async fn begin(
        lab: &LabSettings,
        source: &Resident,
        agents: Option<[u32; 2]>,
    ) -> Result<Self> {
        let threads = QemuThreads::of(source.pid, &source.monitor.vcpu_threads().await?);
        let agents = agents.map(Usage::begin).transpose()?;
        let nics = Nics::of(source.pid, lab.nics.len())?;
        Ok(Self {
            begin: Instant::now(),
            begin_us: now_us(),
            mark: source.monitor.mark(),
            sampler: Sampler::start(nics, threads, agents)?,
        })
    }

    /// The place in the source's events where this move begins.
    #[must_use]
    pub fn mark(&self) -> usize {
        self.mark
    }

    /// Ends, when the guest runs on the destination.
    ///
    /// # Errors
    /// An event that must have come has not, or a process is gone.
    pub async fn end(
        self,
        lab: &LabSettings,
        source: &Resident,
        destination: (&Monitor, u32),
        totals: QemuTotals,
    ) -> Result<Measured> {
        let end = Instant::now();
        let sampled = self.sampler.finish()?;
        let (samples, cpus) = (sampled.nics, sampled.cpu);
        let used = sampled.agents.unwrap_or_default();
        let moment = |what: &str, at: Option<u64>| {
            at.with_context(|| format!("QEMU gave no event for {what}"))
        };
        let migrate = moment(
            "the migration's begin",
            source.monitor.seen(self.mark, migration_is("setup")),
        )?;
        let stop = moment(
            "the guest's stop",
            source.monitor.seen(self.mark, named("STOP")),
        )?;
        let resume = moment("the guest's resume", destination.0.seen(0, named("RESUME")))?;

        // One heartbeat after the hand-off shows the whole silence.
        let gap = source
            .console
            .heartbeats(|beats| beats.longest_gap(self.begin, end));
        let at = |us: u64| self.begin + Duration::from_micros(us.saturating_sub(self.begin_us));
        let rewrites = |from: Instant, until: Instant| {
            let of_heartbeats =
                |beats: &Heartbeats| beats.rewrite_rate([from, until], |beat| beat.rewrites);
            source.console.heartbeats(of_heartbeats)
        };
        let before = self.begin.checked_sub(limits::BEFORE);
        let bulk = bulk_rate(&samples);
        let share = bulk
            .zip(lab.total_rate())
            .map(|(rate, line)| rate * 8.0 / line.0 as f64);
        let wire: u64 = samples.last().map_or(0, |sample| sample.sent.iter().sum());
        let payload_part = totals.payload_bytes as f64 / (wire as f64).max(1.0);
        Ok(Measured {
            prepare_ms: millis(self.begin_us, migrate),
            total_ms: millis(migrate, resume),
            downtime_ms: millis(stop, resume),
            guest_gap_ms: gap.map_or(f64::NAN, |gap| gap.as_secs_f64() * 1e3),
            rewrites_before: before.and_then(|before| rewrites(before, self.begin)),
            rewrites_during: rewrites(at(migrate), at(stop)),
            wire_bytes: by_nic(samples.last()),
            cpu_seconds: CpuSeconds {
                qemu_source: cpus.qemu.as_secs_f64(),
                guest: cpus.guest.as_secs_f64(),
                qemu_destination: cpu_at_end(destination).await?,
                agent_source: used[0].cpu.as_secs_f64(),
                agent_destination: used[1].cpu.as_secs_f64(),
            },
            agent_memory: used.map(|used| used.memory),
            busiest_second: busiest_second(&samples),
            bulk_wire_rate: bulk,
            line_share: share,
            payload_bytes: totals.payload_bytes,
            goodput_share: share.map(|share| share * payload_part.min(1.0)),
            rounds: totals.rounds,
            samples,
        })
    }
}

async fn cpu_at_end((monitor, pid): (&Monitor, u32)) -> Result<f64> {
    let threads = QemuThreads::of(pid, &monitor.vcpu_threads().await?);
    let now = threads
        .cpu()
        .with_context(|| format!("QEMU {pid} of the destination is gone"))?;
    Ok(now.qemu.as_secs_f64())
}

fn by_nic(sample: Option<&Sample>) -> BTreeMap<String, u64> {
    let sent = sample
        .map(|sample| sample.sent.as_slice())
        .unwrap_or_default();
    sent.iter()
        .enumerate()
        .map(|(number, bytes)| (nic(number), *bytes))
        .collect()
}

pub(crate) fn millis(from_us: u64, to_us: u64) -> f64 {
    (to_us as f64 - from_us as f64) / 1e3
}

/// The system's clock in microseconds since 1970, as QEMU's events have it.
pub(crate) fn now_us() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_microsecond()).unwrap_or(0)
}
