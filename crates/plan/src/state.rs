//! What is on each host at one moment of a plan: guests are put and lifted, and room is what is left.
//!
//! A guest on its way is put on both hosts. One that was on its way from a drained host before the plan
//! takes only room there. Never decides where anything goes.

use std::collections::BTreeMap;

use crate::model::{GroupIx, HostIx, Model, Room, VmIx};
use crate::words::Text;

/// Parts of a host's room that are in use: a million is full.
pub(crate) const FULL: u64 = 1_000_000;

/// Which room counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Headroom is kept.
    Normal,
    /// Others were lost: headroom may be used.
    Need,
}

#[derive(Debug, Clone)]
pub(crate) struct State<'m> {
    pub(crate) model: &'m Model<'m>,
    pub(crate) mode: Mode,
    used: Vec<Room>,
    /// What disks of guests that come take, by host and folder.
    disks: Vec<BTreeMap<&'m Text, u64>>,
    /// Guests by host and group to be kept apart.
    apart: Vec<BTreeMap<GroupIx, Vec<VmIx>>>,
    /// Guests by failure domain and group to be kept apart.
    apart_in_domain: BTreeMap<(GroupIx, usize), Vec<VmIx>>,
    /// Guests by group to be kept together.
    together: BTreeMap<GroupIx, Vec<(HostIx, VmIx)>>,
}

impl<'m> State<'m> {
    /// Nothing is anywhere.
    pub(crate) fn empty(model: &'m Model<'m>) -> Self {
        let hosts = model.hosts.len();
        Self {
            model,
            mode: Mode::Normal,
            used: vec![Room::default(); hosts],
            disks: vec![BTreeMap::new(); hosts],
            apart: vec![BTreeMap::new(); hosts],
            apart_in_domain: BTreeMap::new(),
            together: BTreeMap::new(),
        }
    }

    /// Everything is where it is now, and on both hosts where it is on its way.
    pub(crate) fn now(model: &'m Model<'m>) -> Self {
        let mut state = Self::empty(model);
        for vm in (0..model.vms.len()).filter(|vm| model.is_live(*vm)) {
            for host in std::iter::once(model.at[vm]).chain(model.moving_to[vm]) {
                state.put(vm, host);
            }
        }
        state
    }

    /// A guest takes its room on a host.
    pub(crate) fn put(&mut self, vm: VmIx, host: HostIx) {
        let model = self.model;
        let used = &mut self.used[host];
        used.memory = used.memory.saturating_add(model.vms[vm].memory.0);
        used.vcpus += u64::from(model.vms[vm].vcpus);
        for (folder, bytes) in model.disks_wanted(vm, host) {
            let taken = self.disks[host].entry(folder).or_default();
            *taken = taken.saturating_add(bytes.0);
        }
        if model.is_leaving(vm, host) {
            return;
        }
        for member in &model.apart.of[vm] {
            self.apart[host].entry(member.group).or_default().push(vm);
            if let Some(domain) = model.domain[host] {
                let there = self.apart_in_domain.entry((member.group, domain));
                there.or_default().push(vm);
            }
        }
        for member in &model.together.of[vm] {
            let there = self.together.entry(member.group);
            there.or_default().push((host, vm));
        }
    }

    /// A guest gives its room on a host back.
    pub(crate) fn lift(&mut self, vm: VmIx, host: HostIx) {
        let model = self.model;
        let used = &mut self.used[host];
        used.memory = used.memory.saturating_sub(model.vms[vm].memory.0);
        used.vcpus = used.vcpus.saturating_sub(model.vms[vm].vcpus.into());
        for (folder, bytes) in model.disks_wanted(vm, host) {
            if let Some(taken) = self.disks[host].get_mut(folder) {
                *taken = taken.saturating_sub(bytes.0);
            }
        }
        if model.is_leaving(vm, host) {
            return;
        }
        for member in &model.apart.of[vm] {
            if let Some(there) = self.apart[host].get_mut(&member.group) {
                remove(there, &vm);
            }
            if let Some(domain) = model.domain[host]
                && let Some(there) = self.apart_in_domain.get_mut(&(member.group, domain))
            {
                remove(there, &vm);
            }
        }
        for member in &model.together.of[vm] {
            if let Some(there) = self.together.get_mut(&member.group) {
                remove(there, &(host, vm));
            }
        }
    }

    /// What a host has for guests.
    pub(crate) fn room(&self, host: HostIx) -> Room {
        match self.mode {
            Mode::Normal => self.model.room[host],
            Mode::Need => self.model.room_in_need[host],
        }
    }

