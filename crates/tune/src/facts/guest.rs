//! Facts of a host's guests, and of what the host has for them.

use std::collections::{BTreeMap, BTreeSet};

use drover_types::Bytes;
use serde::{Deserialize, Serialize};

use super::{Domain, Fact};

/// A guest that is defined or runs on a host: one of Drover's, or a domain of libvirt's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guest {
    /// Its name.
    pub name: String,
    /// Its processors.
    pub vcpus: u32,
    /// Its memory.
    pub memory: Bytes,
    /// How it is made, and who knows that.
    #[serde(flatten)]
    pub definition: Definition,
    /// What its process shows, while it runs here.
    pub seen: Fact<Seen>,
}

/// How a guest is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Definition {
    /// By arguments of QEMU, in a file of Drover's.
    Own(Own),
    /// By libvirt's XML.
    Libvirt(Domain),
}

/// A definition of Drover's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Own {
    /// Its file.
    pub file: String,
    /// The machine type with its options.
    pub machine: Option<String>,
    /// Those of its arguments that rules ask about, in their order: others may have secrets in them.
    pub arguments: Vec<Argument>,
    /// Sizes of pages where its memory is in files, by the path that the definition names.
    pub page_sizes: BTreeMap<String, u64>,
}

/// An argument of QEMU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Argument {
    /// Its name, with one dash.
    pub option: String,
    /// What is given with it; none of one that takes nothing.
    pub value: Option<String>,
}

/// What the process of a running guest shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Its processors are the hardware's, and not emulated.
    pub accelerated: Fact<bool>,
    /// Its network cards.
    pub cards: Fact<Vec<Card>>,
    /// How many queues of its cards the kernel serves (`/dev/vhost-net`).
    pub vhost: Fact<u32>,
    /// Interfaces of the host that it has open.
    pub taps: Fact<BTreeSet<String>>,
    /// The memory that it has.
    pub pages: Fact<Pages>,
    /// How much of it may be locked (`RLIMIT_MEMLOCK`); none without a limit.
    #[serde(default)]
    pub lockable: Fact<Option<Bytes>>,
}

/// A network card of a running guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    /// The name of what it is connected to, as in `netdev=`; of a domain's its address.
    pub netdev: String,
    /// Its address.
    pub mac: String,
    /// It may have several queues.
    pub multiqueue: bool,
    /// The largest packet that it tells the guest, in bytes; none where it tells none.
    pub offered_mtu: Option<u32>,
    /// What the guest itself has set.
    pub guest_mtu: Fact<u32>,
}

/// By pages of which size a process has its memory (`/proc/PID/smaps_rollup`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pages {
    /// All that it has touched.
    pub touched: Bytes,
    /// Of it, what the kernel joined to huge pages by itself.
    pub joined: Bytes,
    /// Beside that, pages that were huge from the beginning.
    pub huge: Bytes,
}

/// What the QEMUs of a host can give guests as their processor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offers {
    /// The processor's own name.
    pub processor: String,
    /// Version of the oldest of them; none where it is not told.
    #[serde(default)]
    pub version: Option<String>,
    /// The hardware's; none where it may not be used.
    pub hardware: Option<Offer>,
    /// What is emulated.
    pub emulated: Option<Offer>,
}

/// One of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Named models that run with all that belongs to them.
    pub models: BTreeSet<String>,
    /// Features, by all of the names that QEMU has for them.
    pub features: BTreeSet<String>,
    /// Other models that QEMU knows, and what they lack here.
    pub lacking: BTreeMap<String, BTreeSet<String>>,
}

/// Memory of a host, as far as guests' pages are concerned.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Whether the kernel joins pages to huge ones: `always`, `madvise` or `never`.
    pub joins: Fact<String>,
    /// The same of memory that is shared: `always`, `within_size`, `advise`, `never`, `deny` or `force`.
    pub joins_shared: Fact<String>,
    /// Pages that are huge from the beginning, by their size in bytes.
    pub huge: Fact<BTreeMap<u64, HugePages>>,
}

/// Pages of one size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HugePages {
    /// All of them.
    pub total: u64,
    /// Those that nobody has.
    pub free: u64,
    /// Of the free ones, those that somebody was promised.
    pub reserved: u64,
}

impl HugePages {
    /// Those that a guest could have now.
    #[must_use]
    pub fn available(&self) -> u64 {
        self.free.saturating_sub(self.reserved)
    }
}
