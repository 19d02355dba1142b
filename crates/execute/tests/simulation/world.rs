//! Hosts with agents that take orders, and guests that move, in ticks of 100 ms.

use std::collections::{BTreeMap, BTreeSet};

use drover_execute::journal::{Blame, HostPace, Left, Move};
use drover_execute::{Answer, Ask, Guest, GuestAt, Look, Phase, Place, Planned};
use drover_plan::plan::{Expected, Then};
use drover_plan::precopy::Range;
use drover_plan::{Request, Text};
use drover_types::{BitRate, ByteRate, Bytes, HostName, MigrationId, VmName};

use crate::dice::Dice;
use crate::parking::Parking;

pub const INBOUND: u32 = 2;
pub const OUTBOUND: u32 = 2;
pub const AT_ONCE: u32 = 3;

/// What may go wrong, each in thousandths.
#[derive(Debug, Clone, Copy, Default)]
pub struct Weather {
    /// A move fails.
    pub fails: u64,
    /// A move is kept back before it begins.
    pub keeps_back: u64,
    /// An order is refused.
    pub refuses: u64,
    /// A message, or its answer, is lost.
    pub loses: u64,
    /// The coordinator dies, at each tick and at each entry.
    pub dies: u64,
    /// There is no plan.
    pub no_plan: u64,
    /// A guest that has arrived stands still.
    pub stands_still: u64,
    /// A migration stays in its hand-off.
    pub hangs: u64,
    /// A guest cannot move, and is to be parked instead.
    pub bound: u64,
    /// A guest does not shut down when it is told to.
    pub disobeys: u64,
    /// A guest cannot move, and is to run on where it is.
    pub stays: u64,
}

#[derive(Debug)]
struct Migration {
    vm: VmName,
    from: HostName,
    to: HostName,
    ticks_left: u64,
    ends: Ends,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    Well,
    Badly,
    Still,
    Never,
}

#[derive(Debug)]
pub struct World {
    pub dice: Dice,
    weather: Weather,
    pub hosts: Vec<HostName>,
    /// Where each guest is, and whether it runs.
    pub guests: BTreeMap<VmName, (HostName, bool)>,
    /// Hosts that take no guests, and whether they do not because of the run.
    pub cordoned: BTreeMap<HostName, bool>,
    migrations: BTreeMap<MigrationId, Migration>,
    /// Ids that never begin, and what is said of them.
    refused: BTreeMap<MigrationId, Answer>,
    /// Set by the end of the run: nothing may begin from then on.
    pub is_over: bool,
    /// Times that a migration began.
    pub begun: u64,
    pub parking: Parking,
    /// Guests that cannot move and that nobody wants stopped.
    pub staying: BTreeSet<VmName>,
}

impl World {
    pub fn new(mut dice: Dice, weather: Weather, hosts: u64, guests: u64) -> Self {
        let hosts: Vec<HostName> = (0..hosts)
            .map(|n| format!("h{n}").parse().unwrap())
            .collect();
        let mut place = |n: u64| {
            let host = hosts[usize::try_from(dice.below(hosts.len() as u64)).unwrap()].clone();
            (format!("g{n}").parse().unwrap(), (host, true))
        };
        let guests: BTreeMap<VmName, _> = (0..guests).map(&mut place).collect();
        let bound = guests.keys().filter(|_| dice.chance(weather.bound));
        let parking = Parking::of(bound.cloned().collect());
        let stays = guests.keys().filter(|_| dice.chance(weather.stays));
        let staying = stays.cloned().collect();
        Self {
            dice,
            weather,
            hosts,
            guests,
            cordoned: BTreeMap::new(),
            migrations: BTreeMap::new(),
            refused: BTreeMap::new(),
            is_over: false,
            begun: 0,
            parking,
            staying,
        }
    }

    pub fn guests_on(&self, hosts: &BTreeSet<HostName>) -> Vec<Guest> {
        let on = self
            .guests
            .iter()
            .filter(|(_, (host, _))| hosts.contains(host));
        on.map(|(vm, (host, _))| Guest {
            host: host.clone(),
            vm: vm.clone(),
            moving: self.is_moving(vm),
        })
        .collect()
    }

