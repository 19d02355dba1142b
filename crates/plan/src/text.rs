//! A plan, or a refusal, as people read it: a numbered list with reasons, and what it adds up to.

mod numbers;

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::inventory::{Disks, Inventory};
use crate::plan::{Choice, HostAfter, Losses, Plan, Staying, Step, StepDisks, Then, Unmoved, Why};
use crate::policy::LossOf;
use crate::precopy::Convergence;
use crate::refusal::{Refusal, RefusedBy, Unmovable, count, first_names};
use crate::request::{Avoid, Request};
use crate::words::Text;
use drover_types::{Bytes, VmName};
use numbers::{about, about_time, size_range, time, time_range};

/// What people call guests, by their names.
type Called = BTreeMap<VmName, Text>;

/// Hosts that are listed with what they have left afterwards, before the list is shortened to those
/// that have least.
const HOSTS_SHOWN: usize = 12;

/// Guests of which it is said where they are not moved since that failed.
const AVOIDED_SHOWN: usize = 12;

/// Writing to a `String` cannot fail, so that the results of `write!` say nothing.
macro_rules! line {
    ($out:expr, $($arg:tt)*) => {{
        let _ = writeln!($out, $($arg)*);
    }};
}

/// A plan as a numbered list.
#[must_use]
pub fn plan(plan: &Plan) -> String {
    let mut out = String::new();
    headline(&mut out, plan);
    for host in &plan.cordon {
        line!(out, "First, {host} is cordoned: it takes no more guests.");
    }
    for host in &plan.uncordon {
        line!(out, "First, {host} takes guests again.");
    }
    avoided(&mut out, plan.request.avoid());
    steps(&mut out, plan);
    if !plan.unmoved.is_empty() {
        line!(out, "\nCannot move:");
        plan.unmoved
            .iter()
            .for_each(|guest| unmoved(&mut out, &plan.called, guest));
    }
    if !plan.stays.is_empty() {
        line!(out, "\nStays as it is:");
        for stay in &plan.stays {
            let vm = name(&plan.called, &stay.vm);
            line!(out, "  {vm}: {}", staying(&stay.why));
        }
    }
    afterwards(&mut out, plan);
    out
}

/// A refusal to plan with these facts, with all that led to it.
#[must_use]
pub fn refusal(refusal: &Refusal, inventory: &Inventory) -> String {
    let mut out = String::new();
    line!(out, "No plan: {refusal}.");
    if let Refusal::Blocked {
        unmoved: guests, ..
    } = refusal
    {
        let vms = inventory.vms.iter();
        let called = vms.filter_map(|vm| Some((vm.name.clone(), vm.called.clone()?)));
        let called = called.collect();
        guests
            .iter()
            .for_each(|guest| unmoved(&mut out, &called, guest));
    }
    out
}

fn avoided(out: &mut String, avoid: &Avoid) {
    let avoid: Vec<_> = avoid
        .iter()
        .filter(|(_, hosts)| !hosts.is_empty())
        .collect();
    for (vm, hosts) in avoid.iter().take(AVOIDED_SHOWN) {
        let hosts = first_names(hosts.iter());
        line!(out, "{vm} is not moved to {hosts}: that failed.");
    }
    let more = avoid.len().saturating_sub(AVOIDED_SHOWN);
    if more > 0 {
        let guests = count(more, "more guest");
        line!(
            out,
            "Moves of {guests} failed too, and are not planned again."
        );
    }
}

/// What is asked for, in a few words: `Drain a, b`.
#[must_use]
pub fn request(asked: &Request) -> String {
    let what = match asked {
        Request::Drain { hosts, .. } => format!("Drain {}", first_names(hosts.iter())),
        Request::Resume { host, .. } => format!("Resume {host}"),
        Request::Rebalance { .. } => "Rebalance".to_owned(),
    };
    match asked.with_disks() {
        true => what + " with local disks",
        false => what,
    }
}

