//! What others may know of a migration while its task works on it.

use std::sync::Arc;
use std::time::Duration;

use drover_api::{
    DisksView, EventKind, EventView, MigrationPhase, MigrationRole, MigrationView, NicPair,
    Refusal, TrafficView,
};
use drover_hypervisor::{DiskProgress, MigrationProgress};
use drover_migrate::downtime::RoundSeen;
use drover_migrate::estimate::{Estimator, Sample, TimeLeft};
use drover_migrate::{HandOffAnswer, Migration, Resolution, Resolving, Verdict};
use drover_types::{ByteRate, Bytes};
use jiff::Timestamp;

use super::events::Events;
use crate::libvirt::DomainRecord;

/// The state of a migration at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// What is shown.
    pub view: MigrationView,
    /// What happened.
    pub events: Arc<Events>,
    /// The source's verdict, as far as it is on disk.
    pub verdict: Verdict,
    /// The destination's answer to being told to run the guest.
    pub answer: Option<HandOffAnswer>,
    /// When the guest began to run on the destination.
    pub resumed_at: Option<Timestamp>,
    /// What an operator decided in the other host's place, once it is on disk and as long as it
    /// counts.
    pub resolution: Option<Resolution>,
    /// What became of an operator's last wish to decide.
    pub resolving: Resolving,
    /// What is known of its guest beside, where it is a domain of libvirt's.
    pub domain: Option<DomainRecord>,
    /// Why it was refused before anything was changed.
    pub refusal: Option<Refusal>,
    /// The version of the QEMU that waits, on the destination.
    pub qemu_version: Option<String>,
    /// The QEMU of an arriving guest can be told to let it go on before its pages do.
    pub postcopy: bool,
    /// Preparations are over, one way or the other.
    pub prepared: bool,
    /// Its paths are all known: by this agent's own work, or by a relay that it found again.
    pub is_whole: bool,
    /// The turn to change it after its end, of all copies of it.
    pub amending: Arc<tokio::sync::Mutex<()>>,
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
            other_agent: Vec::new(),
            phase,
            cause: None,
            guest: None,
            next: None,
            ambiguity: None,
            resolution: None,
            postcopy: None,
            disks: None,
            started_at: Timestamp::now(),
            ended_at: None,
            prepare_ms: None,
            total_ms: None,
            downtime_ms: None,
            bytes: drover_api::BytesView::default(),
            dirty_rate: None,
            throttle_percent: None,
            round: 0,
            rate: ByteRate(0),
            time_left_ms: None,
            time_left_least_ms: None,
            time_left_most_ms: None,
            channels: None,
            chunk_bytes: None,
            window_bytes: None,
            encryption: None,
            verify: false,
            data_path: None,
            reduction: None,
            expansion: None,
            shared_pages: None,
            paths: Vec::new(),
            limit: None,
            traffic: TrafficView::default(),
            nics: Vec::new(),
            channel_traffic: Vec::new(),
            hedged_chunks: 0,
            duplicate_chunks: 0,
            outages: 0,
            left_out: Vec::new(),
            notes: Vec::new(),
            bulk_goodput: None,
            relay: None,
            cpu_latency: None,
            idle_states: Vec::new(),
            interrupts: Vec::new(),
        };
        let mut snapshot = Self::of(view, Verdict::Undecided, Vec::new());
        snapshot.is_whole = true;
        snapshot.record(EventKind::Asked);
        snapshot
    }

    /// Of a migration that is known from the journal.
    pub fn of(view: MigrationView, verdict: Verdict, events: Vec<EventView>) -> Self {
        Self {
            view,
            events: Arc::new(Events::of(events)),
            verdict,
            answer: None,
            resumed_at: None,
            resolution: None,
            resolving: Resolving::No,
            domain: None,
            refusal: None,
            qemu_version: None,
            postcopy: false,
            prepared: false,
            is_whole: false,
            amending: Arc::default(),
        }
    }

    /// It has ended, and something is still to be done of its domain.
    pub fn owes(&self) -> bool {
        let owes = |domain: &DomainRecord| !domain.owes.is_empty();
        self.view.phase.has_ended() && self.domain.as_ref().is_some_and(owes)
    }

    /// It has ended where a guest of the agent's own did not come: what was made there for its disks may be left.
    pub fn may_have_files(&self) -> bool {
        let view = &self.view;
        let came = view.phase == MigrationPhase::Running;
        let arrived = view.role == MigrationRole::Destination && self.domain.is_none();
        arrived && view.phase.has_ended() && !came
    }

    /// Something happened now.
    pub fn record(&mut self, kind: EventKind) {
        self.record_at(Timestamp::now(), kind);
    }

    /// Something happened.
    pub fn record_at(&mut self, at: Timestamp, mut kind: EventKind) {
        if let EventKind::PathLost { path, nics, .. } | EventKind::PathBack { path, nics, .. } =
            &mut kind
        {
            let mut known = self.view.paths.iter().map(|view| &view.path);
            let known = known.find(|known| known.id == *path);
            *nics = known.map(NicPair::of);
        }
        let notable = kind.is_notable();
        let events = Arc::make_mut(&mut self.events);
        events.add(at, kind);
        if notable {
            self.view.notes = events.notes();
        }
    }

    /// Takes QEMU's numbers over.
    pub fn show_progress(&mut self, progress: &MigrationProgress) {
        if let Some(DiskProgress { copied, total }) = progress.disks {
            self.view.disks = Some(DisksView { copied, total });
        }
        // After a cancel QEMU tells no numbers any more: the last ones stay.
        if progress.total == Bytes(0) {
            return;
        }
        let view = &mut self.view;
        if progress.postcopy_bytes > Bytes(0) {
            let postcopy = view.postcopy.get_or_insert_default();
            postcopy.bytes = progress.postcopy_bytes;
            postcopy.requests = progress.postcopy_requests;
        }
        view.bytes.total = progress.total;
        view.bytes.transferred = progress.transferred;
        view.bytes.remaining = progress.remaining;
        let throttle = Some(progress.throttle).filter(|percent| *percent > 0);
        let slower = throttle > view.throttle_percent;
        view.throttle_percent = throttle;
        let new_round = progress.rounds > view.round;
        view.round = progress.rounds;
        let dirty_rate = dirty_rate(progress);
        view.dirty_rate = Some(dirty_rate);
        if slower && let Some(percent) = throttle {
            self.record(EventKind::Throttled { percent });
        }
        if new_round {
            self.record(EventKind::Round {
                round: progress.rounds,
                remaining: progress.remaining,
                dirty_rate: (dirty_rate > ByteRate(0)).then_some(dirty_rate),
            });
        }
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
        copied_for: progress.total_time,
        transferred: progress.transferred,
        remaining: progress.remaining,
        whole: pages(progress.normal_pages, progress),
        zero: pages(progress.zero_pages, progress),
        round: progress.rounds,
        dirty_rate: dirty_rate(progress),
        throttle: progress.throttle,
    }
}

