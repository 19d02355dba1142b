//! Network interfaces.

use std::collections::BTreeMap;

use drover_tune::facts::{Bond, Fact, Kind, Module, Nic, Teller};

use super::Told;
use super::folder::{Folder, lower};
use super::rdma::rdma;
use super::told::{Answered, ToldNic};
use super::tree::Tree;
use crate::ethtool::{self, Question};
use crate::{dcb, devlink, drvinfo, lldp, team};

/// `/sys` belongs to another network namespace.
const NO_FOLDER: &str = "/sys tells nothing of it in this network namespace";

pub(super) fn nics(tree: &Tree, told: &Told) -> Vec<Nic> {
    let mut nics: Vec<Nic> = told.nics.iter().map(|told| nic(tree, told)).collect();
    nics.sort_by(|one, other| one.name.cmp(&other.name));
    nics
}

fn nic(tree: &Tree, told: &ToldNic) -> Nic {
    let interface = &told.interface;
    let folder = told.has_folder.then(|| Folder {
        tree,
        path: format!("sys/class/net/{}", interface.name),
    });
    let folder = folder.as_ref();
    let entries = folder.map(|folder| folder.entries("")).unwrap_or_default();
    let lines = |path| folder.map(|folder| folder.lines(path)).unwrap_or_default();
    let (own, device) = (lines("uevent"), lines("device/uevent"));
    let of_device = |key: &str| match (folder, device.get(key)) {
        (Some(_), Some(value)) => Fact::Known(value.clone()),
        (Some(_), None) => Fact::unknown("it has no hardware of its own that tells"),
        (None, _) => Fact::unknown(NO_FOLDER),
    };
    let versions = versions(tree, told);
    let kind = match told.team {
        true => Kind::Bond,
        false => kind(&entries, &own),
    };
    Nic {
        name: interface.name.clone(),
        kind,
        up: told.enabled,
        carrier: interface.up,
        addresses: interface.addresses.clone(),
        mtu: interface.mtu,
        lower: lower(&entries),
        driver: of_device("DRIVER"),
        driver_version: of_hardware(told.drvinfo.as_ref(), drvinfo::driver),
        firmware: firmware(&versions, told),
        versions,
        model: of_device("PCI_ID"),
        link: told_of(told, Question::Linkmodes, |answer| {
            Ok(ethtool::link(answer))
        }),
        port: match kind {
            Kind::Adapter => told_of(told, Question::Linkinfo, ethtool::port),
            // Drivers of what has no port say the first kind that there is.
            _ => Fact::unknown("it has no port of its own"),
        },
        module: module(told),
        down: told_of(told, Question::Linkstate, |answer| {
            Ok(ethtool::down(answer))
        }),
        fec: told_of(told, Question::Fec, |answer| Ok(ethtool::fec(answer))),
        pause: told_of(told, Question::Pause, ethtool::pause),
        dcb: of_hardware(told.dcb.as_ref(), |ieee| {
            let cee = match &told.cee {
                Some(Answered::Attributes(answer)) => Some(answer.as_slice()),
                _ => None,
            };
            Ok(dcb::dcb(ieee, cee))
        }),
        neighbours: of_hardware(told.neighbours.as_ref(), |told| Ok(lldp::neighbours(told))),
        listening: None,
        health: of_hardware(told.health.as_ref(), |told| Ok(devlink::reporters(told))),
        rdma: interface.rdma.as_ref().map(|device| {
            rdma(tree, device, &interface.name).map_or_else(Fact::Unknown, Fact::Known)
        }),
        spread: told_of(told, Question::Rss, ethtool::spread),
        channels: told_of(told, Question::Channels, |answer| {
            Ok(ethtool::channels(answer))
        }),
        qdisc: match &told.qdisc {
            Some(kind) => Fact::Known(kind.clone()),
            None => Fact::unknown("netlink does not tell of its queueing discipline"),
        },
        rings: told_of(told, Question::Rings, ethtool::rings),
        features: told_of(told, Question::Features, |answer| {
            Ok(ethtool::features(answer))
        }),
        coalescing: told_of(told, Question::Coalesce, |answer| {
            Ok(ethtool::coalescing(answer))
        }),
        interrupts: of_folder(folder, |folder| {
            folder.interrupts(told.stands_on.as_deref(), &told.fixed)
        }),
        carrier_changes: of_folder(folder, |folder| folder.number("carrier_changes")),
        steering: of_folder(folder, |folder| Ok(folder.steering())),
        pci: match (folder, device.get("PCI_SLOT_NAME")) {
            (Some(folder), Some(slot)) => Fact::Known(folder.pci(slot)),
            (Some(folder), None) => {
                let below = told.stands_on.as_deref();
                let below = below.and_then(|device| folder.slot_below(device));
                below.map_or_else(|| Fact::unknown("it is on no PCI bus"), Fact::Known)
            }
            (None, _) => Fact::unknown(NO_FOLDER),
        },
        bond: (kind == Kind::Bond).then(|| of_folder(folder, |folder| bond(folder, told))),
        counters: of_folder(folder, |folder| folder.counters()),
    }
}

/// What ethtool answered.
fn told_of<T>(
    told: &ToldNic,
    question: Question,
    read: impl FnOnce(&[u8]) -> Result<T, &'static str>,
) -> Fact<T> {
    match told.ethtool.get(&question) {
        Some(Answered::Attributes(answer)) => read(answer).map_or_else(Fact::unknown, Fact::Known),
        Some(Answered::Nothing(why)) => Fact::unknown(why),
        None if told.ethtool.is_empty() => {
            Fact::unknown("it has neither hardware nor an address that somebody gave it")
        }
        None => Fact::default(),
    }
}

