//! What is placed as one: a guest, or guests that belong together and move at the same time.

use std::collections::BTreeMap;

use crate::model::{HostIx, Model, VmIx};
use crate::policy::CannotMove;
use crate::precopy;

/// Guests that get one host.
#[derive(Debug, Clone)]
pub(crate) struct Unit {
    /// In the order of their names.
    pub(crate) vms: Vec<VmIx>,
    pub(crate) memory: u64,
    pub(crate) vcpus: u64,
    /// Bytes that are expected to be carried, by the host they come from; none where no move is
    /// thought of.
    pub(crate) bytes: Vec<(HostIx, u64)>,
    /// Two of its guests that are to be kept apart.
    pub(crate) contradiction: Option<(usize, VmIx)>,
    /// It was found to have no place, and others were placed with regard to it where it is.
    pub(crate) stays: bool,
    /// A move of one of its guests failed a moment ago: it is left where it is before others are.
    pub(crate) failed: bool,
    /// What it costs to leave it where it is.
    pub(crate) weight: u64,
    /// The highest priority among its guests.
    pub(crate) priority: u8,
}

/// A guest outweighs all those of which a move failed that an inventory can have: 50,000
/// ([`crate::limits::VMS`]) times 101 are 5,050,000.
const ORDINARY: u64 = 10_000_000;

/// A guest that blocks the plan outweighs all that do not. 50,000 of them are 5 * 10^18, which is within
/// 64 bits.
const BLOCKING: u64 = ORDINARY * ORDINARY;

/// What it costs to leave a guest where it is. One of which a move failed runs on, so that the places are
/// for others first: none of them is stopped, or stops the plan, for its sake.
fn weight(model: &Model<'_>, vm: VmIx, failed: bool) -> u64 {
    let policy = &model.vms[vm].policy;
    let rank = 1 + u64::from(policy.priority);
    match policy.cannot_move {
        _ if failed => rank,
        CannotMove::Block => BLOCKING + ORDINARY * rank,
        _ => ORDINARY * rank,
    }
}

impl Unit {
    pub(crate) fn new(model: &Model<'_>, vms: Vec<VmIx>) -> Self {
        let mut unit = Self {
            memory: 0,
            vcpus: 0,
            bytes: Vec::new(),
            contradiction: None,
            stays: false,
            failed: vms.iter().any(|vm| model.has_failed(*vm)),
            weight: 0,
            priority: 0,
            vms: Vec::new(),
        };
        let mut hard: BTreeMap<usize, VmIx> = BTreeMap::new();
        for vm in &vms {
            let facts = model.vms[*vm];
            unit.memory = unit.memory.saturating_add(facts.memory.0);
            unit.vcpus += u64::from(facts.vcpus);
            unit.weight += weight(model, *vm, unit.failed);
            unit.priority = unit.priority.max(facts.policy.priority);
            for member in &model.apart.of[*vm] {
                let other = hard.insert(member.group, *vm);
                let either =
                    member.hard || other.is_some_and(|other| is_hard(model, other, member.group));
                if let (Some(other), true) = (other, either) {
                    unit.contradiction.get_or_insert((member.group, other));
                }
            }
        }
        unit.vms = vms;
        unit
    }

    /// What its move is expected to carry, wherever its guests come from.
    pub(crate) fn total_bytes(&self) -> u64 {
        let bytes = self.bytes.iter().map(|(_, bytes)| *bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// With the bytes that its move is expected to carry.
    pub(crate) fn with_bytes(mut self, model: &Model<'_>) -> Self {
        let mut bytes: BTreeMap<HostIx, u64> = BTreeMap::new();
        for vm in &self.vms {
            let from = model.at[*vm];
            let line = model.line(from, from);
            let sum = bytes.entry(from).or_default();
            *sum = sum.saturating_add(precopy::expected_bytes(model.vms[*vm], line));
        }
        self.bytes = bytes.into_iter().collect();
        self
    }
}

/// Whether a VM must be kept apart from the others of a group.
pub(crate) fn is_hard(model: &Model<'_>, vm: VmIx, group: usize) -> bool {
    let mut members = model.apart.of[vm].iter();
    members.any(|member| member.group == group && member.hard)
}

/// Guests that must be together become one unit; every other guest is one by itself. In the order of
/// their first names.
pub(crate) fn of(model: &Model<'_>, vms: &[VmIx]) -> Vec<Unit> {
    let mut leader: Vec<usize> = (0..vms.len()).collect();
    let mut first_of_group: BTreeMap<usize, usize> = BTreeMap::new();
    for (index, vm) in vms.iter().enumerate() {
        for member in model.together.of[*vm].iter().filter(|member| member.hard) {
            let first = *first_of_group.entry(member.group).or_insert(index);
            let (one, other) = (find(&leader, first), find(&leader, index));
            leader[one.max(other)] = one.min(other);
        }
    }
    let mut bundles: BTreeMap<usize, Vec<VmIx>> = BTreeMap::new();
    for (index, vm) in vms.iter().enumerate() {
        let bundle = bundles.entry(find(&leader, index));
        bundle.or_default().push(*vm);
    }
    let unit = |mut vms: Vec<VmIx>| {
        vms.sort_unstable();
        Unit::new(model, vms)
    };
    bundles.into_values().map(unit).collect()
}

fn find(leader: &[usize], mut index: usize) -> usize {
    while leader[index] != index {
        index = leader[index];
    }
    index
}
