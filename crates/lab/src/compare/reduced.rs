//! What became of the bytes of a method's guests, over its repeats: by page, class, codec and stage.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use drover_api::{ContentClass, ReductionView};
use drover_types::Bytes;
use serde::{Deserialize, Serialize};

use super::summary::{DroverFacts, Spread};

/// Medians over the repeats of one method, smallest and largest beside them. Bytes in bytes, times in milliseconds of all threads
/// together. What a run has nothing of counts as none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReducedSummary {
    /// Bytes of QEMU.
    pub raw_bytes: Spread,
    /// Bytes that crossed for them.
    pub wire_bytes: Spread,
    /// Of them, those that were carried as they are.
    pub passed_bytes: Spread,
    /// What the changes of pages took before their codec.
    pub change_bytes: Spread,
    /// Pages by what became of them, at the source.
    pub pages: BTreeMap<String, Spread>,
    /// Pages that the guest found at its destination: `shared` with other guests, or in its `checkpoint`.
    pub found: BTreeMap<String, Spread>,
    /// Each codec that was used, by class.
    pub codecs: BTreeMap<String, BTreeMap<String, CodecSummary>>,
    /// Where the time went of the threads that read channels, at the source.
    pub source_ms: BTreeMap<String, Spread>,
    /// Where that of those went that write channels, at the destination.
    pub destination_ms: BTreeMap<String, Spread>,
}

/// What one codec made of one class.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CodecSummary {
    /// Bytes that it was given.
    pub bytes: Spread,
    /// What it made of them.
    pub packed: Spread,
    /// What that took of processors.
    pub took_ms: Spread,
    /// Behind it as a part of before it, over all runs together.
    pub ratio: f64,
}

impl ReducedSummary {
    /// Of the runs that tell of it; nothing where none does.
    pub(crate) fn of(runs: &[&DroverFacts]) -> Option<Self> {
        let views: Vec<_> = runs
            .iter()
            .filter_map(|run| run.reduction.as_ref())
            .collect();
        let spread = |value: fn(&ReductionView) -> Bytes| {
            Spread::of(views.iter().map(|view| value(view).0 as f64))
        };
        let shared = || runs.iter().filter_map(|run| run.shared_pages.as_ref());
        let expansions = || runs.iter().filter_map(|run| run.expansion.as_ref());
        Some(Self {
            raw_bytes: spread(|view| view.raw_bytes)?,
            wire_bytes: spread(|view| view.wire_bytes)?,
            passed_bytes: spread(|view| view.passed_bytes)?,
            change_bytes: spread(|view| view.change_bytes)?,
            pages: by_name(views.iter().map(|view| view.pages.kinds())),
            found: by_name(shared().map(|shared| {
                [
                    ("shared", shared.found),
                    ("checkpoint", shared.found_in_checkpoint),
                ]
            })),
            codecs: [ContentClass::Ordinary, ContentClass::Dense]
                .map(|class| (class.as_str().to_owned(), codecs(&views, class)))
                .into(),
            source_ms: by_name(views.iter().map(|view| view.times.stages())),
            destination_ms: by_name(expansions().map(|view| view.times.stages())),
        })
    }

    /// For a person, beside the name of its method.
    pub(crate) fn lines(&self) -> String {
        let mut text = format!(
            "  bytes        {} became {}, {} of them passed as they are; changes of pages {}\n",
            in_bytes(self.raw_bytes),
            in_bytes(self.wire_bytes),
            in_bytes(self.passed_bytes),
            in_bytes(self.change_bytes)
        );
        let count = |spread: &Spread| shown(*spread, |count| format!("{count:.0}"));
        let seconds = |spread: &Spread| shown(*spread, |ms| format!("{:.2}", ms / 1000.0));
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  pages        {}", listed(&self.pages, count));
        if !self.found.is_empty() {
            let _ = writeln!(text, "  found there  {}", listed(&self.found, count));
        }
        for (class, codecs) in self.codecs.iter().rev() {
            for (codec, of) in codecs {
                let _ = writeln!(
                    text,
                    "  {class:<12} {codec} {} to {} ({:.0} %) in {} s",
                    in_bytes(of.bytes),
                    in_bytes(of.packed),
                    of.ratio * 100.0,
                    seconds(&of.took_ms)
                );
            }
        }
        let _ = writeln!(text, "  source s     {}", listed(&self.source_ms, seconds));
        if !self.destination_ms.is_empty() {
            let stages = listed(&self.destination_ms, seconds);
            let _ = writeln!(text, "  there s      {stages}");
        }
        text
    }
}

/// The same of each run, by its name.
fn by_name<const N: usize>(
    runs: impl Iterator<Item = [(&'static str, u64); N]>,
) -> BTreeMap<String, Spread> {
    let mut values: BTreeMap<_, Vec<f64>> = BTreeMap::new();
    for (name, value) in runs.flatten() {
        values.entry(name).or_default().push(value as f64);
    }
    let spreads = values.into_iter();
    spreads
        .filter_map(|(name, values)| Some((name.to_owned(), Spread::of(values)?)))
        .collect()
}

fn codecs(views: &[&ReductionView], class: ContentClass) -> BTreeMap<String, CodecSummary> {
    let all = views.iter().flat_map(|view| &view.codecs);
    let names = all
        .filter(|of| of.class == class)
        .map(|of| of.codec.as_str());
    let names: std::collections::BTreeSet<_> = names.collect();
    let summary = |name: &str| {
        let values = |value: fn(&drover_api::CodecView) -> u64| {
            let of_run = |view: &&ReductionView| {
                let mut codecs = view.codecs.iter();
                let of = codecs.find(|of| of.class == class && of.codec == name);
                of.map_or(0.0, |of| value(of) as f64)
            };
            views.iter().map(of_run).collect::<Vec<_>>()
        };
        let (bytes, packed) = (values(|of| of.bytes.0), values(|of| of.packed.0));
        let sum = |values: &[f64]| values.iter().sum::<f64>();
        Some(CodecSummary {
            ratio: sum(&packed) / sum(&bytes).max(1.0),
            bytes: Spread::of(bytes)?,
            packed: Spread::of(packed)?,
            took_ms: Spread::of(values(|of| of.took_ms))?,
        })
    };
    names
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), summary(name)?)))
        .collect()
}

