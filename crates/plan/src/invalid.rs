//! What an inventory, a policy or a request must not be, whatever it is asked for.

use std::collections::BTreeSet;

use drover_types::{Bytes, HostName, VmName};
use serde::{Deserialize, Serialize};

use crate::inventory::{GuestCpu, Host, Inventory, Vm};
use crate::limits;
use crate::policy::{ClusterPolicy, Headroom, LossOf, Spread, VmPolicy};
use crate::request::Request;

/// Facts or wishes that contradict themselves or exceed a bound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "invalid", rename_all = "kebab-case")]
pub enum Invalid {
    /// More of something than is planned with.
    #[error("{found} {what} {of}, at most {limit} are planned with")]
    TooMany {
        /// Of what.
        what: Many,
        /// Where.
        of: Place,
        /// How many.
        found: usize,
        /// How many at most.
        limit: usize,
    },
    /// Two hosts have one name.
    #[error("two hosts are named {name}: give one of them another name")]
    HostTwice {
        /// The name.
        name: HostName,
    },
    /// Two VMs have one name, on one host or on two.
    #[error(
        "two VMs are named {name}, on {one} and {other}: find out which one is meant to be, and remove the other"
    )]
    VmTwice {
        /// The name.
        name: VmName,
        /// Where the first is.
        one: HostName,
        /// Where the second is.
        other: HostName,
    },
    /// A VM is on a host that is not in the inventory.
    #[error("{vm} is said to be on or to move to {host}, which is no host of the inventory")]
    NoSuchHost {
        /// The VM.
        vm: VmName,
        /// The name.
        host: HostName,
    },
    /// A VM moves to where it is.
    #[error("{vm} is said to be moving from {host} to {host}")]
    MovesToItself {
        /// The VM.
        vm: VmName,
        /// Where it is.
        host: HostName,
    },
    /// A number that makes no sense.
    #[error("{what} {of} is {found}: {least} to {most} make sense")]
    OutOfRange {
        /// Which number.
        what: Number,
        /// Where.
        of: Place,
        /// The number.
        found: u64,
        /// The least.
        least: u64,
        /// The most.
        most: u64,
    },
    /// A host keeps more memory for itself than it has.
    #[error("{host} keeps {kept} for itself and has {has}")]
    HostKeepsAll {
        /// The host.
        host: HostName,
        /// What it keeps.
        kept: Bytes,
        /// What it has.
        has: Bytes,
    },
    /// A VM names one group twice.
    #[error("{vm} names a group twice: once is enough")]
    GroupTwice {
        /// The VM.
        vm: VmName,
    },
    /// Failure domains are to be used, and no label says what they are.
    #[error(
        "failure domains are to be used, and failure_domain names no label: name one, such as rack"
    )]
    NoFailureDomain,
    /// A drain of nothing.
    #[error("no host is named")]
    NoHosts,
}

/// Of what there can be too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Many {
    /// Hosts.
    Hosts,
    /// VMs.
    Vms,
    /// Labels, or hosts that a VM is pinned to.
    Labels,
    /// CPU features or models.
    Features,
    /// Groups.
    Groups,
    /// Reasons of a hypervisor.
    Blockers,
    /// Things that a VM needs a host to have, or that a host lacks.
    Needs,
    /// Hosts that VMs are not moved to since that failed.
    Avoided,
}

/// Which number is out of range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Number {
    /// Memory.
    Memory,
    /// CPUs or vCPUs.
    Cpus,
    /// A line's rate.
    Bandwidth,
    /// Migrations at once.
    AtOnce,
    /// A priority.
    Priority,
    /// Seconds to shut down in.
    StopSeconds,
    /// vCPUs per 100 CPUs.
    VcpusPercent,
    /// The headroom in percent.
    HeadroomPercent,
    /// Losses to be kept.
    Losses,
    /// Moves of a rebalancing.
    Moves,
}

/// Where something is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// In the inventory as a whole.
    Inventory,
    /// At a host.
    Host(HostName),
    /// At a VM.
    Vm(VmName),
    /// In the policy.
    Policy,
    /// In the request.
    Request,
}

mod shown {
    use std::fmt;

    use super::{Many, Number, Place};