    fn is_moving(&self, vm: &VmName) -> bool {
        let mut all = self.migrations.values();
        all.any(|m| m.vm == *vm && m.ticks_left > 0)
    }

    /// 100 ms pass.
    pub fn tick(&mut self) {
        self.parking.tick(&mut self.guests);
        for migration in self.migrations.values_mut().filter(|m| m.ticks_left > 0) {
            migration.ticks_left -= 1;
            if migration.ticks_left > 0 {
                migration.phase = Phase::Transferring;
                continue;
            }
            if migration.ends == Ends::Badly {
                migration.phase = failed("the line broke", GuestAt::Source, Blame::Destination);
                continue;
            }
            if migration.ends == Ends::Never {
                migration.phase = Phase::HandingOff;
                continue;
            }
            let runs = migration.ends == Ends::Well;
            self.guests
                .insert(migration.vm.clone(), (migration.to.clone(), runs));
            migration.phase = Phase::Completed;
        }
        self.check_limits();
    }

    fn check_limits(&self) {
        let active: Vec<_> = self
            .migrations
            .values()
            .filter(|m| m.ticks_left > 0)
            .collect();
        assert!(active.len() <= AT_ONCE as usize, "{active:?}");
        for host in &self.hosts {
            let out = active.iter().filter(|m| m.from == *host).count();
            let into = active.iter().filter(|m| m.to == *host).count();
            assert!(
                out <= OUTBOUND as usize && into <= INBOUND as usize,
                "{active:?}"
            );
        }
        let guests: BTreeSet<_> = active.iter().map(|m| &m.vm).collect();
        assert_eq!(
            guests.len(),
            active.len(),
            "a guest with two migrations: {active:?}"
        );
    }

    /// Does what is asked, and answers.
    pub fn answer(&mut self, ask: &Ask, request: &Request) -> Answer {
        match ask {
            Ask::Cordon { host } => Answer::Cordoned {
                before: !*self.cordoned.entry(host.clone()).or_insert(true),
            },
            Ask::Lift { host } => {
                if self.cordoned.get(host) == Some(&true) {
                    self.cordoned.remove(host);
                }
                Answer::Uncordoned
            }
            Ask::Uncordon { host } => {
                self.cordoned.remove(host);
                Answer::Uncordoned
            }
            Ask::Plan { .. } => self.plan(request),
            Ask::Order {
                migration,
                vm,
                from,
                to,
                ..
            } => self.order(*migration, vm, from, to),
            Ask::Look { migration, .. } => self.look(*migration),
            Ask::CallBack { migration, .. } => self.call_back(*migration),
            Ask::Place { vm, from, to, .. } => Answer::Place(self.place(vm, from, to)),
            Ask::Park {
                park, vm, begin, ..
            } => self.parking.park(
                (*park, vm, *begin),
                &self.guests,
                (&mut self.dice, self.weather, self.is_over),
            ),
            Ask::Unpark {
                start, vm, begin, ..
            } => self.parking.unpark(
                (*start, vm, *begin),
                &self.guests,
                (&mut self.dice, self.is_over),
            ),
            Ask::Census { hosts, .. } => Answer::Census(self.guests_on(hosts)),
        }
    }

    fn order(&mut self, id: MigrationId, vm: &VmName, from: &HostName, to: &HostName) -> Answer {
        if self.migrations.contains_key(&id) {
            return self.look(id);
        }
        if let Some(refusal) = self.refused.get(&id) {
            return refusal.clone();
        }
        assert!(!self.is_over, "{vm} begins to move after the end");
        let refusal = if self.guests.get(vm).is_none_or(|(host, _)| host != from) {
            Some(refused("no such guest", Blame::Guest))
        } else if self.is_moving(vm) {
            Some(refused("it is moving already", Blame::Moment))
        } else if self.cordoned.contains_key(to) || self.dice.chance(self.weather.refuses) {
            Some(refused("not there", Blame::Destination))
        } else {
            None
        };
        if let Some(refusal) = refusal {
            self.refused.insert(id, refusal.clone());
            return refusal;
        }
        let ends = match () {
            () if self.dice.chance(self.weather.fails) => Ends::Badly,
            () if self.dice.chance(self.weather.stands_still) => Ends::Still,
            () if self.dice.chance(self.weather.hangs) => Ends::Never,
            () => Ends::Well,
        };
        self.begun += 1;
        let migration = Migration {
            vm: vm.clone(),
            from: from.clone(),
            to: to.clone(),
            ticks_left: 1 + self.dice.below(100),
            ends,
            phase: Phase::Preparing,
        };
        self.migrations.insert(id, migration);
        self.look(id)
    }

