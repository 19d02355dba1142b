//! What switches say of their ends of the cables.

use std::collections::BTreeMap;

use super::used::{is_infiniband, is_used};
use crate::change::quoted;
use crate::facts::{Fact, Host, Kind, Listening, Neighbour, Nic};
use crate::finding::{Answer, Because, Found, Severity, Verdict};

/// What Ethernet adds to a packet: 14 bytes before it, 4 behind it.
const FRAME: u32 = 18;

/// The one at the other end; several mean that something is in between.
pub(super) fn neighbour<'n>(host: &Host, nic: &'n Nic) -> Result<Option<&'n Neighbour>, Because> {
    // What is said of a cable that is out is old.
    if !is_used(host, nic) || nic.kind != Kind::Adapter || !nic.carrier || is_infiniband(nic) {
        return Ok(None);
    }
    match nic.neighbours.known().map(Vec::as_slice) {
        Some([one]) => Ok(Some(one)),
        Some([]) | None => Err(unheard(host, nic)),
        Some(_) => Err(Because::from(
            "several say by LLDP that they are at the other end",
        )),
    }
}

/// How often switches speak, unless they were told otherwise (`msgTxInterval`, 802.1AB).
const INTERVAL_S: u64 = 30;

/// Drivers of adapters whose firmware takes what switches say by LLDP for itself, and the flag that has it handed on
/// (`Documentation/networking/device_drivers/ethernet/intel`).
const KEEP_LLDP: [(&str, &str); 2] = [("i40e", "disable-fw-lldp on"), ("ice", "fw-lldp-agent off")];

/// Why nobody is heard.
fn unheard(host: &Host, nic: &Nic) -> Because {
    let nothing = match (&nic.listening, &nic.neighbours) {
        (Some(listening), _) => match silence(host, listening) {
            Ok(nothing) => nothing,
            Err(early) => return early,
        },
        // Nobody listens.
        (None, Fact::Unknown(why)) => return Because(why.clone()),
        (None, Fact::Known(_)) => "the other end says nothing by LLDP".to_owned(),
    };
    let driver = nic.driver.known().map(String::as_str);
    let keeps = KEEP_LLDP.iter().find(|(name, _)| driver == Some(*name));
    // Where it does not, these leave DCBX to the host.
    let hands_on = nic.dcb.known().and_then(|dcb| dcb.dcbx.as_ref());
    let hands_on = hands_on.is_some_and(|dcbx| dcbx.host);
    match keeps.filter(|_| !hands_on) {
        None => Because(nothing),
        Some((_, flag)) => Because(format!(
            "{nothing}, or the adapter's firmware keeps it for itself: `ethtool --set-priv-flags {} {flag}` has it handed on",
            quoted(&nic.name)
        )),
    }
}

/// For how long nobody was heard, or why that says nothing yet.
fn silence(host: &Host, listening: &Listening) -> Result<String, Because> {
    let since = &listening.since;
    let uptime = host.uptime_s.known();
    let Some(seconds) = uptime.map(|uptime| uptime.saturating_sub(listening.uptime_s)) else {
        return Ok(format!("nobody was heard by LLDP since {since}"));
    };
    if seconds < INTERVAL_S {
        return Err(Because(format!(
            "its agent listens for LLDP since {since}, for {seconds} s: switches speak each {INTERVAL_S} s, so look again then"
        )));
    }
    Ok(format!(
        "nobody was heard by LLDP in {seconds} s, since {since}"
    ))
}

/// By what people call it, or else by what it calls itself.
pub(crate) fn called(neighbour: &Neighbour) -> &str {
    neighbour.name.as_deref().unwrap_or(&neighbour.switch)
}

/// A switch's port takes the packets that are sent to it.
pub fn frames(host: &Host, nic: &Nic) -> Verdict {
    let Some(neighbour) = neighbour(host, nic)? else {
        return Ok(Answer::NotAbout);
    };
    let frame = neighbour
        .frame
        .ok_or("the switch does not tell its largest frame")?;
    if frame >= nic.mtu + FRAME {
        return Ok(Answer::Right);
    }
    let fits = frame.saturating_sub(FRAME);
    Ok(Answer::Found(Found {
        severity: Severity::Warning,
        read: format!(
            "packets of {} bytes, and {} of {} takes {fits}",
            nic.mtu,
            neighbour.port,
            called(neighbour)
        ),
        expected: format!("{} bytes at the switch, or {fits} here", nic.mtu),
        why: "large packets vanish at the switch, small ones arrive: connections are made, and stand still".into(),
        cost: None,
        change: None,
        by_hand: Some(
            "have the switch's port take larger frames, on the whole way; what it says may also be wrong: `path-mtu` asks the path itself".into(),
        ),
        lines: Vec::new(),
    }))
}

/// Both ends of a cable negotiate, or neither does.
pub fn negotiation(host: &Host, nic: &Nic) -> Verdict {
    let Some(neighbour) = neighbour(host, nic)? else {
        return Ok(Answer::NotAbout);
    };
    let theirs = neighbour
        .negotiates
        .ok_or("the switch does not tell whether its port negotiates")?;
    let link = nic.link.get()?;
    let ours = link.negotiates.ok_or("there is nothing to agree on")?;
    if ours == theirs {
        return Ok(Answer::Right);
    }
    let [here, there] = [ours, theirs].map(|on| {
        if on {
            "negotiates"
        } else {
            "does not negotiate"
        }
    });
    Ok(Answer::Found(Found {
        severity: Severity::Notice,
        read: format!("this end {here}, and {} of {} {there}", neighbour.port, called(neighbour)),
        expected: "both ends the same way".into(),
        why: "one end guesses what the other one was set to; after the next restart of either the link may be slower, or not come at all"
            .into(),
        cost: None,
        change: None,
        by_hand: Some("have both ends negotiate, or set both to one rate".into()),
        lines: Vec::new(),
    }))
}

/// Lines of one host end at more than one switch.
pub fn one(host: &Host) -> Verdict {
    let mut at: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let (mut unknown, mut name) = (None, "");
    let adapters = host
        .nics
        .iter()
        .filter(|nic| is_used(host, nic) && nic.kind == Kind::Adapter);
    for nic in adapters {
        match neighbour(host, nic) {
            Ok(Some(neighbour)) => {
                name = called(neighbour);
                at.entry(&neighbour.switch).or_default().push(&nic.name);
            }
            Ok(None) => {}
            Err(why) => unknown = Some(why),
        }
    }
    let all: Vec<&str> = at.values().flatten().copied().collect();
    match (at.len(), unknown) {
        (2.., _) => Ok(Answer::Right),
        (_, Some(why)) => Err(why),
        _ if all.len() < 2 => Ok(Answer::NotAbout),
        _ => Ok(Answer::Found(Found {
            severity: Severity::Notice,
            read: format!("{} all end at {name}", all.join(", ")),
            expected: "two switches".into(),
            why: "when it is restarted every path of a migration is lost at once: the move ends, or waits".into(),
            cost: None,
            change: None,
            by_hand: Some("move one cable to another switch, if the hosts' other ends are there, too".into()),
            lines: Vec::new(),
        })),
    }
}
