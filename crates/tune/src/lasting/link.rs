//! udev's `.link` files. Source: systemd.link(5).

use super::owners::LinkFile;
use super::{How, Lasting};
use crate::change::{NicSetting, read_pause};
use crate::link::modes_of;
use crate::negotiation::Negotiation;

const BY: &str = "systemd .link";

/// Lines of the part `[Link]`.
///
/// # Errors
/// Why there are none.
pub(super) fn lines(what: &NicSetting, from: &str, to: &str) -> Result<Vec<String>, String> {
    let switch = |key: &str| {
        let word = if to == "on" { "yes" } else { "no" };
        Ok(vec![format!("{key}={word}")])
    };
    match what {
        NicSetting::Mtu => Ok(vec![format!("MTUBytes={to}")]),
        NicSetting::CombinedChannels => Ok(vec![format!("CombinedChannels={to}")]),
        NicSetting::ReceiveRing => Ok(vec![format!("RxBufferSize={to}")]),
        NicSetting::AdaptiveReceive => switch("UseAdaptiveRxCoalesce"),
        NicSetting::Feature(name) => match name.as_str() {
            "rx-checksum" => switch("ReceiveChecksumOffload"),
            "rx-gro" => switch("GenericReceiveOffload"),
            "rx-lro" => switch("LargeReceiveOffload"),
            other => Err(format!("a .link has no word for {other}")),
        },
        NicSetting::Negotiation => negotiation(from, to),
        NicSetting::Pause => {
            let pause = read_pause(to).ok_or_else(|| format!("a .link has no word for {to:?}"))?;
            let word = |on: bool| if on { "yes" } else { "no" };
            let agreed = pause
                .agreed
                .map(|on| format!("AutoNegotiationFlowControl={}", word(on)));
            let both = [
                format!("RxFlowControl={}", word(pause.receive)),
                format!("TxFlowControl={}", word(pause.send)),
            ];
            Ok(agreed.into_iter().chain(both).collect())
        }
        NicSetting::Fec => Err("a .link has no word for the correction of errors".to_owned()),
    }
}

/// What is negotiated has no rate there, but the modes that are offered, by the kernel's names in lower case.
fn negotiation(from: &str, to: &str) -> Result<Vec<String>, String> {
    let on = "AutoNegotiation=yes".to_owned();
    match Negotiation::read(to) {
        Some(Negotiation::All) => Ok(vec![on]),
        Some(Negotiation::Rate(mbit)) => {
            let modes = modes_of(from, mbit).into_iter();
            let modes: Vec<String> = modes
                .map(|mode| mode.to_lowercase().replace('/', "-"))
                .collect();
            if modes.is_empty() {
                return Err(
                    "a .link has to be told the modes that are offered, and they are not known"
                        .to_owned(),
                );
            }
            Ok(vec![on, format!("Advertise={}", modes.join(" "))])
        }
        Some(Negotiation::ByHand { mbit, full }) => Ok(vec![
            "AutoNegotiation=no".to_owned(),
            format!("BitsPerSecond={mbit}M"),
            format!("Duplex={}", if full { "full" } else { "half" }),
        ]),
        Some(Negotiation::Modes(_)) | None => Err(format!("a .link has no word for {to:?}")),
    }
}

/// One file is about an interface: the first one that matches. What comes with the system is about many, so that its lines are taken over
/// into one of ours; what somebody wrote gets our lines.
pub(super) fn told(nic: &str, lines: Vec<String>, found: &LinkFile) -> Lasting {
    if found.file.starts_with("/etc/") {
        let how = How::Lines {
            path: found.file.clone(),
            part: Some("[Link]".to_owned()),
            lines,
        };
        return Lasting::by(BY, how);
    }
    let key = |line: &str| line.split('=').next().unwrap_or_default().trim().to_owned();
    let is_ours = |line: &String| lines.iter().any(|own| key(own) == key(line));
    let kept = found.lines.iter().filter(|line| !is_ours(line)).cloned();
    let head = [
        "[Match]".to_owned(),
        format!("Path={}", found.place),
        String::new(),
        "[Link]".to_owned(),
    ];
    let how = How::File {
        path: format!("/etc/systemd/network/10-drover-{nic}.link"),
        lines: head.into_iter().chain(kept).chain(lines.clone()).collect(),
    };
    Lasting::by(BY, how)
}
