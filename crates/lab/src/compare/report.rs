//! A comparison as a person reads it.

use std::fmt::Write as _;

use super::method::Method;
use super::ordeal::{FaultSummary, Faulted, Outcome};
use super::summary::{Comparison, Run, Spread, Summary, first};
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
    if let Some(faulted) = &run.faulted {
        return with_faults(run, faulted);
    }
    match (&run.measured, &run.error) {
        (Some(measured), _) => figures(measured, run.verified),
        (None, Some(error)) => format!("failed: {error}"),
        (None, None) => "failed".to_owned(),
    }
}

fn with_faults(run: &Run, faulted: &Faulted) -> String {
    let faults: Vec<_> = faulted.faults.iter().map(ToString::to_string).collect();
    let faults = faults.join(" + ");
    let (Some(measured), Outcome::Arrived) = (&run.measured, faulted.outcome) else {
        let guest = match faulted.guest_kept {
            Some(true) => "the guest runs on at the source, verified",
            _ => "the guest did NOT go on",
        };
        let what = match faulted.outcome {
            Outcome::Hung => "HANGS",
            _ => "FAILED",
        };
        let error = run.error.as_deref().unwrap_or("no reason was told");
        return format!("[{faults}] {what}: {error}; {guest}");
    };
    let cost = faulted.ideal_ms.zip(faulted.extra_ms);
    let cost = cost.map(|(ideal, extra)| format!(" (ideal {ideal:.0}, {extra:+.0})"));
    format!(
        "[{faults}] {:.0} ms{}, downtime {:.0} ms, guest silent {:.0} ms, {}",
        measured.total_ms,
        cost.unwrap_or_default(),
        measured.downtime_ms,
        measured.guest_gap_ms,
        if run.verified {
            "verified"
        } else {
            "NOT verified"
        }
    )
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

impl Run {
    /// What became of it, in a line.
    #[must_use]
    pub fn brief(&self) -> String {
        brief(self)
    }
}

/// The summary as a table, medians with the smallest and largest in brackets.
#[must_use]
pub fn table(comparison: &Comparison) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{}", heading(comparison));
    let base = first(&comparison.summary, &Method::PLAIN);
    let base = base.map_or(Method::Multifd, |(method, _)| method);
    let base = format!("of {base}");
    let columns = [
        "method",
        "total ms",
        &base,
        "downtime ms",
        "guest gap ms",
        "MiB",
        "lines %",
        "CPU s",
        "verified",
    ];
    let mut rows = vec![columns.map(str::to_owned)];
    for (method, summary) in &comparison.summary {
        rows.push(row(*method, summary));
    }
    text += &aligned(&rows);
    let _ = writeln!(
        text,
        "Medians (smallest-largest). MiB: on all NICs. lines %: of their rates together, 5 % to 95 %"
    );
    let _ = writeln!(
        text,
        "of the bytes, headers included. CPU s: QEMU + agents, both hosts, without the guest."
    );
    for (method, cpu, memory) in agents_costs(comparison) {
        let _ = writeln!(
            text,
            "Agents of {method}: {cpu:.2} CPU s for each GiB of payload, both hosts together; at \
             most {memory:.0} MiB of\ntheir own on either host."
        );
    }
    for (method, summary) in &comparison.summary {
        let zstd = first(&comparison.summary, &Method::COMPRESSED).map(|(zstd, _)| zstd);
        text += &rates_and_ratios(*method, summary, zstd);
    }
    text += &reductions(comparison);
    for skipped in &comparison.skipped {
        let _ = writeln!(
            text,
            "{} skipped, because {}",
            skipped.method, skipped.because
        );
    }
    if !comparison.faulted.is_empty() {
        text += &faulted_table(comparison);
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

/// What a method's guest rewrote, and how it compares with that whose guest QEMU compressed; nothing of a
/// guest that rewrote nothing, and of a comparison without that.
fn rates_and_ratios(method: Method, summary: &Summary, zstd: Option<Method>) -> String {
    let mut text = String::new();
    let median = |spread: Option<Spread>| spread.map(|spread| spread.median);
    if let Some(before) = median(summary.rewrites_before).filter(|before| *before > 0.0) {
        let during = median(summary.rewrites_during);
        let during = during.map_or(NOTHING.to_owned(), |during| format!("{during:.0}"));
        let _ = writeln!(
            text,
            "Guest of {method}: {before:.0} pages rewritten a second before, {during} while it was moved."
        );
    }
    if let Some(disk) = &summary.disk {
        let [before, during] = [disk.rewrites_before, disk.rewrites_during]
            .map(|rate| median(rate).map_or(NOTHING.to_owned(), |rate| format!("{rate:.0}")));
        let _ = writeln!(
            text,
            "Disk of {method}: {before} pages verified and rewritten a second before, {during} while it was moved; {} that the guest \
             left as they were are the same on both hosts.",
            disk.compared
        );
    }
    let ratios = summary.zstd_total_ratio.zip(summary.zstd_wire_ratio);
    if let Some(((total, wire), zstd)) = ratios.zip(zstd.filter(|zstd| *zstd != method)) {
        let _ = writeln!(
            text,
            "{method}: {total:.2} of the time and {wire:.2} of the bytes of {zstd}."
        );
    }
    text
}

/// Rows under each other, the first column to the left and the others to the right.
pub(crate) fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or(0)
    };
    let mut text = String::new();
    for row in rows {
        let cells: Vec<_> = (0..N)
            .map(|column| match column {
                0 => format!("{:<1$}", row[column], width(column)),
                _ => format!("{:>1$}", row[column], width(column)),
            })
            .collect();
        text += cells.join("  ").trim_end();
        text.push('\n');
    }
    text
}

