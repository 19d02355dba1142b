//! How a guest's packets get in and out.

use super::cards::nets;
use super::{Net, Placed, added, changed, in_definition, removed};
use crate::arguments::Value;
use crate::facts::Guest;
use crate::finding::{Answer, Found, Line, Severity, Verdict};

/// Queues beyond which more cost more than they bring: each takes 64 KiB and an interrupt more at both ends, and small packets are
/// sent by fewer at once.
const QUEUES_MOST: u32 = 8;

/// Interrupts of a card beside two for each queue: of its configuration, and of orders to it.
const OTHER_VECTORS: u32 = 2;

/// Asks about each of a guest's cards.
pub fn each(
    placed: Placed<'_>,
    ask: fn(Placed<'_>, &Net<'_>) -> Verdict,
) -> Vec<(Option<String>, Verdict)> {
    match nets(placed.guest) {
        Err(because) => vec![(None, Err(because))],
        Ok(nets) => {
            let answers = nets
                .iter()
                .map(|net| (Some(net.name.clone()), ask(placed, net)));
            answers.collect()
        }
    }
}

/// A guest with several processors has as many queues.
pub fn queues(placed: Placed<'_>, net: &Net<'_>) -> Verdict {
    let guest = placed.guest;
    let can = matches!(net.connection.kind(), "tap" | "vhost-user" | "vhost-vdpa");
    if guest.vcpus < 2 || !can {
        return Ok(Answer::NotAbout);
    }
    let wanted = guest.vcpus.min(QUEUES_MOST);
    let (has, given) = (net.queues(), net.given());
    if has >= wanted {
        return Ok(Answer::Right);
    }
    let read = if given > has {
        format!(
            "1 queue for {} processors: its host's end has {given}, and mq is off",
            guest.vcpus
        )
    } else {
        format!("{has} for {} processors", guest.vcpus)
    };
    let wanted = wanted.max(given);
    let mut by_hand = in_definition(guest);
    if given < wanted && net.connection.get("ifname").is_some() {
        by_hand.push_str(
            "; an interface that is there before has to be made with multi_queue (ip tuntap add)",
        );
    } else if net.connection.get("fds").is_some() || net.connection.kind() != "tap" {
        by_hand.push_str("; who serves the other end has to have as many");
    }
    Ok(Answer::Found(Found {
        severity: Severity::Notice,
        read,
        expected: format!("{wanted}"),
        why: "one processor of the guest, and one thread of the host, do all of its packets: while its memory is copied that is where it is felt"
            .into(),
        cost: None,
        change: None,
        by_hand: Some(by_hand),
        lines: with_queues(net, wanted),
    }))
}

fn with_queues(net: &Net<'_>, wanted: u32) -> Vec<Line> {
    let number = wanted.to_string();
    let given = |value: &Value| {
        // Descriptors that are handed over are as many as somebody opened.
        let by_files = value.get("fds").is_some();
        if by_files {
            value.clone()
        } else {
            value.with("queues", &number)
        }
    };
    let Some((argument, card)) = &net.makes else {
        // `-nic` cannot have `mq`: it becomes the two that it stands for.
        let mut device = Value::of("virtio-net-pci").with("netdev", &net.name);
        if let Some(mac) = net.connection.get("mac") {
            device = device.with("mac", mac);
        }
        let netdev = net
            .connection
            .without("model")
            .without("mac")
            .with("id", &net.name);
        return vec![
            removed(net.connects),
            added("-netdev", &given(&netdev).to_string()),
            added("-device", &device.with("mq", "on").to_string()),
        ];
    };
    let mut device = card.with("mq", "on");
    let least = 2 * wanted + OTHER_VECTORS;
    if card
        .number("vectors")
        .is_some_and(|vectors| vectors < least)
    {
        device = device.with("vectors", &least.to_string());
    }
    let mut lines = Vec::new();
    if net.given() < wanted {
        lines.push(changed(net.connects, &given(&net.connection)));
    }
    if device != *card {
        lines.push(changed(argument, &device));
    }
    lines
}

/// The kernel carries a guest's packets, and not QEMU.
pub fn vhost(placed: Placed<'_>, net: &Net<'_>) -> Verdict {
    let guest = placed.guest;
    if net.connection.kind() != "tap" {
        return Ok(Answer::NotAbout);
    }
    if !is_asked(&net.connection) {
        return Ok(Answer::Found(Found {
            severity: Severity::Notice,
            read: "vhost is off".into(),
            expected: "on".into(),
            why: "QEMU's main thread carries each packet, and the same thread is needed while the guest is moved".into(),
            cost: None,
            change: None,
            by_hand: Some(in_definition(guest)),
            lines: vec![changed(net.connects, &net.connection.with("vhost", "on"))],
        }));
    }
    let Some(seen) = guest.seen.known() else {
        return Ok(Answer::Right);
    };
    let (served, wanted) = (*seen.vhost.get()?, asked_of(guest));
    if served >= wanted {
        return Ok(Answer::Right);
    }
    Ok(Answer::Found(Found {
        severity: Severity::Warning,
        read: format!("vhost is on, and the kernel serves {served} of {wanted} queues"),
        expected: "all".into(),
        why: "QEMU said so on its standard error, and carries the rest itself, by the thread that is needed while the guest is moved"
            .into(),
        cost: None,
        change: None,
        by_hand: Some("modprobe vhost_net, see that /dev/vhost-net is there and may be opened, and start the guest anew".into()),
        lines: Vec::new(),
    }))
}

fn is_asked(connection: &Value) -> bool {
    let by_files = connection.get("vhostfd").is_some() || connection.get("vhostfds").is_some();
    let forced = connection.is_on("vhostforce") == Some(true);
    connection.is_on("vhost").unwrap_or(by_files || forced)
}

/// Queues of all cards of the guest that the kernel is to serve.
fn asked_of(guest: &Guest) -> u32 {
    let nets = nets(guest).unwrap_or_default();
    let asked = nets
        .iter()
        .filter(|net| net.connection.kind() == "tap" && is_asked(&net.connection));
    asked.map(Net::given).sum()
}
