//! How large packets have to cross a path once a plan is carried out. Pure.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use drover_types::HostName;
use serde::{Deserialize, Serialize};

use crate::plan::Plan;

/// The largest packets that cross a path, in bytes with IP's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    /// From this host.
    pub there: u32,
    /// To it.
    pub back: u32,
}

/// What crosses a path after the last step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// The largest packets that do.
    pub sizes: Sizes,
    /// The largest that the interface of this host takes: the kernel may have made it another by itself, as it does with a bridge.
    pub mtu: u32,
}

/// A path that migrations take, and the largest packets that crossed it before the first step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathSizes {
    /// The other host.
    pub host: HostName,
    /// The interface of this one.
    pub nic: String,
    /// The address on it.
    pub from: IpAddr,
    /// The interface of the other host.
    pub far_nic: String,
    /// The address on that.
    pub to: IpAddr,
    /// Largest packet that the interface of this host takes.
    pub mtu: u32,
    /// Interfaces below it, all the way down, of which the plan sets the largest packet.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub over: BTreeSet<String>,
    /// What crossed.
    pub sizes: Sizes,
}

/// What a plan makes of an interface's largest packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mtu<'a> {
    /// The interface.
    pub nic: &'a str,
    /// What it is; 0 where the plan's word for it is no number.
    pub from: u32,
    /// What it is to be.
    pub to: u32,
}

impl Mtu<'_> {
    pub(crate) fn is_raised(&self) -> bool {
        self.to > self.from
    }

    fn is_lowered(&self) -> bool {
        self.to < self.from
    }
}

impl Sizes {
    fn both(bytes: u32) -> Self {
        let (there, back) = (bytes, bytes);
        Self { there, back }
    }

    fn each(self, other: Self, choose: fn(u32, u32) -> u32) -> Self {
        Self {
            there: choose(self.there, other.there),
            back: choose(self.back, other.back),
        }
    }
}

impl PathSizes {
    /// What has to cross it after a plan: what crossed before, as far as its interface still takes that; where the interface takes more than
    /// before, by the plan or as it follows one below it, all of that. `mtu` is what it takes now.
    fn needed(&self, plan: &Plan, mtu: u32) -> Sizes {
        if let Some(own) = plan.mtus().find(|mtu| mtu.nic == self.nic) {
            let to = Sizes::both(own.to);
            return match own.is_raised() {
                true => to,
                false => self.sizes.each(to, u32::min),
            };
        }
        let below = || plan.mtus().filter(|mtu| self.over.contains(mtu.nic));
        if mtu > self.mtu {
            return Sizes::both(mtu);
        }
        // Smaller by anything else is not as before.
        if mtu < self.mtu && below().any(|below| below.is_lowered()) {
            return self.sizes.each(Sizes::both(mtu), u32::min);
        }
        // What held back packets that the interface itself takes.
        let narrow = below().filter(|below| below.is_raised() && below.from < self.mtu);
        let least = narrow.map(|below| below.to.min(self.mtu));
        let least = Sizes::both(least.min().unwrap_or(0));
        self.sizes.each(least, u32::max)
    }

    /// What of that does not cross it now, in words.
    pub(crate) fn lost(&self, plan: &Plan, now: Result<Now, String>) -> Option<String> {
        let Now { sizes, mtu } = match now {
            Ok(now) => now,
            Err(why) => {
                return Some(format!(
                    "{self}: it is not known how large packets cross it: {why}"
                ));
            }
        };
        let needed = self.needed(plan, mtu);
        if sizes.there >= needed.there && sizes.back >= needed.back {
            return None;
        }
        Some(format!(
            "{self}: packets of {} bytes there and {} back have to cross it, and {} and {} are the largest that do",
            needed.there, needed.back, sizes.there, sizes.back
        ))
    }
}

