//! Reads facts from a Linux host: its network interfaces, what happens to them, its memory, its
//! processors; and does to it what a change says ([`change`], [`put`]), keeps its processors from sleeping too
//! deeply, for as long as somebody wants that ([`LatencyRequest`]), or says who may take an interrupt ([`set_affinity`]).
//!
//! Owns nothing, and changes nothing by itself. Links and addresses come from the kernel by netlink, link
//! rates by ethtool's generic netlink, everything else from files below a root that is given,
//! so that a tree captured from another machine can be read in a test.
//!
//! # Invariant
//!
//! What a driver does not tell is `None`, never a guess. A file of `/sys` counts only if it is
//! about an interface of the same network namespace as netlink's.

mod boot;
pub mod change;
mod cpus;
mod dcb;
mod devlink;
mod drvinfo;
mod error;
mod ethtool;
mod facts;
mod files;
mod idle;
mod interfaces;
mod interrupts;
mod keyfiles;
mod latency;
pub mod limits;
mod lldp;
mod memory;
mod netlink;
pub mod network_manager;
mod owners;
mod placement;
mod ports;
mod processor;
mod rewrite;
mod route;
mod stack;
mod sysfs;
mod team;
mod traffic;
mod watch;

pub use boot::{BOOT_ID, boot_id};
pub use cpus::{Cpus, cpus};
pub use error::HostError;
pub use ethtool::OrderError;
pub use facts::{Answered, Seen, Told, Tree, Untold, facts, slot};
pub use idle::idle_times;
pub use interfaces::interfaces;
pub use interrupts::{
    Adapter, Adapters, AffinityError, adapters, affinity, irqbalance, set_affinity,
};
pub use keyfiles::shadow;
pub use latency::{LatencyRequest, held_latency};
pub use lldp::{Heard, LldpSocket, NoLldp, carrier_changes, lldp_ports};
pub use memory::{Memory, memory};
pub use netlink::attributes::{attribute, bitset};
pub use owners::owners;
pub use placement::placements;
pub use ports::ports;
pub use processor::{Processor, processor};
pub use rewrite::{RewriteError, place, put, tidy};
pub use route::route;
pub use stack::layers;
pub use sysfs::has_hardware;
pub use traffic::traffic;
pub use watch::{LinkChange, LinkEvent, LinkWatch};
