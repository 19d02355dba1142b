//! How a team uses its members: the options that its module tells by generic netlink (`include/uapi/linux/if_team.h`), to root alone.
//!
//! Who sets them is `teamd`, by its runner. That of LACP has the mode `loadbalance`, and which members are in its group is seen by
//! those that are enabled.
//!
//! ```text
//! 1 the team's index u32   2 options, nested: of each 1 an option, nested:
//!    1 name   4 value: text, u32, or for a switch there or not   6 the member's index u32, if it is a member's
//! ```

use std::collections::BTreeMap;

use drover_tune::facts::Bond;

use crate::limits::TEAM_PARTS;
use crate::netlink::attributes::{NESTED, attribute, each, find, text_of, u32_of};
use crate::netlink::{Answer, Generic};

const OPTIONS_GET: u8 = 2;
const TEAM_INDEX: u16 = 1;
const OPTIONS: u16 = 2;
const OPTION: u16 = 1;
const NAME: u16 = 1;
const VALUE: u16 = 4;
const MEMBER_INDEX: u16 = 6;

/// The mode of a team that was given none.
const NO_MODE: &str = "*NOMODE*";

/// The options of the team with that index.
pub(crate) fn ask(index: u32) -> Answer {
    // Of its own: what is behind the last part would be taken for the answer to a next question.
    let mut family = Generic::open("team").ok_or("the kernel's teams are not asked")?;
    let which = attribute(TEAM_INDEX, &index.to_ne_bytes());
    let parts = family.parts(OPTIONS_GET, &which, TEAM_PARTS)?;
    let lists = parts.iter().flat_map(|part| each(part));
    let lists = lists.filter(|(kind, _)| *kind == OPTIONS);
    Ok(lists
        .flat_map(|(kind, list)| attribute(kind | NESTED, list))
        .collect())
}

/// What they say, with the members' names by their indices.
///
/// # Errors
/// Why they do not, to be read after "because".
pub(crate) fn bond(told: &[u8], members: &BTreeMap<u32, String>) -> Result<Bond, String> {
    let (mut mode, mut carrying, mut active) = (None, None, Vec::new());
    let lists = each(told).filter(|(kind, _)| *kind == OPTIONS);
    let options = lists.flat_map(|(_, list)| each(list));
    for (_, option) in options.filter(|(kind, _)| *kind == OPTION) {
        let member = || members.get(&u32_of(option, MEMBER_INDEX)?).cloned();
        match text_of(option, NAME).as_deref() {
            Some("mode") => mode = text_of(option, VALUE),
            Some("activeport") => {
                let index = u32_of(option, VALUE);
                carrying = index.and_then(|index| members.get(&index).cloned());
            }
            Some("enabled") if find(option, VALUE).is_some() => active.extend(member()),
            _ => {}
        }
    }
    let mode = mode.filter(|mode| mode != NO_MODE);
    active.sort_unstable();
    active.dedup();
    Ok(Bond {
        mode: mode.ok_or("the team has no mode: no teamd has given it one")?,
        hash: None,
        active,
        carrying,
        aggregator: None,
        aggregators: BTreeMap::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn option(name: &str, member: Option<u32>, value: Option<&[u8]>) -> Vec<u8> {
        let mut parts = attribute(NAME, format!("{name}\0").as_bytes());
        parts.extend(
            value
                .map(|value| attribute(VALUE, value))
                .unwrap_or_default(),
        );
        let member = member.map(|index| attribute(MEMBER_INDEX, &index.to_ne_bytes()));
        parts.extend(member.unwrap_or_default());
        attribute(OPTION | NESTED, &parts)
    }

    fn told(options: &[Vec<u8>]) -> Vec<u8> {
        attribute(OPTIONS | NESTED, &options.concat())
    }

    fn members() -> BTreeMap<u32, String> {
        [(4, "nic0".to_owned()), (5, "nic1".to_owned())].into()
    }

    #[test]
    fn a_team_tells_its_mode_the_members_that_are_enabled_and_the_one_that_carries() {
        let first = told(&[
            option("mode", None, Some(b"activebackup\0")),
            option("enabled", Some(5), Some(&[])),
            option("enabled", Some(4), None),
            option("priority", Some(4), Some(&[0; 4])),
        ]);
        // What does not fit one message is in the next one.
        let second = told(&[option("activeport", None, Some(&5_u32.to_ne_bytes()))]);
        let all = [first, second].concat();
        let bond = bond(&all, &members()).unwrap();
        assert_eq!(bond.mode, "activebackup");
        assert!(bond.one_carries());
        assert_eq!(bond.active, ["nic1"]);
        assert_eq!(bond.carrying.as_deref(), Some("nic1"));
        for cut in 0..all.len() {
            let _ = super::bond(&all[..cut], &members());
        }
    }

    #[test]
    fn a_team_that_nobody_looks_after_has_no_mode() {
        let none = told(&[option("mode", None, Some(b"*NOMODE*\0"))]);
        for told in [&none[..], &[]] {
            let why = bond(told, &members()).unwrap_err();
            assert!(why.contains("has no mode"), "{why}");
        }
    }

    #[test]
    fn a_member_that_left_meanwhile_is_none() {
        let told = told(&[
            option("mode", None, Some(b"loadbalance\0")),
            option("enabled", Some(9), Some(&[])),
            option("enabled", None, Some(&[])),
        ]);
        let bond = bond(&told, &members()).unwrap();
        assert_eq!(bond.active, [""; 0]);
        assert!(!bond.one_carries());
    }
}