    impl fmt::Display for Place {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self {
                Self::Inventory => f.write_str("of the inventory"),
                Self::Host(name) => write!(f, "of host {name}"),
                Self::Vm(name) => write!(f, "of VM {name}"),
                Self::Policy => f.write_str("of the policy"),
                Self::Request => f.write_str("of the request"),
            }
        }
    }

    impl fmt::Display for Many {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(match self {
                Self::Hosts => "hosts",
                Self::Vms => "VMs",
                Self::Labels => "labels or pins",
                Self::Features => "CPU features or models",
                Self::Groups => "groups",
                Self::Needs => "needs",
                Self::Blockers => "reasons against migrating",
                Self::Avoided => "hosts that VMs avoid",
            })
        }
    }

    impl fmt::Display for Number {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(match self {
                Self::Memory => "the memory",
                Self::Cpus => "the number of CPUs",
                Self::Bandwidth => "the bandwidth (bit/s)",
                Self::AtOnce => "the number of migrations at once",
                Self::Priority => "the priority",
                Self::StopSeconds => "stop_within_seconds",
                Self::VcpusPercent => "vcpus_percent",
                Self::HeadroomPercent => "the headroom (percent)",
                Self::Losses => "the number of losses to keep",
                Self::Moves => "the number of moves",
            })
        }
    }
}

fn at_most(what: Many, of: Place, found: usize, limit: usize) -> Result<(), Invalid> {
    if found <= limit {
        return Ok(());
    }
    Err(Invalid::TooMany {
        what,
        of,
        found,
        limit,
    })
}

fn within(what: Number, of: Place, found: u64, least: u64, most: u64) -> Result<(), Invalid> {
    if (least..=most).contains(&found) {
        return Ok(());
    }
    Err(Invalid::OutOfRange {
        what,
        of,
        found,
        least,
        most,
    })
}

/// Whether all of it makes sense together.
///
/// # Errors
/// The first thing that does not.
pub fn check(
    inventory: &Inventory,
    policy: &ClusterPolicy,
    request: &Request,
) -> Result<(), Invalid> {
    let (hosts, vms) = (inventory.hosts.len(), inventory.vms.len());
    at_most(Many::Hosts, Place::Inventory, hosts, limits::HOSTS)?;
    at_most(Many::Vms, Place::Inventory, vms, limits::VMS)?;
    inventory.hosts.iter().try_for_each(check_host)?;
    check_names(inventory)?;
    inventory.vms.iter().try_for_each(check_vm)?;
    check_policy(policy)?;
    check_request(request)
}

fn check_host(host: &Host) -> Result<(), Invalid> {
    let of = || Place::Host(host.name.clone());
    within(Number::Memory, of(), host.memory.0, 1, limits::MEMORY)?;
    at_most(Many::Needs, of(), host.lacks.len(), limits::LACKS)?;
    at_most(Many::Vms, of(), host.disks.wanted.len(), limits::VMS)?;
    if host.memory_for_host > host.memory {
        return Err(Invalid::HostKeepsAll {
            host: host.name.clone(),
            kept: host.memory_for_host,
            has: host.memory,
        });
    }
    within(Number::Cpus, of(), host.cpus.into(), 1, limits::CPUS.into())?;
    within(Number::Bandwidth, of(), host.bandwidth.0, 1, limits::MEMORY)?;
    for at_once in [host.inbound, host.outbound].into_iter().flatten() {
        within(
            Number::AtOnce,
            of(),
            at_once.into(),
            1,
            limits::AT_ONCE.into(),
        )?;
    }
    at_most(Many::Labels, of(), host.labels.len(), limits::LABELS)?;
    let features = host.cpu.features.len().max(host.cpu.models.len());
    at_most(Many::Features, of(), features, limits::FEATURES)
}

fn check_names(inventory: &Inventory) -> Result<(), Invalid> {
    let mut hosts = BTreeSet::new();
    for host in &inventory.hosts {
        if !hosts.insert(&host.name) {
            let name = host.name.clone();
            return Err(Invalid::HostTwice { name });
        }
    }
    let mut vms = std::collections::BTreeMap::new();
    for vm in &inventory.vms {
        if let Some(other) = vms.insert(&vm.name, &vm.host) {
            // The same words, whichever comes first.
            let (one, other) = (other.min(&vm.host).clone(), other.max(&vm.host).clone());
            let name = vm.name.clone();
            return Err(Invalid::VmTwice { name, one, other });
        }
        for host in std::iter::once(&vm.host).chain(&vm.moving_to) {
            if !hosts.contains(host) {
                let (vm, host) = (vm.name.clone(), host.clone());
                return Err(Invalid::NoSuchHost { vm, host });
            }
        }
    }
    Ok(())
}

