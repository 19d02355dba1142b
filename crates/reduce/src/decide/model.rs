//! What each way makes of the bytes, and what it takes.

use crate::class::Class;
use crate::codec::Codec;
use crate::codecs::OfCodecs;
use crate::decide::{CODECS, Seen, Slowest, Tried, Way};
use crate::limits::{CARRYING_BY_WIRE, NEWEST_COUNTS, UNSEEN_FADES};

/// A value that follows what is measured.
#[derive(Debug, Clone, Copy, Default)]
struct Average(Option<f64>);

impl Average {
    fn add(&mut self, value: f64) {
        self.0 = Some(match self.0 {
            Some(old) => old + (value - old) * NEWEST_COUNTS,
            None => value,
        });
    }

    /// A little more of this is believed, where nothing was measured.
    fn fade(&mut self, to: f64) {
        if let Some(old) = &mut self.0 {
            *old += (to - *old) * UNSEEN_FADES;
        }
    }

    fn or(self, otherwise: f64) -> f64 {
        self.0.unwrap_or(otherwise)
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct OfCodec {
    ratio: Average,
    /// Seconds for a byte.
    cost: Average,
}

#[derive(Debug, Clone, Copy, Default)]
struct OfClass {
    codecs: [OfCodec; CODECS.len()],
    /// How much less the codec in use made of what crossed than of samples: because it remembers more, or other pages crossed. The
    /// same counts for all codecs, which had the same samples: or whichever is in use would look better or worse than the others.
    better: Average,
    /// Bytes of the class, of one of QEMU that was described.
    part: Average,
}

#[derive(Debug, Default)]
pub(super) struct Model {
    classes: [OfClass; 2],
    /// Seconds of a processor to describe a byte of QEMU.
    describing: Average,
    /// The same to carry it in a way that makes nothing fewer.
    carrying: Average,
    /// How much more packing took than samples promised.
    dearer: Average,
    /// How much longer everything takes than a processor needs for it.
    stretched: Average,
    /// Bytes that QEMU gives in a second, or the destination takes, where that is what is waited for.
    others: Option<f64>,
    threads: f64,
}

const fn class_at(class: Class) -> usize {
    match class {
        Class::Ordinary => 0,
        Class::Dense => 1,
    }
}

fn codec_at(codec: Codec) -> Option<usize> {
    CODECS.iter().position(|known| *known == codec)
}

/// The part of carrying that does not depend on how many bytes the lines get, and that which does.
fn carrying_of(ratio: f64) -> f64 {
    1.0 - CARRYING_BY_WIRE + CARRYING_BY_WIRE * ratio
}

impl Model {
    pub(super) fn tried(&mut self, tried: &Tried) {
        if tried.bytes == 0 {
            return;
        }
        let bytes = tried.bytes as f64;
        let class = &mut self.classes[class_at(tried.class)];
        if let Some(codec) = codec_at(tried.codec).and_then(|at| class.codecs.get_mut(at)) {
            codec.ratio.add(tried.packed as f64 / bytes);
            codec.cost.add(tried.took.as_secs_f64() / bytes);
        }
    }

    pub(super) fn seen(&mut self, seen: &Seen, slowest: Slowest, way: Way) {
        let (counts, times) = (&seen.counts, &seen.times);
        self.threads = times.all().as_secs_f64() / seen.lasted.as_secs_f64();
        let raw = counts.raw as f64;
        self.doubt(way);
        let described = counts.raw.saturating_sub(counts.passed) as f64;
        if described > 0.0 {
            self.describing
                .add(times.describing.as_secs_f64() / described);
            let sections = [counts.ordinary_section, counts.dense_section];
            for (class, section) in self.classes.iter_mut().zip(sections) {
                class.part.add(section.bytes as f64 / described);
            }
        }
        self.correct(&seen.codecs);
        if !times.working().is_zero() {
            self.stretched.add(times.slowed());
        }
        let carrying = times.carrying.as_secs_f64() / raw;
        self.carrying
            .add(carrying / carrying_of(counts.wire as f64 / raw));
        let given = raw / seen.lasted.as_secs_f64();
        self.others = matches!(slowest, Slowest::Qemu | Slowest::Destination).then_some(given);
    }

    /// What a codec made of other pages says little of those that cross while none is in use.
    fn doubt(&mut self, way: Way) {
        let through = match way {
            Way::On { codec, dense } if codec != Codec::None => [true, dense],
            _ => [false, false],
        };
        for (class, _) in self.classes.iter_mut().zip(through).filter(|(_, on)| !on) {
            class.better.fade(1.0);
        }
        if through == [false, false] {
            self.dearer.fade(1.0);
        }
    }

    /// Learns from what codecs really made, and took: each of what went through it.
    fn correct(&mut self, codecs: &OfCodecs) {
        let (mut promised, mut took) = (0.0, 0.0);
        // By samples, and really.
        let mut made = [(0.0, 0.0); 2];
        for of in codecs.iter().filter(|of| of.codec != Codec::None) {
            let (Some(at), class) = (codec_at(of.codec), class_at(of.class)) else {
                continue;
            };
            let OfCodec { ratio, cost } = self.classes[class].codecs[at];
            let bytes = of.section.bytes as f64;
            promised += cost.or(0.0) * bytes;
            took += of.took.as_secs_f64();
            if let Some(sampled) = ratio.0.filter(|sampled| *sampled > 0.0) {
                made[class].0 += sampled * bytes;
                made[class].1 += of.section.packed as f64;
            }
        }
        for (class, (sampled, really)) in self.classes.iter_mut().zip(made) {
            if sampled > 0.0 {
                class.better.add(really / sampled);
            }
        }
        if promised > 0.0 {
            self.dearer.add(took / promised);
        }
    }

    /// What a codec makes of a byte of that class, and what that costs in seconds.
    fn codec(&self, class: Class, codec: Codec) -> Option<(f64, f64)> {
        let class = &self.classes[class_at(class)];
        let of = class.codecs.get(codec_at(codec)?)?;
        match codec {
            Codec::None => Some((1.0, 0.0)),
            // None makes more of anything than there is.
            _ => Some(((of.ratio.0? * class.better.or(1.0)).min(1.0), of.cost.0?)),
        }
    }

    /// Whether anything is known of what it makes of the bytes that there are.
    pub(super) fn knows(&self, way: Way) -> bool {
        match way {
            Way::Off => true,
            Way::On { codec, dense } => {
                let of = |class| self.codec(class, codec).is_some();
                of(Class::Ordinary) && (!dense || of(Class::Dense))
            }
        }
    }

    /// Bytes on the lines for one of QEMU, and seconds of a thread for its codecs.
    fn packed(&self, way: Way) -> (f64, f64) {
        let Way::On { codec, dense } = way else {
            return (1.0, 0.0);
        };
        let (mut ratio, mut cost) = (0.0, 0.0);
        for (class, through) in [(Class::Ordinary, true), (Class::Dense, dense)] {
            let part = self.classes[class_at(class)].part.or(0.5);
            let used = if through { codec } else { Codec::None };
            let (less, takes) = self.codec(class, used).unwrap_or((1.0, 0.0));
            ratio += part * less;
            cost += part * takes;
        }
        (ratio, cost * self.dearer.or(1.0))
    }

    /// Bytes on the lines for one of QEMU.
    pub(super) fn ratio(&self, way: Way) -> f64 {
        self.packed(way).0.max(f64::MIN_POSITIVE)
    }

    /// Seconds of a processor for a byte of QEMU.
    pub(super) fn cost(&self, way: Way) -> f64 {
        let (ratio, packing) = self.packed(way);
        let describing = match way {
            Way::Off => 0.0,
            Way::On { .. } => self.describing.or(0.0),
        };
        let carrying = self.carrying.or(0.0) * carrying_of(ratio);
        (packing + describing + carrying).max(f64::MIN_POSITIVE)
    }

    /// The same as a clock sees it.
    fn lasts(&self, way: Way) -> f64 {
        self.cost(way) * self.stretched.or(1.0)
    }

    /// QEMU's bytes that all threads get done in a second.
    pub(super) fn processed(&self, way: Way) -> f64 {
        self.threads.max(1.0) / self.lasts(way)
    }

    /// QEMU's bytes that lines which carry so many, and all threads, get done in a second.
    pub(super) fn over(&self, way: Way, line: f64) -> f64 {
        (line / self.ratio(way)).min(self.processed(way))
    }

    /// QEMU's bytes that cross in a second over lines that carry so many.
    pub(super) fn goodput(&self, way: Way, line: f64) -> f64 {
        let most = self.others.unwrap_or(f64::INFINITY);
        self.over(way, line).min(most)
    }
}
