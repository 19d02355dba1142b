//! The proving ground: hosts as network namespaces with shaped NICs on this machine, a guest that
//! proves from inside that a move left it whole, and the ways to move it side by side.
//!
//! ```text
//!   lab ── network   namespaces, addresses             guest ── image, definition
//!    │     wire      what connects their NICs             │
//!    │     host      programs on a host                   │     console: what it says
//!    │     agent     droverd on each host                 │
//!    │     libvirt   libvirtd on each host, and the guest as its domain
//!    │     fault     what goes wrong with the NICs        │
//!    ├──── compare   the same guest, moved by each method in turn, measured the same way
//!    ├──── emulated  one host of emulated adapters, with Debian's kernel, for a program that needs both
//!    ├──── breaks    hosts that are badly set up, for the doctor to find
//!    ├──── scenario  what a move has to survive, made to happen, and judged
//!    ├──── homecoming  a guest that comes back to a host that kept its pages
//!    ├──── fleet     several guests on several hosts: emptied, filled again, watched as a whole
//!    └──── soak      moves again and again, with random faults, while nothing may grow
//! ```
//!
//! Owns everything that it starts and makes, and nothing else of the machine. Knows QEMU only
//! through `hypervisor`, and drover only through `api` and its command, as any user of it; of `host` only how a
//! kernel writes what a captured host tells.
//!
//! # Invariant
//! Whatever fails or is interrupted, [`Lab::remove_named`] leaves the machine as it was.

pub mod agent;
pub mod breaks;
mod busy;
pub mod command;
pub mod compare;
mod counters;
mod dice;
pub mod emulated;
pub mod fault;
pub mod fleet;
mod guest;
pub mod homecoming;
mod host;
mod lab;
pub mod libvirt;
pub mod limits;
mod machine;
mod meter;
mod monitor;
pub mod network;
pub mod operate;
pub mod require;
mod resident;
pub mod scenario;
pub mod settings;
pub mod soak;
mod status;
mod unite;
mod usage;
mod wire;

pub use guest::console::Console;
pub use guest::definition::{define, monitor_socket, serial_socket};
pub use guest::{Image, find_probe};
pub use host::Host;
pub use lab::{Lab, State, host_of};
pub use machine::Machine;
pub use meter::{CpuSeconds, Measured};
pub use monitor::Monitor;
pub use resident::{Boot, Keeper, Resident};
pub use unite::unite;
