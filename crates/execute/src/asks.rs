//! What a run has to know, or have done, now.

use std::collections::BTreeSet;

use drover_plan::Request;
use drover_types::{HostName, MigrationId, ParkId, VmName};

use crate::journal::{ParkHow, Running};
use crate::run::{Cordon, Record, Run, Stage};

/// A question or an order. Each can be repeated: an agent that has done it already says so.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ask {
    /// A host is to take no guests.
    Cordon {
        /// The host.
        host: HostName,
    },
    /// A host is to take guests again, whoever cordoned it.
    Uncordon {
        /// The host.
        host: HostName,
    },
    /// A host is to take guests again if it takes none because of this run.
    Lift {
        /// The host.
        host: HostName,
    },
    /// A plan of [`Run::request`] is to be made.
    Plan {
        /// The round that it is for.
        round: u32,
    },
    /// A guest is to be moved.
    Order {
        /// The move.
        number: u32,
        /// The id that its migration has: an agent that knows it begins no second one.
        migration: MigrationId,
        /// The guest.
        vm: VmName,
        /// Who is asked.
        from: HostName,
        /// Where it goes.
        to: HostName,
        /// Whether disks that only its host has are copied with it.
        with_disks: bool,
    },
    /// A migration is to be looked at.
    Look {
        /// The move.
        number: u32,
        /// Its migration.
        migration: MigrationId,
        /// Who is asked.
        from: HostName,
    },
    /// A migration is to be cancelled; an agent that does not know it must never begin it.
    CallBack {
        /// The move.
        number: u32,
        /// Its migration.
        migration: MigrationId,
        /// Who is asked.
        from: HostName,
    },
    /// Both hosts are asked what they have of a guest.
    Place {
        /// The move.
        number: u32,
        /// The guest.
        vm: VmName,
        /// Where it was.
        from: HostName,
        /// Where it went.
        to: HostName,
    },
    /// A guest is to be parked; answered with how far that is.
    Park {
        /// The order's number.
        number: u32,
        /// Its id: an agent that knows it carries it out once.
        park: ParkId,
        /// The guest.
        vm: VmName,
        /// Who is asked.
        host: HostName,
        /// How.
        how: ParkHow,
        /// Whether it begins where its agent has not heard of it; otherwise it never does.
        begin: bool,
    },
    /// A guest that was parked is to run again; answered with how far that is.
    Unpark {
        /// The guest's number.
        number: u32,
        /// The order that parked it.
        park: ParkId,
        /// The id of this order: one that was called back never begins.
        start: ParkId,
        /// The guest.
        vm: VmName,
        /// Who is asked.
        host: HostName,
        /// Whether it begins where it has not begun; otherwise it never does.
        begin: bool,
    },
    /// Hosts are looked at: which guests are in memory there.
    Census {
        /// The hosts.
        hosts: BTreeSet<HostName>,
        /// The round that it follows on.
        round: u32,
        /// Orders to park a guest that had ended by then: an answer of before the next one ended tells of a guest
        /// that is gone.
        ended: usize,
    },
}

impl Run {
    /// What has to be known or done now. What was asked and is no longer here need not be answered.
    #[must_use]
    pub fn asks(&self) -> Vec<Ask> {
        let mut asks = self.asks_of_stage();
        asks.extend(self.call_backs());
        asks
    }

    fn asks_of_stage(&self) -> Vec<Ask> {
        match self.stage() {
            Stage::Preparing => self.preparations(),
            Stage::Planning => vec![Ask::Plan {
                round: self.round + 1,
            }],
            Stage::Moving => {
                let moves = self.under_way();
                moves.map(|(record, id)| self.of_move(record, id)).collect()
            }
            // What is stopped next rests on what is on the hosts now.
            Stage::Parking => self.park_asks().chain(self.census_for_next()).collect(),
            Stage::Unparking => self.unpark_asks().collect(),
            Stage::Verifying => self.census_wanted().into_iter().collect(),
            Stage::Lifting => {
                let hosts = self.to_lift().cloned();
                hosts.map(|host| Ask::Lift { host }).collect()
            }
            Stage::Ended => Vec::new(),
        }
    }

    /// What a plan is made of now: what was asked for, without ways that have failed.
    #[must_use]
    pub fn request(&self) -> Request {
        let mut request = self.began.request.clone();
        match &mut request {
            Request::Drain { avoid, .. }
            | Request::Resume { avoid, .. }
            | Request::Rebalance { avoid, .. } => {
                for (vm, hosts) in self.avoided() {
                    avoid.entry(vm).or_default().extend(hosts);
                }
            }
        }
        request
    }

    fn preparations(&self) -> Vec<Ask> {
        let wanted = self.cordons.iter();
        let cordons = wanted
            .filter(|(_, cordon)| **cordon == Cordon::Wanted)
            .map(|(host, _)| Ask::Cordon { host: host.clone() });
        let closed = self.opened.iter().filter(|(_, open)| !**open);
        let uncordons = closed.map(|(host, _)| Ask::Uncordon { host: host.clone() });
        cordons.chain(uncordons).collect()
    }

    fn of_move(&self, record: &Record, migration: MigrationId) -> Ask {
        let number = record.number;
        let (vm, from) = (record.planned.vm.clone(), record.planned.from.clone());
        let to = record.planned.to.clone();
        let seen = self.seen.get(&number).cloned().unwrap_or_default();
        if seen.is_complete() {
            return Ask::Place {
                number,
                vm,
                from,
                to,
            };
        }
        let running = self.cancel.as_ref().map(|cancel| cancel.running);
        let calls_back = match running {
            None => false,
            Some(Running::Cancel) => !seen.goes_its_way,
            // What has not begun does not begin.
            Some(Running::Finish) => seen.unknown,
        };
        if calls_back {
            Ask::CallBack {
                number,
                migration,
                from,
            }
        } else if seen.known || running.is_some() {
            Ask::Look {
                number,
                migration,
                from,
            }
        } else {
            Ask::Order {
                number,
                migration,
                vm,
                from,
                to,
                with_disks: record.planned.with_disks,
            }
        }
    }

    /// Only where a further guest may be stopped after those that are being stopped.
    fn census_for_next(&self) -> Option<Ask> {
        let more = self.cancel.is_none() && self.waits_to_park();
        self.census_wanted().filter(|_| more)
    }

    /// Nothing else than a drain leaves hosts that have to be empty.
    pub(crate) fn census_wanted(&self) -> Option<Ask> {
        let hosts = self.drained();
        let settled = self
            .census
            .as_ref()
            .is_some_and(|guests| self.is_settled || !guests.iter().any(|guest| guest.moving));
        let wanted = !hosts.is_empty() && !settled && self.uncounted.is_none();
        let ended = self.parks.len() - self.parks_under_way().count();
        wanted.then_some(Ask::Census {
            hosts,
            round: self.round,
            ended,
        })
    }
}
