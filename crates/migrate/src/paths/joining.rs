//! What becomes of a session's paths when the interfaces of its hosts change.

use std::net::IpAddr;

use drover_types::{Interface, Path, PathEnd, PathId};

use super::{Candidate, Side};
use crate::limits::{PATHS, PATHS_KNOWN};

/// Why an end of a path carries nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// No interface has that name.
    #[error("{interface} is gone")]
    Gone {
        /// Its name.
        interface: String,
    },
    /// Down, or without carrier.
    #[error("{interface} is down or has no carrier")]
    Down {
        /// Its name.
        interface: String,
    },
    /// The address was taken away.
    #[error("{interface} does not have the address {address} any more")]
    AddressGone {
        /// Its name.
        interface: String,
        /// The address.
        address: IpAddr,
    },
}

/// Why this end of a path, one of our own, carries nothing at present.
#[must_use]
pub fn trouble(own: &[Interface], end: &PathEnd) -> Option<Trouble> {
    let name = || end.interface.clone();
    let Some(interface) = own.iter().find(|own| own.name == end.interface) else {
        return Some(Trouble::Gone { interface: name() });
    };
    if !interface.up {
        return Some(Trouble::Down { interface: name() });
    }
    let has = |network: &drover_types::IpNetwork| network.address() == end.address;
    let address = end.address;
    (!interface.addresses.iter().any(has)).then(|| Trouble::AddressGone {
        interface: name(),
        address,
    })
}

/// The candidates that are not a path of the session yet.
pub fn unknown(current: &[Path], candidates: &mut Vec<Candidate>) {
    candidates.retain(|candidate| {
        let same = |path: &Path| {
            path.source == candidate.source && path.destination == candidate.destination
        };
        !current.iter().any(same)
    });
}

/// Of the paths that would be chosen now, those that bring an interface into use that no living path
/// uses; numbered after all that there ever were. A path that lives is left as it is, whatever would be
/// chosen today.
#[must_use]
pub fn joining(current: &[Path], lives: impl Fn(PathId) -> bool, chosen: &[Path]) -> Vec<Path> {
    let living: Vec<&Path> = current.iter().filter(|path| lives(path.id)).collect();
    let mut in_use: Vec<(Side, &str)> = living.iter().copied().flat_map(ends).collect();
    let room = (PATHS.saturating_sub(living.len())).min(PATHS_KNOWN.saturating_sub(current.len()));
    let next = current.iter().map(|path| path.id.0 + 1).max().unwrap_or(0);
    let mut joining: Vec<Path> = Vec::new();
    for path in chosen {
        let same = |known: &&Path| {
            (&known.source, &known.destination) == (&path.source, &path.destination)
        };
        let brings_one = ends(path).iter().any(|end| !in_use.contains(end));
        if joining.len() < room && brings_one && !current.iter().any(|known| same(&known)) {
            in_use.extend(ends(path));
            let id = PathId(next + joining.len() as u16);
            joining.push(Path { id, ..path.clone() });
        }
    }
    joining
}

