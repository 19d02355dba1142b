//! Whether the host has room for one more guest's memory.
//!
//! ```text
//!   available now ─ kept free ─ what running guests were given and have not touched yet ≥ needed
//! ```

use std::collections::BTreeMap;

use drover_api::{ErrorCode, Refusal};
use drover_types::{Bytes, HostName, VmName};

use super::slot::Slot;

/// What the host can give.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// The kernel's estimate of what can be used without swapping.
    pub available: Bytes,
    /// What no guest may take.
    pub headroom: Bytes,
}

impl Room {
    /// Whether a guest of this size fits beside the others.
    ///
    /// # Errors
    /// The refusal, with the numbers.
    pub fn check(
        self,
        host: &HostName,
        name: &VmName,
        needed: Bytes,
        slots: &BTreeMap<VmName, Slot>,
    ) -> Result<(), Refusal> {
        let others = slots.iter().filter(|(other, _)| *other != name);
        let promised: Bytes = others.map(|(_, slot)| promised(slot)).sum();
        let free = self
            .available
            .0
            .saturating_sub(self.headroom.0)
            .saturating_sub(promised.0);
        if needed.0 <= free {
            return Ok(());
        }
        let message = format!(
            "guest {name} needs {needed} of memory, {host} has {} left: {} available, of which \
             {} are kept free and {promised} are promised to other guests",
            Bytes(free),
            self.available,
            self.headroom
        );
        Err(
            Refusal::new(ErrorCode::NotEnoughMemory, message).next(format!(
                "stop or move another guest, or lower `memory_headroom` in droverd.toml, on {host}"
            )),
        )
    }
}

/// What a guest may still take beyond what it has.
fn promised(slot: &Slot) -> Bytes {
    let Some(running) = &slot.process else {
        return slot.claimed;
    };
    let Some(record) = &running.record else {
        return Bytes(0);
    };
    let resident = resident(running.process.pid).unwrap_or_default();
    Bytes(record.definition.memory.0.saturating_sub(resident.0))
}

/// Memory that a process has touched (proc_pid_status(5)).
pub fn resident(pid: u32) -> Option<Bytes> {
    touched(&std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

/// `VmRSS`, and huge pages beside it, which it does not count: both in KiB.
fn touched(status: &str) -> Option<Bytes> {
    let kib = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().next()?.parse().ok()
    };
    let huge = kib("HugetlbPages:").unwrap_or(0);
    Some(Bytes(
        kib("VmRSS:")?.saturating_add(huge).saturating_mul(1024),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn host() -> HostName {
        "a".parse().unwrap()
    }

    fn claimed(bytes: u64) -> Slot {
        Slot {
            claimed: Bytes(bytes),
            ..Slot::default()
        }
    }

    #[test]
    fn memory_promised_to_guests_that_start_is_not_given_twice() {
        let name: VmName = "a".parse().unwrap();
        let mut slots = BTreeMap::new();
        let room = Room {
            available: Bytes(4 * GIB),
            headroom: Bytes(GIB),
        };
        assert!(room.check(&host(), &name, Bytes(3 * GIB), &slots).is_ok());
        slots.insert("b".parse().unwrap(), claimed(GIB));
        let refused = room
            .check(&host(), &name, Bytes(3 * GIB), &slots)
            .unwrap_err();
        assert_eq!(refused.code, ErrorCode::NotEnoughMemory);
        assert!(refused.message.contains("needs 3 GiB"), "{refused}");
        assert!(refused.message.contains("has 2 GiB left"), "{refused}");
        assert!(room.check(&host(), &name, Bytes(2 * GIB), &slots).is_ok());
    }

    #[test]
    fn a_guests_own_claim_does_not_count_against_it() {
        let name: VmName = "a".parse().unwrap();
        let slots = BTreeMap::from([(name.clone(), claimed(3 * GIB))]);
        let room = Room {
            available: Bytes(4 * GIB),
            headroom: Bytes(GIB),
        };
        assert!(room.check(&host(), &name, Bytes(3 * GIB), &slots).is_ok());
    }

    #[test]
    fn huge_pages_are_memory_that_a_guest_has() {
        let status = "Name:\tqemu\nVmRSS:\t  2048 kB\nHugetlbPages:\t 4096 kB\n";
        assert_eq!(touched(status), Some(Bytes(6 << 20)));
        assert_eq!(touched("VmRSS: 4 kB\n"), Some(Bytes(4096)));
        assert_eq!(touched("HugetlbPages: 4096 kB\n"), None);
    }

    #[test]
    fn a_process_has_touched_some_memory() {
        assert!(resident(std::process::id()).is_some_and(|bytes| bytes.0 > 0));
        assert_eq!(resident(u32::MAX), None);
    }
}
