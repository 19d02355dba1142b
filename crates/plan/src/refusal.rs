//! Why there is no plan, and why a guest has no place on a host: values, not only words.

use drover_types::{Bytes, HostName, VmName};
use serde::{Deserialize, Serialize};

use crate::invalid::Invalid;
use crate::limits::LOSS_SETS;
use crate::plan::Unmoved;
use crate::policy::KeepLosses;
use crate::words::{QemuVersion, Text, Word};

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "refusal", rename_all = "kebab-case")]
pub enum Refusal {
    /// The inventory, the policy or the request contradicts itself or exceeds a bound.
    #[error("{what}")]
    Invalid {
        /// What is wrong.
        what: Invalid,
    },
    /// The request names a host that the cluster does not have.
    #[error("no host {host} in the cluster")]
    UnknownHost {
        /// The name.
        host: HostName,
    },
    /// Nothing can be moved off or to a host that does not answer.
    #[error("host {host} does not answer: its guests cannot be moved until it does")]
    Unreachable {
        /// The host.
        host: HostName,
    },
    /// What is known of a host that the request names is too old.
    #[error(
        "what is known of host {host} is {age_seconds} s old, and at most {limit_seconds} s are allowed"
    )]
    OldFacts {
        /// The host.
        host: HostName,
        /// Age of its facts.
        age_seconds: u64,
        /// The policy's bound.
        limit_seconds: u64,
    },
    /// A guest is on its way to a host that is to be drained.
    #[error("{vm} is being moved to {host}: wait until it has arrived, or cancel that migration")]
    Arriving {
        /// The guest.
        vm: VmName,
        /// The host.
        host: HostName,
    },
    /// With these hosts drained, none would be left that takes guests.
    #[error(
        "no host is left for {} with {memory} ({}): drain fewer hosts, or bring others back first",
        count(*guests, "guest"),
        if closed.is_empty() { "none is there beside those to be drained".to_owned() } else { first_names(closed.iter()) }
    )]
    NoHostLeft {
        /// Guests on the hosts to be drained.
        guests: usize,
        /// Their memory.
        memory: Bytes,
        /// The hosts that are not to be drained, none of which takes guests.
        closed: Vec<Closed>,
    },
    /// Guests that must move cannot.
    #[error(
        "{} cannot move, {} of them must ({}); free on hosts that take guests: {free}, wanted: {wanted}",
        count(unmoved.len(), "guest"),
        unmoved.iter().filter(|guest| guest.blocks()).count(),
        first_names(unmoved.iter().filter(|guest| guest.blocks()).map(|guest| &guest.vm))
    )]
    Blocked {
        /// All that cannot move, those too that need not.
        unmoved: Vec<Unmoved>,
        /// Memory of all guests on the hosts to be drained.
        wanted: Bytes,
        /// Memory that is free, headroom kept, on hosts that take guests.
        free: Bytes,
    },
    /// The cluster could not lose any more what the policy wants it to be able to lose.
    #[error(
        "if {} were lost afterwards, {} with {memory} would find no place ({}), and the policy wants {} to \
         be kept{}: bring other hosts back first, or set `policy.keep` in the coordinator's \
         droverd.toml to fewer",
        first_names(lost.iter()),
        count(guests.len(), "guest"),
        first_names(guests.iter()),
        count(wanted.losses as usize, "loss"),
        if *held_before { "" } else { "; it is not kept now either" }
    )]
    LossesNotKept {
        /// What the policy wants.
        wanted: KeepLosses,
        /// Hosts whose loss would be too much.
        lost: Vec<HostName>,
        /// Guests that would find no place then.
        guests: Vec<VmName>,
        /// Their memory.
        memory: Bytes,
        /// Whether the cluster can lose as much now.
        held_before: bool,
    },
    /// There are too many ways to lose what the policy wants to be able to lose.
    #[error(
        "{sets} ways to lose {losses} at once cannot all be tried, at most {LOSS_SETS} can: keep fewer, or \
         count failure domains"
    )]
    TooManyLosses {
        /// How many sets.
        sets: u64,
        /// Of how many hosts or domains each.
        losses: u32,
    },
}

impl Refusal {
    /// What to do next; none where the refusal says it already.
    #[must_use]
    pub fn next(&self) -> Option<&'static str> {
        match self {
            Self::UnknownHost { .. } => Some("`drover cluster status` shows the hosts"),
            Self::OldFacts { .. } => Some(
                "plan again: every host is asked anew. If it stays so, look at that host's agent",
            ),
            Self::Blocked { .. } => Some(
                "see to what is told of each: make room (bring hosts back, or move or stop other guests), or change what keeps them there (pins, groups and `cannot_move` in their definitions)",
            ),
            Self::TooManyLosses { .. } => Some(
                "set `policy.keep` in the coordinator's droverd.toml to fewer, or to failure domains",
            ),
            Self::Invalid { .. }
            | Self::Unreachable { .. }
            | Self::Arriving { .. }
            | Self::NoHostLeft { .. }
            | Self::LossesNotKept { .. } => None,
        }
    }
}

impl From<Invalid> for Refusal {
    fn from(what: Invalid) -> Self {
        Self::Invalid { what }
    }
}

/// A host that takes no guests at all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{host}: {why}")]
#[serde(deny_unknown_fields)]
pub struct Closed {
    /// The host.
    pub host: HostName,
    /// Why.
    pub why: NoPlace,
}

