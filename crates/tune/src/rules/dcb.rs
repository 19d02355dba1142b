//! What an adapter and the switch do when a line is full.

use std::collections::BTreeSet;

use drover_types::BitRate;

use super::dcbx::{is_willing, nobody_listens, severity};
use super::of_nic;
use super::roce::of_roce;
use super::used::{is_infiniband, is_used};
use crate::change::{Disruption, NicSetting, pause_words, quoted};
use crate::cost::of_rate;
use crate::facts::{Dcb, Ets, Host, Kind, Nic, Pause, Pfc};
use crate::finding::{Answer, Because, Found, Severity, Verdict};

/// Below it a migration is better off with fewer bytes than with this line; half of a slower one is fair.
const LEAST: BitRate = BitRate(5_000_000_000);

/// Packets that nobody gave a priority have this one: connections of migrations do.
const USUAL: usize = 0;

/// A class that gets a share (`IEEE_8021QAZ_TSA_ETS`).
const BY_SHARE: u8 = 2;

/// A class that is sent before all others (`IEEE_8021QAZ_TSA_STRICT`).
const STRICT: u8 = 0;

/// Classes that the kernel and `dcb` know (`IEEE_8021QAZ_MAX_TCS`); groups of CEE are more.
const CLASSES: usize = 8;

/// A class with all of the line, in percent, shares it with none.
const WHOLE: u8 = 100;

/// Bits that a pause frame holds a line for, at most: 65535 times 512.
const HELD_BITS: u64 = 65_535 * 512;

/// A driver that turns pause frames off for PFC by itself, and goes on telling what they were (`ixgbe_dcb_config_pfc_82599`).
const TELLS_BEFORE: &str = "ixgbe";

/// Of the time since the start, one part of so many: less is nothing.
const OF_TIME: u64 = 1000;

pub(super) fn is_about(host: &Host, nic: &Nic) -> bool {
    is_used(host, nic) && nic.kind == Kind::Adapter && !is_infiniband(nic)
}

/// Priorities that are held back alone, in words.
pub(crate) fn listed(pfc: &Pfc) -> String {
    match enabled(Some(pfc)).join(", ") {
        none if none.is_empty() => "no priority".to_owned(),
        some => format!("priority {some}"),
    }
}

fn enabled(pfc: Option<&Pfc>) -> Vec<String> {
    let enabled = pfc.iter().flat_map(|pfc| &pfc.enabled);
    enabled.map(u8::to_string).collect()
}

pub(super) fn found(read: String, expected: &str, why: &str, by_hand: String) -> Found {
    Found {
        severity: Severity::Warning,
        read,
        expected: expected.to_owned(),
        why: why.to_owned(),
        cost: None,
        change: None,
        by_hand: Some(by_hand),
        lines: Vec::new(),
    }
}

/// Packets are held back one way.
pub fn pause(host: &Host, nic: &Nic) -> Verdict {
    if !is_about(host, nic) {
        return Ok(Answer::NotAbout);
    }
    let (dcb, pause) = (nic.dcb.get()?, nic.pause.get()?);
    let priorities = enabled(dcb.pfc.as_ref());
    if priorities.is_empty() || !(pause.receive || pause.send) {
        return Ok(Answer::Right);
    }
    let driver = nic.driver.known();
    if driver.is_some_and(|driver| driver == TELLS_BEFORE) {
        return Err(Because::from("its driver tells what was before PFC"));
    }
    let read = format!(
        "pause frames, and PFC for priority {}",
        priorities.join(", ")
    );
    // Drivers such as i40e and ice refuse to have changed whether ends agree.
    let off = pause_words(&Pause {
        agreed: pause.agreed,
        ..Pause::default()
    });
    Ok(Answer::Found(Found {
        change: Some(of_nic(
            Disruption::BouncesLink,
            nic,
            NicSetting::Pause,
            pause_words(pause),
            off,
        )),
        ..found(
            read,
            "one of them",
            "a pause frame holds all priorities back, also those that PFC is to keep going",
            "turn them off at the switch's port, too; or PFC, if that is not meant".into(),
        )
    }))
}

