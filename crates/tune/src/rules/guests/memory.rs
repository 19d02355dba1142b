//! What a guest's memory is made of.

use drover_types::Bytes;

use super::asked::{Backend, backends, lock};
use super::{Placed, in_definition, listed};
use crate::cost::of_small_pages;
use crate::facts::Guest;
use crate::finding::{Answer, Because, Found, Severity, Verdict};
use crate::rules::used::is_in_use;

/// Memory of which it matters by which pages it is had: 4 MiB of tables for 2 GiB of small ones, more than a processor's cache has.
const MATTERS: Bytes = Bytes(2 << 30);

/// How fast one thread fills memory: 8 GiB took 5.1 s.
const FILLED_A_SECOND: u64 = 1_600 << 20;

/// From how long on it is worth a second thread: as long as all else before the first page crosses, several times.
const FILLED_SECONDS: u64 = 10;

/// Threads beyond which memory itself is the limit.
const THREADS_MOST: u32 = 8;

/// Other hosts have huge pages for a guest that asks for them.
pub fn huge_pages(placed: Placed<'_>) -> Verdict {
    let backends = backends(placed.guest)?;
    let huge: Vec<(u64, u64)> = backends
        .iter()
        .filter_map(|one| Some((one.huge?, one.bytes)))
        .collect();
    let Some(&(size, _)) = huge.first() else {
        return Ok(Answer::NotAbout);
    };
    // Parts of several sizes are rare, and each host would be asked for the first one.
    let needed: u64 = huge
        .iter()
        .filter(|(of, _)| *of == size)
        .map(|(_, bytes)| bytes.div_ceil(size))
        .sum();
    let mut short = Vec::new();
    let mut can = 0;
    for other in placed.others()? {
        let all = other
            .memory
            .huge
            .get()
            .map_err(|why| Because(format!("of {}: {why}", other.name)))?;
        let has = all.get(&size).copied().unwrap_or_default();
        if has.available() >= needed {
            can += 1;
        } else {
            short.push(format!(
                "{} has {} of {}",
                other.name,
                has.available(),
                has.total
            ));
        }
    }
    if short.is_empty() {
        return Ok(Answer::Right);
    }
    let severity = if can == 0 {
        Severity::Critical
    } else {
        Severity::Warning
    };
    let kib = size / 1024;
    Ok(Answer::Found(Found {
        severity,
        read: format!(
            "it takes {needed} pages of {}; free: {}",
            Bytes(size),
            listed(short.iter().map(String::as_str))
        ),
        expected: "as many on each host that it may be moved to".into(),
        why: "QEMU does not start there without them, and the guest stays where it is".into(),
        cost: None,
        change: None,
        by_hand: Some(format!(
            "there, raise /sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages, best at boot (hugepages=), as memory that is in use cannot be joined; or move guests away that have them"
        )),
        lines: Vec::new(),
    }))
}

/// A guest's memory is had by huge pages.
pub fn pages(placed: Placed<'_>) -> Verdict {
    let (guest, memory) = (placed.guest, &placed.host.memory);
    let backends = backends(guest)?;
    if guest.memory < MATTERS {
        return Ok(Answer::NotAbout);
    }
    if backends.iter().any(|backend| backend.huge.is_some()) {
        return Ok(Answer::Right);
    }
    if backends.iter().any(|backend| backend.in_file) {
        return Err("its memory is in a file, and its file system has the say".into());
    }
    let shared = backends.iter().find(|backend| backend.shared);
    let never = match shared {
        None => (memory.joins.get()? == "never").then(|| not_joined(placed)),
        Some(backend) => {
            let word = memory.joins_shared.get()?;
            matches!(word.as_str(), "never" | "deny")
                .then(|| shared_not_joined(guest, backend, word))
        }
    };
    if let Some(found) = never {
        return Ok(Answer::Found(found));
    }
    let pages = guest.seen.get()?.pages.get()?;
    if pages.touched < MATTERS || pages.joined.0.saturating_add(pages.huge.0) >= pages.touched.0 / 2
    {
        return Ok(Answer::Right);
    }
    Ok(Answer::Found(found_small(
        pages.touched,
        format!("{} of the {} that it has touched", pages.joined, pages.touched),
        "most of it by huge pages".into(),
        "the host's memory is in pieces: give it huge pages from the beginning, or start it anew where there is room".into(),
    )))
}

