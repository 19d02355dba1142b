//! What became of a guest's bytes, where fewer of them cross.

use std::fmt;

use drover_types::{ByteRate, Bytes, ReductionMode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::codec::{CodecView, percent};

/// How a migration's bytes are reduced, and what came of it so far; at the source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReductionView {
    /// What was ordered: `auto`, `pages`, `lz4`, or `zstd:` with its level.
    #[schema(value_type = String)]
    pub mode: ReductionMode,
    /// The most memory that pages take which both ends keep, in bytes.
    #[schema(value_type = u64)]
    pub kept_most: Bytes,
    /// What they take now, at each end.
    #[serde(default)]
    #[schema(value_type = u64)]
    pub kept_bytes: Bytes,
    /// Bytes of QEMU that were looked at.
    #[schema(value_type = u64)]
    pub raw_bytes: Bytes,
    /// Bytes that crossed for them, without the protocol's and without those that were sent again.
    #[schema(value_type = u64)]
    pub wire_bytes: Bytes,
    /// Of them, bytes that were carried as they are, as that was faster.
    #[serde(default)]
    #[schema(value_type = u64)]
    pub passed_bytes: Bytes,
    /// Pages, by what became of them.
    pub pages: ReducedPages,
    /// What the changes of pages took before they were compressed, in bytes.
    #[schema(value_type = u64)]
    pub change_bytes: Bytes,
    /// Bytes that were compressed together: headers, changes, and pages that are not dense.
    pub ordinary: ReducedSection,
    /// Pages that look compressed or encrypted already.
    pub dense: ReducedSection,
    /// The same by codec: with `auto` there may be several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub codecs: Vec<CodecView>,
    /// Where the time went of the threads that read channels.
    #[serde(default)]
    pub times: ReductionTimes,
    /// What was decided, with `auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided: Option<ReductionDecided>,
    /// Channels in which pages are not found, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub opaque: Vec<OpaqueChannel>,
}

/// What became of pages, in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReducedPages {
    /// The hypervisor itself found them to be zero, and sent nothing of them.
    #[serde(default)]
    pub zero: u64,
    /// Filled with one word.
    pub filled: u64,
    /// The destination had them.
    pub same: u64,
    /// Its host had stored them: of guests that share pages there, this one included, or in the guest's checkpoint.
    #[serde(default)]
    pub stored: u64,
    /// Its host had stored another version, and what changed was sent.
    #[serde(default)]
    pub stored_changed: u64,
    /// It had another version, and what changed was sent.
    pub changed: u64,
    /// Sent with all else that is not dense, through a codec if there is one.
    pub ordinary: u64,
    /// Sent, and dense.
    pub dense: u64,
}

/// Pages that hosts have stored: those that guests arriving at the destination's host share, and checkpoints; as one end of a
/// migration sees them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SharedPagesView {
    /// Pages of which the destination has told that it has them.
    pub told: u64,
    /// At the destination: pages that its host has and does not tell; `trouble` says why.
    #[serde(default)]
    pub untold: u64,
    /// At the destination: pages that this guest found among those that guests share there, its own included.
    #[serde(default)]
    pub found: u64,
    /// At the destination: pages that this guest found in its checkpoint.
    #[serde(default)]
    pub found_in_checkpoint: u64,
    /// Pages that this guest has added: at the destination to those that guests share, at the source to its checkpoint.
    pub added: u64,
    /// Pages of it that are still to be looked at and wait in memory. Those of a guest that has left are added behind it.
    #[serde(default)]
    pub waiting: u64,
    /// Pages of it that cross and are not looked at, for want of room or time.
    pub left_out: u64,
    /// At the destination: pages that were recorded in the guest's baseline as they arrived, as often as they were. At the source:
    /// those of its baseline.
    #[serde(default)]
    pub recorded: u64,
    /// At the destination: pages that were not, for want of room or time.
    #[serde(default)]
    pub unrecorded: u64,
    /// At the source: pages that were compared with how they were when the guest arrived there.
    #[serde(default)]
    pub compared: u64,
    /// Why fewer are told, added, recorded or compared than there could be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

impl fmt::Display for SharedPagesView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            told,
            untold,
            found,
            found_in_checkpoint,
            added,
            waiting,
            left_out,
            recorded,
            unrecorded,
            compared,
            trouble,
        } = self;
        write!(f, "{told} known to the source")?;
        if *untold > 0 {
            write!(f, ", {untold} not told")?;
        }
        if *found > 0 {
            write!(f, ", {found} found among them")?;
        }
        if *found_in_checkpoint > 0 {
            write!(f, ", {found_in_checkpoint} found in its checkpoint")?;
        }
        if *added > 0 || *waiting > 0 || *left_out > 0 {
            write!(f, ", {added} added")?;
            if *waiting > 0 {
                write!(f, ", {waiting} waiting to be")?;
            }
            write!(f, ", {left_out} left out")?;
        }
        if *compared > 0 {
            write!(f, ", {compared} compared with the baseline")?;
        }
        if *recorded > 0 || *unrecorded > 0 {
            write!(f, ", {recorded} in the baseline, {unrecorded} not")?;
        }
        match trouble {
            Some(why) => write!(f, " ({why})"),
            None => Ok(()),
        }
    }
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

