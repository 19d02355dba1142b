use std::ffi::{CStr, c_int};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use drover_types::{ByteRate, Bytes};
use tokio::sync::broadcast::{self, error::RecvError};
use uuid::Uuid;

use crate::error::Closed;
use crate::shared::Shared;

/// Something that happened to a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The domain's name.
    pub name: String,
    /// The domain's id.
    pub uuid: Uuid,
    /// What it was.
    pub happening: Happening,
}

/// What happens to domains. Source: `virDomainEventType` and its details in libvirt's `libvirt-domain.h`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happening {
    /// Its definition was added or changed.
    Defined,
    /// Its definition is gone.
    Undefined,
    /// It has a hypervisor.
    Started {
        /// By a migration that begins to arrive: it does not run yet.
        arriving: bool,
    },
    /// It stands still.
    Suspended {
        /// For the last round of a migration that leaves.
        leaving: bool,
    },
    /// It runs again.
    Resumed,
    /// It has no hypervisor any more.
    Stopped {
        /// Because it runs on the host that it migrated to, or may.
        left: bool,
    },
    /// Its kernel panicked.
    Crashed,
    /// A round of a migration begins, the first is 1.
    Round(u32),
    /// A job, such as a migration, ended well.
    JobEnded(Box<Job>),
    /// Something else, by libvirt's numbers for it.
    Other {
        /// A `virDomainEventType`.
        event: c_int,
        /// Its detail.
        detail: c_int,
    },
}

impl Happening {
    pub(crate) fn from_lifecycle(event: c_int, detail: c_int) -> Self {
        /// `VIR_DOMAIN_EVENT_STARTED_MIGRATED`, and of `SUSPENDED` too.
        const MIGRATED: c_int = 1;
        /// `VIR_DOMAIN_EVENT_STOPPED_MIGRATED`.
        const STOPPED_MIGRATED: c_int = 3;
        match event {
            0 => Self::Defined,
            1 => Self::Undefined,
            2 => Self::Started {
                arriving: detail == MIGRATED,
            },
            3 => Self::Suspended {
                leaving: detail == MIGRATED,
            },
            4 => Self::Resumed,
            5 => Self::Stopped {
                left: detail == STOPPED_MIGRATED,
            },
            8 => Self::Crashed,
            _ => Self::Other { event, detail },
        }
    }
}

/// What libvirt counted of a job. What it does not tell is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Job {
    /// What is done with the domain.
    pub operation: Option<Operation>,
    /// From its begin.
    pub elapsed: Option<Duration>,
    /// How long the domain stood still, by the clocks of both hosts.
    pub downtime: Option<Duration>,
    /// Memory that was carried.
    pub carried: Option<Bytes>,
    /// Memory that the domain has.
    pub memory: Option<Bytes>,
    /// Memory that is left: not carried yet, or written to since.
    pub remaining: Option<Bytes>,
    /// What was copied of disks that move with the domain, what was written to since counted again.
    pub disks_carried: Option<Bytes>,
    /// What is left of these.
    pub disks_remaining: Option<Bytes>,
    /// Rounds.
    pub rounds: Option<u64>,
    /// Pages that the domain writes to in a second, as of the last round.
    pub dirty_pages_per_second: Option<u64>,
    /// Size of a page.
    pub page_size: Option<Bytes>,
    /// Bytes that are carried in a second, as of late.
    pub rate: Option<ByteRate>,
    /// Pages that were sent as they are, each time counted.
    pub normal_pages: Option<u64>,
    /// Pages that were found to be zero.
    pub zero_pages: Option<u64>,
    /// How long it was prepared before the first round.
    pub setup_time: Option<Duration>,
    /// How much of its time the domain stands still while it is slowed down (auto-converge), in percent.
    pub throttle: Option<u64>,
}

impl Job {
    /// From parameters by their names (`VIR_DOMAIN_JOB_...`).
    pub(crate) fn read(number: impl Fn(&CStr) -> Option<u64>) -> Self {
        let millis = |name| number(name).map(Duration::from_millis);
        let bytes = |name| number(name).map(Bytes);
        Self {
            operation: number(c"operation").map(Operation),
            elapsed: millis(c"time_elapsed"),
            downtime: millis(c"downtime"),
            carried: bytes(c"memory_processed"),
            memory: bytes(c"memory_total"),
            remaining: bytes(c"memory_remaining"),
            disks_carried: bytes(c"disk_processed"),
            disks_remaining: bytes(c"disk_remaining"),
            rounds: number(c"memory_iteration"),
            dirty_pages_per_second: number(c"memory_dirty_rate"),
            page_size: bytes(c"memory_page_size"),
            rate: number(c"memory_bps").map(ByteRate),
            normal_pages: number(c"memory_normal"),
            zero_pages: number(c"memory_constant"),
            setup_time: millis(c"setup_time"),
            throttle: number(c"auto_converge_throttle"),
        }
    }
}

