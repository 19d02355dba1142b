//! What may be set at all, wherever a step comes from.

use crate::change::{Disruption, NicSetting, Step};

/// The smallest largest packet that is set, in bytes: below it the kernel takes an interface's IPv6 addresses away (RFC 8200, 5).
pub const MTU_LEAST: u32 = 1280;

/// Bytes of an interface's name, at most (`IFNAMSIZ`, with its zero).
const NAME_BYTES: usize = 15;

/// The features that rules turn on or off.
const FEATURES: [&str; 3] = ["rx-checksum", "rx-gro", "rx-lro"];

/// Whether it sets something that a rule sets: steps are read from files too, and nothing else is ever written. There is one way to
/// name each setting, so that what is the same looks the same.
#[must_use]
pub fn settable(step: &Step) -> bool {
    match step {
        Step::File { path, .. } => match path.split('/').collect::<Vec<_>>()[..] {
            [
                "proc",
                "sys",
                "net",
                "ipv4",
                "tcp_congestion_control"
                | "tcp_rmem"
                | "tcp_wmem"
                | "tcp_timestamps"
                | "tcp_window_scaling",
            ]
            | [
                "proc",
                "sys",
                "net",
                "core",
                "netdev_budget" | "netdev_budget_usecs" | "netdev_max_backlog",
            ] => true,
            ["proc", "irq", irq, "smp_affinity_list"] => is_number(irq),
            ["sys", "class", "net", nic, "queues", queue, "rps_cpus"] => {
                is_nic(nic) && queue.strip_prefix("rx-").is_some_and(is_number)
            }
            [
                "sys",
                "devices",
                "system",
                "cpu",
                "cpufreq",
                policy,
                "scaling_governor" | "energy_performance_preference",
            ] => policy.strip_prefix("policy").is_some_and(is_number),
            ["sys", "class", "net", nic, "queues", queue, "xps_cpus"] => {
                is_nic(nic) && queue.strip_prefix("tx-").is_some_and(is_number)
            }
            _ => false,
        },
        Step::Nic { nic, what, .. } => match what {
            NicSetting::Feature(name) => is_nic(nic) && FEATURES.contains(&name.as_str()),
            _ => is_nic(nic),
        },
    }
}

/// What it does to those who use the host meanwhile, at the least.
#[must_use]
pub fn disruption(step: &Step) -> Disruption {
    match step {
        Step::File { .. }
        | Step::Nic {
            what: NicSetting::AdaptiveReceive,
            ..
        } => Disruption::Safe,
        // The kernel's own; of others an adapter may start anew, as ixgbe does for LRO and e1000 for checksums.
        Step::Nic {
            what: NicSetting::Feature(name),
            ..
        } if name == "rx-gro" => Disruption::Safe,
        Step::Nic {
            what:
                NicSetting::Mtu
                | NicSetting::Negotiation
                | NicSetting::Fec
                | NicSetting::Pause
                | NicSetting::CombinedChannels
                | NicSetting::ReceiveRing
                | NicSetting::Feature(_),
            ..
        } => Disruption::BouncesLink,
    }
}

/// A number as the kernel writes it.
fn is_number(text: &str) -> bool {
    let digits = !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    digits && (text == "0" || !text.starts_with('0'))
}

/// A name that the kernel gives to interfaces.
fn is_nic(name: &str) -> bool {
    let strange = |letter: char| letter == '/' || letter.is_whitespace() || letter.is_control();
    let long = name.is_empty() || name.len() > NAME_BYTES;
    !long && !matches!(name, "." | "..") && !name.contains(strange)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> bool {
        settable(&Step::File {
            path: path.to_owned(),
            from: String::new(),
            to: String::new(),
        })
    }

    fn nic(nic: &str, what: NicSetting) -> bool {
        settable(&Step::Nic {
            nic: nic.to_owned(),
            what,
            from: String::new(),
            to: String::new(),
        })
    }

    #[test]
    fn a_setting_has_one_name_and_others_cannot_be_set() {
        for path in [
            "proc/sys/net/ipv4/tcp_rmem",
            "proc/sys/net/ipv4/tcp_congestion_control",
            "proc/sys/net/core/netdev_budget",
            "proc/irq/0/smp_affinity_list",
            "proc/irq/120/smp_affinity_list",
            "sys/class/net/ens1f0.7/queues/rx-12/rps_cpus",
            "sys/class/net/ens1f0/queues/tx-0/xps_cpus",
            "sys/devices/system/cpu/cpufreq/policy12/scaling_governor",
            "sys/devices/system/cpu/cpufreq/policy0/energy_performance_preference",
        ] {
            assert!(file(path), "{path}");
        }
        for path in [
            "",
            "/proc/sys/net/ipv4/tcp_rmem",
            "proc/sys/net//ipv4/tcp_rmem",
            "proc/sys/net/ipv4/./tcp_rmem",
            "proc/sys/net/ipv4/tcp_rmem/",
            "proc/sys/kernel/core_pattern",
            "proc/sys/net/core/rmem_max",
            "proc/irq/007/smp_affinity_list",
            "proc/irq//smp_affinity_list",
            "proc/irq/+1/smp_affinity_list",
            "proc/irq/1/smp_affinity",
            "sys/class/net/../queues/rx-0/rps_cpus",
            "sys/class/net/a/queues/tx-0/rps_cpus",
            "sys/class/net/a/queues/rx-0/xps_cpus",
            "sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq",
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
            "sys/devices/system/cpu/cpufreq/../cpufreq/scaling_governor",
            "sys/devices/pci0000:00/net/a/queues/rx-0/rps_cpus",
        ] {
            assert!(!file(path), "{path}");
        }
    }

    #[test]
    fn a_setting_of_an_interface_is_of_one_that_there_can_be() {
        assert!(nic("ens1f0", NicSetting::Mtu));
        assert!(nic("ens1f0", NicSetting::Feature("rx-lro".into())));
        assert!(!nic("ens1f0", NicSetting::Feature("rx-all".into())));
        for strange in ["", ".", "..", "a b", "a/b", "a\u{1b}", "0123456789abcdef"] {
            assert!(!nic(strange, NicSetting::Mtu), "{strange:?}");
        }
    }
}
