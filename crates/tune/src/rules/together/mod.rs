//! Paths that were loaded at the same time, and what they share that carries less than they do alone.
//!
//! ```text
//!   incast       b ─┐              each other     a ──▶ c     (a round; in the next one
//!                c ─┼─▶ a                         b ──▶ d      each host loads another)
//!                d ─┘                             c ──▶ a
//!                                                 d ──▶ b
//! ```

use std::collections::{BTreeMap, BTreeSet};

use super::paths::{Waited, at_least, falls_short, found, processors, sent_again};
use crate::facts::{Carried, Fact, HeldUpBy, Joint, Path, PathEnd, Together};
use crate::finding::{Answer, Because, Subject, Verdict};

/// How many other paths are named.
const NAMED: usize = 3;

/// A path that was loaded alone, and together with others.
struct Flow<'a> {
    path: &'a Path,
    alone: &'a Carried,
    joint: &'a Joint,
}

impl Flow<'_> {
    /// What it could carry beside others: what it carries alone, as far as it was allowed to.
    fn could(&self) -> u64 {
        let allowed = self.joint.carried.allowed.unwrap_or(u64::MAX);
        self.alone.rate.min(allowed)
    }

    fn is_short(&self) -> bool {
        falls_short(self.joint.carried.rate, self.could()).is_some()
    }

    fn is_short_alone(&self) -> bool {
        let most = self.alone.most();
        most.is_some_and(|most| falls_short(self.alone.rate, most).is_some())
    }

    fn held_up_by(&self, what: HeldUpBy) -> bool {
        self.joint.carried.held_up_by == what
    }
}

/// It, or why there is nothing to say of it; nothing where it was not to be loaded so.
fn flow(path: &Path, joint: fn(&Together) -> &Fact<Joint>) -> Option<Result<Flow<'_>, Because>> {
    let joint = joint(path.together.as_ref()?);
    let alone = match &path.carried {
        Some(carried) => carried.get(),
        None => Err("it was not loaded alone"),
    };
    let both = joint.get().and_then(|joint| Ok((joint, alone?)));
    let flow = both.map(|(joint, alone)| Flow { path, alone, joint });
    Some(flow.map_err(Because::from))
}

/// All that were loaded so; the others are skipped, because.
fn flows(
    paths: &[Path],
    joint: fn(&Together) -> &Fact<Joint>,
) -> (Vec<Flow<'_>>, Vec<(Subject, Verdict)>) {
    let (mut known, mut skipped) = (Vec::new(), Vec::new());
    for path in paths {
        match flow(path, joint) {
            Some(Ok(flow)) => known.push(flow),
            Some(Err(because)) => skipped.push((Subject::path(path), Err(because))),
            None => {}
        }
    }
    (known, skipped)
}

/// What several hosts carry to one at the same time.
pub fn incast(paths: &[Path]) -> Vec<(Subject, Verdict)> {
    let (flows, mut verdicts) = flows(paths, |together| &together.to_one);
    let mut into: BTreeMap<&str, Vec<&Flow<'_>>> = BTreeMap::new();
    for flow in &flows {
        into.entry(&flow.path.far.host).or_default().push(flow);
    }
    let into = into.into_iter();
    verdicts.extend(into.map(|(host, flows)| (Subject::host(host), into_one(host, &flows))));
    verdicts
}