fn ends(path: &Path) -> [(Side, &str); 2] {
    [
        (Side::Source, &path.source.interface),
        (Side::Destination, &path.destination.interface),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(interface: &str, address: &str) -> PathEnd {
        PathEnd {
            interface: interface.into(),
            address: address.parse().unwrap(),
        }
    }

    /// From nic A of the source to nic B of the destination, by names as `1-2`.
    fn path(id: u16, ends: &str) -> Path {
        let (near, far) = ends.split_once('-').unwrap();
        Path {
            id: PathId(id),
            source: end(&format!("nic{near}"), &format!("10.0.{near}.1")),
            destination: end(&format!("nic{far}"), &format!("10.0.{far}.2")),
            rate: None,
            mtu: 1500,
        }
    }

    fn paths(ends: &[&str]) -> Vec<Path> {
        ends.iter()
            .zip(0..)
            .map(|(ends, id)| path(id, ends))
            .collect()
    }

    fn join(current: &[&str], dead: &[u16], chosen: &[&str]) -> Vec<Path> {
        joining(&paths(current), |id| !dead.contains(&id.0), &paths(chosen))
    }

    #[test]
    fn a_new_pair_joins_by_a_number_of_its_own_and_the_others_stay() {
        let joined = join(&["0-0", "1-1"], &[], &["2-2", "0-0", "1-1"]);
        assert_eq!(joined, [path(2, "2-2")]);
    }

    #[test]
    fn a_living_path_is_not_doubled_by_another_pairing_of_its_interfaces() {
        assert_eq!(join(&["0-0", "1-1"], &[], &["0-1", "1-0"]), []);
    }

    #[test]
    fn interfaces_of_a_dead_path_join_others_and_the_dead_path_itself_does_not_come_twice() {
        let joined = join(&["0-0", "1-1"], &[1], &["0-0", "1-0", "1-1"]);
        assert_eq!(joined, [path(2, "1-0")]);
    }

    #[test]
    fn two_that_join_do_not_bring_the_same_interface_twice() {
        let joined = join(&["0-0"], &[], &["1-1", "1-0", "0-1"]);
        assert_eq!(joined, [path(1, "1-1")]);
    }

    #[test]
    fn a_renumbered_interface_joins_anew() {
        let mut renumbered = path(0, "1-1");
        renumbered.source.address = "10.0.1.9".parse().unwrap();
        let current = paths(&["0-0", "1-1"]);
        let joined = joining(&current, |id| id.0 != 1, &[renumbered.clone()]);
        assert_eq!((joined.len(), joined[0].id), (1, PathId(2)));
        assert_eq!(joined[0].source, renumbered.source);
    }

    #[test]
    fn no_more_paths_join_than_a_session_takes() {
        let many: Vec<String> = (0..40).map(|n| format!("{n}-{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(join(&["50-50"], &[], &many).len(), PATHS - 1);
    }

    #[test]
    fn dead_paths_keep_none_from_joining_until_more_are_known_than_a_session_remembers() {
        let names = |range: std::ops::Range<usize>| -> Vec<String> {
            range.map(|n| format!("{n}-{n}")).collect()
        };
        let joined = |known: usize| {
            let (known, more) = (names(0..known), names(100..110));
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            let more: Vec<&str> = more.iter().map(String::as_str).collect();
            let dead: Vec<u16> = (1..known.len() as u16).collect();
            join(&known, &dead, &more).len()
        };
        assert_eq!(joined(PATHS), 10);
        assert_eq!(joined(PATHS_KNOWN - 2), 2);
        assert_eq!(joined(PATHS_KNOWN), 0);
    }

    #[test]
    fn candidates_that_are_paths_already_are_not_probed_again() {
        let candidate = |path: &Path| Candidate {
            source: path.source.clone(),
            destination: path.destination.clone(),
        };
        let mut candidates: Vec<_> = paths(&["0-0", "1-1"]).iter().map(candidate).collect();
        unknown(&paths(&["1-1"]), &mut candidates);
        assert_eq!(candidates, [candidate(&path(0, "0-0"))]);
    }

    #[test]
    fn an_end_is_in_trouble_when_it_is_gone_down_or_without_its_address() {
        let interface = |name: &str, up: bool| Interface {
            name: name.into(),
            addresses: vec!["10.0.1.1/24".parse().unwrap()],
            speed: None,
            mtu: 1500,
            up,
            loopback: false,
            tx_queues: 1,
            rx_queues: 1,
            rdma: None,
        };
        let own = [interface("nic1", true), interface("nic2", false)];
        let said = |name: &str, address: &str| {
            trouble(&own, &end(name, address)).map(|trouble| trouble.to_string())
        };
        assert_eq!(said("nic1", "10.0.1.1"), None);
        let reasons = [
            said("nic1", "10.0.1.2"),
            said("nic2", "10.0.1.1"),
            said("nic3", "10.0.1.1"),
        ];
        for (reason, word) in reasons.iter().zip(["address 10.0.1.2", "down", "gone"]) {
            let reason = reason.as_ref().unwrap();
            assert!(
                reason.starts_with("nic") && reason.contains(word),
                "{reason}"
            );
        }
    }
}