/// Where the time of the threads went that read channels of the source's hypervisor, in milliseconds, all together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReductionTimes {
    /// Waited for the lines.
    pub lines_ms: u64,
    /// Waited for the destination, which had most of what was on its way.
    #[serde(default)]
    pub destination_ms: u64,
    /// Waited for the hypervisor, and took its bytes.
    pub hypervisor_ms: u64,
    /// Waited for a processor, or for each other, with work to do.
    #[serde(default)]
    pub processors_ms: u64,
    /// Compared pages with those that the destination has; of processors' time, as all that follows.
    pub describing_ms: u64,
    /// Compressed.
    pub packing_ms: u64,
    /// Tried out other ways on samples.
    pub trying_ms: u64,
    /// Handed on, and all else.
    pub carrying_ms: u64,
}

impl ReducedPages {
    /// Each kind by its name.
    #[must_use]
    pub const fn kinds(&self) -> [(&'static str, u64); 8] {
        [
            ("zero", self.zero),
            ("filled", self.filled),
            ("same", self.same),
            ("stored", self.stored),
            ("stored_changed", self.stored_changed),
            ("changed", self.changed),
            ("ordinary", self.ordinary),
            ("dense", self.dense),
        ]
    }
}

impl ReductionTimes {
    /// Each stage by its name.
    #[must_use]
    pub const fn stages(&self) -> [(&'static str, u64); 8] {
        [
            ("lines", self.lines_ms),
            ("destination", self.destination_ms),
            ("hypervisor", self.hypervisor_ms),
            ("processors", self.processors_ms),
            ("describing", self.describing_ms),
            ("packing", self.packing_ms),
            ("trying", self.trying_ms),
            ("carrying", self.carrying_ms),
        ]
    }
}

impl fmt::Display for ReductionTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [
            lines,
            destination,
            hypervisor,
            processors,
            describing,
            packing,
            trying,
            carrying,
        ] = self
            .stages()
            .map(|(_, milliseconds)| milliseconds as f64 / 1000.0);
        write!(
            f,
            "threads waited {lines:.1} s for the lines, {destination:.1} s for the destination, {hypervisor:.1} s for the \
             hypervisor and {processors:.1} s for processors, described {describing:.1} s, compressed {packing:.1} s, tried out {trying:.1} s, carried {carrying:.1} s"
        )
    }
}

/// What holds everything up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SlowestStage {
    /// The lines.
    Lines,
    /// The destination.
    Destination,
    /// The source's hypervisor.
    Hypervisor,
    /// The source's processors.
    Processors,
}

impl fmt::Display for SlowestStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lines => "lines",
            Self::Destination => "destination",
            Self::Hypervisor => "hypervisor",
            Self::Processors => "processors",
        })
    }
}

/// What was decided, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReductionDecided {
    /// What is done now.
    #[schema(value_type = String)]
    pub mode: ReductionMode,
    /// Dense pages are compressed, too.
    pub dense: bool,
    /// What holds everything up, once something was seen.
    pub slowest: Option<SlowestStage>,
    /// How often it was changed.
    pub changes: u64,
    /// What is thought of each way of which something is known.
    pub verdicts: Vec<ReductionVerdict>,
}

/// What is thought of one way to reduce, by samples of the guest and what was measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReductionVerdict {
    /// The way.
    #[schema(value_type = String)]
    pub mode: ReductionMode,
    /// With dense pages compressed, too.
    pub dense: bool,
    /// It is in use.
    pub used: bool,
    /// Bytes on the lines for 1000 of the hypervisor.
    pub permille: u64,
    /// The hypervisor's bytes that the processors get done in a second.
    #[schema(value_type = u64)]
    pub processed: ByteRate,
    /// The hypervisor's bytes that would cross in a second.
    #[schema(value_type = u64)]
    pub crosses: ByteRate,
    /// It was tried and was slower than this says, and it is not tried again for now.
    pub slower: bool,
}

impl ReductionDecided {
    /// Each way but that in use, beside it: `lz4: 37 % more bytes, 1.3 x slower`. What is done to dense pages does not make another
    /// one of it.
    pub fn beside(&self) -> impl Iterator<Item = String> {
        let used = self.verdicts.iter().find(|verdict| verdict.used);
        let others = self
            .verdicts
            .iter()
            .filter(|verdict| verdict.mode != self.mode && !verdict.dense);
        used.into_iter()
            .flat_map(move |used| others.clone().map(|verdict| verdict.beside(used)))
    }
}

impl ReductionVerdict {
    fn beside(&self, used: &Self) -> String {
        let Self { mode, permille, .. } = self;
        let bytes = match (*permille * 100 / used.permille.max(1)).checked_sub(100) {
            Some(0) => "as many bytes".to_owned(),
            Some(more) => format!("{more} % more bytes"),
            None => format!(
                "{} % fewer bytes",
                100 - permille * 100 / used.permille.max(1)
            ),
        };
        let [own, now] = [self.crosses, used.crosses].map(|rate| rate.0.max(1) as f64);
        let time = if self.slower {
            "slower when it was tried".to_owned()
        } else if own * 1.05 < now {
            format!("{:.1} x slower", now / own)
        } else if now * 1.05 < own {
            format!("{:.1} x faster", own / now)
        } else {
            "as fast".to_owned()
        };
        format!("{mode}: {bytes}, {time}")
    }
}

