//! Carries a plan out in some order that its waves allow, and looks at every moment whether a limit is
//! exceeded.

use std::collections::{BTreeMap, BTreeSet};

use drover_plan::inventory::{Host, HostState, Inventory, Vm, VmState};
use drover_plan::plan::{Step, Then};
use drover_plan::policy::{ClusterPolicy, LossOf};
use drover_plan::{Plan, Request};
use drover_types::{HostName, VmName};

use crate::packing::{Places, all_fit};
use crate::rules;

/// Starts and ends of moves in an order that `choices` decide.
pub struct Run<'r> {
    pub inventory: &'r Inventory,
    pub policy: &'r ClusterPolicy,
    pub plan: &'r Plan,
    places: Places,
    running: Vec<&'r Step>,
    wave: u32,
}

pub fn drained(request: &Request) -> BTreeSet<&HostName> {
    match request {
        Request::Drain { hosts, .. } => hosts.iter().collect(),
        _ => BTreeSet::new(),
    }
}

/// Hosts that may take guests under this request.
pub fn takers<'i>(
    inventory: &'i Inventory,
    policy: &ClusterPolicy,
    request: &Request,
) -> Vec<&'i HostName> {
    let takes = |host: &&Host| match request {
        _ if host.facts_age_seconds > policy.facts_at_most_seconds => false,
        _ if host.state == HostState::Unreachable => false,
        Request::Drain { hosts, .. } if hosts.contains(&host.name) => false,
        Request::Resume { host: resumed, .. } if *resumed == host.name => true,
        _ => host.state == HostState::Ready,
    };
    inventory
        .hosts
        .iter()
        .filter(takes)
        .map(|host| &host.name)
        .collect()
}

impl<'r> Run<'r> {
    pub fn new(inventory: &'r Inventory, policy: &'r ClusterPolicy, plan: &'r Plan) -> Self {
        let live = inventory
            .vms
            .iter()
            .filter(|vm| vm.state != VmState::Stopped);
        let at = |vm: &Vm| {
            std::iter::once(&vm.host)
                .chain(&vm.moving_to)
                .cloned()
                .collect()
        };
        Self {
            inventory,
            policy,
            plan,
            places: live.map(|vm| (vm.name.clone(), at(vm))).collect(),
            running: Vec::new(),
            wave: 0,
        }
    }

    /// Carries all waves out; `choices` is read round and round.
    pub fn check(mut self, choices: &[u8], losses: bool) {
        self.check_words();
        let mut choices = choices.iter().copied().cycle();
        let last = self
            .plan
            .steps
            .iter()
            .map(|step| step.wave)
            .max()
            .unwrap_or(0);
        for wave in 1..=last {
            self.wave = wave;
            let steps = self.plan.steps.iter().filter(|step| step.wave == wave);
            let mut waiting: Vec<&Step> = steps.collect();
            while !waiting.is_empty() || !self.running.is_empty() {
                let choice = usize::from(choices.next().unwrap());
                let start = !waiting.is_empty() && (choice % 2 == 0 || self.running.is_empty());
                if start {
                    self.start(waiting.remove(choice / 2 % waiting.len()));
                } else {
                    let step = self.running.remove(choice / 2 % self.running.len());
                    self.places.insert(step.vm.clone(), vec![step.to.clone()]);
                }
                self.check_moment(losses);
            }
        }
        self.check_end(losses);
    }

    fn start(&mut self, step: &'r Step) {
        assert_eq!(
            self.places[&step.vm],
            std::slice::from_ref(&step.from),
            "moves once, from where it is"
        );
        self.places.get_mut(&step.vm).unwrap().push(step.to.clone());
        self.running.push(step);
        let vm = self.vm(step);
        assert!(
            rules::may_ever(self.inventory, self.policy, vm, &step.to),
            "{step:?}"
        );
        let takers = takers(self.inventory, self.policy, &self.plan.request);
        assert!(takers.contains(&&step.to), "{step:?}");
        let avoided = self.plan.request.avoid().get(&step.vm);
        assert!(
            !avoided.is_some_and(|hosts| hosts.contains(&step.to)),
            "a move there failed: {step:?}"
        );
        assert!(vm.blockers.is_empty() && vm.moving_to.is_none(), "{step:?}");
    }