fn faulted_table(comparison: &Comparison) -> String {
    let faults: Vec<_> = comparison
        .settings
        .faults
        .iter()
        .map(ToString::to_string)
        .collect();
    let columns = [
        "method",
        "verified",
        "failed",
        "hung",
        "total ms",
        "ideal ms",
        "extra ms",
        "downtime ms",
        "guest gap ms",
        "resent MiB",
    ];
    let mut rows = vec![columns.map(str::to_owned)];
    for (method, summary) in &comparison.faulted {
        rows.push([
            method.to_string(),
            format!("{}/{}", summary.verified, summary.runs),
            summary.failed.to_string(),
            summary.hung.to_string(),
            spread(summary.total_ms, 1.0, 0),
            spread(summary.ideal_ms, 1.0, 0),
            spread(summary.extra_ms, 1.0, 0),
            spread(summary.downtime_ms, 1.0, 0),
            spread(summary.guest_gap_ms, 1.0, 0),
            spread(summary.resent_bytes, 1.0 / f64::from(1 << 20), 1),
        ]);
    }
    let costs = comparison.faulted.iter().filter_map(|(method, with)| {
        let without = comparison.summary.get(method)?;
        with_and_without(*method, with, without)
    });
    let costs: String = costs.collect();
    format!(
        "\nWith {}:\n{}Ideal: the lines that were left, from the moment of the fault on; extra: beyond that.\n{costs}",
        faults.join(" + "),
        aligned(&rows)
    )
}

/// What a GiB took with the faults, and what without them.
fn with_and_without(method: Method, with: &FaultSummary, without: &Summary) -> Option<String> {
    let cpu = |spread: Option<Spread>| spread.map(|spread| spread.median);
    let rate = |spread: Option<Spread>| spread.map(|rate| rate.median / f64::from(1 << 20));
    Some(format!(
        "{method}: {:.2} CPU s for each GiB of payload, {:.2} without; {:.0} MiB/s of payload, {:.0} without.\n",
        cpu(with.cpu_per_gib)?,
        cpu(without.cpu_per_gib)?,
        rate(with.payload_rate)?,
        rate(without.payload_rate)?
    ))
}

/// What became of the bytes of each method's guests, where they were reduced; what was decided of the last.
fn reductions(comparison: &Comparison) -> String {
    let mut text = String::new();
    for (method, summary) in &comparison.summary {
        let Some(reduced) = &summary.reduced else {
            continue;
        };
        let mut runs = comparison.runs.iter().rev();
        let last = runs.find(|run| run.method == *method && run.verified);
        let facts = last.and_then(|run| run.drover.as_ref());
        let how = facts.and_then(|facts| Some(facts.reduction.as_ref()?.how()));
        let how = how.map_or_else(String::new, |how| format!(", the last by {how}"));
        let _ = writeln!(
            text,
            "Bytes of {method}{how}:\n{}",
            reduced.lines().trim_end()
        );
    }
    text
}

fn agents_costs(comparison: &Comparison) -> impl Iterator<Item = (Method, f64, f64)> {
    comparison.summary.iter().filter_map(|(method, summary)| {
        let mebibytes = summary.agent_memory?.max / f64::from(1 << 20);
        Some((*method, summary.agent_cpu_per_gib?.median, mebibytes))
    })
}

fn heading(comparison: &Comparison) -> String {
    let (plan, machine) = (&comparison.settings, &comparison.machine);
    let nics: Vec<_> = plan
        .lab
        .nics
        .iter()
        .map(|rate| rate.map_or("unlimited".to_owned(), |rate| rate.to_string()))
        .collect();
    let always: Vec<_> = plan
        .always
        .iter()
        .map(|fault| format!("In every move: {fault}\n"))
        .collect();
    let libvirt = machine.libvirt.as_ref();
    let libvirt = libvirt.map(|version| format!(", libvirt {version}"));
    let disk = plan.guest.disk.as_ref();
    let disk = disk.map(|disk| format!("; {disk}"));
    format!(
        "{} guest, {}, {}{}; NICs {}, MTU {}\n{}{} x {}, Linux {}, QEMU {}{}{}\n",
        plan.guest.memory,
        plan.guest.contents_in_words(),
        plan.guest.dirty,
        disk.unwrap_or_default(),
        nics.join(" + "),
        plan.lab.mtu,
        always.concat(),
        machine.cores,
        machine.cpu,
        machine.kernel,
        machine.qemu,
        libvirt.unwrap_or_default(),
        if machine.emulated {
            ", guest emulated"
        } else {
            ""
        }
    )
}

fn row(method: Method, summary: &Summary) -> [String; 9] {
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
        spread(summary.wire_bytes, 1.0 / f64::from(1 << 20), 0),
        spread(summary.line_share, 100.0, 1),
        cpu.unwrap_or_else(|| NOTHING.to_owned()),
        format!("{}/{}", summary.verified, summary.runs),
    ]
}

pub(crate) fn spread(spread: Option<Spread>, factor: f64, digits: usize) -> String {
    spread.map_or(NOTHING.to_owned(), |s| {
        let [median, min, max] = [s.median, s.min, s.max].map(|value| value * factor);
        format!("{median:.digits$} ({min:.digits$}-{max:.digits$})")
    })
}
