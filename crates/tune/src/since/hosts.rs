//! Facts of hosts at two times, found or not.

use std::collections::{BTreeMap, BTreeSet};

use super::{Difference, Trend};
use crate::change::{pause_words, switch};
use crate::facts::{Fact, Host, Kind, Nic};
use crate::finding::Subject;
use crate::rules::{called, manager, on_cpus, priorities, shared};

/// So many more damaged or lost packets are worth a word.
const PACKETS_MORE: u64 = 100;

/// So many more pause frames.
const PAUSES_MORE: u64 = 1000;

/// So many more ticks in which a port of RDMA had to wait: some milliseconds.
const TICKS_MORE: u64 = 1_000_000;

/// What is told in words, each compared as such; nothing where it is not known.
type Told<T> = (&'static str, fn(&T) -> Option<String>);

const OF_HOST: &[Told<Host>] = &[
    ("CPUs online", |host| {
        host.processors.online.known().map(ToString::to_string)
    }),
    ("governors", |host| {
        host.processors.governors.known().map(on_cpus)
    }),
    ("preferences", |host| {
        host.processors.preferences.known().map(on_cpus)
    }),
    ("irqbalance", |host| {
        let runs = host.irqbalance.known()?;
        Some(if *runs { "runs" } else { "does not run" }.to_owned())
    }),
    ("lldpad", |host| {
        let runs = host.lldpad.known()?;
        Some(if *runs { "runs" } else { "does not run" }.to_owned())
    }),
    ("transparent huge pages", |host| {
        host.memory.joins.known().cloned()
    }),
    ("huge pages", |host| {
        let sizes = host.memory.huge.known()?.iter();
        let sizes = sizes.map(|(size, pages)| format!("{} of {} KiB", pages.total, size / 1024));
        Some(sizes.collect::<Vec<_>>().join(", "))
    }),
    ("QEMU", |host| host.offers.known()?.version.clone()),
];

const OF_NIC: &[Told<Nic>] = &[
    ("state", |nic| {
        Some(if nic.up { "on" } else { "off" }.to_owned())
    }),
    ("largest packet", |nic| Some(format!("{} bytes", nic.mtu))),
    ("addresses", |nic| {
        Some(joined(nic.addresses.iter().map(ToString::to_string)))
    }),
    ("stands on", |nic| Some(joined(nic.lower.iter().cloned()))),
    ("driver", |nic| nic.driver.known().cloned()),
    ("driver's version", |nic| {
        nic.driver_version.known().cloned()
    }),
    ("firmware", |nic| nic.firmware.known().cloned()),
    ("adapter", |nic| nic.model.known().cloned()),
    ("slot", |nic| Some(nic.pci.known()?.slot.clone())),
    ("rate set", |nic| {
        let by_hand = nic.link.known()?.by_hand;
        Some(if by_hand { "by hand" } else { "negotiated" }.to_owned())
    }),
    ("error correction", |nic| nic.fec.known()?.active.clone()),
    ("module", |nic| {
        let module = nic.module.known()?;
        Some(format!("{} {} {}", module.form, module.vendor, module.part))
    }),
    ("switch", |nic| {
        let all = nic.neighbours.known()?.iter();
        Some(joined(all.map(|at| format!("{} {}", called(at), at.port))))
    }),
    ("queues", |nic| {
        Some(nic.channels.known()?.combined.to_string())
    }),
    ("places to receive", |nic| {
        Some(nic.rings.known()?.receive.to_string())
    }),
    ("adaptive-rx", |nic| {
        let on = nic.coalescing.known()?.adaptive_receive?;
        Some(switch(on).to_owned())
    }),
    ("rx-usecs", |nic| {
        let coalescing = nic.coalescing.known()?;
        // What follows what arrives changes all the time.
        let is_fixed = coalescing.adaptive_receive != Some(true);
        let micros = coalescing.receive_micros.filter(|_| is_fixed)?;
        Some(micros.to_string())
    }),
    ("packets handed on", |nic| {
        let queues = nic.steering.known()?.receive.iter();
        Some(joined(
            queues.map(|(queue, cpus)| format!("{queue} to {cpus}")),
        ))
    }),
    ("pause frames", |nic| nic.pause.known().map(pause_words)),
    ("PFC", |nic| nic.dcb.known()?.pfc.as_ref().map(priorities)),
    ("shares", |nic| {
        let ets = nic.dcb.known()?.ets.as_ref()?;
        Some(shared(ets).unwrap_or_else(|| NONE.to_owned()))
    }),
    ("PFC and shares agreed on by", |nic| {
        nic.dcb.known()?.dcbx.as_ref().map(manager)
    }),
    ("bond", |nic| {
        let bond = nic.bond.as_ref()?.known()?;
        let hash = bond.hash.iter().map(|hash| format!(" by {hash}"));
        Some(hash.fold(bond.mode.clone(), |told, hash| told + &hash))
    }),
    ("RDMA", |nic| {
        let rdma = nic.rdma.as_ref()?.known()?;
        let kinds = joined(rdma.kinds.keys().cloned());
        Some(format!("{} {}: {kinds}", rdma.device, rdma.state))
    }),
];

/// What is counted since a host's start, and how many more are worth a word.
type Counted = (&'static str, fn(&Nic) -> Option<u64>, u64);

const COUNTED: &[Counted] = &[
    (
        "carrier changes",
        |nic| nic.carrier_changes.known().copied(),
        1,
    ),
    (
        "damaged packets",
        |nic| Some(nic.counters.known()?.receive_errors),
        PACKETS_MORE,
    ),
    (
        "blocks not corrected",
        |nic| nic.fec.known()?.uncorrected,
        PACKETS_MORE,
    ),
    (
        "dropped packets",
        |nic| Some(nic.counters.known()?.receive_missed),
        PACKETS_MORE,
    ),
    (
        "packets not sent",
        |nic| nic.counters.known()?.send_errors,
        PACKETS_MORE,
    ),
    (
        "pause frames received",
        |nic| nic.pause.known()?.received,
        PAUSES_MORE,
    ),
    (
        "pause frames sent",
        |nic| nic.pause.known()?.sent,
        PAUSES_MORE,
    ),
    (
        "RDMA links down",
        |nic| nic.rdma.as_ref()?.known()?.downed,
        1,
    ),
    (
        "RDMA lost or late",
        |nic| {
            let lost = &nic.rdma.as_ref()?.known()?.lost;
            let sum = |sum: u64, count: &u64| sum.saturating_add(*count);
            (!lost.is_empty()).then(|| lost.values().fold(0, sum))
        },
        PACKETS_MORE,
    ),
    (
        "RDMA ticks waited",
        |nic| nic.rdma.as_ref()?.known()?.waited,
        TICKS_MORE,
    ),
];

const THERE: &str = "there";
const NONE: &str = "none";

fn joined(words: impl Iterator<Item = String>) -> String {
    let words: BTreeSet<String> = words.collect();
    if words.is_empty() {
        return NONE.to_owned();
    }
    Vec::from_iter(words).join(", ")
}

/// What has changed of the hosts that were read both times. What is not known at one of the times has not changed.
pub(super) fn compare(before: &[Host], now: &[Host]) -> Vec<Difference> {
    let mut found = Vec::new();
    for now in now {
        let before = before.iter().find(|before| before.name == now.name);
        if let Some(before) = before {
            of_host(before, now, &mut found);
        }
    }
    found.sort_by_key(|difference| difference.trend);
    found
}

fn of_host(before: &Host, now: &Host, found: &mut Vec<Difference>) {
    let subject = Subject::host(&now.name);
    for (what, words) in OF_HOST {
        let both = words(before).zip(words(now));
        found.extend(differ(&subject, what, both));
    }
    for (name, now) in &now.settings {
        let before = before.settings.get(name).and_then(Fact::known);
        let both = before.cloned().zip(now.known().cloned());
        found.extend(differ(&subject, name, both));
    }
    let started = before.boot.known().zip(now.boot.known());
    let is_one = started.map(|(before, now)| before == now);
    if is_one == Some(false) {
        let both = Some(("another one".to_owned(), "restarted".to_owned()));
        found.extend(differ(&subject, "start", both));
    }
    let (was, is) = (nics(before), nics(now));
    let names: BTreeSet<&&str> = was.keys().chain(is.keys()).collect();
    for name in names {
        let subject = Subject {
            nic: Some((*name).to_owned()),
            ..subject.clone()
        };
        match (was.get(*name), is.get(*name)) {
            (Some(before), Some(now)) => {
                of_nic(before, now, &subject, found);
                if is_one == Some(true) {
                    grown(before, now, &subject, found);
                }
            }
            (there, _) => {
                let ends = match there {
                    Some(_) => (THERE, NONE),
                    None => (NONE, THERE),
                };
                let both = Some((ends.0.to_owned(), ends.1.to_owned()));
                found.extend(differ(&subject, "interface", both));
            }
        }
    }
}

/// Guests' and containers' ends come and go with them.
fn nics(host: &Host) -> BTreeMap<&str, &Nic> {
    let matter = |nic: &&Nic| nic.kind != Kind::Virtual || nic.is_addressed();
    let nics = host.nics.iter().filter(matter);
    nics.map(|nic| (nic.name.as_str(), nic)).collect()
}

fn of_nic(before: &Nic, now: &Nic, subject: &Subject, found: &mut Vec<Difference>) {
    if before.carrier != now.carrier {
        let word = |nic: &Nic| if nic.carrier { THERE } else { NONE }.to_owned();
        let trend = Trend::of(before.carrier, now.carrier);
        found.push(otherwise(
            trend,
            subject,
            "carrier",
            (word(before), word(now)),
        ));
    }
    let rate = |nic: &Nic| nic.link.known()?.speed;
    if let (Some(was), Some(is)) = (rate(before), rate(now))
        && was != is
    {
        let both = (was.to_string(), is.to_string());
        found.push(otherwise(Trend::of(was, is), subject, "rate", both));
    }
    for (what, words) in OF_NIC {
        found.extend(differ(subject, what, words(before).zip(words(now))));
    }
    let features = before.features.known().zip(now.features.known());
    if let Some((was, is)) = features {
        let only = |one: &BTreeSet<String>, other: &BTreeSet<String>| {
            joined(one.difference(other).map(|name| format!("{name} on")))
        };
        let both = (only(&was.active, &is.active), only(&is.active, &was.active));
        found.extend(differ(subject, "features", Some(both)));
    }
}

/// What was counted meanwhile, of a host that was not restarted. A driver that was counts anew.
fn grown(before: &Nic, now: &Nic, subject: &Subject, found: &mut Vec<Difference>) {
    for (what, count, least) in COUNTED {
        let Some((was, is)) = count(before).zip(count(now)) else {
            continue;
        };
        let Some(more) = is.checked_sub(was).filter(|more| more >= least) else {
            continue;
        };
        let both = (was.to_string(), format!("{is}, {more} more"));
        found.push(otherwise(Trend::Worse, subject, what, both));
    }
}

fn differ(subject: &Subject, what: &str, both: Option<(String, String)>) -> Option<Difference> {
    let both = both.filter(|(before, now)| before != now)?;
    Some(otherwise(Trend::Other, subject, what, both))
}

fn otherwise(
    trend: Trend,
    subject: &Subject,
    what: &str,
    (before, now): (String, String),
) -> Difference {
    Difference {
        trend,
        subject: subject.clone(),
        what: what.to_owned(),
        before,
        now,
    }
}
