//! The ways to move a guest that are compared.

use std::fmt;
use std::str::FromStr;

use anyhow::bail;
use drover_api::Encryption;
use drover_types::{AtDeadline, ReductionMode};
use serde::{Deserialize, Serialize};

/// A way to move a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// QEMU over one TCP connection, on the fastest NIC.
    Tcp,
    /// QEMU over several TCP connections, on the fastest NIC.
    Multifd,
    /// The same, compressed with zstd.
    MultifdZstd,
    /// The same as multifd, encrypted by QEMU itself: TLS 1.3, with a key that both ends have.
    MultifdTls,
    /// QEMU over Multipath TCP, on all NICs.
    Mptcp,
    /// The same, compressed with zstd.
    MptcpZstd,
    /// Drover, on all NICs, encrypted as it is when nothing is configured.
    Drover,
    /// The same with `encryption = "off"`.
    DroverPlain,
    /// The same with `reduction = "off"`: bytes stay in the kernel.
    DroverSplice,
    /// As drover, with `reduction = "off"`.
    DroverOff,
    /// Drover, with what the destination has left out.
    DroverPages,
    /// The same, and the rest through lz4.
    DroverLz4,
    /// The same, and the rest through zstd, level 1.
    DroverZstd,
    /// Compressed by QEMU as multifd-zstd, and carried by drover's relays on all NICs, with reduction off.
    DroverMultifdZstd,
    /// Drover with a guest that stands still for the rest at a deadline.
    DroverStop,
    /// Drover with a guest that goes on by postcopy at the same deadline.
    DroverPostcopy,
    /// A domain by `virsh migrate` over one connection, on the fastest NIC.
    Virsh,
    /// The same over several connections.
    VirshParallel,
    /// The same, compressed with zstd.
    VirshParallelZstd,
    /// A domain with its own disk by `virsh migrate --copy-storage-all`, on the fastest NIC.
    VirshStorage,
    /// The same, its memory over several connections.
    VirshStorageParallel,
    /// Drover with the domain's own disk.
    DroverDisks,
}

