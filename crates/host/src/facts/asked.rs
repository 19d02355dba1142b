//! What is asked of the kernel about each interface.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use drover_types::IpNetwork;

use super::told::{Answered, ToldNic};
use crate::devlink::Devlink;
use crate::ethtool::{Ethtool, Question};
use crate::files::optional;
use crate::interfaces::Listed;
use crate::interrupts::{fixed, parent_with_interrupts};
use crate::netlink::Netlink;
use crate::{dcb, drvinfo, lldp, team};

/// Sockets to the parts of the kernel that tell; none where it does not have one.
pub(super) struct Asked {
    root: PathBuf,
    ethtool: Option<Ethtool>,
    dcb: Option<Netlink>,
    devlink: Option<Devlink>,
}

impl Asked {
    pub(super) fn open(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            ethtool: Ethtool::open(),
            dcb: dcb::open(),
            devlink: Devlink::open(),
        }
    }

    /// All of one interface.
    pub(super) fn of(&mut self, listed: Listed) -> ToldNic {
        let mut told = ToldNic {
            ethtool: BTreeMap::new(),
            dcb: None,
            cee: None,
            drvinfo: None,
            versions: None,
            health: None,
            neighbours: None,
            options: None,
            has_folder: listed.has_folder,
            stands_on: None,
            fixed: BTreeSet::new(),
            enabled: listed.enabled,
            team: listed.team,
            qdisc: listed.qdisc,
            interface: listed.interface,
        };
        // Of guests' ends, which have no hardware and at most the address that every link has by itself, there may be thousands, and nobody asks about them.
        let addresses = &told.interface.addresses;
        if listed.has_device || !addresses.iter().all(IpNetwork::is_link_local) {
            told.ethtool = self.ethtool(listed.index);
        }
        if listed.has_device {
            self.hardware(listed.index, &mut told);
        }
        // The kernel has what tells it, then: to ask a host without teams would load it.
        if told.team {
            told.options = Some(team::ask(listed.index).into());
        }
        told
    }

    fn ethtool(&mut self, index: u32) -> BTreeMap<Question, Answered> {
        let Some(ethtool) = &mut self.ethtool else {
            let none = || nothing("the kernel has no ethtool netlink");
            return Question::ALL.map(|question| (question, none())).into();
        };
        let answers = ethtool.ask_all(index).into_iter();
        answers
            .map(|(question, answer)| (question, answer.into()))
            .collect()
    }

    /// What only hardware has.
    fn hardware(&mut self, index: u32, told: &mut ToldNic) {
        let nic = &told.interface.name;
        (told.dcb, told.cee) = match &mut self.dcb {
            Some(netlink) => (
                Some(dcb::ask(netlink, nic).into()),
                Some(dcb::ask_cee(netlink, nic).into()),
            ),
            None => both(&nothing("the kernel gives no socket")),
        };
        told.drvinfo = Some(drvinfo::ask(nic).into());
        told.neighbours = Some(lldp::kept(&self.root, index).into());
        if told.has_folder {
            let device = self.root.join(format!("sys/class/net/{nic}/device"));
            told.stands_on = parent_with_interrupts(&self.root, &device);
            let has_them = told.stands_on.as_ref();
            let has_them = has_them.map_or(device, |parent| self.root.join(parent));
            told.fixed = fixed(&self.root, &has_them);
        }
        let slot = told.has_folder.then(|| slot(&self.root, nic)).flatten();
        (told.versions, told.health) = match (&mut self.devlink, slot) {
            (Some(devlink), Some(slot)) => (
                Some(devlink.versions(&slot).into()),
                Some(devlink.health(&slot).into()),
            ),
            (None, _) => both(&nothing("the kernel has no devlink")),
            (Some(_), None) => both(&nothing("it is on no PCI bus that is told")),
        };
    }
}

fn nothing(why: &str) -> Answered {
    Answered::Nothing(why.to_owned())
}

fn both(answered: &Answered) -> (Option<Answered>, Option<Answered>) {
    (Some(answered.clone()), Some(answered.clone()))
}

/// The PCI slot of an interface's device.
fn slot(root: &Path, nic: &str) -> Option<String> {
    let uevent = optional(&root.join(format!("sys/class/net/{nic}/device/uevent")))?;
    let slot = uevent
        .lines()
        .find_map(|line| line.strip_prefix("PCI_SLOT_NAME="))?;
    Some(slot.to_owned())
}
