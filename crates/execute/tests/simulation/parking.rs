//! Agents that park guests and run them again, as the world of the simulation has them.

use std::collections::{BTreeMap, BTreeSet};

use drover_execute::journal::UnparkOutcome;
use drover_execute::{Answer, ParkSeen, UnparkSeen};
use drover_plan::Text;
use drover_types::{HostName, ParkId, VmName};

use crate::dice::Dice;
use crate::world::Weather;

/// An order to park a guest, as its agent knows it.
#[derive(Debug)]
struct Order {
    vm: VmName,
    ticks_left: u64,
    obeys: bool,
    called_back: bool,
}

#[derive(Debug, Default)]
pub struct Parking {
    /// Guests that cannot move.
    pub bound: BTreeSet<VmName>,
    /// Guests that are parked, and where.
    pub down: BTreeMap<VmName, HostName>,
    orders: BTreeMap<ParkId, Order>,
    /// Guests that are being started, and for how many ticks more.
    starting: BTreeMap<VmName, u64>,
    /// Orders to start that were called back.
    never: BTreeSet<ParkId>,
    /// Guests that cannot be started.
    pub broken: BTreeSet<VmName>,
}

type Guests = BTreeMap<VmName, (HostName, bool)>;

impl Parking {
    pub fn of(bound: BTreeSet<VmName>) -> Self {
        Self {
            bound,
            ..Self::default()
        }
    }

    pub fn tick(&mut self, guests: &mut Guests) {
        for order in self.orders.values_mut().filter(|o| o.ticks_left > 0) {
            order.ticks_left -= 1;
            if order.ticks_left == 0
                && order.obeys
                && let Some((host, _)) = guests.remove(&order.vm)
            {
                self.down.insert(order.vm.clone(), host);
            }
        }
        for (vm, left) in &mut self.starting {
            *left = left.saturating_sub(1);
            if *left == 0
                && let Some(host) = self.down.remove(vm)
            {
                guests.insert(vm.clone(), (host, true));
            }
        }
        self.starting.retain(|_, left| *left > 0);
    }

    pub fn park(
        &mut self,
        (id, vm, begin): (ParkId, &VmName, bool),
        guests: &Guests,
        (dice, weather, is_over): (&mut Dice, Weather, bool),
    ) -> Answer {
        if !self.orders.contains_key(&id) {
            let again = self.orders.values().find(|o| o.vm == *vm && !o.called_back);
            assert!(again.is_none(), "{vm} is parked by two orders: {again:?}");
            assert!(!begin || !is_over, "{vm} begins to be parked after the end");
            assert!(self.bound.contains(vm), "{vm} can move, and is parked");
            let runs = guests.contains_key(vm);
            self.orders.insert(
                id,
                Order {
                    vm: vm.clone(),
                    ticks_left: if begin && runs { 1 + dice.below(50) } else { 0 },
                    obeys: !dice.chance(weather.disobeys),
                    called_back: !begin,
                },
            );
        }
        let order = &self.orders[&id];
        Answer::Park(match () {
            () if order.called_back => ParkSeen::CalledBack,
            () if order.ticks_left > 0 => ParkSeen::UnderWay,
            () if order.obeys => ParkSeen::Parked,
            () => ParkSeen::Kept {
                why: text("it did not obey"),
            },
        })
    }

    pub fn unpark(
        &mut self,
        (start, vm, begin): (ParkId, &VmName, bool),
        guests: &Guests,
        (dice, is_over): (&mut Dice, bool),
    ) -> Answer {
        if !begin && !self.starting.contains_key(vm) {
            self.never.insert(start);
        }
        let seen = if guests.contains_key(vm) {
            UnparkSeen::Over(UnparkOutcome::Runs)
        } else if self.broken.contains(vm) {
            let why = text("its disk is gone");
            UnparkSeen::Over(UnparkOutcome::Failed { why })
        } else if self.never.contains(&start) {
            let why = text("it was called back");
            UnparkSeen::Over(UnparkOutcome::Failed { why })
        } else {
            let goes_on = self.starting.contains_key(vm);
            assert!(goes_on || !is_over, "{vm} is started after the end");
            let ticks = 1 + dice.below(30);
            self.starting.entry(vm.clone()).or_insert(ticks);
            UnparkSeen::UnderWay
        };
        Answer::Unpark(seen)
    }
}

fn text(words: &str) -> Text {
    Text::from(words.to_owned())
}
