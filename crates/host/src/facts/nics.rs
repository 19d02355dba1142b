//! Network interfaces.

use std::collections::BTreeMap;

use drover_tune::facts::{Bond, Counters, Fact, Interrupt, Kind, Nic, Pci, Steering};
use drover_types::CpuSet;

use super::Told;
use super::told::{Answered, ToldNic};
use super::tree::Tree;
use crate::ethtool::{self, Question};
use crate::limits::INTERRUPTS;

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
    let kind = kind(&entries, &own);
    Nic {
        name: interface.name.clone(),
        kind,
        up: told.enabled,
        carrier: interface.up,
        addresses: interface.addresses.clone(),
        mtu: interface.mtu,
        lower: lower(&entries),
        driver: of_device("DRIVER"),
        firmware: firmware(tree, interface.rdma.as_deref()),
        model: of_device("PCI_ID"),
        link: told_of(told, Question::Linkmodes, |answer| {
            Ok(ethtool::link(answer))
        }),
        fec: told_of(told, Question::Fec, |answer| Ok(ethtool::fec(answer))),
        channels: told_of(told, Question::Channels, |answer| {
            Ok(ethtool::channels(answer))
        }),
        rings: told_of(told, Question::Rings, ethtool::rings),
        features: told_of(told, Question::Features, |answer| {
            Ok(ethtool::features(answer))
        }),
        coalescing: told_of(told, Question::Coalesce, |answer| {
            Ok(ethtool::coalescing(answer))
        }),
        interrupts: of_folder(folder, |folder| folder.interrupts()),
        carrier_changes: of_folder(folder, |folder| folder.number("carrier_changes")),
        steering: of_folder(folder, |folder| Ok(folder.steering())),
        pci: match (folder, device.get("PCI_SLOT_NAME")) {
            (Some(folder), Some(slot)) => Fact::Known(folder.pci(slot)),
            (Some(_), None) => Fact::unknown("it is on no PCI bus"),
            (None, _) => Fact::unknown(NO_FOLDER),
        },
        bond: folder.filter(|_| kind == Kind::Bond).map(Folder::bond),
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
        None => Fact::unknown("it has neither hardware nor an address"),
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

fn lower(entries: &[String]) -> Vec<String> {
    let lower = entries
        .iter()
        .filter_map(|name| name.strip_prefix("lower_"));
    lower.map(str::to_owned).collect()
}

/// The adapter's, as its RDMA device tells it.
fn firmware(tree: &Tree, rdma: Option<&str>) -> Fact<String> {
    match rdma {
        Some(device) => tree.fact(&format!("sys/class/infiniband/{device}/fw_ver")),
        None => Fact::unknown(
            "its driver tells it by an old way only (ETHTOOL_GDRVINFO), which is not asked",
        ),
    }
}

/// An interface's folder.
struct Folder<'t> {
    tree: &'t Tree,
    path: String,
}

