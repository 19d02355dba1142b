//! What a guest's process shows in `/proc`.

use std::collections::BTreeSet;
use std::path::Path;

use drover_tune::facts::{Card, Fact, Pages, Seen};
use drover_types::Bytes;

use crate::limits::{DESCRIPTORS_READ, THREADS_READ};

const VHOST: &str = "/dev/vhost-net";
const TUN: &str = "/dev/net/tun";

/// Why its memory is not walked through.
const BEING_COPIED: &str =
    "its memory is being moved, or saved, and a walk through it takes a lock that QEMU needs";

/// Of a file system whose pages are huge (`HUGETLBFS_MAGIC`, statfs(2)).
const HUGETLBFS: i64 = 0x9584_58f6;

/// It.
#[derive(Debug)]
pub struct Process {
    pub vhost: Fact<u32>,
    pub taps: Fact<BTreeSet<String>>,
    pub pages: Fact<Pages>,
    pub lockable: Fact<Option<Bytes>>,
}

impl Default for Process {
    fn default() -> Self {
        Self::unknown("its process was not read in time")
    }
}

impl Process {
    /// One of which nothing is known, and why.
    pub fn unknown(why: &str) -> Self {
        Self {
            vhost: Fact::unknown(why),
            taps: Fact::unknown(why),
            pages: Fact::unknown(why),
            lockable: Fact::unknown(why),
        }
    }

    /// With what is known of the guest beside.
    pub fn seen(self, accelerated: Fact<bool>, cards: Fact<Vec<Card>>) -> Seen {
        Seen {
            accelerated,
            cards,
            vhost: self.vhost,
            taps: self.taps,
            pages: self.pages,
            lockable: self.lockable,
        }
    }
}

/// Reads it; what has ended meanwhile has nothing.
pub fn read(pid: u32) -> Process {
    let (vhost, taps) = match descriptors(pid) {
        Ok((vhost, taps)) => (Fact::Known(vhost), Fact::Known(taps)),
        Err(why) => (Fact::unknown(why.clone()), Fact::unknown(why)),
    };
    let pages = match is_copied(pid) {
        true => Err(BEING_COPIED.to_owned()),
        false => walked(pid),
    };
    let pages = pages.map_or_else(Fact::Unknown, Fact::Known);
    let lockable = lockable(pid).map_or_else(Fact::Unknown, Fact::Known);
    Process {
        vhost,
        taps,
        pages,
        lockable,
    }
}

/// The kernel walks through all of it.
fn walked(pid: u32) -> Result<Pages, String> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = std::fs::read_to_string(&path);
    let text = text.map_err(|error| format!("cannot read {path}: {error}"))?;
    pages(&text).ok_or_else(|| format!("{path} tells none"))
}

/// How QEMU calls threads that copy a guest's memory: of 9.1 and newer, and before that (`migration/migration.c`, `ram.c`, `multifd.c`).
/// It names its threads where it is told to (`debug-threads`), as libvirt does.
const COPYING: [&str; 7] = [
    "mig/src/",
    "mig/dst/",
    "mig/snapshot",
    "live_migration",
    "bg_snapshot",
    "multifdsend",
    "multifdrecv",
];

/// Whether its memory is being moved, or saved. libvirt tells of that after whatever it does with the domain at the time, and a QEMU
/// that hangs would hold up all that it is asked.
fn is_copied(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    let threads = threads.into_iter().flatten().flatten();
    let mut names = threads.take(THREADS_READ).filter_map(|thread| {
        let name = std::fs::read_to_string(thread.path().join("comm"));
        name.ok()
    });
    names.any(|name| COPYING.iter().any(|copying| name.starts_with(copying)))
}

/// Bit of the right to lock memory without a limit (`CAP_IPC_LOCK`, capabilities(7)).
const LOCKS: u32 = 14;

/// What it may lock; none without a limit.
fn lockable(pid: u32) -> Result<Option<Bytes>, String> {
    let read = |file: &str| {
        let path = format!("/proc/{pid}/{file}");
        std::fs::read_to_string(&path).map_err(|error| format!("cannot read {path}: {error}"))
    };
    let (limits, status) = (read("limits")?, read("status")?);
    let limit = lock_limit(&limits).ok_or_else(|| format!("/proc/{pid}/limits tells none"))?;
    Ok(limit.filter(|_| !locks_freely(&status)))
}

/// Such as `Max locked memory         8388608              8388608              bytes`: the first number counts.
fn lock_limit(limits: &str) -> Option<Option<Bytes>> {
    let mut lines = limits.lines();
    let rest = lines.find_map(|line| line.strip_prefix("Max locked memory"))?;
    match rest.split_ascii_whitespace().next()? {
        "unlimited" => Some(None),
        number => Some(Some(Bytes(number.parse().ok()?))),
    }
}

/// Such as `CapEff:\t000001ffffffffff`.
fn locks_freely(status: &str) -> bool {
    let mut lines = status.lines();
    let rights = lines.find_map(|line| line.strip_prefix("CapEff:"));
    let rights = rights.and_then(|rights| u64::from_str_radix(rights.trim(), 16).ok());
    rights.is_some_and(|rights| rights >> LOCKS & 1 == 1)
}

