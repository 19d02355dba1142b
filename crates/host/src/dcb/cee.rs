//! What is told by the language of before the standard (Converged Enhanced Ethernet), in the standard's words.
//!
//! ```text
//! CEE nested: PEER_PG cee_pg, PEER_PFC cee_pfc, PEER_APP_TABLE nested: APP dcb_app;
//!             TX_PG nested: of each class its group, priorities and whether it is strict, nested; of each group its share u8;
//!             PFC nested: of each priority u8; FEAT nested: of groups, PFC and APP flags u8
//! cee_pg 20:  willing u8, error u8, enabled u8, classes u8, percent of each group [u8; 8], group of each priority [u8; 8]
//! cee_pfc 4:  willing u8, error u8, enabled u8 (a bit for each priority), classes u8
//! ```
//! Groups are what the standard calls classes. Number 15 is sent before all others. A `dcb_app` has its priorities as bits.

use std::collections::BTreeSet;

use drover_tune::facts::{App, Dcb, DcbxVersion, Ets, Pfc};

use super::{apps, priorities};
use crate::limits::APPS;
use crate::netlink::attributes::{find, u8_of};

const PEER_PG: u16 = 1;
const PEER_PFC: u16 = 2;
const PEER_APPS: u16 = 3;
const TX_PG: u16 = 4;
const PFC: u16 = 6;
const FEAT: u16 = 8;

/// Of the first one each: of a priority, a class, a group's share.
const PFC_UP: u16 = 1;
const TC: u16 = 1;
const SHARE: u16 = 11;

const PEER_APP: u16 = 2;

const GROUP: u16 = 1;
const PRIORITIES: u16 = 2;
const STRICTNESS: u16 = 3;
/// Before all other groups, and not within its own alone.
const LINK_STRICT: u8 = 2;

const FEAT_PG: u16 = 2;
const FEAT_PFC: u16 = 3;
const ENABLED: u8 = 0x02;
const WILLING: u8 = 0x04;

/// `DCB_ATTR_VALUE_UNDEFINED`
const UNDEFINED: u8 = 0xff;

/// Kinds of `dcb_app` here: the type of a frame, a port of either; and what the standard has for them.
const BY_TYPE: u8 = 0;
const BY_PORT: u8 = 1;
const IEEE_BY_TYPE: u8 = 1;
const IEEE_BY_PORT: u8 = 4;

/// How the standard serves a class: before all others, or by its share.
const STRICT: u8 = 0;
const BY_SHARE: u8 = 2;

const GROUPS: usize = 8;
/// The group that is sent before all others, and one more.
const STRICT_GROUP: usize = 15;

/// With what is told so of the switch where the standard tells nothing; of an adapter that speaks nothing else, its own as well.
pub(super) fn added(told: Dcb, cee: &[u8]) -> Dcb {
    let versions = told.dcbx.as_ref().map(|dcbx| &dcbx.versions);
    let is_cee = versions.is_some_and(|versions| *versions == [DcbxVersion::Cee].into());
    let peer_ets = peer_ets(cee);
    let peer_apps = translated(&apps(cee, PEER_APPS, &[PEER_APP]));
    // Drivers such as bnx2x's tell zeros where no switch was heard.
    let is_heard = peer_ets.is_some() || !peer_apps.is_empty();
    let peer_pfc = peer_pfc(cee).filter(|enabled| is_heard || !enabled.is_empty());
    let peer_pfc = peer_pfc.map(|enabled| Pfc {
        enabled,
        ..Pfc::default()
    });
    let mut all = Dcb {
        peer_pfc: told.peer_pfc.or(peer_pfc),
        peer_ets: told.peer_ets.or(peer_ets),
        ..told
    };
    if all.peer_apps.is_empty() {
        all.peer_apps = peer_apps;
    }
    if !is_cee {
        return all;
    }
    if let Some(enabled) = pfc(cee) {
        // Frames are counted beside that.
        let counted = all.pfc.unwrap_or_default();
        all.pfc = Some(Pfc { enabled, ..counted });
    }
    all.ets = ets(cee).or(all.ets);
    // Whichever way it is asked for: both have one table.
    all.apps = translated(&all.apps);
    all
}

