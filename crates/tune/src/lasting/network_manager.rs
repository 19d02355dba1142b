//! Profiles of NetworkManager. Source: nm-settings-nmcli(5).

use super::{How, Lasting, NicOwner, SetUp};
use crate::change::{NicSetting, quoted, read_pause};
use crate::negotiation::Negotiation;

/// Properties of a profile with their values, as `nmcli` takes them.
///
/// # Errors
/// Why there are none.
pub(super) fn properties(what: &NicSetting, to: &str) -> Result<Vec<String>, String> {
    let one = |property: &str, value: &str| Ok(vec![format!("{property} {}", quoted(value))]);
    match what {
        NicSetting::Mtu => one("802-3-ethernet.mtu", to),
        NicSetting::CombinedChannels => one("ethtool.channels-combined", to),
        NicSetting::ReceiveRing => one("ethtool.ring-rx", to),
        NicSetting::AdaptiveReceive => {
            let number = if to == "on" { "1" } else { "0" };
            one("ethtool.coalesce-adaptive-rx", number)
        }
        NicSetting::Feature(name) => match name.as_str() {
            "rx-checksum" => one("ethtool.feature-rx", to),
            "rx-gro" => one("ethtool.feature-gro", to),
            "rx-lro" => one("ethtool.feature-lro", to),
            other => Err(format!("NetworkManager has no word for {other}")),
        },
        NicSetting::Negotiation => match Negotiation::read(to) {
            Some(Negotiation::All) => negotiation("yes", 0, "''"),
            // The only one that is offered then.
            Some(Negotiation::Rate(mbit)) => negotiation("yes", mbit, "full"),
            Some(Negotiation::ByHand { mbit, full }) => {
                negotiation("no", mbit, if full { "full" } else { "half" })
            }
            Some(Negotiation::Modes(_)) | None => {
                Err(format!("NetworkManager has no word for {to:?}"))
            }
        },
        NicSetting::Pause => {
            let pause =
                read_pause(to).ok_or_else(|| format!("NetworkManager has no word for {to:?}"))?;
            if pause.agreed == Some(true) {
                return Err(
                    "a profile says whether pause frames are obeyed and sent only where ends do not agree on them"
                        .to_owned(),
                );
            }
            let switch = |on: bool| if on { "on" } else { "off" };
            let agreed = pause
                .agreed
                .map(|on| format!("ethtool.pause-autoneg {}", switch(on)));
            let both = [
                format!("ethtool.pause-rx {}", switch(pause.receive)),
                format!("ethtool.pause-tx {}", switch(pause.send)),
            ];
            Ok(agreed.into_iter().chain(both).collect())
        }
        NicSetting::Fec => Err(
            "only some versions of NetworkManager have a word for the correction of errors"
                .to_owned(),
        ),
    }
}

fn negotiation(agrees: &str, mbit: u32, duplex: &str) -> Result<Vec<String>, String> {
    Ok(vec![
        format!("802-3-ethernet.auto-negotiate {agrees}"),
        format!("802-3-ethernet.speed {mbit}"),
        format!("802-3-ethernet.duplex {duplex}"),
    ])
}

pub(super) fn told(properties: &[String], owner: &NicOwner) -> Option<Lasting> {
    let SetUp::NetworkManager { profile } = &owner.by else {
        return None;
    };
    let profile = quoted(profile);
    let properties = properties.join(" ");
    let command = format!("nmcli connection modify uuid {profile} {properties}");
    Some(Lasting {
        by: "NetworkManager".into(),
        how: How::Commands(vec![command]),
    })
}
