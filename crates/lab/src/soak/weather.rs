//! What goes wrong in a round: anything that a move has to survive, from the seed.

use std::time::Duration;

use crate::dice::Dice;
use crate::fault::{Fault, Harm, Moment, NewRate, Side, Which};

/// None in one round of five, otherwise one that may take a line away, and in one round of three
/// one more that only slows it down: together they never take all lines away for good. Nor do they leave
/// so little of them for good that no precopy could end: what the guest keeps rewriting has to fit into
/// the downtime limit. (16 MiB at a fifth of 1 Gbit/s take 0.7 s.)
pub(super) fn faults(dice: &mut Dice, nics: usize) -> Vec<Fault> {
    if dice.below(5) == 0 {
        return Vec::new();
    }
    let first = taking(dice, nics);
    let alone = matches!(first.harm, Harm::Rename);
    let mut faults = vec![first];
    if !alone && dice.below(3) == 0 {
        faults.push(slowing(dice, nics));
    }
    faults
}

fn taking(dice: &mut Dice, nics: usize) -> Fault {
    let one = Which::One(dice.below(nics));
    let bulk = bulk(dice);
    let some_time = Some(millis(dice, 100, 3000));
    let cut = |from| Harm::Cut { from, every: None };
    let side = if dice.below(2) == 0 {
        Side::Source
    } else {
        Side::Destination
    };
    let down = Harm::Down {
        from: side,
        every: None,
    };
    let large = Harm::Large { above: 1500 };
    let often = Some(millis(dice, 100, 1000));
    let flap = Harm::Cut {
        from: None,
        every: often,
    };
    let (harm, nics, at, lasting) = match dice.below(11) {
        0 => (cut(None), one, bulk, None),
        1 => (cut(None), one, bulk, some_time),
        2 => (cut(None), Which::All, bulk, some_time),
        3 => (cut(None), one, Moment::Switchover, None),
        4 => (cut(Some(side)), one, bulk, None),
        5 => (flap, one, bulk, None),
        6 => (down, one, bulk, None),
        7 => (down, one, bulk, some_time),
        8 => (large, one, bulk, None),
        9 => (large, one, Moment::Before, None),
        _ => (Harm::Rename, one, bulk, None),
    };
    Fault {
        harm,
        nics,
        at,
        lasting,
    }
}

fn slowing(dice: &mut Dice, nics: usize) -> Fault {
    let one = Which::One(dice.below(nics));
    let at = bulk(dice);
    let part = (1 + dice.below(9)) as f64 / 10.0;
    let every = millis(dice, 100, 1000);
    let some_time = Some(millis(dice, 100, 3000));
    let (harm, nics, lasting) = match dice.below(3) {
        0 => (Harm::Rate(NewRate::Part(part)), one, some_time),
        1 => (Harm::Kill { every }, one, None),
        _ => (Harm::Kill { every }, Which::All, None),
    };
    Fault {
        harm,
        nics,
        at,
        lasting,
    }
}

fn bulk(dice: &mut Dice) -> Moment {
    Moment::Percent(dice.below(95) as f64)
}

fn millis(dice: &mut Dice, least: usize, most: usize) -> Duration {
    Duration::from_millis((least + dice.below(most - least)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::check;
    use crate::settings::{AgentSettings, LabSettings, nic_rates};

    #[test]
    fn the_same_seed_brings_the_same_faults_and_every_kind_comes() {
        let rounds = |seed| {
            let mut dice = Dice::new(seed);
            (0..300).map(|_| faults(&mut dice, 2)).collect::<Vec<_>>()
        };
        assert_eq!(rounds(1), rounds(1));
        assert_ne!(rounds(1), rounds(2));
        let words: Vec<_> = rounds(1)
            .into_iter()
            .flatten()
            .map(|f| f.to_string())
            .collect();
        for kind in [
            "cut", "down", "rate", "large", "kill", "rename", "every", "nic=all", "for=",
        ] {
            assert!(words.iter().any(|fault| fault.contains(kind)), "{kind}");
        }
        // What is printed can be given to `compare --fault`.
        for fault in words {
            assert!(fault.parse::<Fault>().is_ok(), "{fault}");
        }
    }

    #[test]
    fn no_round_takes_every_line_away_for_good() {
        let lab = LabSettings {
            name: "x".parse().unwrap(),
            hosts: 2,
            nics: nic_rates("1gbit,1gbit", None).unwrap(),
            addressing: Vec::new(),
            mtu: 9000,
            agents: AgentSettings::default(),
        };
        let mut dice = Dice::new(3);
        for _ in 0..1000 {
            let faults = faults(&mut dice, 2);
            check(&lab, &faults).unwrap();
            let takes = |fault: &&Fault| {
                let slows = matches!(fault.harm, Harm::Rate(_) | Harm::Kill { .. } | Harm::Rename);
                fault.lasting.is_none() && !slows
            };
            let slow = |fault: &Fault| matches!(fault.harm, Harm::Rate(_));
            assert!(
                faults
                    .iter()
                    .all(|fault| !slow(fault) || fault.lasting.is_some())
            );
            let taking: Vec<_> = faults.iter().filter(takes).collect();
            assert!(taking.len() <= 1);
            assert!(
                taking
                    .iter()
                    .all(|fault| matches!(fault.nics, Which::One(_)))
            );
        }
    }
}
