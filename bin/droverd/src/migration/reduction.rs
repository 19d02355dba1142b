//! Agreeing with the other agent on whether bytes are reduced, and how much memory that takes.

use std::time::Duration;

use drover_api::{
    ErrorCode, OpaqueChannel, ReducedPages, ReducedSection, ReductionDecided, ReductionTerms,
    ReductionTimes, ReductionVerdict, ReductionView, Refusal, SessionSizes, SharedPagesView,
    SlowestStage,
};
use drover_relay::{
    Codec, Decided, Level, Policy, Reduced, Reduction, Section, Slowest, StoredPages, Times,
    Verdict, Way,
};
use drover_types::{ByteRate, Bytes, HostName, ReductionMode};

use super::expansion::codecs;
use crate::limits::{
    KEPT_PART_LEAST, STORED_PAGE_BYTES, STORED_PART, WINDOW_LOG, WINDOW_LOG_LEAST,
};

/// The layout of reduced chunks that this agent reads and writes (`drover-reduce`).
const LAYOUT: u32 = 1;

/// The same in the session of a domain, in which others than QEMU's memory have channels: relays of before did not start so.
const LAYOUT_OF_DOMAINS: u32 = 2;

/// Of every guest: QEMU's pages on x86-64. One of another architecture is carried as it is, and that is told.
const PAGE_BYTES: u32 = 4096;

/// As the source: what is asked for; nothing when it is off.
#[must_use]
pub fn wanted(
    mode: ReductionMode,
    memory: Bytes,
    sizes: SessionSizes,
    is_domain: bool,
) -> Option<ReductionTerms> {
    if mode == ReductionMode::Off {
        return None;
    }
    terms(memory, sizes, layout(is_domain))
}

const fn layout(is_domain: bool) -> u32 {
    match is_domain {
        true => LAYOUT_OF_DOMAINS,
        false => LAYOUT,
    }
}

/// Pages that the destination's host has stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// None.
    Nothing,
    /// Those that guests share.
    Shared,
    /// The guest's own, whether others' or not.
    Checkpoint,
}

/// As the destination: what both can do, with this much memory, and which pages are stored here.
#[must_use]
pub fn decide(
    wanted: Option<&ReductionTerms>,
    memory: Bytes,
    sizes: SessionSizes,
    stored: Stored,
    is_domain: bool,
) -> Option<ReductionTerms> {
    let wanted = wanted?;
    let own = terms(memory, sizes, layout(is_domain))?;
    let is_known = wanted.layout == own.layout && wanted.page_bytes == own.page_bytes;
    is_known.then(|| ReductionTerms {
        kept_pages: wanted.kept_pages.min(own.kept_pages),
        window_log: wanted.window_log.min(own.window_log),
        stored_pages: if stored == Stored::Nothing {
            0
        } else {
            wanted.stored_pages
        },
        // Of others' pages nothing is known that this guest has changed.
        stored_changes: stored == Stored::Checkpoint && wanted.stored_changes,
        ..own
    })
}

/// As the source: whether what the destination decided is no more than was asked for.
///
/// # Errors
/// It is more.
pub fn check(
    host: &HostName,
    wanted: Option<&ReductionTerms>,
    decided: Option<&ReductionTerms>,
) -> Result<(), Refusal> {
    let Some(decided) = decided else {
        return Ok(());
    };
    let within = |wanted: &ReductionTerms| {
        (decided.layout, decided.page_bytes) == (wanted.layout, wanted.page_bytes)
            && decided.kept_pages <= wanted.kept_pages
            && decided.window_log <= wanted.window_log
            && decided.stored_pages <= wanted.stored_pages
            && decided.stored_changes <= wanted.stored_changes
    };
    if wanted.is_some_and(within) {
        return Ok(());
    }
    let asked = wanted.map_or_else(|| "nothing".to_owned(), |wanted| format!("{wanted:?}"));
    let message = format!("{host} wants to reduce by {decided:?}, and was asked for {asked}");
    let refusal = Refusal::new(ErrorCode::VersionMismatch, message);
    Err(refusal.next(format!(
        "look what runs on {host}: an agent does not answer so"
    )))
}

/// As the source: how it is shown before anything has crossed; why it is not done though it was to be.
///
/// # Errors
/// The words for that.
pub fn view(
    mode: ReductionMode,
    host: &HostName,
    decided: Option<&ReductionTerms>,
) -> Result<Option<ReductionView>, String> {
    let Some(decided) = decided else {
        return match mode {
            ReductionMode::Off => Ok(None),
            _ => Err(format!(
                "no bytes are reduced ({mode} was wanted): the agent of {host} is too old for it, or \
                 `migration.reduction_memory` is too little on one of both hosts"
            )),
        };
    };
    Ok(Some(ReductionView {
        mode,
        kept_most: Bytes(u64::from(decided.kept_pages) * u64::from(decided.page_bytes)),
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
    }))
}