    /// What is left on a host.
    pub(crate) fn free(&self, host: HostIx) -> Room {
        let (room, used) = (self.room(host), self.used[host]);
        Room {
            memory: room.memory.saturating_sub(used.memory),
            vcpus: room.vcpus.saturating_sub(used.vcpus),
        }
    }

    /// Which of a host's folders, by its number, has too little left for disks of `vms` were they to come: what is wanted, and what is
    /// left.
    pub(crate) fn disks_short(&self, vms: &[VmIx], host: HostIx) -> Option<(usize, [u64; 2])> {
        let model = self.model;
        let mut wanted: BTreeMap<&Text, u64> = BTreeMap::new();
        for (folder, bytes) in vms.iter().flat_map(|vm| model.disks_wanted(*vm, host)) {
            let sum = wanted.entry(folder).or_default();
            *sum = sum.saturating_add(bytes.0);
        }
        if wanted.is_empty() {
            return None;
        }
        let folders = model.hosts[host].disks.free.iter().enumerate();
        let mut short = folders.filter_map(|(number, (folder, free))| {
            let taken = self.disks[host].get(folder).copied().unwrap_or(0);
            let (wanted, left) = (*wanted.get(folder)?, free.0.saturating_sub(taken));
            (wanted > left).then_some((number, [wanted, left]))
        });
        short.next()
    }

    /// By how much memory the guests on a host are more than it has for them.
    pub(crate) fn lacks(&self, host: HostIx) -> u64 {
        let (room, used) = (self.room(host), self.used[host]);
        used.memory.saturating_sub(room.memory)
    }

    /// A folder in which disks that come to a host are more than is free there, and by how much.
    pub(crate) fn lacks_for_disks(&self, host: HostIx) -> Option<(&'m Text, u64)> {
        let free = &self.model.hosts[host].disks.free;
        let mut short = self.disks[host].iter().filter_map(|(folder, taken)| {
            let free = free.get(*folder).map_or(0, |free| free.0);
            Some((*folder, taken.checked_sub(free).filter(|short| *short > 0)?))
        });
        short.next()
    }

    /// Guests on `host` of a group to be kept apart.
    pub(crate) fn apart_on(&self, host: HostIx, group: GroupIx) -> &[VmIx] {
        self.apart[host].get(&group).map_or(&[], Vec::as_slice)
    }

    /// Guests in the failure domain of `host` of a group to be kept apart.
    pub(crate) fn apart_in_domain_of(&self, host: HostIx, group: GroupIx) -> &[VmIx] {
        let domain = self.model.domain[host];
        let there = domain.and_then(|domain| self.apart_in_domain.get(&(group, domain)));
        there.map_or(&[], Vec::as_slice)
    }

    /// Guests of a group to be kept together, with their hosts.
    pub(crate) fn together_at(&self, group: GroupIx) -> &[(HostIx, VmIx)] {
        self.together.get(&group).map_or(&[], Vec::as_slice)
    }

    /// How full a host is by what it has least of, in parts of [`FULL`].
    pub(crate) fn load(&self, host: HostIx) -> u64 {
        self.load_with(host, 0, 0)
    }

    /// How full it would be with so much less.
    pub(crate) fn load_without(&self, host: HostIx, memory: u64, vcpus: u64) -> u64 {
        let (room, used) = (self.room(host), self.used[host]);
        let memory = part(used.memory.saturating_sub(memory), room.memory);
        memory.max(part(used.vcpus.saturating_sub(vcpus), room.vcpus))
    }

    /// How full it would be with so much more.
    pub(crate) fn load_with(&self, host: HostIx, memory: u64, vcpus: u64) -> u64 {
        let (room, used) = (self.room(host), self.used[host]);
        let memory = part(used.memory.saturating_add(memory), room.memory);
        memory.max(part(used.vcpus + vcpus, room.vcpus))
    }
}

/// The order of guests in a list is that in which they were put; which one is removed does not matter
/// for it, since all that reads lists looks for the least.
fn remove<T: PartialEq>(list: &mut Vec<T>, item: &T) {
    if let Some(index) = list.iter().position(|there| there == item) {
        list.swap_remove(index);
    }
}

fn part(used: u64, of: u64) -> u64 {
    let part = u128::from(used) * u128::from(FULL) / u128::from(of.max(1));
    u64::try_from(part).unwrap_or(u64::MAX).min(FULL * FULL)
}