/// The switch does the same as this end.
pub fn peer(host: &Host, nic: &Nic) -> Verdict {
    if !is_about(host, nic) {
        return Ok(Answer::NotAbout);
    }
    let dcb = nic.dcb.get()?;
    if dcb.peer_pfc.is_none() && dcb.peer_ets.is_none() {
        return Err(Because::from(
            "the switch tells nothing of it, or nothing here listens to LLDP",
        ));
    }
    let (differ, untold) = differences(dcb);
    let peer = Dcb {
        pfc: dcb.peer_pfc.clone(),
        ets: dcb.peer_ets.clone(),
        ..Dcb::default()
    };
    if differ.is_empty() {
        return match untold {
            Some(why) => Err(Because(why)),
            None if is_set(dcb) || is_set(&peer) => Ok(Answer::Right),
            None => Ok(Answer::NotAbout),
        };
    }
    Ok(Answer::Found(Found {
        severity: severity(dcb),
        ..found(
            differ.join("; "),
            "the same at both ends",
            "what one end holds back, or keeps a share for, the other one drops, or sends at will",
            set_alike(&nic.name, dcb),
        )
    }))
}

/// What people do about it, with the command that has this end hold back what the switch does.
fn set_alike(nic: &str, dcb: &Dcb) -> String {
    let dev = quoted(nic);
    let both = format!(
        "set both alike: `dcb pfc show dev {dev}` and `dcb ets show dev {dev}` tell of this one"
    );
    match (&dcb.pfc, &dcb.peer_pfc) {
        (Some(own), Some(peer)) if own.enabled != peer.enabled => {
            let on = peer
                .enabled
                .iter()
                .map(|priority| format!(" {priority}:on"));
            let on: String = on.collect();
            format!(
                "{both}; to have it hold back what the switch does: dcb pfc set dev {dev} prio-pfc all:off{on}"
            )
        }
        _ => both,
    }
}

/// What is set otherwise at both ends; and why of something that one of them has set it is not known. What drivers and switches tell that
/// nobody set is nothing.
fn differences(dcb: &Dcb) -> (Vec<String>, Option<String>) {
    let pfc = |pfc: &Option<Pfc>| {
        let of = |pfc: &Pfc| (!pfc.enabled.is_empty()).then(|| listed(pfc));
        pfc.as_ref().map(of)
    };
    let ets = |ets: &Option<Ets>| ets.as_ref().map(shared);
    let both = [
        ("PFC", pfc(&dcb.pfc), pfc(&dcb.peer_pfc)),
        ("shares", ets(&dcb.ets), ets(&dcb.peer_ets)),
    ];
    let (mut differ, mut untold) = (Vec::new(), None);
    for (what, own, peer) in both {
        match (own, peer) {
            (Some(own), Some(peer)) if own != peer => {
                let [own, peer] = [own, peer].map(|set| set.unwrap_or_else(|| "none".to_owned()));
                differ.push(format!("{what}: {own} here, and {peer} at the switch"));
            }
            (Some(Some(_)), None) => untold = Some(format!("the switch does not tell {what}")),
            (None, Some(Some(_))) => untold = Some(format!("its driver does not tell {what}")),
            _ => {}
        }
    }
    let [own, peer] = [&dcb.apps, &dcb.peer_apps].map(|apps| of_roce(apps, None));
    if !own.is_empty() && !peer.is_empty() && own != peer {
        let words =
            |own: &BTreeSet<u8>| own.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
        differ.push(format!(
            "RoCE has priority {} here, and {} at the switch",
            words(&own),
            words(&peer)
        ));
    }
    (differ, untold)
}

/// Migrations get a share of a full line that is worth having.
pub fn share(host: &Host, nic: &Nic) -> Verdict {
    if !is_about(host, nic) {
        return Ok(Answer::NotAbout);
    }
    let dcb = nic.dcb.get()?;
    let Some(share) = dcb.ets.as_ref().and_then(usual_share) else {
        return Ok(Answer::Right);
    };
    let rate = nic.link.get()?.speed.ok_or("it tells no rate")?;
    let (own, least) = (
        BitRate(rate.0 / 100 * u64::from(share)),
        LEAST.min(BitRate(rate.0 / 2)),
    );
    if own >= least {
        return Ok(Answer::Right);
    }
    Ok(Answer::Found(Found {
        severity: Severity::Notice,
        cost: of_rate(own, rate),
        ..found(
            format!(
                "priority {USUAL}, which migrations have, gets {share} % when others send: {own}"
            ),
            "5 Gbit/s at least",
            "while storage or RDMA send as much as they can, migrations get no more than their share",
            give_more(nic, least),
        )
    }))
}

/// What gives the class of migrations so much of the line, in percent of it, where all shares are known.
fn give_more(nic: &Nic, least: BitRate) -> String {
    let ets = nic.dcb.known().and_then(|dcb| dcb.ets.as_ref());
    let rate = nic.link.known().and_then(|link| link.speed);
    let shares = ets.zip(rate).and_then(|(ets, rate)| {
        let percent = least.0.div_ceil((rate.0 / 100).max(1));
        with_share(ets, u8::try_from(percent).ok()?)
    });
    match shares {
        Some(shares) => format!(
            "give its class more: dcb ets set dev {} tc-bw {shares}, and the same at the switch",
            quoted(&nic.name)
        ),
        None => "give its class more (dcb ets set, tc-bw), and the same at the switch".to_owned(),
    }
}