/// What a job does, by libvirt's number for it. Source: `virDomainJobOperation` in libvirt's `libvirt-domain.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation(pub u64);

/// In words that follow "libvirt".
impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            1 => "starts it",
            2 => "saves it",
            3 => "restores it",
            4 | 5 => "migrates it",
            6 | 10 => "makes or deletes a snapshot of it",
            7 => "sets it back to a snapshot",
            8 => "dumps it",
            9 => "makes a backup of it",
            other => return write!(f, "does something with it (operation {other})"),
        })
    }
}

/// What a reader of events is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// An event, in libvirt's order.
    Event(Event),
    /// So many events were dropped because this reader was slow: ask for the state anew.
    Missed(u64),
    /// The connection ended; every later call says so again.
    Closed(Closed),
}

/// A reader of a connection's events, from when it was made.
#[derive(Debug)]
pub struct Events {
    shared: Arc<Shared>,
    receiver: Option<broadcast::Receiver<Event>>,
}

impl Events {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let receiver = shared.subscribe();
        Self { shared, receiver }
    }

    /// The next one. Safe to cancel: nothing is lost.
    pub async fn next(&mut self) -> Notice {
        if let Some(receiver) = &mut self.receiver {
            match receiver.recv().await {
                Ok(event) => return Notice::Event(event),
                Err(RecvError::Lagged(missed)) => return Notice::Missed(missed),
                Err(RecvError::Closed) => self.receiver = None,
            }
        }
        Notice::Closed(self.shared.closed().unwrap_or(Closed::ByUs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_is_understood_and_what_is_unknown_keeps_its_numbers() {
        let cases = [
            (0, 1, Happening::Defined),
            (2, 0, Happening::Started { arriving: false }),
            (2, 1, Happening::Started { arriving: true }),
            (3, 0, Happening::Suspended { leaving: false }),
            (3, 1, Happening::Suspended { leaving: true }),
            (5, 1, Happening::Stopped { left: false }),
            (5, 3, Happening::Stopped { left: true }),
            (
                99,
                -1,
                Happening::Other {
                    event: 99,
                    detail: -1,
                },
            ),
        ];
        for (event, detail, expected) in cases {
            assert_eq!(Happening::from_lifecycle(event, detail), expected);
        }
    }

    #[test]
    fn what_is_told_of_a_job_is_found_by_libvirts_names_and_the_rest_is_not_known() {
        // `VIR_DOMAIN_JOB_SETUP_TIME`, `..._AUTO_CONVERGE_THROTTLE`, `..._MEMORY_CONSTANT`, `..._MEMORY_NORMAL`.
        let told = [
            (c"setup_time", 7),
            (c"auto_converge_throttle", 30),
            (c"memory_constant", 5),
            (c"memory_normal", 9),
        ];
        let number = |name: &CStr| {
            let mut told = told.iter();
            told.find_map(|(called, value)| (*called == name).then_some(*value))
        };
        let expected = Job {
            setup_time: Some(Duration::from_millis(7)),
            throttle: Some(30),
            zero_pages: Some(5),
            normal_pages: Some(9),
            ..Job::default()
        };
        assert_eq!(Job::read(number), expected);
        assert_eq!(Job::read(|_| None), Job::default());
    }

    #[tokio::test]
    async fn a_slow_reader_is_told_how_much_it_missed_and_then_of_the_end() {
        let shared = Arc::new(Shared::new());
        let mut events = Events::new(Arc::clone(&shared));
        let event = |round| Event {
            name: "web".to_owned(),
            uuid: Uuid::from_u128(7),
            happening: Happening::Round(round),
        };
        let kept = u32::try_from(crate::limits::EVENTS_KEPT).unwrap();
        (0..kept + 3).for_each(|round| shared.tell(event(round)));
        assert_eq!(events.next().await, Notice::Missed(3));
        assert_eq!(events.next().await, Notice::Event(event(3)));
        assert_eq!(shared.close(Closed::Silent), Closed::Silent);
        assert_eq!(
            shared.close(Closed::ByUs),
            Closed::Silent,
            "the first stays"
        );
        shared.tell(event(0));
        for round in 4..kept + 3 {
            assert_eq!(events.next().await, Notice::Event(event(round)));
        }
        for _ in 0..2 {
            assert_eq!(events.next().await, Notice::Closed(Closed::Silent));
        }
    }
}
