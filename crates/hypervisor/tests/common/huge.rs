//! Huge pages for tests.

use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// More huge pages of this machine, until it is dropped.
pub struct HugePages {
    before: u64,
    _alone: MutexGuard<'static, ()>,
}

/// Or one test would give back what another one counts on.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const HUGE_PAGES: &str = "/proc/sys/vm/nr_hugepages";

fn huge_pages() -> u64 {
    let count = fs::read_to_string(HUGE_PAGES).unwrap_or_default();
    count.trim().parse().unwrap_or(0)
}

impl HugePages {
    /// So many; `None`, and said so, where they are not to be had.
    pub fn more(count: u64) -> Option<Self> {
        let alone = ONE_AT_A_TIME.lock();
        let before = huge_pages();
        let pages = Self {
            before,
            _alone: alone.unwrap_or_else(PoisonError::into_inner),
        };
        let wanted = before + count;
        let set = fs::write(HUGE_PAGES, wanted.to_string());
        let found = huge_pages();
        if found < wanted {
            println!("skipped, because {found} huge pages are to be had, not {wanted} ({set:?})");
            return None;
        }
        Some(pages)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = fs::write(HUGE_PAGES, self.before.to_string());
    }
}
