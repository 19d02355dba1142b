//! What was found, held against what must be.

use serde::{Deserialize, Serialize};

use super::catalogue::{Scenario, Target};
use crate::compare::{Outcome, Run, Spread};
use crate::meter::Measured;
use crate::network;

/// What one heartbeat more or less makes of a silence, twice: the guest says one each 10 ms.
const GRAIN_MS: f64 = 20.0;

/// A NIC that sent less than such a part of all bytes carried none of the guest: control and ARP.
const IDLE: u64 = 50;

/// A scenario, and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// Its name.
    pub name: String,
    /// What happened.
    pub what: String,
    /// What had to hold, and whether it did; the first is every guest's arrival.
    pub checks: Vec<Check>,
    /// Total time of verified runs, in milliseconds.
    pub total_ms: Option<Spread>,
    /// What the lines left would have needed.
    pub ideal_ms: Option<Spread>,
    /// What it took beyond that.
    pub extra_ms: Option<Spread>,
    /// Downtime.
    pub downtime_ms: Option<Spread>,
    /// The guest's longest silence.
    pub guest_gap_ms: Option<Spread>,
    /// Bytes sent again.
    pub resent_bytes: Option<Spread>,
    /// Every run.
    pub runs: Vec<Run>,
}

/// One thing that had to hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What had to be.
    pub wanted: String,
    /// What was.
    pub found: String,
    /// Whether that is the same.
    pub holds: bool,
}

impl Found {
    /// Whether all of it holds.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.checks.iter().all(|check| check.holds)
    }
}

pub(super) fn judge(
    scenario: &Scenario,
    runs: Vec<Run>,
    unhurt: &[Run],
    obstacle: Option<&str>,
) -> Found {
    let good: Vec<_> = runs.iter().filter(|run| run.verified).collect();
    let spread =
        |value: &dyn Fn(&Run) -> Option<f64>| Spread::of(good.iter().filter_map(|r| value(r)));
    let measured =
        |value: fn(&Measured) -> f64| spread(&|run: &Run| run.measured.as_ref().map(value));
    let mut found = Found {
        name: scenario.name.to_owned(),
        what: scenario.what.to_owned(),
        checks: vec![arrival(&runs, obstacle)],
        total_ms: measured(|m| m.total_ms),
        ideal_ms: spread(&|run| run.faulted.as_ref()?.ideal_ms),
        extra_ms: spread(&|run| run.faulted.as_ref()?.extra_ms),
        downtime_ms: measured(|m| m.downtime_ms),
        guest_gap_ms: measured(|m| m.guest_gap_ms),
        resent_bytes: spread(&|run| Some(run.drover.as_ref()?.resent_bytes as f64)),
        runs: Vec::new(),
    };
    for target in scenario.targets {
        let check = match target {
            Target::Extra(most) => at_most("extra", found.extra_ms, *most, "ms"),
            Target::ExtraAlone(most) => match alone_ms(unhurt) {
                Some(alone) => at_most("total", found.total_ms, alone + most, "ms"),
                None => unknown("no slower than without that NIC"),
            },
            Target::Gap => match usual_gap(unhurt) {
                Some(usual) => at_most("guest silent", found.guest_gap_ms, usual, "ms"),
                None => unknown("guest silent no longer than without it"),
            },
            Target::Share(least) => {
                let share = spread(&|run| run.measured.as_ref()?.goodput_share);
                at_least("of all lines", share, *least)
            }
            Target::ShareOfLeft(least) => {
                let share = spread(&|run| run.faulted.as_ref()?.left_share);
                at_least("of the lines left", share, *least)
            }
            Target::Paths(least) => paths(&good, *least),
            Target::Told => told(&good),
        };
        found.checks.push(check);
    }
    found.runs = runs;
    found
}

fn arrival(runs: &[Run], obstacle: Option<&str>) -> Check {
    let verified = runs.iter().filter(|run| run.verified).count();
    let mut found = format!("{verified} of {}", runs.len());
    let failed = runs.iter().find(|run| !run.verified);
    if let Some(run) = failed {
        let outcome = run.faulted.as_ref().map(|faulted| faulted.outcome);
        let word = match outcome {
            Some(Outcome::Hung) => "hung",
            Some(Outcome::Arrived) => "damaged",
            _ => "failed",
        };
        let error = run.error.as_deref().unwrap_or("no reason was told");
        found = format!("{found}; {word}: {error}");
    }
    if let Some(obstacle) = obstacle {
        found = format!("{found}; {obstacle}");
    }
    Check {
        wanted: "every guest arrives, verified".to_owned(),
        found,
        holds: verified == runs.len() && verified > 0 && obstacle.is_none(),
    }
}

