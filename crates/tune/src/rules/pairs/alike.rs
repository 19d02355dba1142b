//! What carries for both ends of a network, and whether it is alike.

use std::collections::BTreeSet;

use super::{OfTwo, each};
use crate::facts::{Fact, Host, Kind, Layers, Nic};
use crate::finding::{Answer, Because, Found, Severity};

/// A fact of an adapter, in a word.
type Word = fn(&Nic) -> &Fact<String>;

/// What is to be the same.
const WORDS: [(&str, Word); 3] = [
    ("adapter", |nic| &nic.model),
    ("driver", |nic| &nic.driver),
    ("firmware", |nic| &nic.firmware),
];

/// The adapters that carry for an interface: itself, or those below a bond, a bridge or a VLAN. The interface where there are none.
fn adapters<'h>(host: &'h Host, nic: &'h Nic) -> Vec<&'h Nic> {
    if nic.kind == Kind::Adapter {
        return vec![nic];
    }
    let below = Layers::of(host).all_carriers(nic).into_iter();
    let below = below.filter_map(|name| host.nic(name));
    let adapters: Vec<&Nic> = below.filter(|nic| nic.kind == Kind::Adapter).collect();
    if adapters.is_empty() {
        vec![nic]
    } else {
        adapters
    }
}

/// The words of all of them, each once.
fn words<'h>(adapters: &[&'h Nic], of: Word) -> Result<BTreeSet<&'h str>, &'h str> {
    let words = adapters.iter().copied().map(|nic| of(nic).get());
    words.map(|word| word.map(String::as_str)).collect()
}

fn joined(words: &BTreeSet<&str>) -> String {
    words.iter().copied().collect::<Vec<_>>().join(" and ")
}

/// Both ends of a network have the same adapter, driver and firmware.
pub fn adapter(host: &Host, other: &Host) -> OfTwo {
    each(host, other, |nic, far| {
        let (own, there) = (adapters(host, nic), adapters(other, far));
        let mut differ = Vec::new();
        let mut unknown = None;
        for (what, of) in WORDS {
            match (words(&own, of), words(&there, of)) {
                (Ok(own), Ok(there)) if own != there => {
                    differ.push(format!("{what} {}, and {}", joined(&own), joined(&there)));
                }
                (Ok(_), Ok(_)) => {}
                (Err(why), _) | (_, Err(why)) => unknown = Some(format!("{what}: {why}")),
            }
        }
        match unknown {
            Some(why) if differ.is_empty() => Err(Because(why)),
            _ if differ.is_empty() => Ok(Answer::Right),
            _ => Ok(Answer::Found(Found {
                severity: Severity::Notice,
                read: differ.join("; "),
                expected: "the same".into(),
                why: "what one can the other may not, and each has faults of its own".into(),
                cost: None,
                change: None,
                by_hand: Some("bring both to one version".into()),
                lines: Vec::new(),
            })),
        }
    })
}