/// A channel that is carried as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OpaqueChannel {
    /// The channel.
    pub channel: u16,
    /// Why, and from where on.
    pub why: String,
    /// The kind of reason: `compressed` by the hypervisor, `xbzrle`, `hook` (pages go another way), `mapped-ram`, `device-state`, `version`
    /// (another one than is known), `resumed` (postcopy after an outage), or `unknown`: not exactly as known. None of an older relay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub word: Option<String>,
}

impl ReductionView {
    /// `zstd:1`, or what was decided: `auto (lz4, held up by the lines)`.
    #[must_use]
    pub fn how(&self) -> String {
        let Some(decided) = &self.decided else {
            return self.mode.to_string();
        };
        let held_up = decided
            .slowest
            .map(|slowest| format!(", held up by the {slowest}"));
        let dense = if decided.dense {
            " of dense pages, too"
        } else {
            ""
        };
        format!(
            "{} ({}{dense}{})",
            self.mode,
            decided.mode,
            held_up.unwrap_or_default()
        )
    }
}

impl fmt::Display for ReductionView {
    /// `zstd:1: 2.1 GiB became 512 MiB (24 %); pages: 9000 zero, 80 filled, ...`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            raw_bytes,
            wire_bytes,
            pages,
            ..
        } = self;
        write!(f, "{}: {raw_bytes} became {wire_bytes}", self.how())?;
        if raw_bytes.0 > 0 {
            write!(f, " ({} %)", percent(*wire_bytes, *raw_bytes))?;
        }
        write!(
            f,
            "; pages: {} zero, {} filled, {} there already, {} shared, {} changed, {} ordinary, {} dense",
            pages.zero,
            pages.filled,
            pages.same,
            pages.stored,
            pages.changed + pages.stored_changed,
            pages.ordinary,
            pages.dense
        )?;
        for OpaqueChannel { channel, why, .. } in &self.opaque {
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
            kept_bytes: Bytes(0),
            raw_bytes: Bytes(0),
            wire_bytes: Bytes(0),
            passed_bytes: Bytes(0),
            pages: ReducedPages::default(),
            change_bytes: Bytes(0),
            ordinary: ReducedSection::default(),
            dense: ReducedSection::default(),
            codecs: Vec::new(),
            times: ReductionTimes::default(),
            decided: None,
            opaque: Vec::new(),
        };
        assert!(!view.to_string().contains('%'), "{view}");
        view.raw_bytes = Bytes(1 << 30);
        view.wire_bytes = Bytes(1 << 28);
        view.pages.same = 7;
        view.pages.zero = 9;
        view.opaque.push(OpaqueChannel {
            channel: 3,
            why: "from byte 9: x".into(),
            word: None,
        });
        assert_eq!(
            view.to_string(),
            "zstd:1: 1 GiB became 256 MiB (25 %); pages: 9 zero, 0 filled, 7 there already, 0 shared, 0 \
             changed, 0 ordinary, 0 dense; channel 3 is not looked into from byte 9: x"
        );
    }

    #[test]
    fn other_ways_are_told_beside_that_in_use() {
        let verdict = |mode: &str, permille, crosses| ReductionVerdict {
            mode: mode.parse().unwrap(),
            dense: false,
            used: mode == "zstd:1",
            permille,
            processed: ByteRate(crosses),
            crosses: ByteRate(crosses),
            slower: false,
        };
        let mut verdicts = vec![
            verdict("off", 1000, 500),
            verdict("lz4", 640, 780),
            verdict("zstd:1", 500, 1000),
            verdict("zstd:3", 490, 1010),
        ];
        verdicts.extend([ReductionVerdict {
            slower: true,
            ..verdict("zstd:-1", 500, 1200)
        }]);
        let mut decided = ReductionDecided {
            mode: ReductionMode::Zstd(1),
            dense: false,
            slowest: Some(SlowestStage::Lines),
            changes: 3,
            verdicts,
        };
        assert_eq!(
            decided.beside().collect::<Vec<_>>(),
            [
                "off: 100 % more bytes, 2.0 x slower",
                "lz4: 28 % more bytes, 1.3 x slower",
                "zstd:3: 2 % fewer bytes, as fast",
                "zstd:-1: as many bytes, slower when it was tried",
            ]
        );
        // The same codec without dense pages is no other way.
        let dense = decided.verdicts[2].clone();
        decided.verdicts[2].used = false;
        decided.verdicts.push(ReductionVerdict {
            dense: true,
            ..dense
        });
        decided.dense = true;
        let told: Vec<_> = decided.beside().collect();
        assert_eq!(told.len(), 4, "{told:?}");
        assert!(!told.iter().any(|told| told.starts_with("zstd:1:")));
    }
}
