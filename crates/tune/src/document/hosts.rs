//! What was read of each host, as far as those who look after networks ask.

use super::blocks::{Block, Text};
use crate::facts::{Fact, Guest, Host, Kind, Nic};

/// In place of what is not known, or what there is not.
const NONE: &str = "–";

pub fn blocks(host: &Host) -> Vec<Block> {
    let mut blocks = vec![Block::Part(Text::of(&host.name))];
    let shown = host
        .nics
        .iter()
        .filter(|nic| nic.kind != Kind::Virtual || nic.is_addressed());
    let rows: Vec<Vec<Text>> = shown.map(row).collect();
    if rows.is_empty() {
        blocks.push(Block::Words(Text::of(
            "It has no interface with hardware or an address.",
        )));
    } else {
        let head = [
            "Interface",
            "Kind",
            "Speed",
            "MTU",
            "Driver",
            "Firmware",
            "Addresses",
            "Switch and port",
        ];
        blocks.push(Block::Table {
            head: head.map(Text::of).into(),
            rows,
        });
    }
    blocks.push(guests(host));
    blocks
}

fn row(nic: &Nic) -> Vec<Text> {
    let known = |fact: &Fact<String>| fact.known().map_or(NONE, String::as_str).to_owned();
    let speed = nic.link.known().and_then(|link| link.speed);
    let speed = match (speed, nic.up, nic.carrier) {
        (_, false, _) => "not up".to_owned(),
        (_, true, false) => "no carrier".to_owned(),
        (Some(speed), ..) => speed.to_string(),
        (None, ..) => NONE.to_owned(),
    };
    let addresses: Vec<String> = nic.addresses.iter().map(ToString::to_string).collect();
    let neighbours = nic.neighbours.known().into_iter().flatten();
    let neighbours: Vec<String> = neighbours
        .map(|one| format!("{} {}", one.name.as_ref().unwrap_or(&one.switch), one.port))
        .collect();
    let or_none = |words: Vec<String>| {
        if words.is_empty() {
            NONE.to_owned()
        } else {
            words.join(", ")
        }
    };
    [
        nic.name.clone(),
        kind(nic.kind).to_owned(),
        speed,
        nic.mtu.to_string(),
        known(&nic.driver),
        known(&nic.firmware),
        or_none(addresses),
        or_none(neighbours),
    ]
    .map(Text::of)
    .into()
}

const fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Adapter => "adapter",
        Kind::Bond => "bond",
        Kind::Bridge => "bridge",
        Kind::Vlan => "VLAN",
        Kind::Virtual => "virtual",
    }
}

/// Drover's, and libvirt's where it has some or that is not known for another reason.
fn guests(host: &Host) -> Block {
    let own = match host.guests.get() {
        Err(why) => format!("Its guests are not known, because {why}."),
        Ok(guests) if guests.is_empty() => "It has no guests.".to_owned(),
        Ok(guests) => format!("{}.", named("guest", guests)),
    };
    let domains = match host.domains.get() {
        Err(why) if host.guests.get() == Err(why) => None,
        Err(why) => Some(format!(
            "Domains of libvirt's are not known, because {why}."
        )),
        Ok(domains) if domains.is_empty() => None,
        Ok(domains) => Some(format!("{}, which libvirt has.", named("domain", domains))),
    };
    let words: Vec<String> = [own].into_iter().chain(domains).collect();
    Block::Words(Text::of(words.join(" ")))
}

fn named(what: &str, guests: &[Guest]) -> String {
    let names: Vec<&str> = guests.iter().map(|guest| guest.name.as_str()).collect();
    match names.len() {
        1 => format!("Its {what}: {}", names[0]),
        count => format!("Its {count} {what}s: {}", names.join(", ")),
    }
}
