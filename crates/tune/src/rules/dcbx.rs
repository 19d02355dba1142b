//! Who agrees with the switch on what is held back and shared, and where packets are kept meanwhile.

use std::collections::BTreeSet;
use std::fmt;

use super::dcb::{found, is_about, is_set};
use super::switches::neighbour;
use crate::facts::{Buffers, Dcb, Dcbx, DcbxVersion, Host, Nic, Pfc};
use crate::finding::{Answer, Because, Found, Severity, Verdict};

/// Metres of cable that mlx5 reckons with unless it is told otherwise (`MLX5E_DEFAULT_CABLE_LEN`).
const CABLE: u64 = 7;

/// The switch's settings are taken instead of those of here.
pub(super) fn is_willing(dcb: &Dcb) -> bool {
    dcb.ets.as_ref().is_some_and(|ets| ets.willing)
}

/// The adapter leaves it to the host, and there is no agent.
pub(super) fn nobody_listens(host: &Host, dcb: &Dcb) -> bool {
    let by_host = dcb.dcbx.as_ref().is_some_and(|dcbx| dcbx.host);
    by_host && host.lldpad.known() == Some(&false)
}

/// Whose word on what is held back and shared counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Counts {
    /// The switch's, in whatever language it is heard.
    Switch,
    /// Of whoever set it here.
    Hand,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Switch => "what the switch says",
            Self::Hand => "what is set by hand",
        })
    }
}

/// None where its driver does not tell who negotiates.
///
/// # Errors
/// It is left to the host, and not known whether an agent is there, or what that one takes over.
pub(crate) fn counts(host: &Host, nic: &Nic) -> Result<Option<Counts>, Because> {
    let dcb = nic.dcb.get()?;
    let Some(dcbx) = &dcb.dcbx else {
        return Ok(None);
    };
    if dcbx.by_firmware() {
        return Ok(Some(Counts::Switch));
    }
    if dcbx.fixed || !dcbx.host || !*host.lldpad.get()? {
        return Ok(Some(Counts::Hand));
    }
    // lldpad tells the kernel nothing of its own (`ets_cfg_to_ieee`): that it is not willing says nothing then.
    if is_willing(dcb) {
        return Ok(Some(Counts::Switch));
    }
    let name = &nic.name;
    Err(Because(format!(
        "lldpad runs, and keeps by itself whether it takes over what the switch says (lldptool get-tlv -i {name} -V ETS-CFG -c willing, and -V PFC)"
    )))
}

/// Who agrees with the switch, in words.
pub(crate) fn manager(dcbx: &Dcbx) -> String {
    if dcbx.fixed {
        "nobody: it is fixed".to_owned()
    } else if dcbx.by_firmware() {
        format!("firmware, in {}", languages(&dcbx.versions))
    } else if dcbx.host {
        "the host".to_owned()
    } else {
        "nobody".to_owned()
    }
}

fn languages(versions: &BTreeSet<DcbxVersion>) -> String {
    match Vec::from_iter(versions)[..] {
        [] => "a language that is not told".to_owned(),
        [one] => one.to_string(),
        _ => "IEEE or CEE".to_owned(),
    }
}

/// One agent speaks with the switch, in the switch's language.
pub fn agent(host: &Host, nic: &Nic) -> Verdict {
    if !is_about(host, nic) {
        return Ok(Answer::NotAbout);
    }
    let dcb = nic.dcb.get()?;
    let dcbx = dcb
        .dcbx
        .as_ref()
        .ok_or("its driver does not tell who negotiates")?;
    let name = &nic.name;
    // lldpad keeps out then, or does not speak (`ieee8021qaz_ifup`, `dcbx_ifup`).
    if dcbx.by_firmware() {
        return in_its_language(host, nic, dcb, dcbx);
    }
    // What was set with that counts.
    if !(dcbx.host && is_willing(dcb) && is_set(dcb)) || *host.lldpad.get()? {
        return Ok(Answer::Right);
    }
    let Some(switch) = neighbour(host, nic)? else {
        return Ok(Answer::Right);
    };
    if switch.dcbx.is_empty() {
        return Ok(Answer::Right);
    }
    Ok(Answer::Found(Found {
        severity: Severity::Notice,
        ..found(
            format!(
                "willing to take what the switch says in {}, and left to the host, where nobody listens",
                languages(&switch.dcbx)
            ),
            "an agent that does, or not willing",
            "what the switch says is not taken over, and it is not told what is set here: both ends are alike by chance",
            format!(
                "dcb ets set dev {name} willing off, and the same settings at the switch; or lldpad for it"
            ),
        )
    }))
}