fn headline(out: &mut String, plan: &Plan) {
    let what = request(&plan.request);
    let id = plan.inputs.short();
    if plan.steps.is_empty() {
        line!(out, "{what}: nothing to move (plan {id})");
        return;
    }
    let guests = count(plan.steps.len(), "guest");
    let move_word = if plan.steps.len() == 1 {
        "moves"
    } else {
        "move"
    };
    line!(
        out,
        "{what}: {guests} {move_word}, {}, {} (plan {id})",
        about(size_range(plan.expected.bytes)),
        about_time(plan.expected.ms),
    );
    line!(
        out,
        "The lines alone would need {}; the longest that a guest stands still is {}.",
        time(plan.expected.bound_ms),
        time_range(plan.expected.longest_downtime_ms),
    );
    let disks = || plan.steps.iter().filter_map(|step| step.disks);
    if disks().next().is_some() {
        let sum = |part: fn(&Disks) -> Bytes| disks().map(|one| part(&one.disks)).sum::<Bytes>();
        line!(
            out,
            "Disks of {} are copied, of {} with {} written to, into files that may grow to all of it; those that they leave are stale, and stay.",
            count(disks().count(), "guest"),
            sum(|disks| disks.size),
            sum(|disks| disks.allocated),
        );
    }
}

fn steps(out: &mut String, plan: &Plan) {
    let waves = plan.steps.iter().map(|step| step.wave).max().unwrap_or(0);
    let digits = plan.steps.len().to_string().len();
    let mut wave = 0;
    for step in &plan.steps {
        if step.wave != wave {
            wave = step.wave;
            line!(out, "");
            match waves {
                1 => {}
                _ if wave == 1 => line!(out, "Wave 1 of {waves}:"),
                _ => line!(
                    out,
                    "Wave {wave} of {waves}, when wave {} is done:",
                    wave - 1
                ),
            }
        }
        one_step(out, &plan.called, step, digits);
    }
}

/// A guest's name, and what people call it where that is something else.
fn name(called: &Called, vm: &VmName) -> String {
    match called.get(vm) {
        Some(called) => format!("{vm} ({called})"),
        None => vm.to_string(),
    }
}

fn one_step(out: &mut String, called: &Called, step: &Step, digits: usize) {
    let Step {
        number,
        vm,
        from,
        to,
        ..
    } = step;
    let vm = name(called, vm);
    let start = match step.starts_ms {
        0 => "starts at once".to_owned(),
        ms => format!("starts after {}", time(ms)),
    };
    let forecast = &step.forecast;
    line!(
        out,
        "{number:>digits$}. {vm}: {from} -> {to}, {} in memory, {start} at {}",
        step.memory,
        step.bandwidth,
    );
    let indent = digits + 2;
    let ending = match forecast.convergence {
        Convergence::ByItself => "",
        Convergence::Throttled => ", slowed down so that it ends",
        Convergence::BeyondLimit => {
            ", which is beyond its limit: it writes faster than the line carries"
        }
        Convergence::GivenUp => ", but its deadline passes before: it is given up then, and stays",
        Convergence::StoppedForTheRest => {
            ", but its deadline passes before: it is stopped then until the rest is there"
        }
        Convergence::ByPostcopy => {
            ", but its deadline passes before: it goes on there then, and the rest follows it"
        }
    };
    line!(
        out,
        "{:indent$}carries {}, takes {}, stands still for {}{ending}",
        "",
        about(size_range(forecast.bytes)),
        about_time(forecast.ms),
        time_range(forecast.downtime_ms),
    );
    if let Some(disks) = &step.disks {
        line!(out, "{:indent$}{}", "", with_disks(disks));
    }
    line!(out, "{:indent$}{}", "", why(&step.why));
}

/// Of what a step carries and takes, what is for disks.
fn with_disks(disks: &StepDisks) -> String {
    let Disks { size, allocated } = disks.disks;
    format!(
        "with its disks of {size}, of which {allocated} are written to: {} of that time is for them",
        about_time(disks.ms)
    )
}

fn why(why: &Why) -> String {
    let free = format!("{} of {} free afterwards", why.free_after, why.room);
    let of = count(why.candidates as usize, "host");
    let mut words = match &why.choice {
        Choice::OnlyPlace => format!("the only host with a place: {free}"),
        Choice::MostRoom => format!("most room left of {of} with a place: {free}"),
        Choice::Wishes => {
            format!("of {of} with a place, the one with most room that breaks fewer wishes: {free}")
        }
        Choice::Whole => format!("best for the whole, of {of} with a place: {free}"),
        Choice::Home => format!("its home: {free}"),
        Choice::Evens {
            from_percent: [from, from_after],
            to_percent: [to, to_after],
        } => format!(
            "evens the loads: from {from} % to {from_after} % where it is, from {to} % to {to_after} % there, with {free}"
        ),
        Choice::MakesRoom { vm } => format!("makes room for {vm}; there, {free}"),
    };
    if !why.apart_from.is_empty() {
        let _ = write!(words, "; apart from {}", first_names(why.apart_from.iter()));
    }
    if !why.together_with.is_empty() {
        let _ = write!(
            words,
            "; together with {}",
            first_names(why.together_with.iter())
        );
    }
    if why.wishes_broken > 0 {
        let _ = write!(
            words,
            "; breaks {}",
            count(why.wishes_broken as usize, "wish")
        );
    }
    words
}

