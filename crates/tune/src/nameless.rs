//! A guest as rules ask about it, without what it is called: to be shown to others.
//!
//! Interfaces of the host and bridges keep their names, as in all that is captured, unless they are made of an address. Of arguments and of XML only what rules ask about stays,
//! and of reasons why something is not known none: others' words may have names in them.

use std::collections::BTreeMap;

use crate::arguments::{JSON_MEMORY, Value, arguments};
use crate::facts::{Argument, Card, Definition, Domain, Element, Fact, Guest, Own, Seen};

/// Parts of values that say nothing but numbers and kinds.
const TELLS_NOTHING: [&str; 21] = [
    "fd",
    "fds",
    "host_mtu",
    "hugetlb",
    "hugetlbsize",
    "model",
    "mq",
    "prealloc",
    "prealloc-threads",
    "queues",
    "share",
    "size",
    "type",
    "vectors",
    "vhost",
    "vhostfd",
    "vhostfds",
    "vhostforce",
    "accel",
    "thread",
    "migratable",
];

/// Parts that name something else of the guest.
const NAMES: [&str; 3] = ["id", "netdev", "mem-path"];

/// The same of where a domain's interface leads.
const OF_SOURCE: [&str; 4] = ["bridge", "dev", "mode", "type"];

/// The same of the host's end of it.
const OF_TARGET: [&str; 2] = ["dev", "managed"];

/// Attributes that name an interface of the host.
const INTERFACES: [&str; 2] = ["bridge", "dev"];

/// The same in arguments.
const INTERFACES_GIVEN: [&str; 2] = ["br", "ifname"];

/// How systemd names interfaces by the address of their hardware: Ethernet, wireless, mobile, serial.
const BY_HARDWARE: [&str; 4] = ["enx", "wlx", "wwx", "slx"];

/// Half of such an address, in hexadecimal digits: whose hardware it is.
const TELLING: usize = 6;

/// Whether a name, or a path with it, is made of a hardware's address.
#[must_use]
pub fn tells_hardware(name: &str) -> bool {
    let begins = |prefix: &&str| {
        name.match_indices(*prefix).any(|(at, _)| {
            let rest = name[at + prefix.len()..].bytes();
            rest.take_while(u8::is_ascii_hexdigit).count() >= TELLING
        })
    };
    BY_HARDWARE.iter().any(begins)
}

/// In place of why something is not known.
const TAKEN: &str = "it was not known when it was captured, and why was taken away with its name";

impl Guest {
    /// The same without its name, and what it has in its stead: the number that it has among its host's.
    #[must_use]
    pub fn nameless(&self, number: usize) -> Self {
        let mut names = Names::of(number);
        let (name, definition) = match &self.definition {
            Definition::Own(own) => {
                let name = format!("guest{number}");
                let own = names.own(own, &name);
                (name, Definition::Own(own))
            }
            Definition::Libvirt(domain) => {
                let domain = names.domain(domain);
                (format!("domain{number}"), Definition::Libvirt(domain))
            }
        };
        Self {
            name,
            definition,
            vcpus: self.vcpus,
            memory: self.memory,
            seen: nameless(&self.seen, |seen| names.seen(seen)),
        }
    }
}

/// The same, and of one that is not known no reason.
fn nameless<T>(fact: &Fact<T>, of: impl FnOnce(&T) -> T) -> Fact<T> {
    match fact {
        Fact::Known(known) => Fact::Known(of(known)),
        Fact::Unknown(_) => Fact::unknown(TAKEN),
    }
}

/// What stands for the names of one guest.
struct Names {
    guest: usize,
    others: BTreeMap<String, String>,
}

impl Names {
    fn of(guest: usize) -> Self {
        let others = BTreeMap::new();
        Self { guest, others }
    }

    /// For one name always the same.
    fn name(&mut self, name: &str) -> String {
        let next = self.others.len();
        let made = self.others.entry(name.to_owned());
        made.or_insert_with(|| format!("name{next}")).clone()
    }

    /// The same of an interface of the host, if its name tells its hardware.
    fn interface(&mut self, name: &str) -> String {
        match tells_hardware(name) {
            true => self.name(name),
            false => name.to_owned(),
        }
    }

    /// The same for an address.
    fn address(&mut self, address: &str) -> String {
        let (guest, next) = (self.guest % 0x100, self.others.len() % 0x100);
        let made = self.others.entry(address.to_ascii_lowercase());
        made.or_insert_with(|| format!("02:00:00:00:{guest:02x}:{next:02x}"))
            .clone()
    }

    fn own(&mut self, own: &Own, name: &str) -> Own {
        let accel = |part: &&str| part.starts_with("accel=");
        let machine = own.machine.as_ref().map(|machine| {
            let mut parts = machine.split(',');
            let first = parts.next().into_iter();
            first
                .chain(parts.filter(accel))
                .collect::<Vec<_>>()
                .join(",")
        });
        let page_sizes = own.page_sizes.iter();
        Own {
            file: format!("{name}.toml"),
            machine,
            page_sizes: page_sizes
                .map(|(path, size)| (self.name(path), *size))
                .collect(),
            arguments: self.arguments(&own.arguments),
        }
    }

