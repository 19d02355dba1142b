//! What an operator decides in the place of a host that does not answer, and what the other host
//! makes of it when it is back.

use serde::{Deserialize, Serialize};

use crate::Time;
use crate::cause::Reason;

/// What an operator decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resolution {
    /// On the destination: the guest that has arrived runs there.
    RunHere,
    /// On the destination: the guest that has arrived is given up there.
    Discard,
    /// On the source: the guest that was handed off is given up, and the source's to start again.
    GiveUp,
}

/// The other host may have done what decides whose the guest is, and does not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ambiguity {
    /// It was asked and did not answer, first at this time.
    pub since: Time,
    /// It answered last; never, as far as this agent's life goes back, without one.
    pub heard: Option<Time>,
    /// What the last question ended with.
    pub last: Option<Reason>,
}

/// What became of the last wish to resolve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolving {
    /// There was none.
    No,
    /// The other host is asked once more.
    Asking,
    /// It answered: what it said counts, and not the operator's word.
    Answered,
    /// It did not answer: the operator's word counts from now on.
    Decided,
}

/// The last question before the operator's word counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastQuestion {
    /// An earlier one is still open, or what it said may still count.
    Waits,
    /// It is open.
    Asked,
}

/// What a host does that hears that the guest is the other one's by an operator's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claimed {
    /// It gives up what it has of it: the definition leaves.
    LetsGo,
    /// It has a process of the guest: a person has to see to it that only one host runs it.
    BothHave,
    /// An operator has decided here as well, for this host.
    BothDecided,
}

/// What a host whose part of the migration has ended does with such a claim. Where operators have
/// decided on both hosts, the destination does not let go: one of the two has to keep a definition,
/// and it may have run the guest since.
#[must_use]
pub fn claimed(own: Option<Resolution>, has_process: bool) -> Claimed {
    match own {
        _ if has_process => Claimed::BothHave,
        Some(Resolution::RunHere) => Claimed::BothDecided,
        Some(Resolution::GiveUp | Resolution::Discard) | None => Claimed::LetsGo,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_with_a_process_of_the_guest_never_lets_go_and_not_both_do() {
        let all = [
            None,
            Some(Resolution::RunHere),
            Some(Resolution::Discard),
            Some(Resolution::GiveUp),
        ];
        for own in all {
            assert_eq!(claimed(own, true), Claimed::BothHave);
        }
        let source = claimed(Some(Resolution::GiveUp), false);
        let destination = claimed(Some(Resolution::RunHere), false);
        assert_eq!(
            (source, destination),
            (Claimed::LetsGo, Claimed::BothDecided)
        );
    }
}
