//! How a guest's packets get in and out.

use super::asked::{Carrier, nets};
use super::{Net, Placed};
use crate::facts::Guest;
use crate::finding::{Answer, Because, Found, Severity, Verdict};

/// Queues beyond which more cost more than they bring: each takes 64 KiB and an interrupt more at both ends, and small packets are
/// sent by fewer at once.
const QUEUES_MOST: u32 = 8;

/// Asks about each of a guest's cards.
pub fn each(
    placed: Placed<'_>,
    ask: fn(Placed<'_>, &Net<'_>) -> Verdict,
) -> Vec<(Option<String>, Verdict)> {
    let answers = nets(placed.guest).into_iter().map(|net| match net {
        Ok(net) => (Some(net.name.clone()), ask(placed, &net)),
        Err(because) => (None, Err(because)),
    });
    answers.collect()
}

/// A guest with several processors has as many queues.
pub fn queues(placed: Placed<'_>, net: &Net<'_>) -> Verdict {
    let guest = placed.guest;
    let is_tap = matches!(net.carrier, Carrier::Tap { .. });
    let can = is_tap || matches!(net.carrier, Carrier::User | Carrier::Vdpa);
    if guest.vcpus < 2 || !can {
        return Ok(Answer::NotAbout);
    }
    let wanted = guest.vcpus.min(QUEUES_MOST);
    let (has, given) = (net.queues(), net.given);
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
    let lines = net.with_queues(wanted);
    let mut by_hand = net.in_definition(guest, &lines);
    let is_there_before =
        matches!(&net.carrier, Carrier::Tap { name: Some(_), .. } if net.made_before());
    if given < wanted && is_there_before {
        by_hand.push_str(
            "; an interface that is there before has to be made with multi_queue (ip tuntap add)",
        );
    } else if net.handed || !is_tap {
        by_hand.push_str("; who serves the other end has to have as many");
    }
    if net.by_network {
        by_hand.push_str("; only where its network has a bridge: of an adapter that a network hands over libvirt starts no domain with several queues");
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
        lines,
    }))
}

/// The kernel carries a guest's packets, and not QEMU.
pub fn vhost(placed: Placed<'_>, net: &Net<'_>) -> Verdict {
    let guest = placed.guest;
    if !matches!(net.carrier, Carrier::Tap { .. }) {
        return Ok(Answer::NotAbout);
    }
    if !net.vhost.clone()? {
        let lines = net.with_vhost();
        return Ok(Answer::Found(Found {
            severity: Severity::Notice,
            read: "vhost is off".into(),
            expected: "on".into(),
            why: "QEMU's main thread carries each packet, and the same thread is needed while the guest is moved".into(),
            cost: None,
            change: None,
            by_hand: Some(net.in_definition(guest, &lines)),
            lines,
        }));
    }
    let Some(seen) = guest.seen.known() else {
        return Ok(Answer::Right);
    };
    let (served, wanted) = (*seen.vhost.get()?, asked_of(guest)?);
    if served >= wanted {
        return Ok(Answer::Right);
    }
    Ok(Answer::Found(Found {
        severity: Severity::Warning,
        read: format!("vhost is on, and the kernel serves {served} of {wanted} queues"),
        expected: "all".into(),
        why: "QEMU carries the rest itself, by the thread that is needed while the guest is moved; whoever started it may have said so in its log"
            .into(),
        cost: None,
        change: None,
        by_hand: Some("modprobe vhost_net, see that /dev/vhost-net is there and may be opened, and start the guest anew".into()),
        lines: Vec::new(),
    }))
}

/// Queues of all cards of the guest that the kernel is to serve.
fn asked_of(guest: &Guest) -> Result<u32, Because> {
    let mut asked: u32 = 0;
    for net in nets(guest) {
        let net = net?;
        if matches!(net.carrier, Carrier::Tap { .. }) && net.vhost.clone()? {
            asked = asked.saturating_add(net.given);
        }
    }
    Ok(asked)
}