/// The silence of moves in which nothing was lost silently, and a heartbeat: the median of those over
/// all lines, or of those over the lines that are left if that is longer.
fn usual_gap(runs: &[Run]) -> Option<f64> {
    let median = |alone: bool| {
        let good = runs.iter().filter(|run| run.verified);
        let like = good.filter(|run| run.faulted.is_some() == alone);
        let measured = like.filter_map(|run| run.measured.as_ref());
        Spread::of(measured.map(|measured| measured.guest_gap_ms)).map(|gaps| gaps.median)
    };
    let medians = [median(false), median(true)].into_iter().flatten();
    medians.reduce(f64::max).map(|gap| gap + GRAIN_MS)
}

/// What the lines that are left take alone: the slower ones of the moves in which nothing was lost
/// silently.
fn alone_ms(unhurt: &[Run]) -> Option<f64> {
    let good = unhurt
        .iter()
        .filter(|run| run.verified && run.faulted.is_some());
    let totals = good.filter_map(|run| run.measured.as_ref().map(|m| m.total_ms));
    Spread::of(totals).map(|totals| totals.median)
}

fn unknown(wanted: &str) -> Check {
    Check {
        wanted: wanted.to_owned(),
        found: "nothing was measured".to_owned(),
        holds: false,
    }
}

fn at_most(what: &str, found: Option<Spread>, most: f64, unit: &str) -> Check {
    let wanted = format!("{what} at most {most:.0} {unit}");
    let Some(spread) = found else {
        return unknown(&wanted);
    };
    Check {
        wanted,
        found: format!(
            "{:.0} ({:.0}..{:.0}) {unit}",
            spread.median, spread.min, spread.max
        ),
        holds: spread.median <= most,
    }
}

fn at_least(what: &str, found: Option<Spread>, least: f64) -> Check {
    let wanted = format!("at least {:.0} % {what}", least * 100.0);
    let Some(spread) = found else {
        return unknown(&wanted);
    };
    let [median, min, max] = [spread.median, spread.min, spread.max].map(|part| part * 100.0);
    Check {
        wanted,
        found: format!("{median:.1} ({min:.1}..{max:.1}) %"),
        holds: spread.median >= least,
    }
}

fn paths(runs: &[&Run], least: usize) -> Check {
    let counts = runs.iter().filter_map(|run| run.drover.as_ref());
    let fewest = counts.map(|drover| drover.lanes.iter().filter(|lanes| **lanes > 0).count());
    let fewest = fewest.min();
    Check {
        wanted: format!("at least {least} paths carry"),
        found: fewest.map_or("nothing was measured".to_owned(), |n| format!("{n} carry")),
        holds: fewest.is_some_and(|fewest| fewest >= least),
    }
}

/// Whether something is said of a NIC, or of the address by which it was to be used; that one of
/// its further addresses is not used says nothing of the NIC.
fn is_about(words: &str, name: &str) -> bool {
    let number = name.trim_start_matches(|c: char| c.is_alphabetic()).parse();
    let address = number.map(|number| network::address(number, 0).to_string());
    let network = address
        .ok()
        .and_then(|a| a.rsplit_once('.').map(|(n, _)| format!("{n}.")));
    let named = words.contains(name) && !words.contains(&format!("{name} ("));
    named || network.is_some_and(|network| words.contains(&network))
}

