//! SHA-256 over what a plan was made from, and over a plan itself.
//!
//! The digest of the inputs is over everything that decides whether a step is right: hosts with their
//! state, capacity, processors, labels and lines, VMs with their place, needs and policies, the cluster's
//! policy, the request. Left out are
//! - the age of facts, the memory used, the dirty rate and the working set: they differ at every look, and
//!   only the forecast rests on them, so that they would make every plan outdated at once;
//! - what disks have of their file systems, and what is free on those, which are measured as well;
//! - the memory that others than guests use on a host, which is measured, too: whether there is room still is
//!   looked at itself ([`Plan::verify`]);
//! - how it shows that a host lacks something, and what people call a guest: words, which differ where nothing else does;
//! - the state of hosts that the request is about: a drain cordons first, and its plan is still the same;
//! - hosts that do not answer, with their guests: nothing moves from or to them, and what they said last is not the same
//!   to all who heard it.
//!
//! This is no signature. Who may apply a plan may also make one.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use drover_types::{Bytes, HostName};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::canonical;
use crate::inventory::{DiskRoom, HostState, Inventory};
use crate::plan::Plan;
use crate::policy::ClusterPolicy;
use crate::request::Request;
use crate::words::Text;

/// A SHA-256, written as 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

/// Text that is no digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no digest: 64 hexadecimal digits in lower case")]
pub struct InvalidDigest {
    text: String,
}

impl Digest {
    /// Its first eight digits, to tell plans apart by.
    #[must_use]
    pub fn short(&self) -> String {
        self.to_string().chars().take(8).collect()
    }

    pub(crate) fn of(value: &impl Serialize) -> Self {
        let mut hasher = Sha256::new();
        canonical::write(value, &mut |bytes| hasher.update(bytes));
        Self(hasher.finalize().into())
    }

    /// Of what a plan is made from.
    #[must_use]
    pub fn of_inputs(inventory: &Inventory, policy: &ClusterPolicy, request: &Request) -> Self {
        let mut facts = without_what_is_old(inventory);
        facts.sort();
        for host in &mut facts.hosts {
            host.facts_age_seconds = 0;
            host.memory_for_host = Bytes(0);
            host.disks = DiskRoom::default();
            let why = host.lacks.values_mut();
            why.for_each(|why| *why = Text::from(String::new()));
            if request.is_about(&host.name) {
                host.state = HostState::Ready;
            }
        }
        for vm in &mut facts.vms {
            vm.called = None;
            vm.memory_used = Bytes(0);
            vm.dirty_rate = None;
            vm.working_set = None;
            if let Some(disks) = &mut vm.disks {
                disks.allocated = Bytes(0);
            }
            vm.policy
                .apart
                .sort_unstable_by(|one, other| one.group.cmp(&other.group));
            vm.policy
                .together
                .sort_unstable_by(|one, other| one.group.cmp(&other.group));
        }
        Self::of(&(facts, policy, request))
    }

    /// Of a cluster's policy, to see where two are not the same.
    #[must_use]
    pub fn of_policy(policy: &ClusterPolicy) -> Self {
        Self::of(policy)
    }

    /// Of a plan without its seal.
    #[must_use]
    pub fn of_plan(plan: &Plan) -> Self {
        let mut plan = plan.clone();
        plan.seal = Self::default();
        Self::of(&plan)
    }
}

/// Without hosts that do not answer, and their guests: no step is from or to them, and what they said last is known
/// differently by each who heard it.
fn without_what_is_old(inventory: &Inventory) -> Inventory {
    let hosts = inventory.hosts.iter();
    let silent = hosts.filter(|host| host.state == HostState::Unreachable);
    let silent: BTreeSet<HostName> = silent.map(|host| host.name.clone()).collect();
    let mut facts = inventory.clone();
    facts.hosts.retain(|host| !silent.contains(&host.name));
    facts.vms.retain(|vm| !silent.contains(&vm.host));
    facts
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Digest {
    type Err = InvalidDigest;
    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let invalid = || InvalidDigest {
            text: text.chars().take(70).collect(),
        };
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let digits: Option<Vec<u8>> = text.bytes().take(65).map(digit).collect();
        let digits = digits.ok_or_else(invalid)?;
        let bytes: Vec<u8> = digits
            .chunks(2)
            .map(|pair| pair.iter().fold(0, |b, d| b << 4 | d))
            .collect();
        match <[u8; 32]>::try_from(bytes) {
            Ok(bytes) if digits.len() == 64 => Ok(Self(bytes)),
            _ => Err(invalid()),
        }
    }
}

impl TryFrom<String> for Digest {
    type Error = InvalidDigest;
    fn try_from(text: String) -> Result<Self, InvalidDigest> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_as_it_is_written_and_nothing_else_is() {
        let digest = Digest::of(&"x");
        assert_eq!(digest.to_string().parse(), Ok(digest));
        let text = digest.to_string();
        for bad in [
            "",
            "00",
            &text[1..],
            &format!("{text}0"),
            &text.replace(&text[..1], "X"),
        ] {
            assert!(bad.parse::<Digest>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn values_that_would_look_alike_side_by_side_have_different_digests() {
        assert_ne!(Digest::of(&("ab", "c")), Digest::of(&("a", "bc")));
        assert_ne!(
            Digest::of(&vec![vec![1_u8], vec![]]),
            Digest::of(&vec![vec![], vec![1_u8]])
        );
        assert_ne!(Digest::of(&Some(0_u64)), Digest::of(&None::<u64>));
    }
}