    fn vm(&self, step: &Step) -> &'r Vm {
        self.inventory
            .vms
            .iter()
            .find(|vm| vm.name == step.vm)
            .unwrap()
    }

    fn check_moment(&self, losses: bool) {
        for step in &self.plan.steps {
            if self.places[&step.vm].contains(&step.to) {
                let room =
                    rules::has_room(self.inventory, self.policy, &self.places, &step.to, true);
                assert!(room, "no room at {} with {:?}", step.to, self.places);
            }
        }
        if losses {
            self.check_losses();
        }
    }

    /// Every guest of every lost set has a place: the one that it is on its way to or from, or another.
    fn check_losses(&self) {
        let takers = takers(self.inventory, self.policy, &self.plan.request);
        for lost in lost_sets(self.inventory, self.policy) {
            let mut places = Places::new();
            let mut homeless = Vec::new();
            // Those that are to be suspended or stopped need no place, and nobody has to be with them.
            let vms = self.inventory.vms.iter();
            for vm in vms.filter(|vm| !self.is_to_stop(&vm.name)) {
                let Some(on) = self.places.get(&vm.name) else {
                    continue;
                };
                if on.iter().all(|host| lost.contains(host)) {
                    homeless.push(vm);
                    continue;
                }
                let mut there = self.counts(vm, on);
                there.retain(|host| !lost.contains(host));
                if !there.is_empty() && !self.is_to_follow(vm, on, &lost) {
                    places.insert(vm.name.clone(), there);
                }
            }
            homeless.retain(|vm| {
                // One that has yet to leave is bound to both ends of its way, as one on its way is.
                let mut on = self.places[&vm.name].clone();
                on.extend(self.step_of(vm).map(|step| step.to.clone()));
                !is_bound(self.inventory, &takers, vm, &on)
            });
            homeless.sort_by_key(|vm| std::cmp::Reverse(vm.memory));
            let left: Vec<&HostName> = takers
                .iter()
                .copied()
                .filter(|host| !lost.contains(*host))
                .collect();
            let fit = all_fit(self.inventory, self.policy, &mut places, &homeless, &left);
            assert!(
                fit,
                "without {lost:?} no place for {:?} beside {places:?}",
                names(&homeless)
            );
        }
    }

    fn step_of(&self, vm: &Vm) -> Option<&'r Step> {
        self.plan.steps.iter().find(|step| step.vm == vm.name)
    }

    /// Where a guest counts that is on these hosts. The place that it is to have waits for it. Of a drained
    /// host it is its only one, for it will not stay there in any case; on another it still has that, too.
    fn counts(&self, vm: &Vm, on: &[HostName]) -> Vec<HostName> {
        let step = self.step_of(vm).filter(|step| step.wave <= self.wave);
        match vm.moving_to.as_ref().or(step.map(|step| &step.to)) {
            Some(to) if on.contains(&vm.host) => {
                let is_left = drained(&self.plan.request).contains(&vm.host);
                let here = Some(&vm.host).filter(|_| !is_left);
                here.into_iter().chain([to]).cloned().collect()
            }
            _ => on.to_vec(),
        }
    }

    /// Whether a guest with companions runs on where it was, though it is to move in this wave: a group is
    /// not together while it moves, and who is still to come follows those that lost their host.
    fn is_to_follow(&self, vm: &Vm, on: &[HostName], lost: &BTreeSet<HostName>) -> bool {
        let moves = self
            .step_of(vm)
            .is_some_and(|step| step.wave <= self.wave && lost.contains(&step.to));
        moves && on.contains(&vm.host) && !vm.policy.together.is_empty()
    }

    fn is_to_stop(&self, name: &VmName) -> bool {
        let mut unmoved = self.plan.unmoved.iter();
        unmoved
            .any(|guest| guest.vm == *name && matches!(guest.then, Then::Suspended | Then::Stopped))
    }

    fn check_end(&self, losses: bool) {
        let vms = self.inventory.vms.iter();
        let there = vms.filter_map(|vm| {
            let on = self.places.get(&vm.name)?;
            Some((vm.name.clone(), self.counts(vm, on)))
        });
        let there: Places = there.collect();
        for step in &self.plan.steps {
            let vm = self.vm(step);
            let good = rules::company_is_good(self.inventory, self.policy, &there, vm);
            assert!(good, "{step:?} in {there:?}");
        }
        if losses {
            self.check_losses();
        }
        // Whoever is still on a drained host is accounted for.
        let drained = drained(&self.plan.request);
        for (vm, hosts) in self
            .places
            .iter()
            .filter(|(_, hosts)| drained.contains(&hosts[0]))
        {
            let told = self
                .plan
                .unmoved
                .iter()
                .any(|guest| guest.vm == *vm && guest.then != Then::Blocks);
            let stays = self.plan.stays.iter().any(|stay| stay.vm == *vm);
            assert!(told || stays, "{vm} is left on {hosts:?} without a word");
        }
    }

    /// Numbers of steps, limits on migrations at once and lines, in the time that the plan expects.
    fn check_words(&self) {
        let steps = &self.plan.steps;
        for (number, step) in (1..).zip(steps) {
            assert_eq!(step.number, number);
        }
        for now in steps {
            let at_once: Vec<&Step> = steps
                .iter()
                .filter(|step| runs_at(step, now.starts_ms))
                .collect();
            assert!(at_once.len() <= self.policy.in_cluster() as usize);
            let mut ends: BTreeMap<(&HostName, bool), (u32, u64)> = BTreeMap::new();
            for step in at_once {
                assert_eq!(step.wave, now.wave, "waves do not overlap");
                for end in [(&step.from, false), (&step.to, true)] {
                    let (count, rate) = ends.entry(end).or_default();
                    *count += 1;
                    *rate += step.bandwidth.0;
                }
            }
            for ((name, inbound), (count, rate)) in ends {
                let host = rules::host_of(self.inventory, name);
                let most = match inbound {
                    true => host.inbound.unwrap_or(self.policy.inbound),
                    false => host.outbound.unwrap_or(self.policy.outbound),
                };
                assert!(count <= most, "{count} at once at {name}");
                assert!(rate <= host.bandwidth.0, "{rate} bit/s at {name}");
            }
        }
    }
}

