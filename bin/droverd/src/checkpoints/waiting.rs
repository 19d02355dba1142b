//! What waits before it is kept: pages of guests that leave, in memory, and checkpoints for who writes these pages.

use std::sync::{Arc, Mutex, PoisonError};

use drover_types::Bytes;

use super::Checkpoints;
use crate::limits::{CHECKPOINT_WAITING_LEAST, CHECKPOINT_WAITING_PART, CHECKPOINTS_DEFERRED};

/// Memory that was promised to guests that move, all together.
pub(super) type Promised = Arc<Mutex<u64>>;

/// Memory that pages of one guest may take while they wait to be kept. Dropped, others may have it.
#[derive(Debug)]
pub(super) struct WaitingRoom {
    all: Promised,
    bytes: u64,
}

impl WaitingRoom {
    /// So much.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for WaitingRoom {
    fn drop(&mut self) {
        *self.all.lock().unwrap_or_else(PoisonError::into_inner) -= self.bytes;
    }
}

impl Checkpoints {
    /// Promises memory for pages of a guest that begins to leave or arrives, on a host that has so much to give; and where that is less than configured,
    /// why.
    pub(super) fn waiting_room(&self, available: Option<Bytes>) -> (WaitingRoom, Option<String>) {
        let (given, all) = (self.0.memory, self.0.promised.clone());
        let mut promised = all.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = room(given, available, Bytes(*promised));
        let less = (bytes < given).then(|| {
            let others = Bytes(*promised);
            let has = available.map_or_else(
                || "it is not known what this host has to give".to_owned(),
                |available| {
                    format!(
                        "this host has {available} to give, of which other guests that move may take {others}, and a quarter of the rest is used"
                    )
                },
            );
            format!(
                "pages that wait to be kept for its return take {bytes} of memory at most, and not the {given} of `checkpoints.memory`: {has}"
            )
        });
        *promised += bytes.0;
        drop(promised);
        let bytes = bytes.0;
        (WaitingRoom { all, bytes }, less)
    }

    /// Does something with a file once whoever writes it is waited for, which nobody else has to wait for, and with what that told. Blocks
    /// nobody.
    pub fn defer_behind<T: Send + 'static>(
        &self,
        waits: impl FnOnce() -> T + Send + 'static,
        work: impl FnOnce(T) + Send + 'static,
    ) {
        let this = self.clone();
        let left = self.0.behind.add(move || {
            let told = waits();
            this.defer(move || work(told));
        });
        if let Err(left) = left {
            let waiting = CHECKPOINTS_DEFERRED;
            tracing::error!(
                waiting,
                "so many wait for relays that do not end: one more is not kept, and its pages cross again"
            );
            // To drop it would wait for the disk.
            self.defer(move || drop(left));
        }
    }
}

/// What is promised where so much was given by the configuration, and so much is promised already.
fn room(given: Bytes, available: Option<Bytes>, promised: Bytes) -> Bytes {
    let left = available.map_or(0, |available| available.0.saturating_sub(promised.0));
    let part = Bytes(left / CHECKPOINT_WAITING_PART);
    part.max(CHECKPOINT_WAITING_LEAST).min(given)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::super::tests::opened;
    use super::*;

    #[test]
    fn who_writes_a_file_is_waited_for_by_nobody_elses_files() {
        let directory = tempfile::tempdir().unwrap();
        let all = opened(&directory, 1 << 30);
        let (end, writes) = channel::<()>();
        let (tell, told) = channel();
        let own = tell.clone();
        let waits = move || {
            let _ = writes.recv();
            "behind"
        };
        all.defer_behind(waits, move |told| own.send(told).unwrap());
        all.defer(move || tell.send("another").unwrap());
        assert_eq!(told.recv().unwrap(), "another");
        drop(end);
        assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok("behind"));
    }

    #[test]
    fn less_memory_is_promised_where_a_host_has_little_or_others_were_promised_it() {
        let mib = |count: u64| Bytes(count << 20);
        let given = mib(512);
        assert_eq!(room(given, Some(mib(4096)), mib(0)), given);
        assert_eq!(room(given, Some(mib(4096)), mib(3072)), mib(256));
        assert_eq!(room(given, Some(mib(800)), mib(0)), mib(200));
        for (available, promised) in [(Some(mib(8)), 0), (Some(mib(600)), 900), (None, 0)] {
            assert_eq!(
                room(given, available, mib(promised)),
                CHECKPOINT_WAITING_LEAST
            );
        }
    }
}
