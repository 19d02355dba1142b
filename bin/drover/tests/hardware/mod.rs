//! Captured hosts of several kinds of hardware, **made from documentation, not captured of machines**: the kernel's and its drivers', and
//! SFF's and IEEE's tables. They show how rules read what such hosts would tell; that a real one tells it so, they do not show.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "helpers of tests, not all used by each of them"
)]

pub mod broadcom;
pub mod cards;
pub mod fabric;
pub mod infiniband;
pub mod intel;
pub mod netlink;
pub mod sockets;

use std::fs;
use std::path::{Path, PathBuf};

use drover_lab::breaks::bare_server;
use serde_json::{Value, json};

/// A folder as `drover doctor capture` writes one.
pub struct Machine {
    folder: PathBuf,
    name: String,
    nics: Vec<Value>,
}

impl Machine {
    /// Two sockets of four cores; nothing is wrong with it.
    pub fn new(below: &Path, name: &str) -> Self {
        let machine = Self {
            folder: below.join(name),
            name: name.to_owned(),
            nics: Vec::new(),
        };
        for (path, text) in bare_server() {
            machine.write(&path, &text);
        }
        machine.write("proc/sys/kernel/osrelease", netlink::KERNEL);
        for setting in ["tcp_timestamps", "tcp_window_scaling"] {
            machine.write(&format!("proc/sys/net/ipv4/{setting}"), "1");
        }
        machine
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Puts a card in.
    pub fn with(mut self, card: &cards::Card) -> Self {
        let nic = format!("sys/class/net/{}", card.name);
        let file = |file: &str, text: &str| self.write(&format!("{nic}/{file}"), text);
        file("uevent", "INTERFACE=x\nIFINDEX=4\n");
        file("carrier_changes", "2\n");
        let slot = &card.slot;
        let uevent = format!(
            "DRIVER={}\nPCI_ID={}\nPCI_SLOT_NAME={}\n",
            card.driver, card.model, slot.address
        );
        file("device/uevent", &uevent);
        for end in ["current", "max"] {
            file(&format!("device/{end}_link_speed"), slot.speed);
            file(&format!("device/{end}_link_width"), slot.lanes);
        }
        file("device/numa_node", &slot.node.to_string());
        file("device/local_cpulist", slot.near);
        for (queue, (may, is)) in card.interrupts.iter().enumerate() {
            let irq = 60 + 100 * self.nics.len() + queue;
            file(&format!("device/msi_irqs/{irq}"), "msix\n");
            file(&format!("queues/rx-{queue}/rps_cpus"), "00\n");
            let affinity = format!("proc/irq/{irq}/smp_affinity_list");
            self.write(&affinity, may);
            let taken = format!("proc/irq/{irq}/effective_affinity_list");
            self.write(&taken, &is.to_string());
        }
        for counter in ["rx_packets", "rx_errors", "rx_missed_errors"] {
            file(&format!("statistics/{counter}"), "0\n");
        }
        for (path, text) in &card.files {
            self.write(path, text);
        }
        let ethtool: serde_json::Map<String, Value> = card
            .ethtool
            .iter()
            .map(|(question, answer)| ((*question).to_owned(), answer.clone()))
            .collect();
        self.nics.push(json!({
            "interface": {
                "name": card.name, "addresses": [card.address], "speed": null, "mtu": card.mtu,
                "up": card.carrier, "loopback": false, "tx_queues": 8, "rx_queues": 8, "rdma": card.rdma,
            },
            "has_folder": true,
            "enabled": true,
            "qdisc": "mq",
            "ethtool": ethtool,
            "dcb": card.dcb,
            "cee": card.cee,
            "drvinfo": card.drvinfo,
            "versions": card.versions,
            "health": card.health,
            "neighbours": card.neighbours,
        }));
        self
    }

    /// Its folder, when all is in it.
    pub fn done(self) -> PathBuf {
        let told = json!({
            "host": self.name, "nics": self.nics, "irqbalance": false, "lldpad": false,
        });
        self.write("told.json", &told.to_string());
        self.folder
    }
}