fn unmoved(out: &mut String, called: &Called, guest: &Unmoved) {
    let then = match guest.then {
        Then::Blocks => "must move, so there is no plan",
        Then::RunsOn => "runs on there; the host does not become empty",
        Then::Suspended => "is suspended to disk, and goes on when its host is back",
        Then::Stopped => "is stopped, and started when its host is back",
        Then::NotHome => "stays where it is",
    };
    line!(
        out,
        "  {} on {}, {}: {then}",
        name(called, &guest.vm),
        guest.host,
        guest.memory
    );
    match &guest.why {
        Unmovable::NoHost { hosts } => {
            hosts.iter().for_each(|hosts| line!(out, "    {hosts}"));
        }
        why => line!(out, "    {why}"),
    }
}

impl std::fmt::Display for RefusedBy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = match self.hosts.len() {
            0 => count(self.count, "host"),
            _ => first_names(self.hosts.iter()),
        };
        let nearest = if self.count > 1 && has_numbers(self) {
            " (the nearest)"
        } else {
            ""
        };
        write!(f, "{names}: {}{nearest}", self.reason)
    }
}

fn has_numbers(refused: &RefusedBy) -> bool {
    use crate::refusal::NoPlace::{Disks, Memory, OldFacts, Taken, Vcpus};
    matches!(
        refused.reason,
        Disks { .. } | Memory { .. } | Vcpus { .. } | Taken { .. } | OldFacts { .. }
    )
}

fn staying(why: &Staying) -> String {
    match why {
        Staying::Stopped => "is stopped, nothing of it is in memory".to_owned(),
        Staying::Moving { to } => format!("is on its way to {to} already"),
        Staying::AtHome => "is at home already".to_owned(),
        Staying::Gone => "is no longer in the cluster".to_owned(),
    }
}

fn afterwards(out: &mut String, plan: &Plan) {
    line!(out, "\nAfterwards:");
    let mut hosts: Vec<&HostAfter> = plan.afterwards.hosts.iter().collect();
    let more = hosts.len().saturating_sub(HOSTS_SHOWN);
    if more > 0 {
        hosts.retain(|host| host.takes_guests);
        hosts.sort_by(|one, other| {
            (one.memory_free, &one.host).cmp(&(other.memory_free, &other.host))
        });
        hosts.truncate(HOSTS_SHOWN);
        line!(
            out,
            "  (of {} those with least room)",
            count(plan.afterwards.hosts.len(), "host")
        );
    }
    for host in hosts {
        let state = if host.takes_guests {
            ""
        } else {
            ", takes no guests"
        };
        line!(
            out,
            "  {}: {}, {} of {} free{state}",
            host.host,
            count(host.guests as usize, "guest"),
            host.memory_free,
            host.memory_room,
        );
    }
    losses(out, &plan.afterwards.losses);
}

fn losses(out: &mut String, losses: &Losses) {
    let noun = match losses.of {
        LossOf::Host => "host",
        LossOf::FailureDomain => "failure domain",
    };
    match losses.can_lose {
        0 => line!(out, "  The cluster can lose no {noun}."),
        1 => line!(out, "  The cluster can lose any {noun}."),
        many => line!(
            out,
            "  The cluster can lose any {}.",
            count(many as usize, noun)
        ),
    }
    if !losses.kept {
        line!(out, "  That is less than the policy wants.");
    }
    if let Some(too_much) = &losses.too_much {
        line!(
            out,
            "  Without {}, {} with {} would find no place.",
            first_names(too_much.lost.iter()),
            count(too_much.guests as usize, "guest"),
            too_much.memory,
        );
    }
    if losses.bound_to_their_host > 0 {
        let guests = count(losses.bound_to_their_host as usize, "guest");
        line!(out, "  Not counted: {guests} that no other host may take.");
    }
}

/// Bytes as their type shows them.
fn bytes(value: u64) -> String {
    Bytes(value).to_string()
}
