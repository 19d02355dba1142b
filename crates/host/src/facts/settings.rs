//! Settings of the kernel, and since when they may be in use.

use std::collections::BTreeMap;

use drover_tune::facts::{Fact, Softnet};

use super::tree::Tree;

/// Those that a rule asks about, or that are compared with what they were, by their names in sysctl.
const SETTINGS: [&str; 12] = [
    "kernel.numa_balancing",
    "kernel.osrelease",
    "net.core.default_qdisc",
    "net.core.netdev_budget",
    "net.core.netdev_budget_usecs",
    "net.core.netdev_max_backlog",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_wmem",
];

const SOFTNET: &str = "proc/net/softnet_stat";

pub(super) fn settings(tree: &Tree) -> BTreeMap<String, Fact<String>> {
    let read = |name: &str| {
        let path = format!("proc/sys/{}", name.replace('.', "/"));
        let words = match tree.text(&path) {
            // Numbers are apart by tabs.
            Ok(text) => Fact::Known(text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")),
            Err(why) => Fact::Unknown(why),
        };
        (name.to_owned(), words)
    };
    SETTINGS.map(read).into()
}

/// A line for each processor, in hexadecimal: taken in, dropped, left for later, and more that is not asked about.
pub(super) fn softnet(tree: &Tree) -> Fact<Softnet> {
    let text = match tree.text(SOFTNET) {
        Ok(text) => text,
        Err(why) => return Fact::Unknown(why),
    };
    let mut softnet = Softnet::default();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let mut next = || u64::from_str_radix(words.next()?, 16).ok();
        // What was taken in begins anew within hours, at 32 bits.
        let (Some(_), Some(dropped), Some(squeezed)) = (next(), next(), next()) else {
            return Fact::unknown(format!("{SOFTNET} has the line {line:?}"));
        };
        softnet.dropped = softnet.dropped.saturating_add(dropped);
        softnet.squeezed = softnet.squeezed.saturating_add(squeezed);
    }
    Fact::Known(softnet)
}

/// Such as `1234.56 2345.67`: since the start, and at rest.
pub(super) fn uptime(tree: &Tree) -> Fact<u64> {
    let text = match tree.text("proc/uptime") {
        Ok(text) => text,
        Err(why) => return Fact::Unknown(why),
    };
    match text
        .split_once('.')
        .and_then(|(seconds, _)| seconds.parse().ok())
    {
        Some(seconds) => Fact::Known(seconds),
        None => Fact::unknown(format!("/proc/uptime is {text:?}")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn packets_of_all_processors_are_added_up_and_what_is_no_number_is_not_known() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/net")).unwrap();
        let read = |text: &str| {
            fs::write(root.path().join(SOFTNET), text).unwrap();
            softnet(&Tree::at(root.path()))
        };
        let lines = "0000000a 00000001 00000002 00000000\n000000f0 00000000 00000010 00000000\n";
        let expected = Softnet {
            dropped: 1,
            squeezed: 18,
        };
        assert_eq!(read(lines), Fact::Known(expected));
        assert!(read("0000000a 00000001\n").known().is_none());
        assert!(read("a b z\n").known().is_none());
    }
}
