//! The wires between the NICs of hosts. Two hosts are connected directly, more of them by a switch.
//!
//! ```text
//!   drover-lab-a            drover-lab-b     drover-lab-a    drover-lab-switch    drover-lab-c
//!   nic0 ─tbf─── veth ───tbf─ nic0           nic0 ─tbf────tbf─ nic0a
//!   nic1 ─tbf─── veth ───tbf─ nic1                             bridge net0
//!                                                              nic0c ─tbf────tbf─ nic0
//! ```
//!
//! Each end of a wire is held at the NIC's rate: a host sends no more, and no more reaches it, from
//! however many others.

use anyhow::{Context, Result};
use drover_types::BitRate;

use crate::command::run;
use crate::network::{HOSTS, add_namespace, namespace, nic};
use crate::settings::{LabName, LabSettings};

/// How an end is shaped beside its rate: as a line that never holds more than 20 ms, with a burst
/// of 4 ms at 1 Gbit/s so that the timer's grain does not cost rate (994 of 1000 Mbit/s seen).
const SHAPE: [&str; 4] = ["burst", "512kb", "latency", "20ms"];

/// One end of a wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct End {
    /// The namespace that it is in.
    pub(crate) space: String,
    /// Its interface there.
    pub(crate) device: String,
}

/// Both ends of the wire at a NIC of a host: the host's own, and the one that is not.
pub(crate) fn ends(lab: &LabSettings, number: usize, host: usize) -> [End; 2] {
    let own = End {
        space: namespace(&lab.name, HOSTS[host]),
        device: nic(number),
    };
    let other = if is_switched(lab) {
        port(lab, number, host)
    } else {
        End {
            space: namespace(&lab.name, HOSTS[1 - host]),
            device: nic(number),
        }
    };
    [own, other]
}

fn is_switched(lab: &LabSettings) -> bool {
    lab.hosts > 2
}

fn switch(lab: &LabName) -> String {
    namespace(lab, "switch")
}

/// The switch's end of the wire at a NIC of a host.
fn port(lab: &LabSettings, number: usize, host: usize) -> End {
    End {
        space: switch(&lab.name),
        device: format!("{}{}", nic(number), HOSTS[host]),
    }
}

/// Both ends of every wire between NICs of this number.
pub(crate) fn wires(lab: &LabSettings, number: usize) -> Vec<[End; 2]> {
    let hosts = if is_switched(lab) { lab.hosts } else { 1 };
    (0..hosts).map(|host| ends(lab, number, host)).collect()
}

/// The namespaces in which wires end.
pub(crate) fn spaces(lab: &LabSettings) -> Vec<String> {
    let hosts = lab.host_names().iter();
    let hosts = hosts.map(|host| namespace(&lab.name, host));
    hosts
        .chain(is_switched(lab).then(|| switch(&lab.name)))
        .collect()
}

/// Makes all wires of a lab whose hosts are there; its hosts' ends are down.
pub(crate) async fn connect(lab: &LabSettings) -> Result<()> {
    if is_switched(lab) {
        add_namespace(&switch(&lab.name)).await?;
    }
    for (number, rate) in lab.nics.iter().enumerate() {
        let wires = wires(lab, number);
        for wire in &wires {
            add_wire(wire).await?;
            for end in wire {
                shape(end, *rate).await?;
            }
        }
        if is_switched(lab) {
            let ports = wires.iter().map(|[_, port]| port);
            add_bridge(lab, number, ports).await?;
        }
    }
    Ok(())
}

async fn add_bridge(
    lab: &LabSettings,
    number: usize,
    ports: impl Iterator<Item = &End>,
) -> Result<()> {
    let (space, bridge) = (switch(&lab.name), format!("net{number}"));
    let mtu = lab.mtu.to_string();
    let add = ["-n", &space, "link", "add", &bridge, "type", "bridge"];
    run("ip", &add)
        .await
        .with_context(|| format!("cannot make {bridge} (is the kernel's bridge there?)"))?;
    run("ip", &["-n", &space, "link", "set", &bridge, "up"]).await?;
    for port in ports {
        let set = ["-n", &space, "link", "set", &port.device, "mtu", &mtu];
        run("ip", &[&set[..], &["master", &bridge, "up"]].concat()).await?;
    }
    Ok(())
}

async fn add_wire([one, other]: &[End; 2]) -> Result<()> {
    let (nic, peer) = (one.device.as_str(), other.device.as_str());
    let wire = [
        "link", "add", nic, "netns", &one.space, "type", "veth", "peer", "name", peer,
    ];
    run("ip", &[&wire[..], &["netns", &other.space]].concat())
        .await
        .with_context(|| format!("cannot connect {nic} of the hosts (is the kernel's veth there?)"))
        .map(drop)
}

/// Gives what is sent at an end of a wire this rate, without losing what is queued; `None` is no
/// limit.
///
/// # Errors
/// What `tc` says.
pub(crate) async fn shape(end: &End, rate: Option<BitRate>) -> Result<()> {
    let End { space, device } = end;
    let Some(rate) = rate else {
        let none = ["-n", space, "qdisc", "delete", "dev", device, "root"];
        // There is none to delete on a NIC that was never shaped.
        let _ = run("tc", &none).await;
        return Ok(());
    };
    let rate = format!("{}bit", rate.0);
    let shape = [
        "-n", space, "qdisc", "replace", "dev", device, "root", "tbf", "rate", &rate,
    ];
    run("tc", &[&shape[..], &SHAPE].concat()).await.map(drop)
}
