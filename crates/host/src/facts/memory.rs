//! Memory: pages that are huge, or are joined to such.

use std::collections::BTreeMap;

use drover_tune::facts::{Fact, HugePages, Memory};

use super::tree::Tree;

const JOINED: &str = "sys/kernel/mm/transparent_hugepage";
const HUGE: &str = "sys/kernel/mm/hugepages";

pub(super) fn memory(tree: &Tree) -> Memory {
    Memory {
        joins: chosen(tree, &format!("{JOINED}/enabled")),
        joins_shared: chosen(tree, &format!("{JOINED}/shmem_enabled")),
        huge: huge(tree),
    }
}

/// The word in brackets: `always [madvise] never`.
fn chosen(tree: &Tree, path: &str) -> Fact<String> {
    let text = match tree.text(path) {
        Ok(text) => text,
        Err(why) => return Fact::Unknown(why),
    };
    let word = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    match word {
        Some((word, _)) => Fact::Known(word.to_owned()),
        None => Fact::unknown(format!("{path} is {text:?}")),
    }
}

/// Folders such as `hugepages-2048kB`.
fn huge(tree: &Tree) -> Fact<BTreeMap<u64, HugePages>> {
    let names = tree.entries(HUGE);
    if names.is_empty() {
        return Fact::unknown("the kernel tells of no huge pages");
    }
    let mut huge = BTreeMap::new();
    for name in names {
        let kib = name
            .strip_prefix("hugepages-")
            .and_then(|rest| rest.strip_suffix("kB"));
        let Some(kib) = kib.and_then(|kib| kib.parse::<u64>().ok()) else {
            continue;
        };
        let number = |what: &str| {
            let path = format!("{HUGE}/{name}/{what}");
            tree.parsed(&path)
                .ok_or_else(|| format!("{path} has no number"))
        };
        let read = |total, free, reserved| HugePages {
            total,
            free,
            reserved,
        };
        let numbers = (
            number("nr_hugepages"),
            number("free_hugepages"),
            number("resv_hugepages"),
        );
        match numbers {
            (Ok(total), Ok(free), Ok(reserved)) => {
                huge.insert(kib.saturating_mul(1024), read(total, free, reserved));
            }
            (Err(why), ..) | (_, Err(why), _) | (.., Err(why)) => return Fact::Unknown(why),
        }
    }
    Fact::Known(huge)
}
