//! What several hosts carry to one at the same time.

use std::collections::BTreeSet;

use super::{Flow, Flows, Own, Part, joined, mbit, shared, sum, unless};
use crate::facts::{HeldUpBy, Path};
use crate::finding::{Answer, Because, Severity, Subject, Verdict};
use crate::rules::paths::{
    Waited, at_least, falls_short, found, percent_of, processors, sent_again,
};

/// What all hosts together carry to each.
pub fn incast(paths: &[Path]) -> Vec<(Subject, Verdict)> {
    let flows = Flows::of(paths, |together| &together.to_one);
    let into = flows.by(|path| path.far.host.as_str()).into_iter();
    into.map(|(host, own)| (Subject::host(host), into_one(host, &own)))
        .collect()
}

fn into_one(host: &str, own: &Own<'_>) -> Verdict {
    if let Some(because) = own.because(|part| part == Part::Unknown) {
        return Err(because);
    }
    let missing = own.because(|part| part == Part::None);
    if senders(&own.flows).len() < 2 {
        let alone = "no two hosts have a path to it that was measured";
        return Err(missing.unwrap_or_else(|| alone.into()));
    }
    let (lines, unknown) = lines(&own.flows);
    let whole = Sum::of_all(&lines);
    let sums = lines.iter().chain([&whole]);
    let of_several = sums.filter(|sum| senders(&sum.flows).len() > 1);
    let short = of_several.filter_map(|sum| Some((falls_short(sum.carried, sum.could)?, sum)));
    let worst = short.min_by_key(|((percent, _), _)| *percent);
    let answer = worst.map_or(Answer::Right, |(short, sum)| too_little(host, short, sum));
    unless(missing.or(unknown), answer)
}

/// Lines of one host that can be judged, and why one cannot.
fn lines<'a>(flows: &[&'a Flow<'a>]) -> (Vec<Sum<'a>>, Option<Because>) {
    let (mut lines, mut unknown) = (Vec::new(), None);
    for line in by_line(flows) {
        match Sum::of_line(line) {
            Ok(sum) if sum.is_short_alone() => {
                let nics = joined(&sum.nics());
                let why = format!("{nics} gets too little from each host alone: see `path-rate`");
                unknown.get_or_insert(Because(why));
            }
            Ok(sum) => lines.push(sum),
            Err(because) => {
                unknown.get_or_insert(because);
            }
        }
    }
    (lines, unknown)
}

fn too_little(host: &str, (percent, severity): (u64, Severity), short: &Sum<'_>) -> Answer {
    let (waited, by_hand) = waited_for(host, &short.flows);
    let alone = sum(short.flows.iter().map(|flow| flow.alone.rate));
    let read = format!(
        "{} carry {} Mbit/s to its {} at once, and {} one after the other{waited}",
        joined(&senders(&short.flows)),
        mbit(short.carried),
        joined(&short.nics()),
        mbit(alone)
    );
    found(
        severity,
        read,
        at_least(
            short.could,
            "they could carry at once, by what each carries alone, what it was allowed and the links there",
        ),
        "guests that come from several hosts at once, as in a drain, take so much longer",
        Some(format!(
            "{} of what they could carry at once",
            percent_of(percent)
        )),
        by_hand,
    )
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
        let could = sum(flows.iter().map(|flow| flow.could()));
        Ok(Self {
            carried: sum(flows.iter().map(|flow| flow.joint.carried.rate)),
            could: line.min(could),
            flows,
        })
    }

    fn of_all(lines: &[Self]) -> Self {
        let flows = lines.iter().flat_map(|line| &line.flows);
        Self {
            flows: flows.copied().collect(),
            carried: sum(lines.iter().map(|line| line.carried)),
            could: sum(lines.iter().map(|line| line.could)),
        }
    }

    /// Even the path that carries most falls short alone, and all together carry as much: what is wrong there is found with each of them.
    fn is_short_alone(&self) -> bool {
        let most = self.flows.iter().max_by_key(|flow| flow.alone.rate);
        most.is_some_and(|most| {
            most.is_short_alone() && falls_short(self.carried, most.alone.rate).is_none()
        })
    }

    fn nics(&self) -> BTreeSet<&'a str> {
        let nics = self.flows.iter().map(|flow| flow.path.far.nic.as_str());
        nics.collect()
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
    let again = sum(flows.iter().map(|flow| flow.joint.carried.again));
    let packets = sum(flows.iter().map(|flow| flow.joint.carried.packets));
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
