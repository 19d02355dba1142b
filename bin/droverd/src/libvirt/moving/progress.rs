use std::time::Duration;

use drover_hypervisor::{MigrationProgress, MigrationStatus};
use drover_libvirt::Job;
use drover_types::{BitRate, Bytes};

/// Bits of a byte.
const BITS: u64 = 8;

/// What libvirt counts of a migration, in a hypervisor's terms. It tells of all channels together.
pub fn of_job(job: &Job) -> MigrationProgress {
    let bytes = |bytes: Option<Bytes>| bytes.unwrap_or(Bytes(0));
    MigrationProgress {
        expected_downtime: job.downtime,
        transferred: bytes(job.carried),
        remaining: bytes(job.remaining),
        total: bytes(job.memory),
        total_time: job.elapsed.unwrap_or_default(),
        page_size: bytes(job.page_size),
        dirty_pages_per_second: job.dirty_pages_per_second.unwrap_or(0),
        rounds: job.rounds.unwrap_or(0),
        setup_time: job.setup_time,
        zero_pages: job.zero_pages.unwrap_or(0),
        normal_pages: job.normal_pages.unwrap_or(0),
        throttle: u8::try_from(job.throttle.unwrap_or(0)).unwrap_or(u8::MAX),
        rate: BitRate(job.rate.map_or(0, |rate| rate.0.saturating_mul(BITS))),
        ..of(MigrationStatus::Active)
    }
}

/// One of which no more is known.
pub fn of(status: MigrationStatus) -> MigrationProgress {
    MigrationProgress {
        status,
        total_time: Duration::ZERO,
        setup_time: None,
        downtime: None,
        expected_downtime: None,
        transferred: Bytes(0),
        multifd: Bytes(0),
        remaining: Bytes(0),
        total: Bytes(0),
        zero_pages: 0,
        normal_pages: 0,
        page_size: Bytes(0),
        dirty_pages_per_second: 0,
        rounds: 0,
        rate: BitRate(0),
        throttle: 0,
        postcopy_bytes: Bytes(0),
        postcopy_requests: 0,
        error: None,
    }
}

/// One that has failed.
pub fn failed(why: String) -> MigrationProgress {
    MigrationProgress {
        error: Some(why),
        ..of(MigrationStatus::Failed)
    }
}
