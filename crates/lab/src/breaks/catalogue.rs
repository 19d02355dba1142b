//! What can be wrong with hosts, in one table.

use anyhow::{Result, bail};

use super::answers::{Adapter, WHOLE};

/// Something that is wrong with a host, or between two.
#[derive(Debug)]
pub struct Break {
    /// Its name.
    pub name: &'static str,
    /// What is wrong.
    pub what: &'static str,
    /// The doctor's rule that finds it.
    pub rule: &'static str,
    /// Commands on hosts: `b: ip link set nic1 mtu 1500`.
    pub(super) commands: &'static [&'static str],
    /// What is written into what was captured of the second host.
    pub(super) written: &'static [Written],
}

/// What a namespace cannot have, as its host's files and kernel would tell it.
#[derive(Debug)]
pub(super) enum Written {
    /// The text of a file, by its path below `/`.
    File(&'static str, &'static str),
    /// What ethtool answers of the first NIC.
    Adapter(Adapter),
}

use Written::{Adapter as Told, File};

impl Break {
    /// It is written into what was captured of a host, and not done to the host.
    #[must_use]
    pub fn is_written(&self) -> bool {
        !self.written.is_empty()
    }
}

/// Done to hosts of a lab, by commands there.
const fn done(
    name: &'static str,
    what: &'static str,
    rule: &'static str,
    commands: &'static [&'static str],
) -> Break {
    Break {
        name,
        what,
        rule,
        commands,
        written: &[],
    }
}

/// Written into what was captured.
const fn written(
    name: &'static str,
    what: &'static str,
    rule: &'static str,
    written: &'static [Written],
) -> Break {
    Break {
        written,
        ..done(name, what, rule, &[])
    }
}

/// Written into what was captured after commands.
const fn upon(commands: &'static [&'static str], broken: Break) -> Break {
    Break { commands, ..broken }
}

/// All of them.
pub const CATALOGUE: &[Break] = &[
    done(
        "mtu-one-side",
        "one end of a network takes 1500 bytes, the other 9000",
        "pair-mtu",
        &["b: ip link set nic1 mtu 1500"],
    ),
    done(
        "same-address",
        "two hosts have the same address on a network",
        "pair-address",
        &[
            "b: ip address delete 10.77.1.2/24 dev nic1",
            "b: ip address add 10.77.1.1/24 dev nic1",
        ],
    ),
    done(
        "flaps",
        "a carrier came and went all the time",
        "link-flaps",
        // The rule allows ten changes, and one a day.
        &[
            "b: for turn in $(seq $((10 + $(cut -d. -f1 /proc/uptime) / 86400))); do \
             ip link set nic1 down; ip link set nic1 up; done",
        ],
    ),
    done(
        "window",
        "TCP's windows are not scaled",
        "tcp-window",
        &["b: sysctl -qw net.ipv4.tcp_window_scaling=0"],
    ),
    done(
        "timestamps",
        "TCP has no time stamps",
        "tcp-timestamps",
        &["b: sysctl -qw net.ipv4.tcp_timestamps=0"],
    ),
    done(
        "send-buffer",
        "a connection may have 256 KiB on its way, however fast its line is",
        "tcp-buffers",
        &["b: sysctl -qw net.ipv4.tcp_wmem='4096 16384 262144'"],
    ),
    done(
        "receive-buffer",
        "a connection may have 256 KiB arrive ahead of its reader, however fast its line is",
        "tcp-buffers",
        &["b: sysctl -qw net.ipv4.tcp_rmem='4096 131072 262144'"],
    ),
    written(
        "governor",
        "processors stay at their lowest rate",
        "cpu-governor",
        &[
            File(
                "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
                "powersave",
            ),
            File(
                "sys/devices/system/cpu/cpu5/cpufreq/scaling_governor",
                "powersave",
            ),
        ],
    ),
    written(
        "rate-capped",
        "the rate of a link of 25 Gbit/s was set to 1 by hand",
        "link-speed",
        &[Told(Adapter {
            speed: 1000,
            by_hand: true,
            ..WHOLE
        })],
    ),
    written(
        "slower-peer",
        "one host has an adapter of 10 Gbit/s, the other one of 25",
        "pair-speed",
        &[Told(Adapter {
            speed: 10_000,
            most: 10_000,
            ..WHOLE
        })],
    ),
    written(
        "half-duplex",
        "a link carries one way at a time",
        "link-duplex",
        &[Told(Adapter {
            half: true,
            ..WHOLE
        })],
    ),
    written(
        "slot",
        "an adapter of 25 Gbit/s has one lane of its slot",
        "pci-slot",
        &[File("sys/class/net/nic0/device/current_link_width", "1")],
    ),
    written(
        "queues",
        "an adapter of 25 Gbit/s has one queue",
        "nic-queues",
        &[Told(Adapter { queues: 1, ..WHOLE })],
    ),
    written(
        "interrupts",
        "processors of another node take the interrupts of an adapter",
        "nic-interrupts",
        &[
            File("proc/irq/60/smp_affinity_list", "4"),
            File("proc/irq/60/effective_affinity_list", "4"),
            File("proc/irq/61/smp_affinity_list", "5"),
            File("proc/irq/61/effective_affinity_list", "5"),
        ],
    ),
    written(
        "steering",
        "packets are handed on to other processors, as was once set for another adapter",
        "nic-steering",
        &[File("sys/class/net/nic0/queues/rx-0/rps_cpus", "ff")],
    ),
    written(
        "ring",
        "an adapter has 64 places for packets in each queue",
        "nic-ring",
        &[Told(Adapter { ring: 64, ..WHOLE })],
    ),
    written(
        "coalescing",
        "an adapter interrupts for each packet",
        "nic-coalescing",
        &[Told(Adapter {
            adaptive: false,
            ..WHOLE
        })],
    ),
    written(
        "offloads",
        "an adapter leaves checksums and joining of what arrives to the processors",
        "nic-offloads",
        &[Told(Adapter {
            off: &["rx-checksum", "rx-gro"],
            ..WHOLE
        })],
    ),
    upon(
        BRIDGE,
        written(
            "lro",
            "the adapter below a bridge joins packets that are to be forwarded",
            "nic-lro",
            &[Told(Adapter { lro: true, ..WHOLE })],
        ),
    ),
    upon(
        LARGE_BRIDGE,
        written(
            "bridge-mtu",
            "a bridge sends packets of 9000 bytes over an adapter that takes 1500",
            "mtu-layers",
            &[Told(WHOLE)],
        ),
    ),
    written(
        "damaged",
        "a cable damages one packet of a thousand",
        "link-errors",
        &[File("sys/class/net/nic0/statistics/rx_errors", "10000")],
    ),
    written(
        "firmware",
        "two adapters of one kind have different firmware",
        "pair-adapter",
        &[File("sys/class/infiniband/mlx5_0/fw_ver", "26.31.2006")],
    ),
];