fn not_joined(placed: Placed<'_>) -> Found {
    found_small(
        placed.guest.memory,
        format!("{} joins no pages to huge ones (never)", placed.host.name),
        "madvise, or always: QEMU asks for it".into(),
        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, and start the guest anew"
            .into(),
    )
}

fn shared_not_joined(guest: &Guest, backend: &Backend<'_>, word: &str) -> Found {
    let lines = backend.with_huge_pages();
    let mut found = found_small(
        guest.memory,
        format!("its memory is shared, and the host joins no such pages to huge ones ({word})"),
        "huge pages, or advise".into(),
        format!(
            "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled, and start the guest anew; or, where the host and the others have huge pages, {}",
            in_definition(guest, backend.place(), &lines)
        ),
    );
    found.lines = lines;
    found
}

fn found_small(memory: Bytes, read: String, expected: String, by_hand: String) -> Found {
    Found {
        severity: Severity::Notice,
        read,
        expected,
        why: "each of its accesses goes through more tables, and reading all of its memory for a migration takes longer".into(),
        cost: Some(of_small_pages(memory)),
        change: None,
        by_hand: Some(by_hand),
        lines: Vec::new(),
    }
}

/// Memory that is filled beforehand is filled by several threads.
pub fn prealloc(placed: Placed<'_>) -> Verdict {
    let guest = placed.guest;
    let backends = backends(guest)?;
    let filled = |backend: &&Backend<'_>| backend.filled;
    let Some(slowest) = backends
        .iter()
        .filter(filled)
        .max_by_key(|backend| backend.seconds(guest.vcpus))
    else {
        return Ok(Answer::NotAbout);
    };
    let now = slowest.threads(guest.vcpus);
    let threads = guest.vcpus.clamp(2, THREADS_MOST);
    if slowest.seconds(guest.vcpus) < FILLED_SECONDS || now >= u64::from(threads) {
        return Ok(Answer::Right);
    }
    let lines = slowest.with_threads(threads);
    Ok(Answer::Found(Found {
        severity: Severity::Notice,
        read: format!("{} are filled beforehand by {} thread", Bytes(slowest.bytes), now),
        expected: format!("{threads} threads"),
        why: "the destination's QEMU does so before it answers, and only then is the guest's memory sent there".into(),
        cost: Some(format!("each of its migrations begins some {} s later", slowest.seconds(guest.vcpus))),
        change: None,
        by_hand: Some(in_definition(guest, slowest.place(), &lines)),
        lines,
    }))
}

/// Where others use RDMA, a guest's memory may be locked.
pub fn lockable(placed: Placed<'_>) -> Verdict {
    let has_rdma = placed
        .host
        .nics
        .iter()
        .any(|nic| nic.rdma.is_some() && is_in_use(placed.host, nic));
    if !has_rdma {
        return Ok(Answer::NotAbout);
    }
    let Some(lock) = lock(placed.guest)? else {
        return Ok(Answer::NotAbout);
    };
    let memory = placed.guest.memory;
    let Some(most) = lock.most.filter(|most| *most < memory) else {
        return Ok(Answer::Right);
    };
    Ok(Answer::Found(Found {
        severity: Severity::Notice,
        read: format!("{most} of {memory} may be locked"),
        expected: "all of it".into(),
        why: "RDMA locks the memory that it moves, and fails without that; Drover moves guests without RDMA, others may not".into(),
        cost: None,
        change: None,
        by_hand: Some(lock.by_hand),
        lines: Vec::new(),
    }))
}

impl Backend<'_> {
    /// As many as the guest has processors unless it is said (QEMU 7.1 and newer).
    fn threads(&self, vcpus: u32) -> u64 {
        self.threads.unwrap_or(vcpus).max(1).into()
    }

    fn seconds(&self, vcpus: u32) -> u64 {
        self.bytes / FILLED_A_SECOND / self.threads(vcpus)
    }
}
