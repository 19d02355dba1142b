//! Lines, processors, codecs and a QEMU of which everything is known.

use std::time::Duration;

use drover_reduce::decide::{CODECS, Controller, Seen, Times, Tried, Way};
use drover_reduce::limits::{DECIDED_EVERY, SAMPLE_BYTES, SAMPLED_EVERY};
use drover_reduce::{Choice, Class, Codec, Counts, OfCodecs, PackingTook, Section};

/// What a codec makes of a byte, and in which time a thread does it.
#[derive(Debug, Clone, Copy)]
pub struct Made {
    pub ratio: f64,
    pub seconds: f64,
}

/// Bytes in seconds, everywhere.
#[derive(Debug, Clone)]
pub struct World {
    pub line: f64,
    pub qemu: f64,
    /// What the destination gets done, in QEMU's bytes.
    pub destination: f64,
    /// The same where they are passed as they are.
    pub destination_passed: f64,
    pub threads: f64,
    /// How much longer everything takes, as others need the processors.
    pub slowed: f64,
    pub ordinary: f64,
    pub dense: f64,
    /// For [`CODECS`].
    pub of_ordinary: [Made; 7],
    pub of_dense: [Made; 7],
    pub describing: f64,
    pub reading: f64,
    pub sending: f64,
}

/// Of what is passed in a look.
pub const LOOKED_INTO: f64 = 131_072.0;

pub const MIB: f64 = 1_048_576.0;
pub const GIGABIT: f64 = 125e6;

/// `docs/measurements/reduction.md`.
pub fn world() -> World {
    let made = |ratio, mib: f64| Made {
        ratio,
        seconds: 1.0 / (mib * MIB),
    };
    let none = Made {
        ratio: 1.0,
        seconds: 0.0,
    };
    World {
        line: 2.0 * GIGABIT,
        qemu: 3e9,
        destination: 3e9,
        destination_passed: 3e9,
        threads: 2.0,
        slowed: 1.0,
        ordinary: 0.8,
        dense: 0.1,
        of_ordinary: [
            none,
            made(0.63, 592.0),
            made(0.68, 661.0),
            made(0.50, 499.0),
            made(0.46, 438.0),
            made(0.43, 314.0),
            made(0.40, 150.0),
        ],
        of_dense: [
            none,
            made(1.0, 2000.0),
            made(1.0, 1000.0),
            made(0.99, 600.0),
            made(0.99, 500.0),
            made(0.98, 300.0),
            made(0.98, 120.0),
        ],
        describing: 0.17 / 1024.0 / MIB,
        reading: 0.2 / 1024.0 / MIB,
        sending: 0.3 / 1024.0 / MIB,
    }
}

impl World {
    /// Bytes on the lines for one of QEMU, and the seconds of describing, packing and carrying it.
    pub fn of(&self, way: Way) -> (f64, [f64; 3]) {
        let (mut ratio, mut packing, mut describing) = (1.0, 0.0, 0.0);
        if let Way::On { codec, dense } = way {
            let at = CODECS.iter().position(|known| *known == codec).unwrap();
            let (ordinary, through) = (
                self.of_ordinary[at],
                self.of_dense[if dense { at } else { 0 }],
            );
            ratio = self.ordinary * ordinary.ratio + self.dense * through.ratio;
            packing = self.ordinary * ordinary.seconds + self.dense * through.seconds;
            describing = self.describing;
        }
        let carrying = self.reading + self.sending * ratio;
        (
            ratio,
            [describing, packing, carrying].map(|seconds| seconds * self.slowed),
        )
    }

    pub fn at_destination(&self, way: Way) -> f64 {
        match way {
            Way::Off => self.destination_passed,
            Way::On { .. } => self.destination,
        }
    }

    /// QEMU's bytes that cross in a second.
    pub fn goodput(&self, way: Way) -> f64 {
        let (ratio, costs) = self.of(way);
        let processed = self.threads / costs.iter().sum::<f64>();
        (self.line / ratio)
            .min(self.at_destination(way))
            .min(processed)
            .min(self.qemu)
    }

    pub fn best(&self) -> f64 {
        let ways = CODECS
            .into_iter()
            .flat_map(|codec| [true, false].map(|dense| Way::On { codec, dense }));
        let goodputs = ways.chain([Way::Off]).map(|way| self.goodput(way));
        goodputs.fold(0.0, f64::max)
    }