impl Method {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 22] = [
        Self::Tcp,
        Self::Multifd,
        Self::MultifdZstd,
        Self::MultifdTls,
        Self::Mptcp,
        Self::MptcpZstd,
        Self::Drover,
        Self::DroverPlain,
        Self::DroverSplice,
        Self::DroverOff,
        Self::DroverPages,
        Self::DroverLz4,
        Self::DroverZstd,
        Self::DroverMultifdZstd,
        Self::DroverStop,
        Self::DroverPostcopy,
        Self::Virsh,
        Self::VirshParallel,
        Self::VirshParallelZstd,
        Self::VirshStorage,
        Self::VirshStorageParallel,
        Self::DroverDisks,
    ];

    /// Those that others are compared with: the times and bytes of the first that is there are 1.
    pub(super) const PLAIN: [Self; 5] = [
        Self::Multifd,
        Self::VirshParallel,
        Self::Virsh,
        Self::VirshStorageParallel,
        Self::VirshStorage,
    ];

    /// The same, of those that compress.
    pub(super) const COMPRESSED: [Self; 2] = [Self::MultifdZstd, Self::VirshParallelZstd];

    /// Its word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Multifd => "multifd",
            Self::MultifdZstd => "multifd-zstd",
            Self::MultifdTls => "multifd-tls",
            Self::Mptcp => "mptcp",
            Self::MptcpZstd => "mptcp-zstd",
            Self::Drover => "drover",
            Self::DroverPlain => "drover-plain",
            Self::DroverSplice => "drover-splice",
            Self::DroverOff => "drover-off",
            Self::DroverPages => "drover-pages",
            Self::DroverLz4 => "drover-lz4",
            Self::DroverZstd => "drover-zstd",
            Self::DroverMultifdZstd => "drover-multifd-zstd",
            Self::DroverStop => "drover-stop",
            Self::DroverPostcopy => "drover-postcopy",
            Self::Virsh => "virsh",
            Self::VirshParallel => "virsh-parallel",
            Self::VirshParallelZstd => "virsh-parallel-zstd",
            Self::VirshStorage => "virsh-storage",
            Self::VirshStorageParallel => "virsh-storage-parallel",
            Self::DroverDisks => "drover-disks",
        }
    }

    /// Whether QEMU uses every NIC with it, or one.
    #[must_use]
    pub fn uses_all_nics(self) -> bool {
        self.is_mptcp() || self.is_relayed() || self.encryption().is_some()
    }

    /// Whether QEMU is told to use Multipath TCP with it.
    #[must_use]
    pub fn is_mptcp(self) -> bool {
        matches!(self, Self::Mptcp | Self::MptcpZstd)
    }

    /// Whether QEMU itself compresses with it.
    #[must_use]
    pub fn is_compressed_by_qemu(self) -> bool {
        matches!(
            self,
            Self::MultifdZstd | Self::MptcpZstd | Self::DroverMultifdZstd | Self::VirshParallelZstd
        )
    }

    /// Whether the lab tells QEMU to move as with its own methods, and relays of drover's carry its bytes: agents never
    /// have it compress.
    #[must_use]
    pub fn is_relayed(self) -> bool {
        self == Self::DroverMultifdZstd
    }

    /// Whether `virsh` moves a domain with it.
    #[must_use]
    pub fn is_virsh(self) -> bool {
        matches!(
            self,
            Self::Virsh
                | Self::VirshParallel
                | Self::VirshParallelZstd
                | Self::VirshStorage
                | Self::VirshStorageParallel
        )
    }

    /// Whether a domain's own disk goes with it.
    #[must_use]
    pub fn moves_disks(self) -> bool {
        matches!(
            self,
            Self::VirshStorage | Self::VirshStorageParallel | Self::DroverDisks
        )
    }

    /// Whether domains of libvirt's can be moved with it: agents always encrypt these, and have no deadline for them.
    #[must_use]
    pub fn moves_domains(self) -> bool {
        let by_agents = self.encryption() == Some(Encryption::On) && self.at_deadline().is_none();
        self.is_virsh() || by_agents
    }

    /// How drover's agents are set for it; `None` for what is done without them.
    #[must_use]
    pub fn encryption(self) -> Option<Encryption> {
        match self {
            Self::Drover
            | Self::DroverOff
            | Self::DroverPages
            | Self::DroverLz4
            | Self::DroverZstd
            | Self::DroverStop
            | Self::DroverPostcopy
            | Self::DroverDisks => Some(Encryption::On),
            Self::DroverPlain | Self::DroverSplice => Some(Encryption::Off),
            _ => None,
        }
    }

    /// What drover does so that fewer bytes cross; as its agents are configured where nothing is said.
    #[must_use]
    pub fn reduction(self) -> Option<ReductionMode> {
        match self {
            Self::DroverOff | Self::DroverSplice => Some(ReductionMode::Off),
            Self::DroverPages => Some(ReductionMode::Pages),
            Self::DroverLz4 => Some(ReductionMode::Lz4),
            Self::DroverZstd => Some(ReductionMode::Zstd(1)),
            _ => None,
        }
    }

    /// What drover does at its deadline, where it has one.
    #[must_use]
    pub fn at_deadline(self) -> Option<AtDeadline> {
        match self {
            Self::DroverStop => Some(AtDeadline::StopAndCopy),
            Self::DroverPostcopy => Some(AtDeadline::Postcopy),
            _ => None,
        }
    }

    /// The settings worth trying: which is best depends on the machine and the lines, and a peer
    /// is compared with at its best.
    #[must_use]
    pub fn variants(self) -> &'static [Variant] {
        const ONE: Variant = Variant { channels: None };
        const TWO: Variant = Variant { channels: Some(2) };
        const THREE: Variant = Variant { channels: Some(3) };
        const FOUR: Variant = Variant { channels: Some(4) };
        match self {
            Self::Tcp
            | Self::Drover
            | Self::DroverPlain
            | Self::DroverSplice
            | Self::DroverOff
            | Self::DroverPages
            | Self::DroverLz4
            | Self::DroverZstd
            | Self::DroverStop
            | Self::DroverPostcopy
            | Self::DroverDisks
            | Self::Virsh
            | Self::VirshStorage => &[ONE],
            Self::VirshParallel | Self::VirshParallelZstd | Self::VirshStorageParallel => {
                &[TWO, FOUR]
            }
            Self::Multifd
            | Self::MultifdZstd
            | Self::MultifdTls
            | Self::MptcpZstd
            | Self::DroverMultifdZstd => &[TWO, THREE, FOUR],
            Self::Mptcp => &[ONE, TWO, FOUR],
        }
    }
}