fn pages(count: u64, progress: &MigrationProgress) -> Bytes {
    Bytes(count.saturating_mul(progress.page_size.0))
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
    show_time_left(&mut snapshot.view, estimate.time_left);
}

/// Shows how long it will take; nothing where that cannot be said.
pub fn show_time_left(view: &mut MigrationView, left: TimeLeft) {
    let millis = |time: Duration| u64::try_from(time.as_millis()).ok();
    let [expected, least, most] = match left {
        TimeLeft::Unknown | TimeLeft::Never => [None; 3],
        TimeLeft::About {
            expected,
            least,
            most,
        } => [Some(expected), Some(least), most],
    };
    view.time_left_ms = expected.and_then(millis);
    view.time_left_least_ms = least.and_then(millis);
    view.time_left_most_ms = most.and_then(millis);
}

/// Snapshots for tests of what is shown of a migration.
#[cfg(test)]
pub mod samples {
    use drover_types::MigrationId;

    use super::*;

    /// Of a guest that begins to leave this host.
    pub fn leaving() -> Snapshot {
        let migration = Migration {
            id: MigrationId::from_bytes([1; 16]),
            vm: "web".parse().unwrap(),
            source: "a".parse().unwrap(),
            destination: "b".parse().unwrap(),
        };
        Snapshot::new(&migration, MigrationRole::Source)
    }

    /// What its history tells since that was asked for.
    pub fn told_since(snapshot: &Snapshot) -> Vec<String> {
        let events = snapshot.events.list().iter();
        let events = events.map(|event| event.text.clone());
        events.filter(|text| text != "asked for").collect()
    }
}