    pub fn seen(&self, way: Way, lasted: Duration) -> Seen {
        let seconds = lasted.as_secs_f64();
        let (ratio, [describing, packing, carrying]) = self.of(way);
        let goodput = self.goodput(way);
        let raw = goodput * seconds;
        let idle = (self.threads * seconds - raw * (describing + packing + carrying)).max(0.0);
        let time = |seconds: f64| Duration::from_secs_f64(seconds);
        let waiting = |limit: f64| time(if goodput >= limit { idle } else { 0.0 });
        let [for_qemu, for_destination] = [self.qemu, self.at_destination(way)].map(waiting);
        let work = |seconds: f64| time(raw * seconds / self.slowed);
        let working = raw * (describing + packing + carrying);
        let times = Times {
            for_lines: time(idle).saturating_sub(for_qemu + for_destination),
            for_destination,
            for_qemu,
            for_processors: time(working * (self.slowed - 1.0) / self.slowed),
            describing: work(describing),
            packing: work(packing),
            carrying: work(carrying),
            trying: Duration::ZERO,
        };
        let mut counts = Counts {
            raw: raw as u64,
            wire: (raw * ratio) as u64,
            ..Counts::default()
        };
        let mut codecs = OfCodecs::default();
        match way {
            // A chunk now and then is described.
            Way::Off => {
                let described = raw.min(LOOKED_INTO);
                let section = |part: f64| Section {
                    bytes: (described * part) as u64,
                    packed: (described * part) as u64,
                };
                counts.passed = (raw - described) as u64;
                counts.ordinary_section = section(self.ordinary);
                counts.dense_section = section(self.dense);
            }
            Way::On { codec, dense } => {
                let at = CODECS.iter().position(|known| *known == codec).unwrap();
                let section = |bytes: f64, made: Made| Section {
                    bytes: bytes as u64,
                    packed: (bytes * made.ratio) as u64,
                };
                counts.ordinary_section = section(raw * self.ordinary, self.of_ordinary[at]);
                let dense_at = if dense { at } else { 0 };
                counts.dense_section = section(raw * self.dense, self.of_dense[dense_at]);
                let choice = Choice {
                    ordinary: codec,
                    dense: CODECS[dense_at],
                };
                let took = PackingTook {
                    ordinary: time(raw * self.ordinary * self.of_ordinary[at].seconds),
                    dense: time(raw * self.dense * self.of_dense[dense_at].seconds),
                };
                codecs.add(choice, &counts, took);
            }
        }
        Seen {
            lasted,
            counts,
            codecs,
            times,
        }
    }

    pub fn sample(&self, controller: &mut Controller) {
        for (class, made) in [
            (Class::Ordinary, self.of_ordinary),
            (Class::Dense, self.of_dense),
        ] {
            for (codec, made) in CODECS
                .into_iter()
                .zip(made)
                .filter(|(codec, _)| *codec != Codec::None)
            {
                let bytes = SAMPLE_BYTES as f64;
                controller.tried(&Tried {
                    class,
                    codec,
                    bytes: bytes as u64,
                    packed: (bytes * made.ratio) as u64,
                    took: Duration::from_secs_f64(bytes * made.seconds),
                });
            }
        }
    }

    /// Lets so much time go by; what crossed of what could have crossed.
    pub fn run(&self, controller: &mut Controller, lasts: Duration) -> f64 {
        let (mut crossed, mut at) = (0.0, Duration::ZERO);
        while at < lasts {
            if at.as_millis().is_multiple_of(SAMPLED_EVERY.as_millis()) {
                self.sample(controller);
            }
            let seen = self.seen(controller.way(), DECIDED_EVERY);
            crossed += seen.counts.raw as f64;
            controller.seen(&seen);
            at += DECIDED_EVERY;
        }
        crossed / lasts.as_secs_f64() / self.best()
    }
}

pub const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A guest that comes back: nearly all of it is there, and the destination reads it slower than it is described.
pub fn homecoming() -> World {
    World {
        line: 0.4 * GIGABIT,
        destination: 0.8 * GIGABIT,
        destination_passed: 0.8 * GIGABIT,
        ordinary: 0.02,
        dense: 0.0,
        // With a digest of each page.
        describing: 0.8 / 1024.0 / MIB,
        ..world()
    }
}

/// Whether a codec is in use.
pub fn packs(controller: &Controller) -> bool {
    matches!(controller.way(), Way::On { codec, .. } if codec != Codec::None)
}