fn runs_at(step: &Step, ms: u64) -> bool {
    step.starts_ms <= ms && ms < step.starts_ms + step.forecast.ms.expected
}

fn names(vms: &[&Vm]) -> Vec<String> {
    vms.iter().map(|vm| vm.name.to_string()).collect()
}

/// Whether no host that takes guests may have it beside those that it is on.
fn is_bound(inventory: &Inventory, takers: &[&HostName], vm: &Vm, on: &[HostName]) -> bool {
    let pins = &vm.policy.pinned;
    let allowed = |name: &HostName| {
        let host = rules::host_of(inventory, name);
        (pins.hosts.is_empty() || pins.hosts.contains(name))
            && pins
                .labels
                .iter()
                .all(|(key, value)| host.labels.get(key) == Some(value))
            && !vm.needs.iter().any(|need| host.lacks.contains_key(need))
    };
    let pinned = !pins.hosts.is_empty() || !pins.labels.is_empty();
    let choosy = pinned || !vm.needs.is_empty();
    let mut others = takers.iter().filter(|taker| !on.contains(taker));
    !vm.blockers.is_empty() || (choosy && !others.any(|taker| allowed(taker)))
}

/// All sets of as many hosts or domains as the policy wants to be able to lose.
fn lost_sets(inventory: &Inventory, policy: &ClusterPolicy) -> Vec<BTreeSet<HostName>> {
    let mut parts: Vec<BTreeSet<HostName>> = Vec::new();
    let answering = inventory
        .hosts
        .iter()
        .filter(|host| host.state != HostState::Unreachable);
    for host in answering {
        let domain = |host: &Host| host.labels.get(policy.failure_domain.as_ref()?).cloned();
        let twin = parts.iter_mut().find(|part| {
            let first = rules::host_of(inventory, part.first().unwrap());
            policy.keep.of == LossOf::FailureDomain
                && domain(host).is_some()
                && domain(first) == domain(host)
        });
        match twin {
            Some(part) => drop(part.insert(host.name.clone())),
            None => parts.push([host.name.clone()].into()),
        }
    }
    let mut sets: Vec<BTreeSet<HostName>> = vec![BTreeSet::new()];
    for _ in 0..policy.keep.losses.min(u32::try_from(parts.len()).unwrap()) {
        let longer = sets
            .iter()
            .flat_map(|set| parts.iter().map(move |part| set | part));
        let longer: BTreeSet<BTreeSet<HostName>> = longer.collect();
        sets = longer.into_iter().collect();
    }
    sets
}