impl Folder<'_> {
    fn at(&self, path: &str) -> String {
        format!("{}/{path}", self.path)
    }

    fn entries(&self, path: &str) -> Vec<String> {
        self.tree.entries(self.at(path).trim_end_matches('/'))
    }

    fn number(&self, path: &str) -> Result<u64, String> {
        let path = self.at(path);
        let text = self.tree.text(&path)?;
        text.parse()
            .map_err(|_| format!("{path} is {text:?}, no number"))
    }

    /// `KEY=value` in each line.
    fn lines(&self, path: &str) -> BTreeMap<String, String> {
        let text = self.tree.text(&self.at(path)).unwrap_or_default();
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        pairs
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }

    fn steering(&self) -> Steering {
        let all = self.tree.numbered(&self.at("queues"), "rx-");
        let handed = all.iter().filter_map(|(_, queue)| {
            let mask = self
                .tree
                .text(&self.at(&format!("queues/{queue}/rps_cpus")))
                .ok()?;
            let cpus = of_mask(&mask).filter(|cpus| !cpus.is_empty())?;
            Some((queue.clone(), cpus))
        });
        Steering {
            receive: handed.collect(),
            receive_queues: all.len() as u32,
        }
    }

    fn interrupts(&self) -> Result<Vec<Interrupt>, String> {
        let all = self.tree.numbered(&self.at("device/msi_irqs"), "");
        if all.is_empty() {
            return Err("its device tells of no interrupts".to_owned());
        }
        let of = |(number, _): &(u32, String)| {
            let path = format!("proc/irq/{number}/smp_affinity_list");
            let list = self.tree.text(&path)?;
            let cpus = list
                .parse()
                .map_err(|_| format!("{path} is {list:?}, no list of CPUs"))?;
            Ok(Interrupt {
                number: *number,
                cpus,
            })
        };
        all.iter().take(INTERRUPTS).map(of).collect()
    }

    fn pci(&self, slot: &str) -> Pci {
        let text = |file: &str| self.tree.text(&self.at(&format!("device/{file}"))).ok();
        // Such as "16.0 GT/s PCIe" and "8".
        let speed = |file: &str| {
            let transfers: f64 = text(file)?.split_once(" GT/s")?.0.parse().ok()?;
            Some((transfers * 1000.0) as u32)
        };
        let width = |file: &str| text(file)?.parse().ok().filter(|lanes| *lanes > 0);
        Pci {
            slot: slot.to_owned(),
            speed: speed("current_link_speed"),
            speed_most: speed("max_link_speed"),
            width: width("current_link_width"),
            width_most: width("max_link_width"),
            near: text("local_cpulist").and_then(|list| list.parse().ok()),
        }
    }

    fn bond(&self) -> Fact<Bond> {
        // Such as "802.3ad 4": the word, and its number.
        let word = |file: &str| {
            let text = self.tree.text(&self.at(&format!("bonding/{file}")))?;
            let word = text.split_ascii_whitespace().next();
            word.map(str::to_owned)
                .ok_or_else(|| format!("bonding/{file} is empty"))
        };
        let mode = match word("mode") {
            Ok(mode) => mode,
            Err(why) => return Fact::Unknown(why),
        };
        let mut active = Vec::new();
        for member in lower(&self.entries("")) {
            let path = format!("sys/class/net/{member}/bonding_slave/mii_status");
            match self.tree.text(&path) {
                Ok(status) if status == "up" => active.push(member),
                Ok(_) => {}
                Err(why) => return Fact::Unknown(why),
            }
        }
        Fact::Known(Bond {
            mode,
            hash: word("xmit_hash_policy").ok(),
            active,
        })
    }

    fn counters(&self) -> Result<Counters, String> {
        let number = |name: &str| self.number(&format!("statistics/{name}"));
        Ok(Counters {
            received: number("rx_packets")?,
            receive_errors: number("rx_errors")?,
            receive_missed: number("rx_missed_errors")?,
        })
    }
}

/// The kernel's way to write a set: words of 32 CPUs in hexadecimal digits, the last ones first.
fn of_mask(mask: &str) -> Option<CpuSet> {
    let mut cpus = Vec::new();
    for (word, digits) in (0..).zip(mask.split(',').rev()) {
        let bits = u32::from_str_radix(digits.trim(), 16).ok()?;
        let set = (0..32).filter(|bit| bits & (1 << bit) != 0);
        cpus.extend(
            set.map(|bit| word * 32 + bit)
                .map(|cpu: u32| cpu.to_string()),
        );
    }
    cpus.join(",").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_of_processors_are_read_word_by_word_from_the_end() {
        let read = |mask: &str| of_mask(mask).map(|cpus| cpus.to_string());
        assert_eq!(read("f"), Some("0-3".to_owned()));
        assert_eq!(read("00000001,00000002"), Some("1,32".to_owned()));
        assert_eq!(read("0"), Some(String::new()));
        assert_eq!(read("g"), None);
    }
}
