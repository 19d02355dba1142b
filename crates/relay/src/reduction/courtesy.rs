//! Packing gives way to guests: it is done with less priority, so that a processor which a guest needs is a slow one, and
//! something cheaper is decided. So does unpacking, for the guests of the destination's host.

use std::io;
use std::sync::OnceLock;

use rustix::process::{Pid, getpriority_process, setpriority_process};
use rustix::thread::gettid;

use crate::limits::PACKING_NICE;

/// Whether a thread can have its priority back, which takes a privilege (`CAP_SYS_NICE`). Without, it is left as it is:
/// a thread that kept the lower one would send late, too.
static CAN_RETURN: OnceLock<bool> = OnceLock::new();

/// Does it with less priority.
pub(super) fn with_less_priority<T>(work: impl FnOnce() -> T) -> T {
    if !*CAN_RETURN.get_or_init(can_return) {
        return work();
    }
    let before = lowered();
    let result = work();
    if let Ok((thread, nice)) = before
        && let Err(error) = setpriority_process(Some(thread), nice)
    {
        tracing::warn!(%error, "a thread of the relay keeps its lower priority");
    }
    result
}

/// Lowers the priority of the thread that calls it, for good.
pub(super) fn lower_priority() {
    if let Err(error) = lowered() {
        tracing::info!(%error, "a thread of the relay has no lower priority");
    }
}

/// The thread's priority before.
fn lowered() -> io::Result<(Pid, i32)> {
    let thread = gettid();
    let nice = getpriority_process(Some(thread))?;
    setpriority_process(Some(thread), (nice + PACKING_NICE).min(19))?;
    Ok((thread, nice))
}

/// Tried out on a thread that is of no more use.
fn can_return() -> bool {
    let tried = std::thread::spawn(|| {
        let (thread, nice) = lowered()?;
        setpriority_process(Some(thread), nice)?;
        io::Result::Ok(())
    });
    let result = tried
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
    if let Err(error) = &result {
        tracing::info!(%error, "packing has no lower priority, as threads would not get theirs back");
    }
    result.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_its_priority_back_afterwards() {
        let nice = || getpriority_process(Some(gettid())).unwrap();
        let before = nice();
        let meanwhile = with_less_priority(nice);
        assert_eq!(nice(), before);
        let less = if can_return() { PACKING_NICE } else { 0 };
        assert_eq!(meanwhile, (before + less).min(19));
    }
}