fn into_one(host: &str, flows: &[&Flow<'_>]) -> Verdict {
    if senders(flows).len() < 2 {
        return Ok(Answer::NotAbout);
    }
    if flows.iter().all(|flow| flow.is_short_alone()) {
        // What is its own port's fault would be found a second time.
        return Err("each path to it carries too little alone: see `path-rate`".into());
    }
    let lines = by_line(flows).into_iter().map(Sum::of_line);
    let lines: Vec<Sum<'_>> = lines.collect::<Result<_, _>>()?;
    let whole = Sum::of_all(&lines, flows);
    let shared = lines.iter().filter(|line| senders(&line.flows).len() > 1);
    let short = shared
        .chain([&whole])
        .filter_map(|sum| Some((falls_short(sum.carried, sum.could)?, sum)));
    let Some(((percent, severity), sum)) = short.min_by_key(|((percent, _), _)| *percent) else {
        return Ok(Answer::Right);
    };
    let nics: BTreeSet<&str> = sum
        .flows
        .iter()
        .map(|flow| flow.path.far.nic.as_str())
        .collect();
    let senders = senders(&sum.flows);
    let (waited, by_hand) = waited_for(host, &sum.flows);
    let alone: u64 = sum.flows.iter().map(|flow| flow.alone.rate).sum();
    let read = format!(
        "{} carry {} Mbit/s to its {} at once, and {} one after the other{waited}",
        joined(&senders),
        mbit(sum.carried),
        joined(&nics),
        mbit(alone)
    );
    Ok(found(
        severity,
        read,
        at_least(
            sum.could,
            "they could carry at once, by what each carries alone, what it was allowed and the links there",
        ),
        "guests that come from several hosts at once, as in a drain, take so much longer",
        Some(format!("{percent} % of what they could carry at once")),
        by_hand,
    ))
}

/// Rates of paths to one host, in bits a second.
struct Sum<'a> {
    flows: Vec<&'a Flow<'a>>,
    carried: u64,
    could: u64,
}

impl<'a> Sum<'a> {
    /// Of those that arrive on one line, which carries no more than its rate.
    fn of_line(flows: Vec<&'a Flow<'a>>) -> Result<Self, Because> {
        let mut line = 0_u64;
        for flow in &flows {
            let untold = || format!("nobody tells the rate of its {}", flow.path.far.nic);
            line = line.max(flow.joint.far_line.ok_or_else(|| Because(untold()))?);
        }
        let could = flows.iter().map(|flow| flow.could()).sum();
        Ok(Self {
            carried: flows.iter().map(|flow| flow.joint.carried.rate).sum(),
            could: line.min(could),
            flows,
        })
    }

    fn of_all(lines: &[Self], flows: &[&'a Flow<'a>]) -> Self {
        Self {
            flows: flows.to_vec(),
            carried: lines.iter().map(|line| line.carried).sum(),
            could: lines.iter().map(|line| line.could).sum(),
        }
    }
}

/// Those that arrive on one line of their host.
fn by_line<'a>(flows: &[&'a Flow<'a>]) -> Vec<Vec<&'a Flow<'a>>> {
    let mut lines: Vec<(BTreeSet<&str>, Vec<&Flow<'_>>)> = Vec::new();
    for flow in flows {
        let ports = flow.joint.far_ports.iter().map(String::as_str);
        let mut ports: BTreeSet<&str> = ports.chain([flow.path.far.nic.as_str()]).collect();
        let mut of_line = vec![*flow];
        lines.retain_mut(|(others, flows)| {
            let apart = others.is_disjoint(&ports);
            if !apart {
                ports.append(others);
                of_line.append(flows);
            }
            apart
        });
        lines.push((ports, of_line));
    }
    lines.into_iter().map(|(_, flows)| flows).collect()
}

fn senders<'a>(flows: &[&'a Flow<'a>]) -> BTreeSet<&'a str> {
    let hosts = flows.iter().map(|flow| flow.path.near.host.as_str());
    hosts.collect()
}

