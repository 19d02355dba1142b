use drover_hypervisor::{DiskProgress, MigrationProgress, MigrationStatus};
use drover_libvirt::Job;
use drover_types::{BitRate, Bytes};

/// Bits of a byte.
const BITS: u64 = 8;

/// What libvirt counts of a migration, in a hypervisor's terms. It tells of all channels together. Disks that are
/// copied count with memory.
pub fn of_job(job: &Job) -> MigrationProgress {
    let bytes = |bytes: Option<Bytes>| bytes.unwrap_or(Bytes(0));
    let both = |memory, disks| Bytes(bytes(memory).0.saturating_add(bytes(disks).0));
    let disks = both(job.disks_carried, job.disks_remaining);
    MigrationProgress {
        expected_downtime: job.downtime,
        transferred: both(job.carried, job.disks_carried),
        remaining: both(job.remaining, job.disks_remaining),
        total: both(job.memory, Some(disks)),
        total_time: job.elapsed.unwrap_or_default(),
        page_size: bytes(job.page_size),
        dirty_pages_per_second: job.dirty_pages_per_second.unwrap_or(0),
        rounds: job.rounds.unwrap_or(0),
        setup_time: job.setup_time,
        zero_pages: job.zero_pages.unwrap_or(0),
        normal_pages: job.normal_pages.unwrap_or(0),
        throttle: u8::try_from(job.throttle.unwrap_or(0)).unwrap_or(u8::MAX),
        rate: BitRate(job.rate.map_or(0, |rate| rate.0.saturating_mul(BITS))),
        disks: disks_of(job),
        ..MigrationProgress::of(MigrationStatus::Active)
    }
}

/// Those that are copied with memory, and count with it.
fn disks_of(job: &Job) -> Option<DiskProgress> {
    let (copied, left) = (job.disks_carried?, job.disks_remaining?);
    let total = Bytes(copied.0.saturating_add(left.0));
    (total > Bytes(0)).then_some(DiskProgress { copied, total })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_that_are_copied_count_with_memory() {
        let told = |bytes| Some(Bytes(bytes));
        let job = Job {
            carried: told(5),
            remaining: told(1),
            memory: told(10),
            disks_carried: told(7),
            disks_remaining: told(2),
            ..Job::default()
        };
        let MigrationProgress {
            transferred,
            remaining,
            total,
            disks,
            ..
        } = of_job(&job);
        let told = DiskProgress {
            copied: Bytes(7),
            total: Bytes(9),
        };
        assert_eq!(disks, Some(told));
        assert_eq!(
            (transferred, remaining, total),
            (Bytes(12), Bytes(3), Bytes(19))
        );
    }
}
