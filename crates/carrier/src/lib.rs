//! A relay in a process of its own, and how an agent speaks with it.
//!
//! QEMU's channels and the lanes live as long as the process that holds their sockets. This one is
//! neither the agent's nor QEMU's: an agent that dies leaves it carrying, and the next one takes it
//! up again. It knows no migration, no hypervisor and no peer, only what one relay needs.
//!
//! ```text
//!  agent: Control ══ UNIX socket: lines of JSON, descriptors ══ process: run ── Relay ── QEMU, lanes
//! ```
//!
//! # Invariant
//! Once a process has ended, or has answered [`Request::Cut`], no further byte reaches QEMU. A
//! process without an agent ends by itself when its patience is over.

mod agent;
mod control;
#[cfg(test)]
mod corpus;
mod history;
mod inbox;
mod latency;
pub mod limits;
mod lines;
mod process;
mod protocol;
mod record;
mod served;

pub use control::{Control, ControlError, Heard, Posted};
pub use process::run;
pub use protocol::{
    Answer, BaselineFile, Counters, Disks, Failure, Greeting, HeldLimit, Keys, Latency, Open,
    Opened, PROTOCOL, Request, Side, Start, State, StoredFile, TlsKeys, Told, Usage,
};
pub use record::{Place, Record};
