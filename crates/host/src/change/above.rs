//! What stands on an interface that is to have smaller packets.
//!
//! Going back asks less than going on does. What an undo cannot give back is not begun with; but what was raised goes back wherever that
//! takes nothing away that was there before, for what was not proved is not to stay.

use drover_tune::lasting::End;

use super::ChangeError;
use crate::stack::{Fits, Link, Stack};

/// Whether that interface can have packets of at most so many bytes.
///
/// # Errors
/// What stands on it would have smaller ones for good, or goes on with larger ones.
pub(super) fn check(stack: &Stack, link: &Link, most: u32, to: End) -> Result<(), ChangeError> {
    if most >= link.mtu {
        return Ok(());
    }
    let larger = |upper: &&Link| upper.mtu > most;
    let for_good = |upper: &Link| ChangeError::Above {
        nic: link.name.clone(),
        upper: upper.name.clone(),
        bytes: upper.mtu,
    };
    for upper in stack.on(link).filter(larger) {
        match (upper.fits, to) {
            (Fits::Shrinks, _) => return Err(for_good(upper)),
            (Fits::Follows | Fits::Apart, _) | (Fits::Bridge | Fits::Stays, End::Before) => {}
            (Fits::Bridge, End::After) if stack.may_follow(upper) => {
                let mut with_it = stack.on(upper).filter(larger);
                if let Some(over) = with_it.find(|over| over.fits == Fits::Shrinks) {
                    return Err(for_good(over));
                }
            }
            (Fits::Bridge | Fits::Stays, End::After) => return Err(goes_on(link, upper)),
        }
    }
    Ok(())
}

/// Whether what stands on that interface, which was given smaller packets, has followed it: of a bridge that has its port's own size nothing
/// tells before whether somebody has set that.
///
/// # Errors
/// It goes on with larger ones.
pub(super) fn followed(stack: &Stack, link: &Link) -> Result<(), ChangeError> {
    let larger = |upper: &&Link| upper.fits == Fits::Bridge && upper.mtu > link.mtu;
    let stays = stack.on(link).find(larger);
    stays.map_or(Ok(()), |upper| Err(goes_on(link, upper)))
}

fn goes_on(link: &Link, upper: &Link) -> ChangeError {
    ChangeError::Larger {
        nic: link.name.clone(),
        upper: upper.name.clone(),
        bytes: upper.mtu,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::Made;

    /// Of `eth0` with 9000 bytes, which is to have 1500: what stands in the way.
    fn in_the_way(to: End, others: &[Made<'_>]) -> Option<String> {
        let port_of = others.first().map(|(name, ..)| *name);
        let eth0 = ("eth0", 9000, Fits::Stays, None, port_of);
        let stack = Stack::made(&[&[eth0], others].concat());
        let refused = check(&stack, stack.find("eth0").unwrap(), 1500, to);
        refused.err().map(|error| error.to_string())
    }

    /// A bridge or bond first, with `eth0` in it.
    fn over(name: &str, mtu: u32, fits: Fits) -> Made<'_> {
        (name, mtu, fits, None, None)
    }

    #[test]
    fn packets_are_made_no_smaller_below_what_would_get_smaller_with_them() {
        let vlan = ("eth0.7", 9000, Fits::Shrinks, Some("eth0"), None);
        let vrf = over("red", 65_575, Fits::Apart);
        for to in [End::After, End::Before] {
            let why = in_the_way(to, &[vrf, vlan]).unwrap();
            assert!(why.starts_with("eth0.7 stands on eth0"), "{why}");
            assert!(why.contains("no undo larger again"), "{why}");
        }
        let fits = ("eth0.7", 1500, Fits::Shrinks, Some("eth0"), None);
        let ipvlan = ("ipvl0", 9000, Fits::Follows, Some("eth0"), None);
        assert_eq!(in_the_way(End::After, &[vrf, fits, ipvlan]), None);
    }

    #[test]
    fn a_bridge_that_follows_is_gone_through_to_what_stands_on_it() {
        let bridge = over("br0", 9000, Fits::Bridge);
        let vlan = ("br0.7", 9000, Fits::Shrinks, Some("br0"), None);
        assert_eq!(in_the_way(End::After, &[bridge]), None);
        let why = in_the_way(End::After, &[bridge, vlan]).unwrap();
        assert!(why.starts_with("br0.7 stands on eth0"), "{why}");
        let small = ("br0.7", 1500, Fits::Shrinks, Some("br0"), None);
        assert_eq!(in_the_way(End::After, &[bridge, small]), None);
    }

    #[test]
    fn a_bridge_set_by_hand_and_a_bond_go_on_with_larger_packets_which_are_not_begun_to_be_lost() {
        let tap = ("tap0", 1400, Fits::Stays, None, Some("br0"));
        let by_hand = [over("br0", 9000, Fits::Bridge), tap];
        for others in [&by_hand[..], &[over("bond0", 9000, Fits::Stays)]] {
            let why = in_the_way(End::After, others).unwrap();
            assert!(why.contains("goes on sending them"), "{why}");
        }
        assert_eq!(
            in_the_way(End::After, &[over("bond0", 1500, Fits::Stays)]),
            None
        );
    }

    #[test]
    fn a_bridge_that_was_set_to_its_ports_size_shows_that_once_its_port_has_smaller_packets() {
        let after = |upper: Made<'_>| {
            let eth0 = ("eth0", 1500, Fits::Stays, None, Some(upper.0));
            let stack = Stack::made(&[eth0, upper]);
            let followed = followed(&stack, stack.find("eth0").unwrap());
            followed.err().map(|error| error.to_string())
        };
        assert_eq!(after(over("br0", 1500, Fits::Bridge)), None);
        assert_eq!(after(over("red", 65_575, Fits::Apart)), None);
        let why = after(over("br0", 9000, Fits::Bridge)).unwrap();
        let says = "br0 stands on eth0 with packets of 9000 bytes, and goes on sending them";
        assert!(why.starts_with(says), "{why}");
    }

    #[test]
    fn what_was_raised_goes_back_below_bridges_and_bonds_whoever_set_them() {
        let vlan = |over| ("v7", 9000, Fits::Shrinks, Some(over), None);
        let tap = ("tap0", 1400, Fits::Stays, None, Some("br0"));
        for others in [
            &[over("br0", 9000, Fits::Bridge)][..],
            &[over("br0", 9000, Fits::Bridge), vlan("br0")],
            &[over("br0", 9000, Fits::Bridge), tap, vlan("br0")],
            &[over("bond0", 9000, Fits::Stays), vlan("bond0")],
        ] {
            assert_eq!(in_the_way(End::Before, others), None, "{others:?}");
        }
    }

    #[test]
    fn larger_packets_are_in_nobodys_way() {
        let bond = ("bond0", 9000, Fits::Stays, None, None);
        let eth0 = ("eth0", 1500, Fits::Stays, None, Some("bond0"));
        let stack = Stack::made(&[eth0, bond]);
        for to in [End::After, End::Before] {
            check(&stack, stack.find("eth0").unwrap(), 4000, to).unwrap();
        }
    }
}
