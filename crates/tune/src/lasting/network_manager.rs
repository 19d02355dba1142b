//! Profiles of NetworkManager, and the files that have them. Sources: nm-settings-nmcli(5), nm-settings-keyfile(5); what a version has
//! words for, `libnm-core-public/nm-setting-ethtool.h`.

use super::{How, Lasting, NicOwner, Owners, SetUp};
use crate::change::{NicSetting, quoted, read_pause};
use crate::link::modes_of;
use crate::negotiation::Negotiation;

/// Who reads a profile.
pub const BY: &str = "NetworkManager";

/// The first two numbers of a version, such as 1.42.
pub type Version = (u32, u32);

/// The first that keeps a profile which somebody has changed for now alone in a file, below `/run`. One before has that in its memory, tells
/// nobody, and loses it as it reads the profile's file. Source: `nms-keyfile-plugin.c` (`load_connections`) of 1.18, NEWS of 1.20.
const KEEPS_ALL_IN_FILES: Version = (1, 20);

/// Rates, in Mbit/s, of the only modes that it can offer alone; of others it sets nothing, and says so in a log that is off. Source:
/// `nm-platform-utils.c` (`get_baset_mode`).
const BASE_T: [u32; 4] = [10, 100, 1000, 10000];

/// A property of a profile with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Property {
    of: Of,
    name: &'static str,
    value: Value,
    /// The first version that has a word for it.
    since: Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    /// What is set of Ethernet by other means than ethtool's features: it is in every version that is about.
    Ethernet,
    Ethtool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Value {
    Number(String),
    Switch(bool),
    Word(&'static str),
    /// As if it had never been set.
    Unset,
}

impl Property {
    const fn ethernet(name: &'static str, value: Value) -> Self {
        let (of, since) = (Of::Ethernet, (1, 0));
        Self {
            of,
            name,
            value,
            since,
        }
    }

    const fn ethtool(name: &'static str, value: Value, since: Version) -> Self {
        let of = Of::Ethtool;
        Self {
            of,
            name,
            value,
            since,
        }
    }

    /// As `nmcli` takes it.
    fn command(&self) -> String {
        let (of, words) = match self.of {
            Of::Ethernet => ("802-3-ethernet", ["no", "yes"]),
            Of::Ethtool => ("ethtool", ["off", "on"]),
        };
        let value = match &self.value {
            Value::Number(number) => quoted(number),
            Value::Switch(on) => words[usize::from(*on)].to_owned(),
            Value::Word(word) => (*word).to_owned(),
            Value::Unset => "''".to_owned(),
        };
        format!("{of}.{} {value}", self.name)
    }

    /// As a file has it. What is unset has no line: of a rate of 0, the only one there is beside it, NetworkManager takes no duplex.
    fn line(&self) -> Option<String> {
        let value = match &self.value {
            Value::Number(number) => number.as_str(),
            Value::Switch(on) => ["false", "true"][usize::from(*on)],
            Value::Word(word) => *word,
            Value::Unset => return None,
        };
        Some(format!("{}={value}", self.name))
    }
}

/// Properties of a profile.
///
/// # Errors
/// Why there are none.
pub(super) fn properties(
    what: &NicSetting,
    (from, to): (&str, &str),
    owners: &Owners,
) -> Result<Vec<Property>, String> {
    let all = of_setting(what, from, to)?;
    if let Ok(version) = owners.network_manager
        && let Some(newer) = all.iter().find(|property| property.since > version)
    {
        let ((major, minor), (since_major, since_minor)) = (version, newer.since);
        return Err(format!(
            "NetworkManager {major}.{minor} has no word for ethtool.{}: {since_major}.{since_minor} is the first that has",
            newer.name
        ));
    }
    Ok(all)
}

fn of_setting(what: &NicSetting, from: &str, to: &str) -> Result<Vec<Property>, String> {
    let number = || Value::Number(to.to_owned());
    let feature = |name| {
        let on = Value::Switch(to == "on");
        Ok(vec![Property::ethtool(name, on, (1, 14))])
    };
    let ethtool = |name, value, since| Ok(vec![Property::ethtool(name, value, since)]);
    match what {
        NicSetting::Mtu => Ok(vec![Property::ethernet("mtu", number())]),
        NicSetting::CombinedChannels => ethtool("channels-combined", number(), (1, 46)),
        NicSetting::ReceiveRing => ethtool("ring-rx", number(), (1, 26)),
        NicSetting::AdaptiveReceive => {
            let number = if to == "on" { "1" } else { "0" };
            let value = Value::Number(number.to_owned());
            ethtool("coalesce-adaptive-rx", value, (1, 26))
        }
        NicSetting::Feature(name) => match name.as_str() {
            "rx-checksum" => feature("feature-rx"),
            "rx-gro" => feature("feature-gro"),
            "rx-lro" => feature("feature-lro"),
            other => Err(format!("NetworkManager has no word for {other}")),
        },
        NicSetting::Negotiation => negotiation(from, to),
        NicSetting::Pause => pause(to),
        NicSetting::Fec => Err(
            "only some versions of NetworkManager have a word for the correction of errors"
                .to_owned(),
        ),
    }
}

fn negotiation(from: &str, to: &str) -> Result<Vec<Property>, String> {
    let all = |agrees, mbit: u32, duplex| {
        Ok(vec![
            Property::ethernet("auto-negotiate", Value::Switch(agrees)),
            Property::ethernet("speed", Value::Number(mbit.to_string())),
            Property::ethernet("duplex", duplex),
        ])
    };
    match Negotiation::read(to) {
        Some(Negotiation::All) => all(true, 0, Value::Unset),
        // The only one that is offered then.
        Some(Negotiation::Rate(mbit)) => {
            let mode = format!("{mbit}baseT/Full");
            if !BASE_T.contains(&mbit) || !modes_of(from, mbit).contains(&mode) {
                return Err(format!(
                    "NetworkManager can offer one rate alone only as 10, 100, 1000 or 10000 BASE-T, and the link is not known to have {mode}"
                ));
            }
            all(true, mbit, Value::Word("full"))
        }
        Some(Negotiation::ByHand { mbit, full }) => {
            all(false, mbit, Value::Word(if full { "full" } else { "half" }))
        }
        Some(Negotiation::Modes(_)) | None => Err(format!("NetworkManager has no word for {to:?}")),
    }
}

fn pause(to: &str) -> Result<Vec<Property>, String> {
    let pause = read_pause(to).ok_or_else(|| format!("NetworkManager has no word for {to:?}"))?;
    if pause.agreed == Some(true) {
        return Err(
            "a profile says whether pause frames are obeyed and sent only where ends do not agree on them"
                .to_owned(),
        );
    }
    let switch = |name, on| Property::ethtool(name, Value::Switch(on), (1, 32));
    // Also where the driver tells nothing of that: beside one that is on in the file it refuses the others, and the whole profile.
    Ok(vec![
        switch("pause-autoneg", false),
        switch("pause-rx", pause.receive),
        switch("pause-tx", pause.send),
    ])
}

/// Lines of its file where that can be written, one answer for each part of it; and a command otherwise.
pub(super) fn told(properties: &[Property], owner: &NicOwner, owners: &Owners) -> Vec<Lasting> {
    let SetUp::NetworkManager { profile, keyfile } = &owner.by else {
        return Vec::new();
    };
    let keyfile = match &owners.network_manager {
        Ok(version) if *version < KEEPS_ALL_IN_FILES => Err(in_memory(*version)),
        Ok(_) => keyfile.as_ref().map_err(String::clone),
        Err(why) => Err(why.clone()),
    };
    let keyfile = match keyfile {
        Ok(keyfile) => keyfile,
        Err(why) => return vec![command(profile, properties, why)],
    };
    let part = |of: Of, part: &str| {
        let lines = properties.iter().filter(|property| property.of == of);
        let lines: Vec<String> = lines.filter_map(Property::line).collect();
        let (path, part) = (keyfile.path.clone(), Some(part.to_owned()));
        (!lines.is_empty()).then(|| Lasting::by(BY, How::Lines { path, part, lines }))
    };
    let parts = [
        part(Of::Ethernet, &keyfile.ethernet),
        part(Of::Ethtool, "[ethtool]"),
    ];
    parts.into_iter().flatten().collect()
}

fn in_memory((major, minor): Version) -> String {
    let (since_major, since_minor) = KEEPS_ALL_IN_FILES;
    format!(
        "NetworkManager {major}.{minor} does not tell what somebody has changed in its memory alone, and loses that as it reads the file: \
         {since_major}.{since_minor} is the first that tells"
    )
}

fn command(profile: &str, properties: &[Property], why: String) -> Lasting {
    let profile = quoted(profile);
    let properties: Vec<String> = properties.iter().map(Property::command).collect();
    let properties = properties.join(" ");
    let command = format!("nmcli connection modify uuid {profile} {properties}");
    Lasting::by(BY, How::Commands(vec![command])).because(why)
}
