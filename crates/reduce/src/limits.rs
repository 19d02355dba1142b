//! The bound of every size, each with its reason.

use std::time::Duration;

use crate::layout::HEADER_BYTES;

/// The smallest page of any architecture that QEMU migrates.
pub const PAGE_BYTES_LEAST: usize = 1 << 10;

/// The largest: as much as a packet of multifd carries.
pub const PAGE_BYTES_MOST: usize = 512 << 10;

/// Kept pages of a session: with pages of 4 KiB 16 GiB, more than any host gives.
pub const SLOTS_MOST: u32 = 1 << 22;

/// What a codec remembers of a channel, as a power of two of bytes: at most 128 MiB, zstd's own bound for a decoder that
/// was not told otherwise.
pub const WINDOW_LOG_MOST: u32 = 27;

/// At least 1 KiB: zstd's own bound.
pub const WINDOW_LOG_LEAST: u32 = 10;

/// What zstd takes to pack a channel beside its window, at the slowest level that is used: tables, and a block on its way.
pub const PACKING_BYTES: usize = 4 << 20;

/// The same to unpack one: a block on its way.
pub const UNPACKING_BYTES: usize = 512 << 10;

/// A change larger than this part of its page is sent as the page that it makes: to find one takes time at both ends, and
/// a codec takes half of most pages by itself.
pub const DELTA_PART: usize = 2;

/// Places that are looked at for one that can be given to another page. What is on its way holds some thousand of them at
/// most, and those that are next to each other came together.
pub const PLACES_TRIED: u32 = 64;

/// What an operation takes at most, beside the bytes that it carries: its name and three numbers of 5 bytes.
const OPERATION_BYTES: usize = 16;

/// What a chunk of so many bytes can stand for whatever is in them, so that it is no longer than agreed on: all of it
/// less its header, an operation for each page and for what is between two, and what zstd adds to bytes that it cannot
/// make fewer, which is 3 bytes for 128 KiB and 20 for each section.
#[must_use]
pub const fn raw_bytes_most(chunk_bytes: usize, page_bytes: usize) -> usize {
    let operations = 2 * (chunk_bytes / page_bytes + 1) * OPERATION_BYTES;
    let codec = 2 * (20 + 3 * (chunk_bytes / (128 << 10) + 1));
    chunk_bytes.saturating_sub(HEADER_BYTES + operations + codec)
}

/// How much the newest of measured values counts among them: what changed is half believed after two.
pub(crate) const NEWEST_COUNTS: f64 = 0.35;

/// Of what a codec made more or less than samples promised so much is forgotten with each look while no codec is in use: half of it in a
/// second. It was of other pages; where it holds all the same a trial finds it out, and the way is barred.
pub(crate) const UNSEEN_FADES: f64 = 0.035;

/// Of what carrying takes of a thread, the part that goes with the bytes on the lines (they are encrypted and sent); the
/// rest goes with QEMU's (they are read). About as much, and a trial follows.
pub(crate) const CARRYING_BY_WIRE: f64 = 0.5;

/// Another way has to promise so much more than the one in use, or take so much less: below it is noise, and a trial is not
/// for nothing.
pub(crate) const WORTH_A_CHANGE: f64 = 1.07;

/// Of ways that promise as much but for this, the cheapest is taken. With [`WORTH_A_CHANGE`] that is a tenth at most.
pub(crate) const ABOUT_AS_FAST: f64 = 1.03;

/// Of ways that are as fast, one that takes so much more of processors than the cheapest is used...
pub(crate) const LITTLE_MORE: f64 = 1.3;

/// ...and stays in use up to here...
pub(crate) const LITTLE_MORE_STAYS: f64 = 1.5;

/// ...where it leaves so much less for the lines. A codec over all pages of a first trip takes several times what carrying takes; over
/// those that a guest brings which comes back, a twentieth to a fifth.
pub(crate) const MUCH_LESS: f64 = 1.25;

/// ...and stays in use up to here.
pub(crate) const MUCH_LESS_STAYS: f64 = 1.12;

/// What a way that promised more has to reach in its trial, of what crossed before: more than what [`AS_FAST`] gives away, so
/// that two ways do not follow each other for ever.
pub(crate) const FASTER: f64 = 1.04;

/// What a way that promised to take less has to reach.
pub(crate) const AS_FAST: f64 = 0.97;

/// For so long another way has to be as fast for less, or a [`LEAP`], before it is tried: longer than one kind of pages comes for, and
/// within the 500 ms in which what changed is to have another way.
pub(crate) const LASTING: Duration = Duration::from_millis(400);

/// Where describing alone makes so many times fewer bytes, passing has to be faster. First trips stay below: describing leaves
/// 0.95 to 0.99 of theirs. What the destination has of a guest that comes back is above.
pub(crate) const LEAP: f64 = 2.0;

