//! libvirt's own way to move a domain: `virsh migrate` to the other host's libvirtd, over one NIC.
//!
//! `virsh` speaks to both libvirtds by their sockets, so nothing but memory, and disks where they go along, is on the lines. libvirt hands off: its
//! destination's QEMU starts stopped, and runs when the source's has completed.

use std::net::IpAddr;

use anyhow::{Context, Result};

use super::Patience;
use super::by_qemu::{hangs, knows_bandwidth, overdue};
use super::method::{Method, Variant};
use crate::lab::Lab;
use crate::libvirt::{self, Job, virsh};
use crate::limits;
use crate::meter::{Measured, Meter};
use crate::network;
use crate::resident::Resident;

/// An option of `virsh migrate` that it has where libvirt compresses parallel migrations with zstd.
pub(super) const ZSTD: &str = "--comp-zstd-level";

/// The same, where it can be told what the lines carry.
const BANDWIDTH: &str = "--available-switchover-bandwidth";

/// What `virsh migrate` is told.
struct Order<'a> {
    domain: &'a str,
    /// The other host's libvirtd.
    to: &'a str,
    /// The other host, on the NIC that is used.
    at: IpAddr,
    method: Method,
    variant: Variant,
    /// What the NIC carries, in MiB a second, where libvirt and QEMU are told.
    bandwidth: Option<u64>,
}

impl Order<'_> {
    fn words(&self) -> Vec<String> {
        let at = match self.at {
            IpAddr::V4(at) => format!("tcp://{at}"),
            IpAddr::V6(at) => format!("tcp://[{at}]"),
        };
        // Both keep it defined, as with an agent: otherwise it would be there once only.
        let plain = ["migrate", "--live", "--persistent", "--undefinesource"];
        let mut words: Vec<_> = plain.map(str::to_owned).into();
        let mut say = |more: &[&str]| words.extend(more.iter().map(|&word| word.to_owned()));
        if let Some(connections) = self.variant.channels {
            let connections = connections.to_string();
            say(&["--parallel", "--parallel-connections", &connections]);
        }
        if self.method.moves_disks() {
            say(&["--p2p", "--copy-storage-all"]);
        }
        if self.method.is_compressed_by_qemu() {
            say(&["--compressed", "--comp-methods", "zstd"]);
        }
        if let Some(bandwidth) = self.bandwidth {
            say(&[BANDWIDTH, &bandwidth.to_string()]);
        }
        say(&["--migrateuri", &at, self.domain, self.to]);
        words
    }
}

/// Moves the domain of a guest to the other host.
///
/// # Errors
/// libvirt's words, or the move took longer than `patience` allows; the lab must boot a new guest.
pub(super) async fn move_guest(
    lab: &Lab,
    guest: &mut Resident,
    method: Method,
    variant: Variant,
    patience: Patience,
) -> Result<Measured> {
    let [source, destination] = [guest.host, 1 - guest.host].map(|host| lab.host(host));
    let (settings, nic) = (lab.settings(), lab.settings().fastest());
    let at = network::address_of(settings, nic, destination.number)
        .with_context(|| format!("NIC {nic} has no address that libvirt could be told"))?;
    let is_told = knows(lab, BANDWIDTH).await? && knows_bandwidth(&guest.monitor).await?;
    let line = settings.nics[nic].filter(|_| is_told);
    let name = guest.definition.name.clone();
    let words = Order {
        domain: name.as_str(),
        to: &libvirt::uri(&destination),
        at,
        method,
        variant,
        bandwidth: line.map(|line| line.0 / (8 << 20)).filter(|rate| *rate > 0),
    }
    .words();
    let words: Vec<_> = words.iter().map(String::as_str).collect();

    let meter = Meter::begin(settings, guest, None).await?;
    let sockets = guest.sockets_on(&destination);
    let moved = async {
        tokio::select! {
            done = virsh(&source, &words, limits::MOVE) => done.map(drop),
            hangs = hangs(&guest.monitor, patience.stalled) => Err(hangs.into()),
            error = overdue(&guest.monitor, patience.longest) => Err(error),
        }
    };
    let (monitor, ()) = guest.arrive(&sockets, moved).await?;
    let pid = libvirt::pid_of(&destination, &name).await?;
    let job = ["domjobinfo", "--completed", "--rawstats", name.as_str()];
    let job = virsh(&destination, &job, limits::LIBVIRT).await?;
    let totals = Job(&job).totals();
    let measured = meter.end(settings, guest, (&monitor, pid), totals).await?;
    let measured = if method.moves_disks() {
        measured.since_the_order()
    } else {
        measured
    };
    guest.monitor = monitor;
    guest.pid = pid;
    guest.host = destination.number;
    Ok(measured)
}

/// Whether the `virsh` of a lab's hosts knows an option of `migrate`.
///
/// # Errors
/// It cannot be asked.
pub(super) async fn knows(lab: &Lab, option: &str) -> Result<bool> {
    let help = virsh(&lab.host(0), &["help", "migrate"], limits::LIBVIRT).await?;
    Ok(help.contains(option))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(method: Method, channels: Option<u8>, at: &str, bandwidth: Option<u64>) -> String {
        let order = Order {
            domain: "peer",
            to: "qemu+unix:///system?socket=/b",
            at: at.parse().unwrap(),
            method,
            variant: Variant { channels },
            bandwidth,
        };
        order.words().join(" ")
    }

    #[test]
    fn a_domain_moves_with_its_definition_over_the_address_that_is_named() {
        assert_eq!(
            words(Method::Virsh, None, "10.77.0.2", None),
            "migrate --live --persistent --undefinesource --migrateuri tcp://10.77.0.2 peer \
             qemu+unix:///system?socket=/b"
        );
        let six = words(Method::Virsh, None, "fd77::2", Some(119));
        let told = "--available-switchover-bandwidth 119 --migrateuri tcp://[fd77::2] peer";
        assert!(six.contains(told), "{six}");
    }

    #[test]
    fn connections_and_compression_are_ordered_where_the_method_has_them() {
        let parallel = words(Method::VirshParallel, Some(4), "10.77.0.2", None);
        assert!(
            parallel.contains("--parallel --parallel-connections 4"),
            "{parallel}"
        );
        assert!(!parallel.contains("--comp"), "{parallel}");
        assert!(!parallel.contains("--copy-storage"), "{parallel}");
        let storage = words(Method::VirshStorageParallel, Some(4), "10.77.0.2", None);
        assert!(
            storage.contains("--parallel-connections 4 --p2p --copy-storage-all --migrateuri"),
            "{storage}"
        );
        let zstd = words(Method::VirshParallelZstd, Some(2), "10.77.0.2", None);
        assert!(
            zstd.contains("--parallel-connections 2 --compressed --comp-methods zstd"),
            "{zstd}"
        );
    }
}