/// Shares with so much for the usual class, and the others by what they have now, as `dcb ets set` takes them: 100 together. None where
/// they are no 100 now, or one of them would be left with nothing.
fn with_share(ets: &Ets, wanted: u8) -> Option<String> {
    let usual = usize::from(*ets.classes.get(USUAL)?);
    let all = ets.shares.iter().zip(&ets.algorithms).enumerate();
    let all = all.filter(|(_, (share, how))| **how == BY_SHARE && **share > 0);
    let mut shares: Vec<(usize, u32)> = all
        .map(|(class, (share, _))| (class, u32::from(*share)))
        .collect();
    let whole = u32::from(WHOLE);
    let own = shares.iter().find(|(class, _)| *class == usual)?.1;
    if ets.shares.len() != CLASSES || shares.iter().map(|(_, share)| share).sum::<u32>() != whole {
        return None;
    }
    let (others, left) = (whole.checked_sub(own)?, whole.checked_sub(wanted.into())?);
    for (class, share) in &mut shares {
        *share = match *class == usual {
            true => wanted.into(),
            false => (*share * left).checked_div(others)?,
        };
    }
    // What was rounded away is the largest one's.
    let given: u32 = shares.iter().map(|(_, share)| share).sum();
    let largest = shares.iter_mut().filter(|(class, _)| *class != usual);
    largest.max_by_key(|(_, share)| *share)?.1 += whole.checked_sub(given)?;
    let words = shares
        .iter()
        .map(|(class, share)| format!("{class}:{share}"));
    let words: Vec<String> = words.collect();
    shares
        .iter()
        .all(|(_, share)| *share > 0)
        .then(|| words.join(" "))
}

/// Migrations are not held to less than the line, whoever else sends.
pub fn most(host: &Host, nic: &Nic) -> Verdict {
    if !is_about(host, nic) {
        return Ok(Answer::NotAbout);
    }
    let dcb = nic.dcb.get()?;
    let class = dcb.ets.as_ref().and_then(|ets| ets.classes.get(USUAL));
    let class = usize::from(class.copied().unwrap_or(0));
    let most = dcb.rates.as_ref().and_then(|rates| rates.get(class));
    let Some(most) = most.filter(|most| **most > 0) else {
        return Ok(Answer::Right);
    };
    let rate = nic.link.get()?.speed.ok_or("it tells no rate")?;
    let most = BitRate(most.saturating_mul(1000));
    if most >= rate {
        return Ok(Answer::Right);
    }
    Ok(Answer::Found(Found {
        cost: of_rate(most, rate),
        ..found(
            format!("priority {USUAL}, which migrations have, may send {most} at most"),
            "no bound below the line's rate",
            "the adapter holds its class to that, also while nobody else sends",
            // No rate: iproute2 before 6.18 tells the kernel bytes a second where that takes kbit/s.
            format!(
                "if it is not meant: dcb maxrate set dev {} tc-maxrate {class}:0",
                nic.name
            ),
        )
    }))
}

/// Percent of the line, where it is by shares.
fn usual_share(ets: &Ets) -> Option<u8> {
    let class = usize::from(*ets.classes.get(USUAL)?);
    let by_share = *ets.algorithms.get(class)? == BY_SHARE;
    ets.shares.get(class).copied().filter(|_| by_share)
}

/// What priorities get of a full line, those of one class together; none where no two classes share it. What a class is called is each
/// driver's own choice.
pub(crate) fn shared(ets: &Ets) -> Option<String> {
    let mut classes: Vec<(u8, Vec<String>)> = Vec::new();
    for (priority, class) in ets.classes.iter().enumerate() {
        let priority = priority.to_string();
        match classes.iter_mut().find(|(known, _)| known == class) {
            Some((_, priorities)) => priorities.push(priority),
            None => classes.push((*class, vec![priority])),
        }
    }
    let served = |class: u8| {
        let class = usize::from(class);
        let share = ets.shares.get(class).copied();
        (ets.algorithms.get(class).copied(), share)
    };
    let has_part = |(class, _): &(u8, Vec<String>)| matches!(served(*class), (Some(BY_SHARE), Some(share)) if share < WHOLE);
    let all = classes.iter().map(|(class, priorities)| {
        let gets = match served(*class) {
            (Some(BY_SHARE), Some(share)) => format!("{share} %"),
            (Some(STRICT), _) => "all before others".to_owned(),
            _ => "what its driver gives".to_owned(),
        };
        format!("{gets} for priority {}", priorities.join(", "))
    });
    let mut parts = classes.iter();
    parts
        .any(has_part)
        .then(|| all.collect::<Vec<_>>().join("; "))
}

