//! What the folder of an interface in `/sys` tells.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use drover_tune::facts::{Bond, Counters, Interrupt, Pci, Slot, Steering};
use drover_types::CpuSet;

use super::tree::Tree;
use crate::limits::INTERRUPTS;

/// Names of the interfaces that one stands on, among the entries of its folder.
pub(super) fn lower(entries: &[String]) -> Vec<String> {
    let lower = entries
        .iter()
        .filter_map(|name| name.strip_prefix("lower_"));
    lower.map(str::to_owned).collect()
}

/// How the slot of that interface's adapter works now, of the host whose root directory is `root`; none where it has no slot of its own, or
/// none that limits it.
pub fn slot(root: &Path, nic: &str) -> Option<Slot> {
    let tree = &Tree::at(root);
    let path = format!("sys/class/net/{nic}");
    let pci = Folder { tree, path }.pci("");
    let told = pci.width.zip(pci.speed).filter(|_| !pci.limits_nothing());
    told.map(|(width, speed)| Slot { width, speed })
}

/// An interface's folder.
pub(super) struct Folder<'t> {
    pub(super) tree: &'t Tree,
    pub(super) path: String,
}

impl Folder<'_> {
    fn at(&self, path: &str) -> String {
        format!("{}/{path}", self.path)
    }

    pub(super) fn entries(&self, path: &str) -> Vec<String> {
        self.tree.entries(self.at(path).trim_end_matches('/'))
    }

    pub(super) fn number(&self, path: &str) -> Result<u64, String> {
        let path = self.at(path);
        let text = self.tree.text(&path)?;
        text.parse()
            .map_err(|_| format!("{path} is {text:?}, no number"))
    }

    /// `KEY=value` in each line.
    pub(super) fn lines(&self, path: &str) -> BTreeMap<String, String> {
        lines(self.tree, &self.at(path))
    }

    pub(super) fn steering(&self) -> Steering {
        let receive = self.tree.numbered(&self.at("queues"), "rx-");
        // Those of other classes have masks of their own, if any: -1 where there are none.
        let is_first = |(_, queue): &(u32, String)| {
            let class = self.at(&format!("queues/{queue}/traffic_class"));
            self.tree.parsed(&class).is_none_or(|class: i32| class < 1)
        };
        let mut send = self.tree.numbered(&self.at("queues"), "tx-");
        send.retain(is_first);
        Steering {
            receive: self.masks(&receive, "rps_cpus"),
            receive_queues: receive.len() as u32,
            send: self.masks(&send, "xps_cpus"),
            send_queues: send.len() as u32,
        }
    }

    /// The processors in that file of each of these queues.
    fn masks(&self, queues: &[(u32, String)], file: &str) -> BTreeMap<String, CpuSet> {
        let masks = queues.iter().filter_map(|(_, queue)| {
            let mask = self
                .tree
                .text(&self.at(&format!("queues/{queue}/{file}")))
                .ok()?;
            let cpus = of_mask(&mask).filter(|cpus| !cpus.is_empty())?;
            Some((queue.clone(), cpus))
        });
        masks.collect()
    }

    /// Its own, or those of the device that it stands on.
    pub(super) fn interrupts(
        &self,
        stands_on: Option<&str>,
        fixed: &BTreeSet<u32>,
    ) -> Result<Vec<Interrupt>, String> {
        let device = stands_on.map_or_else(|| self.at("device"), str::to_owned);
        interrupts(self.tree, &format!("{device}/msi_irqs"), fixed)
    }

    /// The slot of the device that it stands on. What that carries is not told: others may stand on it as well.
    pub(super) fn slot_below(&self, device: &str) -> Option<Pci> {
        let uevent = lines(self.tree, &format!("{device}/uevent"));
        Some(Pci {
            slot: uevent.get("PCI_SLOT_NAME")?.clone(),
            speed: None,
            speed_most: None,
            width: None,
            width_most: None,
            near: self.tree.parsed(&format!("{device}/local_cpulist")),
        })
    }

    pub(super) fn pci(&self, slot: &str) -> Pci {
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

    pub(super) fn bond(&self) -> Result<Bond, String> {
        // Such as "802.3ad 4": the word, and its number. Without one where the mode has no such thing.
        let word = |file: &str| {
            let text = self.tree.text(&self.at(&format!("bonding/{file}")))?;
            let word = text.split_ascii_whitespace().next();
            word.map(str::to_owned)
                .ok_or_else(|| format!("bonding/{file} is empty"))
        };
        let mut bond = Bond {
            mode: word("mode")?,
            hash: word("xmit_hash_policy").ok(),
            active: Vec::new(),
            carrying: word("active_slave").ok(),
            aggregator: word("ad_aggregator").ok().and_then(|id| id.parse().ok()),
            aggregators: BTreeMap::new(),
        };
        for member in lower(&self.entries("")) {
            let of = |file| format!("sys/class/net/{member}/bonding_slave/{file}");
            // "N/A" in other modes than 802.3ad.
            if let Some(id) = self.tree.parsed(&of("ad_aggregator_id")) {
                bond.aggregators.insert(member.clone(), id);
            }
            if self.tree.text(&of("mii_status"))? == "up" {
                bond.active.push(member);
            }
        }
        Ok(bond)
    }

    /// What it stands on, by the kernel's numbers.
    pub(super) fn members(&self) -> BTreeMap<u32, String> {
        let lower = lower(&self.entries("")).into_iter();
        let numbered = lower.filter_map(|name| {
            let index = self.tree.parsed(&format!("sys/class/net/{name}/ifindex"))?;
            Some((index, name))
        });
        numbered.collect()
    }

    pub(super) fn counters(&self) -> Result<Counters, String> {
        let number = |name: &str| self.number(&format!("statistics/{name}"));
        Ok(Counters {
            received: number("rx_packets")?,
            receive_errors: number("rx_errors")?,
            receive_missed: number("rx_missed_errors")?,
            sent: number("tx_packets").ok(),
            send_errors: number("tx_errors").ok(),
        })
    }
}

