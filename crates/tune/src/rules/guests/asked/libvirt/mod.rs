//! libvirt's domains: their XML.
//!
//! What a domain has while it runs is read of how it is made now; the lines are those of how it is made when it is started next, which is
//! what `virsh edit` shows. Source: libvirt's `docs/formatdomain.rst`, and what QEMU is given for it `src/qemu/qemu_command.c`.

mod cpu;
mod memory;

use drover_types::Bytes;

pub use cpu::{cpu, with_model};
pub use memory::{backends, with_huge_pages, with_threads};

use super::{Carrier, Lock, Net, NetWritten};
use crate::domain::{changed, is_accelerated, size, virsh};
use crate::facts::{Card, Domain, Element, Guest};
use crate::finding::{Because, Line};

/// Of one that is gone when it ends.
const NO_DEFINITION: &str = "libvirt has no definition of it";

/// What is given to QEMU beside, which libvirt knows nothing of.
fn beside(domain: &Element) -> impl Iterator<Item = &str> {
    let given = domain.part("commandline").into_iter();
    given
        .flat_map(|given| given.all("arg"))
        .filter_map(|arg| arg.get("value"))
}

/// How it is made now, or where it does not run when it is started next.
fn made<'g>(guest: &Guest, domain: &'g Domain) -> Result<&'g Element, Because> {
    let runs = guest.seen.known().is_some();
    let made = if runs { &domain.now } else { &domain.next };
    Ok(made.get()?)
}

/// Those that it has. One that was only defined meanwhile it has not yet.
pub fn nets<'g>(
    guest: &'g Guest,
    domain: &'g Domain,
) -> Result<Vec<Result<Net<'g>, Because>>, Because> {
    let defined = all_interfaces(domain.next.get()?);
    let made = made(guest, domain)?;
    let accelerated = is_accelerated(made).map_err(Because)?;
    let own = all_interfaces(made).into_iter().filter(is_drivers);
    let nets = own.map(|interface| {
        let mac = interface.at("mac", "address").unwrap_or("?");
        let is_it = |other: &&&Element| other.at("mac", "address") == Some(mac);
        let next: Vec<_> = defined.iter().filter(is_it).copied().collect();
        let written = NetWritten::Libvirt {
            next: next.iter().copied().find(is_drivers),
            has_twin: next.len() > 1,
            accelerated,
        };
        Ok(net(guest, interface, mac, accelerated, written))
    });
    let mut nets: Vec<_> = nets.collect();
    let is_net = |arg: &str| matches!(arg, "-netdev" | "-nic" | "-global");
    if beside(made).any(is_net) {
        let why = "some of its cards are in QEMU's arguments that libvirt knows nothing of";
        nets.push(Err(why.into()));
    }
    if made.part("override").is_some() {
        let why = "some of its devices have other properties than libvirt knows (<qemu:override>)";
        nets.push(Err(why.into()));
    }
    Ok(nets)
}

fn net<'g>(
    guest: &'g Guest,
    interface: &Element,
    mac: &str,
    accelerated: bool,
    written: NetWritten<'g>,
) -> Net<'g> {
    let runs = guest.seen.known().is_some();
    let given = interface.number_at("driver", "queues");
    let given = given.unwrap_or(1).max(1);
    Net {
        name: mac.to_owned(),
        carrier: carrier(interface, runs),
        given,
        // While it runs the kind is the one that it was decided to be.
        by_network: !runs && interface.get("type") == Some("network"),
        handed: interface.at("target", "managed") == Some("no"),
        // libvirt turns it on by itself.
        multiqueue: given > 1,
        vhost: vhost(interface.at("driver", "name"), accelerated),
        offered_mtu: interface.number_at("mtu", "size"),
        card: card(guest, mac),
        written,
    }
}

fn all_interfaces(domain: &Element) -> Vec<&Element> {
    let devices = domain.part("devices").into_iter();
    devices
        .flat_map(|devices| devices.all("interface"))
        .collect()
}

/// Whether its card is the driver's own.
fn is_drivers(interface: &&Element) -> bool {
    let model = interface.at("model", "type").unwrap_or_default();
    model.starts_with("virtio") && interface.get("type") != Some("hostdev")
}

fn card<'g>(guest: &'g Guest, mac: &str) -> Option<&'g Card> {
    let cards = guest.seen.known()?.cards.known()?;
    cards.iter().find(|card| card.mac == mac)
}

