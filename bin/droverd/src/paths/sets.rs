//! Which paths are loaded at the same time.
//!
//! Every host is loaded by all others, one host after the other. Then every host loads another one, in rounds: in the first one each the host
//! after it, in the second one the one after that, and so on. So each host sends to one and is sent to by one in a round, and
//! what falls short there is neither's own link.

use std::collections::BTreeSet;

use drover_tune::facts::{Path, PathEnd};
use drover_types::HostName;

/// Whether two interfaces of one host share its line.
pub type ShareALine<'a> = &'a dyn Fn(&PathEnd, &PathEnd) -> bool;

/// Paths that are loaded at the same time, by their places among all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    /// Who loads whom.
    pub kind: Kind,
    /// Its number among all sets.
    pub number: u32,
    /// Those that are loaded.
    pub paths: Vec<usize>,
    /// Those that share a line with another path of the same two hosts, and are not.
    pub beside: Vec<usize>,
}

/// Who loads whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// All hosts one.
    ToOne,
    /// Every host another.
    EachOther,
}

/// Those of the paths that were loaded alone.
pub fn sets(hosts: &[HostName], paths: &[Path], share_a_line: ShareALine<'_>) -> Vec<Set> {
    let count = hosts.len();
    let place = |host: &str| hosts.iter().position(|known| known.as_str() == host);
    let is_loaded = |path: &Path| path.carried.as_ref().is_some_and(|it| it.known().is_some());
    let those = |wanted: &dyn Fn(usize, usize) -> bool| -> Vec<usize> {
        let all = paths.iter().enumerate();
        let wanted = all.filter(|(_, path)| {
            let ends = place(&path.near.host).zip(place(&path.far.host));
            is_loaded(path) && ends.is_some_and(|(near, far)| wanted(near, far))
        });
        wanted.map(|(at, _)| at).collect()
    };
    let to_one = (0..count).map(|one| (Kind::ToOne, those(&|_, far| far == one)));
    let rounds = (1..count).map(|step| {
        let each = those(&|near, far| far == (near + step) % count);
        (Kind::EachOther, each)
    });
    let all = to_one.chain(rounds).zip(1..);
    all.map(|((kind, of_set), number)| {
        let (loaded, beside) = apart(&of_set, paths, share_a_line);
        Set {
            kind,
            number,
            paths: loaded,
            beside,
        }
    })
    .collect()
}

/// Of the paths of two hosts those that share no line, and the others.
fn apart(
    of_set: &[usize],
    paths: &[Path],
    share_a_line: ShareALine<'_>,
) -> (Vec<usize>, Vec<usize>) {
    let (mut loaded, mut beside) = (Vec::new(), Vec::new());
    for at in of_set {
        let path = &paths[*at];
        let meets = |other: &&usize| {
            let other = &paths[**other];
            let same_hosts = other.near.host == path.near.host && other.far.host == path.far.host;
            let near = share_a_line(&other.near, &path.near);
            same_hosts && (near || share_a_line(&other.far, &path.far))
        };
        match loaded.iter().find(meets) {
            Some(_) => beside.push(*at),
            None => loaded.push(*at),
        }
    }
    (loaded, beside)
}