/// What paths to one host waited for, and what to look at.
fn waited_for(host: &str, flows: &[&Flow<'_>]) -> Waited {
    let again = flows.iter().map(|flow| flow.joint.carried.again).sum();
    let packets = flows.iter().map(|flow| flow.joint.carried.packets).sum();
    let again = sent_again(again, packets);
    let held_up_by = |what| flows.iter().filter(move |flow| flow.held_up_by(what));
    if held_up_by(HeldUpBy::Far).count() * 2 > flows.len() {
        return processors(host, "took no more", &again);
    }
    let near: Vec<&Flow<'_>> = held_up_by(HeldUpBy::Near).copied().collect();
    if near.len() * 2 > flows.len() {
        return processors(&joined(&senders(&near)), "had no more to send", &again);
    }
    (
        again,
        shared(&format!(
            "the port of the switch to {host} (packets that it drops), and "
        )),
    )
}

/// What to look at that several paths share, after what is said `first`.
fn shared(first: &str) -> String {
    format!(
        "see {first}what these paths share: an uplink between two switches (its rate, a member of its LAG that is down), the buffers \
         or a shaper of a switch, and `pci-slot` and `link-errors` of these hosts"
    )
}

/// What each path carries while every host loads another.
pub fn each_other(paths: &[Path]) -> Vec<(Subject, Verdict)> {
    let (flows, mut verdicts) = flows(paths, |together| &together.each_other);
    let mut from: BTreeMap<(&str, &str), Vec<&Flow<'_>>> = BTreeMap::new();
    for flow in &flows {
        let PathEnd { host, nic, .. } = &flow.path.near;
        from.entry((host, nic)).or_default().push(flow);
    }
    verdicts.extend(from.into_iter().map(|((host, nic), own)| {
        let subject = Subject {
            nic: Some(nic.to_owned()),
            ..Subject::host(host)
        };
        (subject, from_one(&own, &flows))
    }));
    verdicts
}

/// By the worst of its paths, and what fell short at the same time.
fn from_one(own: &[&Flow<'_>], all: &[Flow<'_>]) -> Verdict {
    let short = own.iter().filter_map(|flow| {
        let short = falls_short(flow.joint.carried.rate, flow.could())?;
        Some((short, *flow))
    });
    let Some(((percent, severity), worst)) = short.min_by_key(|((percent, _), _)| *percent) else {
        return Ok(Answer::Right);
    };
    let (near, far) = (&worst.path.near, &worst.path.far);
    let carried = &worst.joint.carried;
    let round: Vec<&Flow<'_>> = all
        .iter()
        .filter(|flow| flow.joint.round == worst.joint.round)
        .collect();
    let others = round
        .iter()
        .filter(|flow| flow.path != worst.path && flow.is_short());
    let others: Vec<String> = others.map(|flow| ends(flow.path)).collect();
    let again = sent_again(carried.again, carried.packets);
    let (waited, by_hand) = match carried.held_up_by {
        HeldUpBy::Near => processors(&near.host, "had no more to send", &again),
        HeldUpBy::Far => processors(&far.host, "took no more", &again),
        HeldUpBy::Path => (again, shared("")),
    };
    let sum = |rate: fn(&Flow<'_>) -> u64| mbit(round.iter().map(|flow| rate(flow)).sum());
    let limit = if worst.could() < worst.alone.rate {
        "it was allowed to"
    } else {
        "it carries alone"
    };
    Ok(found(
        severity,
        format!(
            "{} carries {} Mbit/s to {} of {} while every host loads another, and {} alone{waited}{}",
            near.nic,
            mbit(carried.rate),
            far.nic,
            far.host,
            mbit(worst.alone.rate),
            named(&others)
        ),
        at_least(worst.could(), limit),
        "guests that move between several hosts at once, as in a drain, take so much longer",
        Some(format!(
            "{percent} % of what it could carry; all {} paths of that time carried {} of {} Mbit/s",
            round.len(),
            sum(|flow| flow.joint.carried.rate),
            sum(|flow| flow.could())
        )),
        by_hand,
    ))
}

/// What fell short at the same time.
fn named(others: &[String]) -> String {
    let first = others.iter().take(NAMED).map(String::as_str);
    let first: Vec<&str> = first.collect();
    match others.len() {
        0 => String::new(),
        count if count > NAMED => format!(
            "; at the same time {} and {} others fell short",
            first.join(", "),
            count - NAMED
        ),
        _ => format!("; at the same time {} fell short", first.join(", ")),
    }
}

fn ends(path: &Path) -> String {
    let (near, far) = (&path.near, &path.far);
    format!("{} {} to {} {}", near.host, near.nic, far.host, far.nic)
}

fn joined(names: &BTreeSet<&str>) -> String {
    let names: Vec<&str> = names.iter().copied().collect();
    names.join(" and ")
}

fn mbit(rate: u64) -> u64 {
    rate / 1_000_000
}
