//! Facts of what ethtool answers. Numbers of attributes are those of `include/uapi/linux/ethtool_netlink.h`.

use std::collections::BTreeSet;

use drover_tune::facts::{Channels, Coalescing, Duplex, Features, Fec, Link, Modes, Rings};
use drover_tune::rate_of_mode as rate;
use drover_types::BitRate;

use crate::netlink::attributes::{bits, find, u8_of, u32_of};
use crate::sysfs::megabits;

const NOT_TOLD: &str = "its driver does not tell";

/// `DUPLEX_HALF` and `DUPLEX_FULL` of `linux/ethtool.h`; anything else is unknown.
const HALF: u8 = 0;
const FULL: u8 = 1;

/// Of `LINKMODES`.
pub(crate) fn link(answer: &[u8]) -> Link {
    let (autoneg, ours, peer, speed, duplex) = (2, 3, 4, 5, 6);
    let modes = bits(answer, ours);
    let rates = |modes: &mut dyn Iterator<Item = &(String, bool)>| {
        modes
            .filter_map(|(name, _)| rate(name))
            .collect::<BTreeSet<BitRate>>()
    };
    let supported = rates(&mut modes.iter());
    let advertised = rates(&mut modes.iter().filter(|(_, is_set)| *is_set));
    let theirs = bits(answer, peer);
    let peer = rates(&mut theirs.iter().filter(|(_, is_set)| *is_set));
    let names = |modes: &[(String, bool)], all: bool| {
        let named = modes.iter().filter(|(_, is_set)| all || *is_set);
        named.map(|(name, _)| name.clone()).collect()
    };
    // None where it cannot.
    let offers_to_negotiate = modes.iter().find(|(name, _)| name == "Autoneg");
    let offers_to_negotiate = offers_to_negotiate.map(|(_, is_set)| *is_set);
    let negotiates = u8_of(answer, autoneg)
        .filter(|_| offers_to_negotiate.is_some())
        .map(|on| on == 1);
    Link {
        speed: u32_of(answer, speed).and_then(|mbit| megabits(u64::from(mbit))),
        duplex: match u8_of(answer, duplex) {
            Some(HALF) => Some(Duplex::Half),
            Some(FULL) => Some(Duplex::Full),
            _ => None,
        },
        negotiates,
        by_hand: negotiates == Some(false) && offers_to_negotiate == Some(false),
        supported,
        advertised,
        peer,
        modes: Modes {
            supported: names(&modes, true),
            advertised: names(&modes, false),
            peer: names(&theirs, false),
        },
    }
}

/// Of `FEATURES`.
pub(crate) fn features(answer: &[u8]) -> Features {
    let (changeable, active) = (2, 4);
    let set = |kind| {
        let set = bits(answer, kind).into_iter();
        set.filter_map(|(name, is_set)| is_set.then_some(name))
            .collect()
    };
    Features {
        active: set(active),
        changeable: set(changeable),
    }
}

/// Of `RINGS`.
pub(crate) fn rings(answer: &[u8]) -> Result<Rings, &'static str> {
    let number = |kind| u32_of(answer, kind).ok_or(NOT_TOLD);
    Ok(Rings {
        receive_most: number(2)?,
        receive: number(6)?,
    })
}

/// Of `CHANNELS`.
pub(crate) fn channels(answer: &[u8]) -> Channels {
    let number = |kind| u32_of(answer, kind).unwrap_or(0);
    Channels {
        combined_most: number(5),
        combined: number(9),
    }
}

/// Of `COALESCE`.
pub(crate) fn coalescing(answer: &[u8]) -> Coalescing {
    Coalescing {
        adaptive_receive: u8_of(answer, 11).map(|on| on == 1),
        receive_micros: u32_of(answer, 2),
        receive_packets: u32_of(answer, 3),
    }
}

/// Modes of error correction by their numbers among the modes of links (`ETHTOOL_LINK_MODE_FEC_*_BIT`), by which alone the one in use
/// is told.
const FEC_MODES: [(u32, &str); 4] = [(49, "None"), (50, "RS"), (51, "BASER"), (74, "LLRS")];

/// Of `FEC`.
pub(crate) fn fec(answer: &[u8]) -> Fec {
    let (modes, auto, active, counted) = (2, 3, 4, 5);
    let set = bits(answer, modes)
        .into_iter()
        .filter(|(_, is_set)| *is_set);
    Fec {
        automatic: u8_of(answer, auto) == Some(1),
        // "None" is a mode, too.
        configured: set
            .map(|(name, _)| name)
            .filter(|name| name != "None")
            .collect(),
        active: u32_of(answer, active).and_then(|number| {
            let known = FEC_MODES.iter().find(|(bit, _)| *bit == number);
            known.map(|(_, name)| (*name).to_owned())
        }),
        uncorrected: find(answer, counted).and_then(uncorrected),
    }
}

