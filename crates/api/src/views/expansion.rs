//! What the destination made of bytes that were reduced.

use std::fmt;

use drover_types::Bytes;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What became of what arrived where bytes may be reduced; at the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExpansionView {
    /// Chunks that were reduced.
    pub chunks: u64,
    /// Bytes that the hypervisor got.
    #[schema(value_type = u64)]
    pub raw_bytes: Bytes,
    /// Bytes that arrived for them, without the protocol's and without those that came again.
    #[schema(value_type = u64)]
    pub wire_bytes: Bytes,
    /// Of them, bytes that were carried as they are.
    #[schema(value_type = u64)]
    pub passed_bytes: Bytes,
    /// Where the time went of the threads that write channels.
    pub times: ExpansionTimes,
}

/// Where the time of the threads went that write channels to the destination's hypervisor, in milliseconds, all together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExpansionTimes {
    /// Took chunks through their codecs; of processors' time, as all but the last two.
    pub unpacking_ms: u64,
    /// Read pages that the host has stored.
    pub fetching_ms: u64,
    /// Put together what chunks stand for.
    pub expanding_ms: u64,
    /// Compared checksums.
    pub checking_ms: u64,
    /// Handed on pages that are to be stored.
    pub storing_ms: u64,
    /// Waited for a processor, for each other or for a disk, with work to do.
    pub processors_ms: u64,
    /// Waited for the hypervisor, and gave it its bytes.
    pub hypervisor_ms: u64,
}

impl ExpansionTimes {
    /// Each stage by its name.
    #[must_use]
    pub const fn stages(&self) -> [(&'static str, u64); 7] {
        [
            ("unpacking", self.unpacking_ms),
            ("fetching", self.fetching_ms),
            ("expanding", self.expanding_ms),
            ("checking", self.checking_ms),
            ("storing", self.storing_ms),
            ("processors", self.processors_ms),
            ("hypervisor", self.hypervisor_ms),
        ]
    }
}

impl fmt::Display for ExpansionTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [
            unpacked,
            fetched,
            expanded,
            checked,
            stored,
            processors,
            hypervisor,
        ] = self.stages().map(|(_, ms)| ms as f64 / 1000.0);
        write!(
            f,
            "threads unpacked {unpacked:.1} s, read stored pages {fetched:.1} s, expanded {expanded:.1} s, checked {checked:.1} s, \
             handed on to be stored {stored:.1} s, waited {processors:.1} s for processors and {hypervisor:.1} s for the hypervisor"
        )
    }
}

impl fmt::Display for ExpansionView {
    /// `512 MiB became 2.1 GiB`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} became {}", self.wire_bytes, self.raw_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_in_a_line_each_for_bytes_and_times() {
        let view = ExpansionView {
            chunks: 9,
            raw_bytes: Bytes(2 << 30),
            wire_bytes: Bytes(512 << 20),
            passed_bytes: Bytes(0),
            times: ExpansionTimes {
                unpacking_ms: 340,
                hypervisor_ms: 1260,
                ..ExpansionTimes::default()
            },
        };
        assert_eq!(view.to_string(), "512 MiB became 2 GiB");
        let times = view.times.to_string();
        assert!(times.starts_with("threads unpacked 0.3 s, read stored pages 0.0 s"));
        assert!(times.ends_with("for processors and 1.3 s for the hypervisor"));
    }
}
