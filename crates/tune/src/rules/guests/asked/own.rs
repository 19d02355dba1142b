//! Definitions of Drover's: QEMU's arguments.

use drover_types::Bytes;

use super::{Backend, Carrier, Cpu, CpuWritten, Lock, MemoryWritten, Net, NetWritten};
use crate::arguments::{Value, is_emulated, last};
use crate::facts::{Argument, Card, Guest, Offers, Own};
use crate::finding::{Because, Line};

/// What QEMU takes where huge pages are asked for and no size is named.
const USUAL_HUGE: u64 = 2 << 20;

/// Interrupts of a card beside two for each queue: of its configuration, and of orders to it.
const OTHER_VECTORS: u32 = 2;

/// Of both of the arguments that make a card.
pub fn nets<'g>(guest: &'g Guest, own: &'g Own) -> Vec<Result<Net<'g>, Because>> {
    let mut nets = Vec::new();
    for argument in &own.arguments {
        let Some(text) = &argument.value else {
            continue;
        };
        let value = Value::of(text);
        let option = argument.option.as_str();
        let net = match option {
            "-netdev" | "-nic" if value.is_json() => {
                Some(Err(Because(format!("its {option} is written as JSON"))))
            }
            "-netdev" => of_netdev(guest, own, argument, value).map(Ok),
            "-nic" => of_nic(guest, argument, value, nets.len()).map(Ok),
            _ => None,
        };
        nets.extend(net);
    }
    nets
}

/// None where the card is another one.
fn of_netdev<'g>(
    guest: &'g Guest,
    own: &'g Own,
    argument: &'g Argument,
    value: Value,
) -> Option<Net<'g>> {
    let name = value.get("id")?.to_owned();
    let mut devices = own
        .arguments
        .iter()
        .filter(|other| other.option == "-device");
    let makes = devices.find_map(|device| {
        let card = Value::of(device.value.as_deref()?);
        let is_its = card.kind().starts_with("virtio-net") && card.get("netdev") == Some(&name);
        is_its.then_some((device, card))
    })?;
    Some(net(guest, name, argument, value, Some(makes)))
}

/// The same with the card in one argument.
fn of_nic<'g>(
    guest: &'g Guest,
    argument: &'g Argument,
    value: Value,
    number: usize,
) -> Option<Net<'g>> {
    let model = value.get("model").unwrap_or_default();
    if !model.starts_with("virtio") {
        return None;
    }
    let name = value.get("id").map(str::to_owned);
    let name = name.unwrap_or_else(|| format!("nic{number}"));
    Some(net(guest, name, argument, value, None))
}

fn net<'g>(
    guest: &'g Guest,
    name: String,
    connects: &'g Argument,
    connection: Value,
    makes: Option<(&'g Argument, Value)>,
) -> Net<'g> {
    let card = card(guest, &name);
    let made = makes.as_ref().map(|(_, card)| card);
    let by_number = connection.number("queues");
    let by_files = || Some(connection.get("fds")?.split(':').count() as u32);
    let defined_mtu = || made?.number("host_mtu").filter(|mtu| *mtu > 0);
    Net {
        carrier: carrier(&connection),
        given: by_number.or_else(by_files).unwrap_or(1),
        by_network: false,
        handed: connection.get("fds").is_some(),
        multiqueue: card.map_or_else(
            || made.and_then(|card| card.is_on("mq")) == Some(true),
            |card| card.multiqueue,
        ),
        vhost: Ok(is_vhost(&connection)),
        offered_mtu: card.map_or_else(defined_mtu, |card| card.offered_mtu),
        name,
        card,
        written: NetWritten::Own {
            connects,
            connection,
            makes,
        },
    }
}

fn card<'g>(guest: &'g Guest, name: &str) -> Option<&'g Card> {
    let cards = guest.seen.known()?.cards.known()?;
    cards.iter().find(|card| card.netdev == name)
}

fn carrier(connection: &Value) -> Carrier {
    match connection.kind() {
        "tap" => Carrier::Tap {
            name: connection.get("ifname").map(str::to_owned),
            bridge: None,
        },
        "bridge" => Carrier::Bridge(connection.get("br").unwrap_or("br0").to_owned()),
        "vhost-user" => Carrier::User,
        "vhost-vdpa" => Carrier::Vdpa,
        _ => Carrier::Other,
    }
}

fn is_vhost(connection: &Value) -> bool {
    let by_files = connection.get("vhostfd").is_some() || connection.get("vhostfds").is_some();
    let forced = connection.is_on("vhostforce") == Some(true);
    connection.is_on("vhost").unwrap_or(by_files || forced)
}

pub fn with_queues(
    net: &Net<'_>,
    wanted: u32,
    connects: &Argument,
    connection: &Value,
    makes: Option<&(&Argument, Value)>,
) -> Vec<Line> {
    let number = wanted.to_string();
    let given = |value: &Value| {
        // Descriptors that are handed over are as many as somebody opened.
        if value.get("fds").is_some() {
            value.clone()
        } else {
            value.with("queues", &number)
        }
    };
    let Some((argument, card)) = makes else {
        // `-nic` cannot have `mq`: it becomes the two that it stands for.
        let mut device = Value::of("virtio-net-pci").with("netdev", &net.name);
        if let Some(mac) = connection.get("mac") {
            device = device.with("mac", mac);
        }
        let netdev = connection
            .without("model")
            .without("mac")
            .with("id", &net.name);
        return vec![
            removed(connects),
            added("-netdev", &given(&netdev).to_string()),
            added("-device", &device.with("mq", "on").to_string()),
        ];
    };
    let mut device = card.with("mq", "on");
    let least = wanted.saturating_mul(2).saturating_add(OTHER_VECTORS);
    if card
        .number("vectors")
        .is_some_and(|vectors| vectors < least)
    {
        device = device.with("vectors", &least.to_string());
    }
    let mut lines = Vec::new();
    if net.given < wanted {
        lines.push(changed(connects, &given(connection)));
    }
    if device != *card {
        lines.push(changed(argument, &device));
    }
    lines
}