/// What became of the bytes so far.
pub fn show(view: &mut ReductionView, reduced: &Reduced) {
    let counts = reduced.counts;
    let section = |section: Section| ReducedSection {
        bytes: Bytes(section.bytes),
        packed: Bytes(section.packed),
    };
    view.kept_bytes = Bytes(reduced.kept);
    view.raw_bytes = Bytes(counts.raw);
    view.wire_bytes = Bytes(counts.wire);
    view.passed_bytes = Bytes(counts.passed);
    view.change_bytes = Bytes(counts.change_bytes);
    view.pages = ReducedPages {
        zero: reduced.zero,
        filled: counts.filled,
        same: counts.same,
        stored: counts.stored,
        stored_changed: counts.stored_changed,
        changed: counts.changed,
        ordinary: counts.ordinary,
        dense: counts.dense,
    };
    view.ordinary = section(counts.ordinary_section);
    view.dense = section(counts.dense_section);
    view.codecs = codecs(&reduced.codecs);
    view.times = times(&reduced.times);
    view.decided = reduced.decided.as_ref().map(decided);
    let opaque = reduced.opaque.iter().cloned();
    let words = &reduced.opaque_words;
    let word = |channel: u16| {
        let found = words.iter().find(|(of, _)| *of == channel);
        found.map(|(_, word)| word.clone())
    };
    view.opaque = opaque
        .map(|(channel, why)| OpaqueChannel {
            channel,
            why,
            word: word(channel),
        })
        .collect();
}

/// What became of pages that guests share.
pub fn shared(stored: &StoredPages) -> SharedPagesView {
    SharedPagesView {
        told: stored.told,
        untold: stored.untold,
        found: stored.read,
        found_in_checkpoint: stored.read_sealed,
        added: stored.added,
        waiting: stored.waiting,
        left_out: stored.left_out,
        recorded: stored.recorded,
        unrecorded: stored.unrecorded,
        compared: stored.compared,
        trouble: stored.trouble.clone(),
    }
}

fn times(times: &Times) -> ReductionTimes {
    let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    ReductionTimes {
        lines_ms: milliseconds(times.for_lines),
        destination_ms: milliseconds(times.for_destination),
        hypervisor_ms: milliseconds(times.for_qemu),
        processors_ms: milliseconds(times.for_processors),
        describing_ms: milliseconds(times.describing),
        packing_ms: milliseconds(times.packing),
        trying_ms: milliseconds(times.trying),
        carrying_ms: milliseconds(times.carrying),
    }
}

/// For a relay.
#[must_use]
pub fn for_relay(terms: Option<ReductionTerms>, mode: ReductionMode) -> Option<Reduction> {
    let ReductionTerms {
        page_bytes,
        kept_pages,
        window_log,
        stored_pages,
        ..
    } = terms?;
    Some(Reduction {
        page_bytes,
        kept_pages,
        stored_pages,
        window_log,
        policy: policy(mode),
    })
}

fn policy(mode: ReductionMode) -> Policy {
    Policy::Always(match mode {
        ReductionMode::Auto => return Policy::Fastest,
        ReductionMode::Off => Way::Off,
        ReductionMode::Pages => Way::with(Codec::None),
        ReductionMode::Lz4 => Way::with(Codec::Lz4),
        ReductionMode::Zstd(level) => match Level::new(level) {
            Some(level) => Way::with(Codec::Zstd(level)),
            None => Way::Off,
        },
    })
}

/// In the words that are used to order it.
fn mode(way: Way) -> ReductionMode {
    match way {
        Way::Off => ReductionMode::Off,
        Way::On { codec, .. } => match codec {
            Codec::None => ReductionMode::Pages,
            Codec::Lz4 => ReductionMode::Lz4,
            Codec::Zstd(level) => ReductionMode::Zstd(level.into()),
        },
    }
}

fn decided(decided: &Decided) -> ReductionDecided {
    let dense = |way: Way| matches!(way, Way::On { dense: true, .. });
    let verdict = |verdict: &Verdict| ReductionVerdict {
        mode: mode(verdict.way),
        dense: dense(verdict.way),
        used: verdict.used,
        permille: (verdict.ratio * 1000.0).round() as u64,
        processed: ByteRate(verdict.processed as u64),
        crosses: ByteRate(verdict.goodput as u64),
        slower: verdict.slower,
    };
    ReductionDecided {
        mode: mode(decided.way),
        dense: dense(decided.way),
        slowest: decided.slowest.map(|slowest| match slowest {
            Slowest::Lines => SlowestStage::Lines,
            Slowest::Destination => SlowestStage::Destination,
            Slowest::Qemu => SlowestStage::Hypervisor,
            Slowest::Processors => SlowestStage::Processors,
        }),
        changes: decided.changes,
        verdicts: decided.verdicts.iter().map(verdict).collect(),
    }
}