/// The same of a guest that comes back, where what is left goes through a codec as well. What codecs make of all of a guest's pages
/// stays below: 2.2 to 4.9 times fewer bytes where nothing is there (docs/measurements/reduction.md).
pub(crate) const PACKED_LEAP: f64 = 6.0;

/// ...of which a third does not have to cross at all: also where a guest packs better than that, packing alone is no reason. Of a heap of
/// Python's about half is the same after ten minutes.
pub(crate) const PACKED_LEAP_LEFT: f64 = 1.5;

/// Of a guest that comes back nothing that is a [`LEAP`] is tried before: a trial sends as much as all the rest of a small one.
pub(crate) const RETURN_LEAPS_FROM: Duration = Duration::from_secs(10);

/// So long such a guest keeps the codec that it begins with, unless the lines are what is waited for...
pub(crate) const RETURN_SETTLES: Duration = Duration::from_secs(1);

/// ...and so long where the destination had most of what came.
pub(crate) const RETURN_KEEPS: Duration = Duration::from_secs(4);

/// For [`MUCH_LESS`] of it a way may promise so much less: QEMU, which looks for pages, and the destination, which finds them,
/// work at the same time, and are waited for as well.
pub(crate) const RETURN_ABOUT_AS_FAST: f64 = LITTLE_MORE_STAYS;

/// Nothing is decided before: threads have just begun then, and the destination has not yet told what it has.
pub(crate) const FIRST_LOOK: Duration = Duration::from_millis(100);

/// A trial counts from here on: as much as sessions have on their way (25 ms), and some.
pub(crate) const TRIAL_SETTLES: Duration = Duration::from_millis(40);

/// A trial counts for so long: with what it takes to notice that something changed, there is another way within 500 ms.
pub(crate) const TRIAL_LASTS: Duration = Duration::from_millis(100);

/// A way that did not keep its promise is not tried again for so long, at first: it cost [`TRIAL_LASTS`] to learn that.
pub(crate) const BARRED_FOR: Duration = Duration::from_secs(2);

/// The same at most: then it costs a thousandth.
pub(crate) const BARRED_FOR_MOST: Duration = Duration::from_mins(1);

/// What was barred is tried again at once where lines carry a third more or less by now, or work takes a third more or less of the time: a
/// codec level is about as far from the next one.
pub(crate) const OTHER_CONDITIONS: f64 = 4.0 / 3.0;

/// How much the newest look counts for that: what others take of a processor differs by a factor of three from one look to the next. What
/// changed by half or more is seen within five, 250 ms.
pub(crate) const CONDITIONS_FOLLOW: f64 = 0.1;

/// Lines that were waited for, and are no longer, are believed to carry more after so long, at first.
pub(crate) const LINE_GROWS_AFTER: Duration = Duration::from_millis(500);

/// The same at most: a trial for nothing costs some 20 ms of time, so that is a hundredth, and lines that carry more while a processor
/// holds everything up are not seen in any other way: with what a trial takes they are found within 2.5 s.
pub(crate) const LINE_GROWS_AFTER_MOST: Duration = Duration::from_secs(2);

/// How much more with each look: the next quicker way is tried after one or two, and from the slowest to the quickest it
/// takes three trials.
pub(crate) const LINE_GROWTH: f64 = 1.6;

/// Lines that carry so much more or less from one moment to the next are others: what was found before is of no use.
pub(crate) const ANOTHER_LINE: f64 = 1.25;

/// How often one looks at what happened, and decides.
pub const DECIDED_EVERY: Duration = Duration::from_millis(50);

/// How often samples are tried out: they take some 2 ms of one thread (160 to 180 ms in moves of 8 s).
pub const SAMPLED_EVERY: Duration = Duration::from_millis(100);

/// The same at most, where bytes are passed as they are: what codecs would make of them has to be known to within the 500 ms in which what changed is to have another
/// way, and each chunk that is looked into is described at both ends, for nothing else.
pub const SAMPLED_EVERY_MOST: Duration = Duration::from_millis(400);

/// Bytes of a sample of each class: eight pages, of which codecs make nearly what they make of more.
pub const SAMPLE_BYTES: usize = 32 << 10;

/// What it takes to try them out: a window and tables for each level of zstd.
pub const SAMPLING_BYTES: usize = 10 << 20;

/// What codecs remember of samples, as a power of two of bytes.
pub(crate) const SAMPLE_WINDOW_LOG: u32 = 18;

/// What it takes at the source to find a kept page, beside its content: who has it on its way, and a place in each of two tables, of
/// which one may be growing.
pub const FINDING_BYTES: usize = 168;

/// Pages that are kept take their memory in pieces of so many bytes.
pub(crate) const PIECE_BYTES: usize = 4 << 20;
