//! Domains that are on this host when something is to be done to its network.

use drover_types::in_short;

use super::domains::{is_in_memory, name};
use super::{Libvirt, Seen, orders};

/// What speaks against it.
#[derive(Debug, PartialEq, Eq)]
pub struct Present {
    /// Which domains are in memory, or that this is not known.
    pub what: String,
    /// What to do about them.
    pub next: &'static str,
}

impl Libvirt {
    /// Its domains that are in memory, or may be. None where it has none, as far as it told last.
    pub fn present(&self) -> Option<Present> {
        present(&self.seen())
    }
}

fn present(seen: &Seen) -> Option<Present> {
    if let Some(why) = seen.never_told() {
        return Some(Present {
            what: format!("what libvirt has in memory there is not known: {why}"),
            next: "see that libvirtd answers, as `drover status` tells",
        });
    }
    let names = in_memory(seen);
    if names.is_empty() {
        return None;
    }
    let (count, names) = (names.len(), in_short(names.join(", ")));
    let what = match seen.problem() {
        None => format!("libvirt has {count} of its domains in memory there: {names}"),
        Some(why) => format!(
            "libvirt {} that {count} of its domains are in memory there: {names}; it has not told of them since: {why}",
            seen.said_last()
        ),
    };
    Some(Present {
        what,
        next: "`drover drain` moves those that can move, and says of the others why not: `virsh shutdown` ends them",
    })
}

/// The names of those that it told of, and of those that it does not tell of.
fn in_memory(seen: &Seen) -> Vec<String> {
    let told = orders::told(seen).filter(|domain| is_in_memory(domain.state));
    let told = told.map(|domain| name(&domain.name));
    let untold = seen.domains.iter().flat_map(|domains| &domains.untold);
    let untold = untold.map(|domain| {
        let name = name(&domain.name);
        format!("{name}, of which it does not tell")
    });
    told.chain(untold).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libvirt::seen::tests::{domain, lost, seen, untold};
    use drover_libvirt::{DomainState, Domains};
    use jiff::Timestamp;
    use std::sync::Arc;

    #[test]
    fn domains_in_memory_are_named_with_what_a_drain_does_for_them() {
        let seen = seen(vec![
            domain("web", DomainState::Running),
            domain("off", DomainState::ShutOff),
        ]);
        let present = present(&seen).unwrap();
        let expected = "libvirt has 1 of its domains in memory there: web";
        assert_eq!(present.what, expected);
        assert!(present.next.contains("`drover drain`"));
    }

    #[test]
    fn domains_of_a_libvirt_that_is_lost_count_as_it_said_last_and_when_is_told() {
        let seen = Seen {
            contact: lost(),
            heard: Some(Timestamp::UNIX_EPOCH),
            ..seen(vec![domain("web", DomainState::Running)])
        };
        let what = present(&seen).unwrap().what;
        let begin = "libvirt said last, at 1970-01-01T00:00:00Z, that 1 of its domains";
        assert!(what.starts_with(begin), "{what}");
        assert!(what.ends_with("since: no socket"), "{what}");
    }

    #[test]
    fn a_libvirt_that_never_told_of_its_domains_may_have_some() {
        let never = Seen {
            contact: lost(),
            ..Seen::looking("qemu:///system")
        };
        let Present { what, next } = present(&never).unwrap();
        assert!(what.ends_with("no socket"), "{what}");
        assert!(next.contains("libvirtd answers"), "{next}");
        assert_eq!(present(&Seen::off()), None);
        assert_eq!(present(&seen(Vec::new())), None);
    }

    #[test]
    fn a_domain_that_libvirt_does_not_tell_of_may_be_in_memory() {
        let domains = Domains {
            told: vec![domain("off", DomainState::ShutOff)],
            ..untold("hangs", 3)
        };
        let seen = Seen {
            domains: Some(Arc::new(domains)),
            ..seen(Vec::new())
        };
        let what = present(&seen).unwrap().what;
        assert!(what.ends_with("hangs, of which it does not tell"), "{what}");
    }
}