fn check_vm(vm: &Vm) -> Result<(), Invalid> {
    let of = || Place::Vm(vm.name.clone());
    if vm.moving_to.as_ref() == Some(&vm.host) {
        let (vm, host) = (vm.name.clone(), vm.host.clone());
        return Err(Invalid::MovesToItself { vm, host });
    }
    within(Number::Memory, of(), vm.memory.0, 1, limits::MEMORY)?;
    within(Number::Memory, of(), vm.memory_used.0, 0, vm.memory.0)?;
    for bytes in vm
        .disks
        .iter()
        .flat_map(|disks| [disks.size, disks.allocated])
    {
        within(Number::Memory, of(), bytes.0, 0, limits::MEMORY)?;
    }
    if let Some(working_set) = vm.working_set {
        within(Number::Memory, of(), working_set.0, 0, limits::MEMORY)?;
    }
    within(Number::Cpus, of(), vm.vcpus.into(), 1, limits::CPUS.into())?;
    at_most(Many::Blockers, of(), vm.blockers.len(), limits::BLOCKERS)?;
    at_most(Many::Needs, of(), vm.needs.len(), limits::NEEDS)?;
    if let GuestCpu::Named { features, .. } = &vm.cpu {
        at_most(Many::Features, of(), features.len(), limits::FEATURES)?;
    }
    check_vm_policy(&vm.name, &vm.policy)
}

/// Whether what is wanted of a VM makes sense by itself.
///
/// # Errors
/// The first thing that does not.
pub fn check_vm_policy(vm: &VmName, policy: &VmPolicy) -> Result<(), Invalid> {
    let of = || Place::Vm(vm.clone());
    let priority = u64::from(policy.priority);
    within(Number::Priority, of(), priority, 0, limits::PRIORITY.into())?;
    let (seconds, most) = (policy.stop_within_seconds, limits::STOP_SECONDS_MOST);
    within(Number::StopSeconds, of(), seconds.into(), 1, most.into())?;
    let pins = policy.pinned.hosts.len().max(policy.pinned.labels.len());
    at_most(Many::Labels, of(), pins, limits::LABELS)?;
    for groups in [&policy.together, &policy.apart] {
        at_most(Many::Groups, of(), groups.len(), limits::GROUPS)?;
        let names: BTreeSet<_> = groups.iter().map(|member| &member.group).collect();
        if names.len() < groups.len() {
            return Err(Invalid::GroupTwice { vm: vm.clone() });
        }
    }
    Ok(())
}

/// Whether what is wanted of the cluster makes sense by itself.
///
/// # Errors
/// The first thing that does not.
pub fn check_policy(policy: &ClusterPolicy) -> Result<(), Invalid> {
    use Number::{AtOnce, Bandwidth, HeadroomPercent, Losses, Memory, VcpusPercent};
    let check = |what, found, least, most| within(what, Place::Policy, found, least, most);
    match policy.headroom {
        Headroom::Size { bytes } => check(Memory, bytes.0, 0, limits::MEMORY)?,
        Headroom::Percent { percent } => check(HeadroomPercent, percent.into(), 0, 100)?,
    }
    check(Losses, policy.keep.losses.into(), 0, limits::LOSSES.into())?;
    check(AtOnce, policy.inbound.into(), 1, limits::AT_ONCE.into())?;
    check(AtOnce, policy.outbound.into(), 1, limits::AT_ONCE.into())?;
    let at_once = u64::from(policy.in_cluster());
    check(AtOnce, at_once, 1, limits::AT_ONCE_IN_CLUSTER.into())?;
    if let Some(rate) = policy.guest_bandwidth {
        check(Bandwidth, rate.0, 1, limits::MEMORY)?;
    }
    let percent = u64::from(policy.vcpus_percent);
    check(VcpusPercent, percent, 1, limits::OVERCOMMIT_PERCENT.into())?;
    let counts_domains = policy.keep.losses > 0 && policy.keep.of == LossOf::FailureDomain;
    let uses_domains = counts_domains || policy.spread != Spread::Ignore;
    if uses_domains && policy.failure_domain.is_none() {
        return Err(Invalid::NoFailureDomain);
    }
    Ok(())
}

fn check_request(request: &Request) -> Result<(), Invalid> {
    let of = Place::Request;
    let avoided = request.avoid().values().map(BTreeSet::len).sum();
    at_most(Many::Avoided, Place::Request, avoided, limits::AVOIDED)?;
    match request {
        Request::Drain { hosts, .. } if hosts.is_empty() => Err(Invalid::NoHosts),
        Request::Drain { hosts, .. } => at_most(Many::Hosts, of, hosts.len(), limits::HOSTS),
        Request::Resume { homes, .. } => at_most(Many::Vms, of, homes.len(), limits::VMS),
        Request::Rebalance { most_moves, .. } => {
            let most = limits::REBALANCE_MOVES.into();
            within(Number::Moves, of, (*most_moves).into(), 1, most)
        }
    }
}
