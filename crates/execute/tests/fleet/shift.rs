//! One group of hosts drained by one run, as a coordinator drives it, with checks at every step.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drover_execute::journal::{Began, RunResult, UnixMillis};
use drover_execute::{Answer, Ask, Guest, Look, Now, Phase as Seen, Place, Planned, Run};
use drover_plan::inventory::{HostState, Inventory, Vm};
use drover_plan::{ClusterPolicy, Request, Text, plan};
use drover_types::{ByteRate, Bytes, HostName, MigrationId, RunId, VmName};
use uuid::Uuid;

use crate::network::{Flow, Network, Phase, STEP_MS};

/// How often a coordinator looks at what is under way (`RUN_LOOK` of droverd).
const LOOK_MS: u64 = 250;

/// A run that takes longer hangs.
const AT_MOST_MS: u64 = 24 * 3600 * 1000;

/// What came of a group.
#[derive(Debug)]
pub struct Drained {
    pub moves: usize,
    pub ms: u64,
    /// Bytes on the wire.
    pub bytes: f64,
    /// What the drained hosts' lines need for what left each of them, the longest of all.
    pub sources_ms: u64,
    /// What the lines of the hosts that stay need, if all carried alike.
    pub receivers_ms: u64,
    /// The same where each carries what this plan sends to it.
    pub placed_ms: u64,
    /// What the plan expected.
    pub planned_ms: u64,
    pub waves: u32,
}

impl Drained {
    pub fn bound_ms(&self) -> u64 {
        self.sources_ms.max(self.receivers_ms)
    }
}

pub struct Shift<'a> {
    inventory: &'a mut Inventory,
    policy: &'a ClusterPolicy,
    network: Network,
    index: BTreeMap<VmName, usize>,
    flows: BTreeMap<MigrationId, usize>,
    cordoned: BTreeSet<HostName>,
    run: Run,
    ms: u64,
    ids: u128,
    planned_ms: u64,
    waves: u32,
}

impl<'a> Shift<'a> {
    pub fn new(
        inventory: &'a mut Inventory,
        policy: &'a ClusterPolicy,
        hosts: &BTreeSet<HostName>,
    ) -> Self {
        let bytes = |bits: u64| bits as f64 / 8.0;
        let lines = inventory.hosts.iter();
        let lines = lines.map(|host| (host.name.clone(), bytes(host.bandwidth.0)));
        let names = inventory.vms.iter().map(|vm| vm.name.clone()).zip(0..);
        let began = Began {
            run: RunId(Uuid::from_u128(1)),
            request: Request::Drain {
                hosts: hosts.clone(),
                avoid: BTreeMap::new(),
                with_disks: false,
            },
            exactly: None,
            parked: Vec::new(),
            by: Text::from("an operator".to_owned()),
            at: UnixMillis(0),
        };
        Self {
            network: Network {
                lines: lines.collect(),
                flows: Vec::new(),
            },
            index: names.collect(),
            inventory,
            policy,
            flows: BTreeMap::new(),
            cordoned: BTreeSet::new(),
            run: Run::new(began),
            ms: 0,
            ids: 0,
            planned_ms: 0,
            waves: 0,
        }
    }

    /// Drives the run to its end; the hosts take guests again after it.
    pub fn drain(mut self) -> Drained {
        while self.run.result().is_none() {
            assert!(self.ms < AT_MOST_MS, "no end: {:?}", self.run.asks());
            if self.ms.is_multiple_of(LOOK_MS) {
                self.look();
            }
            self.network.pass(STEP_MS);
            self.arrive();
            self.ms += STEP_MS;
        }
        let (result, why, _) = self.run.result().unwrap();
        assert_eq!(result, RunResult::Completed, "{why:?}");
        let drained = self.cordoned.clone();
        let rest = self
            .inventory
            .vms
            .iter()
            .filter(|vm| drained.contains(&vm.host));
        assert_eq!(rest.count(), 0, "a drained host is empty");
        for host in &mut self.inventory.hosts {
            host.state = HostState::Ready;
        }
        self.result(&drained)
    }

    fn result(&self, drained: &BTreeSet<HostName>) -> Drained {
        let (mut out, mut into) = (BTreeMap::new(), BTreeMap::new());
        for flow in &self.network.flows {
            *out.entry(&flow.from).or_insert(0.0) += flow.sent;
            *into.entry(&flow.to).or_insert(0.0) += flow.sent;
        }
        let longest = |sums: &BTreeMap<&HostName, f64>| {
            let times = sums
                .iter()
                .map(|(host, bytes)| bytes / self.network.lines[*host]);
            millis(times.fold(0.0, f64::max))
        };
        let bytes: f64 = out.values().sum();
        let receivers = self.network.lines.iter();
        let receivers = receivers.filter(|(host, _)| !drained.contains(*host));
        let receivers: f64 = receivers.map(|(_, line)| line).sum();
        Drained {
            moves: self.network.flows.len(),
            ms: self.ms,
            bytes,
            sources_ms: longest(&out),
            receivers_ms: millis(bytes / receivers),
            placed_ms: longest(&into),
            planned_ms: self.planned_ms,
            waves: self.waves,
        }
    }

    fn now(&self) -> Now {
        Now {
            wall: UnixMillis(self.ms),
            elapsed: Duration::from_millis(self.ms),
        }
    }

