//! What became of a guest's bytes, where fewer of them cross.

use std::fmt;

use drover_types::{Bytes, ReductionMode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How a migration's bytes are reduced, and what came of it so far; at the source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReductionView {
    /// What is done: `pages`, `lz4`, or `zstd:` with its level.
    #[schema(value_type = String)]
    pub mode: ReductionMode,
    /// The most memory that pages take which both ends keep, in bytes.
    #[schema(value_type = u64)]
    pub kept_most: Bytes,
    /// Bytes of QEMU that were looked at.
    #[schema(value_type = u64)]
    pub raw_bytes: Bytes,
    /// Bytes that crossed for them, without the protocol's and without those that were sent again.
    #[schema(value_type = u64)]
    pub wire_bytes: Bytes,
    /// Pages, by what became of them.
    pub pages: ReducedPages,
    /// What the changes of pages took before they were compressed, in bytes.
    #[schema(value_type = u64)]
    pub change_bytes: Bytes,
    /// Bytes that were compressed together: headers, changes, and pages that are not dense.
    pub ordinary: ReducedSection,
    /// Pages that look compressed or encrypted already.
    pub dense: ReducedSection,
    /// Channels in which pages are not found, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub opaque: Vec<OpaqueChannel>,
}

/// What became of pages, in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReducedPages {
    /// Filled with one word.
    pub filled: u64,
    /// The destination had them.
    pub same: u64,
    /// It had another version, and what changed was sent.
    pub changed: u64,
    /// Sent, compressed with the others.
    pub ordinary: u64,
    /// Sent, and dense.
    pub dense: u64,
}

/// What a codec made of some bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReducedSection {
    /// How many there were.
    #[schema(value_type = u64)]
    pub bytes: Bytes,
    /// How many it made of them.
    #[schema(value_type = u64)]
    pub packed: Bytes,
}

/// A channel that is carried as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OpaqueChannel {
    /// The channel.
    pub channel: u16,
    /// Why, and from where on.
    pub why: String,
}

impl fmt::Display for ReductionView {
    /// `zstd:1: 2.1 GiB became 512 MiB (24 %); pages 5 % filled, ...`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            mode,
            raw_bytes,
            wire_bytes,
            pages,
            ..
        } = self;
        write!(f, "{mode}: {raw_bytes} became {wire_bytes}")?;
        if raw_bytes.0 > 0 {
            let percent = wire_bytes.0.saturating_mul(100).div_ceil(raw_bytes.0);
            write!(f, " ({percent} %)")?;
        }
        write!(
            f,
            "; pages: {} filled, {} there already, {} changed, {} compressed, {} dense",
            pages.filled, pages.same, pages.changed, pages.ordinary, pages.dense
        )?;
        for OpaqueChannel { channel, why } in &self.opaque {
            write!(f, "; channel {channel} is not looked into {why}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_in_one_line() {
        let mut view = ReductionView {
            mode: ReductionMode::Zstd(1),
            kept_most: Bytes(1 << 28),
            raw_bytes: Bytes(0),
            wire_bytes: Bytes(0),
            pages: ReducedPages::default(),
            change_bytes: Bytes(0),
            ordinary: ReducedSection::default(),
            dense: ReducedSection::default(),
            opaque: Vec::new(),
        };
        assert!(!view.to_string().contains('%'), "{view}");
        view.raw_bytes = Bytes(1 << 30);
        view.wire_bytes = Bytes(1 << 28);
        view.pages.same = 7;
        view.opaque.push(OpaqueChannel {
            channel: 3,
            why: "from byte 9: x".into(),
        });
        assert_eq!(
            view.to_string(),
            "zstd:1: 1 GiB became 256 MiB (25 %); pages: 0 filled, 7 there already, 0 changed, 0 compressed, 0 \
             dense; channel 3 is not looked into from byte 9: x"
        );
    }
}