/// A NIC that carried next to nothing has to be named with a reason.
fn told(runs: &[&Run]) -> Check {
    let mut silent = Vec::new();
    let mut said = Vec::new();
    for run in runs {
        let (Some(measured), Some(drover)) = (&run.measured, &run.drover) else {
            continue;
        };
        let all: u64 = measured.wire_bytes.values().sum();
        let idle = measured
            .wire_bytes
            .iter()
            .filter(|(_, sent)| **sent < all / IDLE);
        for (name, _) in idle {
            let mut words = drover.left_out.iter().chain(&drover.notes);
            match words.find(|words| is_about(words, name)) {
                Some(words) => said.push(words.clone()),
                None => silent.push(name.clone()),
            }
        }
    }
    said.dedup();
    let found = match (silent.first(), said.first()) {
        (Some(name), _) => format!("{name} is not used and nobody says why"),
        (None, Some(words)) => words.clone(),
        (None, None) => "every NIC is used".to_owned(),
    };
    Check {
        wanted: "every NIC is used, or told why not".to_owned(),
        found,
        holds: silent.is_empty() && !runs.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{DroverFacts, Faulted, Method};
    use crate::meter::CpuSeconds;
    use crate::scenario::CATALOGUE;

    fn measured(total_ms: f64, gap: f64, sent: [u64; 2]) -> Measured {
        let wire = sent.iter().enumerate();
        Measured {
            prepare_ms: 1.0,
            total_ms,
            downtime_ms: gap,
            guest_gap_ms: gap,
            rewrites_before: None,
            rewrites_during: None,
            wire_bytes: wire.map(|(n, sent)| (format!("nic{n}"), *sent)).collect(),
            cpu_seconds: CpuSeconds::default(),
            agent_memory: Default::default(),
            busiest_second: 0,
            bulk_wire_rate: None,
            line_share: None,
            payload_bytes: 1 << 20,
            goodput_share: None,
            rounds: 2,
            samples: Vec::new(),
        }
    }

    fn run(extra: f64, gap: f64) -> Run {
        Run {
            method: Method::DroverOff,
            variant: Method::DroverOff.variants()[0],
            repeat: 0,
            from: "a".to_owned(),
            to: "b".to_owned(),
            verified: true,
            measured: Some(measured(4000.0 + extra, gap, [500, 500])),
            disk: None,
            drover: None,
            faulted: Some(Faulted {
                faults: Vec::new(),
                outcome: Outcome::Arrived,
                guest_kept: None,
                changes: Vec::new(),
                clean: None,
                ideal_ms: Some(4000.0),
                extra_ms: Some(extra),
                left_share: Some(0.93),
            }),
            error: None,
        }
    }

    fn scenario(name: &str) -> &'static Scenario {
        CATALOGUE
            .iter()
            .find(|scenario| scenario.name == name)
            .unwrap()
    }

    #[test]
    fn the_median_counts_and_one_bad_guest_is_enough_to_fail() {
        let unhurt = [run(0.0, 200.0)];
        let runs = vec![run(100.0, 210.0), run(900.0, 190.0), run(250.0, 200.0)];
        let found = judge(scenario("cut"), runs.clone(), &unhurt, None);
        assert!(found.holds(), "{:?}", found.checks);
        assert_eq!(found.checks[1].found, "250 (100..900) ms");

        let late = [&runs[1..2], &runs[1..]].concat();
        let found = judge(scenario("cut"), late, &unhurt, None);
        assert!(!found.holds() && found.checks[0].holds);

        let mut damaged = runs.clone();
        damaged[0].verified = false;
        damaged[0].error = Some("3 pages are bad".to_owned());
        let found = judge(scenario("cut"), damaged, &unhurt, None);
        assert!(!found.holds());
        assert_eq!(found.checks[0].found, "2 of 3; damaged: 3 pages are bad");
    }

    #[test]
    fn a_silence_is_held_against_that_without_silent_loss() {
        let clean = |gap| Run {
            faulted: None,
            ..run(0.0, gap)
        };
        // The medians are 150 over all lines and 260 over those that are left.
        let unhurt = [100.0, 150.0, 900.0].map(clean);
        let alone = [260.0, 200.0, 300.0].map(|gap| run(0.0, gap));
        let unhurt = [unhurt, alone].concat();
        let holds = |gap| judge(scenario("cut"), vec![run(0.0, gap)], &unhurt, None).holds();
        assert!(holds(279.0));
        assert!(!holds(281.0));
        let nothing = judge(scenario("cut"), vec![run(0.0, 100.0)], &[], None);
        assert!(!nothing.holds(), "nothing to hold it against");
    }

    #[test]
    fn what_could_not_be_tried_does_not_hold() {
        assert!(!judge(scenario("v6"), Vec::new(), &[], Some("no agent")).holds());
        assert!(!judge(scenario("v6"), Vec::new(), &[], None).holds());
    }

    #[test]
    fn an_idle_nic_has_to_be_told_with_its_reason() {
        let mut idle = run(0.0, 200.0);
        idle.measured = Some(measured(4000.0, 200.0, [1000, 5]));
        let mut drover = DroverFacts {
            total_ms: None,
            downtime_ms: None,
            bulk_goodput: None,
            channels: None,
            lanes: vec![2],
            resent_bytes: 0,
            protocol_bytes: 0,
            encryption: None,
            foretold: None,
            reduction: None,
            expansion: None,
            shared_pages: None,
            notes: Vec::new(),
            left_out: Vec::new(),
        };
        idle.drover = Some(drover.clone());
        let found = judge(scenario("duplicate"), vec![idle.clone()], &[], None);
        assert!(!found.holds(), "{:?}", found.checks);
        let further = "nic1 (fe80::1) of the source: nobody can connect to it";
        drover.left_out = vec![further.to_owned()];
        idle.drover = Some(drover.clone());
        let found = judge(scenario("duplicate"), vec![idle.clone()], &[], None);
        assert!(!found.holds(), "of its other address nothing is said");
        drover.notes = vec!["lane 1: 10.77.1.1:7471 turned it away".to_owned()];
        idle.drover = Some(drover.clone());
        assert!(judge(scenario("duplicate"), vec![idle.clone()], &[], None).holds());
        drover.notes.clear();
        drover.left_out = vec!["nic1 of the source: it reaches nobody".to_owned()];
        idle.drover = Some(drover);
        let found = judge(scenario("duplicate"), vec![idle.clone()], &[], None);
        assert!(found.holds(), "{:?}", found.checks);
        assert!(
            !judge(scenario("v6"), vec![idle], &[], None).holds(),
            "one path of two"
        );
    }
}
