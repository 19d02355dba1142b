//! A comparison as a person reads it.

use std::fmt::Write as _;

use super::method::Method;
use super::summary::{Comparison, Run, Spread, Summary};
use crate::meter::Measured;

/// What is written where nothing was measured.
const NOTHING: &str = "-";

/// One run, in one line.
#[must_use]
pub(super) fn line(run: &Run, repeats: usize) -> String {
    format!(
        "{}/{repeats} {:<12} {}->{}  {}",
        run.repeat + 1,
        run.method,
        run.from,
        run.to,
        brief(run)
    )
}

pub(super) fn brief(run: &Run) -> String {
    match (&run.measured, &run.error) {
        (Some(measured), _) => figures(measured, run.verified),
        (None, Some(error)) => format!("failed: {error}"),
        (None, None) => "failed".to_owned(),
    }
}

fn figures(measured: &Measured, verified: bool) -> String {
    let share = measured
        .line_share
        .map(|share| format!(", {:.1} % of the lines", share * 100.0));
    format!(
        "{:.0} ms, downtime {:.0} ms, guest silent {:.0} ms{}, {}",
        measured.total_ms,
        measured.downtime_ms,
        measured.guest_gap_ms,
        share.unwrap_or_default(),
        if verified { "verified" } else { "NOT verified" }
    )
}

/// The summary as a table, medians with the smallest and largest in brackets.
#[must_use]
pub fn table(comparison: &Comparison) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{}", heading(comparison));
    let columns = [
        "method",
        "total ms",
        "of multifd",
        "downtime ms",
        "guest gap ms",
        "lines %",
        "CPU s",
        "verified",
    ];
    let mut rows = vec![columns.map(str::to_owned)];
    for (method, summary) in &comparison.summary {
        rows.push(row(*method, summary));
    }
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    for row in &rows {
        let cells: Vec<_> = (0..row.len())
            .map(|column| match column {
                0 => format!("{:<1$}", row[column], width(column)),
                _ => format!("{:>1$}", row[column], width(column)),
            })
            .collect();
        let _ = writeln!(text, "{}", cells.join("  "));
    }
    let _ = writeln!(
        text,
        "Medians (smallest-largest). lines %: of all NICs' rates together, 5 % to 95 %"
    );
    let _ = writeln!(
        text,
        "of the bytes, headers included. CPU s: QEMU + agents, both hosts, without the guest."
    );
    if let Some(cpu) = drover_cpu(comparison) {
        let _ = writeln!(
            text,
            "Drover's agents: {cpu:.2} CPU s for each GiB of payload, both hosts together."
        );
    }
    for skipped in &comparison.skipped {
        let _ = writeln!(
            text,
            "{} skipped, because {}",
            skipped.method, skipped.because
        );
    }
    for run in comparison.runs.iter().filter(|run| !run.verified) {
        let _ = writeln!(
            text,
            "{} in repeat {}: {}",
            run.method,
            run.repeat + 1,
            brief(run)
        );
    }
    text
}

fn drover_cpu(comparison: &Comparison) -> Option<f64> {
    let drover = comparison.summary.get(&Method::Drover)?;
    drover.agent_cpu_per_gib.map(|cpu| cpu.median)
}

fn heading(comparison: &Comparison) -> String {
    let (plan, machine) = (&comparison.settings, &comparison.machine);
    let nics: Vec<_> = plan
        .lab
        .nics
        .iter()
        .map(|rate| rate.map_or("unlimited".to_owned(), |rate| rate.to_string()))
        .collect();
    format!(
        "{} guest, {} of content ({}), {}; NICs {}, MTU {}\n{} x {}, Linux {}, QEMU {}{}\n",
        plan.guest.memory,
        plan.guest.content,
        plan.guest.mix,
        plan.guest.dirty,
        nics.join(" + "),
        plan.lab.mtu,
        machine.cores,
        machine.cpu,
        machine.kernel,
        machine.qemu,
        if machine.emulated {
            ", guest emulated"
        } else {
            ""
        }
    )
}

fn row(method: Method, summary: &Summary) -> [String; 8] {
    let cpu = summary
        .qemu_cpu
        .zip(summary.agent_cpu)
        .map(|(qemu, agents)| format!("{:.2} + {:.2}", qemu.median, agents.median));
    let name = match summary.variant.channels {
        Some(channels) => format!("{method} ({channels} ch)"),
        None => method.to_string(),
    };
    [
        name,
        spread(summary.total_ms, 1.0, 0),
        summary
            .total_ratio
            .map_or(NOTHING.to_owned(), |ratio| format!("{ratio:.2}")),
        spread(summary.downtime_ms, 1.0, 0),
        spread(summary.guest_gap_ms, 1.0, 0),
        spread(summary.line_share, 100.0, 1),
        cpu.unwrap_or_else(|| NOTHING.to_owned()),
        format!("{}/{}", summary.verified, summary.runs),
    ]
}

fn spread(spread: Option<Spread>, factor: f64, digits: usize) -> String {
    spread.map_or(NOTHING.to_owned(), |s| {
        let [median, min, max] = [s.median, s.min, s.max].map(|value| value * factor);
        format!("{median:.digits$} ({min:.digits$}-{max:.digits$})")
    })
}