    fn look(&self, id: MigrationId) -> Answer {
        let Some(migration) = self.migrations.get(&id) else {
            return Answer::NoSuchMigration;
        };
        let left = migration.ticks_left * 100;
        Answer::Look(Look {
            phase: migration.phase.clone(),
            bytes: [Bytes(1), Bytes(left), Bytes(10_000)],
            rate: ByteRate(if migration.phase == Phase::Transferring {
                50
            } else {
                0
            }),
            left_ms: Some(left),
        })
    }

    fn call_back(&mut self, id: MigrationId) -> Answer {
        let Some(migration) = self.migrations.get_mut(&id) else {
            let never = refused("it was called back before", Blame::Guest);
            self.refused.insert(id, never);
            return Answer::CalledBack;
        };
        if migration.ticks_left > 1 {
            migration.ticks_left = 0;
            migration.phase = Phase::Cancelled;
        }
        Answer::GoesItsWay
    }

    fn place(&self, vm: &VmName, from: &HostName, to: &HostName) -> Place {
        let (host, runs) = &self.guests[vm];
        Place {
            on_source: host == from,
            on_destination: (host == to).then_some(*runs),
        }
    }

    /// Any place that is not avoided and takes guests, in one wave or two.
    fn plan(&mut self, request: &Request) -> Answer {
        let empty = (BTreeSet::new(), BTreeMap::new());
        let (hosts, avoid) = match request {
            Request::Drain { hosts, avoid, .. } => (hosts, avoid),
            Request::Resume { .. } => (&empty.0, &empty.1),
            Request::Rebalance { .. } => panic!("{request:?}"),
        };
        if self.dice.chance(self.weather.no_plan) {
            let why = Text::from("too full".to_owned());
            return Answer::NoPlan { why: why.into() };
        }
        let (mut moves, mut left) = (Vec::new(), Vec::new());
        for guest in self.guests_on(hosts) {
            if guest.moving {
                continue;
            }
            let takes = |host: &&HostName| {
                let avoided = avoid
                    .get(&guest.vm)
                    .is_some_and(|hosts| hosts.contains(*host));
                !hosts.contains(*host) && !self.cordoned.contains_key(*host) && !avoided
            };
            let places: Vec<HostName> = self.hosts.iter().filter(takes).cloned().collect();
            let is_bound = self.parking.bound.contains(&guest.vm);
            let (vm, from) = (guest.vm, guest.host);
            if places.is_empty() || is_bound || self.staying.contains(&vm) {
                let why = Text::from("no place".to_owned());
                let then = if is_bound {
                    Then::Stopped
                } else {
                    Then::RunsOn
                };
                left.push(Left {
                    vm,
                    host: from,
                    why,
                    then,
                });
                continue;
            }
            let to = places[usize::try_from(self.dice.below(places.len() as u64)).unwrap()].clone();
            let wave = 1 + u32::try_from(self.dice.below(2)).unwrap();
            moves.push(Move {
                wave,
                vm,
                from,
                to,
                memory: Bytes(1),
                with_disks: false,
            });
        }
        moves.sort_by_key(|step| step.wave);
        let pace = |host: &HostName| HostPace {
            host: host.clone(),
            inbound: INBOUND,
            outbound: OUTBOUND,
            line: BitRate(1000),
        };
        let zero = Range::default();
        Answer::Planned(Box::new(Planned {
            moves,
            left,
            hosts: self.hosts.iter().map(pace).collect(),
            at_once: AT_ONCE,
            expected: Expected {
                bytes: zero,
                ms: zero,
                bound_ms: 0,
                longest_downtime_ms: zero,
            },
        }))
    }
}

fn refused(why: &str, blame: Blame) -> Answer {
    let why = Text::from(why.to_owned());
    Answer::Refused { why, blame }
}

fn failed(why: &str, guest: GuestAt, blame: Blame) -> Phase {
    let why = Text::from(why.to_owned());
    Phase::Failed { why, guest, blame }
}