/// What so much memory is good for: a window for each channel, a part to know stored pages by, and pages for the rest. None where that is too little
/// for anything.
fn terms(memory: Bytes, sizes: SessionSizes, layout: u32) -> Option<ReductionTerms> {
    let channels = u64::from(sizes.channels_max);
    let taken = |log: u32| channels * (2 << log);
    let stored = memory.0 / STORED_PART;
    let fits = |log: &u32| taken(*log) + stored + memory.0 / KEPT_PART_LEAST <= memory.0;
    let window_log = (WINDOW_LOG_LEAST..=WINDOW_LOG).rev().find(fits)?;
    let kept = (memory.0 - stored - taken(window_log)) / u64::from(PAGE_BYTES);
    Some(ReductionTerms {
        layout,
        page_bytes: PAGE_BYTES,
        kept_pages: u32::try_from(kept).unwrap_or(u32::MAX),
        window_log,
        stored_pages: u32::try_from(stored / STORED_PAGE_BYTES).unwrap_or(u32::MAX),
        stored_changes: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: SessionSizes = SessionSizes {
        chunk_bytes: 128 << 10,
        window: 16,
        channels_max: 6,
    };
    const ZSTD: ReductionMode = ReductionMode::Zstd(1);

    fn asked(memory: u64) -> ReductionTerms {
        wanted(ZSTD, Bytes(memory), SIZES, false).unwrap()
    }

    #[test]
    fn memory_is_shared_between_windows_and_pages_and_no_more_is_taken() {
        for mebibytes in [8, 64, 256, 4096] {
            let memory = mebibytes << 20;
            let terms = asked(memory);
            let kept = u64::from(terms.kept_pages) * 4096;
            let windows = 6 * (2 << terms.window_log);
            let stored = u64::from(terms.stored_pages) * STORED_PAGE_BYTES;
            assert!(kept + windows + stored <= memory, "{terms:?}");
            assert!(kept >= memory / 2, "{terms:?}");
        }
        assert_eq!(asked(256 << 20).window_log, WINDOW_LOG);
        assert_eq!(wanted(ZSTD, Bytes(1 << 20), SIZES, false), None);
        assert_eq!(
            wanted(ReductionMode::Off, Bytes(1 << 30), SIZES, false),
            None
        );
    }

    #[test]
    fn the_end_with_less_memory_decides_and_the_other_takes_no_more_than_it_asked_for() {
        let (much, little) = (asked(1 << 30), asked(64 << 20));
        let decided = decide(
            Some(&much),
            Bytes(64 << 20),
            SIZES,
            Stored::Checkpoint,
            false,
        );
        let all = ReductionTerms {
            stored_pages: much.stored_pages,
            ..little
        };
        assert_eq!(decided, Some(all));
        let unshared = decide(Some(&much), Bytes(64 << 20), SIZES, Stored::Nothing, false);
        let unshared = unshared.unwrap();
        assert_eq!((unshared.stored_pages, unshared.stored_changes), (0, false));
        // An agent that does not know of them has asked for none.
        let older = ReductionTerms {
            stored_changes: false,
            ..much
        };
        let decided_older = decide(
            Some(&older),
            Bytes(64 << 20),
            SIZES,
            Stored::Checkpoint,
            false,
        )
        .unwrap();
        assert!(!decided_older.stored_changes);
        assert!(check(&"b".parse().unwrap(), Some(&older), decided.as_ref()).is_err());
        let shared = decide(Some(&much), Bytes(64 << 20), SIZES, Stored::Shared, false).unwrap();
        assert_eq!(shared.stored_pages, much.stored_pages);
        assert!(!shared.stored_changes);
        let host = "b".parse().unwrap();
        assert!(check(&host, Some(&much), decided.as_ref()).is_ok());
        assert!(check(&host, Some(&much), None).is_ok());
        for wanted in [Some(&little), None] {
            let refusal = check(&host, wanted, Some(&much)).unwrap_err();
            assert!(refusal.message.contains("b wants to reduce"), "{refusal:?}");
        }
    }

    #[test]
    fn what_an_agent_does_not_know_is_not_agreed_on() {
        let newer = ReductionTerms {
            layout: 2,
            ..asked(1 << 30)
        };
        assert_eq!(
            decide(
                Some(&newer),
                Bytes(1 << 30),
                SIZES,
                Stored::Checkpoint,
                false
            ),
            None
        );
        assert_eq!(
            decide(None, Bytes(1 << 30), SIZES, Stored::Checkpoint, false),
            None
        );
        // One that knows of no channels but QEMU's takes a domain's terms for those of a layout that is new to it.
        let of_domain = wanted(ZSTD, Bytes(1 << 30), SIZES, true);
        let decide = |is_domain| {
            let (memory, stored) = (Bytes(1 << 30), Stored::Nothing);
            decide(of_domain.as_ref(), memory, SIZES, stored, is_domain)
        };
        assert_eq!(decide(false), None);
        let decided = decide(true);
        let host = "b".parse().unwrap();
        assert!(check(&host, of_domain.as_ref(), decided.as_ref()).is_ok());
        assert_eq!(decided.map(|terms| terms.stored_pages), Some(0));
        let told = view(ZSTD, &host, None).unwrap_err();
        assert!(told.contains("the agent of b"), "{told}");
        assert_eq!(view(ReductionMode::Off, &host, None), Ok(None));
    }
}