/// `KEY=value` in each line of a file.
fn lines(tree: &Tree, path: &str) -> BTreeMap<String, String> {
    let text = tree.text(path).unwrap_or_default();
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// The interrupts that a folder names (`msi_irqs` of a PCI device), which processors take them, and that nobody may move those of `fixed`.
///
/// # Errors
/// Why that is not told, to be read after "because".
pub(crate) fn interrupts(
    tree: &Tree,
    folder: &str,
    fixed: &BTreeSet<u32>,
) -> Result<Vec<Interrupt>, String> {
    let all = tree.numbered(folder, "");
    if all.is_empty() {
        return Err("its device tells of no interrupts".to_owned());
    }
    let of = |(number, _): &(u32, String)| {
        let path = format!("proc/irq/{number}/smp_affinity_list");
        let list = tree.text(&path)?;
        let cpus = list
            .parse()
            .map_err(|_| format!("{path} is {list:?}, no list of CPUs"))?;
        let effective = format!("proc/irq/{number}/effective_affinity_list");
        Ok(Interrupt {
            number: *number,
            cpus,
            // Not every kernel has it, and of an interrupt that is not in use it is empty.
            effective: tree.parsed(&effective).unwrap_or_default(),
            fixed: fixed.contains(number),
        })
    };
    all.iter().take(INTERRUPTS).map(of).collect()
}

/// The kernel's way to write a set: words of 32 CPUs in hexadecimal digits, the last ones first.
pub(super) fn of_mask(mask: &str) -> Option<CpuSet> {
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
    use std::fs;

    use super::*;
    use crate::interrupts::parent_with_interrupts;

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn masks_of_processors_are_read_word_by_word_from_the_end() {
        let read = |mask: &str| of_mask(mask).map(|cpus| cpus.to_string());
        assert_eq!(read("f"), Some("0-3".to_owned()));
        assert_eq!(read("00000001,00000002"), Some("1,32".to_owned()));
        assert_eq!(read("0"), Some(String::new()));
        assert_eq!(read("g"), None);
    }

    #[test]
    fn a_slot_is_told_as_it_works_now_where_it_is_one_that_limits() {
        let root = tempfile::tempdir().unwrap();
        let of = |nic: &str, now: (&str, &str), most: (&str, &str)| {
            let files = [
                ("current_link_speed", now.0),
                ("current_link_width", now.1),
                ("max_link_speed", most.0),
                ("max_link_width", most.1),
            ];
            for (file, text) in files {
                let file = format!("sys/class/net/{nic}/device/{file}");
                write(root.path(), &[(&file, text)]);
            }
            slot(root.path(), nic)
        };
        let (least, most) = ("2.5 GT/s PCIe", "8.0 GT/s PCIe");
        let speed = 2500;
        let rests = of("nic0", (least, "4"), (most, "8"));
        assert_eq!(rests, Some(Slot { width: 4, speed }));
        assert_eq!(of("nic1", (least, "1"), (least, "1")), None);
        assert_eq!(slot(root.path(), "nic2"), None);
    }

    #[test]
    fn processors_that_are_handed_packets_and_that_send_by_a_queue_alone_are_told() {
        let root = tempfile::tempdir().unwrap();
        write(
            root.path(),
            &[
                ("sys/class/net/nic0/queues/rx-0/rps_cpus", "00\n"),
                ("sys/class/net/nic0/queues/rx-1/rps_cpus", "0f\n"),
                ("sys/class/net/nic0/queues/tx-0/xps_cpus", "01\n"),
                ("sys/class/net/nic0/queues/tx-0/traffic_class", "-1\n"),
                // As of an interface with one queue, of which the kernel tells none.
                ("sys/class/net/nic0/queues/tx-1/timeout", "0\n"),
                ("sys/class/net/nic0/queues/tx-2/traffic_class", "1\n"),
            ],
        );
        let tree = Tree::at(root.path());
        let path = "sys/class/net/nic0".to_owned();
        let read = Folder { tree: &tree, path }.steering();
        let one = |queue: &str, cpus: &str| -> BTreeMap<String, CpuSet> {
            [(queue.to_owned(), cpus.parse().unwrap())].into()
        };
        let expected = Steering {
            receive: one("rx-1", "0-3"),
            receive_queues: 2,
            send: one("tx-0", "0"),
            send_queues: 2,
        };
        assert_eq!(read, expected);
    }

    #[test]
    fn members_of_a_bond_are_told_with_their_groups_and_the_one_that_carries() {
        let root = tempfile::tempdir().unwrap();
        let tree = Tree::at(root.path());
        let bond = || {
            let path = "sys/class/net/bond0".to_owned();
            Folder { tree: &tree, path }.bond()
        };
        let of = |mode: &str, hash: &str, active: &str, group: &str, groups: [&str; 2]| {
            let net = "sys/class/net";
            let member = |nic: &str, file: &str| format!("{net}/{nic}/bonding_slave/{file}");
            let own = |file: &str| format!("{net}/bond0/bonding/{file}");
            let files = [
                (own("mode"), mode),
                (own("xmit_hash_policy"), hash),
                (own("active_slave"), active),
                (own("ad_aggregator"), group),
                (format!("{net}/bond0/lower_nic0"), ""),
                (format!("{net}/bond0/lower_nic1"), ""),
                (member("nic0", "mii_status"), "up\n"),
                (member("nic0", "ad_aggregator_id"), groups[0]),
                (member("nic1", "mii_status"), "up\n"),
                (member("nic1", "ad_aggregator_id"), groups[1]),
            ];
            let files: Vec<(&str, &str)> = files
                .iter()
                .map(|(path, text)| (path.as_str(), *text))
                .collect();
            write(root.path(), &files);
        };
        // As the kernel writes them.
        of("802.3ad 4\n", "layer3+4 1\n", "", "1\n", ["1\n", "2\n"]);
        let both = vec!["nic0".to_owned(), "nic1".to_owned()];
        let expected = Bond {
            mode: "802.3ad".to_owned(),
            hash: Some("layer3+4".to_owned()),
            active: both.clone(),
            carrying: None,
            aggregator: Some(1),
            aggregators: [("nic0".to_owned(), 1), ("nic1".to_owned(), 2)].into(),
        };
        assert_eq!(bond().unwrap(), expected);
        of("active-backup 1\n", "", "nic1\n", "", ["N/A\n", "N/A\n"]);
        let expected = Bond {
            mode: "active-backup".to_owned(),
            hash: None,
            active: both,
            carrying: Some("nic1".to_owned()),
            aggregator: None,
            aggregators: BTreeMap::new(),
        };
        assert_eq!(bond().unwrap(), expected);
    }

    #[test]
    fn interrupts_are_told_with_where_they_may_be_taken_and_where_they_are() {
        let root = tempfile::tempdir().unwrap();
        write(
            root.path(),
            &[
                ("sys/class/net/nic0/device/msi_irqs/60", "msix\n"),
                ("sys/class/net/nic0/device/msi_irqs/61", "msix\n"),
                ("sys/class/net/nic0/device/msi_irqs/62", "msix\n"),
                ("proc/irq/60/smp_affinity_list", "0-7\n"),
                ("proc/irq/60/effective_affinity_list", "5\n"),
                ("proc/irq/61/smp_affinity_list", "0-3\n"),
                ("proc/irq/61/effective_affinity_list", "\n"),
                ("proc/irq/62/smp_affinity_list", "1\n"),
            ],
        );
        let tree = Tree::at(root.path());
        let path = "sys/class/net/nic0".to_owned();
        let folder = Folder { tree: &tree, path };
        let read = folder.interrupts(None, &[61].into()).unwrap();
        let told = read.iter().map(|one| {
            let taken = one.taken_by().to_string();
            (one.number, one.cpus.to_string(), taken, one.fixed)
        });
        let expected = [
            (60, "0-7", "5", false),
            (61, "0-3", "0-3", true),
            (62, "1", "1", false),
        ];
        let expected =
            expected.map(|(irq, may, is, fixed)| (irq, may.to_owned(), is.to_owned(), fixed));
        assert_eq!(told.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn interrupts_of_what_has_none_of_its_own_are_those_of_its_parent() {
        let root = tempfile::tempdir().unwrap();
        let slot = "sys/devices/pci0000:00/0000:00:03.0";
        let files = [
            (format!("{slot}/class"), "0x020000\n"),
            (format!("{slot}/uevent"), "PCI_SLOT_NAME=0000:00:03.0\n"),
            (format!("{slot}/local_cpulist"), "0-3\n"),
            (format!("{slot}/msi_irqs/24"), "msix\n"),
            (format!("{slot}/virtio0/uevent"), "DRIVER=virtio_net\n"),
            ("proc/irq/24/smp_affinity_list".to_owned(), "5\n"),
        ];
        let files: Vec<(&str, &str)> = files
            .iter()
            .map(|(path, text)| (path.as_str(), *text))
            .collect();
        write(root.path(), &files);
        let nic = root.path().join("sys/class/net/nic0");
        fs::create_dir_all(&nic).unwrap();
        let device = nic.join("device");
        std::os::unix::fs::symlink(root.path().join(slot).join("virtio0"), &device).unwrap();
        let parent = |device: &Path| parent_with_interrupts(root.path(), device);
        let found = parent(&device).unwrap();
        assert_eq!(found, slot);
        // One that has its own stands on nothing else.
        assert_eq!(parent(&root.path().join(slot)), None);
        let tree = Tree::at(root.path());
        let path = "sys/class/net/nic0".to_owned();
        let folder = Folder { tree: &tree, path };
        let none = BTreeSet::new();
        assert!(folder.interrupts(None, &none).is_err());
        let read = folder.interrupts(Some(&found), &none).unwrap();
        assert_eq!((read.len(), read[0].number), (1, 24));
        let pci = folder.slot_below(&found).unwrap();
        assert_eq!(pci.slot, "0000:00:03.0");
        assert_eq!(pci.near.unwrap().to_string(), "0-3");
        assert_eq!((pci.speed, pci.width), (None, None));
    }
}
