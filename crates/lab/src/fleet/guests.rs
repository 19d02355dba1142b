//! Several guests made from one.

use drover_types::Bytes;

use crate::settings::{Dirty, GuestSettings};

/// Guests of different sizes, busy in different measure: multiples of what the first has.
const SIZES: [u64; 6] = [1, 2, 3, 1, 2, 4];
const RATES: [u64; 6] = [0, 1, 2, 1, 0, 4];

/// So many guests made from one, each with its own seed, contents of different sizes and rates at which
/// they are rewritten; memory as that takes.
#[must_use]
pub fn variety(base: &GuestSettings, count: usize) -> Vec<GuestSettings> {
    let sizes = SIZES.iter().cycle().zip(RATES.iter().cycle());
    let guest = |(number, (size, rate)): (usize, (&u64, &u64))| {
        let content = Bytes(base.content.0 * size);
        let rate = base.dirty.rate.map(|bytes| Bytes(bytes.0 * rate));
        let guest = GuestSettings {
            content,
            dirty: Dirty { rate, ..base.dirty },
            ..base.clone()
        };
        with_own_seed(guest, number)
    };
    sizes.take(count).enumerate().map(guest).collect()
}

/// So many guests of one image: as much of the same contents in each, and what it rewrites from its own seed; memory as that
/// takes. Documents are no part of an image: those of each follow from its seed.
#[must_use]
pub fn of_one_image(base: &GuestSettings, count: usize) -> Vec<GuestSettings> {
    let guest = |number| with_own_seed(base.clone(), number);
    (0..count).map(guest).collect()
}

/// The guest of that number, with memory for what it has.
fn with_own_seed(guest: GuestSettings, number: usize) -> GuestSettings {
    GuestSettings {
        seed: guest.seed.wrapping_add(number as u64),
        memory: GuestSettings::memory_for(guest.filled()),
        ..guest
    }
}
