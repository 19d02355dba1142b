//! What a run takes from a plan: moves, guests that stay, and what hosts can do at once.

use std::collections::BTreeSet;

use drover_plan::plan::{Expected, Unmoved};
use drover_plan::refusal::Unmovable;
use drover_plan::{ClusterPolicy, Inventory, Plan, Text};
use drover_types::HostName;

use crate::journal::{Entry, HostPace, Left, Move, Part};
use crate::limits::PART;

/// A plan as a run needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// The moves, in the order in which they begin.
    pub moves: Vec<Move>,
    /// Guests that are not moved.
    pub left: Vec<Left>,
    /// The hosts that take part.
    pub hosts: Vec<HostPace>,
    /// Migrations in the cluster at once.
    pub at_once: u32,
    /// What it will take.
    pub expected: Expected,
}

impl Planned {
    /// What a run takes from a plan that was made of these.
    #[must_use]
    pub fn of(plan: &Plan, inventory: &Inventory, policy: &ClusterPolicy) -> Self {
        let moves = plan.steps.iter().map(|step| Move {
            wave: step.wave,
            vm: step.vm.clone(),
            from: step.from.clone(),
            to: step.to.clone(),
            memory: step.memory,
            with_disks: plan.request.with_disks() && step.disks.is_some(),
        });
        let ends = plan.steps.iter().flat_map(|step| [&step.from, &step.to]);
        let taking_part: BTreeSet<&HostName> = ends.collect();
        let hosts = inventory.hosts.iter();
        let hosts = hosts.filter(|host| taking_part.contains(&host.name));
        Self {
            moves: moves.collect(),
            left: plan.unmoved.iter().map(left).collect(),
            hosts: hosts
                .map(|host| HostPace {
                    host: host.name.clone(),
                    inbound: host.inbound.unwrap_or(policy.inbound),
                    outbound: host.outbound.unwrap_or(policy.outbound),
                    line: host.bandwidth,
                })
                .collect(),
            at_once: policy.in_cluster(),
            expected: plan.expected,
        }
    }

    /// The entries of a round with this plan.
    pub(crate) fn entries(self, round: u32) -> Vec<Entry> {
        let empty = || Part {
            round,
            part: 0,
            moves: Vec::new(),
            left: Vec::new(),
            hosts: Vec::new(),
        };
        let moves = self.moves.chunks(PART).map(|moves| Part {
            moves: moves.to_vec(),
            ..empty()
        });
        let left = self.left.chunks(PART).map(|left| Part {
            left: left.to_vec(),
            ..empty()
        });
        let hosts = self.hosts.chunks(PART).map(|hosts| Part {
            hosts: hosts.to_vec(),
            ..empty()
        });
        let parts = moves.chain(left).chain(hosts).zip(1..);
        let parts = parts.map(|(part, number)| {
            Entry::Part(Part {
                part: number,
                ..part
            })
        });
        let mut entries: Vec<Entry> = parts.collect();
        entries.push(Entry::Round {
            round,
            parts: u32::try_from(entries.len()).unwrap_or(u32::MAX),
            at_once: self.at_once,
            expected: Some(self.expected),
        });
        entries
    }
}

fn left(unmoved: &Unmoved) -> Left {
    Left {
        vm: unmoved.vm.clone(),
        host: unmoved.host.clone(),
        why: Text::from(why(&unmoved.why)),
        then: unmoved.then,
    }
}

/// On one line, what the plan says in several.
fn why(why: &Unmovable) -> String {
    let Unmovable::NoHost { hosts } = why else {
        return why.to_string();
    };
    let reasons: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    format!("{why} ({})", reasons.join("; "))
}
