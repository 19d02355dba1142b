//! libvirt's domains as a plan knows them: guests like others, named by their ids.

use std::collections::{BTreeMap, BTreeSet};

use data_encoding::HEXLOWER;
use drover_api::DomainView;
use drover_libvirt::{Domain, DomainState, Untold};
use drover_plan::Text;
use drover_plan::inventory::{Vm, VmState};
use drover_plan::limits::{BLOCKERS, CPUS, MEMORY};
use drover_plan::policy::{CannotMove, VmPolicy};
use drover_types::{AtDeadline, Bytes, Convergence, HostName, VmName, in_short};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::DisksAs;
use super::guests::{deadline, taken};
use crate::agent::Context;
use crate::libvirt::{self, DomainWay, Fit, Seen, is_in_memory, name};
use crate::registry::resident;

/// How much of the digest of a host's name stands in names. Only hosts that have the same domain must differ in it.
const HOST_DIGEST_BYTES: usize = 4;

/// Where what a plan must know of them stands.
#[derive(Debug, Default)]
pub struct OfLibvirt {
    /// Those in memory.
    pub vms: Vec<Vm>,
    /// What these need.
    pub domains: Vec<DomainView>,
    /// What their processes have of the host's memory.
    pub resident: Bytes,
    /// What is not known of them.
    pub notes: Vec<String>,
}

/// What is known of domains beside what libvirt lists.
#[derive(Debug)]
struct Known<'a> {
    /// This host.
    own: &'a HostName,
    /// The agent's own guests.
    guests: &'a BTreeSet<VmName>,
    /// Those that move.
    ways: BTreeMap<Uuid, DomainWay>,
    /// Whether others can.
    fits: BTreeMap<Uuid, Fit>,
    /// How domains are moved.
    wished: Convergence,
}

/// The domains of this host's libvirt, of which these processes are known, beside these guests of the agent's own.
pub async fn domains(
    context: &Context,
    seen: &Seen,
    pids: &BTreeMap<Uuid, u32>,
    guests: &BTreeSet<VmName>,
    as_disks: DisksAs,
) -> OfLibvirt {
    let configured = context.config.migration.convergence;
    let known = Known {
        own: &context.config.host,
        guests,
        // Before the others: one that has begun to move meanwhile is then asked about for nothing, and not forgotten.
        fits: libvirt::fits(context, seen, as_disks).await,
        ways: context.libvirt.ways(),
        wished: Convergence::default().or(configured),
    };
    collect(seen, &known, |uuid| resident(*pids.get(&uuid)?))
}

/// `memory` tells what a domain's process has touched.
fn collect(seen: &Seen, known: &Known<'_>, memory: impl Fn(Uuid) -> Option<Bytes>) -> OfLibvirt {
    let mut found = OfLibvirt::default();
    let unknown = seen.never_told();
    let unknown = unknown.map(|why| format!("libvirt's domains here are not known: {why}"));
    found.notes.extend(unknown);
    let Some(domains) = &seen.domains else {
        return found;
    };
    let told = domains.told.iter();
    let (in_memory, off): (Vec<_>, Vec<_>) = told.partition(|domain| is_in_memory(domain.state));
    let mut unfound = Vec::new();
    for domain in in_memory {
        let touched = memory(domain.uuid);
        if touched.is_none() {
            unfound.push(name(&domain.name));
        }
        let fit = known.fits.get(&domain.uuid).cloned();
        let fit = fit.unwrap_or_else(|| Fit::unknown("it came just now"));
        found.add(seen, domain, known, fit, touched);
    }
    for domain in &domains.untold {
        let (called, why) = (name(&domain.name), &domain.why);
        let Some(touched) = memory(domain.uuid) else {
            found.notes.push(format!(
                "libvirt does not tell of its domain {called:?}, which is not counted, as no process of it is found: {why}"
            ));
            continue;
        };
        let fit = Fit::unknown(&format!("libvirt does not tell of it: {why}"));
        found.add(
            seen,
            &as_its_process_is(domain, touched),
            known,
            fit,
            Some(touched),
        );
    }
    // Not at each of them: a plan is made from what stands there, and must not be outdated by libvirt's words of today.
    let old = seen.problem().filter(|_| seen.count() > 0);
    found.notes.extend(old.map(|why| {
        let said = seen.said_last();
        format!("libvirt {said} what is planned with of its domains here, and has not told of them since: {why}")
    }));
    if !unfound.is_empty() {
        let (count, names) = (unfound.len(), in_short(unfound.join(", ")));
        found.notes.push(format!(
            "what {count} of libvirt's domains have of the host's memory is counted as its own, too, since their processes were not \
             found: {names}"
        ));
    }
    if !off.is_empty() {
        let count = off.len();
        let note = format!("domains of libvirt's that are shut off here and stay: {count}");
        found.notes.push(note);
    }
    found
}

