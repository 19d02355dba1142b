//! Hosts as network namespaces, their addresses, and what runs in them. The wires between them are
//! [`wire`](crate::wire)'s.
//!
//! Both ends of every wire are made inside the namespaces: the machine's own interfaces, routes
//! and addresses are never touched, and two labs may use the same addresses.
//!
//! # Invariant
//! [`remove`] takes away everything that belongs to a lab, whatever state it was left in, and
//! nothing else.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;

use anyhow::{Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::command::run;
use crate::settings::{Addressing, LabName, LabSettings};
use crate::{limits, wire};

/// The names that hosts of a lab have, in turn; of most labs there are the first two.
pub const HOSTS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// The namespace of a host.
#[must_use]
pub fn namespace(lab: &LabName, host: &str) -> String {
    format!("drover-{lab}-{host}")
}

/// The name of a NIC, the same on every host.
#[must_use]
pub fn nic(number: usize) -> String {
    format!("nic{number}")
}

/// The address of IPv4 of NIC `number` of the host that is `host` in [`HOSTS`], if it has one.
#[must_use]
pub fn address(number: usize, host: usize) -> Ipv4Addr {
    let byte = |number: usize| u8::try_from(number).unwrap_or(u8::MAX);
    Ipv4Addr::new(10, 77, byte(number), byte(host).saturating_add(1))
}

/// The address at which a host can be reached on a NIC; `None` where there is none of its own.
#[must_use]
pub fn address_of(lab: &LabSettings, number: usize, host: usize) -> Option<IpAddr> {
    let way = lab.addressing_of(number);
    let last = u16::try_from(host).unwrap_or(u16::MAX).saturating_add(1);
    let net = u16::try_from(number).unwrap_or(u16::MAX);
    match way {
        Addressing::V6 => Some(Ipv6Addr::new(0xfd77, net, 0, 0, 0, 0, 0, last).into()),
        _ => Some(address(number, host).into()),
    }
    .filter(|_| way.can_be_named())
}

/// Makes the namespaces and wires of a lab that has none.
///
/// # Errors
/// What `ip` or `tc` say.
pub async fn create(lab: &LabSettings) -> Result<()> {
    for host in lab.host_names() {
        add_namespace(&namespace(&lab.name, host)).await?;
    }
    wire::connect(lab).await?;
    for number in 0..lab.nics.len() {
        for host in 0..lab.hosts {
            set_up_nic(lab, number, host).await?;
        }
    }
    for number in 0..lab.nics.len() {
        if lab.addressing_of(number) == Addressing::Asymmetric {
            answer_elsewhere(lab, number).await?;
        }
    }
    Ok(())
}

pub(crate) async fn add_namespace(space: &str) -> Result<()> {
    run("ip", &["netns", "add", space]).await?;
    run("ip", &["-n", space, "link", "set", "lo", "up"])
        .await
        .map(drop)
}

/// Has the second host send by another NIC what is for the first one's address on this one.
async fn answer_elsewhere(lab: &LabSettings, number: usize) -> Result<()> {
    let (space, other) = (
        namespace(&lab.name, HOSTS[1]),
        (number + 1) % lab.nics.len(),
    );
    let (to, from) = (
        address(number, 0).to_string(),
        address(number, 1).to_string(),
    );
    let route = ["route", "add", &to, "dev", &nic(other), "src", &from];
    run("ip", &[&["-n", &space][..], &route].concat())
        .await
        .map(drop)
}

async fn set_up_nic(lab: &LabSettings, number: usize, host: usize) -> Result<()> {
    let (nic, space) = (nic(number), namespace(&lab.name, HOSTS[host]));
    let own = match lab.addressing_of(number) {
        Addressing::LinkLocal => None,
        Addressing::Duplicate => Some(format!("{}/24", address(number, 0))),
        Addressing::V6 => address_of(lab, number, host).map(|own| format!("{own}/64")),
        Addressing::V4 | Addressing::Asymmetric => Some(format!("{}/24", address(number, host))),
    };
    if let Some(own) = own {
        // An address of IPv6 would otherwise be looked for on the wire for a second before use.
        let add = ["-n", &space, "address", "add", &own, "dev", &nic];
        let at_once: &[&str] = if own.contains(':') { &["nodad"] } else { &[] };
        run("ip", &[&add[..], at_once].concat()).await?;
    }
    let mtu = lab.mtu.to_string();
    run(
        "ip",
        &["-n", &space, "link", "set", &nic, "mtu", &mtu, "up"],
    )
    .await?;
    Ok(())
}

/// Lets MPTCP use every NIC: each host signals the addresses of its further NICs, accepts the
/// other's, and connects from its own (without that the kernel sends the join from the first
/// NIC's address, and it never arrives).
///
/// # Errors
/// The reason why this kernel or `ip` cannot.
pub async fn enable_mptcp(lab: &LabSettings) -> Result<()> {
    let enabled = std::fs::read_to_string("/proc/sys/net/mptcp/enabled");
    if enabled.map(|text| text.trim() != "1").unwrap_or(true) {
        bail!("this kernel has no MPTCP, or it is switched off (net.mptcp.enabled)");
    }
    // Eight is the most that the kernel takes (MPTCP_PM_ADDR_MAX).
    let limits = [
        "mptcp",
        "limits",
        "set",
        "subflows",
        "8",
        "add_addr_accepted",
        "8",
    ];
    let first = lab.fastest();
    for (host, name) in lab.host_names().iter().enumerate() {
        let space = namespace(&lab.name, name);
        run("ip", &[&["-n", &space][..], &limits].concat()).await?;
        for number in (0..lab.nics.len())
            .filter(|number| *number != first)
            .take(8)
        {
            let Some(own) = address_of(lab, number, host) else {
                continue;
            };
            let (own, nic) = (own.to_string(), nic(number));
            let endpoint = [
                "mptcp", "endpoint", "add", &own, "dev", &nic, "signal", "subflow",
            ];
            run("ip", &[&["-n", &space][..], &endpoint].concat()).await?;
        }
    }
    Ok(())
}

/// The processes in a namespace; none when there is no such namespace.
pub async fn processes(space: &str) -> Vec<Pid> {
    let text = run("ip", &["netns", "pids", space])
        .await
        .unwrap_or_default();
    text.split_whitespace()
        .filter_map(|pid| Pid::from_raw(pid.parse().ok()?))
        .collect()
}

/// The lab's namespaces that exist.
///
/// # Errors
/// What `ip` says.
pub async fn namespaces(lab: &LabName) -> Result<Vec<String>> {
    let prefix = format!("drover-{lab}-");
    let list = run("ip", &["netns", "list"]).await?;
    let names = list
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    Ok(names
        .filter(|name| name.starts_with(&prefix))
        .map(str::to_owned)
        .collect())
}

/// Ends every process in the lab's namespaces and removes them, with all their interfaces. Right
/// whatever is there, also nothing.
///
/// # Errors
/// A process that does not end, or what `ip` says.
pub async fn remove(lab: &LabName) -> Result<()> {
    for space in namespaces(lab).await? {
        end_processes(&space).await?;
        run("ip", &["netns", "delete", &space]).await?;
    }
    Ok(())
}

pub(crate) async fn end_processes(space: &str) -> Result<()> {
    let deadline = Instant::now() + limits::KILL;
    loop {
        let left = processes(space).await;
        if left.is_empty() {
            return Ok(());
        }
        for pid in &left {
            // Gone already is what we want.
            let _ = kill_process(*pid, Signal::KILL);
        }
        if Instant::now() > deadline {
            let pids: Vec<_> = left
                .iter()
                .map(|pid| pid.as_raw_nonzero().to_string())
                .collect();
            bail!(
                "processes {} in {space} do not end within {} s of SIGKILL",
                pids.join(", "),
                limits::KILL.as_secs()
            );
        }
        tokio::time::sleep(limits::POLL).await;
    }
}