fn pfc(cee: &[u8]) -> Option<BTreeSet<u8>> {
    let told = find(cee, PFC)?;
    let is_off = feature(cee, FEAT_PFC).is_some_and(|flags| flags & ENABLED == 0);
    let is_on = |priority: &u8| {
        let value = u8_of(told, PFC_UP + u16::from(*priority));
        !is_off && value.is_some_and(|value| value > 0 && value != UNDEFINED)
    };
    Some((0..8).filter(is_on).collect())
}

/// None where it is not told of each priority, and once, or where groups are off: what their table has does not count.
fn ets(cee: &[u8]) -> Option<Ets> {
    let told = find(cee, TX_PG)?;
    if feature(cee, FEAT_PG).is_some_and(|flags| flags & ENABLED == 0) {
        return None;
    }
    let shares = (0..GROUPS as u16).map(|group| u8_of(told, SHARE + group));
    let mut ets = Ets {
        willing: feature(cee, FEAT_PG).is_some_and(|flags| flags & WILLING > 0),
        shares: shares.collect::<Option<_>>()?,
        algorithms: vec![BY_SHARE; GROUPS],
        classes: vec![UNDEFINED; 8],
    };
    for class in 0..8 {
        let of = find(told, TC + class)?;
        let (group, bits) = (u8_of(of, GROUP)?, u8_of(of, PRIORITIES)?);
        for priority in priorities(bits) {
            let class = ets.classes.get_mut(usize::from(priority))?;
            if *class != UNDEFINED {
                return None;
            }
            *class = group;
        }
        if bits > 0 && u8_of(of, STRICTNESS) == Some(LINK_STRICT) {
            *ets.algorithms.get_mut(usize::from(group))? = STRICT;
        }
    }
    let is_known = |class: &u8| usize::from(*class) < GROUPS;
    ets.classes.iter().all(is_known).then_some(ets)
}

fn feature(cee: &[u8], which: u16) -> Option<u8> {
    u8_of(find(cee, FEAT)?, which)
}

fn peer_pfc(cee: &[u8]) -> Option<BTreeSet<u8>> {
    let told: &[u8; 4] = find(cee, PEER_PFC)?.first_chunk()?;
    Some(priorities(told[2]))
}

/// None where groups have no shares, though some priority is in one that takes them.
fn peer_ets(cee: &[u8]) -> Option<Ets> {
    let told: &[u8; 20] = find(cee, PEER_PG)?.first_chunk()?;
    let mut shares = told[4..12].to_vec();
    let classes = told[12..20].to_vec();
    let all_strict = classes
        .iter()
        .all(|class| usize::from(*class) == STRICT_GROUP);
    if shares.iter().all(|share| *share == 0) && !all_strict {
        return None;
    }
    shares.resize(STRICT_GROUP + 1, 0);
    let mut algorithms = vec![BY_SHARE; STRICT_GROUP + 1];
    algorithms[STRICT_GROUP] = STRICT;
    Some(Ets {
        willing: told[0] > 0,
        shares,
        algorithms,
        classes,
    })
}

