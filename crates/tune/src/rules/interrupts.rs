//! Which processors take an adapter's interrupts.

use std::collections::{BTreeMap, BTreeSet};

use drover_types::CpuSet;

use super::near::{home, near};
use super::queues::carries;
use super::used::is_used;
use crate::change::{Change, Disruption, Step};
use crate::cost::of_rate;
use crate::facts::{Core, Host, Interrupt, Kind, Nic, Node};
use crate::finding::{Answer, Because, Found, Severity, Verdict};

/// How far processors of other nodes are, at the farthest.
struct Away {
    /// By the kernel's word; none where it has none.
    distance: Option<u32>,
    /// They are in the same socket. What is told as a distance does not say it: of two sockets some firmware says 16, as of parts of one
    /// another.
    one_socket: bool,
}

impl Away {
    fn of(host: &Host, nodes: &[Node], home: &Node, far: &[&Interrupt]) -> Self {
        let cpus = far
            .iter()
            .fold(CpuSet::default(), |cpus, irq| cpus.or(irq.taken_by()));
        let others = nodes.iter().filter(|node| !node.cpus.and(&cpus).is_empty());
        let distances = others.filter_map(|node| home.distances.get(&node.number).copied());
        let cores = host.processors.cores.known();
        let sockets = cores.map(|cores| {
            let all = home.cpus.or(&cpus);
            let of = all.iter().filter_map(|cpu| Some(cores.get(&cpu)?.package));
            of.collect::<BTreeSet<u32>>().len()
        });
        Self {
            distance: distances.max(),
            one_socket: sockets == Some(1),
        }
    }
}

/// The processors near an adapter that may be given its interrupts: others are kept free for guests by whoever isolated them.
fn for_interrupts(host: &Host, nic: &Nic) -> Result<CpuSet, Because> {
    let housekeeping = host.processors.housekeeping.get()?;
    Ok(near(host, nic)?.and(housekeeping))
}

/// An adapter's interrupts are taken near it.
pub fn near_adapter(host: &Host, nic: &Nic) -> Verdict {
    let nodes = host.processors.nodes.get()?;
    if !is_used(host, nic) || nic.kind != Kind::Adapter || nodes.len() < 2 {
        return Ok(Answer::NotAbout);
    }
    let own = near(host, nic)?;
    let near = for_interrupts(host, nic)?;
    if near.is_empty() {
        return Ok(Answer::NotAbout);
    }
    let home = home(nodes, &own)?;
    let all = nic.interrupts.get()?;
    let is_far = |irq: &&Interrupt| irq.taken_by().and(&own).is_empty();
    let (fixed, far): (Vec<&Interrupt>, Vec<&Interrupt>) =
        all.iter().filter(is_far).partition(|irq| irq.fixed);
    if far.is_empty() {
        return match fixed.len() {
            0 => Ok(Answer::Right),
            count => Err(of_the_kernel(count, all.len())),
        };
    }
    let others = match fixed.len() {
        0 => String::new(),
        count => format!(", beside {count} that the kernel lets nobody move"),
    };
    let to = near.to_string();
    let moves = far.iter().map(|irq| (*irq, to.clone()));
    let away = Away::of(host, nodes, home, &far);
    let (severity, whose, why) = if away.one_socket {
        let why = "each packet crosses between parts of the socket, which costs less than between sockets";
        (Severity::Notice, " of its socket", why)
    } else {
        let why = "each packet crosses between the nodes; 10 to 20 % of the rate is reported";
        (Severity::Warning, "", why)
    };
    let how_far = away
        .distance
        .map(|distance| format!(" ({distance} where its own is 10)"));
    let found = Found {
        severity,
        read: format!(
            "{} of its {} interrupts are taken by processors of another node{whose}{}{others}",
            far.len(),
            all.len(),
            how_far.unwrap_or_default()
        ),
        expected: format!("by {near}"),
        why: why.into(),
        cost: None,
        change: None,
        by_hand: None,
        lines: Vec::new(),
    };
    moved(host, moves.collect(), found)
}

