//! The slots of adapters.

use drover_types::BitRate;

use super::used::is_used;
use crate::cost::of_rate;
use crate::facts::{Host, Kind, Nic, Pci};
use crate::finding::{Answer, Because, Found, Severity, Verdict};

/// An adapter's slot carries more than the links of all its ports.
pub fn slot(host: &Host, nic: &Nic) -> Verdict {
    if !is_used(host, nic) || nic.kind != Kind::Adapter {
        return Ok(Answer::NotAbout);
    }
    let pci = nic.pci.get()?;
    let rate = nic.link.get()?.speed;
    let (Some(rate), Some(width), Some(speed)) = (rate, pci.width, pci.speed) else {
        return Err(Because::from("its slot or its link tells no rate"));
    };
    if pci.limits_nothing() {
        return Err(Because::from(
            "its bus is its own: it tells PCI's least, which limits nothing",
        ));
    }
    let ports = ports(host, pci);
    // One of them speaks for all.
    if ports.first().is_none_or(|(first, _)| *first != nic.name) {
        return Ok(Answer::NotAbout);
    }
    let all = ports
        .iter()
        .fold(0_u64, |all, (_, rate)| all.saturating_add(rate.0));
    let all = BitRate(all);
    let most = ports.iter().map(|(_, rate)| *rate).max().unwrap_or(rate);
    let now = carries(width, speed);
    if now >= all {
        return Ok(Answer::Right);
    }
    let could = carries(width, pci.speed_most.unwrap_or(speed));
    // Slots without work rest at a lower rate; their width stays.
    let rests = could >= all;
    let severity = match (rests, now < most) {
        (true, _) => Severity::Notice,
        (false, true) => Severity::Critical,
        (false, false) => Severity::Warning,
    };
    let names: Vec<&str> = ports.iter().map(|(name, _)| *name).collect();
    let expected = match names[..] {
        [_] => format!("{all}, as its link"),
        _ => format!("{all}, as its links together: {}", names.join(", ")),
    };
    Ok(Answer::Found(Found {
        severity,
        read: told(width, speed),
        expected,
        why: if rests {
            "it may rest, for want of work: look again while it carries".into()
        } else {
            "links carry no more than their slot".into()
        },
        cost: of_rate(now, all),
        change: None,
        by_hand: Some(format!(
            "the adapter in {} could have {} lanes of {:.1} GT/s: look at the slot, and at its setting in \
             the machine's setup",
            pci.slot,
            pci.width_most.unwrap_or(width),
            f64::from(pci.speed_most.unwrap_or(speed)) / 1000.0
        )),
        lines: Vec::new(),
    }))
}

/// The used ports of the adapter in that slot, with their rates. Virtual functions share a port's rate, and tell no width.
fn ports<'h>(host: &'h Host, pci: &Pci) -> Vec<(&'h str, BitRate)> {
    let ports = host.nics.iter().filter_map(|nic| {
        let own = nic.pci.known()?;
        let is_port = own.width.is_some() && of_slot(&own.slot) == of_slot(&pci.slot);
        let rate = nic.link.known()?.speed?;
        (is_port && is_used(host, nic)).then_some((nic.name.as_str(), rate))
    });
    ports.collect()
}

/// Without the function: each port is one.
fn of_slot(slot: &str) -> &str {
    slot.rsplit_once('.').map_or(slot, |(slot, _)| slot)
}

/// What so many lanes carry, at so many millions of transfers a second.
pub(super) fn told(width: u32, speed: u32) -> String {
    let (now, speed) = (carries(width, speed), f64::from(speed) / 1000.0);
    format!("{width} lanes of {speed:.1} GT/s carry some {now}")
}

/// What is left for packets of so many lanes, at so many millions of transfers a second: up to 5 GT/s 8 of 10 bits by their code, then 128
/// of 130; and of these some 90 % beside headers.
pub(super) fn carries(width: u32, speed: u32) -> BitRate {
    let code = if speed > 5000 { 128.0 / 130.0 } else { 0.8 };
    BitRate((f64::from(width) * f64::from(speed) * 1e6 * code * 0.9) as u64)
}