/// Where nobody set anything here nothing need be held back, or have a share.
pub(super) fn severity(dcb: &Dcb) -> Severity {
    if is_set(dcb) {
        Severity::Warning
    } else {
        Severity::Notice
    }
}

fn in_its_language(host: &Host, nic: &Nic, dcb: &Dcb, dcbx: &Dcbx) -> Verdict {
    let Some(switch) = neighbour(host, nic)? else {
        return Ok(Answer::Right);
    };
    // A switch that says nothing of it has nobody to agree with.
    let (own, theirs) = (&dcbx.versions, &switch.dcbx);
    if own.is_empty() || theirs.is_empty() || !own.is_disjoint(theirs) {
        return Ok(Answer::Right);
    }
    Ok(Answer::Found(Found {
        severity: severity(dcb),
        ..found(
            format!(
                "{}, and the switch speaks {}",
                manager(dcbx),
                languages(&switch.dcbx)
            ),
            "one language",
            "neither hears what the other one holds back and shares, so that each has its own",
            "have the switch's port speak the adapter's (IEEE 802.1Qaz where both can), or set both by hand".into(),
        )
    }))
}

/// What is held back has places of its own, and enough of them.
pub fn buffer(host: &Host, nic: &Nic) -> Verdict {
    if !is_about(host, nic) {
        return Ok(Answer::NotAbout);
    }
    let dcb = nic.dcb.get()?;
    let Some(pfc) = dcb.pfc.as_ref().filter(|pfc| !pfc.enabled.is_empty()) else {
        return Ok(Answer::NotAbout);
    };
    let buffers = dcb
        .buffers
        .as_ref()
        .ok_or("its driver does not tell where it keeps what arrives")?;
    if let Some(wrong) = shared_place(&nic.name, pfc, buffers) {
        return Ok(Answer::Found(wrong));
    }
    let rate = nic.link.get()?.speed.ok_or("it tells no rate")?;
    let least = needed(rate.0 / 1_000_000, u64::from(nic.mtu));
    let of = |priority: &u8| -> Option<(u8, u8, u32)> {
        let buffer = *buffers.of_priority.get(usize::from(*priority))?;
        let size = *buffers.sizes.get(usize::from(buffer))?;
        Some((*priority, buffer, size))
    };
    let mut all = pfc.enabled.iter().filter_map(of);
    let small = all.find(|(.., size)| u64::from(*size) < least);
    let Some((priority, number, size)) = small else {
        return Ok(Answer::Right);
    };
    Ok(Answer::Found(found(
        format!("buffer {number} of priority {priority} has {size} bytes"),
        &format!("{least} bytes at least"),
        "what is on its way when the other end is told to stop finds no place, and is lost although it is to be held back",
        format!(
            "dcb buffer set dev {} buffer-size {number}:{least}, from one that has more",
            nic.name
        ),
    )))
}

/// A priority that is held back beside one that is not.
fn shared_place(nic: &str, pfc: &Pfc, buffers: &Buffers) -> Option<Found> {
    let places = (0_u8..8).zip(&buffers.of_priority);
    let (held, free): (Vec<_>, Vec<_>) =
        places.partition(|(priority, _)| pfc.enabled.contains(priority));
    let (priority, buffer) = held
        .into_iter()
        .find(|(_, buffer)| free.iter().any(|(_, other)| other == buffer))?;
    let beside = free.iter().filter(|(_, other)| *other == buffer);
    let beside: Vec<String> = beside.map(|(priority, _)| priority.to_string()).collect();
    Some(found(
        format!(
            "priority {priority}, which is held back alone, has buffer {buffer} with {}",
            beside.join(", ")
        ),
        "a buffer of its own",
        "others fill it without being held back: it is held back for them, and loses packets all the same",
        format!("dcb buffer set dev {nic} prio-buffer {priority}:N, with a size of its own"),
    ))
}

/// Bytes that arrive after the other end was told to stop, and one packet, as mlx5 reckons (`calculate_xoff`): 301 and 2.16 for each metre, for
/// each Gbit/s, and 2.72 packets.
fn needed(mbit: u64, mtu: u64) -> u64 {
    (301 + 216 * CABLE / 100) * mbit / 1000 + 272 * mtu / 100 + mtu
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_to_find_a_place_grows_with_the_rate_and_the_packets() {
        // 316 of each of 25 Gbit/s, and 3.72 packets.
        assert_eq!(needed(25_000, 9000), 7900 + 24_480 + 9000);
        assert_eq!(needed(100_000, 1500), 31_600 + 4080 + 1500);
        assert_eq!(needed(0, 0), 0);
    }
}
