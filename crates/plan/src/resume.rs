//! A host that takes guests again, and those that left it brought home in reverse order.
//!
//! That one cannot come home is no failure: it runs where it is, and the plan says why it stays.

use std::collections::{BTreeMap, BTreeSet};

use drover_types::{HostName, VmName};

use crate::draft::{Draft, Move, assess, in_waves, places, state_of};
use crate::drain::{held_before, named};
use crate::fits;
use crate::inventory::Inventory;
use crate::model::{HostIx, Model, VmIx};
use crate::order::Job;
use crate::plan::{Choice, Stay, Staying, Then, Unmoved};
use crate::reasons;
use crate::refusal::{NoPlace, Refusal, Unmovable};
use crate::state::State;
use crate::units::{self, Unit};

/// The draft of a return of `homes`, which left `name` in this order.
pub(crate) fn resume<'m>(
    model: &'m Model<'m>,
    inventory: &Inventory,
    name: &HostName,
    homes: &[VmName],
) -> Result<Draft<'m>, Refusal> {
    let host = named(model, name)?;
    let mut returning = Returning {
        model,
        host,
        state: State::now(model),
        units: Vec::new(),
        stays: Vec::new(),
        unmoved: Vec::new(),
    };
    let movable = returning.sort(homes);
    returning.place(&movable);
    let waves = returning.waves(inventory)?;
    let at = places(model, returning.moves(), &[]);
    let (losses, _) = assess(model, &at)?;
    Ok(Draft {
        model,
        waves: returning.with_reasons(waves),
        cordon: Vec::new(),
        uncordon: vec![name.clone()],
        stays: returning.stays,
        unmoved: returning.unmoved,
        losses,
    })
}

struct Returning<'m> {
    model: &'m Model<'m>,
    host: HostIx,
    state: State<'m>,
    /// Those that come home, in their order.
    units: Vec<Unit>,
    stays: Vec<Stay>,
    unmoved: Vec<Unmoved>,
}

impl Returning<'_> {
    /// Those that can be thought of, the last that left first.
    fn sort(&mut self, homes: &[VmName]) -> Vec<VmIx> {
        let mut seen = BTreeSet::new();
        let mut movable = Vec::new();
        for name in homes.iter().rev().filter(|name| seen.insert(*name)) {
            let staying = match self.model.vm(name) {
                None => Some(Staying::Gone),
                Some(vm) => self.staying(vm),
            };
            match (staying, self.model.vm(name)) {
                (None, Some(vm)) if !self.model.vms[vm].blockers.is_empty() => {
                    let reasons = self.model.vms[vm].blockers.clone();
                    self.not_home(vm, Unmovable::Blockers { reasons });
                }
                (None, Some(vm)) => movable.push(vm),
                (why, _) => self.stays.push(Stay {
                    vm: name.clone(),
                    why: why.unwrap_or(Staying::Gone),
                }),
            }
        }
        movable
    }

    fn staying(&self, vm: VmIx) -> Option<Staying> {
        let to = self.model.vms[vm].moving_to.clone();
        match to {
            Some(to) => Some(Staying::Moving { to }),
            None if self.model.at[vm] == self.host => Some(Staying::AtHome),
            None if !self.model.is_live(vm) => Some(Staying::Stopped),
            None => None,
        }
    }

    fn not_home(&mut self, vm: VmIx, why: Unmovable) {
        let facts = self.model.vms[vm];
        self.unmoved.push(Unmoved {
            vm: facts.name.clone(),
            host: facts.host.clone(),
            memory: facts.memory,
            why,
            then: Then::NotHome,
        });
    }

    fn place(&mut self, movable: &[VmIx]) {
        let places: BTreeMap<VmIx, usize> = movable.iter().copied().zip(0..).collect();
        let mut units = units::of(self.model, movable);
        units.sort_by_cached_key(|unit| unit.vms.iter().map(|vm| places.get(vm)).min());
        for unit in units {
            for vm in &unit.vms {
                self.state.lift(*vm, self.model.at[*vm]);
            }
            let obstacle = fits::obstacle(&self.state, &unit, self.host);
            for vm in &unit.vms {
                let place = obstacle.map_or(self.host, |_| self.model.at[*vm]);
                self.state.put(*vm, place);
            }
            match obstacle {
                None => self.units.push(unit),
                Some(obstacle) => {
                    let reason = obstacle.reason(self.model, &unit, self.host);
                    self.refuse(&unit, reasons::only(self.model, self.host, reason));
                }
            }
        }
    }

    fn refuse(&mut self, unit: &Unit, why: Unmovable) {
        for vm in &unit.vms {
            self.not_home(*vm, why.clone());
        }
    }

    fn moves(&self) -> impl Iterator<Item = (VmIx, HostIx)> + '_ {
        let vms = self.units.iter().flat_map(|unit| &unit.vms);
        vms.map(|vm| (*vm, self.host))
    }

    /// Where the cluster can lose what the policy wants, it can at every moment of the return, too: that
    /// may take several waves, and leave the last ones where they are. Where it cannot, the return can
    /// only help.
    fn waves(&mut self, inventory: &Inventory) -> Result<Vec<Vec<Job>>, Refusal> {
        let job = |(vm, to)| Job {
            vm,
            from: self.model.at[vm],
            to,
        };
        let jobs: Vec<Job> = self.moves().map(job).collect();
        if jobs.is_empty() || !held_before(inventory, self.model) {
            return Ok(if jobs.is_empty() {
                Vec::new()
            } else {
                vec![jobs]
            });
        }
        let mut waves = in_waves(self.model, &jobs)?;
        let placed: BTreeSet<VmIx> = waves.iter().flatten().map(|job| job.vm).collect();
        let units = std::mem::take(&mut self.units).into_iter();
        let (home, left): (Vec<Unit>, Vec<Unit>) =
            units.partition(|unit| unit.vms.iter().all(|vm| placed.contains(vm)));
        self.units = home;
        for unit in left {
            for wave in &mut waves {
                wave.retain(|job| !unit.vms.contains(&job.vm));
            }
            let why = reasons::only(self.model, self.host, NoPlace::Losses);
            self.refuse(&unit, why);
        }
        waves.retain(|wave| !wave.is_empty());
        Ok(waves)
    }

    fn with_reasons(&self, waves: Vec<Vec<Job>>) -> Vec<Vec<Move>> {
        let at = places(self.model, self.moves(), &[]);
        let mut state = state_of(self.model, &at);
        let mut with_reason = |job: Job| {
            let unit = Unit::new(self.model, vec![job.vm]);
            let mut why = reasons::why(&mut state, &unit, job.vm, self.host);
            why.choice = Choice::Home;
            Move { job, why }
        };
        let wave = |jobs: Vec<Job>| jobs.into_iter().map(&mut with_reason).collect();
        waves.into_iter().map(wave).collect()
    }
}