const BRIDGE: &[&str] = &[
    "b: ip link add br0 type bridge",
    "b: ip link set nic0 master br0",
];

const LARGE_BRIDGE: &[&str] = &[
    BRIDGE[0],
    BRIDGE[1],
    "b: ip link set nic0 mtu 1500",
    "b: ip link set br0 mtu 9000 up",
];

/// Those of these names, in their order.
///
/// # Errors
/// A name that is none.
pub fn chosen(names: &[String]) -> Result<Vec<&'static Break>> {
    let find = |name: &String| {
        let found = CATALOGUE.iter().find(|broken| broken.name == name);
        found.map_or_else(|| refuse(name), Ok)
    };
    names.iter().map(find).collect()
}

fn refuse(name: &str) -> Result<&'static Break> {
    let names: Vec<_> = CATALOGUE.iter().map(|broken| broken.name).collect();
    bail!("nothing named {name:?} can be wrong: {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_has_a_name_of_its_own_and_is_done_in_one_way_or_written() {
        let names: BTreeSet<_> = CATALOGUE.iter().map(|broken| broken.name).collect();
        assert_eq!(names.len(), CATALOGUE.len());
        for broken in CATALOGUE {
            let name = broken.name;
            assert!(!broken.commands.is_empty() || broken.is_written(), "{name}");
            assert!(!broken.what.is_empty() && !broken.rule.is_empty(), "{name}");
        }
    }

    #[test]
    fn commands_say_on_which_host() {
        for broken in CATALOGUE {
            for command in broken.commands {
                let (host, _) = command.split_once(": ").unwrap();
                assert!(["a", "b"].contains(&host), "{command}");
            }
        }
    }

    #[test]
    fn a_name_that_is_none_is_refused_with_those_that_are() {
        let chosen = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            super::chosen(&names)
        };
        let two = chosen(&["slot", "window"]).unwrap();
        let names: Vec<_> = two.iter().map(|broken| broken.name).collect();
        assert_eq!(names, ["slot", "window"]);
        let refused = chosen(&["slo"]).unwrap_err().to_string();
        assert!(refused.contains("\"slo\"") && refused.contains("governor"));
    }
}
