//! All that the rules of `tune` ask of a host, read without changing anything.
//!
//! ```text
//! Told::ask ─▶ what the kernel tells by netlink ─┐
//!                                               ├─▶ facts ─▶ Host
//! Tree: files of /sys and /proc ─────────────────┘      (files that were read are remembered: a capture)
//! ```
//! Both halves can be written to a folder and read from there, so that any host can be looked at anywhere.

mod asked;
mod folder;
mod memory;
mod nics;
mod processors;
mod rdma;
mod settings;
mod told;
mod tree;

use drover_tune::facts::{Fact, Host};

use crate::boot::BOOT_ID;

pub(crate) use folder::interrupts;
pub use folder::slot;
pub(crate) use told::runs;
pub use told::{Answered, Told, Untold};
pub use tree::{Seen, Tree};

/// Why of a host that was read by its files alone nothing is known that its agent knows.
const NO_AGENT: &str = "no agent was asked";

/// Reads the host whose files are in the tree, and of which the kernel told that.
#[must_use]
pub fn facts(tree: &Tree, told: &Told) -> Host {
    Host {
        name: told.host.clone(),
        uptime_s: settings::uptime(tree),
        boot: tree.fact(BOOT_ID),
        nics: nics::nics(tree, told),
        processors: processors::processors(tree),
        settings: settings::settings(tree),
        softnet: settings::softnet(tree),
        irqbalance: running(told.irqbalance, "irqbalance"),
        lldpad: running(told.lldpad, "lldpad"),
        clock: Fact::unknown(NO_AGENT),
        memory: memory::memory(tree),
        waking: Fact::unknown(NO_AGENT),
        offers: Fact::unknown(NO_AGENT),
        guests: Fact::unknown(NO_AGENT),
        domains: Fact::unknown(NO_AGENT),
    }
}

fn running(told: Option<bool>, program: &str) -> Fact<bool> {
    told.map_or_else(
        || {
            Fact::unknown(format!(
                "there are too many processes to look for {program}, or what read this host is older"
            ))
        },
        Fact::Known,
    )
}