/// An adapter's queues are not all served by a few of the processors near it.
pub fn spread(host: &Host, nic: &Nic) -> Verdict {
    if !is_used(host, nic) || nic.kind != Kind::Adapter {
        return Ok(Answer::NotAbout);
    }
    let queues = nic.channels.get()?.combined;
    if queues < 2 {
        return Ok(Answer::NotAbout);
    }
    let near = for_interrupts(host, nic)?;
    let all = nic.interrupts.get()?;
    // Those that are not near are to be moved first.
    if all.iter().any(|irq| irq.taken_by().and(&near).is_empty()) {
        return Ok(Answer::NotAbout);
    }
    // One that is not in use is taken by nobody.
    let taken: Vec<&Interrupt> = all
        .iter()
        .filter(|irq| irq.effective.count() == 1)
        .collect();
    if taken.len() < queues as usize {
        return Err("the kernel does not tell by which processor each interrupt is taken".into());
    }
    let by = taken
        .iter()
        .fold(CpuSet::default(), |by, irq| by.or(&irq.effective));
    let (used, could) = (by.count(), queues.min(host.processors.cores_of(&near)?));
    if used.saturating_mul(2) > could {
        return Ok(Answer::Right);
    }
    let before = host.nics.iter().take_while(|other| other.name != nic.name);
    let before = before.filter_map(|other| Some(other.interrupts.known()?.len()));
    let moves = apart(host, &near, &taken, before.sum())?;
    if moves.is_empty() {
        return Err(of_the_kernel(taken.len(), all.len()));
    }
    let rate = nic.link.known().and_then(|link| link.speed);
    let cost = rate.and_then(|rate| of_rate(carries(used, rate), carries(could, rate)));
    let slower = rate.is_some_and(|rate| carries(used, rate) < carries(could, rate));
    let found = Found {
        severity: if slower {
            Severity::Warning
        } else {
            Severity::Notice
        },
        read: format!("the interrupts of its {queues} queues are taken by CPUs {by} alone"),
        expected: format!("by {could} of {near}"),
        why: "these serve all queues while others near it rest".into(),
        cost: cost.filter(|_| slower),
        change: None,
        by_hand: None,
        lines: Vec::new(),
    };
    moved(host, moves, found)
}

/// Of those that share a core all but one go to the cores near it that have the fewest interrupts, of whatever adapter; where several have
/// none, each adapter begins behind what those before it may take.
fn apart<'h>(
    host: &'h Host,
    near: &CpuSet,
    taken: &[&'h Interrupt],
    before: usize,
) -> Result<Vec<Move<'h>>, Because> {
    let cores = host.processors.cores.get()?;
    let mut first: BTreeMap<Core, u32> = BTreeMap::new();
    for cpu in near.iter() {
        if let Some(core) = cores.get(&cpu) {
            first.entry(*core).or_insert(cpu);
        }
    }
    let on = |irq: &Interrupt| cores.get(&irq.effective.iter().next()?).copied();
    let mut load: BTreeMap<Core, usize> = first.keys().map(|core| (*core, 0)).collect();
    let all = host.nics.iter().filter_map(|nic| nic.interrupts.known());
    for core in all.flatten().filter_map(on) {
        load.entry(core).and_modify(|count| *count += 1);
    }
    let mut kept = BTreeSet::new();
    let mut moves = Vec::new();
    let places = first.len().max(1);
    // Those that nobody may move keep their cores.
    let (fixed, movable): (Vec<&'h Interrupt>, Vec<&'h Interrupt>) =
        taken.iter().copied().partition(|irq| irq.fixed);
    kept.extend(fixed.iter().filter_map(|irq| on(irq)));
    for irq in movable {
        let Some(own) = on(irq) else { continue };
        if kept.insert(own) {
            continue;
        }
        let order = (0..).zip(&first);
        let turn = |at: usize| (at + places - before % places) % places;
        let least = order.min_by_key(|(at, (core, _))| (load.get(*core).copied(), turn(*at)));
        let Some((_, (core, cpu))) = least else { break };
        if *core == own {
            continue;
        }
        load.entry(own).and_modify(|count| *count -= 1);
        load.entry(*core).and_modify(|count| *count += 1);
        moves.push((irq, cpu.to_string()));
    }
    Ok(moves)
}

/// What nobody can mend is no finding.
fn of_the_kernel(count: usize, all: usize) -> Because {
    Because(format!(
        "the kernel has {count} of its {all} interrupts where it wants, and lets nobody move them"
    ))
}

/// An interrupt, and the processors that are to take it.
type Move<'h> = (&'h Interrupt, String);

fn step((irq, to): &Move<'_>) -> Step {
    Step::File {
        path: format!("proc/irq/{}/smp_affinity_list", irq.number),
        from: irq.cpus.to_string(),
        to: to.clone(),
    }
}

/// irqbalance is told to leave them alone (`man 1 irqbalance`), and then they are moved.
fn beside_irqbalance(moves: &[Move<'_>], steps: &[Step]) -> String {
    let joined = |words: Vec<String>, by| words.join(by);
    let bans = moves
        .iter()
        .map(|(irq, _)| format!("--banirq={}", irq.number));
    let steps = steps.iter().map(Step::to_string);
    format!(
        "irqbalance puts them where it likes: add {} to IRQBALANCE_ARGS (/etc/default/irqbalance, or /etc/sysconfig/irqbalance), \
         then: systemctl restart irqbalance; {}. Numbers stay until the driver is loaded anew",
        joined(bans.collect(), " "),
        joined(steps.collect(), "; ")
    )
}

/// It is mended by these, unless irqbalance would move them again.
fn moved(host: &Host, moves: Vec<Move<'_>>, found: Found) -> Verdict {
    let steps: Vec<Step> = moves.iter().map(step).collect();
    let mended = if *host.irqbalance.get()? {
        Found {
            by_hand: Some(beside_irqbalance(&moves, &steps)),
            ..found
        }
    } else {
        let disruption = Disruption::Safe;
        Found {
            change: Some(Change { disruption, steps }),
            ..found
        }
    };
    Ok(Answer::Found(mended))
}