/// How a method is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variant {
    /// Multifd channels, or parallel connections of libvirt's, which are the same; `None` without multifd.
    pub channels: Option<u8>,
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.channels {
            Some(channels) => write!(f, "{channels} channels"),
            None => f.write_str("as it is"),
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Method {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let found = Self::ALL.into_iter().find(|method| method.name() == text);
        let Some(method) = found else {
            let names = Self::ALL.map(Self::name).join(", ");
            bail!("{text:?} is no method: {names}");
        };
        Ok(method)
    }
}

/// The order of one repeat: forwards and backwards in turn, so that what a method leaves behind
/// (warm caches, a busy machine) meets each neighbour.
#[must_use]
pub fn order(methods: &[Method], repeat: usize) -> Vec<Method> {
    let mut order = methods.to_vec();
    let by = (repeat / 2) % order.len().max(1);
    order.rotate_left(by);
    if repeat % 2 == 1 {
        order.reverse();
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_repeat_has_every_method_and_the_order_changes() {
        let first = order(&Method::ALL, 0);
        assert_eq!(first, Method::ALL);
        for repeat in 1..7 {
            let mut next = order(&Method::ALL, repeat);
            assert_ne!(next, order(&Method::ALL, repeat - 1));
            next.sort();
            assert_eq!(next, Method::ALL);
        }
        assert_eq!(order(&[], 3), []);
    }

    #[test]
    fn what_relays_carry_without_agents_is_set_as_qemus_own_method_and_uses_all_nics() {
        let relayed: Vec<_> = Method::ALL.into_iter().filter(|m| m.is_relayed()).collect();
        assert_eq!(relayed, [Method::DroverMultifdZstd]);
        let (method, own) = (Method::DroverMultifdZstd, Method::MultifdZstd);
        assert!(method.uses_all_nics() && !own.uses_all_nics());
        assert_eq!(method.encryption(), None);
        assert!(method.is_compressed_by_qemu() && !method.is_mptcp());
        assert_eq!(method.variants(), own.variants());
    }

    #[test]
    fn domains_are_moved_by_virsh_and_by_agents_that_encrypt() {
        let moves: Vec<_> = Method::ALL
            .into_iter()
            .filter(|method| method.moves_domains())
            .map(Method::name)
            .collect();
        let agents = "drover drover-off drover-pages drover-lz4 drover-zstd";
        let virsh = "virsh virsh-parallel virsh-parallel-zstd";
        let disks = "virsh-storage virsh-storage-parallel drover-disks";
        assert_eq!(moves.join(" "), format!("{agents} {virsh} {disks}"));
        let with_disks = Method::ALL
            .into_iter()
            .filter(|method| method.moves_disks());
        let with_disks: Vec<_> = with_disks.map(Method::name).collect();
        assert_eq!(with_disks.join(" "), disks);
        let one_nic = Method::ALL.into_iter().filter(|method| method.is_virsh());
        assert!(one_nic.into_iter().all(|virsh| !virsh.uses_all_nics()));
    }

    #[test]
    fn methods_are_known_by_their_names() {
        for method in Method::ALL {
            assert_eq!(method.name().parse::<Method>().unwrap(), method);
        }
        assert!("scp".parse::<Method>().is_err());
    }
}
