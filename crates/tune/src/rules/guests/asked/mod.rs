//! What a guest asks for, whoever defines it: rules look at this alone, and have their lines written by it.
//!
//! ```text
//! Own ──── arguments ─▶ own ─────┐
//!                                ├─▶ Net, Backend, Cpu, Lock ─▶ rules ─▶ what it is to be ─▶ lines, and where they stand
//! Domain ─ XML ───────▶ libvirt ─┘
//! ```

mod libvirt;
mod own;

use drover_types::Bytes;

use crate::arguments::Value;
use crate::facts::{Argument, Card, Definition, Element, Guest, Offers};
use crate::finding::{Because, Line};

/// A network card that is the driver's own (virtio-net), and what it is connected to.
#[derive(Debug)]
pub struct Net<'g> {
    /// What its finding is about: the name of what it is connected to, or a domain's card's address.
    pub name: String,
    /// What carries its packets.
    pub carrier: Carrier,
    /// Queues that the host's end has.
    pub given: u32,
    /// Where it leads libvirt decides when it starts the domain, by the network that is named.
    pub by_network: bool,
    /// Somebody else opened these, or made what they belong to.
    pub handed: bool,
    /// The card may have more than one.
    pub multiqueue: bool,
    /// The kernel is to carry its packets.
    pub vhost: Result<bool, Because>,
    /// The largest packet that it tells the guest.
    pub offered_mtu: Option<u32>,
    /// The card of the running guest.
    pub card: Option<&'g Card>,
    written: NetWritten<'g>,
}

/// What carries a guest's packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Carrier {
    /// An interface of the host.
    Tap {
        /// It, where it is named.
        name: Option<String>,
        /// The bridge that it is to be in, where that is known without it.
        bridge: Option<String>,
    },
    /// One that a helper makes in that bridge.
    Bridge(String),
    /// Another program.
    User,
    /// The adapter itself.
    Vdpa,
    /// Something else.
    Other,
}

/// Where a card stands.
#[derive(Debug)]
enum NetWritten<'g> {
    Own {
        /// The argument that connects it: `-netdev`, or `-nic`, which makes the card as well.
        connects: &'g Argument,
        /// Its value.
        connection: Value,
        /// The card's own argument; none with `-nic`.
        makes: Option<(&'g Argument, Value)>,
    },
    Libvirt {
        /// As it will be when the domain is started next; none of a card that was plugged in.
        next: Option<&'g Element>,
        /// There an adapter has the same address (`<teaming>`).
        has_twin: bool,
        /// Its processor is the hardware's.
        accelerated: bool,
    },
}

/// A part of a guest's memory.
#[derive(Debug)]
pub struct Backend<'g> {
    /// How much it is.
    pub bytes: u64,
    /// Size of its pages, where they are huge from the beginning.
    pub huge: Option<u64>,
    /// Other programs have it as well.
    pub shared: bool,
    /// It is in a file, of a file system that has the say.
    pub in_file: bool,
    /// It is filled beforehand.
    pub filled: bool,
    /// By so many threads, where that is said.
    pub threads: Option<u32>,
    written: MemoryWritten<'g>,
}

/// Where that stands.
#[derive(Debug)]
enum MemoryWritten<'g> {
    Own(&'g Argument, Value),
    Libvirt {
        /// `<memoryBacking>`, where it has one.
        next: Option<&'g Element>,
        /// The domain's processors: as many threads fill memory where nothing is said.
        vcpus: u32,
    },
}

/// A guest's processor.
#[derive(Debug)]
pub struct Cpu<'g> {
    /// QEMU's name of its model.
    pub model: String,
    /// What is said beside, as `-cpu` has it: `+avx`, `-pku`, `hv-relaxed`.
    pub words: Vec<String>,
    /// It is emulated.
    pub emulated: bool,
    written: CpuWritten<'g>,
}

/// Where that stands.
#[derive(Debug)]
enum CpuWritten<'g> {
    Own(&'g Argument),
    Libvirt(Option<&'g Element>),
}

/// How much of a guest's memory may be locked.
#[derive(Debug)]
pub struct Lock {
    /// At most; none without a limit.
    pub most: Option<Bytes>,
    /// What lets it.
    pub by_hand: String,
}

/// Its cards, in the order of what they are connected to, and of some why they are not known.
pub fn nets(guest: &Guest) -> Vec<Result<Net<'_>, Because>> {
    match &guest.definition {
        Definition::Own(own) => own::nets(guest, own),
        Definition::Libvirt(domain) => {
            libvirt::nets(guest, domain).unwrap_or_else(|because| vec![Err(because)])
        }
    }
}

/// Parts of its memory that are defined by themselves.
///
/// # Errors
/// They are defined in a way that is not read.
pub fn backends(guest: &Guest) -> Result<Vec<Backend<'_>>, Because> {
    match &guest.definition {
        Definition::Own(own) => own::backends(guest, own),
        Definition::Libvirt(domain) => libvirt::backends(guest, domain),
    }
}

/// Its processor; none where it names none.
///
/// # Errors
/// It is not known.
pub fn cpu<'g>(guest: &'g Guest, here: &Offers) -> Result<Option<Cpu<'g>>, Because> {
    match &guest.definition {
        Definition::Own(own) => own::cpu(guest, own, here),
        Definition::Libvirt(domain) => libvirt::cpu(guest, domain),
    }
}