/// Why a guest has no place on a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "why", rename_all = "kebab-case", deny_unknown_fields)]
pub enum NoPlace {
    /// It is to be drained itself.
    #[error("is to be drained")]
    Draining,
    /// It takes no guests.
    #[error("is cordoned")]
    Cordoned,
    /// It does not answer.
    #[error("does not answer")]
    Unreachable,
    /// What is known of it is too old.
    #[error("facts are {age_seconds} s old, allowed are {limit_seconds} s")]
    OldFacts {
        /// Age of its facts.
        age_seconds: u64,
        /// The policy's bound.
        limit_seconds: u64,
    },
    /// The guest is pinned elsewhere.
    #[error("{vm} is pinned to others")]
    Pinned {
        /// The guest, or the one that it belongs together with.
        vm: VmName,
    },
    /// What the guest needs is not there.
    #[error("{}", what.iter().map(Text::as_str).collect::<Vec<_>>().join("; "))]
    Lacks {
        /// What, each as it shows there.
        what: Vec<Text>,
    },
    /// The guest's CPU model does not run there.
    #[error("CPU model {model} does not run there")]
    CpuModel {
        /// The model.
        model: Word,
    },
    /// Features are missing.
    #[error("lacks CPU {} {}", if missing.len() == 1 { "feature" } else { "features" }, first_words(missing))]
    CpuFeatures {
        /// Which.
        missing: Vec<Word>,
    },
    /// The guest has all of its host's processor, and this is another one.
    #[error("has another CPU ({there}) than the {here} that was passed to the guest")]
    CpuPassthrough {
        /// The processor that the guest has.
        here: Word,
        /// The one there.
        there: Word,
    },
    /// Its QEMU is older.
    #[error("runs QEMU {there}, older than {here}")]
    OlderQemu {
        /// Where the guest is.
        here: QemuVersion,
        /// There.
        there: QemuVersion,
    },
    /// The guest was to be moved there a moment ago, and that failed.
    #[error("moving {vm} there failed")]
    MoveFailed {
        /// The guest, or the one that it belongs together with.
        vm: VmName,
    },
    /// A guest to be kept apart is there.
    #[error("has {with}, to be kept apart ({group})")]
    Apart {
        /// The group.
        group: Word,
        /// The other guest.
        with: VmName,
    },
    /// A guest to be kept in another failure domain is in this one.
    #[error("shares its failure domain {domain} with {with} ({group})")]
    SameDomain {
        /// The group.
        group: Word,
        /// The other guest.
        with: VmName,
        /// The domain.
        domain: Word,
    },
    /// A guest that belongs together with this one stays elsewhere.
    #[error("is not where {with} is, to be kept together ({group})")]
    Together {
        /// The group.
        group: Word,
        /// The other guest.
        with: VmName,
    },
    /// Its memory does not suffice.
    #[error("has room for {free}, wanted {wanted}")]
    Memory {
        /// What is wanted.
        wanted: Bytes,
        /// What it has, headroom kept.
        free: Bytes,
    },
    /// Its CPUs do not suffice.
    #[error("has room for {free} vCPUs, wanted {wanted}")]
    Vcpus {
        /// What is wanted.
        wanted: u64,
        /// What it has.
        free: u64,
    },
    /// What is free there does not suffice for its disks, beside those of guests that this plan brings there.
    #[error("has {free} left in {folder} for disks that may come to {wanted}")]
    Disks {
        /// The folder, or another one on its file system.
        folder: Text,
        /// What is wanted.
        wanted: Bytes,
        /// What is left.
        free: Bytes,
    },
    /// The cluster could lose less than the policy wants if the guest were there.
    #[error("has room, but the cluster could then lose less than the policy wants")]
    Losses,
    /// It would have had room, but guests that were placed before left none.
    #[error("has room for it alone, its {of} taken by {} of this plan", count(*by, "guest"))]
    Taken {
        /// Guests that this plan brings there.
        by: usize,
        /// What they left too little of.
        of: Scarce,
    },
}

/// What a host has for guests, and may have too little of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum Scarce {
    /// Memory.
    #[error("memory is")]
    Memory,
    /// Virtual CPUs.
    #[error("vCPUs are")]
    Vcpus,
}

/// Why a guest cannot move at all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "why", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Unmovable {
    /// Its hypervisor, or its agent, says so.
    #[error("it cannot be moved: {}", reasons.iter().map(Text::as_str).collect::<Vec<_>>().join("; "))]
    Blockers {
        /// In its words.
        reasons: Vec<Text>,
    },
    /// No host has a place.
    #[error("no host has a place for it")]
    NoHost {
        /// The hosts, by reason.
        hosts: Vec<RefusedBy>,
    },
}

/// Hosts that have no place for a guest, all for the same reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RefusedBy {
    /// The reason; where it has numbers, those of the host that comes nearest.
    pub reason: NoPlace,
    /// How many hosts.
    pub count: usize,
    /// Their names; left out where very many guests cannot move.
    #[serde(default)]
    pub hosts: Vec<HostName>,
}

/// `1 guest`, `2 guests`; `1 loss`, `2 losses`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    let plural = if noun.ends_with(['s', 'h']) {
        "es"
    } else {
        "s"
    };
    let plural = if number == 1 { "" } else { plural };
    format!("{number} {noun}{plural}")
}

/// Names in a sentence, at most five.
pub(crate) fn first_names<N: std::fmt::Display>(names: impl Iterator<Item = N>) -> String {
    const SHOWN: usize = 5;
    let names: Vec<String> = names.map(|name| name.to_string()).collect();
    let shown = names[..names.len().min(SHOWN)].join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn first_words(words: &[Word]) -> String {
    first_names(words.iter())
}