    /// Those that lead to the agent inside have nothing that rules ask about beside.
    fn arguments(&mut self, all: &[Argument]) -> Vec<Argument> {
        let stays = |argument: &&Argument| {
            let value = argument.value.as_deref().unwrap_or_default();
            argument.option != "-chardev" && !value.starts_with("virtserialport")
        };
        let made = all.iter().filter(stays).map(|argument| Argument {
            option: argument.option.clone(),
            value: argument
                .value
                .as_ref()
                .map(|value| self.value(&argument.option, value)),
        });
        made.collect()
    }

    fn value(&mut self, option: &str, text: &str) -> String {
        let value = Value::of(text);
        if value.is_json() {
            let is_memory = text == JSON_MEMORY;
            return if is_memory { JSON_MEMORY } else { "{}" }.to_owned();
        }
        match option {
            "-mem-path" => return self.name(text),
            "-cpu" => return of_cpu(&value),
            _ => {}
        }
        // One that names no kind has it among its parts.
        let (kind, rest): (&str, Vec<&str>) = match value.kind() {
            "" => ("", text.split(',').collect()),
            kind => (kind, value.rest().collect()),
        };
        let mut parts = vec![kind.to_owned()];
        for part in rest {
            let (key, said) = part.split_once('=').unwrap_or((part, "on"));
            let said = match key {
                _ if INTERFACES_GIVEN.contains(&key) => self.interface(said),
                _ if TELLS_NOTHING.contains(&key) => said.to_owned(),
                _ if NAMES.contains(&key) => self.name(said),
                "mac" => self.address(said),
                _ => continue,
            };
            parts.push(format!("{key}={said}"));
        }
        let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        parts.join(",")
    }

    fn domain(&mut self, domain: &Domain) -> Domain {
        Domain {
            uri: None,
            persistent: domain.persistent,
            next: nameless(&domain.next, |next| self.element(next)),
            now: nameless(&domain.now, |now| self.element(now)),
        }
    }

    fn element(&mut self, element: &Element) -> Element {
        let name = element.name.as_str();
        let stays = |attribute: &str| match name {
            "domain" | "interface" => attribute == "type",
            "source" => OF_SOURCE.contains(&attribute),
            "target" => OF_TARGET.contains(&attribute),
            _ => attribute != "vendor_id",
        };
        let attributes = element.attributes.iter();
        let attributes = attributes.filter(|(attribute, _)| stays(attribute));
        let attributes = attributes.map(|(attribute, said)| {
            let said = match INTERFACES.contains(&attribute.as_str()) {
                true => self.interface(said),
                false => said.clone(),
            };
            (attribute.clone(), said)
        });
        let mut made = Element {
            attributes: attributes.collect(),
            parts: Vec::new(),
            ..element.clone()
        };
        if let Some(address) = element.get("address").filter(|_| name == "mac") {
            made = made.with("address", &self.address(address));
        }
        made.parts = match name {
            "commandline" => self.beside(element),
            _ => element
                .parts
                .iter()
                .map(|part| self.element(part))
                .collect(),
        };
        made
    }

    /// Arguments that libvirt knows nothing of.
    fn beside(&mut self, commandline: &Element) -> Vec<Element> {
        let args = commandline.all("arg").filter_map(|arg| arg.get("value"));
        let args: Vec<String> = args.map(str::to_owned).collect();
        let made = self.arguments(&arguments(&args)).into_iter();
        let words = made.flat_map(|argument| [Some(argument.option), argument.value]);
        words
            .flatten()
            .map(|word| Element::named("arg").with("value", &word))
            .collect()
    }

    fn seen(&mut self, seen: &Seen) -> Seen {
        Seen {
            accelerated: nameless(&seen.accelerated, |is| *is),
            cards: nameless(&seen.cards, |cards| {
                cards.iter().map(|card| self.card(card)).collect()
            }),
            vhost: nameless(&seen.vhost, |count| *count),
            taps: nameless(&seen.taps, |taps| {
                taps.iter().map(|tap| self.interface(tap)).collect()
            }),
            pages: nameless(&seen.pages, |pages| *pages),
            lockable: nameless(&seen.lockable, |most| *most),
        }
    }

    fn card(&mut self, card: &Card) -> Card {
        let mac = self.address(&card.mac);
        Card {
            netdev: match card.netdev == card.mac {
                true => mac.clone(),
                false => self.name(&card.netdev),
            },
            mac,
            multiqueue: card.multiqueue,
            offered_mtu: card.offered_mtu,
            guest_mtu: nameless(&card.guest_mtu, |mtu| *mtu),
        }
    }
}

/// A model, and features that are on or off: other words may be anything.
fn of_cpu(value: &Value) -> String {
    let is_switch = |part: &&str| {
        let said = part.split_once('=').map(|(_, said)| said);
        said.is_none_or(|said| matches!(said, "on" | "off" | "yes" | "no" | "true" | "false"))
    };
    let parts = [value.kind()]
        .into_iter()
        .chain(value.rest().filter(is_switch));
    parts.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_made_of_hardware_addresses_are_known_wherever_they_stand() {
        for name in [
            "enx001122aabbcc",
            "wlx001122aabbcc",
            "br-enx001122aa",
            "sys/class/net/enx001122aabbcc/mtu",
        ] {
            assert!(tells_hardware(name), "{name}");
        }
        for name in ["enp1s0", "enx", "eth0", "wlxyz", "br-001122aabbcc"] {
            assert!(!tells_hardware(name), "{name}");
        }
    }
}
