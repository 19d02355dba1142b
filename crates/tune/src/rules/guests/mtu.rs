//! The largest packet of a guest, and of what carries it.

use super::asked::Carrier;
use super::{Net, Placed};
use crate::cost::of_packets;
use crate::facts::{Host, Kind, Layers, Nic, Seen};
use crate::finding::{Answer, Because, Found, Severity, Verdict};

/// What a guest takes that is told nothing.
const USUAL: u32 = 1500;

/// What carries a guest's packets on a host, and the largest that all of it takes.
struct Way {
    least: u32,
    /// Whose that is.
    of: String,
    bridge: Option<String>,
}

/// A guest sends no larger packets than what carries them takes, and knows how large these are.
pub fn mtu(placed: Placed<'_>, net: &Net<'_>) -> Verdict {
    let way = match &net.carrier {
        Carrier::Tap { name, bridge } => of_tap(placed, name.as_deref(), bridge.as_deref())?,
        Carrier::Bridge(bridge) => of_bridge(placed.host, bridge)?,
        Carrier::User | Carrier::Vdpa | Carrier::Other => return Ok(Answer::NotAbout),
    };
    let offered = net.offered_mtu;
    let guests = net.card.map(|card| card.guest_mtu.get());
    let set = match guests {
        Some(Ok(mtu)) => Some(*mtu),
        _ => None,
    };
    // What is told is taken, unless somebody set something else.
    let used = set.or(offered);
    if let Some(used) = used.filter(|used| *used > way.least) {
        return Ok(Answer::Found(too_large(
            placed,
            net,
            &way,
            used,
            set.is_some(),
        )));
    }
    // Where hosts are alike nothing becomes worse by a move.
    let largest = used.unwrap_or(USUAL.min(way.least));
    if let Some(narrow) = narrower(placed, &way, largest) {
        return Ok(Answer::Found(Found {
            severity: Severity::Warning,
            read: format!("{largest} bytes here, and {narrow}"),
            expected: "the same on all hosts".into(),
            why: "once the guest has moved there its large packets vanish, and small ones arrive: its connections stand still".into(),
            cost: None,
            change: None,
            by_hand: Some(format!(
                "set them alike, if the network behind carries that; or tell the guest the least of them ({})",
                net.teller()
            )),
            lines: Vec::new(),
        }));
    }
    if way.least <= USUAL || used == Some(way.least) {
        return Ok(Answer::Right);
    }
    match guests {
        // It may have been set inside, as nothing is told.
        Some(Err(why)) if offered.is_none() => Err(Because(why.to_owned())),
        None if offered.is_none() => Err("the guest does not run, and may set its own".into()),
        _ => Ok(Answer::Found(too_small(
            placed,
            net,
            &way,
            used.unwrap_or(USUAL),
        ))),
    }
}

fn too_large(placed: Placed<'_>, net: &Net<'_>, way: &Way, used: u32, set: bool) -> Found {
    let lines = match set {
        true => Vec::new(),
        false => net.telling(way.least),
    };
    let (said, by_hand) = if set {
        (
            "the guest has set",
            "set it inside the guest, or set what carries it to more if the network behind does"
                .to_owned(),
        )
    } else {
        let by_hand = net.in_definition(placed.guest, &lines);
        ("the guest is told", by_hand)
    };
    Found {
        severity: Severity::Critical,
        read: format!("{said} {used} bytes, and {} takes {}", way.of, way.least),
        expected: format!("{} bytes at most", way.least),
        why: "its large packets vanish, small ones arrive: connections are made, and stand still"
            .into(),
        cost: None,
        change: None,
        by_hand: Some(by_hand),
        lines,
    }
}

fn too_small(placed: Placed<'_>, net: &Net<'_>, way: &Way, used: u32) -> Found {
    let lines = net.telling(way.least);
    Found {
        severity: Severity::Notice,
        read: format!("{used} bytes, and what carries it takes {}", way.least),
        expected: format!("{} bytes", way.least),
        why: "the guest, and the host for it, handle more packets than they have to".into(),
        cost: of_packets(used, way.least),
        change: None,
        by_hand: Some(format!(
            "if all that it talks to takes as much, {}, or set it inside the guest",
            net.in_definition(placed.guest, &lines)
        )),
        lines,
    }
}

/// The first other host whose bridge of that name takes less than the guest uses.
fn narrower(placed: Placed<'_>, way: &Way, used: u32) -> Option<String> {
    let bridge = way.bridge.as_ref()?;
    placed.others.iter().find_map(|other| {
        let there = of_bridge(other, bridge).ok()?;
        let is_less = there.least < used;
        is_less.then(|| format!("{} by {} of {}", there.least, there.of, other.name))
    })
}

/// By its name, which is told while the guest runs; or by the bridge that it is to be in.
fn of_tap(placed: Placed<'_>, name: Option<&str>, bridge: Option<&str>) -> Result<Way, Because> {
    let host = placed.host;
    let running = placed.guest.seen.known().is_some();
    if let Some(bridge) = bridge.filter(|_| name.is_none() && !running) {
        return of_bridge(host, bridge);
    }
    let name = match name {
        Some(name) => name.to_owned(),
        None => only_tap(placed.guest.seen.get()?)?,
    };
    let Some(tap) = host.nic(&name) else {
        return Err(Because(if running {
            format!("{name} is in another network namespace")
        } else {
            format!("{name} is not there while the guest does not run")
        }));
    };
    let over = host
        .nics
        .iter()
        .find(|nic| nic.kind == Kind::Bridge && nic.lower.contains(&name));
    let way = match over {
        Some(bridge) => of_bridge(host, &bridge.name)?,
        None => Way {
            least: u32::MAX,
            of: String::new(),
            bridge: None,
        },
    };
    Ok(least_of(way, [tap]))
}

/// Which of several belongs to which card is not told.
fn only_tap(seen: &Seen) -> Result<String, Because> {
    let taps = seen.taps.get()?;
    let mut taps = taps.iter();
    match (taps.next(), taps.next()) {
        (Some(only), None) => Ok(only.clone()),
        (None, _) => Err("its process has no interface of this host open".into()),
        _ => Err(
            "its process has several interfaces open, and none is named in its definition".into(),
        ),
    }
}

fn of_bridge(host: &Host, name: &str) -> Result<Way, Because> {
    let bridge = host
        .nic(name)
        .ok_or_else(|| Because(format!("{name} was not read")))?;
    // That of an Open vSwitch's own port limits nothing that goes through the switch.
    if bridge.kind != Kind::Bridge {
        return Err(Because(format!("{name} is no bridge of the kernel's")));
    }
    let layers = Layers::of(host);
    let below = layers
        .all_carriers(bridge)
        .into_iter()
        .filter_map(|name| host.nic(name));
    let way = Way {
        least: u32::MAX,
        of: String::new(),
        bridge: Some(name.to_owned()),
    };
    Ok(least_of(way, below.chain([bridge])))
}

fn least_of<'h>(way: Way, nics: impl IntoIterator<Item = &'h Nic>) -> Way {
    nics.into_iter().fold(way, |way, nic| {
        if nic.mtu < way.least {
            Way {
                least: nic.mtu,
                of: nic.name.clone(),
                ..way
            }
        } else {
            way
        }
    })
}