/// The first is the sum of those of each lane that follow (`fec_stats_recalc` in `net/ethtool/fec.c`); without any it is not counted.
fn uncorrected(counted: &[u8]) -> Option<u64> {
    let blocks = 3;
    let sum = find(counted, blocks)?.first_chunk()?;
    Some(u64::from_ne_bytes(*sum))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::attributes::{attribute, bitset};

    fn gbit(rates: &[u64]) -> BTreeSet<BitRate> {
        rates
            .iter()
            .map(|rate| BitRate(rate * 1_000_000_000))
            .collect()
    }

    #[test]
    fn rates_of_a_link_are_those_of_its_modes() {
        let mut answer = attribute(2, &[1]);
        answer.extend(bitset(
            3,
            true,
            &[
                ("Autoneg", true),
                ("FIBRE", true),
                ("1000baseX/Full", true),
                ("10000baseCR/Full", true),
                ("25000baseCR/Full", false),
            ],
        ));
        answer.extend(bitset(4, false, &[("10000baseCR/Full", true)]));
        answer.extend(attribute(5, &10_000_u32.to_ne_bytes()));
        answer.extend(attribute(6, &[1]));
        let expected = Link {
            speed: Some(BitRate(10_000_000_000)),
            duplex: Some(Duplex::Full),
            negotiates: Some(true),
            by_hand: false,
            supported: gbit(&[1, 10, 25]),
            advertised: gbit(&[1, 10]),
            peer: gbit(&[10]),
            modes: link(&answer).modes,
        };
        assert_eq!(link(&answer), expected);
        let modes = expected.modes;
        assert_eq!(modes.supported.len(), 5);
        assert!(!modes.advertised.contains("25000baseCR/Full"));
        assert!(modes.peer.contains("10000baseCR/Full") && modes.peer.len() == 1);
    }

    #[test]
    fn a_link_without_carrier_has_no_rate_and_one_of_fixed_rate_negotiates_nothing() {
        let mut answer = attribute(2, &[0]);
        answer.extend(attribute(5, &u32::MAX.to_ne_bytes()));
        answer.extend(attribute(6, &[0xff]));
        let told = link(&answer);
        assert_eq!(
            (told.speed, told.duplex, told.negotiates),
            (None, None, None)
        );
    }

    #[test]
    fn a_rate_is_by_hand_only_where_this_end_does_not_offer_to_negotiate() {
        let by_hand = |negotiates: u8, modes: &[(&str, bool)]| {
            let mut answer = attribute(2, &[negotiates]);
            answer.extend(bitset(3, true, modes));
            link(&answer).by_hand
        };
        assert!(by_hand(0, &[("Autoneg", false), ("1000baseT/Full", true)]));
        // Drivers that say so before there is a cable.
        assert!(!by_hand(0, &[("Autoneg", true), ("1000baseT/Full", true)]));
        assert!(!by_hand(1, &[("Autoneg", false)]));
        assert!(!by_hand(0, &[("25000baseSR/Full", true)]));
    }

    #[test]
    fn numbers_of_rings_and_queues_are_read_and_missing_ones_are_not_made_up() {
        let number = |kind: u16, value: u32| attribute(kind, &value.to_ne_bytes());
        let answer: Vec<u8> = [(2, 8192), (5, 8192), (6, 1024), (9, 512)]
            .into_iter()
            .flat_map(|(kind, value)| number(kind, value))
            .collect();
        let read = rings(&answer).unwrap();
        assert_eq!((read.receive, read.receive_most), (1024, 8192));
        assert!(rings(&answer[..16]).is_err());
        assert_eq!(channels(&number(9, 4)).combined, 4);
        let answer = [number(2, 8), number(3, 128), attribute(11, &[1])].concat();
        let expected = Coalescing {
            adaptive_receive: Some(true),
            receive_micros: Some(8),
            receive_packets: Some(128),
        };
        assert_eq!(coalescing(&answer), expected);
        assert_eq!(coalescing(&[]), Coalescing::default());
    }

    #[test]
    fn error_correction_is_told_as_it_is_set_and_as_it_is_in_use() {
        let mut answer = bitset(2, false, &[("RS", true), ("BASER", true)]);
        answer.extend(attribute(3, &[1]));
        let told = fec(&answer);
        assert!(told.automatic && told.configured.len() == 2);
        assert_eq!(told.active, None);
        for (number, name) in [(50_u32, Some("RS")), (49, Some("None")), (7, None)] {
            let active = attribute(4, &number.to_ne_bytes());
            assert_eq!(fec(&active).active.as_deref(), name);
        }
    }

    #[test]
    fn blocks_that_were_not_corrected_are_told_for_all_lanes_where_they_are_counted() {
        let counted = |lanes: &[u64]| {
            let blocks: Vec<u8> = lanes.iter().flat_map(|count| count.to_ne_bytes()).collect();
            let counted = [attribute(2, &99_u64.to_ne_bytes()), attribute(3, &blocks)];
            fec(&attribute(5, &counted.concat())).uncorrected
        };
        assert_eq!(counted(&[7]), Some(7));
        assert_eq!(counted(&[7, 4, 3]), Some(7));
        assert_eq!(counted(&[]), None);
        assert_eq!(fec(&attribute(3, &[1])).uncorrected, None);
    }

    #[test]
    fn features_are_told_with_those_that_can_be_changed() {
        let mut answer = bitset(
            2,
            true,
            &[("rx-gro", true), ("rx-lro", true), ("tx-x", false)],
        );
        answer.extend(bitset(4, false, &[("rx-gro", true)]));
        let told = features(&answer);
        assert!(told.active.contains("rx-gro") && !told.active.contains("rx-lro"));
        assert!(told.changeable.contains("rx-lro") && !told.changeable.contains("tx-x"));
    }
}
