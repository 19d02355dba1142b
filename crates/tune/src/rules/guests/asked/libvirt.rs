//! libvirt's domains: their XML.
//!
//! What a domain has while it runs is read of how it is made now; the lines are those of how it is made when it is started next, which is
//! what `virsh edit` shows. Source: libvirt's `docs/formatdomain.rst`, and what QEMU is given for it `src/qemu/qemu_command.c`.

use drover_types::Bytes;

use super::{Backend, Carrier, Cpu, CpuWritten, Lock, MemoryWritten, Net, NetWritten};
use crate::change::quoted;
use crate::domain::{changed, is_accelerated, size};
use crate::facts::{Card, Domain, Element, Guest};
use crate::finding::{Because, Line};

/// What libvirt takes where huge pages are asked for and no size is named, on most hosts.
const USUAL_HUGE: u64 = 2 << 20;

/// Of one that is gone when it ends.
const NO_DEFINITION: &str = "libvirt has no definition of it";

/// Pages of this size are as all others, also where they are called huge.
const SMALL: u64 = 4 << 10;

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
    let next = interfaces(domain.next.get()?);
    let made = made(guest, domain)?;
    let accelerated = is_accelerated(made).map_err(Because)?;
    let nets = interfaces(made).into_iter().map(|interface| {
        let mac = interface.at("mac", "address").unwrap_or("?");
        let is_it = |other: &&&Element| other.at("mac", "address") == Some(mac);
        let written = NetWritten::Libvirt {
            next: next.iter().find(is_it).copied(),
            accelerated,
        };
        Ok(net(guest, interface, mac, accelerated, written))
    });
    let mut nets: Vec<_> = nets.collect();
    let is_net = |arg: &str| matches!(arg, "-netdev" | "-nic");
    if beside(made).any(is_net) {
        let why = "some of its cards are in QEMU's arguments that libvirt knows nothing of";
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
    let given = interface.number_at("driver", "queues");
    let given = given.unwrap_or(1).max(1);
    Net {
        name: mac.to_owned(),
        carrier: carrier(interface, guest.seen.known().is_some()),
        given,
        handed: interface.at("target", "managed") == Some("no"),
        // libvirt turns it on by itself.
        multiqueue: given > 1,
        vhost: vhost(interface.at("driver", "name"), accelerated),
        offered_mtu: interface.number_at("mtu", "size"),
        card: card(guest, mac),
        written,
    }
}

/// Interfaces whose card is the driver's own.
fn interfaces(domain: &Element) -> Vec<&Element> {
    let devices = domain.part("devices").into_iter();
    let all = devices.flat_map(|devices| devices.all("interface"));
    let is_drivers = |one: &&Element| {
        let model = one.at("model", "type").unwrap_or_default();
        model.starts_with("virtio") && one.get("type") != Some("hostdev")
    };
    all.filter(is_drivers).collect()
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
    with(next, "driver", |driver| driver.with("name", "vhost"))
}

pub fn telling(next: Option<&Element>, mtu: &str) -> Vec<Line> {
    with(next, "mtu", |part| part.with("size", mtu))
}

/// All of its memory is of one kind, unless pages are told for parts of it.
pub fn backends<'g>(guest: &Guest, domain: &'g Domain) -> Result<Vec<Backend<'g>>, Because> {
    let next = domain.next.get()?.part("memoryBacking");
    let made = made(guest, domain)?;
    let is_memory = |arg: &str| arg == "-mem-path" || arg.starts_with("memory-backend-");
    if beside(made).any(is_memory) {
        return Err("its memory is in QEMU's arguments that libvirt knows nothing of".into());
    }
    let backing = made.part("memoryBacking");
    let hugepages = backing.and_then(|backing| backing.part("hugepages"));
    let huge = hugepages.map(page).transpose()?;
    let huge = huge.filter(|size| *size > SMALL);
    let said = |name: &str, attribute: &str| backing?.at(name, attribute);
    let (source, access) = (said("source", "type"), said("access", "mode"));
    let is_memfd = source == Some("memfd");
    // With an access that is said it becomes a file as well (`qemuBuildMemoryBackendProps`).
    let is_file = source == Some("file") || access.is_some();
    let threads = said("allocation", "threads").and_then(|threads| threads.parse().ok());
    Ok(vec![Backend {
        bytes: guest.memory.0,
        huge,
        shared: match access {
            Some(mode) => mode == "shared",
            None => is_memfd,
        },
        in_file: huge.is_none() && !is_memfd && is_file,
        filled: huge.is_some() || said("allocation", "mode") == Some("immediate"),
        threads,
        written: MemoryWritten::Libvirt(next),
    }])
}

/// The size of its huge pages.
fn page(hugepages: &Element) -> Result<u64, Because> {
    let mut pages = hugepages.all("page");
    match (pages.next(), pages.next()) {
        (None, _) => Ok(USUAL_HUGE),
        (Some(page), None) if page.get("nodeset").is_none_or(|nodes| nodes == "0") => {
            let number = page.get("size").unwrap_or_default();
            size(number, page.get("unit")).map_err(Because)
        }
        _ => Err("parts of its memory have pages of their own".into()),
    }
}

