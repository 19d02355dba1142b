use std::time::Duration;

use drover_types::{ByteRate, Throttle, ThrottleMost};

use crate::limits;

/// How a migration is to be carried. Both sides must be given the same `channels` and
/// `compression` before it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationSettings {
    /// Multifd channels beside the main channel; 0 sends everything on the main channel.
    pub channels: u8,
    /// Compression of the multifd channels by the hypervisor itself; needs `channels` above 0.
    pub compression: Option<Compression>,
    /// How long the guest may be stopped for the last round, in whole milliseconds.
    pub downtime_limit: Duration,
    /// Limit of the sending rate; `None` lifts it. It does not hold from postcopy on, when the guest waits for its pages.
    pub max_bandwidth: Option<ByteRate>,
    /// The rate known to be there for the last round, where it is better known than measured. Not
    /// in QEMU before 8.2.
    pub switchover_bandwidth: Option<ByteRate>,
    /// Whether the destination answers on the main channel: the source then completes only when
    /// the destination has loaded everything.
    pub return_path: bool,
    /// Who looks for pages of zeroes.
    pub zero_pages: ZeroPages,
    /// How a guest is slowed down that writes faster than its memory is carried, and the most of its time that
    /// it stands still then; `None` for not at all. Of use on the source only.
    pub throttle: Option<(Throttle, ThrottleMost)>,
    /// Whether [`Movable::start_postcopy`](crate::Movable::start_postcopy) is to be possible, on both sides. A
    /// hypervisor that cannot goes on without, see [`AppliedSettings`]: one without `userfaultfd`, with memory of a kind that
    /// it cannot fetch page by page, or one that does not
    /// [take it with multifd](crate::qmp::Version::takes_postcopy_with_multifd) where there are `channels`.
    pub postcopy: bool,
    /// Whether the source waits at the switchover, its guest stopped, until
    /// [`Storage::switch_over`](crate::Storage::switch_over).
    pub pauses: bool,
}

impl Default for MigrationSettings {
    /// One channel, no limit of the rate, 300 ms of downtime (QEMU's own default), a return path.
    fn default() -> Self {
        Self {
            channels: 0,
            compression: None,
            downtime_limit: limits::DOWNTIME_LIMIT,
            max_bandwidth: None,
            switchover_bandwidth: None,
            return_path: true,
            zero_pages: ZeroPages::MachineDefault,
            throttle: None,
            postcopy: false,
            pauses: false,
        }
    }
}

/// Who looks for pages of zeroes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ZeroPages {
    /// As the guest's machine type has it: the multifd threads from machine types of 9.0 on, the
    /// main thread for older ones, which any QEMU understands.
    #[default]
    MachineDefault,
    /// The multifd threads, for any machine type. Both sides must be QEMU 9.0 or later: an older
    /// destination loses the zero pages without noticing.
    Multifd,
}

/// Compression of multifd channels by the hypervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// zlib.
    Zlib {
        /// 1 (fast) to 9; 0 sends it uncompressed in zlib's frames.
        level: u8,
    },
    /// Zstandard.
    Zstd {
        /// 1 (fast) to 20.
        level: u8,
    },
}

impl MigrationSettings {
    /// What contradicts itself or is out of range, if anything: not every QEMU looks (7.2 takes
    /// any level and fails later).
    pub(crate) fn problem(&self) -> Option<String> {
        let (name, level, most) = match self.compression? {
            _ if self.channels == 0 => {
                return Some("compression needs at least one multifd channel".to_owned());
            }
            Compression::Zlib { level } => ("zlib", level, 9),
            Compression::Zstd { level } => ("zstd", level, 20),
        };
        let range = 0..=most;
        (!range.contains(&level)).then(|| format!("{name} has levels 0 to {most}, not {level}"))
    }
}

/// What became of [`MigrationSettings`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AppliedSettings {
    /// Settings that this hypervisor does not have, by its name for them, and where it refused one for this guest
    /// its reason. The migration works without, with less.
    pub left_out: Vec<String>,
    /// Postcopy was asked for and is possible, as far as this side can tell.
    pub postcopy: bool,
}
