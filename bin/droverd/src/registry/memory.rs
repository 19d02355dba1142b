//! How much of a guest's memory is more than zeros, from a sample of its pages.
//!
//! The guest's memory is the largest mapping of its process; its own is beside that, and may be more where the
//! guest is emulated. A page that is not in memory is not read, since that could fill it
//! (Linux: `Documentation/admin-guide/mm/pagemap.rst`, proc_pid_mem(5)).

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use drover_types::Bytes;

use crate::limits::SAMPLED_PAGES;

/// QEMU's own unit of what it carries, on every machine that this runs on.
const PAGE: u64 = 4096;

/// Bits of an entry of a pagemap.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;

/// Bytes of the guest of process `pid` in pages that are not zero; where those may not be read (a kernel's
/// `ptrace_scope`), in pages that it has. Reads some [`SAMPLED_PAGES`] pages, which takes milliseconds.
pub fn guest_memory(pid: u32) -> Option<Bytes> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let guest = largest(&maps)?;
    let pagemap = File::open(format!("/proc/{pid}/pagemap")).ok()?;
    let memory = File::open(format!("/proc/{pid}/mem")).ok();
    let pages = (guest.end - guest.start) / PAGE;
    let sample = sample(pages, SAMPLED_PAGES);
    let looked_at = sample.len() as u64;
    let first = guest.start / PAGE;
    let is_whole = |page: &u64| is_whole(&pagemap, memory.as_ref(), first + page);
    let whole = sample.iter().filter(|page| is_whole(page)).count() as u64;
    let bytes = u128::from(pages * PAGE) * u128::from(whole) / u128::from(looked_at.max(1));
    u64::try_from(bytes).ok().map(Bytes)
}

/// The largest mapping of a process (proc_pid_maps(5)).
fn largest(maps: &str) -> Option<Range<u64>> {
    let mapping = |line: &str| {
        let (start, end) = line.split_ascii_whitespace().next()?.split_once('-')?;
        let address = |hex| u64::from_str_radix(hex, 16).ok();
        let (start, end) = (address(start)?, address(end)?);
        (start < end).then_some(start..end)
    };
    let mappings = maps.lines().filter_map(mapping);
    mappings.max_by_key(|range| range.end - range.start)
}

/// One page of each of `count` parts of as many pages, at another place in each so that no
/// pattern of the guest's is met at every turn.
fn sample(pages: u64, count: u64) -> Vec<u64> {
    let part = (pages / count).max(1);
    let parts = (pages / part).min(count);
    // The fractional part of the golden ratio: consecutive multiples are spread evenly.
    let within = |number: u64| (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % part;
    (0..parts)
        .map(|number| number * part + within(number))
        .collect()
}

/// Whether the page of that number in the process's address space holds anything.
fn is_whole(pagemap: &File, memory: Option<&File>, page: u64) -> bool {
    let mut entry = [0; 8];
    if pagemap.read_exact_at(&mut entry, page * 8).is_err() {
        return false;
    }
    let entry = u64::from_ne_bytes(entry);
    if entry & PRESENT == 0 {
        return entry & SWAPPED != 0;
    }
    let mut bytes = [0; PAGE as usize];
    match memory.map(|memory| memory.read_exact_at(&mut bytes, page * PAGE)) {
        Some(Ok(())) => bytes.iter().any(|byte| *byte != 0),
        Some(Err(_)) | None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guests_memory_is_the_largest_mapping_of_its_process() {
        let maps = "7f00-7f01 rw-p 00000000 00:00 0\n7f10-7f40 rw-p 00000000 00:01 7 /memfd:ram (deleted)\n\
                    nonsense\nffff-0000 ---p\n7f40-7f60 r--p 0 00:00 0 [stack]\n";
        assert_eq!(largest(maps), Some(0x7f10..0x7f40));
        assert_eq!(largest(""), None);
    }

    #[test]
    fn a_sample_has_a_page_of_every_part_and_none_twice() {
        for (pages, count) in [(0, 10), (3, 10), (10, 10), (15, 10), (1_000_003, 4096)] {
            let sample = sample(pages, count);
            assert!(sample.len() as u64 <= count && (pages == 0 || !sample.is_empty()));
            assert!(sample.is_sorted_by(|one, next| one < next));
            assert!(sample.iter().all(|page| *page < pages), "{pages}");
        }
    }

    #[test]
    fn pages_of_zeros_and_such_that_were_never_touched_do_not_count() {
        // Larger than any other mapping of this process.
        let size = 1 << 30;
        let mut memory = vec![0_u8; size];
        let quarter = size / 4;
        memory[..quarter / 16].fill(0);
        memory[quarter..quarter + quarter / 16].fill(7);
        let whole = guest_memory(std::process::id()).unwrap().0;
        let expected = (quarter / 16) as u64;
        assert!(
            whole.abs_diff(expected) < expected / 10,
            "{whole}, not {expected}"
        );
        assert_eq!(guest_memory(u32::MAX), None);
    }
}
