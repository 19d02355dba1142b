//! Which processors take an adapter's interrupts.

use super::queues::near;
use super::used::is_used;
use crate::change::{Change, Disruption, Step};
use crate::facts::{Host, Interrupt, Kind, Nic};
use crate::finding::{Answer, Because, Found, Severity, Verdict};

/// An adapter's interrupts are taken near it.
pub fn near_adapter(host: &Host, nic: &Nic) -> Verdict {
    if !is_used(host, nic) || nic.kind != Kind::Adapter || host.processors.nodes.get()?.len() < 2 {
        return Ok(Answer::NotAbout);
    }
    let near = near(host, nic)?;
    let all = nic.interrupts.get()?;
    let is_far = |irq: &&Interrupt| irq.taken_by().and(&near).is_empty();
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
    let steps = far.iter().map(|irq| step(irq, to.clone()));
    let found = Found {
        severity: Severity::Warning,
        read: format!(
            "{} of its {} interrupts are taken by processors of another node{others}",
            far.len(),
            all.len()
        ),
        expected: format!("by {near}"),
        why: "each packet crosses between the nodes; 10 to 20 % of the rate is reported".into(),
        cost: None,
        change: None,
        by_hand: None,
        lines: Vec::new(),
    };
    moved(host, steps.collect(), found)
}

/// What nobody can mend is no finding.
fn of_the_kernel(count: usize, all: usize) -> Because {
    Because(format!(
        "the kernel spreads {count} of its {all} interrupts by itself, also over another node, and lets nobody move them"
    ))
}

fn step(irq: &Interrupt, to: String) -> Step {
    Step::File {
        path: format!("proc/irq/{}/smp_affinity_list", irq.number),
        from: irq.cpus.to_string(),
        to,
    }
}

/// It is mended by these steps, unless irqbalance would move them again.
fn moved(host: &Host, steps: Vec<Step>, found: Found) -> Verdict {
    let mended = if *host.irqbalance.get()? {
        let by_hand = "irqbalance puts them where it likes: exclude them in its configuration (IRQBALANCE_ARGS), then run this again";
        Found {
            by_hand: Some(by_hand.to_owned()),
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
