//! What others may know of a migration while its task works on it.

use drover_api::{
    LaneState, LaneView, MigrationPhase, MigrationRole, MigrationView, PathView, Refusal,
};
use drover_hypervisor::MigrationProgress;
use drover_migrate::downtime::RoundSeen;
use drover_migrate::estimate::{Estimator, Sample};
use drover_migrate::{HandOffAnswer, Migration, Verdict};
use drover_relay::{LaneEnd, Report};
use drover_types::{ByteRate, Bytes, Path};
use jiff::Timestamp;

use crate::limits;

/// The state of a migration at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// What is shown.
    pub view: MigrationView,
    /// The source's verdict, as far as it is on disk.
    pub verdict: Verdict,
    /// The destination's answer to being told to run the guest.
    pub answer: Option<HandOffAnswer>,
    /// When the guest began to run on the destination.
    pub resumed_at: Option<Timestamp>,
    /// Why it was refused before anything was changed.
    pub refusal: Option<Refusal>,
    /// The version of the QEMU that waits, on the destination.
    pub qemu_version: Option<String>,
    /// Preparations are over, one way or the other.
    pub prepared: bool,
}

impl Snapshot {
    /// Of a migration that begins now.
    pub fn new(migration: &Migration, role: MigrationRole) -> Self {
        let phase = match role {
            MigrationRole::Source => MigrationPhase::Preparing,
            MigrationRole::Destination => MigrationPhase::Prepared,
        };
        let view = MigrationView {
            id: migration.id,
            vm: migration.vm.clone(),
            source: migration.source.clone(),
            destination: migration.destination.clone(),
            role,
            phase,
            cause: None,
            next: None,
            started_at: Timestamp::now(),
            ended_at: None,
            prepare_ms: None,
            total_ms: None,
            downtime_ms: None,
            bytes: drover_api::BytesView::default(),
            dirty_rate: None,
            round: 0,
            rate: ByteRate(0),
            time_left_ms: None,
            channels: None,
            chunk_bytes: None,
            window_bytes: None,
            paths: Vec::new(),
            left_out: Vec::new(),
            notes: Vec::new(),
            bulk_goodput: None,
        };
        Self::of(view, Verdict::Undecided)
    }

    /// Of a migration that is known from the journal.
    pub fn of(view: MigrationView, verdict: Verdict) -> Self {
        Self {
            view,
            verdict,
            answer: None,
            resumed_at: None,
            refusal: None,
            qemu_version: None,
            prepared: false,
        }
    }

    /// Notes a fallback or a choice, once. The oldest make room: lanes can be lost and come back for
    /// as long as a migration takes.
    pub fn note(&mut self, note: String) {
        let notes = &mut self.view.notes;
        if !notes.contains(&note) {
            notes.push(note);
            let surplus = notes.len().saturating_sub(limits::NOTES);
            notes.drain(..surplus);
        }
    }

    /// Takes QEMU's numbers over.
    pub fn show_progress(&mut self, progress: &MigrationProgress) {
        // After a cancel QEMU tells no numbers any more: the last ones stay.
        if progress.total == Bytes(0) {
            return;
        }
        let view = &mut self.view;
        view.bytes.total = progress.total;
        view.bytes.transferred = progress.transferred;
        view.bytes.remaining = progress.remaining;
        view.round = progress.rounds;
        view.dirty_rate = Some(dirty_rate(progress));
    }

    /// Takes the relay's numbers over.
    pub fn show_lanes(&mut self, paths: &[Path], report: &Report, rates: &LaneRates) {
        let lanes_of = |path: &Path| {
            let lanes = report.lanes.iter().filter(|lane| lane.path == path.id);
            lanes.map(|lane| lane_view(lane, rates)).collect()
        };
        let path_view = |path: &Path| PathView {
            path: path.clone(),
            lanes: lanes_of(path),
        };
        self.view.paths = paths.iter().map(path_view).collect();
        self.view.bulk_goodput = report.bulk;
    }
}