/// What is in its port, by one half of a memory or by both.
fn module(told: &ToldNic) -> Fact<Module> {
    let upper = match told.ethtool.get(&Question::ModuleUpper) {
        Some(Answered::Attributes(answer)) => Some(answer.as_slice()),
        _ => None,
    };
    match told_of(told, Question::ModuleLower, |lower| Ok(lower.to_vec())) {
        Fact::Known(lower) => {
            ethtool::module(&lower, upper).map_or_else(Fact::Unknown, Fact::Known)
        }
        Fact::Unknown(why) => Fact::Unknown(why),
    }
}

fn of_folder<T>(
    folder: Option<&Folder<'_>>,
    read: impl FnOnce(&Folder<'_>) -> Result<T, String>,
) -> Fact<T> {
    match folder {
        Some(folder) => read(folder).map_or_else(Fact::Unknown, Fact::Known),
        None => Fact::unknown(NO_FOLDER),
    }
}

/// What it is, by its folder and what the kernel says of its kind (`DEVTYPE`).
fn kind(entries: &[String], uevent: &BTreeMap<String, String>) -> Kind {
    let has = |name: &str| entries.iter().any(|entry| entry == name);
    match uevent.get("DEVTYPE").map(String::as_str) {
        Some("bond") => Kind::Bond,
        Some("bridge") => Kind::Bridge,
        Some("vlan") => Kind::Vlan,
        _ if has("bonding") => Kind::Bond,
        _ if has("bridge") => Kind::Bridge,
        _ if has("device") => Kind::Adapter,
        _ => Kind::Virtual,
    }
}

/// How its members are used.
fn bond(folder: &Folder<'_>, told: &ToldNic) -> Result<Bond, String> {
    match &told.options {
        _ if !told.team => folder.bond(),
        Some(Answered::Attributes(answer)) => team::bond(answer, &folder.members()),
        Some(Answered::Nothing(why)) => Err(format!("it is a team, and {why}")),
        None => Err("it is a team, and what read this host is older, and did not ask".to_owned()),
    }
}

/// What only hardware is asked for.
fn of_hardware<T>(
    told: Option<&Answered>,
    read: impl FnOnce(&[u8]) -> Result<T, &'static str>,
) -> Fact<T> {
    match told {
        Some(Answered::Attributes(answer)) => read(answer).map_or_else(Fact::unknown, Fact::Known),
        Some(Answered::Nothing(why)) => Fact::unknown(why),
        None => Fact::unknown("it has no hardware, or what read this host is older"),
    }
}

/// Versions of the adapter's firmware, by who tells them.
fn versions(tree: &Tree, told: &ToldNic) -> BTreeMap<Teller, String> {
    let rdma = told.interface.rdma.as_ref().and_then(|device| {
        let version = tree.text(&format!("sys/class/infiniband/{device}/fw_ver"));
        // Devices in software have none.
        version.ok().filter(|version| !version.is_empty())
    });
    let by = |told: Option<&Answered>, read: fn(&[u8]) -> Result<String, &'static str>| {
        of_hardware(told, read).known().cloned()
    };
    let all = [
        (Teller::Driver, by(told.drvinfo.as_ref(), drvinfo::firmware)),
        (
            Teller::Devlink,
            by(told.versions.as_ref(), devlink::firmware),
        ),
        (Teller::Rdma, rdma),
    ];
    let told = all.into_iter();
    told.filter_map(|(who, version)| Some((who, version?)))
        .collect()
}

/// The one that is shown: as its RDMA device has it, or devlink, or its driver, which may add to it what it is made for.
fn firmware(versions: &BTreeMap<Teller, String>, told: &ToldNic) -> Fact<String> {
    let shown = [Teller::Rdma, Teller::Devlink, Teller::Driver];
    if let Some(version) = shown.iter().find_map(|who| versions.get(who)) {
        return Fact::Known(version.clone());
    }
    let devlink = of_hardware(told.versions.as_ref(), devlink::firmware);
    match of_hardware(told.drvinfo.as_ref(), drvinfo::firmware) {
        Fact::Unknown(why) => Fact::unknown(match devlink {
            Fact::Unknown(other) if other != why => format!("{why}, nor does devlink ({other})"),
            _ => why,
        }),
        known @ Fact::Known(_) => known,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use drover_types::Interface;

    use super::*;

    #[test]
    fn a_team_is_a_bond_and_says_why_it_is_not_known_how_its_members_are_used() {
        let root = tempfile::tempdir().unwrap();
        for name in ["lower_ens1f0", "lower_ens1f1"] {
            fs::create_dir_all(root.path().join("sys/class/net/team0").join(name)).unwrap();
        }
        let told = ToldNic {
            interface: Interface {
                name: "team0".into(),
                addresses: Vec::new(),
                speed: None,
                mtu: 9000,
                up: true,
                loopback: false,
                tx_queues: 1,
                rx_queues: 1,
                rdma: None,
            },
            has_folder: true,
            enabled: true,
            team: true,
            qdisc: None,
            options: Some(Answered::Nothing("the kernel refuses to tell".into())),
            stands_on: None,
            fixed: BTreeSet::new(),
            ethtool: BTreeMap::new(),
            dcb: None,
            cee: None,
            drvinfo: None,
            versions: None,
            health: None,
            neighbours: None,
        };
        let team = nic(&Tree::at(root.path()), &told);
        assert_eq!(team.kind, Kind::Bond);
        assert_eq!(team.lower, ["ens1f0", "ens1f1"]);
        let members = team.bond.unwrap();
        let why = members.get().unwrap_err();
        assert_eq!(why, "it is a team, and the kernel refuses to tell");
    }
}
