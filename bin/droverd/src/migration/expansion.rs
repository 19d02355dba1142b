//! What became of bytes at the codecs and at the destination, as it is shown.

use std::time::Duration;

use drover_api::{CodecView, ContentClass, ExpansionTimes, ExpansionView};
use drover_relay::{Class, Codec, ExpandTimes, Expanded, OfCodec, OfCodecs};
use drover_types::Bytes;

/// What each codec made of what it was given: ordinary content first, and by codec.
pub fn codecs(all: &OfCodecs) -> Vec<CodecView> {
    let mut shown: Vec<_> = all.iter().map(codec).collect();
    shown.sort_by(|a, b| (a.class, &a.codec).cmp(&(b.class, &b.codec)));
    shown
}

fn codec(of: &OfCodec) -> CodecView {
    CodecView {
        codec: match of.codec {
            Codec::None => "none".to_owned(),
            Codec::Lz4 => "lz4".to_owned(),
            Codec::Zstd(level) => format!("zstd:{}", i8::from(level)),
        },
        class: match of.class {
            Class::Ordinary => ContentClass::Ordinary,
            Class::Dense => ContentClass::Dense,
        },
        bytes: Bytes(of.section.bytes),
        packed: Bytes(of.section.packed),
        took_ms: milliseconds(of.took),
    }
}

/// What became of what arrived.
pub fn expansion(expanded: &Expanded) -> ExpansionView {
    ExpansionView {
        chunks: expanded.chunks,
        raw_bytes: Bytes(expanded.raw),
        wire_bytes: Bytes(expanded.wire),
        passed_bytes: Bytes(expanded.passed),
        times: times(&expanded.times),
    }
}

fn times(times: &ExpandTimes) -> ExpansionTimes {
    ExpansionTimes {
        unpacking_ms: milliseconds(times.unpacking),
        fetching_ms: milliseconds(times.fetching),
        expanding_ms: milliseconds(times.expanding),
        checking_ms: milliseconds(times.checking),
        storing_ms: milliseconds(times.storing),
        processors_ms: milliseconds(times.for_processors),
        hypervisor_ms: milliseconds(times.for_qemu),
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