/// What is left of lanes when their session is closed.
pub fn end_lanes(view: &mut MigrationView) {
    for lane in view.paths.iter_mut().flat_map(|path| &mut path.lanes) {
        lane.rate = ByteRate(0);
        if lane.state == LaneState::Up {
            lane.state = LaneState::Ended;
        }
    }
    view.rate = ByteRate(0);
}

fn lane_view(lane: &drover_relay::LaneReport, rates: &LaneRates) -> LaneView {
    let stats = &lane.stats;
    let (state, ended_reason) = match &lane.ended {
        None => (LaneState::Up, None),
        Some(LaneEnd::Closed) => (LaneState::Ended, None),
        Some(LaneEnd::Lost(reason)) => (LaneState::Lost, Some(reason.clone())),
    };
    LaneView {
        id: stats.lane,
        state,
        sent_bytes: Bytes(stats.sent_bytes),
        resent_bytes: Bytes(stats.resent_bytes),
        protocol_bytes: Bytes(stats.protocol_bytes),
        received_bytes: Bytes(stats.received_bytes),
        rate: rates.of(stats.lane),
        ended_reason,
    }
}

fn dirty_rate(progress: &MigrationProgress) -> ByteRate {
    ByteRate(
        progress
            .dirty_pages_per_second
            .saturating_mul(progress.page_size.0),
    )
}

/// A sample for the estimate of the time left.
pub fn sample(at: std::time::Duration, progress: &MigrationProgress) -> Sample {
    Sample {
        at,
        transferred: progress.transferred,
        remaining: progress.remaining,
        dirty_rate: dirty_rate(progress),
    }
}

/// A look at the progress as the downtime limit is chosen by.
pub fn round_seen(progress: &MigrationProgress) -> RoundSeen {
    RoundSeen {
        round: progress.rounds,
        remaining: progress.remaining,
        dirty_rate: dirty_rate(progress),
        rate: ByteRate(progress.rate.0 / 8),
    }
}

/// Adds a sample and shows what follows from it.
pub fn show_estimate(snapshot: &mut Snapshot, estimator: &mut Estimator, sample: Sample) {
    estimator.add(sample);
    let estimate = estimator.estimate();
    snapshot.view.rate = estimate.rate;
    snapshot.view.time_left_ms = estimate.time_left.millis();
}

/// Each lane's rate between the last two reports.
#[derive(Debug, Default)]
pub struct LaneRates {
    last: Vec<(u16, u64)>,
    at: Option<std::time::Instant>,
    rates: Vec<(u16, ByteRate)>,
}

impl LaneRates {
    /// Takes a report in. Reports that follow each other at once are not compared.
    pub fn take(&mut self, report: &Report) {
        let now = std::time::Instant::now();
        let elapsed = self.at.map(|at| now - at);
        if elapsed.is_some_and(|elapsed| elapsed < limits::RATE_SPAN) {
            return;
        }
        let carried = |lane: &drover_relay::LaneReport| {
            let stats = &lane.stats;
            (stats.lane, stats.receipted_bytes.max(stats.received_bytes))
        };
        let current: Vec<(u16, u64)> = report.lanes.iter().map(carried).collect();
        if let Some(elapsed) = elapsed {
            let before = |lane: u16| {
                self.last
                    .iter()
                    .find(|(id, _)| *id == lane)
                    .map_or(0, |l| l.1)
            };
            let rate = |&(lane, bytes): &(u16, u64)| {
                let moved = Bytes(bytes.saturating_sub(before(lane)));
                (lane, ByteRate::of(moved, elapsed))
            };
            self.rates = current.iter().map(rate).collect();
        }
        (self.last, self.at) = (current, Some(now));
    }

    fn of(&self, lane: u16) -> ByteRate {
        let found = self.rates.iter().find(|(id, _)| *id == lane);
        found.map_or(ByteRate(0), |(_, rate)| *rate)
    }
}
