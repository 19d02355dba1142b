//! Migrations that share lines, in virtual time.
//!
//! Each migration prepares, sends rounds of what is dirty, and switches over once the rest fits its
//! downtime limit. The lines are shared as TCP shares them in the long run: max-min fair, at both ends. A
//! guest that dirties faster than its share is throttled, as `drover_plan::precopy` says of QEMU.

use std::collections::BTreeMap;

use drover_types::{HostName, VmName};

/// Milliseconds of each step.
pub const STEP_MS: u64 = 50;

/// From the order to the first byte, and from the guest's stop to its word from the destination: what
/// the lab's drains took (`drover_plan::limits::PREPARING`, `drover_migrate::limits::HAND_OFF`).
const PREPARE_MS: u64 = 500;
const SWITCHOVER_MS: u64 = 60;

/// Bytes per second.
pub type Rate = f64;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Phase {
    Preparing { left_ms: u64 },
    Copying,
    Switching { left_ms: u64 },
    Done,
}

#[derive(Debug)]
pub struct Flow {
    pub vm: VmName,
    pub from: HostName,
    pub to: HostName,
    pub phase: Phase,
    /// Of this round.
    pub left: f64,
    dirtied: f64,
    pub sent: f64,
    pub rate: Rate,
    dirty_rate: Rate,
    working_set: f64,
    limit_s: f64,
}

impl Flow {
    pub fn new(vm: &drover_plan::inventory::Vm, to: &HostName) -> Self {
        let dirty_rate = vm.dirty_rate.map_or(0, |rate| rate.0);
        Self {
            vm: vm.name.clone(),
            from: vm.host.clone(),
            to: to.clone(),
            phase: Phase::Preparing {
                left_ms: PREPARE_MS,
            },
            left: vm.memory_used.0 as f64,
            dirtied: 0.0,
            sent: 0.0,
            rate: 0.0,
            dirty_rate: dirty_rate as f64,
            working_set: vm.working_set.unwrap_or(vm.memory_used).0 as f64,
            limit_s: vm.downtime_limit_ms as f64 / 1000.0,
        }
    }

    /// What it expects to need still, in milliseconds.
    pub fn left_ms(&self) -> Option<u64> {
        let net = self.rate - self.throttled();
        let left = (self.left + self.dirtied) / net;
        (self.rate > 0.0 && net > 0.0).then_some((left * 1000.0) as u64)
    }

    /// A guest that dirties more than half of what is sent is slowed down to that.
    fn throttled(&self) -> Rate {
        self.dirty_rate.min(self.rate / 2.0)
    }

    fn pass(&mut self, ms: u64) {
        match &mut self.phase {
            Phase::Preparing { left_ms } => {
                *left_ms = left_ms.saturating_sub(ms);
                if *left_ms == 0 {
                    self.phase = Phase::Copying;
                }
            }
            Phase::Copying => self.copy(ms as f64 / 1000.0),
            Phase::Switching { left_ms } => {
                *left_ms = left_ms.saturating_sub(ms);
                if *left_ms == 0 {
                    self.phase = Phase::Done;
                }
            }
            Phase::Done => {}
        }
    }

    fn copy(&mut self, mut seconds: f64) {
        while seconds > 0.0 && self.rate > 0.0 {
            let fits = (self.left / self.rate).min(seconds);
            self.left -= fits * self.rate;
            self.sent += fits * self.rate;
            self.dirtied = (self.dirtied + fits * self.throttled()).min(self.working_set);
            seconds -= fits;
            if self.left > 0.5 {
                return;
            }
            let rest = std::mem::take(&mut self.dirtied);
            if rest <= self.rate * self.limit_s {
                // The guest stands still while the rest is sent.
                self.sent += rest;
                let ms = (rest / self.rate * 1000.0) as u64 + SWITCHOVER_MS;
                self.phase = Phase::Switching { left_ms: ms };
                return;
            }
            self.left = rest;
        }
    }
}

/// Lines in bytes per second, in each direction.
#[derive(Debug, Default)]
pub struct Network {
    pub lines: BTreeMap<HostName, Rate>,
    pub flows: Vec<Flow>,
}

#[derive(Default)]
struct Share {
    free: Rate,
    open: usize,
}

impl Network {
    /// Milliseconds pass.
    pub fn pass(&mut self, ms: u64) {
        self.share();
        for flow in &mut self.flows {
            flow.pass(ms);
        }
    }

    /// Fills all flows alike until a line is full, gives the flows on it what they have, and goes on.
    fn share(&mut self) {
        let mut ends: BTreeMap<(HostName, bool), Share> = BTreeMap::new();
        let mut open: Vec<usize> = Vec::new();
        for (index, flow) in self.flows.iter_mut().enumerate() {
            flow.rate = 0.0;
            if flow.phase != Phase::Copying {
                continue;
            }
            open.push(index);
            for end in [(flow.from.clone(), true), (flow.to.clone(), false)] {
                let free = self.lines[&end.0];
                let share = ends.entry(end).or_insert(Share { free, open: 0 });
                share.open += 1;
            }
        }
        while !open.is_empty() {
            let tightest = ends.values().filter(|share| share.open > 0);
            let more = tightest
                .map(|share| share.free / share.open as f64)
                .fold(f64::INFINITY, f64::min);
            for index in &open {
                self.flows[*index].rate += more;
            }
            for share in ends.values_mut() {
                share.free -= more * share.open as f64;
            }
            let full = |end: (HostName, bool)| ends[&end].free <= 1.0;
            let (done, rest): (Vec<usize>, Vec<usize>) = open.iter().copied().partition(|index| {
                let flow = &self.flows[*index];
                full((flow.from.clone(), true)) || full((flow.to.clone(), false))
            });
            for index in done {
                let flow = &self.flows[index];
                for end in [(flow.from.clone(), true), (flow.to.clone(), false)] {
                    ends.entry(end).and_modify(|share| share.open -= 1);
                }
            }
            open = rest;
        }
    }
}
