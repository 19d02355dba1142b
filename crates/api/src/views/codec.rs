//! What codecs made of a guest's bytes.

use std::fmt;

use drover_types::Bytes;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What kind of content was compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ContentClass {
    /// Headers, changes, and pages that are not dense.
    Ordinary,
    /// Pages that look compressed or encrypted already.
    Dense,
}

impl ContentClass {
    /// The word in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ordinary => "ordinary",
            Self::Dense => "dense",
        }
    }
}

/// What one codec made of one class of content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CodecView {
    /// `none`, `lz4`, or `zstd:` with its level.
    pub codec: String,
    /// What it was given.
    pub class: ContentClass,
    /// How many bytes of it.
    #[schema(value_type = u64)]
    pub bytes: Bytes,
    /// How many it made of them.
    #[schema(value_type = u64)]
    pub packed: Bytes,
    /// What that took of the source's processors, in milliseconds.
    pub took_ms: u64,
}

impl fmt::Display for CodecView {
    /// `lz4 120 MiB to 70 MiB (59 %) in 0.2 s`, `none 30 MiB of dense pages`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            codec,
            class,
            bytes,
            packed,
            took_ms,
        } = self;
        write!(f, "{codec} {bytes}")?;
        if *class == ContentClass::Dense {
            f.write_str(" of dense pages")?;
        }
        if bytes == packed {
            return Ok(());
        }
        let percent = percent(*packed, *bytes);
        let seconds = *took_ms as f64 / 1000.0;
        write!(f, " to {packed} ({percent} %) in {seconds:.1} s")
    }
}

/// A part of bytes, in percent, rounded up.
pub(super) fn percent(part: Bytes, all: Bytes) -> u64 {
    part.0.saturating_mul(100).div_ceil(all.0.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_codec_is_told_with_what_it_made_of_which_bytes() {
        let told = |codec: &str, class, packed: u64| {
            let view = CodecView {
                codec: codec.to_owned(),
                class,
                bytes: Bytes(120 << 20),
                packed: Bytes(packed << 20),
                took_ms: 240,
            };
            view.to_string()
        };
        assert_eq!(
            told("zstd:1", ContentClass::Ordinary, 60),
            "zstd:1 120 MiB to 60 MiB (50 %) in 0.2 s"
        );
        assert_eq!(
            told("none", ContentClass::Dense, 120),
            "none 120 MiB of dense pages"
        );
    }
}