fn listed(all: &BTreeMap<String, Spread>, value: impl Fn(&Spread) -> String) -> String {
    let parts: Vec<_> = all
        .iter()
        .map(|(name, spread)| format!("{name} {}", value(spread)))
        .collect();
    parts.join(", ")
}

fn in_bytes(spread: Spread) -> String {
    shown(spread, |bytes| Bytes(bytes as u64).to_string())
}

/// The median, and in brackets how far the runs were apart, where they were.
fn shown(spread: Spread, value: impl Fn(f64) -> String) -> String {
    let [median, min, max] = [spread.median, spread.min, spread.max].map(value);
    if min == max {
        median
    } else {
        format!("{median} ({min}-{max})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn run(wire: u64, codecs: Value, found: u64) -> DroverFacts {
        serde_json::from_value(json!({
            "total_ms": 1, "downtime_ms": 1, "bulk_goodput": null, "channels": 2, "lanes": [1],
            "resent_bytes": 0, "protocol_bytes": 0, "notes": [],
            "reduction": {
                "mode": "auto", "kept_most": 1, "raw_bytes": 100 << 20, "wire_bytes": wire << 20,
                "passed_bytes": 0, "change_bytes": wire << 10, "codecs": codecs,
                "pages": {"zero": 9, "filled": 1, "same": 2, "stored": 3, "changed": 4, "ordinary": 5, "dense": 6},
                "ordinary": {"bytes": 0, "packed": 0}, "dense": {"bytes": 0, "packed": 0},
                "times": {"lines_ms": 1000 + wire, "destination_ms": 0, "hypervisor_ms": 0, "processors_ms": 0,
                          "describing_ms": 0, "packing_ms": 0, "trying_ms": 0, "carrying_ms": 0},
            },
            "expansion": {
                "chunks": 1, "raw_bytes": 100 << 20, "wire_bytes": wire << 20, "passed_bytes": 0,
                "times": {"unpacking_ms": 500, "fetching_ms": 0, "expanding_ms": 0, "checking_ms": 0,
                          "storing_ms": 0, "processors_ms": 0, "hypervisor_ms": 0},
            },
            "shared_pages": {"told": 9, "found": found, "found_in_checkpoint": 7, "added": 0, "left_out": 0},
        }))
        .unwrap()
    }

    fn codec(codec: &str, bytes: u64, packed: u64) -> Value {
        json!({"codec": codec, "class": "ordinary", "bytes": bytes << 20, "packed": packed << 20, "took_ms": 100})
    }

    #[test]
    fn medians_are_over_all_repeats_and_a_codec_that_one_of_them_did_not_use_counts_there_as_none()
    {
        let runs = [
            run(30, json!([codec("lz4", 40, 20)]), 10),
            run(
                50,
                json!([codec("lz4", 20, 10), codec("zstd:1", 20, 5)]),
                30,
            ),
            run(40, json!([codec("lz4", 40, 30)]), 20),
        ];
        let summary = ReducedSummary::of(&runs.each_ref()).unwrap();
        assert!((summary.wire_bytes.median - f64::from(40 << 20)).abs() < 1.0);
        assert_eq!(summary.found["shared"].median as u64, 20);
        assert_eq!(summary.found["checkpoint"].median as u64, 7);
        assert_eq!(summary.source_ms["lines"].max as u64, 1050);
        assert_eq!(summary.destination_ms["unpacking"].median as u64, 500);
        let ordinary = &summary.codecs["ordinary"];
        assert!((ordinary["lz4"].ratio - 0.6).abs() < 1e-9);
        assert_eq!(ordinary["zstd:1"].bytes.median as u64, 0);
        assert!(summary.codecs["dense"].is_empty());
        let told = summary.lines();
        for line in [
            "bytes        100 MiB became 40 MiB (30 MiB-50 MiB), 0 B of them passed as they are; changes of pages 40 KiB (30 KiB-50 KiB)\n",
            "pages        changed 4, dense 6, filled 1, ordinary 5, same 2, stored 3, stored_changed 0, zero 9\n",
            "found there  checkpoint 7, shared 20 (10-30)\n",
            "ordinary     lz4 40 MiB (20 MiB-40 MiB) to 20 MiB (10 MiB-30 MiB) (60 %) in 0.10 s\n",
            "lines 1.04 (1.03-1.05)",
            "there s      checking 0.00",
        ] {
            assert!(told.contains(line), "{line}\n{told}");
        }
        let json = serde_json::to_value(&summary).unwrap();
        assert_eq!(json["codecs"]["ordinary"]["lz4"]["ratio"], 0.6);
    }

    #[test]
    fn where_nothing_was_reduced_there_is_nothing_to_tell() {
        let mut off = run(1, json!([]), 0);
        off.reduction = None;
        assert_eq!(ReducedSummary::of(&[&off]), None);
    }
}