/// What carries it. The name of the host's end is told while it runs: what stands in a definition is wished for at most.
fn carrier(interface: &Element, runs: bool) -> Carrier {
    let source = |attribute| interface.at("source", attribute).map(str::to_owned);
    let name = interface.at("target", "dev").filter(|_| runs);
    match interface.get("type").unwrap_or_default() {
        "network" | "bridge" => Carrier::Tap {
            name: name.map(str::to_owned),
            bridge: source("bridge"),
        },
        "ethernet" | "direct" => Carrier::Tap {
            name: name.map(str::to_owned),
            bridge: None,
        },
        "vhostuser" => Carrier::User,
        "vdpa" => Carrier::Vdpa,
        _ => Carrier::Other,
    }
}

/// libvirt opens it by itself where it can, and for no domain that is emulated (`qemuInterfaceOpenVhostNet`).
fn vhost(driver: Option<&str>, accelerated: bool) -> Result<bool, Because> {
    match (driver, accelerated) {
        (_, false) => Err(
            "libvirt has the kernel carry packets of no domain whose processor is emulated".into(),
        ),
        (Some("qemu"), true) => Ok(false),
        (_, true) => Ok(true),
    }
}

/// A part of the interface as it is to be; nothing where the interface is in no definition.
fn with(next: Option<&Element>, part: &str, change: impl Fn(&Element) -> Element) -> Vec<Line> {
    let Some(next) = next else {
        return Vec::new();
    };
    let old = next.part(part);
    let new = change(old.unwrap_or(&Element::named(part)));
    changed(old, &new)
}

pub fn with_queues(
    net: &Net<'_>,
    wanted: u32,
    next: Option<&Element>,
    accelerated: bool,
) -> Vec<Line> {
    let has = next.and_then(|next| next.number_at("driver", "queues"));
    if has.is_some_and(|has| has >= wanted) {
        return Vec::new();
    }
    let is_kernels = matches!(net.carrier, Carrier::Tap { .. }) && accelerated;
    with(next, "driver", |driver| {
        let named = match driver.get("name") {
            None if is_kernels => driver.with("name", "vhost"),
            _ => driver.clone(),
        };
        named.with("queues", &wanted.to_string())
    })
}

pub fn with_vhost(next: Option<&Element>) -> Vec<Line> {
    // Where nothing is said libvirt has the kernel do it.
    if next.is_some_and(|next| next.at("driver", "name").is_none()) {
        return Vec::new();
    }
    with(next, "driver", |driver| driver.with("name", "vhost"))
}

pub fn telling(next: Option<&Element>, mtu: &str) -> Vec<Line> {
    with(next, "mtu", |part| part.with("size", mtu))
}

/// libvirt lets RDMA lock as much as the domain may have at most, and moves none by it without such a limit (`qemu_migration.c`): who
/// wants that is told by libvirt, which advises against a limit.
pub fn lock(guest: &Guest, domain: &Domain) -> Result<Option<Lock>, Because> {
    let tune = made(guest, domain)?.part("memtune");
    let limit = tune.and_then(|tune| tune.part("hard_limit"));
    let limit = limit.and_then(|limit| Some((limit.text.as_deref()?, limit.get("unit"))));
    let Some((number, unit)) = limit else {
        return Ok(None);
    };
    let uri = domain.uri.as_deref();
    // A limit of the running one may end it at once.
    let by_hand = match domain.persistent {
        true => format!(
            "{}, if others move it by RDMA",
            virsh(uri, "memtune {} --config --hard-limit SIZEKiB", &guest.name)
        ),
        false => {
            NO_DEFINITION.to_owned()
                + ": have what makes it set another <hard_limit>, if others move it by RDMA"
        }
    };
    Ok(Some(Lock {
        most: Some(Bytes(size(number, unit).map_err(Because)?)),
        by_hand: format!(
            "{by_hand}: more than all that its QEMU takes, as beyond that it is ended. libvirt advises to set none, and moves no domain by RDMA without"
        ),
    }))
}

pub fn in_definition(guest: &Guest, domain: &Domain, place: &str, lines: &[Line]) -> String {
    let edit = virsh(domain.uri.as_deref(), "edit {}", &guest.name);
    let place = match place {
        "" => String::new(),
        place => format!(", {place}"),
    };
    match (domain.persistent, lines.is_empty()) {
        (false, _) => {
            format!("{NO_DEFINITION}: have what makes it say as below{place}")
        }
        (true, true) => {
            format!("its definition says so already, as {edit} shows{place}: start it anew")
        }
        (true, false) => format!(
            "{edit}, to change it as below{place}: it counts as of the domain's next start, by libvirt"
        ),
    }
}
