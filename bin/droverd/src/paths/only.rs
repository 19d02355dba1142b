//! Which hosts are asked for.

use std::collections::BTreeSet;

use drover_api::Refusal;
use drover_types::HostName;

use crate::agent::Context;

/// Of one all that it has to do with, of several those among them.
#[derive(Debug)]
pub struct Only(BTreeSet<HostName>);

impl Only {
    /// Those of these names.
    ///
    /// # Errors
    /// One of them is no member.
    pub fn new(context: &Context, hosts: Vec<HostName>) -> Result<Self, Refusal> {
        for host in hosts.iter().filter(|host| **host != context.config.host) {
            // Refuses who is no member.
            context.peers.client(host)?;
        }
        Ok(Self(hosts.into_iter().collect()))
    }

    /// It was not asked for some alone.
    pub fn is_all(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it is about the paths of these two.
    pub fn has(&self, one: &HostName, other: &HostName) -> bool {
        let (one, other) = (self.0.contains(one), self.0.contains(other));
        match self.0.len() {
            0 => true,
            1 => one || other,
            _ => one && other,
        }
    }

    /// Whether a host has to do with it.
    pub fn concerns(&self, host: &HostName) -> bool {
        self.0.len() <= 1 || self.0.contains(host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(hosts: &[&str]) -> Only {
        Only(hosts.iter().map(|host| host.parse().unwrap()).collect())
    }

    fn has(only: &Only, one: &str, other: &str) -> bool {
        only.has(&one.parse().unwrap(), &other.parse().unwrap())
    }

    #[test]
    fn of_one_host_all_its_paths_are_asked_and_of_several_those_among_them() {
        assert!(has(&only(&[]), "a", "b"));
        let of_a = only(&["a"]);
        assert!(has(&of_a, "a", "b") && has(&of_a, "b", "a") && !has(&of_a, "b", "c"));
        let of_two = only(&["a", "b"]);
        assert!(has(&of_two, "b", "a") && !has(&of_two, "a", "c"));
        let host = |name: &str| name.parse().unwrap();
        assert!(of_a.concerns(&host("b")) && !of_two.concerns(&host("c")));
    }
}