/// Those that are named by `-object`, or by `-mem-path`.
pub fn backends<'g>(guest: &Guest, own: &'g Own) -> Result<Vec<Backend<'g>>, Because> {
    let objects = own.arguments.iter().filter(|one| one.option == "-object");
    let backends = objects.map(|argument| of_object(guest, own, argument));
    let mut backends: Vec<Backend<'_>> = backends.collect::<Result<_, _>>()?;
    if let Some(argument) = last(&own.arguments, "-mem-path")
        && let Some(path) = &argument.value
    {
        backends.push(Backend {
            bytes: guest.memory.0,
            huge: own.page_sizes.get(path).copied(),
            shared: false,
            in_file: true,
            filled: false,
            threads: None,
            written: MemoryWritten::Own(argument, Value::of("")),
        });
    }
    Ok(backends)
}

fn of_object<'g>(guest: &Guest, own: &Own, argument: &'g Argument) -> Result<Backend<'g>, Because> {
    let value = Value::of(argument.value.as_deref().unwrap_or_default());
    if value.is_json() {
        return Err("its memory is written as JSON".into());
    }
    let kind = value.kind();
    let file = value.get("mem-path");
    let file = file.and_then(|path| own.page_sizes.get(path));
    let huge = match kind {
        "memory-backend-memfd" if value.is_on("hugetlb") == Some(true) => {
            let size = value.get("hugetlbsize").map_or(Some(USUAL_HUGE), bytes);
            Some(size.ok_or("the size of its huge pages is not understood")?)
        }
        "memory-backend-memfd" => None,
        _ => file.copied(),
    };
    let is_shared = matches!(kind, "memory-backend-memfd" | "memory-backend-shm");
    Ok(Backend {
        bytes: value.get("size").and_then(bytes).unwrap_or(guest.memory.0),
        huge,
        shared: value.is_on("share").unwrap_or(is_shared),
        in_file: kind == "memory-backend-file",
        filled: value.is_on("prealloc") == Some(true),
        threads: value.number("prealloc-threads"),
        written: MemoryWritten::Own(argument, value),
    })
}

/// A size as QEMU takes it: `2M`, `1G`.
fn bytes(text: &str) -> Option<u64> {
    let plain = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift = match text[plain.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return None,
    };
    plain.parse::<u64>().ok()?.checked_mul(1 << shift)
}

pub fn with_huge_pages(argument: &Argument, value: &Value) -> Vec<Line> {
    if value.kind() != "memory-backend-memfd" {
        return Vec::new();
    }
    let huge = value.with("hugetlb", "on").with("hugetlbsize", "2M");
    vec![changed(argument, &huge)]
}

/// The last `-cpu`.
pub fn cpu<'g>(guest: &Guest, own: &'g Own, here: &Offers) -> Result<Option<Cpu<'g>>, Because> {
    let Some(argument) = last(&own.arguments, "-cpu") else {
        return Ok(None);
    };
    let value = Value::of(argument.value.as_deref().unwrap_or_default());
    // As its QEMU says, while it runs.
    let emulated = match guest.seen.known() {
        Some(seen) => !*seen.accelerated.get()?,
        None => is_emulated(
            own.machine.as_deref(),
            &own.arguments,
            here.hardware.is_some(),
        ),
    };
    Ok(Some(Cpu {
        model: value.kind().to_owned(),
        words: value.rest().map(str::to_owned).collect(),
        emulated,
        written: CpuWritten::Own(argument),
    }))
}

/// As its process shows.
pub fn lock(guest: &Guest) -> Result<Option<Lock>, Because> {
    let Some(seen) = guest.seen.known() else {
        return Ok(None);
    };
    let most: Option<Bytes> = *seen.lockable.get()?;
    Ok(Some(Lock {
        most,
        by_hand: "LimitMEMLOCK=infinity for who starts it (systemctl edit droverd), and start the guest anew".to_owned(),
    }))
}

/// An argument as it stands in a definition's `args`.
fn written(option: &str, value: Option<&str>) -> String {
    let quoted = |text: &str| {
        let mut quoted = String::from("\"");
        for letter in text.chars() {
            match letter {
                '"' | '\\' => quoted.extend(['\\', letter]),
                letter if letter.is_control() => {
                    quoted.push_str(&format!("\\u{:04X}", u32::from(letter)))
                }
                letter => quoted.push(letter),
            }
        }
        quoted + "\""
    };
    match value {
        Some(value) => format!("{}, {}", quoted(option), quoted(value)),
        None => quoted(option),
    }
}

/// Another value in the place of an argument's.
pub fn changed(argument: &Argument, to: &Value) -> Line {
    Line {
        from: Some(written(&argument.option, argument.value.as_deref())),
        to: Some(written(&argument.option, Some(&to.to_string()))),
    }
}

/// A new argument.
fn added(option: &str, value: &str) -> Line {
    Line {
        from: None,
        to: Some(written(option, Some(value))),
    }
}

/// An argument that goes.
fn removed(argument: &Argument) -> Line {
    Line {
        from: Some(written(&argument.option, argument.value.as_deref())),
        to: None,
    }
}
