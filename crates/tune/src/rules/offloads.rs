//! What adapters do for the processors.

use super::of_nic;
use super::used::is_used;
use crate::change::{Change, Disruption, NicSetting, Step, quoted, switch};
use crate::cost::of_packets;
use crate::facts::{Host, Kind, Layers, Nic};
use crate::finding::{Answer, Found, Severity, Verdict};
use crate::settable::disruption;

/// What every adapter does well that can, by the kernel's names.
const WELL: [&str; 2] = ["rx-checksum", JOINED];

/// Packets that arrive are joined.
const JOINED: &str = "rx-gro";

/// What a driver may leave off for a fault of its hardware.
const WITH_CARE: [&str; 4] = [
    "tx-checksum-ip-generic",
    "tx-generic-segmentation",
    "tx-scatter-gather",
    "tx-tcp-segmentation",
];

/// What has the stack handle many packets as one, of so many bytes at most (`GSO_LEGACY_MAX_SIZE`).
const AS_ONE: [&str; 3] = [JOINED, "tx-generic-segmentation", "tx-tcp-segmentation"];
const ONE: u32 = 65_536;

/// Segments and checksums are not the processors' work.
pub fn offloads(host: &Host, nic: &Nic) -> Verdict {
    if !is_used(host, nic) {
        return Ok(Answer::NotAbout);
    }
    let features = nic.features.get()?;
    // What crosses the end of a veth was joined before, or never cut: the kernel makes it with this off (`veth_disable_gro`).
    let matters = |name: &str| name != JOINED || nic.kind == Kind::Adapter;
    let off_of = |wanted: &[&'static str]| -> Vec<&'static str> {
        let is_off = |name: &&&str| {
            let is_off = features.changeable.contains(**name) && !features.active.contains(**name);
            is_off && matters(name)
        };
        wanted.iter().filter(is_off).copied().collect()
    };
    let (well, with_care) = (off_of(&WELL), off_of(&WITH_CARE));
    if well.is_empty() && with_care.is_empty() {
        return Ok(Answer::Right);
    }
    let step = |name: &&str| Step::Nic {
        nic: nic.name.clone(),
        what: NicSetting::Feature((*name).to_owned()),
        from: switch(false).to_owned(),
        to: switch(true).to_owned(),
    };
    let steps: Vec<Step> = well.iter().map(step).collect();
    let most = steps.iter().map(disruption).max();
    let change = most.map(|disruption| Change { disruption, steps });
    let off = [&well[..], &with_care[..]].concat();
    let turned_on: Vec<String> = with_care.iter().map(|name| format!(" {name} on")).collect();
    let by_hand = format!(
        "if the adapter is known to do it well: ethtool -K {}{}",
        quoted(&nic.name),
        turned_on.concat()
    );
    Ok(Answer::Found(Found {
        severity: if well.is_empty() { Severity::Notice } else { Severity::Warning },
        read: format!("off: {}", off.join(", ")),
        expected: "on: the adapter can".into(),
        why: "the processors do it for each packet instead, and guests and codecs want the same processors".into(),
        cost: of_packets(nic.mtu, ONE).filter(|_| AS_ONE.iter().any(|name| off.contains(name))),
        change,
        by_hand: (!with_care.is_empty()).then_some(by_hand),
        lines: Vec::new(),
    }))
}

/// Nothing that is forwarded was joined by the hardware.
pub fn lro(host: &Host, nic: &Nic) -> Verdict {
    // Also below a bridge of guests, of which this host has no address.
    if !nic.up || nic.kind != Kind::Adapter {
        return Ok(Answer::NotAbout);
    }
    let layers = Layers::of(host);
    let mut bridges = host.nics.iter().filter(|upper| upper.kind == Kind::Bridge);
    if !bridges.any(|bridge| layers.below(bridge).contains(nic.name.as_str())) {
        return Ok(Answer::NotAbout);
    }
    if !nic.features.get()?.active.contains("rx-lro") {
        return Ok(Answer::Right);
    }
    let feature = NicSetting::Feature("rx-lro".into());
    Ok(Answer::Found(Found {
        severity: Severity::Critical,
        read: "rx-lro is on, and a bridge stands on it".into(),
        expected: "off".into(),
        why:
            "packets that were joined cannot be forwarded to guests: their connections stand still"
                .into(),
        cost: None,
        change: Some(of_nic(Disruption::BouncesLink, nic, feature, "on", "off")),
        by_hand: None,
        lines: Vec::new(),
    }))
}