/// A domain of which libvirt does not tell, as far as its process shows.
fn as_its_process_is(domain: &Untold, touched: Bytes) -> Domain {
    Domain {
        name: domain.name.clone(),
        uuid: domain.uuid,
        state: DomainState::Running,
        persistent: false,
        autostart: false,
        memory: touched.max(Bytes(1)),
        vcpus: 1,
    }
}

impl OfLibvirt {
    fn add(
        &mut self,
        seen: &Seen,
        domain: &Domain,
        known: &Known<'_>,
        fit: Fit,
        touched: Option<Bytes>,
    ) {
        self.resident += touched.unwrap_or_default();
        let called = name(&domain.name);
        let notes = fit.notes.iter();
        let notes = notes.map(|note| format!("domain {called:?}: {note}"));
        self.notes.extend(notes);
        let Some(vm) = vm(seen, domain, known, &fit, touched) else {
            return;
        };
        self.domains.push(DomainView {
            vm: vm.name.clone(),
            uuid: domain.uuid.to_string(),
            name: called,
            needs: fit.needs,
        });
        self.vms.push(vm);
    }

    /// The same for whoever plans and knows no domains: guests by names that nobody orders them by, which stay.
    pub fn staying(mut self, own: &HostName) -> Self {
        for (vm, domain) in self.vms.iter_mut().zip(self.domains.drain(..)) {
            let uuid = domain.uuid.parse().ok();
            let name = uuid.and_then(|uuid| name_on(uuid, own));
            let blocker = format!(
                "it is libvirt's domain {:?}, which the agent that plans is too old to move: bring that one to this version, or move it with \
                 `drover migrate`",
                domain.name
            );
            vm.name = name.unwrap_or_else(|| vm.name.clone());
            vm.called = None;
            vm.host = own.clone();
            vm.moving_to = None;
            vm.blockers = vec![blocker.into()];
        }
        self
    }
}

/// None of one that has no name for plans, which does not happen.
fn vm(
    seen: &Seen,
    domain: &Domain,
    known: &Known<'_>,
    fit: &Fit,
    touched: Option<Bytes>,
) -> Option<Vm> {
    let most = Bytes(MEMORY);
    let given = domain.memory.min(most);
    let all = taken(given, touched.unwrap_or_default()).min(most);
    let way = known.ways.get(&domain.uuid);
    let mut blockers = match way {
        Some(_) => Vec::new(),
        None => fit.blockers.clone(),
    };
    let (called, own) = (name_by_id(domain.uuid), known.own);
    // Orders are given by that name.
    let is_its = |called: &VmName| {
        let found = libvirt::find(seen, called);
        !known.guests.contains(called) && found.is_some_and(|found| found.uuid == domain.uuid)
    };
    let called = called.filter(is_its).or_else(|| {
        let why = "another guest or domain here has its id for a name";
        blockers.insert(0, why.to_owned());
        name_on(domain.uuid, own)
    });
    blockers.truncate(BLOCKERS);
    let (host, moving_to) = match way {
        Some(way) => (way.source.clone(), Some(way.destination.clone())),
        None => (own.clone(), None),
    };
    let wished = &known.wished;
    let limit = wished.downtime_limit().as_millis();
    Some(Vm {
        name: called?,
        called: Some(Text::from(format!("libvirt's {:?}", name(&domain.name)))),
        host,
        moving_to,
        state: match domain.state {
            DomainState::Paused | DomainState::Crashed => VmState::Paused,
            _ => VmState::Running,
        },
        memory: all,
        memory_used: touched.unwrap_or(given).min(given),
        vcpus: u32::from(domain.vcpus).clamp(1, CPUS),
        cpu: fit.cpu.clone(),
        // Joined by whoever plans, who asks other hosts for them.
        needs: BTreeSet::new(),
        disks: None,
        dirty_rate: None,
        working_set: None,
        downtime_limit_ms: u64::try_from(limit).unwrap_or(u64::MAX),
        throttle_most: wished.throttle().map(|(_, most)| most),
        deadline: deadline(wished).map(|mut at| {
            if at.then == AtDeadline::Postcopy {
                at.then = AtDeadline::GiveUp;
            }
            at
        }),
        blockers: blockers.into_iter().map(Into::into).collect(),
        // The others of its host are moved all the same, and what stays is told.
        policy: VmPolicy {
            cannot_move: CannotMove::Skip,
            ..VmPolicy::default()
        },
    })
}

/// What orders know a domain by, on whichever host it is.
fn name_by_id(domain: Uuid) -> Option<VmName> {
    domain.to_string().parse().ok()
}

/// The name of a domain where several hosts have it, of 49 characters: its id, and the beginning of a digest of a host's name. While
/// libvirt moves one by itself two hosts have it.
pub fn name_on(domain: Uuid, host: &HostName) -> Option<VmName> {
    let host = HEXLOWER.encode(&Sha256::digest(host.as_str())[..HOST_DIGEST_BYTES]);
    let name = format!("libvirt.{}.{host}", domain.simple());
    name.parse().ok()
}

#[cfg(test)]
mod tests;