impl Set {
    /// The hosts that load others in it.
    pub fn senders<'p>(&self, paths: &'p [Path]) -> BTreeSet<&'p str> {
        let hosts = self.paths.iter().map(|at| paths[*at].near.host.as_str());
        hosts.collect()
    }

    /// How many hosts load the line that a path of it arrives on.
    pub fn senders_to(&self, far: &PathEnd, paths: &[Path], share_a_line: ShareALine<'_>) -> u32 {
        let ends = self.paths.iter().map(|at| &paths[*at]);
        let onto = ends.filter(|path| path.far.host == far.host && share_a_line(&path.far, far));
        let hosts: BTreeSet<&str> = onto.map(|path| path.near.host.as_str()).collect();
        u32::try_from(hosts.len()).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use drover_tune::facts::{Carried, Fact, HeldUpBy};

    use super::*;

    fn end(host: &str, nic: &str) -> PathEnd {
        PathEnd {
            host: host.into(),
            nic: nic.into(),
            address: "10.0.0.1".parse().unwrap(),
            mtu: 1500,
        }
    }

    /// One that was loaded.
    fn path(near: (&str, &str), far: (&str, &str)) -> Path {
        let unknown = "not asked";
        Path {
            near: end(near.0, near.1),
            far: end(far.0, far.1),
            route: Fact::unknown(unknown),
            refused: None,
            answers: Fact::unknown(unknown),
            arrivals: Fact::unknown(unknown),
            there: Fact::unknown(unknown),
            back: Fact::unknown(unknown),
            round_trip: Fact::unknown(unknown),
            counted: Fact::unknown(unknown),
            carried: Some(Fact::Known(Carried {
                rate: 1,
                line: None,
                allowed: None,
                packets: 1,
                again: 0,
                held_up_by: HeldUpBy::Path,
                slot: None,
            })),
            together: None,
        }
    }

    fn hosts(names: &[&str]) -> Vec<HostName> {
        names.iter().map(|name| name.parse().unwrap()).collect()
    }

    fn all_pairs(names: &[&str]) -> Vec<Path> {
        let pairs = names
            .iter()
            .flat_map(|near| names.iter().map(move |far| (*near, *far)));
        let pairs = pairs.filter(|(near, far)| near != far);
        pairs
            .map(|(near, far)| path((near, "n0"), (far, "n0")))
            .collect()
    }

    /// VLANs by what comes before the dot.
    fn by_port(one: &PathEnd, other: &PathEnd) -> bool {
        let port = |end: &PathEnd| end.nic.split('.').next().map(str::to_owned);
        port(one) == port(other)
    }

    fn told(set: &Set, paths: &[Path]) -> Vec<String> {
        let ends = set.paths.iter().map(|at| &paths[*at]);
        ends.map(|path| format!("{}>{}", path.near.host, path.far.host))
            .collect()
    }

    #[test]
    fn each_host_is_loaded_by_all_others_and_in_each_round_sends_to_one_and_is_sent_to_by_one() {
        let names = ["a", "b", "c", "d"];
        let paths = all_pairs(&names);
        let sets = sets(&hosts(&names), &paths, &by_port);
        let numbers: Vec<u32> = sets.iter().map(|set| set.number).collect();
        assert_eq!(numbers, (1..=7).collect::<Vec<_>>());
        let (to_one, rounds) = sets.split_at(4);
        assert_eq!(told(&to_one[1], &paths), ["a>b", "c>b", "d>b"]);
        assert_eq!(told(&rounds[1], &paths), ["a>c", "b>d", "c>a", "d>b"]);
        let mut all: Vec<String> = rounds.iter().flat_map(|set| told(set, &paths)).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 12);
        for set in rounds {
            assert_eq!(set.kind, Kind::EachOther);
            assert_eq!(set.senders(&paths).len(), 4);
        }
        for at in &to_one[0].paths {
            assert_eq!(to_one[0].senders_to(&paths[*at].far, &paths, &by_port), 3);
        }
    }

    #[test]
    fn what_was_not_loaded_alone_is_in_no_set_and_a_line_is_loaded_once_by_each_host() {
        let mut paths = vec![
            path(("b", "n0.1"), ("a", "n0.1")),
            path(("b", "n0.2"), ("a", "n0.2")),
            path(("b", "n1"), ("a", "n1")),
            path(("c", "n0.2"), ("a", "n0.2")),
            path(("c", "n1"), ("a", "n1")),
        ];
        paths[4].carried = Some(Fact::unknown("a guest moves"));
        let sets = sets(&hosts(&["a", "b", "c"]), &paths, &by_port);
        assert_eq!(
            (&sets[0].paths[..], &sets[0].beside[..]),
            (&[0, 2, 3][..], &[1][..])
        );
        let senders = |at: usize| sets[0].senders_to(&paths[at].far, &paths, &by_port);
        assert_eq!((senders(0), senders(2), senders(3)), (2, 1, 2));
    }
}
