//! The results as a person reads them.

use std::fmt::Write as _;

use super::{Drains, Emptied, Emptying, Rounds};
use crate::compare::{ReducedSummary, Spread, aligned, spread};

/// One emptying, in one line.
pub(super) fn line(run: &Emptied, repeats: usize) -> String {
    let longest = run.guests.iter().map(|guest| guest.downtime_ms);
    let bound = run
        .of_bound
        .map(|of| format!(", {of:.2} of what the lines need"));
    format!(
        "{}/{repeats} {:<15} {:.0} ms{}, longest downtime {:.0} ms, CPUs busy {:.0} %{}, verified",
        run.repeat + 1,
        run.method,
        run.total_ms,
        bound.unwrap_or_default(),
        longest.fold(0.0, f64::max),
        run.cpus_busy * 100.0,
        run.of_alone
            .map(|of| format!(", {of:.2} of the bytes of each alone"))
            .unwrap_or_default(),
    )
}

/// The summary as a table, medians with the smallest and largest in brackets.
#[must_use]
pub fn table(drains: &Drains) -> String {
    let columns = [
        "method",
        "total ms",
        "of drover",
        "GiB sent",
        "of the lines' time",
        "downtime ms",
        "CPUs busy %",
        "verified",
    ];
    let mut rows = vec![columns.map(str::to_owned)];
    let base = spread_of(drains, Emptying::Drover, |run| Some(run.total_ms));
    for &method in &drains.settings.methods {
        let of = |value: &dyn Fn(&Emptied) -> Option<f64>| spread_of(drains, method, value);
        let total = of(&|run| Some(run.total_ms));
        let ratio = total.zip(base).map(|(own, base)| own.median / base.median);
        let longest = |run: &Emptied| {
            let all = run.guests.iter().map(|guest| guest.downtime_ms);
            all.reduce(f64::max)
        };
        let count = drains
            .runs
            .iter()
            .filter(|run| run.method == method)
            .count();
        rows.push([
            method.to_string(),
            spread(total, 1.0, 0),
            ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
            spread(
                of(&|run| Some(run.wire_bytes.0 as f64)),
                1.0 / (1u64 << 30) as f64,
                2,
            ),
            spread(of(&|run| run.of_bound), 1.0, 2),
            spread(of(&longest), 1.0, 0),
            spread(of(&|run| Some(run.cpus_busy)), 100.0, 0),
            format!("{count}/{}", drains.settings.repeats),
        ]);
    }
    let mut text = heading(drains);
    text += &aligned(&rows);
    let _ = writeln!(
        text,
        "Medians (smallest-largest). Total: from the order until the last guest ran elsewhere. The \
         lines' time:\nbytes sent by the host over the rates of all its NICs. Downtime: the longest \
         of any guest."
    );
    text += &alone(drains);
    text += &bytes(drains);
    text
}

const IN_MIB: f64 = 1.0 / (1 << 20) as f64;

/// What came of moving guests together that have something in common, where one was measured alone.
fn alone(drains: &Drains) -> String {
    let all = || drains.runs.iter().filter_map(|run| run.alone.as_ref());
    let bytes = Spread::of(all().map(|alone| alone.wire_bytes.0 as f64));
    let total = Spread::of(all().map(|alone| alone.total_ms));
    let part = spread_of(drains, Emptying::Drover, |run| run.of_alone);
    match part {
        None => String::new(),
        Some(_) => format!(
            "One guest alone, nothing shared: {} MiB in {} ms. Bytes of {} by {}, of so many times that: {}\n",
            spread(bytes, IN_MIB, 1),
            spread(total, 1.0, 0),
            drains.settings.guests.len(),
            Emptying::Drover,
            spread(part, 1.0, 2)
        ),
    }
}

/// What became of the bytes of guests that agents moved.
fn bytes(drains: &Drains) -> String {
    let together = drains.runs.iter().flat_map(|run| &run.drover).collect();
    let alone = drains.runs.iter().filter_map(|run| run.alone.as_ref());
    let alone = alone.map(|alone| &alone.drover).collect();
    let all: [(&str, Vec<_>); 2] = [("together", together), ("alone", alone)];
    let lines = all.into_iter().filter_map(|(what, facts)| {
        let lines = ReducedSummary::of(&facts)?.lines();
        Some(format!(
            "Bytes of each guest by {}, {what}:\n{lines}",
            Emptying::Drover
        ))
    });
    lines.collect()
}

fn heading(drains: &Drains) -> String {
    let (plan, machine) = (&drains.settings, &drains.machine);
    let rate = |rate: &Option<_>| {
        rate.map_or("unlimited".to_owned(), |rate: drover_types::BitRate| {
            rate.to_string()
        })
    };
    let nics: Vec<_> = plan.lab.nics.iter().map(rate).collect();
    let guests = plan
        .guests
        .iter()
        .map(|guest| format!("{} ({})", guest.memory, guest.dirty));
    format!(
        "{} hosts, NICs {}, MTU {}; {} guests: {}\n{} x {}, Linux {}, QEMU {}{}\n\n",
        plan.lab.hosts,
        nics.join(" + "),
        plan.lab.mtu,
        plan.guests.len(),
        guests.collect::<Vec<_>>().join(", "),
        machine.cores,
        machine.cpu,
        machine.kernel,
        machine.qemu,
        if machine.emulated {
            ", guests emulated"
        } else {
            ""
        }
    )
}

fn spread_of(
    drains: &Drains,
    method: Emptying,
    value: impl Fn(&Emptied) -> Option<f64>,
) -> Option<Spread> {
    let runs = drains.runs.iter().filter(|run| run.method == method);
    Spread::of(runs.filter_map(value))
}

/// What became of all rounds.
#[must_use]
pub fn rounds_table(rounds: &Rounds) -> String {
    let columns = ["", "runs", "seconds", "mishaps", "repeated"];
    let mut rows = vec![columns.map(str::to_owned)];
    for (what, home) in [("emptied", false), ("filled again", true)] {
        let legs: Vec<_> = rounds.legs.iter().filter(|leg| leg.home == home).collect();
        let seconds = Spread::of(legs.iter().map(|leg| leg.run_ms / 1e3));
        let mishaps: usize = legs.iter().map(|leg| leg.mishaps.len()).sum();
        let again = legs.iter().filter(|leg| leg.again_because.is_some());
        rows.push([
            what.to_owned(),
            legs.len().to_string(),
            spread(seconds, 1.0, 1),
            mishaps.to_string(),
            again.count().to_string(),
        ]);
    }
    let mut text = aligned(&rows);
    let plan = &rounds.settings;
    let _ = match &rounds.wrong {
        Some(wrong) => writeln!(text, "WRONG: {wrong}"),
        None => writeln!(
            text,
            "{} rounds of {} hosts and {} guests (seed {}): each guest verified every page after \
             each run, where it\nbelongs, and none ran twice at any time.",
            plan.rounds,
            plan.lab.hosts,
            plan.guests.len(),
            plan.seed
        ),
    };
    text
}
