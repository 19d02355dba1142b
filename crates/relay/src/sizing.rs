//! How large chunks and windows are.

use drover_session::limits::USUAL_CHUNK_BYTES;
use drover_types::BitRate;
use drover_wire::limits::WINDOW_CHUNKS_MAX;

use crate::limits::{
    BUFFER_BYTES_MAX, CHUNK_BYTES, UNKNOWN_RATE_BITS, USUAL_CHUNK_LINE, WINDOW_CHUNKS_MIN,
    WINDOW_TIME,
};

/// Sizes that both ends of a session use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Largest chunk in bytes.
    pub chunk_bytes: u32,
    /// Chunks of one direction of one channel that may be on their way.
    pub window: u16,
}

/// Sizes for `channels` channels over lines of these rates: the windows of all channels together
/// hold [`WINDOW_TIME`] of all lines together.
#[must_use]
pub fn sizes(rates: &[Option<BitRate>], channels: u16) -> Sizes {
    let unknown = BitRate(UNKNOWN_RATE_BITS);
    let line: BitRate = rates.iter().map(|rate| rate.unwrap_or(unknown)).sum();
    let bytes = line.bytes_in(WINDOW_TIME).0.min(BUFFER_BYTES_MAX);
    let quick = rates.iter().flatten().all(|rate| *rate > USUAL_CHUNK_LINE);
    let chunk_bytes = if quick {
        CHUNK_BYTES
    } else {
        USUAL_CHUNK_BYTES
    };
    let chunks = bytes / u64::from(channels.max(1)) / u64::from(chunk_bytes);
    let chunks = u16::try_from(chunks).unwrap_or(u16::MAX);
    let window = chunks.clamp(WINDOW_CHUNKS_MIN, WINDOW_CHUNKS_MAX);
    Sizes {
        chunk_bytes,
        window,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_windows_together_hold_fifty_milliseconds_of_all_lines() {
        let gigabit = Some(BitRate(1_000_000_000));
        let Sizes {
            chunk_bytes,
            window,
        } = sizes(&[gigabit, gigabit], 3);
        let held = u64::from(chunk_bytes) * u64::from(window) * 3;
        assert!((11_000_000..=12_500_000).contains(&held), "{held}");
    }

    #[test]
    fn chunks_are_large_only_where_every_line_is_quick() {
        let [quick, slow] = [10_000_000_000, 1_000_000_000].map(|rate| Some(BitRate(rate)));
        assert_eq!(sizes(&[quick, None], 4).chunk_bytes, CHUNK_BYTES);
        assert_eq!(sizes(&[quick, slow], 4).chunk_bytes, USUAL_CHUNK_BYTES);
    }

    #[test]
    fn a_slow_or_unknown_line_and_many_channels_stay_within_bounds() {
        assert_eq!(
            sizes(&[Some(BitRate(1_000_000))], 16).window,
            WINDOW_CHUNKS_MIN
        );
        let many = sizes(&[None; 32], 1);
        assert!(many.window <= WINDOW_CHUNKS_MAX);
        assert!(u64::from(many.window) * u64::from(many.chunk_bytes) <= BUFFER_BYTES_MAX);
        assert!(sizes(&[], 0).window >= WINDOW_CHUNKS_MIN);
    }
}