/// Somebody has priorities held back, or has classes share the line: drivers tell of what nobody set in many ways.
pub(super) fn is_set(dcb: &Dcb) -> bool {
    let is_shared = dcb.ets.as_ref().is_some_and(|ets| shared(ets).is_some());
    is_shared || !enabled(dcb.pfc.as_ref()).is_empty()
}

/// What was set here is not overwritten by a switch.
pub fn willing(host: &Host, nic: &Nic) -> Verdict {
    if !is_about(host, nic) {
        return Ok(Answer::NotAbout);
    }
    let dcb = nic.dcb.get()?;
    let priorities = enabled(dcb.pfc.as_ref());
    // Where nobody would take it over nothing is: `dcb-agent` tells.
    if !is_willing(dcb) || priorities.is_empty() || nobody_listens(host, dcb) {
        return Ok(Answer::Right);
    }
    Ok(Answer::Found(Found {
        severity: Severity::Notice,
        ..found(
            format!("willing, with PFC for priority {}", priorities.join(", ")),
            "not willing",
            "whatever the switch's port says by LLDP is taken instead of what was set here, and differs from port to port",
            format!("dcb ets set dev {} willing off", nic.name),
        )
    }))
}

/// RDMA over Ethernet loses no packets.
pub fn lossless(host: &Host, nic: &Nic) -> Verdict {
    let rdma = nic.rdma.as_ref().and_then(|rdma| rdma.known());
    let is_roce = rdma.is_some_and(|rdma| rdma.kinds.keys().any(|kind| kind.contains("RoCE")));
    if !is_about(host, nic) || !is_roce {
        return Ok(Answer::NotAbout);
    }
    let (dcb, pause) = (nic.dcb.get()?, nic.pause.get()?);
    if !enabled(dcb.pfc.as_ref()).is_empty() || pause.receive && pause.send {
        return Ok(Answer::Right);
    }
    Ok(Answer::Found(Found {
        severity: Severity::Notice,
        ..found(
            "RoCE, with neither PFC nor pause frames".into(),
            "PFC for the priority of RDMA, here and at the switch",
            "adapters send all again that was behind a lost packet; connections of TCP do not mind",
            format!(
                "if RDMA is used: dcb pfc set dev {} prio-pfc 3:on, and the same at the switch",
                nic.name
            ),
        )
    }))
}

/// A line is not held back all the time.
pub fn pressure(host: &Host, nic: &Nic) -> Verdict {
    if !is_about(host, nic) {
        return Ok(Answer::NotAbout);
    }
    let pause = nic.pause.get()?;
    let pfc = nic.dcb.known().and_then(|dcb| dcb.pfc.as_ref());
    let sum = |pause: Option<u64>, pfc: Option<u64>| match (pause, pfc) {
        (None, None) => None,
        (pause, pfc) => Some(pause.unwrap_or(0).saturating_add(pfc.unwrap_or(0))),
    };
    let sent = sum(pause.sent, pfc.and_then(|pfc| pfc.sent));
    let received = sum(pause.received, pfc.and_then(|pfc| pfc.received));
    let (Some(sent), Some(received)) = (sent, received) else {
        return Err(Because::from("its driver does not count pause frames"));
    };
    let rate = nic.link.get()?.speed.ok_or("it tells no rate")?;
    let uptime = *host.uptime_s.get()?;
    let (most, who) = if received >= sent {
        (received, "the switch held this host back")
    } else {
        (sent, "this host held the switch back")
    };
    let held = u128::from(most) * u128::from(HELD_BITS) / u128::from(rate.0.max(1));
    if held * u128::from(OF_TIME) <= u128::from(uptime) {
        return Ok(Answer::Right);
    }
    Ok(Answer::Found(Found {
        severity: Severity::Notice,
        cost: Some(format!("up to {held} s of {uptime} since the host was started")),
        ..found(
            format!("{most} pause frames: {who}"),
            "next to none",
            "nothing is sent meanwhile, and queues on the way fill for others, too",
            "look whether it becomes more: if so, look for what cannot keep up: a slower port at the switch, or too few queues and processors here"
                .into(),
        )
    }))
}