impl fmt::Display for PathSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            host,
            nic,
            from,
            far_nic,
            to,
            ..
        } = self;
        write!(f, "{nic} {from} to {host} {far_nic} {to}")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use drover_tune::{Disruption, NicSetting, Step};

    use super::*;
    use crate::plan::Planned;

    /// One that sets largest packets.
    pub(crate) fn plan(mtus: &[(&str, &str, &str)]) -> Plan {
        let step = |(nic, from, to): &(&str, &str, &str)| Step::Nic {
            nic: (*nic).to_owned(),
            what: NicSetting::Mtu,
            from: (*from).to_owned(),
            to: (*to).to_owned(),
        };
        Plan {
            host: "a".parse().unwrap(),
            boot: "now".into(),
            made_at: jiff::Timestamp::UNIX_EPOCH,
            version: "1".into(),
            changes: vec![Planned {
                rule: "a-rule".into(),
                nic: None,
                disruption: Disruption::BouncesLink,
                why: "because".into(),
                steps: mtus.iter().map(step).collect(),
            }],
            lasting: None,
        }
    }

    /// One over `nic0`, as a VLAN is.
    fn path(mtu: u32, there: u32, back: u32) -> PathSizes {
        PathSizes {
            host: "b".parse().unwrap(),
            nic: "nic0.7".into(),
            from: "10.0.0.1".parse().unwrap(),
            far_nic: "nic1".into(),
            to: "10.0.0.2".parse().unwrap(),
            mtu,
            over: ["nic0".to_owned()].into(),
            sizes: Sizes { there, back },
        }
    }

    #[test]
    fn what_crossed_has_to_cross_and_of_an_interface_that_takes_more_or_less_just_that() {
        for (mtus, of, there, back) in [
            (&[][..], path(9000, 9000, 1404), 9000, 1404),
            (
                &[("nic9", "1500", "9000")],
                path(1500, 1400, 1400),
                1400,
                1400,
            ),
            (
                &[("nic0.7", "9000", "1500")],
                path(9000, 9000, 1404),
                1500,
                1404,
            ),
            (
                &[("nic0.7", "1500", "9000")],
                path(1500, 1500, 1400),
                9000,
                9000,
            ),
            (
                &[("nic0.7", "none", "9000")],
                path(1500, 1500, 1500),
                9000,
                9000,
            ),
            // The one below it alone, which was no hindrance, or which was one.
            (
                &[("nic0", "1500", "9000")],
                path(1500, 1500, 1400),
                1500,
                1400,
            ),
            (
                &[("nic0", "1500", "4000")],
                path(9000, 1500, 1404),
                4000,
                4000,
            ),
            (
                &[("nic0", "1500", "9100")],
                path(9000, 1500, 1404),
                9000,
                9000,
            ),
            (
                &[("nic0", "9100", "9000")],
                path(9000, 9000, 9000),
                9000,
                9000,
            ),
            // Both.
            (
                &[("nic0", "1500", "9100"), ("nic0.7", "1500", "9000")],
                path(1500, 1500, 1500),
                9000,
                9000,
            ),
        ] {
            let own = mtus.iter().find(|(nic, ..)| *nic == of.nic);
            let now = own.map_or(of.mtu, |(_, _, to)| to.parse().unwrap());
            let needed = of.needed(&plan(mtus), now);
            assert_eq!(needed, Sizes { there, back }, "{mtus:?} {of:?}");
        }
    }

    #[test]
    fn what_an_interface_takes_by_itself_has_to_cross_and_less_is_enough_where_one_below_it_is_lowered()
     {
        for (mtus, now, needed) in [
            // As a bridge does that nobody set.
            (&[("nic0", "1500", "9000")][..], 9000, 9000),
            (&[("nic0", "1500", "9000")], 4000, 4000),
            (&[("nic0", "9000", "1400")], 1400, 1400),
            (&[("nic0", "9000", "1500")], 1500, 1500),
            // Not by the plan: a driver that forgets what was set.
            (&[("nic9", "9000", "1400")], 1400, 1500),
            (&[], 9000, 9000),
        ] {
            let found = path(1500, 1500, 1500).needed(&plan(mtus), now);
            assert_eq!(found, Sizes::both(needed), "{mtus:?} {now}");
        }
    }

    #[test]
    fn what_does_not_cross_any_more_is_told_with_its_numbers_and_what_is_not_known_is_lost() {
        let (path, plan) = (path(9000, 9000, 1404), plan(&[]));
        let now = |there, back| {
            let sizes = Sizes { there, back };
            let mtu = path.mtu;
            path.lost(&plan, Ok(Now { sizes, mtu }))
        };
        assert_eq!((now(9000, 1404), now(9000, 9000)), (None, None));
        let said = "nic0.7 10.0.0.1 to b nic1 10.0.0.2: packets of 9000 bytes there and 1404 back have to cross it, and 1500 and 1404 are \
                    the largest that do";
        assert_eq!(now(1500, 1404).as_deref(), Some(said));
        assert!(now(9000, 1403).is_some());
        let silent = path.lost(&plan, Err("nothing came back".to_owned()));
        assert!(silent.unwrap().ends_with("cross it: nothing came back"));
    }
}
