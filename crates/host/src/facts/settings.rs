//! Settings of the kernel, and since when they may be in use.

use std::collections::BTreeMap;

use drover_tune::facts::Fact;

use super::tree::Tree;

/// Those that a rule asks about, by their names in sysctl.
const SETTINGS: [&str; 5] = [
    "kernel.numa_balancing",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_wmem",
];

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