    /// Every ask is answered at once, and decided upon.
    fn look(&mut self) {
        for ask in self.run.asks() {
            let answer = self.answer(&ask);
            for entry in self.run.handle(&ask, answer, self.now()) {
                self.run.apply(&entry).unwrap();
            }
        }
        loop {
            self.ids += 1;
            let fresh = MigrationId(Uuid::from_u128(self.ids));
            let Some(entry) = self.run.decide(self.now(), fresh) else {
                return;
            };
            self.run.apply(&entry).unwrap();
        }
    }

    fn answer(&mut self, ask: &Ask) -> Answer {
        match ask {
            Ask::Cordon { host } => {
                self.cordoned.insert(host.clone());
                let mut hosts = self.inventory.hosts.iter_mut();
                let host = hosts.find(|known| known.name == *host).unwrap();
                host.state = HostState::Cordoned;
                Answer::Cordoned { before: false }
            }
            Ask::Plan { .. } => self.plan(),
            Ask::Order {
                migration, vm, to, ..
            } => self.order(*migration, vm, to),
            Ask::Look { migration, .. } => self.seen(*migration),
            Ask::Place { vm, from, to, .. } => {
                let host = &self.vm(vm).host;
                Answer::Place(Place {
                    on_source: host == from,
                    on_destination: (host == to).then_some(true),
                })
            }
            Ask::Census { hosts, .. } => {
                let on = self.inventory.vms.iter();
                let on = on.filter(|vm| hosts.contains(&vm.host));
                let guest = |vm: &Vm| Guest {
                    host: vm.host.clone(),
                    vm: vm.name.clone(),
                    moving: false,
                };
                Answer::Census(on.map(guest).collect())
            }
            Ask::Uncordon { .. }
            | Ask::Lift { .. }
            | Ask::CallBack { .. }
            | Ask::Park { .. }
            | Ask::Unpark { .. } => {
                panic!("{ask:?}")
            }
        }
    }

    fn vm(&self, name: &VmName) -> &Vm {
        &self.inventory.vms[self.index[name]]
    }

    fn plan(&mut self) -> Answer {
        let plan = plan(self.inventory, self.policy, &self.run.request()).unwrap();
        self.planned_ms += plan.expected.ms.expected;
        self.waves += plan.steps.last().map_or(0, |step| step.wave);
        let planned = Planned::of(&plan, self.inventory, self.policy);
        Answer::Planned(Box::new(planned))
    }

    fn order(&mut self, id: MigrationId, vm: &VmName, to: &HostName) -> Answer {
        assert!(
            !self.cordoned.contains(to),
            "{vm} goes to {to}, which is drained"
        );
        if !self.flows.contains_key(&id) {
            self.flows.insert(id, self.network.flows.len());
            let flow = Flow::new(self.vm(vm), to);
            self.network.flows.push(flow);
            self.check();
        }
        self.seen(id)
    }

    fn seen(&self, id: MigrationId) -> Answer {
        let flow = &self.network.flows[self.flows[&id]];
        let bytes = |bytes: f64| Bytes(bytes as u64);
        Answer::Look(Look {
            phase: match flow.phase {
                Phase::Preparing { .. } => Seen::Preparing,
                Phase::Copying => Seen::Transferring,
                Phase::Switching { .. } => Seen::HandingOff,
                Phase::Done => Seen::Completed,
            },
            bytes: [
                bytes(flow.sent),
                bytes(flow.left),
                bytes(flow.sent + flow.left),
            ],
            rate: ByteRate(flow.rate as u64),
            left_ms: flow.left_ms(),
        })
    }

    /// Guests whose migrations are over are where they went.
    fn arrive(&mut self) {
        for flow in &self.network.flows {
            if flow.phase == Phase::Done {
                let vm = &mut self.inventory.vms[self.index[&flow.vm]];
                vm.host = flow.to.clone();
            }
        }
    }

    /// Nothing is over its limit: migrations of each host and in all, and memory.
    fn check(&self) {
        let active = self.network.flows.iter();
        let active: Vec<&Flow> = active.filter(|flow| flow.phase != Phase::Done).collect();
        assert!(active.len() <= self.policy.in_cluster() as usize);
        let guests: BTreeSet<_> = active.iter().map(|flow| &flow.vm).collect();
        assert_eq!(guests.len(), active.len(), "a guest with two migrations");
        let newest = active.last().unwrap();
        let out = active
            .iter()
            .filter(|flow| flow.from == newest.from)
            .count();
        let into = active.iter().filter(|flow| flow.to == newest.to);
        assert!(out <= self.policy.outbound as usize);
        assert!(into.clone().count() <= self.policy.inbound as usize);
        let there = self.inventory.vms.iter().filter(|vm| vm.host == newest.to);
        let there: u64 = there.map(|vm| vm.memory.0).sum();
        let arriving: u64 = into.map(|flow| self.vm(&flow.vm).memory.0).sum();
        let mut hosts = self.inventory.hosts.iter();
        let host = hosts.find(|host| host.name == newest.to).unwrap();
        let room = host.memory.0 - host.memory_for_host.0;
        assert!(
            there + arriving <= room,
            "{} has too little memory",
            host.name
        );
    }
}

fn millis(seconds: f64) -> u64 {
    (seconds * 1000.0) as u64
}