/// What of its memory may be locked; none where that shows only while it runs, or libvirt lets nobody lock it.
///
/// # Errors
/// It is not known.
pub fn lock(guest: &Guest) -> Result<Option<Lock>, Because> {
    match &guest.definition {
        Definition::Own(_) => own::lock(guest),
        Definition::Libvirt(domain) => libvirt::lock(guest, domain),
    }
}

/// What people do to have these lines, and when that counts.
pub fn in_definition(guest: &Guest, place: &str, lines: &[Line]) -> String {
    match &guest.definition {
        Definition::Own(own) => format!(
            "change {} as below: it counts as of the guest's next start",
            own.file
        ),
        Definition::Libvirt(domain) => libvirt::in_definition(guest, domain, place, lines),
    }
}

impl Net<'_> {
    /// Queues that the guest may use.
    pub fn queues(&self) -> u32 {
        if self.multiqueue { self.given } else { 1 }
    }

    /// What carries it is there before the guest is started.
    pub fn made_before(&self) -> bool {
        match self.written {
            NetWritten::Own { .. } => true,
            NetWritten::Libvirt { .. } => self.handed,
        }
    }

    /// What people do to have these lines of it, and when that counts.
    pub fn in_definition(&self, guest: &Guest, lines: &[Line]) -> String {
        let mac = format!("<mac address='{}'/>", self.name);
        let place = match self.written {
            NetWritten::Own { .. } => String::new(),
            NetWritten::Libvirt { next: None, .. } => {
                return format!(
                    "no definition has its card of {mac}, which was plugged in and is gone when it is started next: whoever plugs it in (virsh attach-device) is to say so in its <interface>"
                );
            }
            NetWritten::Libvirt { has_twin, .. } => {
                let which = if has_twin { " that is virtio" } else { "" };
                format!("in its <interface> of {mac}{which}")
            }
        };
        in_definition(guest, &place, lines)
    }

    /// What tells the guest how large its packets may be.
    pub const fn teller(&self) -> &'static str {
        match self.written {
            NetWritten::Own { .. } => "host_mtu",
            NetWritten::Libvirt { .. } => "<mtu size=.../>",
        }
    }

    /// Its lines with so many queues; none where it will have them already.
    pub fn with_queues(&self, wanted: u32) -> Vec<Line> {
        match &self.written {
            NetWritten::Own {
                connects,
                connection,
                makes,
            } => own::with_queues(self, wanted, connects, connection, makes.as_ref()),
            NetWritten::Libvirt {
                next, accelerated, ..
            } => libvirt::with_queues(self, wanted, *next, *accelerated),
        }
    }

    /// Its lines with the kernel carrying its packets; none where it will already.
    pub fn with_vhost(&self) -> Vec<Line> {
        match &self.written {
            NetWritten::Own {
                connects,
                connection,
                ..
            } => vec![own::changed(connects, &connection.with("vhost", "on"))],
            NetWritten::Libvirt { next, .. } => libvirt::with_vhost(*next),
        }
    }

    /// Its lines with the guest told that its packets may be so large.
    pub fn telling(&self, mtu: u32) -> Vec<Line> {
        let mtu = mtu.to_string();
        match &self.written {
            NetWritten::Own { makes, .. } => makes
                .iter()
                .map(|(argument, card)| own::changed(argument, &card.with("host_mtu", &mtu)))
                .collect(),
            NetWritten::Libvirt { next, .. } => libvirt::telling(*next, &mtu),
        }
    }
}

impl Backend<'_> {
    /// Its place in its definition.
    pub const fn place(&self) -> &'static str {
        match self.written {
            MemoryWritten::Libvirt { next: Some(_), .. } => "in its <memoryBacking>",
            MemoryWritten::Own(..) | MemoryWritten::Libvirt { next: None, .. } => "",
        }
    }

    /// Its lines with so many threads that fill it; none where it will be so already.
    pub fn with_threads(&self, threads: u32) -> Vec<Line> {
        match &self.written {
            MemoryWritten::Own(argument, value) => {
                vec![own::changed(
                    argument,
                    &value.with("prealloc-threads", &threads.to_string()),
                )]
            }
            MemoryWritten::Libvirt { next, vcpus } => libvirt::with_threads(*next, threads, *vcpus),
        }
    }

    /// Its lines with huge pages; none where they cannot be had by a line, or will be there already.
    pub fn with_huge_pages(&self) -> Vec<Line> {
        match &self.written {
            MemoryWritten::Own(argument, value) => own::with_huge_pages(argument, value),
            MemoryWritten::Libvirt { next, .. } => libvirt::with_huge_pages(*next),
        }
    }
}

impl Cpu<'_> {
    /// What is to be done with a guest that only some hosts can have.
    pub const fn kept_to_hosts(&self) -> &'static str {
        match self.written {
            CpuWritten::Own(_) => "keep it to hosts that have it ([policy] of its definition)",
            CpuWritten::Libvirt(_) => "move it to hosts that have it only",
        }
    }

    /// Its lines with another model, and those of its words that mean something with that; none where it will have one that all hosts
    /// have already.
    pub fn with_model(
        &self,
        model: &str,
        may_stay: impl Fn(&str) -> bool,
        all_have: impl Fn(&str) -> bool,
    ) -> Vec<Line> {
        match self.written {
            CpuWritten::Own(argument) => {
                let kept = self.words.iter().map(String::as_str);
                let kept = kept.filter(|word| may_stay(word));
                let parts: Vec<&str> = [model].into_iter().chain(kept).collect();
                vec![own::changed(argument, &Value::of(&parts.join(",")))]
            }
            CpuWritten::Libvirt(cpu) => libvirt::with_model(cpu, model, may_stay, all_have),
        }
    }
}