pub fn with_threads(next: Option<&Element>, threads: &str) -> Vec<Line> {
    with_backing(next, "allocation", |part| {
        part.with("mode", "immediate").with("threads", threads)
    })
}

pub fn with_huge_pages(next: Option<&Element>) -> Vec<Line> {
    let page = Element::named("page")
        .with("size", "2048")
        .with("unit", "KiB");
    with_backing(next, "hugepages", |part| part.with_part(page.clone()))
}

fn with_backing(
    next: Option<&Element>,
    part: &str,
    change: impl Fn(&Element) -> Element,
) -> Vec<Line> {
    let named = Element::named("memoryBacking");
    let old = next.unwrap_or(&named);
    let new = change(old.part(part).unwrap_or(&Element::named(part)));
    changed(next, &old.with_part(new))
}

/// What it has while it runs, where libvirt names all that belongs to it.
pub fn cpu<'g>(guest: &Guest, domain: &'g Domain) -> Result<Option<Cpu<'g>>, Because> {
    let next = domain.next.get()?.part("cpu");
    let made = made(guest, domain)?;
    if beside(made).any(|arg| arg == "-cpu") {
        return Err("its processor is in QEMU's arguments that libvirt knows nothing of".into());
    }
    let Some(cpu) = made.part("cpu") else {
        return Ok(None);
    };
    let emulated = !is_accelerated(made).map_err(Because)?;
    let model = match cpu.get("mode") {
        Some("host-passthrough") => "host",
        Some("maximum") => "max",
        Some("host-model") => {
            return Err("it is given its host's processor as libvirt knows it (host-model) when it is started".into());
        }
        // One that has no model asks for nothing but its topology.
        _ => match cpu.part("model").and_then(|model| model.text.as_deref()) {
            Some(model) => model,
            None => return Ok(None),
        },
    };
    Ok(Some(Cpu {
        model: model.to_owned(),
        words: cpu.all("feature").filter_map(word).collect(),
        emulated,
        written: CpuWritten::Libvirt(next),
    }))
}

/// A feature as `-cpu` has it.
fn word(feature: &Element) -> Option<String> {
    let name = qemus(feature.get("name")?);
    match feature.get("policy").unwrap_or("require") {
        "force" | "require" => Some(format!("+{name}")),
        "disable" | "forbid" => Some(format!("-{name}")),
        // It has it where its host does.
        _ => None,
    }
}

/// QEMU's name of a feature (`virQEMUCapsCPUFeaturesX86` in libvirt's `qemu_capabilities.c`).
fn qemus(name: &str) -> String {
    match name {
        "pclmuldq" => "pclmulqdq".to_owned(),
        _ => name.replace('_', "-"),
    }
}

/// Whatever belongs to the old model goes with it.
pub fn with_model(
    next: Option<&Element>,
    model: &str,
    may_stay: impl Fn(&str) -> bool,
) -> Vec<Line> {
    let named = Element {
        text: Some(model.to_owned()),
        ..Element::named("model").with("fallback", "forbid")
    };
    let stays = |part: &&Element| match part.name.as_str() {
        "model" | "vendor" => false,
        "feature" => word(part).is_none_or(|word| may_stay(&word)),
        _ => true,
    };
    let old = next.into_iter().flat_map(|cpu| &cpu.parts);
    let new = Element {
        parts: [named]
            .into_iter()
            .chain(old.filter(stays).cloned())
            .collect(),
        ..Element::named("cpu")
            .with("mode", "custom")
            .with("match", "exact")
    };
    changed(next, &new)
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
    // A limit of the running one may end it at once.
    let by_hand = match domain.persistent {
        true => format!(
            "{} --config --hard-limit SIZEKiB, if others move it by RDMA",
            virsh(domain, "memtune", &guest.name)
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

/// libvirt's own command.
fn virsh(domain: &Domain, command: &str, name: &str) -> String {
    let uri = domain.uri.as_deref();
    let uri = uri.map_or_else(String::new, |uri| format!("-c {} ", quoted(uri)));
    format!("virsh {uri}{command} {}", quoted(name))
}

pub fn in_definition(guest: &Guest, domain: &Domain, place: &str, lines: &[Line]) -> String {
    let edit = virsh(domain, "edit", &guest.name);
    let place = match place {
        "" => String::new(),
        place => format!(", {place}"),
    };
    match (domain.persistent, lines.is_empty()) {
        (false, _) => {
            format!("{NO_DEFINITION}: have what makes it say as below{place}")
        }
        (true, true) => {
            format!("{edit}{place}; where that is so in its definition already, start it anew")
        }
        (true, false) => format!(
            "{edit}, to change it as below{place}: it counts as of the domain's next start, by libvirt"
        ),
    }
}