/// How many of the kernel's queues it has, and interfaces.
fn descriptors(pid: u32) -> Result<(u32, BTreeSet<String>), String> {
    let folder = format!("/proc/{pid}/fd");
    let entries =
        std::fs::read_dir(&folder).map_err(|error| format!("cannot read {folder}: {error}"))?;
    let (mut vhost, mut taps) = (0, BTreeSet::new());
    for entry in entries.flatten().take(DESCRIPTORS_READ) {
        let Ok(leads_to) = std::fs::read_link(entry.path()) else {
            continue;
        };
        if leads_to == Path::new(VHOST) {
            vhost += 1;
        } else if leads_to == Path::new(TUN) {
            let number = entry.file_name();
            let info = format!("/proc/{pid}/fdinfo/{}", number.to_string_lossy());
            taps.extend(
                std::fs::read_to_string(info)
                    .ok()
                    .as_deref()
                    .and_then(interface),
            );
        }
    }
    Ok((vhost, taps))
}

/// Such as `iff:\ttap0` (`tun_chr_show_fdinfo` in Linux's `drivers/net/tun.c`).
fn interface(info: &str) -> Option<String> {
    let mut lines = info.lines();
    lines
        .find_map(|line| line.strip_prefix("iff:"))
        .map(|name| name.trim().to_owned())
}

/// Lines such as `AnonHugePages:   2048 kB` (`Documentation/ABI/testing/procfs-smaps_rollup`).
fn pages(text: &str) -> Option<Pages> {
    let kib = |name: &str| -> Option<u64> {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_ascii_whitespace().next()?.parse().ok()
    };
    let sum = |names: &[&str]| {
        let all = names.iter().filter_map(|name| kib(name));
        Bytes(all.fold(0, u64::saturating_add).saturating_mul(1024))
    };
    let huge = sum(&["Shared_Hugetlb", "Private_Hugetlb"]);
    let small = kib("Rss")?.saturating_mul(1024);
    Some(Pages {
        touched: Bytes(small.saturating_add(huge.0)),
        joined: sum(&["AnonHugePages", "ShmemPmdMapped", "FilePmdMapped"]),
        huge,
    })
}

/// Size of the pages of files there, in bytes; none where they are as small as all others.
pub fn huge_page_size(path: &Path) -> Option<u64> {
    let found = rustix::fs::statfs(path).ok()?;
    let is_huge = found.f_type == HUGETLBFS;
    is_huge.then(|| u64::try_from(found.f_bsize).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_told_by_the_size_of_its_pages() {
        let text = "55-7f ---p 00000000 00:00 0 [rollup]\nRss:  4096 kB\nPss: 1 kB\nAnonHugePages: 2048 kB\n\
                    ShmemPmdMapped: 1024 kB\nShared_Hugetlb: 0 kB\nPrivate_Hugetlb: 8192 kB\n";
        let read = pages(text).unwrap();
        let mib = |count: u64| Bytes(count << 20);
        assert_eq!(
            (read.touched, read.joined, read.huge),
            (mib(12), mib(3), mib(8))
        );
        assert_eq!(pages("Pss: 1 kB\n"), None);
    }

    #[test]
    fn what_may_be_locked_is_limited_unless_the_process_has_the_right_to_do_without() {
        let line = |number| {
            format!(
                "Max processes  7 7 processes\nMax locked memory         {number}    8388608   bytes\n"
            )
        };
        assert_eq!(lock_limit(&line("8388608")), Some(Some(Bytes(8 << 20))));
        assert_eq!(lock_limit(&line("unlimited")), Some(None));
        assert_eq!(lock_limit("Max processes 7"), None);
        assert!(locks_freely("Name: x\nCapEff:\t000001ffffffffff\n"));
        assert!(!locks_freely("CapEff:\t0000000000000000\n") && !locks_freely(""));
    }

    #[test]
    fn an_open_interface_is_known_by_its_name() {
        assert_eq!(
            interface("pos:\t0\nflags:\t0104002\niff:\ttap0\n"),
            Some("tap0".into())
        );
        assert_eq!(interface("pos:\t0\n"), None);
    }

    #[test]
    fn a_process_is_read_and_one_that_has_ended_says_so() {
        let own = read(std::process::id());
        assert!(
            own.pages.known().is_some_and(|pages| pages.touched.0 > 0),
            "{own:?}"
        );
        assert_eq!(own.vhost, Fact::Known(0));
        // One that is being moved is not walked through.
        for name in ["live_migration", "mig/src/main"] {
            let (begins, begun) = std::sync::mpsc::channel();
            let (ends, ended) = std::sync::mpsc::channel::<()>();
            let copies = move || {
                let _ = begins.send(());
                let _ = ended.recv();
            };
            let thread = std::thread::Builder::new().name(name.to_owned());
            let thread = thread.spawn(copies).unwrap();
            begun.recv().unwrap();
            let own = read(std::process::id());
            assert_eq!(own.pages.get(), Err(BEING_COPIED), "{name}");
            assert_eq!(own.vhost, Fact::Known(0));
            drop(ends);
            thread.join().unwrap();
        }
        let gone = read(u32::MAX);
        assert!(
            gone.pages.get().unwrap_err().contains("smaps_rollup"),
            "{gone:?}"
        );
        assert_eq!(huge_page_size(Path::new("/proc")), None);
    }
}