/// One for each priority, in the standard's kinds; those of others are left out.
fn translated(told: &[App]) -> Vec<App> {
    let all = told.iter().filter_map(|app| {
        let selector = match app.selector {
            BY_TYPE => IEEE_BY_TYPE,
            BY_PORT => IEEE_BY_PORT,
            _ => return None,
        };
        let of = priorities(app.priority).into_iter();
        Some(of.map(move |priority| App {
            selector,
            priority,
            ..*app
        }))
    });
    all.flatten().take(APPS).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{BY_HOST, CEE, DCB_ATTR_CEE, DCB_ATTR_DCBX, IEEE, dcb};
    use super::*;
    use crate::netlink::attributes::attribute;

    /// Answers of a driver: by the standard, and by CEE, with these bits of who negotiates.
    fn told(ieee: &[u8], cee: &[Vec<u8>], flags: u8) -> Dcb {
        let all = [
            attribute(DCB_ATTR_CEE, &cee.concat()),
            attribute(DCB_ATTR_DCBX, &[flags]),
        ];
        dcb(ieee, Some(&all.concat()))
    }

    /// Priority 3 has the second half, and 7 is sent before all others.
    fn peer() -> Vec<Vec<u8>> {
        let groups = [0, 0, 0, 1, 0, 0, 0, 15];
        let shares = [50, 50, 0, 0, 0, 0, 0, 0];
        let [low, high] = 0x8915_u16.to_ne_bytes();
        let apps = [
            attribute(1, &[1, 0]),
            attribute(2, &[0, 0b1000, low, high]),
            attribute(2, &[1, 0b11, 0xb7, 0x12]),
            attribute(2, &[3, 1, 0, 0]),
        ];
        vec![
            attribute(PEER_PG, &[&[1, 0, 1, 3][..], &shares, &groups].concat()),
            attribute(PEER_PFC, &[0, 0, 1 << 3, 8]),
            attribute(PEER_APPS, &apps.concat()),
        ]
    }

    #[test]
    fn what_a_switch_says_so_is_told_in_the_standards_words() {
        let told = told(&[], &peer(), BY_HOST | CEE | IEEE);
        assert_eq!(told.peer_pfc.unwrap().enabled, [3].into());
        let ets = told.peer_ets.unwrap();
        assert!(ets.willing);
        assert_eq!(ets.classes, [0, 0, 0, 1, 0, 0, 0, 15]);
        assert_eq!((ets.shares[1], ets.algorithms[1]), (50, BY_SHARE));
        assert_eq!((ets.shares[15], ets.algorithms[15]), (0, STRICT));
        let apps: Vec<_> = told
            .peer_apps
            .iter()
            .map(|app| (app.selector, app.protocol, app.priority))
            .collect();
        let port = u16::from_ne_bytes([0xb7, 0x12]);
        assert_eq!(apps, [(1, 0x8915, 3), (4, port, 0), (4, port, 1)]);
        assert_eq!((told.pfc, told.ets), (None, None));
    }

    #[test]
    fn zeros_of_a_driver_that_heard_no_switch_are_nothing_that_one_said() {
        let said = |groups: [u8; 20], pfc: u8, apps: &[u8]| {
            let all = [
                attribute(PEER_PG, &groups),
                attribute(PEER_PFC, &[0, 0, pfc, 0]),
                attribute(PEER_APPS, apps),
            ];
            let told = told(&[], &all, BY_HOST | CEE);
            let pfc = told.peer_pfc.map(|pfc| Vec::from_iter(pfc.enabled));
            (pfc, told.peer_ets.is_some())
        };
        let shared = |share: u8, group: u8| {
            let mut groups = [0; 20];
            groups[4] = share;
            groups[12..].fill(group);
            groups
        };
        assert_eq!(said([0; 20], 0, &[]), (None, false));
        // One that is heard, and holds nothing back.
        assert_eq!(said(shared(100, 0), 0, &[]), (Some(vec![]), true));
        assert_eq!(said(shared(0, 15), 0, &[]), (Some(vec![]), true));
        assert_eq!(said([0; 20], 1 << 3, &[]), (Some(vec![3]), false));
        let app = attribute(PEER_APP, &[0, 0b1000, 0, 0]);
        assert_eq!(said([0; 20], 0, &app), (Some(vec![]), false));
    }

    #[test]
    fn what_it_says_by_the_standard_counts_where_it_says_both() {
        let ieee = [8, 1 << 4].into_iter().chain([0; 134]);
        let ieee = attribute(super::super::PEER_PFC, &ieee.collect::<Vec<u8>>());
        let told = told(&ieee, &peer(), CEE | IEEE);
        assert_eq!(told.peer_pfc.unwrap().enabled, [4].into());
        assert!(told.peer_ets.is_some());
    }

    /// Two groups with half of the line each, one of them for priority 3, which is held back alone.
    fn own(strict: u8, flags: u8) -> Vec<Vec<u8>> {
        let class = |group: u8, bits: u8, strict: u8| {
            [
                attribute(GROUP, &[group]),
                attribute(PRIORITIES, &[bits]),
                attribute(STRICTNESS, &[strict]),
            ]
            .concat()
        };
        let mut groups = vec![
            attribute(TC, &class(0, 0b1111_0111, 0)),
            attribute(TC + 1, &class(1, 0b1000, strict)),
        ];
        groups.extend((2..8).map(|number| attribute(TC + number, &class(0, 0, 0))));
        let shares = [50, 50, 0, 0, 0, 0, 0, 0];
        groups.extend((0..8).map(|group: u16| {
            let share = shares[usize::from(group)];
            attribute(SHARE + group, &[share])
        }));
        let pfc = (0..8).map(|priority: u16| {
            let value = u8::from(priority == 3);
            attribute(PFC_UP + priority, &[value])
        });
        let pfc: Vec<u8> = pfc.flatten().collect();
        vec![
            attribute(TX_PG, &groups.concat()),
            attribute(PFC, &pfc),
            attribute(
                FEAT,
                &[attribute(FEAT_PG, &[flags]), attribute(FEAT_PFC, &[flags])].concat(),
            ),
        ]
    }

    #[test]
    fn an_adapter_that_speaks_nothing_else_has_its_own_settings_told_so_too() {
        // By the standard it tells that nothing is held back, and what it has counted.
        let mut bytes = vec![8, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend(
            [5, 0, 0, 0, 0, 0, 0, 0_u64]
                .iter()
                .flat_map(|n| n.to_ne_bytes()),
        );
        bytes.extend([0; 64]);
        let ieee = attribute(super::super::PFC, &bytes);
        let of = |cee: &[Vec<u8>], flags| told(&ieee, cee, flags);
        let dcb = of(&own(0, ENABLED | WILLING), BY_HOST | CEE);
        let pfc = dcb.pfc.unwrap();
        assert_eq!((pfc.enabled, pfc.sent), ([3].into(), Some(5)));
        let ets = dcb.ets.unwrap();
        assert!(ets.willing);
        assert_eq!(ets.classes, [0, 0, 0, 1, 0, 0, 0, 0]);
        assert_eq!((ets.shares[1], ets.algorithms[1]), (50, BY_SHARE));
        let strict = of(&own(LINK_STRICT, ENABLED), BY_HOST | CEE);
        assert_eq!(strict.ets.unwrap().algorithms[1], STRICT);
        let off = of(&own(LINK_STRICT, WILLING), BY_HOST | CEE);
        assert_eq!(off.ets, None, "the feature is off");
        assert_eq!(off.pfc.unwrap().enabled, [].into(), "the same");
        // One that speaks both is believed by the standard.
        let both = of(&own(0, ENABLED), BY_HOST | CEE | IEEE);
        assert_eq!(both.pfc.unwrap().enabled, [].into());
        assert_eq!(both.ets, None);
    }

    #[test]
    fn a_priority_that_is_in_two_classes_or_none_has_no_shares_told() {
        let classes = |bits: [u8; 2]| {
            let mut groups = Vec::new();
            for class in 0..8_u16 {
                let bits = bits.get(usize::from(class)).copied().unwrap_or(0);
                let of = [attribute(GROUP, &[0]), attribute(PRIORITIES, &[bits])];
                groups.extend(attribute(TC + class, &of.concat()));
                groups.extend(attribute(SHARE + class, &[0]));
            }
            told(&[], &[attribute(TX_PG, &groups)], BY_HOST | CEE).ets
        };
        assert!(classes([UNDEFINED, 0]).is_some());
        assert_eq!(classes([UNDEFINED, UNDEFINED]), None);
        assert_eq!(classes([0b0111_1111, 0]), None);
    }

    #[test]
    fn what_is_cut_is_not_told() {
        for part in peer().into_iter().chain(own(0, ENABLED)) {
            for cut in 0..part.len() {
                let dcb = told(&[], &[part[..cut].to_vec()], BY_HOST | CEE);
                assert_eq!((dcb.peer_pfc, dcb.peer_ets), (None, None));
            }
        }
    }
}
